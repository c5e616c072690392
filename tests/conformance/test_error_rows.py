"""Each failure and warning of the write-ups, in every wording, whichever way a server prints it."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct, convert

from vllm_logpipe import Catalogue, LogRecord, Normalizer, load_catalogue

TABLE = Path(__file__).parent.parent / "data" / "error_rows.toml"
KINDS = {1: 13, 2: 12, 3: 12, 4: 25, 5: 8, 6: 17, 7: 5, 8: 1}
"""How many rows each part of the write-up has."""
REFERENCE = 1_796_083_200.0
FRAMES = (
    'Traceback (most recent call last):\n  File "/opt/vllm/a.py", line 7, in f\n    g()\n    ~^^'
)
HEADERS = {
    "v0": "{} 11-30 12:00:01 a.py:7] ",
    "v1": "{} 11-30 12:00:01 [a.py:7] ",
    "v1_prefixed": "(EngineCore_DP0 pid=57) {} 11-30 12:00:01 [core.py:7] ",
}
BEFORE = "INFO 11-30 12:00:00 [b.py:1] made up line\n"
AFTERWARDS = "INFO 11-30 12:00:02 [b.py:1] made up line\n"


class Near(Struct, frozen=True, forbid_unknown_fields=True, rename={"failure": "class"}):
    """A line that looks like a row's and has another class, or none."""

    text: str
    failure: str
    level: str = "ERROR"


class Row(Struct, frozen=True, forbid_unknown_fields=True, rename={"failure": "class"}):
    """One row, or the part of it that has one class and role."""

    row: str
    code: str
    failure: str | None = None
    role: str | None = None
    level: str = "ERROR"
    pydantic: bool = False
    exceptions: list[str] = []
    messages: list[str] = []
    near: list[Near] = []


ROWS = convert(tomllib.loads(TABLE.read_text("utf-8"))["row"], list[Row])


@functools.cache
def built_in() -> Catalogue:
    """The built-in catalogue."""
    return load_catalogue()


def records(log: str) -> list[LogRecord]:
    """The records of a log."""
    normalizer = Normalizer("rows.log", catalogue=built_in(), year=2026, reference=REFERENCE)
    return normalizer.feed(f"{BEFORE}{log}".encode()) + normalizer.flush()


def classes(log: str) -> set[tuple[object, object]]:
    """Class and role of the records of a log that have one."""
    found: set[tuple[object, object]] = {
        (record.attributes.get("error.type"), record.attributes.get("vllm.error.role"))
        for record in records(log)
    }
    return found - {(None, None)}


def headed(text: str, header: str) -> str:
    """A message of several lines as vLLM's formatter prints it."""
    return "\r\n".join(f"{header}{line}" for line in text.split("\n")) + "\n"


def prefixed(text: str, prefix: str) -> str:
    """A text with something before each of its lines."""
    return "".join(f"{prefix}{line}\n" for line in text.split("\n"))


def wrapped(exception: str) -> str:
    """What a configuration object makes of an exception that its check raises."""
    kind, _, text = exception.partition(": ")
    name = "Assertion failed" if kind == "AssertionError" else "Value error"
    return (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
        f"  {name}, {text} [type=value_error, input_value=ArgsKwargs((), {{'model':"
        " '/models/made-up'}), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.12/v/value_error"
    )


def shown(exception: str) -> dict[str, str]:
    """An exception in each way that it comes into a log."""
    trace = f"{FRAMES}\n{exception}"
    error = {era: header.format("ERROR") for era, header in HEADERS.items()}
    return {
        **{f"under headers, {era}": headed(f"made up\n{trace}", h) for era, h in error.items()},
        "alone under headers": headed(trace, error["v1"]),
        "under headers without CR": prefixed(f"made up\n{trace}", error["v1"]) + AFTERWARDS,
        "in JSON": json.dumps(
            {
                "asctime": "2026-11-30 12:00:01,250",
                "levelname": "ERROR",
                "name": "vllm.v1.engine.core",
                "processName": "EngineCore_DP0",
                "process": 57,
                "message": "made up",
                "exc_info": trace,
            }
        ),
        "raw": f"{trace}\n{AFTERWARDS}",
        "raw of a child": f"Process EngineCore_DP0:\n{trace}\n{AFTERWARDS}",
        "raw with the process": prefixed(trace, "(EngineCore_DP0 pid=57) ") + AFTERWARDS,
        "raw of a rank": prefixed(trace, "[rank0]: ") + AFTERWARDS,
        "in a message": headed(exception, error["v1"]),
    }


def exceptions() -> Iterator[tuple[Row, str]]:
    """All exceptions, those too that a configuration object repeats."""
    for row in ROWS:
        for exception in row.exceptions:
            yield row, exception
            if row.pydantic:
                yield row, wrapped(exception)


def messages() -> Iterator[tuple[Row, str]]:
    """All messages."""
    return ((row, message) for row in ROWS for message in row.messages)


def name(value: object) -> str | None:
    """A row or a text as a test's name shows it."""
    return value.row if isinstance(value, Row) else str(value)[:50]


def expected(row: Row) -> set[tuple[object, object]]:
    """The class and role of a row as `classes` gives them."""
    return set() if row.failure is None else {(row.failure, row.role)}


def test_the_table_holds_every_row() -> None:
    """No row of a part is left out, and no row is without a text."""
    assert {row.row for row in ROWS} == {
        f"{part}.{number}" for part, count in KINDS.items() for number in range(1, count + 1)
    }
    assert all(row.exceptions or row.messages for row in ROWS)
    assert all((row.failure is None) == (row.role is None) for row in ROWS)


@pytest.mark.parametrize(("row", "exception"), list(exceptions()), ids=name)
def test_an_exception_has_the_class_however_it_is_printed(row: Row, exception: str) -> None:
    """A traceback's last line, under headers or raw, and the same text in a message say it."""
    got = {way: classes(log) for way, log in shown(exception).items()}
    assert got == dict.fromkeys(got, expected(row))


def printed(level: str, text: str) -> list[str]:
    """A message under the headers of all eras; without a level, the line as it stands."""
    if not level:
        return [f"{text}\n{AFTERWARDS}"]
    return [headed(text, header.format(level)) for header in HEADERS.values()]


@pytest.mark.parametrize(("row", "message"), list(messages()), ids=name)
def test_a_message_has_the_class_under_any_header(row: Row, message: str) -> None:
    """Class and role are those of the row; a line that means no harm has neither."""
    for log in printed(row.level, message):
        assert classes(log) == expected(row), log


@pytest.mark.parametrize(
    ("row", "near"),
    [(row, near) for row in ROWS for near in row.near],
    ids=lambda value: value.text[:50] if isinstance(value, Near) else value.row,
)
def test_what_stands_near_has_another_class_or_none(row: Row, near: Near) -> None:
    """Healthy lines, advice and other failures of like words are not taken for the row's."""
    for log in printed(near.level, near.text):
        found = {failure for failure, _ in classes(log)}
        assert found == ({near.failure} if near.failure else set()), log
    assert near.failure == "_OTHER" or near.failure != row.failure


RECEIVED = (
    "Received request a-1: prompt: {!r}, params: SamplingParams(n=1, stop=[], max_tokens=16),"
    " prompt_token_ids: None, prompt_embeds shape: None, lora_request: None."
)
ECHOES = [
    (
        "INFO",
        RECEIVED,
        "",
    ),
    ("INFO", "Generated response a-1: output: {!r}, finish_reason: stop", ""),
    ("INFO", "made up: {!r}", ""),
    (
        "ERROR",
        "Error with model object='error' message='The model `{}` does not exist.' code=404",
        "request.model_not_found",
    ),
    ("ERROR", "Error in extracting tool call from response: {!r}", "request.internal_error"),
    ("ERROR", "ValueError: Grammar error: {!r}", "structured_output.invalid"),
]


@pytest.mark.parametrize(("level", "line", "failure"), ECHOES)
@pytest.mark.parametrize("row", [row for row in ROWS if row.failure], ids=name)
def test_a_client_that_writes_the_text_changes_nothing(
    row: Row, level: str, line: str, failure: str
) -> None:
    """A prompt, an output or a name that repeats a failure's text does not make one."""
    for text in (*row.exceptions, *row.messages):
        for said in (text, text.partition(": ")[2]):
            log = headed(line.format(said.replace("\n", " ")), HEADERS["v1"].format(level))
            assert {found for found, _ in classes(log)} == ({failure} if failure else set()), log


REFUSALS = [
    "jinja2.exceptions.TemplateError: made up by a template\n{}",
    "vllm.exceptions.VLLMValidationError: made up\n{}\n (parameter=prompt)",
    "ValueError: Grammar error: made up\n{}",
    "ValueError: This model's maximum context length is 8 tokens. However, your request has\n{}",
]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("row", [row for row in ROWS if row.failure], ids=name)
def test_a_client_that_writes_the_text_on_a_line_of_its_own_changes_nothing(
    row: Row, refusal: str
) -> None:
    """What a refused request says on further lines is not looked at."""
    kind = {"Grammar": "structured_output.invalid", "maximum": "request.too_long"}
    expected = next((kind[word] for word in kind if word in refusal), "request.invalid")
    for said in row.exceptions:
        for text in (said, said.partition(": ")[2]):
            log = headed(f"{FRAMES}\n{refusal.format(text)}", HEADERS["v1"].format("ERROR"))
            assert {found for found, _ in classes(log)} == {expected}, log


TEARDOWN = ["KeyboardInterrupt", "SystemExit: 0", "asyncio.exceptions.CancelledError"]


@pytest.mark.parametrize("exception", TEARDOWN)
def test_the_exceptions_of_a_stop_are_no_failures(exception: str) -> None:
    """A process that is asked to end prints a traceback too, and has no class of failure."""
    got = {way: classes(log) for way, log in shown(exception).items() if way != "in a message"}
    assert got == {way: {("_OTHER", "teardown")} for way in got}


def test_only_what_has_a_reason_is_left_without_a_class() -> None:
    """The rows that no class fits are these; beside each the table says why."""
    assert {row.code for row in ROWS if row.failure == "_OTHER"} == {"mem.profile", "load.file"}


def test_an_unknown_failure_has_the_class_that_says_so() -> None:
    """No error is without a class."""
    for log in shown("site.StrangeError: made up").values():
        assert classes(log) == {("_OTHER", "unknown")}
