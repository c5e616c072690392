"""Signals as NDJSON: logs, incidents, spans and metric points, each with its `kind`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct

from vllm_logpipe.model import (
    AttributeValue,
    Histogram,
    LogRecord,
    MetricPoint,
    Signal,
    Span,
    SpanLink,
)
from vllm_logpipe.read.clock import rfc3339
from vllm_logpipe.semconv import METRICS, SIGNAL_EVENTS
from vllm_logpipe.sinks.ndjson import encode_objects

_encode = msgspec.json.encode
_INCIDENTS = frozenset(event.name for event in SIGNAL_EVENTS)
_HEADS = {
    metric.name: (
        f'{{"kind":"metric","name":"{metric.name}","unit":"{metric.unit}","type":"{metric.type}",'
    )
    for metric in METRICS
}
"""How the object of a metric begins."""
_GAUGES = frozenset(metric.name for metric in METRICS if metric.type == "gauge")


def encode_signals(signals: Iterable[Signal]) -> bytes:
    """The signals as UTF-8 NDJSON, each line ended by LF; empty for no signals."""
    pieces: list[bytes] = []
    logs: list[LogRecord] = []
    for signal in signals:
        if isinstance(signal, LogRecord):
            if signal.event_name not in _INCIDENTS:
                logs.append(signal)
                continue
            shown = encode_objects((signal,), '"kind":"incident",')
        else:
            shown = _span(signal) if isinstance(signal, Span) else _metric(signal).encode()
        if logs:
            pieces.append(encode_objects(logs, '"kind":"log",'))
            logs = []
        pieces.append(shown)
    pieces.append(encode_objects(logs, '"kind":"log",'))
    return b"".join(pieces)


class _Event(Struct, frozen=True, gc=False):
    name: str
    timestamp: str
    attributes: dict[str, AttributeValue]


class _Span(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind", tag="span"):
    name: str
    trace_id: str
    span_id: str
    span_kind: str
    start_timestamp: str
    end_timestamp: str
    status: str
    attributes: dict[str, AttributeValue]
    events: list[_Event]
    links: tuple[SpanLink, ...]
    resource: Raw
    parent_span_id: str | None = None
    status_message: str | None = None


def _span(span: Span) -> bytes:
    shown = _Span(
        span.name,
        span.trace_id,
        span.span_id,
        span.kind,
        rfc3339(span.start_unix_nano),
        rfc3339(span.end_unix_nano),
        span.status,
        span.attributes,
        [_Event(e.name, rfc3339(e.time_unix_nano), e.attributes) for e in span.events],
        span.links,
        Raw(span.resource_json.encode()),
        span.parent_span_id,
        span.status_message,
    )
    return _encode(shown) + b"\n"


def _metric(point: MetricPoint) -> str:
    # Built from text: one line of stats gives nine points.
    value = point.value
    start = ""
    if point.name not in _GAUGES:
        start = f'"start_timestamp":"{rfc3339(point.start_unix_nano)}",'
    if isinstance(value, Histogram):
        shown = _encode(value).decode()[1:-1]
    else:
        shown = f'"value":{_encode(value).decode()}'
    return (
        f'{_HEADS[point.name]}"timestamp":"{rfc3339(point.time_unix_nano)}",{start}'
        f'"attributes":{_encode(point.attributes).decode()},{shown}'
        f',"resource":{point.resource_json}}}\n'
    )
