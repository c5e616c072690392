"""From the records of one stream to its signals: machines for each server in it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from vllm_logpipe.derive.incidents import Incidents
from vllm_logpipe.derive.machine import NS, Attributes, Context, Emit
from vllm_logpipe.model import AttributeValue, LogRecord, Signal

_decode = msgspec.json.Decoder(dict[str, AttributeValue]).decode
_MAX_SERVERS = 256
_SUCCEEDED = 120 * NS
"""A server that has a successor and has been silent for so long has ended."""


class Server(Struct):
    """The state of one server: everything that is derived is kept by server instance."""

    instance: str
    number: int
    last: int
    incidents: Incidents

    def take(self, record: LogRecord, attributes: Attributes) -> LogRecord:
        """Take up a record; gives it with the span and the incident that it belongs to."""
        self.last = max(self.last, record.time_unix_nano)
        context: Context | None = None
        incident = self.incidents.take(record, attributes)
        return _placed(record, context, incident)

    def advance(self, now: int, emit: Emit) -> None:
        """Note that event time has come to `now`."""
        self.incidents.advance(now, emit)

    def finish(self, emit: Emit) -> None:
        """Emit what is open: the server has ended, or the stream has."""
        if not self.incidents.grouped:
            self.incidents.finish(self.last, emit)


class Deriver:
    """Derives the signals of one stream.

    group: the incidents of the server group that the stream is one node of; its owner finishes
        them. Without one each server of the stream has its own.
    """

    def __init__(self, *, group: Incidents | None = None) -> None:
        self._group = group
        self._servers: dict[str, Server] = {}
        self._by_resource: dict[str, Server] = {}
        self._started = 0
        self._now = 0
        self._second = 0

    def take(self, records: Iterable[LogRecord]) -> list[Signal]:
        """The records, each with its trace and incident, and what they complete, in order."""
        signals: list[Signal] = []
        emit = signals.append
        for record in records:
            now = record.time_unix_nano
            if now > self._now:
                self._now = now
                if now // NS != self._second:
                    self._second = now // NS
                    self._advance(emit)
            server = self._by_resource.get(record.resource_json) or self._server(record)
            emit(server.take(record, _decode(record.attributes_json)))
        return signals

    def advance(self, now: int) -> list[Signal]:
        """What is due at event time `now`, ns since 1970 UTC, although no record came."""
        signals: list[Signal] = []
        self._now = max(self._now, now)
        self._advance(signals.append)
        return signals

    def finish(self) -> list[Signal]:
        """What is open, at the end of the stream."""
        signals: list[Signal] = []
        for server in self._servers.values():
            server.finish(signals.append)
        self._servers.clear()
        self._by_resource.clear()
        return signals

    def _advance(self, emit: Emit) -> None:
        latest = len(self._servers) - 1
        for place, server in enumerate([*self._servers.values()]):
            server.advance(self._now, emit)
            if place < latest and self._now - server.last > _SUCCEEDED:
                self._end(server, emit)

    def _end(self, server: Server, emit: Emit) -> None:
        server.finish(emit)
        del self._servers[server.instance]
        self._by_resource = {
            resource: other for resource, other in self._by_resource.items() if other is not server
        }

    def _server(self, record: LogRecord) -> Server:
        """The server of a resource that is new: of another instance, or one that grew."""
        instance = str(record.resource.get("service.instance.id", ""))
        server = self._servers.get(instance)
        if server is None:
            self._started += 1
            server = self._servers[instance] = Server(
                instance,
                self._started,
                record.time_unix_nano,
                self._group or Incidents(instance),
            )
        self._by_resource[record.resource_json] = server
        return server


def _placed(record: LogRecord, context: Context | None, incident: str | None) -> LogRecord:
    if context is None and incident is None:
        return record
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
