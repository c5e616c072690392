"""The records that leave the normaliser: plain immutable data, no behaviour beyond views."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

Scalar: TypeAlias = str | int | float | bool
AttributeValue: TypeAlias = Scalar | list[Scalar]

_decode_object = msgspec.json.Decoder(dict[str, AttributeValue]).decode


class LogRecord(Struct, frozen=True, gc=False):
    """One logical log record: what one call of a logger, one traceback or one bar printed.

    Attributes and resource are held as the JSON text they leave as, and decoded when asked for:
    most records only pass through.
    """

    time_unix_nano: int
    """When it happened, ns since 1970 UTC; how it was found stands in `vllm.log.time.source`."""
    observed_time_unix_nano: int
    """When it was read, ns since 1970 UTC."""
    severity_text: str | None
    """The level as printed; None for a line without one."""
    severity_number: int | None
    """OpenTelemetry's severity number; None for a line without a level."""
    event_name: str | None
    """The catalogue entry; None for a line that no entry knows."""
    body: str
    """The message without envelope, prefix, header and ANSI codes, its lines joined by LF."""
    attributes_json: str
    """The attributes as a JSON object, flat, dotted keys."""
    resource_json: str
    """The resource attributes as a JSON object."""
    trace_id: str | None = None
    """32 hex digits, where the record belongs to a trace."""
    span_id: str | None = None
    """16 hex digits, where the record belongs to a span."""

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """The attributes, decoded; names and types are those of `vllm_logpipe.semconv`."""
        return _decode_object(self.attributes_json)

    @property
    def resource(self) -> dict[str, AttributeValue]:
        """The resource attributes, decoded."""
        return _decode_object(self.resource_json)


SEVERITY_NUMBERS = {
    "TRACE": 1,
    "DEBUG": 5,
    "INFO": 9,
    "WARN": 13,
    "WARNING": 13,
    "ERROR": 17,
    "CRITICAL": 21,
    "FATAL": 21,
}
"""OpenTelemetry severity numbers by the level as printed."""

FAILED_LEVELS = frozenset({"ERROR", "CRITICAL", "FATAL"})
"""Levels of records that get an error class."""


class SpanEvent(Struct, frozen=True, gc=False):
    """Something that happened within a span."""

    name: str
    time_unix_nano: int
    attributes: dict[str, AttributeValue] = {}


class SpanLink(Struct, frozen=True, gc=False):
    """Another span that this one has to do with."""

    trace_id: str
    span_id: str
    attributes: dict[str, AttributeValue] = {}


SpanStatus: TypeAlias = Literal["unset", "ok", "error"]
SpanKind: TypeAlias = Literal["internal", "server"]


class Span(Struct, frozen=True, gc=False):
    """A finished span; ids are derived, so that a replay gives the same ones."""

    name: str
    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits."""
    parent_span_id: str | None
    kind: SpanKind
    start_unix_nano: int
    end_unix_nano: int
    """Not before the start."""
    attributes: dict[str, AttributeValue]
    resource_json: str
    """The resource attributes as a JSON object."""
    status: SpanStatus = "unset"
    status_message: str | None = None
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()


class Histogram(Struct, frozen=True, gc=False):
    """Counts of values between bounds, cumulative since the point's start time."""

    count: int
    sum: float
    bounds: tuple[float, ...]
    """Upper bounds, inclusive, ascending."""
    bucket_counts: tuple[int, ...]
    """One more than there are bounds."""


class MetricPoint(Struct, frozen=True, gc=False):
    """One point of a metric of `vllm_logpipe.semconv`; counters are cumulative."""

    name: str
    time_unix_nano: int
    """Event time: the time that the log lines bear."""
    start_unix_nano: int
    """Since when a counter or histogram counts; for a gauge the same as the time."""
    attributes: dict[str, AttributeValue]
    value: int | float | Histogram
    resource_json: str
    """The resource attributes as a JSON object."""


Signal: TypeAlias = LogRecord | Span | MetricPoint
"""What leaves: a record (incidents are records), a span, or a point of a metric."""
