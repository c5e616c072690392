"""Spans and metric points over OTLP, by OpenTelemetry's own exporters."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from vllm_logpipe._version import __version__
from vllm_logpipe.model import Histogram, MetricPoint, Span
from vllm_logpipe.semconv import METRICS, SCHEMA_URL
from vllm_logpipe.sinks.otlp import ExportError
from vllm_logpipe.sinks.otlp_settings import OtlpSettings

_METRICS = {metric.name: metric for metric in METRICS}
_SCOPE = InstrumentationScope("vllm_logpipe", __version__, SCHEMA_URL)
_KINDS = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER}
_STATUSES = {"unset": StatusCode.UNSET, "ok": StatusCode.OK, "error": StatusCode.ERROR}


class SignalExporter:
    """Delivers spans and metric points; logs have an exporter of their own."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._spans, self._metrics = _exporters(settings)
        self._complaint = _Complaint()
        logging.getLogger("opentelemetry").addHandler(self._complaint)
        logging.getLogger("opentelemetry").propagate = False

    def export_spans(self, spans: Sequence[Span]) -> None:
        """Deliver the spans; raises ExportError where the receiver does not take them."""
        if spans:
            result = self._spans.export([readable_span(span) for span in spans])
            if result is not SpanExportResult.SUCCESS:
                raise ExportError(self._complaint.text or "the spans were not taken")

    def export_points(self, points: Sequence[MetricPoint]) -> None:
        """Deliver the points; raises ExportError where the receiver does not take them."""
        if points:
            result = self._metrics.export(metrics_data(points))
            if result is not MetricExportResult.SUCCESS:
                raise ExportError(self._complaint.text or "the metrics were not taken")

    def close(self) -> None:
        """Give up the connections."""
        self._spans.shutdown()
        self._metrics.shutdown()
        logging.getLogger("opentelemetry").removeHandler(self._complaint)


class _Complaint(logging.Handler):
    """Keeps what the exporters say of a failure: their result does not tell."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = " ".join(record.getMessage().split())[:300]


def _exporters(settings: OtlpSettings) -> tuple[SpanExporter, MetricExporter]:
    base = settings.endpoint
    if settings.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
            OTLPMetricExporter as GrpcMetricExporter,
        )
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
            OTLPSpanExporter as GrpcSpanExporter,
        )

        insecure = None if base is None else base.startswith("http://")
        return (
            GrpcSpanExporter(endpoint=base, insecure=insecure),
            GrpcMetricExporter(endpoint=base, insecure=insecure),
        )
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    compression = Compression.Gzip if settings.gzip else Compression.NoCompression
    traces = None if base is None else f"{base.rstrip('/')}/v1/traces"
    metrics = None if base is None else f"{base.rstrip('/')}/v1/metrics"
    return (
        OTLPSpanExporter(endpoint=traces, compression=compression),
        OTLPMetricExporter(endpoint=metrics, compression=compression),
    )


def readable_span(span: Span) -> ReadableSpan:
    """The span as the SDK's exporters take it."""
    parent = span.parent_span_id
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=None if parent is None else _context(span.trace_id, parent),
        resource=_resource(span.resource_json),
        attributes=span.attributes,
        events=[Event(event.name, event.attributes, event.time_unix_nano) for event in span.events],
        links=[Link(_context(link.trace_id, link.span_id), link.attributes) for link in span.links],
        kind=_KINDS[span.kind],
        status=Status(
            _STATUSES[span.status], span.status_message if span.status == "error" else None
        ),
        start_time=span.start_unix_nano,
        end_time=span.end_unix_nano,
        instrumentation_scope=_SCOPE,
    )


def metrics_data(points: Iterable[MetricPoint]) -> MetricsData:
    """The points as the SDK's exporters take them, by resource and metric."""
    resources: dict[str, dict[str, list[MetricPoint]]] = {}
    for point in points:
        resources.setdefault(point.resource_json, {}).setdefault(point.name, []).append(point)
    return MetricsData(
        [
            ResourceMetrics(
                resource=_resource(resource),
                scope_metrics=[
                    ScopeMetrics(
                        scope=_SCOPE,
                        metrics=[_metric(name, found) for name, found in metrics.items()],
                        schema_url=SCHEMA_URL,
                    )
                ],
                schema_url=SCHEMA_URL,
            )
            for resource, metrics in resources.items()
        ]
    )


def _metric(name: str, points: list[MetricPoint]) -> Metric:
    metric = _METRICS[name]
    cumulative = AggregationTemporality.CUMULATIVE
    data: Gauge | Sum | HistogramData
    if metric.type == "gauge":
        data = Gauge([_number(point, None) for point in points])
    elif metric.type == "counter":
        numbers = [_number(point, point.start_unix_nano) for point in points]
        data = Sum(numbers, cumulative, is_monotonic=True)
    else:
        data = HistogramData([_histogram(point) for point in points], cumulative)
    return Metric(name, metric.brief, metric.unit, data)


def _number(point: MetricPoint, start: int | None) -> NumberDataPoint:
    value = point.value
    if isinstance(value, Histogram):
        raise TypeError(f"{point.name}: a histogram where a number belongs")
    return NumberDataPoint(
        attributes=point.attributes,
        start_time_unix_nano=start,  # type: ignore[arg-type]
        time_unix_nano=point.time_unix_nano,
        value=value,
    )


def _histogram(point: MetricPoint) -> HistogramDataPoint:
    value = point.value
    if not isinstance(value, Histogram):
        raise TypeError(f"{point.name}: a number where a histogram belongs")
    return HistogramDataPoint(
        attributes=point.attributes,
        start_time_unix_nano=point.start_unix_nano,
        time_unix_nano=point.time_unix_nano,
        count=value.count,
        sum=value.sum,
        bucket_counts=value.bucket_counts,
        explicit_bounds=value.bounds,
        # Only counts by bucket are kept.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1)
    )


@lru_cache(maxsize=256)
def _resource(text: str) -> Resource:
    return Resource(json.loads(text), SCHEMA_URL)
