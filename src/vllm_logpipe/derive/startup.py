"""The trace of a server start: a span for the whole, one for each phase of each process."""

from __future__ import annotations

from msgspec import Struct, field

from vllm_logpipe.derive.identifiers import span_id, trace_id
from vllm_logpipe.derive.machine import NS, Attributes, Context, Emit
from vllm_logpipe.model import AttributeValue, LogRecord, Span, SpanStatus
from vllm_logpipe.semconv import PHASES

_ORDER = {phase: place for place, phase in enumerate(PHASES)}
_FIRST_OF_SERVING = _ORDER["serving"]
_MAX_PHASES = 4096
_MAX_FIGURES = 48
_MAX_RECORDS_WITHOUT_PHASE = 200
_PATIENCE = 24 * 3600 * NS
_RANKS = tuple(f"vllm.rank.{name}" for name in ("global", "local", "dp", "pp", "tp", "pcp", "ep"))
_NOT_FIGURES = ("vllm.log.", "vllm.rank.", "vllm.process.", "vllm.phase", "vllm.error.")
_DESCRIPTIONS = ("vllm.progress.description", "vllm.server.route", "vllm.server.methods")


class Phase(Struct):
    """One phase of one process."""

    name: str
    first: int
    last: int
    process: dict[str, AttributeValue] = field(default_factory=dict)
    figures: dict[str, AttributeValue] = field(default_factory=dict)


class Startup(Struct):
    """Follows a server from its first record until it is ready, or has failed.

    A stream that begins in the middle of serving shows no start: none is made up.
    """

    instance: str
    number: int = 1
    """Which start of the stream this is."""
    resource_json: str = "{}"
    first: int = 0
    last: int = 0
    resolution: float = 1e-9
    records: int = 0
    began: bool = False
    phases: dict[str, Phase] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)
    """The latest phase that each process has come to."""
    ready: bool = False
    """Whether an engine was ready: of a program without an API that is all that can be seen."""
    serves: bool = False
    """Whether it is an API server: that is not ready until it says so, or serves."""
    stopped: bool = False
    error_type: str | None = None
    message: str | None = None
    done: bool = False

    def take(self, record: LogRecord, attributes: Attributes, emit: Emit) -> Context | None:
        """Take up a record; gives the span of the phase that it belongs to."""
        if self.done:
            return None
        now = record.time_unix_nano
        self.resource_json = record.resource_json
        self.first = min(self.first or now, now)
        phase = attributes.get("vllm.phase")
        place = _ORDER.get(phase) if isinstance(phase, str) else None
        if place is None or not isinstance(phase, str):
            return self._take_plain(now)
        event = record.event_name
        if place >= _FIRST_OF_SERVING:
            if event == "vllm.shutdown.triggered":
                self.stopped = True
            elif phase == "serving" and (self.ready or not self.began):
                self._end(emit, "ready" if self.ready else None)
            return None
        self.began = True
        self.last = max(self.last, now)
        resolution = attributes.get("vllm.log.time.resolution")
        if isinstance(resolution, float):
            self.resolution = max(self.resolution, resolution)
        key = self._note(phase, place, now, attributes)
        context = Context(self._trace(), self._span(key))
        if event == "vllm.server.ready":
            self._end(emit, "ready")
        elif event == "vllm.engine.ready":
            self.ready = True
        elif event == "vllm.server.banner":
            self.serves = True
        return context

    def advance(self, now: int, emit: Emit) -> None:
        """A start that never becomes ready is let go after a day."""
        if not self.done and self.first and now - self.first > _PATIENCE:
            self.finish(now, emit)

    def fail(self, error_type: str, message: str) -> None:
        """Note what the start failed of, by the incident of the server."""
        if not self.done:
            self.error_type, self.message = error_type, message

    def finish(self, now: int, emit: Emit) -> None:
        """Emit the start as far as it came."""
        if self.done:
            return
        self.last = max(self.last, now if self.error_type else self.last)
        if self.error_type is not None:
            outcome = "failed"
        elif self.ready and not self.serves:
            outcome = "ready"
        else:
            outcome = "stopped" if self.stopped else "unknown"
        self._end(emit, outcome if self.began or self.error_type else None)

    def _take_plain(self, now: int) -> Context | None:
        self.records += 1
        if self.began:
            return Context(self._trace(), self._span(""))
        if self.records > _MAX_RECORDS_WITHOUT_PHASE:
            self.done = True
        self.last = max(self.last, now)
        return None

    def _note(self, phase: str, place: int, now: int, attributes: Attributes) -> str:
        """Add a record to its phase; gives the phase's key."""
        process = str(attributes.get("process.pid", attributes.get("vllm.process.name", "")))[:256]
        current = self.current.get(process)
        if current is not None and place == 0:
            # Settings are printed all along: they are the first phase only at the beginning.
            phase, place = current, _ORDER[current]
        key = f"{process}\0{phase}"
        found = self.phases.get(key)
        ahead = current is None or place >= _ORDER[current]
        if found is None:
            if len(self.phases) >= _MAX_PHASES:
                return ""
            found = self.phases[key] = Phase(phase, now, now)
        elif ahead:
            # A stray line of an earlier phase does not stretch that phase over later ones.
            found.last = max(found.last, now)
        if ahead:
            self.current[process] = phase
        for name in ("vllm.process.name", "vllm.process.kind", "process.pid", *_RANKS):
            value = attributes.get(name)
            if value is not None:
                found.process[name] = value
        for name, value in attributes.items():
            if not name.startswith("vllm.") or name.startswith(_NOT_FIGURES):
                continue
            if name in _DESCRIPTIONS:
                continue
            if len(found.figures) < _MAX_FIGURES or name in found.figures:
                found.figures[name] = value
            if name.endswith("duration") and isinstance(value, float) and value < 86_400:
                # "took N s" stands at the end of what it tells of.
                found.first = min(found.first, now - round(value * NS))
        return key

    def _end(self, emit: Emit, outcome: str | None) -> None:
        self.done = True
        if outcome is not None:
            self._emit(emit, outcome)
        self.phases.clear()
        self.current.clear()

    def _emit(self, emit: Emit, outcome: str) -> None:
        phases = self._shown()
        common: dict[str, AttributeValue] = {
            "vllm.span.source": "log",
            "vllm.span.clock.resolution": self.resolution,
        }
        start = min([self.first, *(phase.first for phase in phases.values())])
        end = max(self.last, start)
        failed = outcome == "failed"
        root: dict[str, AttributeValue] = {
            **common,
            "vllm.startup.outcome": outcome,
            "vllm.startup.number": self.number,
        }
        status: SpanStatus = "unset"
        if failed:
            status = "error"
            root["error.type"] = self.error_type or "_OTHER"
        emit(
            Span(
                name="vllm.startup",
                trace_id=self._trace(),
                span_id=self._span(""),
                parent_span_id=None,
                kind="internal",
                start_unix_nano=start,
                end_unix_nano=end,
                attributes=root,
                resource_json=self.resource_json,
                status=status,
                status_message=self.message if failed else None,
            )
        )
        for key, phase in sorted(
            phases.items(), key=lambda item: (item[1].first, _ORDER[item[1].name], item[0])
        ):
            emit(
                Span(
                    name=f"vllm.startup.{phase.name}",
                    trace_id=self._trace(),
                    span_id=self._span(key),
                    parent_span_id=self._span(""),
                    kind="internal",
                    start_unix_nano=min(phase.first, end),
                    end_unix_nano=min(phase.last, end),
                    attributes={
                        **common,
                        "vllm.phase": phase.name,
                        **phase.process,
                        **phase.figures,
                    },
                    resource_json=self.resource_json,
                )
            )

    def _shown(self) -> dict[str, Phase]:
        """The phases, without those of no process where a process has the same phase."""
        named = {phase.name for key, phase in self.phases.items() if key[0] != "\0"}
        shown = {
            key: phase
            for key, phase in self.phases.items()
            if key[0] != "\0" or phase.name not in named
        }
        ends: dict[str, int] = {}
        blur = round(self.resolution * NS)
        for key, phase in sorted(shown.items(), key=lambda item: _ORDER[item[1].name]):
            # Times are printed in whole seconds: less what a phase took, one can seem to begin
            # before the phase that it follows.
            process = key.partition("\0")[0]
            end = ends.get(process, 0)
            if end - blur <= phase.first < end <= phase.last:
                phase.first, phase.last = end, end + phase.last - phase.first
            ends[process] = max(end, phase.last)
        return shown

    def _trace(self) -> str:
        return trace_id(self.instance, "startup")

    def _span(self, key: str) -> str:
        return span_id(self.instance, "startup", key)
