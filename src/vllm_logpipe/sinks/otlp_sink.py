"""Signals of every kind to one OTLP endpoint, in batches."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_logpipe.model import LogRecord, MetricPoint, Signal, Span
from vllm_logpipe.sinks.otel import SignalExporter
from vllm_logpipe.sinks.otlp import ExportError, LogExporter
from vllm_logpipe.sinks.otlp_settings import OtlpSettings

_MAX_SIGNALS = 2000
_MAX_CHARACTERS = 2_000_000
"""Receivers take 4 MiB of gRPC at most unless they are told otherwise."""


class OtlpSink:
    """Gathers signals and delivers them; what a receiver refuses is counted."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._logs = LogExporter(settings)
        self._signals = SignalExporter(settings)
        self._records: list[LogRecord] = []
        self._spans: list[Span] = []
        self._points: list[MetricPoint] = []
        self._characters = 0
        self.delivered = 0
        """Signals that were taken."""

    @property
    def refused(self) -> int:
        """Records that the receiver took the batch of, but not them."""
        return self._logs.refused

    @property
    def refusal(self) -> str:
        """Why, as the receiver says."""
        return self._logs.refusal

    def take(self, signals: Iterable[Signal]) -> None:
        """Take up signals, and deliver once there are enough; raises ExportError."""
        for signal in signals:
            if isinstance(signal, LogRecord):
                size = len(signal.body) + len(signal.attributes_json)
                if self._characters + size > _MAX_CHARACTERS:
                    self.flush()
                self._records.append(signal)
                self._characters += size
            elif isinstance(signal, Span):
                self._spans.append(signal)
            else:
                self._points.append(signal)
            if max(len(self._records), len(self._spans), len(self._points)) >= _MAX_SIGNALS:
                self.flush()

    def deliver(self, signals: Iterable[Signal]) -> None:
        """Take up signals and deliver them at once; raises ExportError."""
        self.take(signals)
        self.flush()

    def flush(self) -> None:
        """Deliver what was taken; raises ExportError."""
        records, spans, points = self._records, self._spans, self._points
        self._records, self._spans, self._points, self._characters = [], [], [], 0
        self._logs.export(records)
        self._signals.export_spans(spans)
        self._signals.export_points(points)
        self.delivered += len(records) + len(spans) + len(points)

    def close(self) -> None:
        """Give up the connections; what was taken and not flushed is lost."""
        self._logs.close()
        self._signals.close()


__all__ = ["ExportError", "OtlpSink"]
