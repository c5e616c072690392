"""Records as NDJSON: one object a line."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vllm_logpipe.model import SEVERITY_NUMBERS, LogRecord
from vllm_logpipe.read.clock import NS, rfc3339

_encode = msgspec.json.encode
_LEVELS: dict[tuple[str | None, int | None], str] = {
    (None, None): "",
    **{
        (text, number): f',"severity_text":"{text}","severity_number":{number}'
        for text, number in SEVERITY_NUMBERS.items()
    },
}
"""The members of severity by text and number, for the levels that are usual."""


def encode_ndjson(records: Iterable[LogRecord]) -> bytes:
    """The records as UTF-8 NDJSON, each line ended by LF; empty for no records."""
    return encode_objects(records, "")


def encode_objects(records: Iterable[LogRecord], members: str) -> bytes:
    """As `encode_ndjson`, each object begun with the members given, comma included."""
    pieces: list[str] = []
    add = pieces.append
    observed_ns = second_now = -1
    observed = second_text = level = ""
    severity: str | None = ""
    number: int | None = None
    for record in records:
        second, fraction = divmod(record.time_unix_nano, NS)
        if second != second_now:
            second_now = second
            second_text = rfc3339(second * NS)[:-1]
        if record.observed_time_unix_nano != observed_ns:
            observed_ns = record.observed_time_unix_nano
            observed = rfc3339(observed_ns)
        if record.severity_text != severity or record.severity_number != number:
            severity, number = record.severity_text, record.severity_number
            level = _LEVELS.get((severity, number)) or _level(record)
        event = "" if record.event_name is None else f',"event_name":"{record.event_name}"'
        ids = "" if record.trace_id is None and record.span_id is None else _ids(record)
        add(
            f'{{{members}"timestamp":"{second_text}{f".{fraction:09d}Z" if fraction else "Z"}"'
            f',"observed_timestamp":"{observed}"'
            f'{level}{event},"body":{_encode(record.body).decode()}'
            f',"attributes":{record.attributes_json},"resource":{record.resource_json}{ids}}}\n'
        )
    return "".join(pieces).encode()


def _level(record: LogRecord) -> str:
    return _members(severity_text=record.severity_text, severity_number=record.severity_number)


def _ids(record: LogRecord) -> str:
    trace, span = record.trace_id, record.span_id
    if trace and span and trace.isalnum() and span.isalnum():
        return f',"trace_id":"{trace}","span_id":"{span}"'
    return _members(trace_id=record.trace_id, span_id=record.span_id)


def _members(**values: str | int | None) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f",{_encode(given).decode()[1:-1]}" if given else ""
