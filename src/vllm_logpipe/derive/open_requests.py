"""The requests that are open, by every id that a line may name them with."""

from __future__ import annotations

from itertools import islice

from msgspec import Struct, field

from vllm_logpipe.derive.identifiers import trace_and_span_id
from vllm_logpipe.derive.machine import Attributes, Context
from vllm_logpipe.derive.request import Request
from vllm_logpipe.derive.request_ids import (
    batch_of,
    external_names,
    operation_of,
    without_child,
)
from vllm_logpipe.model import LogRecord

_MAX_RECENT = 20_000


class OpenRequests(Struct):
    """Requests by a number of their own, and what leads to it.

    A client's id may stand for several requests; an id of the engine for one.
    """

    instance: str
    number: int = 0
    requests: dict[int, Request] = field(default_factory=dict)
    """In the order in which they began."""
    external: dict[str, list[int]] = field(default_factory=dict)
    internal: dict[str, int] = field(default_factory=dict)
    batches: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By the id of a batch its trace and the last place in it."""
    recent: dict[str, Context] = field(default_factory=dict)
    """Ids of requests that have left: stray lines begin no new one."""

    def begin(self, name: str, evidence: str, record: LogRecord, attributes: Attributes) -> int:
        """Take up a request that a record is the first of; gives its number."""
        self.number += 1
        uid = str(attributes.get("log.record.uid", record.time_unix_nano))
        trace, span = trace_and_span_id(self.instance, name, uid)
        request = Request(
            id=name,
            trace_id=record.trace_id or self._trace(name, trace),
            span_id=span,
            parent_span_id=record.span_id if record.trace_id else None,
            first=record.time_unix_nano,
            last=record.time_unix_nano,
            start_evidence=evidence,
        )
        request.operation = operation_of(without_child(name))
        resolution = attributes.get("vllm.log.time.resolution")
        if isinstance(resolution, float):
            request.resolution = resolution
        self.requests[self.number] = request
        self.external.setdefault(name, []).append(self.number)
        return self.number

    def alike(self, name: str) -> list[int]:
        """The open requests of a client's id, in the order in which they began."""
        return self.external.get(name, [])

    def find(self, name: str) -> int | None:
        """The request that an id names, the client's or the engine's."""
        keys = self.external.get(name)
        if keys:
            return next((key for key in keys if not self.requests[key].ended), keys[-1])
        key = self.internal.get(name)
        if key is not None:
            return key
        key = self.internal.get(without_child(name))
        if key is not None:
            return key
        for other in external_names(name):
            if keys := self.external.get(other):
                return keys[0]
        # A response is named as a whole, its requests are numbered.
        held = self.batches.get(name)
        if held is not None:
            keys = self.external.get(f"{name}_{held[1]}")
            if keys:
                return keys[-1]
        return None

    def find_sent(self, name: str) -> int | None:
        """The request of an id as the client sent it, without the endpoint's prefix."""
        for other in (name, f"chatcmpl-{name}", f"cmpl-{name}-0", f"resp_{name}_0"):
            if (key := self.find(other)) is not None:
                return key
        return None

    def find_added(self, internal: str) -> int | None:
        """The request that an id of the engine belongs to, new or another child of it."""
        key = self.internal.get(without_child(internal))
        if key is not None:
            return key
        names = external_names(internal)
        for name in names:
            for key in self.external.get(name, ()):
                if not self.requests[key].internal:
                    return key
        if "-beam-" in internal:
            # Beams of one request follow one another under ids of their own.
            for name in names:
                if keys := self.external.get(name):
                    return keys[0]
        return None

    def name(self, key: int, internal: str) -> None:
        """Note an id of the engine."""
        self.internal[without_child(internal)] = key
        self.internal[internal] = key

    def guess(self, key: int, internal: str) -> None:
        """Note what the client may have called a request that only the engine has named."""
        aliases = external_names(internal)[:-1]
        self.requests[key].aliases = aliases
        for name in aliases:
            self.external.setdefault(name, []).append(key)

    def leave(self, key: int) -> Request:
        """Take a request out, and remember its ids for a while."""
        request = self.requests.pop(key)
        for name in (request.id, *request.aliases):
            keys = self.external[name]
            keys.remove(key)
            if not keys:
                del self.external[name]
        if len(self.recent) >= _MAX_RECENT:
            self.recent = dict(islice(self.recent.items(), _MAX_RECENT // 2, None))
        recent = self.recent
        context = Context(request.trace_id, request.span_id)
        recent[request.id] = context
        for internal in request.internal:
            for name in (internal, without_child(internal)):
                if self.internal.get(name) == key:
                    del self.internal[name]
        for internal in request.internal[:8]:
            recent[internal] = context
        return request

    def _trace(self, name: str, trace: str) -> str:
        """One trace for all requests of a batch: that of its first."""
        batch = batch_of(name)
        if batch is None:
            return trace
        whole, place = batch
        held = self.batches.get(whole)
        if held is not None and held[1] == place - 1:
            trace = held[0]
        if len(self.batches) >= _MAX_RECENT:
            self.batches = dict(islice(self.batches.items(), _MAX_RECENT // 2, None))
        self.batches[whole] = (trace, place)
        return trace
