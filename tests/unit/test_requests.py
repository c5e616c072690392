"""Request spans of the lifecycles that releases print."""

from __future__ import annotations

import msgspec
import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.derive.open_requests import OpenRequests
from vllm_logpipe.derive.requests import Requests
from vllm_logpipe.model import Signal, Span

NS = 1_000_000_000
PARAMS = "SamplingParams(n={n}, temperature=0.5, top_p=1.0, top_k=0, max_tokens=16)"


def line(second: int, text: str, process: str = "APIServer pid=1", level: str = "INFO") -> str:
    """A record of a process of V1."""
    return f"({process}) {level} 12-01 10:{second // 60:02d}:{second % 60:02d} [x.py:1] {text}\n"


def old(second: int, text: str, level: str = "INFO") -> str:
    """A record of V0, which names no process."""
    return f"{level} 12-01 10:{second // 60:02d}:{second % 60:02d} [x.py:1] {text}\n"


def received(name: str, n: int = 1) -> str:
    """The message of a request that came in."""
    return f"Received request {name}: params: {PARAMS.format(n=n)}, lora_request: None."


def old_received(name: str) -> str:
    """The same of a release that prints the prompt."""
    return (
        f"Received request {name}: prompt: 'hi', params: {PARAMS.format(n=1)}, prompt_token_ids:"
        " None, lora_request: None, prompt_adapter_request: None."
    )


def access(path: str = "/v1/completions", port: int = 51234, status: int = 200) -> str:
    """An access line of uvicorn."""
    return f'INFO:     192.0.2.7:{port} - "POST {path} HTTP/1.1" {status} OK\n'


def idle(second: int) -> str:
    """The stats of an engine without requests."""
    return line(
        second,
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 1.0 tokens/s,"
        " Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%",
    )


def signals_of(text: str, *, request_spans: bool | None = None) -> list[Signal]:
    """What is derived of a log."""
    normalizer = Normalizer("x", year=2026)
    deriver = Deriver(request_spans=request_spans)
    records = [*normalizer.feed(text.encode()), *normalizer.flush()]
    return deriver.take(records) + deriver.finish()


def spans_of(text: str) -> list[Span]:
    """The request spans of a log."""
    return [s for s in signals_of(text) if isinstance(s, Span) and s.kind == "server"]


def ends_of(text: str) -> dict[str, tuple[object, object]]:
    """Outcome and evidence by request."""
    return {
        str(s.attributes["vllm.request.id"]): (
            s.attributes["vllm.request.outcome"],
            s.attributes["vllm.request.end_evidence"],
        )
        for s in spans_of(text)
    }


def test_a_request_of_v1_runs_from_received_to_its_response() -> None:
    """The engine's id bears a suffix; the response's line is the evidence of the end."""
    text = (
        line(0, received("chatcmpl-a"))
        + line(1, "Added request chatcmpl-a-1a2b3c4d.")
        + line(4, "Generated response chatcmpl-a: output: 'x', finish_reason: length")
        + access("/v1/chat/completions")
    )
    (span,) = spans_of(text)
    assert (span.end_unix_nano - span.start_unix_nano) // NS == 4
    assert span.status == "unset"
    assert span.attributes["vllm.request.outcome"] == "completed"
    assert span.attributes["vllm.request.end_evidence"] == "generated_response"
    assert span.attributes["vllm.request.internal_id"] == "chatcmpl-a-1a2b3c4d"
    assert span.attributes["gen_ai.operation.name"] == "chat"
    assert span.attributes["gen_ai.request.temperature"] == 0.5
    assert span.attributes["gen_ai.request.max_tokens"] == 16
    assert span.attributes["gen_ai.response.finish_reasons"] == ["length"]
    assert span.attributes["vllm.span.source"] == "log"


def test_the_span_is_named_by_operation_and_model_once_the_model_is_known() -> None:
    """The model's name comes from the arguments of the server."""
    arguments = "non-default args: {'model': '/m', 'served_model_name': ['tiny']}"
    text = line(0, arguments) + line(1, received("cmpl-a-0"))
    assert [s.name for s in spans_of(text)] == ["text_completion tiny"]
    assert [s.name for s in spans_of(line(1, received("cmpl-a-0")))] == ["vllm.request"]


def test_a_request_that_no_line_ends_stays_unknown() -> None:
    """It ends with the last record that names it, and says that this is no evidence."""
    text = line(0, received("cmpl-a-0")) + line(2, "Added request cmpl-a-0-1a2b3c4d.")
    (span,) = spans_of(text + line(50, "Nothing to see"))
    assert span.attributes["vllm.request.end_evidence"] == "none"
    assert span.attributes["vllm.request.outcome"] == "unknown"
    assert (span.end_unix_nano - span.start_unix_nano) // NS == 2
    assert "vllm.request.end_bound" not in span.attributes


def test_an_idle_engine_bounds_what_was_open() -> None:
    """Without a running request all that were added before have ended: when is not known."""
    text = line(0, received("cmpl-a-0")) + line(2, "Added request cmpl-a-0-1a2b3c4d.")
    (span,) = spans_of(text + idle(30))
    assert span.attributes["vllm.request.end_bound"] == "2026-12-01T10:00:30Z"
    assert span.attributes["vllm.request.end_evidence"] == "none"


@pytest.mark.parametrize(
    ("last", "end"),
    [
        (
            "Generated response chatcmpl-a: output: 'x', finish_reason: stop",
            ("completed", "generated_response"),
        ),
        ("Request chatcmpl-a failed (engine dead).", ("failed", "engine_dead")),
    ],
)
def test_an_end_printed_after_the_engine_was_idle_counts(last: str, end: tuple[str, str]) -> None:
    """The API server may be many seconds behind its engine."""
    text = line(0, received("chatcmpl-a")) + line(1, "Added request chatcmpl-a-1a2b3c4d.")
    (span,) = spans_of(text + idle(10) + idle(13) + line(30, last))
    outcome = (
        span.attributes["vllm.request.outcome"],
        span.attributes["vllm.request.end_evidence"],
    )
    assert outcome == end
    assert "vllm.request.end_bound" not in span.attributes
    assert (span.end_unix_nano - span.start_unix_nano) // NS == 30


def test_what_an_idle_engine_has_no_more_leaves_in_time() -> None:
    """It is not held until the end of the stream."""
    text = line(0, received("cmpl-a-0")) + line(1, "Added request cmpl-a-0-1a2b3c4d.")
    signals = signals_of(text + idle(10) + line(45, "one") + line(46, "two"))
    assert [s.kind for s in signals if isinstance(s, Span)] == ["server"]
    left = next(i for i, s in enumerate(signals) if isinstance(s, Span))
    assert [s.body for s in signals[left:] if isinstance(s, LogRecord)][-1] == "two"


def test_an_id_used_again_after_the_engine_was_idle_is_no_duplicate() -> None:
    """Lines that follow belong to the later request, the earlier one stays bounded."""
    text = line(0, received("chatcmpl-a")) + line(1, "Added request chatcmpl-a-1a2b3c4d.")
    again = line(12, received("chatcmpl-a")) + line(12, "Added request chatcmpl-a-5e6f7a8b.")
    aborts = line(14, "Aborted request(s) chatcmpl-a-5e6f7a8b.") + line(
        14, "Request chatcmpl-a aborted."
    )
    first, second = spans_of(text + idle(10) + again + aborts)
    assert first.attributes["vllm.request.outcome"] == "unknown"
    assert first.attributes["vllm.request.end_bound"] == "2026-12-01T10:00:10Z"
    assert second.attributes["vllm.request.outcome"] == "aborted"
    assert "vllm.request.duplicate" not in first.attributes
    assert "vllm.request.duplicate" not in second.attributes


def test_the_next_use_of_the_connection_bounds_a_stream() -> None:
    """The access line directly before `Added` is that of a stream."""
    text = (
        line(0, received("cmpl-a-0"))
        + access(port=4000)
        + line(1, "Added request cmpl-a-0-1a2b3c4d.")
        + line(7, received("cmpl-b-0"))
        + access(port=4000)
        + line(8, "Added request cmpl-b-0-1a2b3c4e.")
    )
    first, second = spans_of(text)
    assert first.attributes["client.port"] == 4000
    assert first.attributes["http.response.status_code"] == 200
    assert str(first.attributes["vllm.request.end_bound"]).startswith("2026-12-01T10:00:0")
    assert "vllm.request.end_bound" not in second.attributes


def test_with_several_api_servers_neighbourhood_tells_nothing() -> None:
    """Their lines interleave: no access line is taken for a request's own."""
    text = (
        line(0, received("cmpl-a-0"), "ApiServer_0 pid=1")
        + access(port=4000)
        + line(1, "Added request cmpl-a-0-1a2b3c4d.", "ApiServer_0 pid=1")
    )
    (span,) = spans_of(text)
    assert "client.port" not in span.attributes


def test_the_access_line_ends_the_only_request() -> None:
    """Where one request alone is open, and is no stream, its access line is the end."""
    text = (
        line(0, received("cmpl-a-0"))
        + line(1, "Added request cmpl-a-0-1a2b3c4d.")
        + line(3, "x")
        + access()
        + line(9, "Nothing to see")
    )
    assert ends_of(text) == {"cmpl-a-0": ("completed", "access_log")}


def test_an_abort_is_one_outcome_and_no_error() -> None:
    """Both of its lines belong to the same request."""
    text = (
        line(0, received("chatcmpl-a"))
        + line(0, "Added request chatcmpl-a-1a2b3c4d.")
        + line(2, "Aborted request(s) chatcmpl-a-1a2b3c4d.")
        + line(2, "Request chatcmpl-a aborted.")
    )
    (span,) = spans_of(text)
    assert span.attributes["vllm.request.outcome"] == "aborted"
    assert span.status == "unset"


def test_what_stands_later_decides() -> None:
    """An abort on the engine's side precedes the line that says that the request failed."""
    text = (
        line(0, received("chatcmpl-a"))
        + line(0, "Added request chatcmpl-a-1a2b3c4d.")
        + line(2, "Aborted request(s) chatcmpl-a-1a2b3c4d.")
        + line(2, "Request chatcmpl-a failed due to ValueError: bad.")
    )
    (span,) = spans_of(text)
    assert span.attributes["vllm.request.outcome"] == "failed"
    assert span.status == "error"
    assert span.status_message == "bad"
    assert str(span.attributes["error.type"]).startswith("request.")


def test_children_are_events_of_one_request() -> None:
    """A request for several choices becomes several of the engine's."""
    text = (
        line(0, received("chatcmpl-n", n=2))
        + line(0, "Added request 0_chatcmpl-n-1a2b3c4d.")
        + line(0, "Added request 1_chatcmpl-n-1a2b3c4d.")
        + line(2, "Generated response chatcmpl-n: output: 'x', finish_reason: stop")
        + line(2, "Generated response chatcmpl-n: output: 'y', finish_reason: length")
    )
    (span,) = spans_of(text)
    assert span.attributes["vllm.request.children"] == 2
    assert [event.attributes["vllm.request.internal_id"] for event in span.events] == [
        "0_chatcmpl-n-1a2b3c4d",
        "1_chatcmpl-n-1a2b3c4d",
    ]
    assert span.attributes["gen_ai.response.finish_reasons"] == ["stop", "length"]
    assert span.attributes["vllm.request.outcome"] == "completed"


def test_a_stream_ends_when_all_choices_have() -> None:
    """The reason to finish stands on the last delta of each choice."""
    delta = "Generated response chatcmpl-n (streaming delta): output: 'x', finish_reason: {}"
    text = line(0, received("chatcmpl-n", n=2)) + line(0, "Added request 0_chatcmpl-n-1a2b3c4d.")
    one = text + line(2, delta.format("None")) + line(3, delta.format("stop"))
    assert ends_of(one) == {"chatcmpl-n": ("unknown", "none")}
    both = one + line(4, delta.format("stop"))
    assert ends_of(both) == {"chatcmpl-n": ("completed", "generated_response")}


def test_prompts_of_a_batch_are_spans_of_one_trace() -> None:
    """Each prompt has a line and so a span."""
    text = "".join(line(0, received(f"cmpl-b-{n}")) for n in range(3))
    spans = spans_of(text + line(1, received("cmpl-c-0")))
    assert len({s.span_id for s in spans}) == 4
    assert len({s.trace_id for s in spans[:3]}) == 1
    assert spans[3].trace_id != spans[0].trace_id


def test_beams_of_new_releases_belong_to_their_request() -> None:
    """The id of a beam holds the client's."""
    text = line(0, received("chatcmpl-beam-1")) + "".join(
        line(1, f"Added request chatcmpl-beam-1-{'0a' * 8}-beam-{n}-{n}a2b3c4d.") for n in range(3)
    )
    (span,) = spans_of(text)
    assert span.attributes["vllm.request.children"] == 3


def test_beams_of_old_releases_stand_alone() -> None:
    """Nothing in their id names the request they are of."""
    text = old(0, old_received("chatcmpl-a")) + old(0, "Added request beam_search-b-0.")
    assert sorted(ends_of(text)) == ["beam_search-b-0", "chatcmpl-a"]


def test_a_response_is_named_as_a_whole() -> None:
    """Of the Responses API the requests are numbered, the generated line names the response."""
    text = (
        access("/v1/responses", port=4000)
        + line(0, received("resp_8e00_0"))
        + line(0, "Added request resp_8e00_0-1a2b3c4d.")
        + line(3, "Generated response resp_8e00: output: 'x', finish_reason: stop")
    )
    (span,) = spans_of(text)
    assert span.attributes["vllm.request.outcome"] == "completed"
    assert span.attributes["client.port"] == 4000


@pytest.mark.parametrize(
    "name",
    [
        "chatcmpl-has space and: colon, comma",
        'chatcmpl-it\'s "quoted"',
        "chatcmpl-550e8400-e29b-41d4-a716-446655440000",
        "chatcmpl-deadbeef",
        "cmpl-x-0",
        "chatcmpl-0_1",
        "chatcmpl-a,chatcmpl-b",
    ],
)
def test_an_odd_id_is_still_one_request(name: str) -> None:
    """What a client sends as its id stands in every line as it is."""
    text = (
        line(0, received(name))
        + line(0, f"Added request {name}-1a2b3c4d.")
        + line(1, f"Aborted request(s) {name}-1a2b3c4d.")
        + line(1, f"Request {name} aborted.")
    )
    assert ends_of(text) == {name: ("aborted", "aborted")}


def test_aborted_ids_may_be_joined() -> None:
    """One line can end several requests."""
    text = "".join(
        line(0, received(f"cmpl-{n}-0")) + line(0, f"Added request cmpl-{n}-0-{n}a2b3c4d.")
        for n in range(3)
    )
    text += line(1, "Aborted request(s) cmpl-0-0-0a2b3c4d,cmpl-2-0-2a2b3c4d.")
    assert {k: v[0] for k, v in ends_of(text).items()} == {
        "cmpl-0-0": "aborted",
        "cmpl-1-0": "unknown",
        "cmpl-2-0": "aborted",
    }


def test_requests_of_one_id_are_apart_and_say_so() -> None:
    """Two clients may send the same id; which of them a later line means cannot be told."""
    text = (
        line(0, received("chatcmpl-d"))
        + line(0, received("chatcmpl-d"))
        + line(0, "Added request chatcmpl-d-1a2b3c4d.")
        + line(0, "Added request chatcmpl-d-5e6f7a8b.")
        + line(1, "Aborted request(s) chatcmpl-d-5e6f7a8b.")
    )
    first, second = sorted(spans_of(text), key=lambda s: str(s.attributes["vllm.request.outcome"]))
    assert first.span_id != second.span_id
    assert first.attributes["vllm.request.internal_id"] == "chatcmpl-d-5e6f7a8b"
    assert second.attributes["vllm.request.outcome"] == "unknown"
    assert first.attributes["vllm.request.duplicate"] is True


def test_the_line_of_v0_completes_a_request() -> None:
    """`Finished request` stands at the end, after an abort too."""
    text = old(0, old_received("cmpl-a-0")) + old(0, "Added request cmpl-a-0.")
    assert ends_of(text + old(3, "Finished request cmpl-a-0.")) == {
        "cmpl-a-0": ("completed", "completion_line")
    }
    aborted = text + old(2, "Aborted request cmpl-a-0.") + old(2, "Finished request cmpl-a-0.")
    assert ends_of(aborted) == {"cmpl-a-0": ("aborted", "aborted")}


def test_a_line_with_timings_gives_start_and_children() -> None:
    """Where only the end is printed, the latency tells the start."""
    text = old(
        10,
        "Request cmpl-a-0: prompt_tokens=64, generated_tokens=32, ttft=250.0ms, itl=62.5ms,"
        " total_latency=2.25s",
    )
    signals = [s for s in signals_of(text) if isinstance(s, Span)]
    root, prefill, decode = signals
    assert root.end_unix_nano - root.start_unix_nano == 2_250_000_000
    assert root.attributes["vllm.request.start_evidence"] == "end_less_latency"
    assert root.attributes["gen_ai.usage.input_tokens"] == 64
    assert root.attributes["gen_ai.usage.output_tokens"] == 32
    assert (prefill.name, decode.name) == ("vllm.request.prefill", "vllm.request.decode")
    assert prefill.end_unix_nano - prefill.start_unix_nano == 250_000_000
    assert {prefill.parent_span_id, decode.parent_span_id} == {root.span_id}


def test_what_the_scheduler_prints_is_an_event_of_the_span() -> None:
    """Scheduling, preemption and blocks stand within the request."""
    text = (
        old(0, old_received("cmpl-a-0"))
        + old(
            1,
            "Scheduling request cmpl-a-0: priority=1, num_scheduled_blocks=12, remaining_blocks=30",
            "DEBUG",
        )
        + old(2, "Preempting request cmpl-a-0: reason=low_memory, preempted_blocks=12", "WARNING")
    )
    (span,) = spans_of(text)
    assert [event.name for event in span.events] == [
        "vllm.request.scheduled",
        "vllm.request.preempted",
    ]
    assert span.events[1].attributes["vllm.request.blocks.preempted"] == 12


def test_a_timeout_is_an_error_of_its_own() -> None:
    """The request timed out."""
    text = old(0, old_received("cmpl-a-0")) + old(
        30, "Request cmpl-a-0 timed out after 30.0s", "WARNING"
    )
    (span,) = spans_of(text)
    assert span.attributes["vllm.request.outcome"] == "timed_out"
    assert (span.status, span.attributes["error.type"]) == ("error", "request.timeout")


def test_a_dead_engine_fails_the_requests_that_are_named() -> None:
    """V1 names each request that was open: the others had ended."""
    text = (
        line(0, received("cmpl-a-0"))
        + line(0, "Added request cmpl-a-0-1a2b3c4d.")
        + line(1, received("cmpl-b-0"))
        + line(1, "Added request cmpl-b-0-1a2b3c4e.")
        + line(
            5,
            "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
            level="WARNING",
        )
        + line(5, "Request cmpl-b-0 failed (engine dead).")
    )
    assert ends_of(text) == {
        "cmpl-a-0": ("unknown", "none"),
        "cmpl-b-0": ("failed", "engine_dead"),
    }


def test_a_dead_engine_of_v0_fails_all_that_is_open() -> None:
    """Its server says nothing of single requests."""
    text = old(0, old_received("cmpl-a-0")) + old(0, "Added request cmpl-a-0.")
    text += old(3, "Engine background task failed", "ERROR")
    (span,) = spans_of(text)
    assert span.attributes["vllm.request.end_evidence"] == "engine_dead"
    assert span.attributes["error.type"] == "engine.dead"


def test_a_line_without_a_beginning_has_a_span() -> None:
    """A log that begins in the middle, or a failure printed whatever the flags."""
    text = line(
        0, "Request chatcmpl-x failed with an internal error during generation", level="ERROR"
    )
    (span,) = spans_of(text)
    assert span.attributes["vllm.request.start_evidence"] == "first_record"
    assert span.attributes["vllm.request.outcome"] == "failed"


def test_records_of_a_request_bear_its_ids() -> None:
    """From the first line to the last, until the request has left."""
    text = (
        line(0, received("chatcmpl-a"))
        + line(0, "Added request chatcmpl-a-1a2b3c4d.")
        + line(2, "Request chatcmpl-a aborted.")
    )
    signals = signals_of(text)
    (span,) = [s for s in signals if isinstance(s, Span)]
    records = [s for s in signals if isinstance(s, LogRecord)]
    assert {(r.trace_id, r.span_id) for r in records} == {(span.trace_id, span.span_id)}


def test_a_server_that_traces_itself_has_no_request_spans_unless_asked_for() -> None:
    """Its own spans are the better ones."""
    arguments = "non-default args: {'model': '/m', 'otlp_traces_endpoint': 'http://o:4317'}"
    text = line(0, arguments) + line(1, received("cmpl-a-0"))
    assert [s for s in signals_of(text) if isinstance(s, Span) and s.kind == "server"] == []
    asked = signals_of(text, request_spans=True)
    assert [s.kind for s in asked if isinstance(s, Span) and s.kind == "server"] == ["server"]
    never = signals_of(line(1, received("cmpl-a-0")), request_spans=False)
    assert not [s for s in never if isinstance(s, Span) and s.kind == "server"]


def test_requests_without_end_are_given_up_in_order() -> None:
    """The oldest leave as incomplete when too many are open."""
    machine = Requests(OpenRequests("x"))
    normalizer = Normalizer("x", year=2026)
    (record,) = [*normalizer.feed(line(0, received("cmpl-0-0")).encode()), *normalizer.flush()]
    given = {**record.attributes}
    signals: list[Signal] = []
    for number in range(100_001):
        given["vllm.request.id"] = f"cmpl-{number}-0"
        machine.take(record, given, signals.append)
    assert len(machine.open) <= 100_000
    assert len(signals) == 1000
    for number, span in enumerate(signals):
        assert isinstance(span, Span)
        assert span.attributes["vllm.request.id"] == f"cmpl-{number}-0"
        assert span.attributes["vllm.request.evicted"] is True
        assert span.attributes["vllm.request.outcome"] == "unknown"


def test_open_requests_of_one_id_are_few() -> None:
    """A client that sends one id for ever makes the oldest of them leave."""
    machine = Requests(OpenRequests("x"))
    normalizer = Normalizer("x", year=2026)
    text = line(0, received("chatcmpl-a")) * 300
    signals: list[Signal] = []
    for record in [*normalizer.feed(text.encode()), *normalizer.flush()]:
        machine.take(record, record.attributes, signals.append)
    assert len(machine.open) == 256
    assert len(signals) == 44
    assert all(isinstance(s, Span) and s.attributes["vllm.request.duplicate"] for s in signals)


def test_a_request_of_yesterday_is_given_up() -> None:
    """What has been open for more than a day has been forgotten by its server too."""
    text = line(0, received("cmpl-a-0")) + line(30, "Nothing to see").replace("12-01", "12-03")
    (span,) = spans_of(text + line(40, received("cmpl-b-0")).replace("12-01", "12-03"))[:1]
    assert span.attributes["vllm.request.evicted"] is True


def test_state_can_be_put_away_and_taken_up_again() -> None:
    """Encoded between any two records, the machine gives the same spans."""
    text = (
        line(0, received("chatcmpl-a", n=2))
        + access("/v1/chat/completions")
        + line(0, "Added request 0_chatcmpl-a-1a2b3c4d.")
        + line(0, received("chatcmpl-a"))
        + line(1, "Aborted request(s) 0_chatcmpl-a-1a2b3c4d,1_chatcmpl-a-1a2b3c4d.")
        + line(9, "Nothing to see")
    )
    normalizer = Normalizer("x", year=2026)
    records = [*normalizer.feed(text.encode()), *normalizer.flush()]
    found: list[list[Signal]] = []
    for stored in (False, True):
        machine = Requests(OpenRequests("x"))
        signals: list[Signal] = []
        for record in records:
            machine.take(record, record.attributes, signals.append)
            machine.advance(record.time_unix_nano, signals.append)
            if stored:
                machine = msgspec.msgpack.decode(msgspec.msgpack.encode(machine), type=Requests)
        machine.finish(0, signals.append)
        found.append(signals)
    assert found[0] == found[1]
    assert len(found[0]) == 2
