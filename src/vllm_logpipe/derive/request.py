"""One request and the spans that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from vllm_logpipe.derive.identifiers import span_id
from vllm_logpipe.derive.machine import NS, rfc3339
from vllm_logpipe.model import AttributeValue, Span, SpanEvent

Outcome: TypeAlias = Literal["completed", "aborted", "failed", "timed_out", "unknown"]
Evidence: TypeAlias = Literal[
    "completion_line",
    "generated_response",
    "aborted",
    "failed",
    "engine_dead",
    "access_log",
    "none",
]

_MAX_EVENTS = 64
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(dict[str, AttributeValue]).decode
_FAILED = ("failed", "timed_out")


class Request(Struct, gc=False):
    """A request from the first line that names it to the best evidence of its end."""

    id: str
    """As the client sees it, or as the engine does where nothing else was printed."""
    trace_id: str
    span_id: str
    first: int
    last: int
    """Time of the last record that names it."""
    start_evidence: str
    parent_span_id: str | None = None
    aliases: tuple[str, ...] = ()
    """Further ids that it is known by."""
    internal: tuple[str, ...] = ()
    operation: str | None = None
    packed: bytes = b""
    """The attributes that its records gave, encoded: a hundred thousand requests may be open."""
    reasons: tuple[str, ...] = ()
    """Why its choices finished."""
    events: tuple[SpanEvent, ...] = ()
    choices: int = 1
    finished: int = 0
    """Choices whose reason to finish was printed."""
    outcome: Outcome = "unknown"
    evidence: Evidence = "none"
    ended: int = 0
    """When the evidence of the end was printed; 0 while there is none."""
    error_type: str | None = None
    message: str | None = None
    end_bound: int = 0
    streams: bool = False
    """Whether its access line came before its first token, as that of a stream does."""
    duplicate: bool = False
    evicted: bool = False
    resolution: float = 1.0

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """What its records gave so far."""
        return _decode(self.packed) if self.packed else {}

    def add(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Take over attributes of a record."""
        if self.packed:
            attributes = {**_decode(self.packed), **attributes}
        self.packed = _encode(attributes)

    def note(self, name: str, time: int, attributes: dict[str, AttributeValue]) -> None:
        """Add an event of the span."""
        if len(self.events) < _MAX_EVENTS:
            self.events = (*self.events, SpanEvent(name, time, attributes))

    def end(self, outcome: Outcome, evidence: Evidence, time: int) -> None:
        """Take up evidence of the end: what is printed later decides."""
        self.outcome, self.evidence, self.ended = outcome, evidence, time

    def spans(self, model: str | None, resource_json: str) -> list[Span]:
        """The span of the request, and children where its timings were printed."""
        start = self.first
        end = max(start, self.ended or self.last)
        given = self.attributes
        lasted = given.get("vllm.request.duration")
        start_evidence = self.start_evidence
        if start_evidence == "timing" and isinstance(lasted, (int, float)) and lasted >= 0:
            start, start_evidence = end - round(lasted * NS), "end_less_latency"
        attributes = self._given(model, given)
        attributes["vllm.request.start_evidence"] = start_evidence
        failed = self.outcome in _FAILED
        operation = attributes.get("gen_ai.operation.name")
        named = attributes.get("gen_ai.request.model")
        span = Span(
            name=f"{operation} {named}" if operation and named else "vllm.request",
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_span_id=self.parent_span_id,
            kind="server",
            start_unix_nano=start,
            end_unix_nano=end,
            attributes=attributes,
            resource_json=resource_json,
            status="error" if failed else "unset",
            status_message=self.message if failed else None,
            events=self.events,
        )
        return [span, *self._children(span, given.get("vllm.request.time_to_first_token"))]

    def _given(
        self, model: str | None, given: dict[str, AttributeValue]
    ) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "gen_ai.provider.name": "vllm",
            **given,
            "vllm.request.id": self.id,
            "vllm.request.outcome": self.outcome,
            "vllm.request.end_evidence": self.evidence,
            "vllm.span.source": "log",
            "vllm.span.clock.resolution": self.resolution,
        }
        if model is not None:
            attributes.setdefault("gen_ai.request.model", model)
        if self.operation is not None:
            attributes.setdefault("gen_ai.operation.name", self.operation)
        if self.reasons:
            attributes["gen_ai.response.finish_reasons"] = [*self.reasons]
        if self.internal:
            attributes["vllm.request.internal_id"] = self.internal[0]
        if len(self.internal) > 1:
            attributes["vllm.request.children"] = len(self.internal)
        if self.outcome in _FAILED:
            attributes["error.type"] = self.error_type or "_OTHER"
        if self.end_bound and self.evidence == "none":
            attributes["vllm.request.end_bound"] = rfc3339(self.end_bound)
        if self.duplicate:
            attributes["vllm.request.duplicate"] = True
        if self.evicted:
            attributes["vllm.request.evicted"] = True
        return attributes

    def _children(self, span: Span, first_token: AttributeValue | None) -> list[Span]:
        if not isinstance(first_token, (int, float)) or first_token < 0:
            return []
        split = min(span.end_unix_nano, span.start_unix_nano + round(first_token * NS))
        return [
            Span(
                name=f"vllm.request.{name}",
                trace_id=span.trace_id,
                span_id=span_id(span.span_id, name),
                parent_span_id=span.span_id,
                kind="internal",
                start_unix_nano=start,
                end_unix_nano=end,
                attributes={
                    "vllm.span.source": "log",
                    "vllm.span.clock.resolution": self.resolution,
                },
                resource_json=span.resource_json,
            )
            for name, start, end in (
                ("prefill", span.start_unix_nano, split),
                ("decode", split, span.end_unix_nano),
            )
        ]
