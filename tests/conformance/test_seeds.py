"""The lines that the write-ups of operators show: each is recognised, with and without a header."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from vllm_logpipe import LogRecord, Normalizer

TABLE = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "seeds.jsonl").read_text().splitlines()
]
HEADERS = (
    "INFO 02-15 10:23:45 scheduler.py:789] ",
    "INFO 05-01 12:00:01 [loggers.py:111] ",
    "(EngineCore_DP0 pid=77) INFO 11-30 12:00:01 [core.py:139] ",
)
PRINTED = re.compile(
    r"(?:\([^()]* pid=\d+\) )?"
    r"(?:(?P<level>INFO|WARNING|ERROR) [\d-]+ [\d:]+ \[?[\w.]+:\d+\] |INFO: {5})"
)
HEADER_ATTRIBUTES = (
    "code.",
    "log.",
    "vllm.log.",
    "vllm.process.",
    "process.pid",
    "vllm.rank.",
    "vllm.engine.index",
)


def normalize(line: str) -> LogRecord:
    """The one record of a line."""
    normalizer = Normalizer("seeds", year=2026)
    (record,) = normalizer.feed(f"{line}\n".encode()) + normalizer.flush()
    return record


def values(record: LogRecord) -> dict[str, object]:
    """The attributes that the message gives, phase and class aside."""
    aside = ("vllm.phase", "error.type", "vllm.error.role")
    return {
        name: value
        for name, value in record.attributes.items()
        if not name.startswith(HEADER_ATTRIBUTES) and name not in aside
    }


def check(record: LogRecord, row: dict[str, object]) -> None:
    """Event, phase, class, role and typed values are those of the table."""
    attributes = record.attributes
    assert record.event_name == row["event_name"]
    assert attributes.get("vllm.phase") == row["phase"]
    assert attributes.get("error.type") == row["error_type"]
    assert attributes.get("vllm.error.role") == row["role"]
    given = row["attributes"]
    assert isinstance(given, dict)
    got = values(record)
    expected = dict(given)
    for name in list(expected):
        if name.startswith(HEADER_ATTRIBUTES):
            assert record.attributes[name] == expected.pop(name)
    assert got == expected
    assert {name: type(value) for name, value in got.items()} == {
        name: type(value) for name, value in expected.items()
    }


def test_the_table_holds_every_line() -> None:
    """The table has the 102 lines of the write-ups, in their order."""
    assert len(TABLE) == 102
    assert TABLE[0]["line"].startswith("INFO 02-01 10:00:01 llm_engine.py:100]")
    assert TABLE[-1]["line"].startswith(" Value error, User-specified max_model_len")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["line"][:60])
def test_a_line_as_printed_is_recognised(row: dict[str, object]) -> None:
    """The line as the write-up shows it gives event, values, class and severity."""
    record = normalize(str(row["line"]))
    check(record, row)
    assert record.severity_text == row["severity_text"]


def message(row: dict[str, object]) -> str:
    """The line of a row less the header that it is shown with."""
    line = str(row["line"])
    return line[found.end() :] if (found := PRINTED.match(line)) else line


def is_bar(row: dict[str, object]) -> bool:
    """Whether the line is a progress bar, which no logger prints."""
    return str(row["event_name"]).endswith(".progress")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["line"][:60])
def test_its_message_alone_is_recognised(row: dict[str, object]) -> None:
    """The message without its header gives the same event and values."""
    check(normalize(message(row)), row)


@pytest.mark.parametrize("header", HEADERS, ids=["v0", "v1", "v1_prefixed"])
@pytest.mark.parametrize(
    "row", [row for row in TABLE if not is_bar(row)], ids=lambda row: row["line"][:60]
)
def test_its_message_is_recognised_under_any_header(row: dict[str, object], header: str) -> None:
    """The message under the headers of other eras gives the same event and values."""
    check(normalize(header + message(row)), row)
