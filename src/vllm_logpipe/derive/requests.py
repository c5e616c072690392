"""Request spans from the lines that name a request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
from msgspec import Struct, field

from vllm_logpipe.derive.access import Access, read_access
from vllm_logpipe.derive.machine import NS, Attributes, Context, Emit
from vllm_logpipe.derive.open_requests import OpenRequests
from vllm_logpipe.derive.request import Request
from vllm_logpipe.derive.request_ids import without_child
from vllm_logpipe.model import AttributeValue, LogRecord
from vllm_logpipe.semconv import ATTRIBUTES

_MAX_OPEN = 100_000
_EVICTED = 1000
_MAX_ID = 512
_MAX_REASONS = 64
_MAX_ALIKE = 256
"""Open requests of one id: which one a line means is looked for among them."""
_GRACE = 5 * NS
"""Lines that belong to an end follow it within a moment: the next choice, the access line."""
_BEHIND = 30 * NS
"""So long after its engine a server under load may print the end of a request."""
_AGE = 24 * 3600 * NS
_LOOK = 60 * NS
_SETTLED = 2 * NS
"""The engine's counts are taken a moment before they are printed."""

_EVENTS = frozenset(
    {
        "vllm.request.scheduled",
        "vllm.request.preempted",
        "vllm.request.allocation_failed",
        "vllm.request.abort_failed",
        "vllm.request.detokenization_reset",
        "vllm.request.invalid_token",
        "vllm.request.mm_cache_miss",
        "vllm.request.mm_cache_mismatch",
        "vllm.kv_cache.block_allocated",
        "vllm.kv_cache.block_freed",
        "vllm.kv_cache.blocks_allocated",
    }
)
"""Records that are events of the span."""
_FAILURES = frozenset(
    {
        "vllm.request.add_failed",
        "vllm.request.failed",
        "vllm.request.failed_bad_request",
        "vllm.request.failed_engine_dead",
        "vllm.request.failed_input_error",
        "vllm.request.failed_internal",
        "vllm.request.failed_structured_output",
        "vllm.request.failed_too_long",
        "vllm.request.failed_validation",
        "vllm.request.out_of_blocks",
        "vllm.request.preprocessing_failed",
        "vllm.request.rejected_queue_full",
    }
)
_REPORTS = frozenset(
    {
        "vllm.request.engine_exception_caught",
        "vllm.request.exception_caught",
        "vllm.request.http_error_caught",
        "vllm.request.validation_error_caught",
    }
)
"""Failures reported with the id that the client sent, without the endpoint's prefix."""
_TIMEOUTS = frozenset({"vllm.request.timed_out", "vllm.request.timeout_reported"})
_KEPT = frozenset(
    attribute.name
    for attribute in ATTRIBUTES
    if attribute.name.startswith(("gen_ai.", "vllm.lora."))
    and attribute.name != "gen_ai.response.finish_reasons"
) | {
    "vllm.request.duration",
    "vllm.request.inter_token_latency",
    "vllm.request.time_to_first_token",
}
"""What the span takes over from the records of its request."""
_HTTP = frozenset(
    attribute.name
    for attribute in ATTRIBUTES
    if attribute.name.startswith(("http.", "url.", "client.", "network."))
)
_NAMES = ("vllm.request.id", "vllm.request.internal_id")
_GENERATING = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/generate"}
)
_WARNING = 13
_decode = msgspec.json.Decoder(dict[str, AttributeValue]).decode


class _Access(Struct):
    """An access line whose request is not known yet."""

    client: str
    time: int
    path: str
    attributes_json: str


class Requests(Struct):
    """Follows the requests of one server.

    An end is never made up: a request that no line ends leaves with evidence `none`, and with a
    bound where the client's connection was used again, or the engine reported to be idle.
    """

    held: OpenRequests
    resource_json: str = "{}"
    model: str | None = None
    due: dict[int, int] = field(default_factory=dict)
    """When requests that have ended leave, and those that the idle engine has no more."""
    access: _Access | None = None
    """The access line that stands directly before."""
    awaited: dict[int, _Access] = field(default_factory=dict)
    """Access lines of requests that are not added yet."""
    clients: dict[str, int] = field(default_factory=dict)
    """The streaming request of each client's connection."""
    engines: set[str] = field(default_factory=set)
    looked: int = 0
    """When it was looked for requests that have been open for too long."""
    stopping: bool = False
    crowded: bool = False
    """Whether another server prints to the stream: a line of no process may then be its."""
    single: bool = False
    """Whether one process serves the API, as V1's prefix tells: else its lines tell no
    neighbourhood."""

    @property
    def open(self) -> dict[int, Request]:
        """The requests that are open, in the order in which they began."""
        return self.held.requests

    def take(self, record: LogRecord, attributes: Attributes, emit: Emit) -> Context | None:
        """Take up a record; gives the span of the request that it belongs to."""
        event = record.event_name
        if self.access is not None and event != "vllm.http.access":
            self._pass_access(event, attributes, record.time_unix_nano)
        if event is None:
            return None
        if event.startswith("vllm.request."):
            self.resource_json = record.resource_json
            return self._take_request(event, record, attributes, emit)
        if event == "vllm.http.access":
            if (access := read_access(record)) is not None:
                self.take_access(record, access)
            return None
        if event == "vllm.engine.stats":
            self._take_stats(record, attributes)
        elif event.startswith("vllm.config."):
            self._take_config(attributes)
        elif event == "vllm.shutdown.triggered":
            self.stopping = True
        elif "vllm.request.id" in attributes or "vllm.request.internal_id" in attributes:
            return self._mention(event, record, attributes)
        if attributes.get("error.type") == "engine.dead":
            self._take_death(record, attributes)
        return None

    def advance(self, now: int, emit: Emit) -> None:
        """Emit what has ended and is complete, and what has been open for too long."""
        for key in [key for key, time in self.due.items() if time <= now]:
            self._leave(key, emit)
        if now - self.looked < _LOOK:
            return
        self.looked = now
        for key, request in [*islice(self.open.items(), _EVICTED)]:
            if now - request.last > _AGE:
                request.evicted = True
                self._leave(key, emit)

    def drain(self, count: int, emit: Emit) -> bool:
        """Emit as many of the oldest requests at the end; gives whether there are more."""
        for key in [*islice(self.open, count)]:
            self._leave(key, emit)
        return bool(self.open)

    def finish(self, now: int, emit: Emit) -> None:
        """Emit all: what no line has ended stays of unknown outcome."""
        if self.access is not None:
            self._pass_access("", {}, now)
        for key in [*self.open]:
            self._leave(key, emit)

    # ---- lines that name a request

    def _take_request(
        self, event: str, record: LogRecord, attributes: Attributes, emit: Emit
    ) -> Context | None:
        if event == "vllm.request.received":
            return self._receive(record, attributes, emit)
        name = self._name(attributes)
        if name is None:
            if attributes.get("error.type") == "engine.dead":
                self._take_death(record, attributes)
            return None
        if event == "vllm.request.aborted":
            return self._abort(name, record, attributes, emit)
        if event == "vllm.request.added":
            return self._add(name, record, attributes, emit)
        if event == "vllm.request.json_body":
            # Its id is the body's, which is no other line's.
            return None
        if event in _REPORTS:
            key = self.held.find_sent(name)
            if key is None:
                return None
        else:
            key = self.held.find(name)
            if key is None and name in self.held.recent:
                return self.held.recent[name]
        if key is None:
            if event not in _FAILURES and event not in _TIMEOUTS and event not in _ENDINGS:
                return None
            key = self._open(
                name,
                "timing" if event == "vllm.request.timing" else "first_record",
                record,
                attributes,
                emit,
            )
        request = self._touch(key, record, attributes)
        self._apply(event, key, request, record, attributes)
        return Context(request.trace_id, request.span_id)

    def _apply(
        self, event: str, key: int, request: Request, record: LogRecord, attributes: Attributes
    ) -> None:
        """What an event other than a start says of its request."""
        now = record.time_unix_nano
        if event == "vllm.request.generated":
            self._generate(key, request, attributes, now)
        elif event == "vllm.request.finished":
            if not request.ended:
                self._end(key, request, "completed", "completion_line", now)
        elif event == "vllm.request.timing":
            self._end(key, request, "completed", "completion_line", now)
        elif event == "vllm.request.transcription_cancelled":
            self._end(key, request, "aborted", "aborted", now)
        elif event in _TIMEOUTS:
            self._fail(key, request, record, attributes)
            request.outcome = "timed_out"
        elif event in _FAILURES or event in _REPORTS:
            self._fail(key, request, record, attributes)
        elif event in _EVENTS:
            request.note(event, now, _event_attributes(attributes))

    def _receive(self, record: LogRecord, attributes: Attributes, emit: Emit) -> Context | None:
        name = self._name(attributes)
        if name is None:
            return None
        for other in [*self.held.alike(name)]:
            if other in self.due and not self.open[other].ended:
                # The engine has no more of it: an id used again is no duplicate.
                self._leave(other, emit)
        key = self._open(name, "received", record, attributes, emit)
        request = self._touch(key, record, attributes)
        choices = attributes.get("gen_ai.request.choice.count")
        request.choices = choices if isinstance(choices, int) else 1
        others = self.held.alike(name)
        if len(others) > 1:
            request.duplicate = self.open[others[-2]].duplicate = True
            if len(others) > _MAX_ALIKE:
                self.open[others[0]].evicted = True
                self._leave(others[0], emit)
        access = self.access
        if access is not None and access.path == "/v1/responses":
            # Of the Responses API the access line stands before `Received`.
            self.awaited[key] = access
            self.access = None
        return Context(request.trace_id, request.span_id)

    def _add(self, internal: str, record: LogRecord, attributes: Attributes, emit: Emit) -> Context:
        key = self.held.find_added(internal)
        if key is None:
            key = self._open(internal, "added", record, attributes, emit)
            self.held.guess(key, internal)
        request = self._touch(key, record, attributes)
        self.held.name(key, internal)
        if internal not in request.internal and len(request.internal) < 1024:
            request.internal = (*request.internal, internal)
            if internal != without_child(internal):
                request.note(
                    "vllm.request.added",
                    record.time_unix_nano,
                    {"vllm.request.internal_id": internal},
                )
        self._take_pair(key, request, attributes)
        return Context(request.trace_id, request.span_id)

    def _abort(
        self, name: str, record: LogRecord, attributes: Attributes, emit: Emit
    ) -> Context | None:
        context: Context | None = None
        known = self.held.find(name) is not None or name in self.held.recent
        for part in [name] if known else self._parts(name):
            key = self.held.find(part)
            if key is None:
                context = self.held.recent.get(part)
                if context is not None:
                    continue
                key = self._open(part, "first_record", record, {}, emit)
            request = self._touch(key, record, attributes)
            if request.evidence not in ("failed", "engine_dead"):
                self._end(key, request, "aborted", "aborted", record.time_unix_nano)
            context = Context(request.trace_id, request.span_id)
        return context

    def _parts(self, names: str) -> Iterator[str]:
        """Ids joined by commas: ids may hold commas too, so known ones are taken whole."""
        pieces = names.split(",")
        begin = 0
        while begin < len(pieces):
            for end in range(min(len(pieces), begin + 16), begin + 1, -1):
                whole = ",".join(pieces[begin:end])
                if self.held.find(whole) is not None:
                    yield whole
                    begin = end
                    break
            else:
                yield pieces[begin]
                begin += 1

    def _generate(self, key: int, request: Request, attributes: Attributes, now: int) -> None:
        kind = attributes.get("vllm.response.stream")
        reasons = attributes.get("gen_ai.response.finish_reasons")
        if isinstance(reasons, list):
            if len(request.reasons) < _MAX_REASONS:
                request.reasons = (*request.reasons, *map(str, reasons))
            request.finished += 1
        if kind == "delta" and request.finished < request.choices:
            return
        if request.evidence in ("aborted", "failed", "engine_dead"):
            return
        if isinstance(reasons, list) and "abort" in reasons:
            self._end(key, request, "aborted", "generated_response", now)
        elif kind != "delta" or request.finished == request.choices:
            self._end(key, request, "completed", "generated_response", now)

    def _mention(self, event: str, record: LogRecord, attributes: Attributes) -> Context | None:
        """A record of another part that names a request."""
        name = self._name(attributes)
        key = None if name is None else self.held.find(name)
        if key is None:
            return None if name is None else self.held.recent.get(name)
        request = self.open[key]
        request.last = max(request.last, record.time_unix_nano)
        if event in _EVENTS:
            request.note(event, record.time_unix_nano, _event_attributes(attributes))
        return Context(request.trace_id, request.span_id)

    # ---- lines that name none

    def take_access(self, record: LogRecord, access: Access) -> None:
        """Take up an access line, which names no request."""
        if self.access is not None:
            self._complete_by_access(self.access)
            self.access = None
        if self.crowded:
            return
        now = record.time_unix_nano
        if self.clients and (key := self.clients.pop(access.client, None)) is not None:
            request = self.open.get(key)
            if request is not None:
                request.end_bound = min(request.end_bound or now, now)
        if access.path in _GENERATING and access.status < 300:
            self.access = _Access(access.client, now, access.path, record.attributes_json)

    def _pass_access(self, event: str | None, attributes: Attributes, now: int) -> None:
        """Something follows the access line: a stream's `Added`, or it belongs to no stream."""
        responses = self.access is not None and self.access.path == "/v1/responses"
        if event == "vllm.request.added" or (responses and event == "vllm.request.received"):
            return
        kind = attributes.get("vllm.process.kind")
        if kind is not None and kind not in ("api_server", "main"):
            return
        access, self.access = self.access, None
        if access is not None and now >= access.time:
            self._complete_by_access(access)

    def _take_pair(self, key: int, request: Request, attributes: Attributes) -> None:
        """An access line directly before `Added` is that of a stream, of one API process."""
        self.single = attributes.get("vllm.process.name") == "APIServer"
        access = self.awaited.pop(key, None)
        if access is None:
            access, self.access = self.access, None
            if access is not None and access.path == "/v1/responses":
                access = None
        if access is None or not self.single:
            return
        if len(request.internal) > 1 or request.streams:
            return
        request.streams = True
        request.add(_http(access.attributes_json))
        if len(self.clients) < _MAX_OPEN:
            self.clients[access.client] = key

    def _complete_by_access(self, access: _Access) -> None:
        """Where one request alone is open, the access line that is no stream's is its end."""
        if not self.single or len(self.open) != 1:
            return
        (key, request), *_ = self.open.items()
        if request.streams or request.ended or not request.internal or request.duplicate:
            return
        if request.start_evidence != "received" or not self._is_plain(request, access):
            return
        request.add(_http(access.attributes_json))
        self._end(key, request, "completed", "access_log", access.time)

    def _is_plain(self, request: Request, access: _Access) -> bool:
        """Whether the access line can be the request's, by what each is about."""
        chat = access.path != "/v1/completions"
        return request.operation == ("chat" if chat else "text_completion")

    def _take_stats(self, record: LogRecord, attributes: Attributes) -> None:
        """An engine without requests has ended all that were added before."""
        index = str(attributes.get("vllm.engine.index", ""))
        if len(self.engines) < 16:
            self.engines.add(index)
        busy = [
            attributes.get(f"vllm.engine.requests.{state}", 0)
            for state in ("running", "waiting", "swapped", "deferred")
        ]
        if any(busy) or len(self.engines) > 1 or "vllm.engine.requests.running" not in attributes:
            return
        now = record.time_unix_nano
        for key, request in [*self.open.items()]:
            if request.internal and request.last < now - _SETTLED:
                request.end_bound = min(request.end_bound or now, now)
                # The API server may be behind its engine: the line of the end can still come.
                self.due.setdefault(key, now + _BEHIND)

    def _take_config(self, attributes: Attributes) -> None:
        served = attributes.get("vllm.config.served_model_name")
        if isinstance(served, list) and served:
            self.model = str(served[0])
        elif self.model is None and isinstance(attributes.get("vllm.model"), str):
            self.model = str(attributes["vllm.model"])

    def _take_death(self, record: LogRecord, attributes: Attributes) -> None:
        """The engine is gone: with it all that was open, where no line says so for each.

        Since requests are named one by one when they fail with the engine, others had ended.
        """
        level = record.severity_number
        role = attributes.get("vllm.error.role")
        if self.stopping or role in ("teardown", "advice") or (level or _WARNING) < _WARNING:
            return
        if attributes.get("vllm.process.name") is not None:
            return
        for key, request in self.open.items():
            if not request.ended and not request.end_bound:
                request.error_type = "engine.dead"
                self._end(key, request, "failed", "engine_dead", record.time_unix_nano)

    # ---- the requests that are open

    def _name(self, attributes: Attributes) -> str | None:
        for name in _NAMES:
            value = attributes.get(name)
            if isinstance(value, str):
                return value[:_MAX_ID]
        return None

    def _open(
        self,
        name: str,
        evidence: str,
        record: LogRecord,
        attributes: Attributes,
        emit: Emit,
    ) -> int:
        if len(self.open) >= _MAX_OPEN:
            # Many at once: each look for the oldest passes the places of those that have left.
            for oldest in [*islice(self.open, _EVICTED)]:
                self.open[oldest].evicted = True
                self._leave(oldest, emit)
        return self.held.begin(name, evidence, record, attributes)

    def _touch(self, key: int, record: LogRecord, attributes: Attributes) -> Request:
        request = self.open[key]
        request.last = max(request.last, record.time_unix_nano)
        if kept := _KEPT.intersection(attributes):
            request.add({name: attributes[name] for name in sorted(kept)})
        return request

    def _fail(self, key: int, request: Request, record: LogRecord, attributes: Attributes) -> None:
        error_type = str(attributes.get("error.type", "_OTHER"))
        request.error_type = error_type
        message = attributes.get("exception.message")
        request.message = message[:2048] if isinstance(message, str) else None
        if request.message is None:
            request.message = record.body.partition("\n")[0][:2048]
        dead = error_type == "engine.dead"
        self._end(
            key, request, "failed", "engine_dead" if dead else "failed", record.time_unix_nano
        )

    def _end(self, key: int, request: Request, outcome: str, evidence: str, now: int) -> None:
        request.end(outcome, evidence, now)  # type: ignore[arg-type]
        self.due[key] = now + _GRACE

    def _leave(self, key: int, emit: Emit) -> None:
        request = self.held.leave(key)
        self.due.pop(key, None)
        if self.awaited:
            self.awaited.pop(key, None)
        for span in request.spans(self.model, self.resource_json):
            emit(span)


_ENDINGS = frozenset({"vllm.request.generated", "vllm.request.finished", "vllm.request.timing"})
"""Ends that can stand alone: the request began before the log did."""


def _event_attributes(attributes: Attributes) -> dict[str, AttributeValue]:
    return {
        name: value
        for name, value in attributes.items()
        if name.startswith(("vllm.request.", "vllm.kv_cache.", "vllm.engine.preemptions"))
    }


def _http(attributes_json: str) -> dict[str, AttributeValue]:
    attributes = _decode(attributes_json)
    return {name: attributes[name] for name in sorted(_HTTP.intersection(attributes))}
