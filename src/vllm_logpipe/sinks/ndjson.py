"""Records as NDJSON: one object a line."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vllm_logpipe.model import LogRecord
from vllm_logpipe.read.clock import NS, rfc3339

_encode = msgspec.json.encode


def encode_ndjson(records: Iterable[LogRecord]) -> bytes:
    """The records as UTF-8 NDJSON, each line ended by LF; empty for no records."""
    pieces: list[str] = []
    add = pieces.append
    observed_ns = second_now = -1
    observed = second_text = ""
    for record in records:
        second, fraction = divmod(record.time_unix_nano, NS)
        if second != second_now:
            second_now = second
            second_text = rfc3339(second * NS)[:-1]
        if record.observed_time_unix_nano != observed_ns:
            observed_ns = record.observed_time_unix_nano
            observed = rfc3339(observed_ns)
        level = ""
        if record.severity_number is not None:
            level = f',"severity_number":{record.severity_number}'
            if record.severity_text is not None:
                level = f',"severity_text":"{record.severity_text}"{level}'
        event = "" if record.event_name is None else f',"event_name":"{record.event_name}"'
        ids = "" if record.trace_id is None and record.span_id is None else _ids(record)
        add(
            f'{{"timestamp":"{second_text}{f".{fraction:09d}Z" if fraction else "Z"}"'
            f',"observed_timestamp":"{observed}"'
            f'{level}{event},"body":{_encode(record.body).decode()}'
            f',"attributes":{record.attributes_json},"resource":{record.resource_json}{ids}}}\n'
        )
    return "".join(pieces).encode()


def _ids(record: LogRecord) -> str:
    ids = {"trace_id": record.trace_id, "span_id": record.span_id}
    given = {name: value for name, value in ids.items() if value is not None}
    return f",{_encode(given).decode()[1:-1]}"
