"""Records as OTLP/JSON: one `ExportLogsServiceRequest` a batch."""

from __future__ import annotations

from collections.abc import Iterable
from string import hexdigits

import msgspec
from msgspec import Struct

from vllm_logpipe._version import __version__
from vllm_logpipe.model import LogRecord
from vllm_logpipe.semconv import SCHEMA_URL

_encode = msgspec.json.encode
_HEX_DIGITS = frozenset(hexdigits)


class _Value(Struct, rename="camel", omit_defaults=True, gc=False):
    string_value: str | None = None
    int_value: str | None = None
    double_value: float | None = None
    bool_value: bool | None = None
    array_value: _Array | None = None


class _Array(Struct, gc=False):
    values: list[_Value]


class _KeyValue(Struct, gc=False):
    key: str
    value: _Value


class _Record(Struct, rename="camel", omit_defaults=True, gc=False):
    time_unix_nano: str
    observed_time_unix_nano: str
    body: _Value
    attributes: list[_KeyValue]
    severity_number: int | None = None
    severity_text: str | None = None
    event_name: str | None = None
    trace_id: str | None = None
    span_id: str | None = None


class _Scope(Struct, gc=False):
    name: str
    version: str


class _ScopeLogs(Struct, rename="camel", gc=False):
    scope: _Scope
    log_records: list[_Record]
    schema_url: str = SCHEMA_URL


class _Resource(Struct, gc=False):
    attributes: list[_KeyValue]


class _ResourceLogs(Struct, rename="camel", gc=False):
    resource: _Resource
    scope_logs: list[_ScopeLogs]
    schema_url: str = SCHEMA_URL


class _Request(Struct, rename="camel", gc=False):
    resource_logs: list[_ResourceLogs]


_SCOPE = _Scope("vllm_logpipe", __version__)


def encode_otlp_json(records: Iterable[LogRecord]) -> bytes:
    """The records as one line of OTLP/JSON, grouped by resource; empty for no records."""
    groups: dict[str, list[_Record]] = {}
    for record in records:
        groups.setdefault(record.resource_json, []).append(_convert(record))
    if not groups:
        return b""
    request = _Request(
        [
            _ResourceLogs(_Resource(_attributes(resource)), [_ScopeLogs(_SCOPE, converted)])
            for resource, converted in groups.items()
        ]
    )
    return _encode(request) + b"\n"


def _convert(record: LogRecord) -> _Record:
    return _Record(
        str(record.time_unix_nano),
        str(record.observed_time_unix_nano),
        _Value(string_value=record.body),
        _attributes(record.attributes_json),
        record.severity_number,
        record.severity_text,
        record.event_name,
        _id(record.trace_id, 32),
        _id(record.span_id, 16),
    )


def _id(text: str | None, digits: int) -> str | None:
    """An id as the protocol has it: for any other text a receiver refuses the whole request."""
    return text if text and len(text) == digits and set(text) <= _HEX_DIGITS else None


def _attributes(text: str) -> list[_KeyValue]:
    pairs: dict[str, object] = msgspec.json.decode(text)
    return [_KeyValue(key, _value(value)) for key, value in pairs.items()]


def _value(value: object) -> _Value:
    match value:
        case bool():
            return _Value(bool_value=value)
        case int():
            return _Value(int_value=str(value))
        case float():
            return _Value(double_value=value)
        case list():
            return _Value(array_value=_Array([_value(item) for item in value]))
    return _Value(string_value=str(value))
