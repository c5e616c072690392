"""Values inside values: keys of calls, dicts and `k=v` lists, never those inside a string."""

from __future__ import annotations

import pytest

from vllm_logpipe.catalogue.nested import (
    MAX_NESTED_LENGTH,
    key_spans,
    replace_values,
    unquote,
)

LONG = 20_000
"""Repeats in a hostile text."""


def pairs(text: str) -> list[tuple[str, str]]:
    """The keys and the texts of their values."""
    return [(key, text[start:end]) for key, start, end in key_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a'", "a"),
        ('"a"', "a"),
        ("''", ""),
        ("'a\\nb'", "a\nb"),
        ("'it\\'s'", "it's"),
        ('"it\'s"', "it's"),
        ("'\\u00e9'", "é"),
        ("'\\x1b'", "\x1b"),
        ("'\\ud800'", "\\ud800"),
        ("'\\N{no such name}'", "\\N{no such name}"),
        ("'a\\'", "a\\"),
        pytest.param("'\\n'" + "+'a'" * LONG, "\\n'" + "+'a'" * (LONG - 1) + "+'a", id="sum"),
        ("a", "a"),
        ("", ""),
        ("'", "'"),
        ("'a\"", "'a\""),
        ("None", "None"),
    ],
)
def test_a_python_string_is_read_and_anything_else_stays(text: str, expected: str) -> None:
    """Escapes are resolved where they are sound; a text that is no literal comes back."""
    assert unquote(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1, b=x", [("a", "1"), ("b", "x")]),
        ("Name(a=1, b=x)", [("a", "1"), ("b", "x")]),
        ("pkg.Name(a=1) and more=2", [("a", "1")]),
        ("{'a': 1, \"b\": 'x'}", [("a", "1"), ("b", "'x'")]),
        ("{'a': {'b': 2}, 'c': [3, 4]}", [("a", "{'b': 2}"), ("c", "[3, 4]")]),
        ("a=f(x=1, y=2), b=3", [("a", "f(x=1, y=2)"), ("b", "3")]),
        ("a=<Kind.X: 1>, b=3", [("a", "<Kind.X: 1>"), ("b", "3")]),
        ("a='x, b=2', c=3", [("a", "'x, b=2'"), ("c", "3")]),
        ('a="x\', b=2", c=3', [("a", '"x\', b=2"'), ("c", "3")]),
        ("a='x\\', b=2', c=3", [("a", "'x\\', b=2'"), ("c", "3")]),
        ("a='(', b=2", [("a", "'('"), ("b", "2")]),
        ("a=b=c, d=1", [("a", "b=c"), ("d", "1")]),
        ("{'a': 'k: v', 'b': 2}", [("a", "'k: v'"), ("b", "2")]),
        ("Name(7, a=1)", [("a", "1")]),
        ("a=1,b=2", [("a", "1"), ("b", "2")]),
        ("a=, b=2", [("a", ""), ("b", "2")]),
        ("a=1, ", [("a", "1")]),
        ("Name()", []),
        ("", []),
        ("no pairs at all", []),
        ("Name(a=1", [("a", "1")]),
        ("Name(a='cut off, b=2", [("a", "'cut off, b=2")]),
        ("a='cut off, b=2\\", [("a", "'cut off, b=2\\")]),
        ('a="cut off, b=2\\', [("a", '"cut off, b=2\\')]),
    ],
)
def test_the_pairs_of_the_outermost_level_are_found(
    text: str, expected: list[tuple[str, str]]
) -> None:
    """Strings are one token, to their end if unclosed, and brackets are counted."""
    assert pairs(text) == expected


@pytest.mark.parametrize(
    "hostile",
    [
        "(" * LONG,
        "a=" * LONG,
        "'" * (LONG + 1),
        "\\'" * LONG,
        '\\"' * LONG,
        "a='" + "\\" * (LONG + 1),
        ", " * LONG,
        "{'a': " * LONG,
        ")" * LONG,
    ],
)
def test_a_hostile_text_is_passed_over(hostile: str) -> None:
    """Text that looks nested without end gives an answer."""
    assert all(end >= start >= 0 for _, start, end in key_spans(hostile))


def test_what_is_looked_at_is_bounded() -> None:
    """No pair begins behind the limit."""
    text = "a='" + "x" * MAX_NESTED_LENGTH + "', b=2"
    assert [key for key, _, _ in key_spans(text)] == ["a"]


def test_values_are_put_in_place_of_their_spans() -> None:
    """Each span is replaced in order, the text between stays."""
    text = "Name(a='secret', b=2, c='more')"
    spans = [(start, end, f"<{key}>") for key, start, end in key_spans(text) if key != "b"]
    assert replace_values(text, spans) == "Name(a=<a>, b=2, c=<c>)"
    assert replace_values(text, []) == text
    assert replace_values("abc", [(0, 3, "")]) == ""
