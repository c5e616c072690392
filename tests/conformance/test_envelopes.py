"""Real logs inside of each envelope: the records are those of the log without one."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from vllm_logpipe import LogRecord, Normalizer, encode_ndjson

DATA = Path(__file__).parent.parent / "data" / "logs"
LOGS = [
    "01_serve_info_default",
    "04_json_formatter",
    "05_color",
    "06d_fail_kv_too_small",
    "07_tp2",
    "10_prefix",
    "old085_06d_fail_kv_too_small",
]
MAX_LINES = 600
REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
ASIDE = frozenset(
    {
        "log.record.uid",
        "log.iostream",
        "vllm.log.time.source",
        "vllm.log.time.resolution",
        "vllm.log.attribution",
    }
)
"""What an envelope may change."""
_TIME = "2026-11-30T12:00:01.000000005Z"


def _docker(line: str) -> str:
    pieces = [line[at : at + 100] for at in range(0, len(line), 100)] or [""]
    pieces[-1] += "\n"
    return "\n".join(
        json.dumps({"log": piece, "stream": "stderr", "time": _TIME}) for piece in pieces
    )


def _cri(line: str) -> str:
    pieces = [line[at : at + 100] for at in range(0, len(line), 100)] or [""]
    tags = ["P"] * (len(pieces) - 1) + ["F"]
    return "\n".join(
        f"{_TIME} stdout {tag} {piece}" for tag, piece in zip(tags, pieces, strict=True)
    )


WRAPS: dict[str, Callable[[str], str]] = {
    "cri": _cri,
    "docker": _docker,
    "compose": lambda line: f"llm-1  | {line}",
    "kubectl": lambda line: f"[pod/llm-0/vllm] {line}",
    "journald": lambda line: f"Nov 30 12:00:01 node1 vllm[77]: {line}",
    "journald-json": lambda line: json.dumps(
        {"MESSAGE": line, "_HOSTNAME": "node1", "__REALTIME_TIMESTAMP": "1796040001000005"}
    ),
    "syslog": lambda line: f"<14>1 {_TIME} node1 vllm 77 - - {line}",
    "rfc3339": lambda line: f"{_TIME} {line}",
    "compose-rfc3339": lambda line: f"llm-1  | {_TIME} {line}",
}


@functools.cache
def content(name: str) -> list[str]:
    """The first lines of a log."""
    text = gzip.decompress((DATA / f"{name}.log.gz").read_bytes()).decode()
    return text.split("\n")[:MAX_LINES]


def normalize(lines: list[str], size: int = 0) -> list[LogRecord]:
    """The records of a stream, read at once or in blocks."""
    data = "".join(f"{line}\n" for line in lines).encode()
    normalizer = Normalizer("test", reference=REFERENCE)
    records: list[LogRecord] = []
    for at in range(0, len(data), size or len(data)):
        records += normalizer.feed(data[at : at + (size or len(data))])
    return records + normalizer.flush()


def seen(record: LogRecord) -> tuple[object, ...]:
    """What an envelope may not change."""
    attributes = {k: v for k, v in record.attributes.items() if k not in ASIDE}
    return record.body, record.severity_text, record.severity_number, record.event_name, attributes


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("name", LOGS)
def test_an_envelope_changes_only_the_times(name: str, wrap: str) -> None:
    """Body, severity, event and attributes are those of the bare log, in the same order."""
    bare = [seen(record) for record in normalize(content(name))]
    wrapped = normalize([WRAPS[wrap](line) for line in content(name)])
    assert [seen(record) for record in wrapped] == bare
    times = [record.time_unix_nano for record in wrapped]
    assert len(set(times)) == len(times)


@pytest.mark.parametrize("size", [1, 7, 1000, 65_536])
@pytest.mark.parametrize("wrap", WRAPS)
def test_the_records_are_the_same_however_the_bytes_are_cut(wrap: str, size: int) -> None:
    """Two wrapped logs between each other give the same records for every size of block."""
    first, second = content("07_tp2")[:60], content("06d_fail_kv_too_small")[:60]
    lines = []
    for one, two in zip(first, second, strict=True):
        lines += [WRAPS[wrap](one), two, WRAPS[wrap](two).replace("llm-", "xyz-")]

    def shown(records: list[LogRecord]) -> list[dict[str, object]]:
        documents = [json.loads(line) for line in encode_ndjson(records).splitlines()]
        return [{k: v for k, v in d.items() if k != "observed_timestamp"} for d in documents]

    assert shown(normalize(lines, size)) == shown(normalize(lines))
