"""What the normaliser makes of the logs of real vLLM servers, against labels made by hand."""

from __future__ import annotations

import functools
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.read.header import HeaderReader

DATA = Path(__file__).parent.parent / "data"
LOGS = sorted(path.name.removesuffix(".gz") for path in (DATA / "logs").glob("*.log.gz"))
REFERENCE = 1_796_083_200.0
"""2026-12-01 00:00 UTC: shortly after the last line of them all."""

ANSI = re.compile(r"\x1b\[[0-9;]*m")
HEADER = re.compile(
    r"^(?:\((?P<proc>[^()]*?) (?:rank=(?P<rank>\d+) )?pid=(?P<pid>\d+)(?:, ip=(?P<ip>[^)]+))?\) )*"
    r"(?P<pfx>.*?)(?P<lvl>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<ts>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[?(?P<file>[^\s\]]+?):(?P<line>\d+)\] (?P<msg>.*)$"
)
"""The plain-text header of all releases, as a pattern of its own: slow, but independent."""
CUSTOM_PREFIX = "[pod-7/llm-a] "
"""The VLLM_LOGGING_PREFIX of one of the servers."""
FAILED = {"ERROR", "CRITICAL"}
VAGUE = {"worker.exception", "request.internal_error", "_OTHER"}


@functools.cache
def content(name: str) -> bytes:
    """The bytes of a log."""
    return gzip.decompress((DATA / "logs" / f"{name}.gz").read_bytes())


@functools.cache
def normalized(name: str, *, strip_cr: bool = False) -> tuple[LogRecord, ...]:
    """The records of a log, with or without the CRs that shippers strip."""
    data = content(name)
    if strip_cr:
        data = data.replace(b"\r\n", b"\n")
    normalizer = Normalizer(name, reference=REFERENCE)
    return (*normalizer.feed(data), *normalizer.flush())


def labels(file: str) -> list[dict[str, object]]:
    """The hand-made labels of a file of `tests/data`."""
    return [json.loads(line) for line in (DATA / file).read_text().splitlines()]


@functools.cache
def line_numbers(name: str) -> dict[int, int]:
    """The number of a physical line by its byte offset, both of LF-ended lines."""
    numbers, offset = {}, 0
    for number, line in enumerate(content(name).split(b"\n"), 1):
        numbers[offset] = number
        offset += len(line) + 1
    return numbers


def first_line(name: str, record: LogRecord) -> int:
    """The physical line that a record begins on."""
    offset = int(str(record.attributes["log.record.uid"]).partition("-")[2], 16)
    numbers = line_numbers(name)
    return (
        numbers[max(start for start in numbers if start <= offset)]
        if offset not in numbers
        else numbers[offset]
    )


def expected_headers(name: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Every physical line with a vLLM header, and what the independent pattern reads in it."""
    for raw in content(name).decode(errors="replace").split("\n"):
        line = ANSI.sub("", raw.rstrip("\r"))
        if (found := HEADER.match(line)) and not found["pfx"]:
            yield line, found
        elif line.startswith(CUSTOM_PREFIX):
            found = HEADER.match(line.removeprefix(CUSTOM_PREFIX))
            assert found is not None
            yield line, found


@pytest.mark.parametrize("name", LOGS)
def test_every_header_field_of_every_line_is_right(name: str) -> None:
    """Level, time, file, line, process, pid and message of each headed line are as printed."""
    reader = HeaderReader()
    for line, found in expected_headers(name):
        beginning = reader.read(line)
        head = beginning.head
        assert head is not None, line
        attributes = json.loads("{" + head.members + "}")
        assert (
            head.level,
            beginning.stamp,
            attributes["code.file.path"],
            attributes["code.line.number"],
            line[beginning.start :],
        ) == (found["lvl"], found["ts"], found["file"], int(found["line"]), found["msg"])
        assert attributes.get("vllm.process.name") == found["proc"]
        assert attributes.get("process.pid") == (int(found["pid"]) if found["pid"] else None)


def test_every_field_of_every_json_line_is_right() -> None:
    """JSON mode: level, time, pid, process, logger and message are the object's."""
    name = "04_json_formatter.log"
    lines = [
        json.loads(line) for line in content(name).decode().splitlines() if line.startswith("{")
    ]
    records = [r for r in normalized(name) if r.attributes["vllm.log.format"] == "json"]
    assert len(records) == len(lines) > 3000
    for line, record in zip(lines, records, strict=True):
        attributes = record.attributes
        assert record.severity_text == line["levelname"]
        assert attributes["process.pid"] == line["process"]
        assert attributes["vllm.process.name"] == line["vllm_process_name"]
        assert attributes["vllm.log.logger.name"] == line["name"]
        stamp = line["asctime"].replace(" ", "T").replace(",", ".")
        assert rfc3339_ms(record.time_unix_nano) == stamp


def rfc3339_ms(time_unix_nano: int) -> str:
    """A time to the millisecond."""
    from vllm_logpipe.read.clock import rfc3339

    text = rfc3339(time_unix_nano).removesuffix("Z")
    return text[:23] if "." in text else f"{text}.000"


def wording(body: str) -> str:
    """A message with what varies taken out."""
    text = re.sub(r"'[^']*'", "'…'", body.partition("\n")[0])
    text = re.sub(r"[0-9a-f]{8,}", "#", text)
    return re.sub(r"\d+(\.\d+)?", "#", text)[:110]


def test_nearly_all_records_and_wordings_have_an_event() -> None:
    """At least 95 % of the records from INFO up and 85 % of their distinct wordings are known."""
    total = known = 0
    wordings: dict[str, bool] = {}
    for name in LOGS:
        for record in normalized(name):
            if (record.severity_number or 9) < 9:
                continue
            total += 1
            known += record.event_name is not None
            text = wording(record.body)
            wordings[text] = wordings.get(text, True) and record.event_name is not None
    assert total > 30_000
    assert known / total >= 0.95
    assert sum(wordings.values()) / len(wordings) >= 0.85


def failures(name: str) -> dict[int, LogRecord]:
    """The ERROR/CRITICAL records, tracebacks and argparse ends of a log, by their first line."""
    return {
        first_line(name, record): record
        for record in normalized(name)
        if record.severity_text in FAILED
        or record.severity_number == 17
        or record.body.startswith("vllm: error:")
        or "exception.stacktrace" in record.attributes
        or "Traceback (most recent call last):\n" in record.body
    }


@pytest.mark.parametrize("name", LOGS)
def test_error_classes_and_roles_are_those_of_the_labels(name: str) -> None:
    """Each ERROR/CRITICAL record and traceback is found once, with its class, role and types."""
    expected = {
        int(str(label["line"])): label
        for label in labels("error_labels.jsonl")
        if label["file"] == name
    }
    found = failures(name)
    assert sorted(found) == sorted(expected)
    for line, record in found.items():
        label = expected[line]
        attributes = record.attributes
        assert (attributes["error.type"], attributes["vllm.error.role"]) == (
            label["error_type"],
            label["role"],
        ), (name, line)
        if label["exception_type"] is not None:
            assert attributes["exception.type"] == label["exception_type"]
            root = attributes.get("vllm.exception.root.type", attributes["exception.type"])
            assert root == label["root_exception_type"]


def test_the_labels_are_of_these_logs() -> None:
    """No label speaks of a log that is not looked at, and most logs have some."""
    files = {
        label["file"]
        for file in ("error_labels.jsonl", "multiline_records.jsonl")
        for label in labels(file)
    }
    assert files <= set(LOGS)
    assert len(files) > 20


def test_few_failures_are_only_vaguely_classed() -> None:
    """At most 5 % of the failures have a class that says nothing about the cause."""
    classes = [r.attributes["error.type"] for name in LOGS for r in failures(name).values()]
    assert len(classes) > 100
    assert sum(error in VAGUE for error in classes) / len(classes) <= 0.05


def extent(name: str, label: dict[str, object]) -> str:
    """The messages of the physical lines that a label says are one record, joined by LF."""
    lines = content(name).decode().split("\n")
    first, last = int(str(label["line"])), int(str(label["last"]))
    other = label["other"]
    assert isinstance(other, list)
    texts = []
    for number in range(first, last + 1):
        if number in other:
            continue
        line = ANSI.sub("", lines[number - 1].rstrip("\r"))
        if line.startswith("{"):
            document = json.loads(line)
            trace = document.get("exc_info")
            line = document["message"] + (f"\n{trace}" if trace else "")
        elif found := HEADER.match(line.removeprefix(CUSTOM_PREFIX)):
            line = found["msg"]
        else:
            line = re.sub(r"^\([^()]* pid=\d+\) ", "", line)
        texts.append(line)
    return "\n".join(texts).rstrip("\n")


@pytest.mark.parametrize("strip_cr", [False, True], ids=["with CR", "CR stripped"])
@pytest.mark.parametrize("name", LOGS)
def test_each_multi_line_record_is_one(name: str, *, strip_cr: bool) -> None:
    """Tracebacks and multi-line messages are one record of exactly their lines, CR or none."""
    by_text = {record.body.rstrip("\n") for record in normalized(name, strip_cr=strip_cr)}
    for file in ("error_labels.jsonl", "multiline_records.jsonl"):
        for label in labels(file):
            if label["file"] == name and label["last"] != label["line"]:
                text = extent(name, label)
                assert text in by_text or redacted_alike(text, by_text), (name, label["line"])


def redacted_alike(text: str, bodies: set[str]) -> bool:
    """Whether a body equals the text but for what was redacted in it."""
    for body in bodies:
        if "[redacted" in body and body.count("\n") == text.count("\n"):
            pattern = re.sub(r"\\\[redacted\\ (\d+)\\ chars\\\]", r".{\1}", re.escape(body))
            pattern = pattern.replace(r"\[redacted\]", r"[^\n]+?")
            if re.fullmatch(pattern, text, re.DOTALL):
                return True
    return False


@pytest.mark.parametrize("name", LOGS)
def test_records_are_the_same_without_any_cr(name: str) -> None:
    """Joining by header and shape alone gives the records that CRs confirm."""

    def seen(records: tuple[LogRecord, ...]) -> list[tuple[object, ...]]:
        return [(r.severity_text, r.event_name, r.body, r.time_unix_nano) for r in records]

    assert seen(normalized(name, strip_cr=True)) == seen(normalized(name))


@pytest.mark.parametrize("name", LOGS)
def test_no_headed_line_is_lost(name: str) -> None:
    """There are as many records as CRs say there are."""
    lines = content(name).decode(errors="replace").split("\n")
    continued = False
    expected = 0
    for raw in lines:
        line = ANSI.sub("", raw.rstrip("\r")).removeprefix(CUSTOM_PREFIX)
        if (found := HEADER.match(line)) and not found["pfx"]:
            expected += not continued
            continued = raw.endswith("\r")
    formats = {"v0", "v1", "v1_prefixed"}
    got = sum(record.attributes["vllm.log.format"] in formats for record in normalized(name))
    assert got == expected
