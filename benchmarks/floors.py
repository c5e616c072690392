"""The floors: parts of the work that no normaliser can leave out, each alone."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Reads the plain-text header of all releases; kept as it is, so that ratios stay comparable.
HEADER = re.compile(
    r"^(?:\((?P<proc>[^()]*?) (?:rank=(?P<rank>\d+) )?pid=(?P<pid>\d+)(?:, ip=(?P<ip>[^)]+))?\) )*"
    r"(?P<pfx>.*?)(?P<lvl>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<ts>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[?(?P<file>[^\s\]]+?):(?P<line>\d+)\] (?P<msg>.*)$"
)
_ANSI = re.compile(rb"\x1b\[[0-9;]*m")
_BATCH = 1 << 20

Scalar = str | int | float | bool | list[str] | list[int] | list[float]


class Record(msgspec.Struct, gc=False, omit_defaults=True):
    """A record with the keys of the NDJSON form."""

    timestamp: str
    observed_timestamp: str
    severity_text: str | None = None
    severity_number: int | None = None
    event_name: str | None = None
    body: str = ""
    attributes: dict[str, Scalar] = {}
    resource: dict[str, Scalar] = {}
    trace_id: str | None = None
    span_id: str | None = None


def iterate(path: Path) -> float:
    """Return the CPU seconds of reading the file line by line as bytes."""
    start = time.process_time()
    with path.open("rb") as file:
        for _ in file:
            pass
    return time.process_time() - start


def _batches(path: Path) -> Iterator[list[str]]:
    with path.open("rb") as file:
        while lines := file.readlines(_BATCH):
            yield [
                _ANSI.sub(b"", line.rstrip(b"\r\n")).decode("utf-8", "replace") for line in lines
            ]


def header(path: Path) -> float:
    """Return the CPU seconds of the header expression with its groups; preparation not counted."""
    match = HEADER.match
    spent = 0.0
    for lines in _batches(path):
        start = time.process_time()
        for line in lines:
            found = match(line)
            if found:
                found.groups()
        spent += time.process_time() - start
    return spent


def _record(line: str) -> Record:
    return Record(
        "2026-11-30T12:00:01Z",
        "2026-11-30T12:00:01.734Z",
        "INFO",
        9,
        "vllm.engine.stats",
        line,
        {
            "code.file.path": "loggers.py",
            "code.line.number": 335,
            "process.pid": 4711,
            "vllm.process.name": "APIServer",
            "vllm.process.kind": "api_server",
            "vllm.log.format": "v1_prefixed",
            "vllm.log.time.source": "printed",
            "vllm.log.time.resolution": 1,
            "vllm.engine.requests.running": 12,
        },
        {"service.name": "vllm", "service.instance.id": "a94a8fe5ccb19ba61c4c0873d391e987"},
    )


def encode_ready(path: Path) -> float:
    """Return the CPU seconds of encoding records that exist already, one a line."""
    encode = msgspec.json.Encoder().encode
    spent = 0.0
    for lines in _batches(path):
        records = [_record(line) for line in lines]
        start = time.process_time()
        for record in records:
            encode(record)
        spent += time.process_time() - start
    return spent


def encode_built(path: Path) -> float:
    """Return the CPU seconds of building a record with its attributes and encoding it."""
    encode = msgspec.json.Encoder().encode
    spent = 0.0
    for lines in _batches(path):
        start = time.process_time()
        for line in lines:
            encode(_record(line))
        spent += time.process_time() - start
    return spent
