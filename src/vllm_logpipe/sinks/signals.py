"""Signals as NDJSON: logs, incidents, spans and metric points, each with its `kind`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vllm_logpipe.model import (
    Histogram,
    LogRecord,
    MetricPoint,
    Signal,
    Span,
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
            text = _span(signal) if isinstance(signal, Span) else _metric(signal)
            shown = text.encode()
        if logs:
            pieces.append(encode_objects(logs, '"kind":"log",'))
            logs = []
        pieces.append(shown)
    pieces.append(encode_objects(logs, '"kind":"log",'))
    return b"".join(pieces)


def _span(span: Span) -> str:
    parent = "" if span.parent_span_id is None else f'"parent_span_id":"{span.parent_span_id}",'
    message = ""
    if span.status_message is not None:
        message = f'"status_message":{_encode(span.status_message).decode()},'
    events = ",".join(
        f'{{"name":"{event.name}","timestamp":"{rfc3339(event.time_unix_nano)}"'
        f',"attributes":{_encode(event.attributes).decode()}}}'
        for event in span.events
    )
    return (
        f'{{"kind":"span","name":{_encode(span.name).decode()},"trace_id":"{span.trace_id}"'
        f',"span_id":"{span.span_id}",{parent}"span_kind":"{span.kind}"'
        f',"start_timestamp":"{rfc3339(span.start_unix_nano)}"'
        f',"end_timestamp":"{rfc3339(span.end_unix_nano)}","status":"{span.status}",{message}'
        f'"attributes":{_encode(span.attributes).decode()},"events":[{events}]'
        f',"links":{_encode(span.links).decode()},"resource":{span.resource_json}}}\n'
    )


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
