"""From the records of one stream to its signals: machines for each server in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from vllm_logpipe.derive.access import read_access
from vllm_logpipe.derive.incidents import Incidents
from vllm_logpipe.derive.machine import NS, Context, Emit
from vllm_logpipe.derive.metrics import Metrics
from vllm_logpipe.derive.open_requests import OpenRequests
from vllm_logpipe.derive.requests import Requests
from vllm_logpipe.derive.startup import Startup
from vllm_logpipe.model import AttributeValue, LogRecord, Signal

_decode = msgspec.json.Decoder(dict[str, AttributeValue]).decode
_PART = 1000
_MAX_SERVERS = 256
_SUCCEEDED = 600 * NS
"""A server that has a successor and has been silent for so long has ended."""
_CROWDED = 120 * NS
"""So long after another server's last record lines that name no process may be of either."""


class Server(Struct):
    """The state of one server: everything that is derived is kept by server instance."""

    instance: str
    last: int
    """Time of its latest record."""
    seen: int
    """How far the stream had come then: streams of several servers need not be in order."""
    ended: bool
    startup: Startup
    requests: Requests | None
    """None where no request spans are wanted, or vLLM makes them itself."""
    incidents: Incidents
    metrics: Metrics
    defers: bool
    """Whether request spans are left to a vLLM that makes them itself."""

    def take(self, record: LogRecord, signals: list[Signal]) -> LogRecord:
        """Take up a record; gives it with the span and the incident that it belongs to."""
        if record.time_unix_nano > self.last:
            self.last = record.time_unix_nano
        self.ended = False
        if self.startup.done and (access := read_access(record)) is not None:
            # Two fifths of a busy log: their attributes need not be decoded.
            self.metrics.take_access(record, access)
            if self.requests is not None:
                self.requests.take_access(record, access)
            return record
        emit = signals.append
        attributes = _decode(record.attributes_json)
        self.metrics.take(record, attributes, emit)
        before = len(signals)
        context: Context | None = None
        if not self.startup.done:
            context = self.startup.take(record, attributes, emit)
            if self.defers and attributes.get("vllm.config.otlp_traces_endpoint"):
                self.requests = None
        if self.requests is not None:
            context = self.requests.take(record, attributes, emit) or context
        incident = self.incidents.take(record, attributes)
        if len(signals) > before:
            self._observe(signals, before)
        if context is None and incident is None:
            return record
        return _placed(record, context, incident)

    def advance(self, now: int, signals: list[Signal]) -> None:
        """Note that the stream has come to `now`."""
        now = self.last + now - self.seen
        emit = signals.append
        before = len(signals)
        self.incidents.advance(now, emit)
        if not self.startup.done:
            if self.incidents.failure is not None and self.incidents.main is None:
                self._end_startup(emit)
            self.startup.advance(now, emit)
        if self.requests is not None:
            self.requests.advance(now, emit)
        self._observe(signals, before)
        self.metrics.advance(now, emit)

    def drain(self, count: int, signals: list[Signal]) -> bool:
        """Emit a part of what is open at the end; gives whether there is more."""
        if self.requests is not None and len(self.requests.open) > count:
            before = len(signals)
            self.requests.drain(count, signals.append)
            self._observe(signals, before)
            return True
        self.finish(signals)
        return False

    def finish(self, signals: list[Signal]) -> None:
        """Emit what is open: the server has ended, or the stream has."""
        emit = signals.append
        before = len(signals)
        if self.requests is not None:
            self.requests.finish(self.last, emit)
        if not self.incidents.grouped:
            self.incidents.finish(self.last, emit)
        self._end_startup(emit)
        self._observe(signals, before)
        self.metrics.finish(self.last, emit)

    def _end_startup(self, emit: Emit) -> None:
        """The start has ended: of a failure, if there was one."""
        failure = self.incidents.failure
        if failure is not None and not self.incidents.grouped:
            self.startup.fail(failure.error_type, failure.exception_message or failure.message)
        self.startup.finish(self.last, emit)

    def _observe(self, signals: list[Signal], before: int) -> None:
        """Let the metrics count what the other machines have found."""
        for signal in signals[before:]:
            self.metrics.observe(signal)


class Deriver:
    """Derives the signals of one stream.

    request_spans: whether requests become spans; where None, unless vLLM's arguments say that it
        traces them itself.
    group: the incidents of the server group that the stream is one node of; its owner finishes
        them. Without one each server of the stream has its own.
    """

    def __init__(
        self, *, request_spans: bool | None = None, group: Incidents | None = None
    ) -> None:
        self._request_spans = request_spans
        self._group = group
        self._servers: dict[str, Server] = {}
        self._by_resource: dict[str, Server] = {}
        self._started = 0
        self._now = 0
        self._next = 0

    def take(self, records: Iterable[LogRecord]) -> list[Signal]:
        """The records, each with its trace and incident, and what they complete, in order."""
        signals: list[Signal] = []
        for record in records:
            now = record.time_unix_nano
            if now > self._now:
                self._now = now
                if now >= self._next:
                    self._next = now - now % NS + NS
                    self._advance(signals)
            server = self._by_resource.get(record.resource_json)
            if server is None:
                server = self._server(record, signals)
            server.seen = self._now
            signals.append(server.take(record, signals))
        return signals

    def advance(self, elapsed: int) -> list[Signal]:
        """What is due after so many ns without a record: the log's clock need not be ours."""
        signals: list[Signal] = []
        if self._now:
            self._now += elapsed
            self._advance(signals)
        return signals

    def finish(self) -> list[Signal]:
        """What is open, at the end of the stream."""
        return [signal for signals in self.drain() for signal in signals]

    def drain(self) -> Iterator[list[Signal]]:
        """What is open, at the end of the stream, in parts of bounded size."""
        for server in self._servers.values():
            more = not server.ended
            while more:
                signals: list[Signal] = []
                more = server.drain(_PART, signals)
                yield signals
        self._servers.clear()
        self._by_resource.clear()

    def servers(self) -> list[Server]:
        """The state of all servers, in the order of their starts: data, to be put away."""
        return [*self._servers.values()]

    def restore(self, servers: Iterable[Server]) -> None:
        """Go on with the state that `servers` gave."""
        servers = [*servers]
        self._now = max([self._now, *(server.seen for server in servers)])
        self._servers = {server.instance: server for server in servers}
        self._by_resource = {}
        self._started = max(self._started, *(s.startup.number for s in self._servers.values()), 0)

    def _advance(self, signals: list[Signal]) -> None:
        latest = len(self._servers) - 1
        for place, server in enumerate([*self._servers.values()]):
            if server.ended:
                continue
            server.advance(self._now, signals)
            if place < latest and self._now - server.seen > _SUCCEEDED:
                # It may still come back: two servers can share a stream.
                server.finish(signals)
                server.ended = True
        if latest:
            self._look_around()

    def _look_around(self) -> None:
        """Tell the machines whether several servers print to the stream just now."""
        active = [s for s in self._servers.values() if self._now - s.seen < _CROWDED]
        for server in active:
            if server.requests is not None:
                server.requests.crowded = len(active) > 1

    def _drop(self, server: Server, signals: list[Signal]) -> None:
        server.finish(signals)
        del self._servers[server.instance]
        self._by_resource = {
            resource: other for resource, other in self._by_resource.items() if other is not server
        }

    def _server(self, record: LogRecord, signals: list[Signal]) -> Server:
        """The server of a resource that is new: of another instance, or one that grew."""
        instance = str(record.resource.get("service.instance.id", ""))
        server = self._servers.get(instance)
        if server is None:
            if len(self._servers) >= _MAX_SERVERS:
                self._drop(next(iter(self._servers.values())), signals)
            self._started += 1
            server = self._servers[instance] = Server(
                instance,
                record.time_unix_nano,
                self._now,
                ended=False,
                startup=Startup(instance, self._started),
                requests=None if self._request_spans is False else Requests(OpenRequests(instance)),
                incidents=self._group or Incidents(instance),
                metrics=Metrics(self._started),
                defers=self._request_spans is None,
            )
            self._look_around()
        self._by_resource[record.resource_json] = server
        return server


def _placed(record: LogRecord, context: Context | None, incident: str | None) -> LogRecord:
    attributes = record.attributes_json
    if incident is not None:
        attributes = f'{attributes[:-1]},"vllm.incident.id":"{incident}"}}'
    trace, span = record.trace_id, record.span_id
    if context is not None and trace is None:
        trace, span = context.trace_id, context.span_id
    return LogRecord(
        record.time_unix_nano,
        record.observed_time_unix_nano,
        record.severity_text,
        record.severity_number,
        record.event_name,
        record.body,
        attributes,
        record.resource_json,
        trace,
        span,
    )
