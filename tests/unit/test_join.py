"""Which lines with a header are one record."""

from __future__ import annotations

import functools
from datetime import UTC, datetime

import pytest

from vllm_logpipe import Catalogue, LogRecord, Normalizer, load_catalogue
from vllm_logpipe.read.join import MAX_RECORD_LENGTH
from vllm_logpipe.read.lines import MAX_LINE_LENGTH, LineSplitter

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()

A = "INFO 11-30 12:00:01 [a.py:1] "
B = "INFO 11-30 12:00:01 [b.py:2] "
LATER = "INFO 11-30 12:00:02 [a.py:1] "
ENGINE = "(EngineCore pid=7) ERROR 11-30 12:00:01 [core.py:5] "
WORKER = "(Worker_TP0 pid=8) ERROR 11-30 12:00:01 [core.py:5] "
START = "Traceback (most recent call last):"
FRAME = '  File "a.py", line 1, in f'
CAUSE = "The above exception was the direct cause of the following exception:"
ADDED = "Added request cmpl-made-up-0."
"""A message of the catalogue."""


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


@pytest.mark.parametrize("cr", ["", "\r"], ids=["CR stripped", "with CR"])
@pytest.mark.parametrize("header", [A, "INFO 11-30 12:00:01 a.py:1] ", ENGINE, f"(A pid=1) {A}"])
@pytest.mark.parametrize(
    "lines",
    [
        ["one"],
        ["it failed", "  indented", "\ttabbed"],
        ["it failed", "", "after a blank line"],
        ["it failed", ""],
        ["", "logo", "more of it"],
        ["it failed", START, FRAME, "    g()", "ValueError: bad"],
        [START, FRAME, "ValueError: bad"],
        ["it failed", START, FRAME, "ValueError: bad", "", CAUSE, "", START, FRAME, "KeyError: 1"],
        ["it failed", START, FRAME, "pydantic.ValidationError: 1 error", "  Value error, x"],
        ["it failed", START, FRAME, "RuntimeError: of", "two lines", "and three"],
    ],
    ids=lambda lines: " ".join(lines)[:40],
)
def test_the_lines_of_one_call_are_one_record(lines: list[str], header: str, cr: str) -> None:
    """The header is repeated on every line; with the CRs or without, the record is whole."""
    text = f"{cr}\n".join(header + line for line in lines) + "\n"
    records = normalize(f"{A.replace('a.py', 'z.py')}before\n{text}{LATER}after\n")
    assert [record.body for record in records] == ["before", "\n".join(lines), "after"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (A + "one", B + "two"),
        (A + "one", LATER + "two"),
        (A + "one", "WARNING 11-30 12:00:01 [a.py:1] two"),
        (A + "one", "INFO 11-30 12:00:01 [a.py:2]  two"),
        (A + "one", "INFO 11-30 12:00:01 a.py:1]  two"),
        (A + "one", f"(A pid=1) {A} two"),
        (f"(A pid=1) {A}one", f"(B pid=2) {A}two"),
        (A + ADDED, A + ADDED),
        (A + "one", A + "two"),
        (A + "one", A + ADDED),
    ],
)
def test_two_calls_are_two_records(first: str, second: str) -> None:
    """Another header ends a record; so does a message of its own under the same header."""
    assert len(bodies(first, second)) == 2


def test_cr_tells_what_shape_does_not() -> None:
    """Once some lines have CR and some have not, a CR says that the record goes on."""
    shown = f"{B}x\n{LATER}y\r\n{LATER} z\n"
    records = normalize(f"{shown}{A}one\r\n{A}two\r\n{A}three\n")
    assert [record.body for record in records] == ["x", "y\n z", "one\ntwo\nthree"]


def test_without_cr_where_others_have_it_a_record_is_over() -> None:
    """A line without CR is the last of its record, however the next one looks."""
    data = f"{B}x\n{LATER}y\r\n{LATER} z\n{A}one\n{A}  two\n"
    assert [r.body for r in normalize(data)] == ["x", "y\n z", "one", "  two"]


@pytest.mark.parametrize(
    "lines",
    [
        [A + ADDED, A + ADDED, LATER + "x"],
        [A + "one", A + "two", LATER + "three"],
        [A + "one", "raw", A + "two"],
        [f"(A pid=1) {A}one", f"(A pid=1) {A}two", f"(A pid=1) {LATER}three", "raw"],
    ],
)
def test_through_a_terminal_cr_says_nothing(lines: list[str]) -> None:
    """Where every line ends in CR LF, records are those of the same lines without CR."""
    many = [*lines, *(line.replace("11-30", "11-29") for line in lines)] * 2
    assert bodies(*many, end="\r\n") == bodies(*many)


def test_a_doubled_cr_goes_on_through_a_terminal() -> None:
    """A terminal adds its own CR to the one that vLLM wrote."""
    lines = [f"{LATER}one\r", f"{B}two\r", "raw\r", f"{A}one\r\r", f"{A}two\r", f"{LATER}three\r"]
    assert bodies(*lines) == ["one", "two", "raw", "one\ntwo", "three"]


@pytest.mark.parametrize("cr", ["", "\r"])
def test_processes_that_print_at_once_are_told_apart(cr: str) -> None:
    """Lines of several processes in any order make one record a process."""
    lines = ["it failed", START, FRAME, "ValueError: bad"]
    mixed = []
    for number, line in enumerate(lines):
        end = cr if number < len(lines) - 1 else ""
        mixed += [f"{ENGINE}{line}{end}", f"{WORKER}{line}{end}", 'INFO:     "x"']
    records = [body for body in bodies(*mixed) if body != '"x"']
    assert records == ["\n".join(lines)] * 2


def test_a_record_ends_where_its_process_prints_the_next() -> None:
    """A later line with the header of a record that has ended does not join it."""
    assert bodies(A + "one", A + "  two", LATER + "x", A + "  three") == [
        "one\n  two",
        "x",
        "  three",
    ]


def test_a_few_lines_of_others_may_stand_between() -> None:
    """64 lines of others do not part a record; far more do."""
    others = [B.replace(":2", f":{number}") + f"x{number}" for number in range(3, 200)]
    assert "one\n  two" in bodies(A + "one", *others[:60], A + "  two")
    apart = bodies(A + "one", *others, A + "  two")
    assert {"one", "  two"} <= set(apart)


def test_a_decorated_prefix_may_be_nested() -> None:
    """A process that was decorated twice prints both prefixes on every line."""
    nested = f"(A pid=1) (Worker_TP1 pid=9) {A}"
    (record,) = normalize(f"{nested}it failed\n{nested}{START}\n{nested}{FRAME}\n{nested}E: x\n")
    assert record.body == f"it failed\n{START}\n{FRAME}\nE: x"
    assert record.attributes["vllm.process.name"] == "Worker_TP1"


@pytest.mark.parametrize("shape", ["[llm-a] {header}", "(A pid=1) [llm-a] {header}"])
def test_a_logging_prefix_is_part_of_the_header(shape: str) -> None:
    """VLLM_LOGGING_PREFIX is repeated on every line; raw text with a header in it stays raw."""
    header = shape.format(header=A)
    later = shape.format(header=LATER)
    raw = f"he said {A}x"
    assert bodies(header + "one", header + "  two", raw, later + "three") == [
        "one\n  two",
        raw,
        "three",
    ]


def test_a_coloured_header_is_read() -> None:
    """ANSI codes of level, time, place and process prefix are taken off."""
    header = (
        "\x1b[0;36m(EngineCore pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m11-30 12:00:01\x1b[0m "
        "\x1b[90m[core.py:5]\x1b[0m "
    )
    link = "\x1b]8;;https://example.test\x07link\x1b]8;;\x07"
    records = normalize(f"{header}one\r\n{header}  \x1b[1mtwo {link}\x1b[0m\n")
    assert [record.body for record in records] == ["one\n  two link"]
    assert records[0].attributes["process.pid"] == 7


def test_nul_bytes_are_kept() -> None:
    """NULs, which a crash leaves in files, are text like any other."""
    assert bodies("\x00\x00raw\x00", f"{A}a\x00b") == ["\x00\x00raw\x00", "a\x00b"]


def test_cr_inside_a_headed_line_parts_its_lines() -> None:
    """A lone CR in a message that was printed as one line is a line break."""
    assert bodies(f"{A}one\rtwo") == ["one\ntwo"]


@pytest.mark.parametrize("lines", [["", "\n", "  ", "\t"], ["\r", "\r\r"], ["\x1b[0m"]])
def test_blank_lines_make_no_record(lines: list[str]) -> None:
    """Blank lines are not records."""
    assert bodies(*lines) == []
    assert bodies(f"{A}x", *lines, f"{LATER}y") == ["x", "y"]


@pytest.mark.parametrize("prefix", ["(A pid=1) ", "(A pid=1) (B pid=2) ", "(A pid=1)  \r"])
def test_lines_of_a_prefix_only_make_no_record(prefix: str) -> None:
    """What is left of a bar that was cleared is not a record."""
    assert bodies(prefix, f"{A}x", prefix) == ["x"]


def test_a_record_of_many_characters_is_cut() -> None:
    """A record over the limit ends, marked as cut, and a new one goes on; no text is lost."""
    line = A + "  " + "x" * (MAX_RECORD_LENGTH // 8 - 100)
    records = normalize(f"{A}start\n" + f"{line}\n" * 12 + f"{LATER}end\n")
    assert [record.attributes.get("vllm.log.truncated") for record in records] == [True, None, None]
    assert [record.body[:6].strip() for record in records] == ["start", "xxxx", "end"]
    lengths = [len(record.body) for record in records]
    assert max(lengths) <= MAX_RECORD_LENGTH * 1.2
    assert sum(lengths[:2]) == len("start") + 12 * (len(line) - len(A) + 1) - 1


def joined(data: str, limit: int) -> list[tuple[str, bool]]:
    """Text of each record, and whether it was cut, where lines are cut at some length."""
    normalizer = Normalizer("test", catalogue=catalogue(), reference=REFERENCE)
    normalizer._splitter = LineSplitter(limit)
    records = normalizer.feed(data.encode()) + normalizer.flush()
    return [(record.body, "vllm.log.truncated" in record.attributes) for record in records]


@pytest.mark.parametrize("header", ["", A, "(A pid=1) "])
def test_a_cut_line_loses_no_text(header: str) -> None:
    """A line over the limit comes out in pieces, each marked, and the next line is untouched."""
    pieces = joined(f"{header}{'x' * 50}{'y' * 50}z\n{LATER}next\n", 50)
    assert "".join(text for text, _ in pieces) == "x" * 50 + "y" * 50 + "znext"
    assert [cut for _, cut in pieces] == [True] * (len(pieces) - 1) + [False]


def test_the_pieces_of_a_cut_line_are_clean_too() -> None:
    """ANSI codes and the CR at the end are no text in any piece; a blank piece is no record."""
    assert joined("x" * 40 + "\x1b[1myy\x1b[0m\r\n", 40) == [("x" * 40, True), ("yy", True)]
    assert joined("x" * 40 + "   \r\n", 40) == [("x" * 40, True)]


def test_a_line_longer_than_any_prompt_is_cut() -> None:
    """The limit of 16 MiB a line holds for a whole stream."""
    records = normalize(f"{A}{'x' * MAX_LINE_LENGTH}\n{LATER}next\n")
    assert [record.body[-4:] for record in records] == ["xxxx", "xxxx", "next"]
    assert [record.attributes.get("vllm.log.truncated") for record in records] == [True, True, None]


def test_a_line_without_time_is_no_header() -> None:
    """A raw line that is like a header seen before, but for the time, is still raw."""
    assert bodies("INFO 11-30 12:00:01 a:1] x", "INFO  a:1]text") == ["x", "INFO  a:1]text"]
