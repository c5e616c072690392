"""Request spans of real servers, against what their clients saw."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.derive.deriver import Deriver, Server
from vllm_logpipe.model import Signal, Span

DATA = Path(__file__).parent.parent / "data"
CLIENTS = [
    json.loads(line)
    for line in gzip.decompress((DATA / "clients.jsonl.gz").read_bytes()).splitlines()
]
"""One object a request: its log, path, ids, and how it ended for the client."""
LOGS = sorted({client["log"] for client in CLIENTS})
REFERENCE = 1_796_083_200.0

HEAD = r"(?:INFO|WARNING|ERROR) (?:[\d-]+ [\d:,.]+ )?\[[^]]*\] "
RECEIVED = re.compile(HEAD + r"Received request (.*?): (?:prompt: |params: )")
ABORTED = re.compile(HEAD + r"Aborted request(?:\(s\))? (.*)\.\r?$")
FAILED = re.compile(HEAD + r"Request (.*?) failed(?: |\.|$)")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@functools.cache
def content(name: str) -> bytes:
    """The bytes of a log."""
    return gzip.decompress((DATA / "logs" / f"{name}.log.gz").read_bytes())


@functools.cache
def records(name: str) -> tuple[LogRecord, ...]:
    """The records of a log."""
    normalizer = Normalizer(name, reference=REFERENCE)
    return (*normalizer.feed(content(name)), *normalizer.flush())


def derived(name: str) -> list[Signal]:
    """What is derived of a log."""
    deriver = Deriver()
    return deriver.take(records(name)) + deriver.finish()


@functools.cache
def spans(name: str) -> tuple[Span, ...]:
    """The request spans of a log."""
    return tuple(s for s in derived(name) if isinstance(s, Span) and s.kind == "server")


@functools.cache
def messages(name: str) -> tuple[str, ...]:
    """The physical lines of a log, of JSON lines the message, without colour."""
    lines = []
    for line in content(name).decode(errors="replace").split("\n"):
        text = ANSI.sub("", line)
        if text.startswith("{"):
            with contextlib.suppress(ValueError, KeyError):
                text = f"INFO [x] {json.loads(text)['message']}"
        lines.append(text)
    return tuple(lines)


def found(name: str, pattern: re.Pattern[str]) -> list[str]:
    """What a pattern finds in the lines of a log: an account independent of the catalogue."""
    return [match[1] for line in messages(name) if (match := pattern.search(line))]


def of_client(client: dict[str, object]) -> list[Span]:
    """The spans that bear one of a client's ids."""
    ids = client["ids"]
    assert isinstance(ids, list)
    names = {name for key in ids for name in (key, f"{key}_0", *(f"{key}-{i}" for i in range(8)))}
    return [s for s in spans(str(client["log"])) if s.attributes["vllm.request.id"] in names]


@pytest.mark.parametrize("name", LOGS)
def test_each_received_line_has_one_span(name: str) -> None:
    """As many spans as lines for each id, and none for an id that no such line bears."""
    received = Counter(found(name, RECEIVED))
    begun = Counter(
        str(span.attributes["vllm.request.id"])
        for span in spans(name)
        if span.attributes["vllm.request.start_evidence"] == "received"
    )
    assert begun == received


@pytest.mark.parametrize("name", LOGS)
def test_a_request_without_a_received_line_is_one_that_a_line_names(name: str) -> None:
    """Other spans begin with the line that names them: beams of old releases, for instance."""
    text = "\n".join(messages(name))
    for span in spans(name):
        if span.attributes["vllm.request.start_evidence"] != "received":
            assert str(span.attributes["vllm.request.id"]) in text


@pytest.mark.parametrize("name", LOGS)
def test_each_aborted_line_has_an_aborted_span(name: str) -> None:
    """Every id that the engine aborted has that outcome, unless a failure follows."""
    aborted = {part for ids in found(name, ABORTED) for part in ids.split(",")}
    outcomes: dict[str, set[object]] = {}
    for span in spans(name):
        keys = {span.attributes["vllm.request.id"], span.attributes.get("vllm.request.internal_id")}
        for key in keys:
            outcomes.setdefault(str(key), set()).add(span.attributes["vllm.request.outcome"])
    bare = {re.sub(r"^\d+_", "", key) for key in aborted}
    known = {re.sub(r"^\d+_", "", key): found for key, found in outcomes.items()}
    for key in bare:
        if ", " not in " ".join(aborted) or key in known:
            assert known[key] & {"aborted", "failed"}, key


@pytest.mark.parametrize("name", LOGS)
def test_an_aborted_or_failed_span_has_a_line_that_says_so(name: str) -> None:
    """No end is made up: each id that ended so stands in such a line."""
    named = "\n".join(
        line
        for line in messages(name)
        if "borted" in line or "failed" in line or "cancelled" in line or "rejecting" in line
    )
    for span in spans(name):
        outcome = span.attributes["vllm.request.outcome"]
        if outcome in ("aborted", "failed", "timed_out"):
            keys = [
                span.attributes["vllm.request.id"],
                span.attributes.get("vllm.request.internal_id"),
            ]
            reasons = span.attributes.get("gen_ai.response.finish_reasons", [])
            assert isinstance(reasons, list)
            assert any(str(key) in named for key in keys if key) or "abort" in reasons


@pytest.mark.parametrize("name", LOGS)
def test_what_a_client_completed_is_never_called_failed(name: str) -> None:
    """And never aborted: it is completed, or unknown where no line tells."""
    for client in CLIENTS:
        if client["log"] == name and client["outcome"] == "completed":
            outcomes = {span.attributes["vllm.request.outcome"] for span in of_client(client)}
            if len(of_client(client)) == 1:
                assert outcomes <= {"completed", "unknown"}, client
            else:
                # Several requests of one id: what the others met is no fault of this one.
                assert outcomes & {"completed", "unknown"} or not outcomes, client


@pytest.mark.parametrize("name", LOGS)
def test_what_a_client_lost_is_never_called_completed_where_a_line_says_otherwise(
    name: str,
) -> None:
    """A request whose failure is printed failed, whatever its access line said."""
    failed = set(found(name, FAILED))
    for span in spans(name):
        if span.attributes["vllm.request.id"] in failed and not span.attributes.get(
            "vllm.request.duplicate"
        ):
            assert span.attributes["vllm.request.outcome"] == "failed"
            assert span.status == "error"
            assert span.attributes["error.type"] != "_OTHER"


@pytest.mark.parametrize("name", LOGS)
def test_an_end_without_evidence_is_unknown(name: str) -> None:
    """Evidence and outcome go together, and times are in order."""
    for span in spans(name):
        unknown = span.attributes["vllm.request.outcome"] == "unknown"
        assert unknown == (span.attributes["vllm.request.end_evidence"] == "none")
        assert span.start_unix_nano <= span.end_unix_nano
        assert (span.status == "error") == (
            span.attributes["vllm.request.outcome"] in ("failed", "timed_out")
        )


@pytest.mark.parametrize("name", LOGS)
def test_ids_of_spans_are_unique_and_the_same_on_replay(name: str) -> None:
    """A span id stands once; a replay gives the same spans."""
    assert len({span.span_id for span in spans(name)}) == len(spans(name))
    again = [s for s in derived(name) if isinstance(s, Span) and s.kind == "server"]
    assert again == list(spans(name))


@pytest.mark.parametrize("name", LOGS)
def test_records_of_a_request_bear_its_trace(name: str) -> None:
    """Each `Received` record leaves with the ids of its span."""
    ids = {(span.trace_id, span.span_id) for span in spans(name)}
    received = [
        signal
        for signal in derived(name)
        if isinstance(signal, LogRecord) and signal.event_name == "vllm.request.received"
    ]
    assert all((record.trace_id, record.span_id) in ids for record in received)


def test_most_of_what_completed_is_known_where_outputs_are_logged() -> None:
    """Chat requests of a server that logs outputs are completed by that line."""
    outcomes = Counter(
        span.attributes["vllm.request.outcome"]
        for client in CLIENTS
        if client["log"] == "02_log_requests_outputs"
        and client["outcome"] == "completed"
        and client["path"] == "/v1/chat/completions"
        for span in of_client(client)
    )
    assert outcomes["completed"] >= 180
    assert outcomes["unknown"] == 0


@pytest.mark.parametrize("name", ["02_log_requests_outputs", "old085_02_log_requests"])
def test_state_can_be_put_away_and_taken_up_again(name: str) -> None:
    """Encoded and decoded between blocks of records, the machines give the same signals."""
    deriver = Deriver()
    signals: list[Signal] = []
    every = records(name)
    for begin in range(0, len(every), 997):
        signals += deriver.take(every[begin : begin + 997])
        data = msgspec.msgpack.encode(deriver.servers())
        deriver.restore(msgspec.msgpack.decode(data, type=list[Server]))
    signals += deriver.finish()
    assert signals == derived(name)
