"""Which lines without a header are one record: tracebacks, warnings, and what else is printed."""

from __future__ import annotations

import functools
from datetime import UTC, datetime

import pytest

from vllm_logpipe import Catalogue, LogRecord, Normalizer, load_catalogue

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()

A = "INFO 11-30 12:00:01 [a.py:1] "
UVICORN_ERROR = "ERROR:    Exception in ASGI application"
WARNING = "/opt/a/b.py:138: FutureWarning: old"
START = "Traceback (most recent call last):"
TRACE = [START, '  File "a.py", line 1, in f', "    g(x)", "      ^^^^", "ValueError: bad"]
CAUSE = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"
CHAIN = [*TRACE, "", CAUSE, "", *TRACE[:-1], "RuntimeError: worse", "", DURING, "", *TRACE]
PYDANTIC = [
    *TRACE[:-1],
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
    "  Value error, a made-up limit is too small [type=value_error]",
    "    For further information visit https://errors.pydantic.dev/2.12/v/value_error",
]
GROUP = [
    "  + Exception Group Traceback (most recent call last):",
    '  |   File "a.py", line 1, in f',
    "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
    "  +-+---------------- 1 ----------------",
    "    | Traceback (most recent call last):",
    '    |   File "b.py", line 2, in g',
    "    | ValueError: first",
    "    +------------------------------------",
]


@functools.cache
def catalogue() -> Catalogue:
    """The built-in catalogue, once."""
    return load_catalogue()


def normalize(data: str) -> list[LogRecord]:
    """The records of a stream."""
    normalizer = Normalizer("test", catalogue=catalogue(), reference=REFERENCE)
    return normalizer.feed(data.encode()) + normalizer.flush()


def bodies(*lines: str, end: str = "\n") -> list[str]:
    """The bodies of the records of some lines."""
    return [record.body for record in normalize("".join(f"{line}{end}" for line in lines))]


WHOLE = [TRACE, CHAIN, PYDANTIC, GROUP, ["Process EngineCore_DP0:", *TRACE]]


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CR LF"])
@pytest.mark.parametrize("prefix", ["", "(Worker_TP0 pid=8) ", "(A pid=1) (B pid=2) "])
@pytest.mark.parametrize("lines", WHOLE, ids=["plain", "chain", "pydantic", "group", "process"])
def test_a_raw_traceback_is_one_record(lines: list[str], prefix: str, end: str) -> None:
    """Frames, exception, its further lines and the chain to the next one belong together."""
    text = [prefix + line for line in lines]
    assert bodies(f"{A}before", *text, f"{A}after", end=end) == [
        "before",
        "\n".join(lines),
        "after",
    ]


def test_a_traceback_without_process_is_that_of_the_main_one() -> None:
    """A raw traceback is an error; `Process NAME:` names its process, else it is the main one."""
    record = normalize("\n".join(TRACE))[0]
    assert record.event_name == "vllm.exception"
    assert (record.severity_text, record.severity_number) == (None, 17)
    assert record.attributes["vllm.process.kind"] == "main"
    assert record.attributes["vllm.log.attribution"] == "inferred"
    child = normalize("\n".join(["Process EngineCore_DP3:", *TRACE]))[0].attributes
    assert child["vllm.process.name"] == "EngineCore_DP3"
    assert child["vllm.rank.dp"] == 3
    assert child["exception.stacktrace"] == "\n".join(TRACE)


@pytest.mark.parametrize("between", [[], [""], ["", ""]])
def test_two_tracebacks_are_two_records(between: list[str]) -> None:
    """A traceback that no chain sentence leads to is one of its own."""
    assert bodies(*TRACE, *between, *TRACE) == ["\n".join(TRACE)] * 2


def test_tracebacks_of_two_processes_are_told_apart() -> None:
    """Lines with different process prefixes make one record a process, in any order."""
    mixed = [f"({name} pid=1) {line}" for line in CHAIN for name in ("A", "B")]
    assert bodies(*mixed) == ["\n".join(CHAIN)] * 2


def test_lines_of_others_may_stand_in_a_traceback() -> None:
    """Records of other processes and bars between the lines of a traceback do not end it."""
    other = "(EngineCore pid=7) INFO 11-30 12:00:01 [core.py:5] x"
    mixed = [line for piece in TRACE for line in (piece, other)]
    assert "\n".join(TRACE) in bodies(*mixed)


def test_a_traceback_ends_with_what_does_not_belong_to_it() -> None:
    """After the exception a line that the catalogue knows is another record."""
    known = "GPU KV cache size: 48,704 tokens"
    assert bodies(*TRACE, known) == ["\n".join(TRACE), known]
    assert bodies(*TRACE, "INFO:     Shutting down") == ["\n".join(TRACE), "Shutting down"]


@pytest.mark.parametrize("prefix", ["", "(APIServer pid=3) "])
def test_a_server_error_has_the_traceback_that_follows(prefix: str) -> None:
    """An error line of uvicorn is followed by a raw traceback: one record."""
    lines = [UVICORN_ERROR, *TRACE]
    records = normalize("".join(f"{prefix}{line}\n" for line in lines))
    assert [record.body for record in records] == [
        "\n".join(["Exception in ASGI application", *TRACE])
    ]
    assert records[0].severity_text == "ERROR"


@pytest.mark.parametrize(
    ("header", "raw"),
    [
        (A, ""),
        ("(Worker pid=8) " + A, "(Worker pid=8) "),
        ("(EngineCore pid=7) " + A, ""),
    ],
    ids=["undecorated", "decorated stream", "decorated header"],
)
def test_an_empty_message_has_the_raw_traceback_that_follows(header: str, raw: str) -> None:
    """A call with an empty message prints its traceback without headers: one record."""
    assert bodies(header, *(raw + line for line in TRACE)) == ["\n".join(TRACE)]


def test_a_warning_has_its_line_of_source() -> None:
    """Python prints the source line of a warning, indented, below it."""
    source = "  warnings.warn("
    records = normalize(f"{WARNING}\n{source}\nnext\n{WARNING}\n{WARNING}\n")
    assert [record.body for record in records] == [
        f"FutureWarning: old\n{source}",
        "next",
        "FutureWarning: old",
        "FutureWarning: old",
    ]
    assert records[0].attributes["code.line.number"] == 138


def test_a_warning_of_another_process_has_its_own_line() -> None:
    """Warnings with prefixes are joined by process."""
    mixed = [f"({name} pid=1) {line}" for line in (WARNING, "  f()") for name in ("A", "B")]
    assert bodies(*mixed) == ["FutureWarning: old\n  f()"] * 2


@pytest.mark.parametrize(
    "lines",
    [
        ["one", "two"],
        ["one", "", "  two"],
        ["one", f"{A}x", "  two"],
        ["(A pid=1) one", "(B pid=1)   two"],
        ["(A pid=1) one", "  two"],
    ],
)
def test_other_raw_lines_are_records_of_their_own(lines: list[str]) -> None:
    """Only an indented line directly below belongs to the line before."""
    texts = [text for text in bodies(*lines) if text != "x"]
    assert [text.strip() for text in texts] == ["one", "two"]
    assert bodies("one", "  two", "three") == ["one\n  two", "three"]


@pytest.mark.parametrize("count", [1, 3])
def test_native_lines_are_records_of_their_own(count: int) -> None:
    """NCCL and C++ lines are never joined, however many of one kind follow."""
    lines = ["n:8:9 [0] NCCL INFO a", "[rank0]:[E1012 22:31:22.1 P.cpp:6] b", "[STATS] c"] * count
    assert bodies(*lines) == ["a", "b", "c"] * count


def test_words_of_a_traceback_in_a_message_start_none() -> None:
    """Text that only quotes the first line of a traceback is not one."""
    quoted = f"he said {START}"
    assert bodies(quoted, "x") == [quoted, "x"]
    assert normalize(f"{quoted}\n")[0].event_name is None
