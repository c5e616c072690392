"""What every state machine over records offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from msgspec import Struct

from vllm_logpipe.model import AttributeValue, LogRecord, Signal

NS = 1_000_000_000
"""Nanoseconds a second."""

Attributes: TypeAlias = Mapping[str, AttributeValue]
Emit: TypeAlias = Callable[[Signal], None]


class Context(Struct, frozen=True, gc=False):
    """The span that a record belongs to."""

    trace_id: str
    span_id: str


class Machine(Protocol):
    """Derives signals from the records of one server instance, in the order of the stream.

    A machine is a msgspec Struct all of whose state can be encoded and decoded again. It reads no
    clock: `now` is event time, ns since 1970 UTC, so that a replay gives what the live run gave.
    """

    def take(self, record: LogRecord, attributes: Attributes, emit: Emit) -> Context | None:
        """Take up the next record with its decoded attributes; gives the span it belongs to."""
        ...

    def advance(self, now: int, emit: Emit) -> None:
        """Note that event time has come to `now`, whether or not a record came."""
        ...

    def finish(self, now: int, emit: Emit) -> None:
        """Emit what is open: the instance has ended, or another has taken its place."""
        ...


def rfc3339(time_unix_nano: int) -> str:
    """The time as attributes hold it: RFC 3339 in UTC, to the microsecond where it has one."""
    second, fraction = divmod(time_unix_nano, NS)
    moment = datetime.fromtimestamp(second, UTC).replace(microsecond=fraction // 1000)
    return moment.isoformat().replace("+00:00", "Z")
