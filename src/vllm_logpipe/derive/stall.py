"""Engines that hang without an error line."""

from __future__ import annotations

from msgspec import Struct, field

from vllm_logpipe.derive.evidence import Culprit, Evidence, Rank, culprit_of
from vllm_logpipe.derive.machine import NS, Attributes
from vllm_logpipe.model import LogRecord

_IDLE_INTERVALS = 4
"""Intervals of 10 s with requests running and no token before the engine counts as stalled: one
alone is a long prefill."""
_SILENCE = 120 * NS
"""Stats come every 10 s while requests run."""
_WAITS = 2
_WAIT_WINDOW = 300 * NS
_MAX_ENGINES = 1024
_READY = frozenset({"vllm.server.ready", "vllm.server.listening"})


class _Engine(Struct):
    """What the stats of one engine said last."""

    idle: int = 0
    since: int = 0
    seen: int = 0
    running: bool = False
    uid: str = ""
    reported: bool = False
    culprit: Culprit = Culprit()


class Stalls(Struct):
    """Finds engines that have requests and do not get on.

    Running requests without a token over several stats intervals, no stats while requests run,
    or repeated waits on shared memory once the server was ready.
    """

    engines: dict[str, _Engine] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)
    ready: bool = False
    checked: int = 0

    def take(self, record: LogRecord, attributes: Attributes) -> Evidence | None:
        """The evidence that a record completes, if any."""
        event = record.event_name
        if event == "vllm.engine.stats":
            return self._stats(record, attributes)
        if event == "vllm.ipc.waiting":
            return self._wait(record, attributes)
        if event in _READY:
            self.ready = True
        elif event is not None and event.startswith("vllm.shutdown."):
            self.engines.clear()
        return None

    def advance(self, now: int) -> Evidence | None:
        """An engine that has gone silent with requests running."""
        if now - self.checked < NS:
            return None
        self.checked = now
        for engine in self.engines.values():
            if engine.running and not engine.reported and now - engine.seen > _SILENCE:
                engine.reported = True
                return _stalled(engine, now, "no stats although requests were running")
        return None

    def _stats(self, record: LogRecord, attributes: Attributes) -> Evidence | None:
        key = str(attributes.get("vllm.engine.index", attributes.get("process.pid", "")))
        engine = self.engines.get(key)
        if engine is None:
            if len(self.engines) >= _MAX_ENGINES:
                return None
            engine = self.engines[key] = _Engine(culprit=culprit_of(attributes))
        running = _number(attributes, "vllm.engine.requests.running")
        tokens = _number(attributes, "vllm.engine.throughput.input") + _number(
            attributes, "vllm.engine.throughput.output"
        )
        engine.running = running > 0
        engine.seen = record.time_unix_nano
        engine.uid = str(attributes.get("log.record.uid", ""))
        if tokens > 0 or running <= 0:
            engine.idle = 0
            engine.reported = False
            self.waits.clear()
            return None
        if engine.idle == 0:
            engine.since = record.time_unix_nano
        engine.idle += 1
        if engine.idle < _IDLE_INTERVALS or engine.reported:
            return None
        engine.reported = True
        text = f"requests running, no token for {engine.idle} intervals of the stats"
        return _stalled(engine, record.time_unix_nano, text)

    def _wait(self, record: LogRecord, attributes: Attributes) -> Evidence | None:
        if not self.ready:
            return None
        now = record.time_unix_nano
        self.waits = [time for time in self.waits[-_WAITS:] if now - time <= _WAIT_WINDOW]
        self.waits.append(now)
        if len(self.waits) < _WAITS:
            return None
        waited = round(_number(attributes, "vllm.ipc.wait_duration") * NS)
        engine = _Engine(
            since=self.waits[0] - waited,
            uid=str(attributes.get("log.record.uid", "")),
            culprit=culprit_of(attributes),
        )
        return _stalled(engine, now, "repeated waits on shared memory after the server was ready")


def _stalled(engine: _Engine, now: int, text: str) -> Evidence:
    return Evidence(
        uid=engine.uid,
        time=now,
        began=engine.since or engine.seen or now,
        error_type="engine.stalled",
        rank=Rank.STALL,
        is_root=True,
        is_death=False,
        layer=2,
        culprit=engine.culprit,
        process_name=engine.culprit.name,
        message=text,
    )


def _number(attributes: Attributes, name: str) -> float:
    value = attributes.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0
