"""Metrics from records and from the signals that the other machines give."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from math import isfinite
from typing import TypeAlias

from msgspec import Struct, field

from vllm_logpipe.derive.access import Access
from vllm_logpipe.derive.machine import NS, Attributes, Emit
from vllm_logpipe.derive.route import OTHER, route_of
from vllm_logpipe.model import AttributeValue, Histogram, LogRecord, MetricPoint, Signal, Span
from vllm_logpipe.semconv import METRICS

_INTERVAL = 10 * NS
"""Counters leave at most so often in event time: as often as vLLM prints its own stats."""
_MAX_SERIES = 2000
_MAX_ROUTES = 200
_MAX_PATHS = 1000
_MAX_KINDS = 64
_METRICS = {metric.name: metric for metric in METRICS}
_OVERFLOW: tuple[str | int, ...] = ()
_GAUGES: dict[str, tuple[str, str | None]] = {
    "vllm.engine.requests.running": ("vllm.engine.requests", "running"),
    "vllm.engine.requests.waiting": ("vllm.engine.requests", "waiting"),
    "vllm.engine.requests.swapped": ("vllm.engine.requests", "swapped"),
    "vllm.engine.requests.deferred": ("vllm.engine.requests", "deferred"),
    "vllm.engine.throughput.input": ("vllm.engine.throughput", "input"),
    "vllm.engine.throughput.output": ("vllm.engine.throughput", "output"),
    "vllm.engine.cache.prefix_hit_ratio": ("vllm.engine.cache.hit_ratio", "prefix"),
    "vllm.engine.cache.external_prefix_hit_ratio": (
        "vllm.engine.cache.hit_ratio",
        "external_prefix",
    ),
    "vllm.engine.cache.cpu_prefix_hit_ratio": ("vllm.engine.cache.hit_ratio", "cpu_prefix"),
    "vllm.engine.cache.mm_hit_ratio": ("vllm.engine.cache.hit_ratio", "mm"),
    "vllm.engine.expert_load.variance.min": ("vllm.engine.expert_load.variance", "min"),
    "vllm.engine.expert_load.variance.max": ("vllm.engine.expert_load.variance", "max"),
    "vllm.kv_cache.capacity": ("vllm.engine.kv_cache.capacity", None),
    "vllm.kv_cache.memory": ("vllm.engine.kv_cache.memory", None),
    **{
        name: (name, None)
        for name in (
            "vllm.engine.communication.step_ratio",
            "vllm.engine.kv_cache.utilization",
            "vllm.engine.kv_transfer.failed",
            "vllm.engine.kv_transfer.successful",
            "vllm.engine.kv_transfer.throughput",
            "vllm.engine.memory.limit",
            "vllm.engine.memory.usage",
            "vllm.engine.offload.bandwidth",
            "vllm.engine.spec_decode.acceptance_length",
            "vllm.engine.spec_decode.acceptance_ratio",
        )
    },
}
"""By the attribute of a record the gauge that it sets, and the value of its first attribute."""
_OF_RANKS = frozenset(metric.name for metric in METRICS if "vllm.rank.tp" in metric.attributes)
_MEASURED = (
    "vllm.engine.",
    "vllm.kv_cache.",
    "vllm.memory.",
    "vllm.offload.",
    "vllm.profile.",
    "vllm.scheduler.",
)
_REPEATS = "vllm.log.repeat.count"

Series: TypeAlias = tuple[str | int, ...]
"""The values of a metric's attributes, in the order that `semconv` names them."""


class Count(Struct):
    """A counter's series."""

    value: int = 0
    dirty: bool = False


class Distribution(Struct):
    """A histogram's series."""

    buckets: list[int]
    sum: float = 0.0
    dirty: bool = False


class Metrics(Struct):
    """Counts and measures one server; counters and histograms are cumulative since its start."""

    number: int = 1
    """Which start of the stream this is."""
    start: int = 0
    """Time of the first record, ns since 1970 UTC."""
    last: int = 0
    told: int = 0
    resource_json: str = "{}"
    records: dict[Series, int] = field(default_factory=dict)
    """Records by level and format: counted apart, as every record passes here."""
    records_told: dict[Series, int] = field(default_factory=dict)
    counts: dict[str, dict[Series, Count]] = field(default_factory=dict)
    distributions: dict[str, dict[Series, Distribution]] = field(default_factory=dict)
    series: int = 0
    paths: dict[str, str] = field(default_factory=dict)
    """The routes of the latest paths, so that each is worked out once."""
    routes: set[str] = field(default_factory=set)
    preemptions: dict[str, int] = field(default_factory=dict)

    def take(self, record: LogRecord, attributes: Attributes, emit: Emit) -> None:
        """Count a record and take the figures that it prints."""
        if not self.start:
            self.start = self.told = record.time_unix_nano
            if self.number > 1:
                self._add("vllm.restarts", (), 1)
        if record.time_unix_nano > self.last:
            self.last = record.time_unix_nano
        self.resource_json = record.resource_json
        count = 1
        if _REPEATS in attributes:
            repeats = attributes[_REPEATS]
            count = repeats if isinstance(repeats, int) else 1
        kind: Series = (record.severity_text or "none", str(attributes.get("vllm.log.format", "")))
        before = self.records.get(kind)
        if before is not None:
            self.records[kind] = before + count
        else:
            self._count_new_kind(kind, count)
        event = record.event_name
        if event is None:
            self._add("vllm.log.unrecognised", (), count)
        elif event == "vllm.http.access":
            self._count_response(attributes, count)
        elif event.startswith("vllm.request."):
            if event == "vllm.request.timing":
                self._time_request(attributes)
            elif event == "vllm.request.preempted":
                self._count_preemption(attributes)
        elif event.startswith(_MEASURED):
            self._measure(record, attributes, emit)
        if "error.type" in attributes:
            role = _text(attributes, "vllm.error.role", "unknown")
            self._add("vllm.errors", (_text(attributes, "error.type"), role), count)

    def take_access(self, record: LogRecord, access: Access) -> None:
        """Count a record that is an access line and nothing else."""
        if record.time_unix_nano > self.last:
            self.last = record.time_unix_nano
        kind: Series = (record.severity_text or "none", access.form)
        before = self.records.get(kind)
        if before is not None:
            self.records[kind] = before + 1
        else:
            self._count_new_kind(kind, 1)
        route = self.paths.get(access.path) or self._route(access.path)
        self._add("vllm.http.responses", (route, access.status), 1)

    def observe(self, signal: Signal) -> None:
        """Count what another machine has found."""
        if isinstance(signal, Span):
            if signal.kind == "server":
                outcome = _text(signal.attributes, "vllm.request.outcome", "unknown")
                self._add("vllm.requests", (outcome,), 1)
                if signal.attributes.get("vllm.request.evicted"):
                    self._add("vllm.derived.evicted", ("request",), 1)
            elif "vllm.phase" in signal.attributes:
                lasted = (signal.end_unix_nano - signal.start_unix_nano) / NS
                kind = _text(signal.attributes, "vllm.process.kind")
                phase = _text(signal.attributes, "vllm.phase")
                self._distribute("vllm.startup.phase.duration", (phase, kind), lasted)
        elif isinstance(signal, LogRecord):
            attributes = signal.attributes
            if attributes.get("vllm.incident.state") != "closed":
                return
            self._add("vllm.incidents", (_text(attributes, "error.type", "_OTHER"),), 1)
            if signal.event_name == "nccl.incident":
                verdict = _text(attributes, "vllm.incident.verdict", "undecided")
                self._add("nccl.incidents", (verdict,), 1)

    def advance(self, now: int, emit: Emit) -> None:
        """Emit what has changed, once in an interval."""
        if self.start and now - self.told >= _INTERVAL:
            self._tell(now, emit)

    def finish(self, _now: int, emit: Emit) -> None:
        """Emit what has changed since the last time."""
        self._tell(self.last, emit)

    def _count_new_kind(self, kind: Series, count: int) -> None:
        """Programs name their levels as they like: what comes after the limit counts together."""
        if len(self.records) >= _MAX_KINDS:
            kind = _OVERFLOW
            self._evicted()
        self.records[kind] = self.records.get(kind, 0) + count

    def _tell(self, now: int, emit: Emit) -> None:
        self.told = now
        for kind, value in self.records.items():
            if self.records_told.get(kind) != value:
                self.records_told[kind] = value
                self._emit("vllm.log.records", kind, value, now, emit)
        for name, series in self.counts.items():
            for values, count in series.items():
                if count.dirty:
                    count.dirty = False
                    self._emit(name, values, count.value, now, emit)
        for name, spread in self.distributions.items():
            for values, found in spread.items():
                if found.dirty:
                    found.dirty = False
                    histogram = Histogram(
                        sum(found.buckets), found.sum, _METRICS[name].bounds, tuple(found.buckets)
                    )
                    self._emit(name, values, histogram, now, emit)

    def _emit(
        self, name: str, values: Series, value: float | Histogram, now: int, emit: Emit
    ) -> None:
        emit(MetricPoint(name, now, self.start, _named(name, values), value, self.resource_json))

    def _add(self, name: str, values: Series, count: int) -> None:
        series = self.counts.setdefault(name, {})
        found = series.get(values)
        if found is None:
            values = self._admitted(values, series)
            found = series.get(values)
            if found is None:
                found = series[values] = Count()
                self.series += 1
        found.value += count
        found.dirty = True

    def _admitted(self, values: Series, series: Mapping[Series, object]) -> Series:
        """The series itself, or the one of all that came too late."""
        if self.series >= _MAX_SERIES and values and values not in series:
            self._evicted()
            return _OVERFLOW
        return values

    def _evicted(self) -> None:
        """Note that a value has lost its series; what counts that is bounded itself."""
        lost = self.counts.setdefault("vllm.derived.evicted", {}).setdefault(("series",), Count())
        lost.value += 1
        lost.dirty = True

    def _distribute(self, name: str, values: Series, value: float) -> None:
        bounds = _METRICS[name].bounds
        spread = self.distributions.setdefault(name, {})
        values = self._admitted(values, spread)
        found = spread.get(values)
        if found is None:
            found = spread[values] = Distribution([0] * (len(bounds) + 1))
            self.series += 1
        found.buckets[bisect_left(bounds, value)] += 1
        found.sum += value
        found.dirty = True

    def _measure(self, record: LogRecord, attributes: Attributes, emit: Emit) -> None:
        engine = attributes.get("vllm.engine.index", attributes.get("vllm.rank.dp"))
        for name, value in attributes.items():
            if name not in _GAUGES or not isinstance(value, (int, float)) or not isfinite(value):
                continue
            metric, kind = _GAUGES[name]
            values: dict[str, AttributeValue] = {}
            if kind is not None:
                values[_METRICS[metric].attributes[0]] = kind
            if isinstance(engine, int):
                values["vllm.engine.index"] = engine
            if metric in _OF_RANKS:
                # Each worker of an engine has a memory of its own.
                for rank in ("vllm.rank.pp", "vllm.rank.tp"):
                    if rank in attributes:
                        values[rank] = attributes[rank]
            now = record.time_unix_nano
            emit(MetricPoint(metric, now, now, values, value, record.resource_json))
        preempted = attributes.get("vllm.engine.interval_preemptions")
        if isinstance(preempted, int) and preempted:
            self._add("vllm.preemptions", _engine(engine), preempted)

    def _count_preemption(self, attributes: Attributes) -> None:
        engine = attributes.get("vllm.engine.index", attributes.get("vllm.rank.dp"))
        total = attributes.get("vllm.engine.preemptions")
        if not isinstance(total, int):
            self._add("vllm.preemptions", _engine(engine), 1)
            return
        # Not every preemption is printed, but each line that is tells how many there were.
        key = str(attributes.get("process.pid", ""))[:32]
        before = self.preemptions.get(key, 0)
        if total > before and (key in self.preemptions or len(self.preemptions) < _MAX_SERIES):
            self.preemptions[key] = total
            self._add("vllm.preemptions", _engine(engine), total - before)

    def _count_response(self, attributes: Attributes, count: int) -> None:
        path = str(attributes.get("url.path", ""))
        route = self.paths.get(path)
        if route is None:
            route = self._route(path)
        status = attributes.get("http.response.status_code")
        code = status if isinstance(status, int) else 0
        self._add("vllm.http.responses", (route, code), count)

    def _route(self, path: str) -> str:
        """The route of a path; of routes, not of paths, there is a limit."""
        route = route_of(path)
        if route not in self.routes:
            if len(self.routes) >= _MAX_ROUTES:
                return OTHER
            self.routes.add(route)
        if len(self.paths) >= _MAX_PATHS:
            self.paths.clear()
        self.paths[path] = route
        return route

    def _time_request(self, attributes: Attributes) -> None:
        model = _text(attributes, "gen_ai.request.model")
        operation = _text(attributes, "gen_ai.operation.name")
        for name, metric in (
            ("vllm.request.duration", "gen_ai.server.request.duration"),
            ("vllm.request.time_to_first_token", "gen_ai.server.time_to_first_token"),
            ("vllm.request.inter_token_latency", "gen_ai.server.time_per_output_token"),
        ):
            value = attributes.get(name)
            if isinstance(value, (int, float)):
                self._distribute(metric, (model, operation), float(value))
        for kind in ("input", "output"):
            tokens = attributes.get(f"gen_ai.usage.{kind}_tokens")
            if isinstance(tokens, int):
                self._distribute("vllm.request.tokens", (kind, model), float(tokens))


def _named(name: str, values: Series) -> dict[str, AttributeValue]:
    names = _METRICS[name].attributes
    if not values and names:
        return {"otel.metric.overflow": True}
    return {key: value for key, value in zip(names, values, strict=False) if value != ""}


def _text(attributes: Attributes, name: str, default: str = "") -> str:
    return str(attributes.get(name, default))[:256]


def _engine(engine: AttributeValue | None) -> Series:
    return (engine if isinstance(engine, int) else "",)
