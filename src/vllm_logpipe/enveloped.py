"""The records of a stream with envelopes: each inner stream has its ids, instances and resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vllm_logpipe.catalogue.values import member, quote
from vllm_logpipe.instance import Instances, identity
from vllm_logpipe.model import LogRecord
from vllm_logpipe.read.clock import Clock
from vllm_logpipe.read.draft import Draft, TimeSource
from vllm_logpipe.read.enveloped import MAX_STREAMS, Unwrapper
from vllm_logpipe.read.inner import InnerJoiner, InnerStream
from vllm_logpipe.read.join import WholeLine

_INFERRED = f"{member('vllm.log.attribution')}{quote('inferred')}"
_PRINTED = f"{member('vllm.log.attribution')}{quote('printed')}"
_RESOLUTION = member("vllm.log.time.resolution")
_UID = member("log.record.uid")

_Tails = list[dict[str, str]]


class EnvelopedStream:
    """Turns the bytes of a stream into records, unless it has no envelopes.

    Each call gives all bytes so far where the stream proves to have none, and the records.
    """

    def __init__(
        self,
        envelope: str,
        source: str,
        resource: Mapping[str, str],
        clock: Callable[[], Clock],
        join: Callable[[Clock, bool], InnerJoiner],
        record: Callable[[Instances, _Tails, Draft | WholeLine], LogRecord],
        tails: Callable[[str], _Tails],
        redact: Callable[[str, str], str],
    ) -> None:
        self._source = source
        self._resource = dict(resource)
        self._record = record
        self._tails = tails
        self._redact = redact
        self._records: list[LogRecord] = []
        self._instances: dict[str, Instances] = {}
        self._tails_by_iostream: dict[tuple[str, bool], _Tails] = {}
        self._unwrapper = Unwrapper(envelope, clock, join, self._emit)

    def feed(self, data: bytes, observed_ns: int) -> tuple[bytes | None, list[LogRecord]]:
        """The next bytes, read at a time in ns since 1970 UTC."""
        self._unwrapper.observed_ns = observed_ns
        return self._unwrapper.decide(data), self._taken()

    def flush(self, observed_ns: int) -> tuple[bytes | None, list[LogRecord]]:
        """The end of the stream."""
        self._unwrapper.observed_ns = observed_ns
        if (bare := self._unwrapper.decide(b"", whole=True)) is None:
            self._unwrapper.flush()
        return bare, self._taken()

    def expire(self, observed_ns: int) -> tuple[bytes | None, list[LogRecord]]:
        """A pause: what has come so far decides, and complete records are given out."""
        self._unwrapper.observed_ns = observed_ns
        if (bare := self._unwrapper.decide(b"", whole=True)) is None:
            self._unwrapper.expire()
        return bare, self._taken()

    def _taken(self) -> list[LogRecord]:
        records, self._records = self._records, []
        return records

    def _emit(self, stream: InnerStream, item: Draft | WholeLine) -> None:
        fine = stream.fine
        tails = self._tails_by_iostream.get((stream.iostream, fine))
        if tails is None:
            tails = self._tails_of(stream.iostream, fine=fine)
            self._tails_by_iostream[stream.iostream, fine] = tails
        self._records.append(self._record(self._instances_of(stream), tails, item))

    def _instances_of(self, stream: InnerStream) -> Instances:
        """The server starts of a container, pod or unit, whose iostreams are one."""
        instances = self._instances.get(stream.name)
        if instances is None:
            if len(self._instances) >= MAX_STREAMS:
                self._instances.clear()
            key = f"{self._source}\0{stream.name}" if stream.name else self._source
            said = {name: self._redact(name, text) for name, text in stream.resource.items()}
            instances = Instances(key, {**self._resource, **said})
            self._instances[stream.name] = instances
        return instances

    def _tails_of(self, iostream: str, *, fine: bool) -> _Tails:
        """What ends a record's attributes, with the iostream and the envelope's resolution."""
        tails = self._tails(identity(self._source))
        said = f"{member('log.iostream')}{quote(iostream)}" if iostream else ""
        for source in TimeSource:
            tails[source] = {kind: f"{said}{tail}" for kind, tail in tails[source].items()}
        enveloped = tails[TimeSource.ENVELOPE]
        for kind, tail in enveloped.items():
            before, _, rest = tail.replace(_INFERRED, _PRINTED).partition(_RESOLUTION)
            enveloped[kind] = (
                f"{before}{_RESOLUTION}{'1e-9' if fine else '1.0'}{rest[rest.index(_UID) :]}"
            )
        return tails
