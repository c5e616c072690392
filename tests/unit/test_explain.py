"""What a line is, told to a person."""

from __future__ import annotations

import functools

import pytest

from vllm_logpipe import Catalogue, load_catalogue
from vllm_logpipe.report.explain import explain_line

HEADER = "(EngineCore_DP0 pid=77) INFO 11-30 12:00:01 [kv_cache_utils.py:139] "
KNOWN = "GPU KV cache size: 48,704 tokens"


@functools.cache
def catalogue() -> Catalogue:
    """The built-in catalogue, once."""
    return load_catalogue()


def explain(line: str) -> list[str]:
    """The lines of an explanation."""
    return list(explain_line(line, catalogue()))


def test_a_known_line_is_told_with_header_entry_and_values() -> None:
    """Header fields, message, entry, template and typed values are named."""
    lines = explain(HEADER + KNOWN)
    assert lines[0] == "header   v1_prefixed"
    assert {
        "  level  INFO",
        "  vllm.process.name = EngineCore_DP0",
        "  process.pid = 77",
        "  code.file.path = kv_cache_utils.py",
        "  code.line.number = 139",
        f"message  {KNOWN!r}",
        "entry    vllm.kv_cache.capacity",
        "  vllm.kv_cache.capacity = 48704",
        "  vllm.rank.dp = 0",
    } <= set(lines)
    assert any(line.startswith("  time   ") and line.endswith("(printed)") for line in lines)
    assert any(line.startswith("  template  ") and "KV cache size" in line for line in lines)


def test_an_unknown_line_is_told_with_what_is_near() -> None:
    """Entries whose fixed text is alike are named, at most three."""
    lines = explain("GPU KV cache sizes: 48,704 tokens")
    assert "entry    none" in lines
    near = lines[lines.index("near") + 1 :]
    assert 1 <= len(near) <= 3
    assert all(line.startswith("  vllm.") and ": " in line for line in near)


def test_a_line_like_nothing_has_nothing_near() -> None:
    """Where no entry is alike, none is named."""
    lines = explain("zzz qqq 777")
    assert lines == [
        "header   raw",
        next(line for line in lines if line.startswith("  time ")),
        "  level  none",
        "message  'zzz qqq 777'",
        "entry    none",
    ]


@pytest.mark.parametrize("line", ["", "  ", "(EngineCore pid=7) ", "\x1b[0m", "\r"])
def test_a_blank_line_is_said_to_be_none(line: str) -> None:
    """A line that makes no record is told so."""
    (text,) = explain(line)
    assert text.startswith("no record")


def test_several_lines_are_told_one_after_the_other() -> None:
    """Each record has its section; a traceback is one."""
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bad'
    lines = explain(f"one\n{trace}")
    assert lines.count("") == 1
    assert [line for line in lines if line.startswith("header")] == ["header   raw"] * 2
    assert "  exception.type = 'ValueError'" in lines
    assert "entry    vllm.exception" in lines


def test_an_explanation_is_redacted() -> None:
    """Secrets are not shown here either."""
    assert "0123456789" not in "\n".join(explain("the key is sk-made-up-0123456789"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a\x00b", "a\x00b"),
        ("a\udcffb", "a\\xffb"),
        ("ü 😀", "ü 😀"),
        ("x" * 100_000, "x" * 100_000),
        ("%s {vllm.model:text} \\d", "%s {vllm.model:text} \\d"),
    ],
    ids=["NUL", "no UTF-8", "UTF-8", "long", "like a template"],
)
def test_any_text_can_be_explained(line: str, message: str) -> None:
    """A byte that is no text, as the shell hands it on, is told as in a file."""
    assert f"message  {message!r}" in explain(line)
