"""Signals as NDJSON: logs, incidents, spans and metric points, each with its `kind`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vllm_logpipe.model import Histogram, LogRecord, MetricPoint, Signal, Span
from vllm_logpipe.read.clock import rfc3339
from vllm_logpipe.semconv import METRICS, SIGNAL_EVENTS
from vllm_logpipe.sinks.ndjson import encode_ndjson

_encode = msgspec.json.encode
_INCIDENTS = frozenset(event.name for event in SIGNAL_EVENTS)
_METRICS = {metric.name: metric for metric in METRICS}


def encode_signals(signals: Iterable[Signal]) -> bytes:
    """The signals as UTF-8 NDJSON, each line ended by LF; empty for no signals."""
    return b"".join(map(_encode_one, signals))


def _encode_one(signal: Signal) -> bytes:
    if isinstance(signal, LogRecord):
        kind = b"incident" if signal.event_name in _INCIDENTS else b"log"
        return b'{"kind":"' + kind + b'",' + encode_ndjson((signal,))[1:]
    return _span(signal) if isinstance(signal, Span) else _metric(signal)


def _span(span: Span) -> bytes:
    given: dict[str, object] = {
        "kind": "span",
        "name": span.name,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "span_kind": span.kind,
        "start_timestamp": rfc3339(span.start_unix_nano),
        "end_timestamp": rfc3339(span.end_unix_nano),
        "status": span.status,
        "status_message": span.status_message,
        "attributes": span.attributes,
        "events": [
            {
                "name": event.name,
                "timestamp": rfc3339(event.time_unix_nano),
                "attributes": event.attributes,
            }
            for event in span.events
        ],
        "links": [
            {"trace_id": link.trace_id, "span_id": link.span_id, "attributes": link.attributes}
            for link in span.links
        ],
        "resource": msgspec.Raw(span.resource_json.encode()),
    }
    return _line(given)


def _metric(point: MetricPoint) -> bytes:
    metric = _METRICS[point.name]
    given: dict[str, object] = {
        "kind": "metric",
        "name": point.name,
        "unit": metric.unit,
        "type": metric.type,
        "timestamp": rfc3339(point.time_unix_nano),
        "start_timestamp": None if metric.type == "gauge" else rfc3339(point.start_unix_nano),
        "attributes": point.attributes,
    }
    value = point.value
    if isinstance(value, Histogram):
        given |= {
            "count": value.count,
            "sum": value.sum,
            "bounds": value.bounds,
            "bucket_counts": value.bucket_counts,
        }
    else:
        given["value"] = value
    given["resource"] = msgspec.Raw(point.resource_json.encode())
    return _line(given)


def _line(given: dict[str, object]) -> bytes:
    return _encode({name: value for name, value in given.items() if value is not None}) + b"\n"
