"""Records as the protocol buffers of OTLP."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as ProtoRecord
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from vllm_logpipe._version import __version__
from vllm_logpipe.model import AttributeValue, LogRecord
from vllm_logpipe.semconv import SCHEMA_URL

_SCOPE = InstrumentationScope(name="vllm_logpipe", version=__version__)


def logs_request(records: Iterable[LogRecord]) -> ExportLogsServiceRequest:
    """One export request of the records, grouped by resource."""
    groups: dict[str, list[ProtoRecord]] = {}
    resources: dict[str, LogRecord] = {}
    for record in records:
        resources.setdefault(record.resource_json, record)
        groups.setdefault(record.resource_json, []).append(_convert(record))
    return ExportLogsServiceRequest(
        resource_logs=[
            ResourceLogs(
                resource=Resource(attributes=_attributes(resources[resource].resource)),
                scope_logs=[ScopeLogs(scope=_SCOPE, log_records=converted, schema_url=SCHEMA_URL)],
                schema_url=SCHEMA_URL,
            )
            for resource, converted in groups.items()
        ]
    )


def _convert(record: LogRecord) -> ProtoRecord:
    return ProtoRecord(
        time_unix_nano=record.time_unix_nano,
        observed_time_unix_nano=record.observed_time_unix_nano,
        body=AnyValue(string_value=_text(record.body)),
        attributes=_attributes(record.attributes),
        severity_number=record.severity_number or 0,  # type: ignore[arg-type]
        severity_text=record.severity_text or "",
        event_name=record.event_name or "",
        trace_id=_id(record.trace_id, 16),
        span_id=_id(record.span_id, 8),
    )


def _text(text: str) -> str:
    """Protocol buffers hold no lone surrogates."""
    return text.encode(errors="replace").decode() if not text.isascii() else text


def _id(text: str | None, size: int) -> bytes:
    """An id as the protocol has it: for any other text a receiver refuses the whole request."""
    if text is None or len(text) != 2 * size:
        return b""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _attributes(values: dict[str, AttributeValue]) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in values.items()]


def _value(value: AttributeValue) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            # The protocol's integers have 64 bits.
            if -(1 << 63) <= value < 1 << 63:
                return AnyValue(int_value=value)
            return AnyValue(string_value=str(value))
        case float():
            return AnyValue(double_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=[_value(item) for item in value]))
    return AnyValue(string_value=_text(value))
