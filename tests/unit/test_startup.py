"""The start-up trace of constructed starts."""

from __future__ import annotations

import msgspec
import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.derive.startup import Startup
from vllm_logpipe.model import MetricPoint, Signal, Span

NS = 1_000_000_000


def line(second: int, text: str, process: str = "APIServer pid=1", level: str = "INFO") -> str:
    """A record of a process."""
    return f"({process}) {level} 12-01 10:{second // 60:02d}:{second % 60:02d} [x.py:1] {text}\n"


ENGINE = "EngineCore pid=2"
WORKER = "Worker pid=3"
START = (
    line(0, "vLLM API server version 0.11.0")
    + line(1, "Resolved architecture: LlamaForCausalLM")
    + line(9, "Initializing a V1 LLM engine (v0.11.0) with config: model='/m'", ENGINE)
    + line(12, "rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, TP rank 0", WORKER)
    + line(13, "Starting to load model /m...", WORKER)
    + line(40, "Loading weights took 13.38 seconds", WORKER)
    + line(41, "Model loading took 61.06 GiB memory and 14.101032 seconds", WORKER)
    + line(60, "GPU KV cache size: 48,704 tokens", ENGINE)
)
READY = line(75, "Application startup complete.")


def signals_of(text: str) -> list[Signal]:
    """What is derived of a log."""
    normalizer = Normalizer("x", year=2026)
    deriver = Deriver()
    records = [*normalizer.feed(text.encode()), *normalizer.flush()]
    return deriver.take(records) + deriver.finish()


def spans_of(text: str) -> list[Span]:
    """The spans of a log's starts."""
    return [
        s for s in signals_of(text) if isinstance(s, Span) and s.name.startswith("vllm.startup")
    ]


def test_a_start_is_one_trace_from_its_first_record_until_it_is_ready() -> None:
    """The root spans the start; each phase of each process is a child of it."""
    root, *phases = spans_of(START + READY)
    assert (root.name, root.status) == ("vllm.startup", "unset")
    assert root.end_unix_nano - root.start_unix_nano == 75 * NS
    assert root.attributes["vllm.startup.outcome"] == "ready"
    assert {phase.trace_id for phase in phases} == {root.trace_id}
    assert {phase.parent_span_id for phase in phases} == {root.span_id}
    assert [
        (p.name.removeprefix("vllm.startup."), p.attributes["process.pid"]) for p in phases
    ] == [
        ("config", 1),
        ("config", 2),
        ("distributed_init", 3),
        ("model_load", 3),
        ("kv_cache", 2),
        ("api_server", 1),
    ]
    assert all(
        root.start_unix_nano <= p.start_unix_nano <= p.end_unix_nano <= root.end_unix_nano
        for p in phases
    )


def test_a_phase_carries_the_figures_that_were_printed() -> None:
    """Sizes and durations of its records are attributes of the phase."""
    (load,) = [s for s in spans_of(START + READY) if s.name == "vllm.startup.model_load"]
    assert load.attributes["vllm.weights.load_duration"] == 13.38
    assert load.attributes["vllm.model.load_duration"] == 14.101032
    assert load.attributes["vllm.process.kind"] == "worker"
    assert load.attributes["vllm.phase"] == "model_load"


def test_took_n_seconds_marks_an_end() -> None:
    """Where the first line of a phase is its last one, its duration tells when it began."""
    text = line(0, "vLLM API server version 0.11.0") + line(
        40, "Loading weights took 13.50 seconds", WORKER
    )
    (load,) = [s for s in spans_of(text + READY) if s.name == "vllm.startup.model_load"]
    assert load.end_unix_nano - load.start_unix_nano == 13_500_000_000


def test_a_start_that_fails_ends_in_an_error_with_its_cause() -> None:
    """The root takes class and message of the incident."""
    error = "".join(
        line(61, text, ENGINE, "ERROR")
        for text in (
            "EngineCore failed to start.",
            "Traceback (most recent call last):",
            '  File "/opt/x.py", line 1, in f',
            "    g()",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        )
    )
    root, *_ = spans_of(START + error)
    assert root.status == "error"
    assert root.attributes["vllm.startup.outcome"] == "failed"
    assert root.attributes["error.type"] == "cuda.out_of_memory"
    assert root.status_message == "CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    ("more", "outcome"),
    [("", "unknown"), (line(61, "[shutdown] API server: shutdown triggered"), "stopped")],
)
def test_a_start_without_an_end_leaves_as_what_it_is(more: str, outcome: str) -> None:
    """A log that breaks off, and a server that was stopped before it was ready."""
    root, *_ = spans_of(START + more)
    assert root.attributes["vllm.startup.outcome"] == outcome
    assert root.status == "unset"


READY_ENGINE = line(
    61, "init engine (profile, create kv cache, warmup model) took 21.5 seconds", ENGINE
)


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ("", "unknown"),
        (line(63, "[shutdown] API server: shutdown triggered"), "stopped"),
        (READY, "ready"),
    ],
)
def test_a_server_is_not_ready_because_its_engine_is(more: str, outcome: str) -> None:
    """A server with an API says so itself."""
    root, *_ = spans_of(START + READY_ENGINE + more)
    assert root.attributes["vllm.startup.outcome"] == outcome


def test_a_program_without_a_server_is_ready_with_its_engine() -> None:
    """That is all that can be seen of it."""
    without = "".join(START.splitlines(keepends=True)[1:])
    root, *_ = spans_of(without + READY_ENGINE)
    assert root.attributes["vllm.startup.outcome"] == "ready"


def test_no_phase_ends_after_the_start() -> None:
    """A duration that is finer than the printed times does not push a phase past the root."""
    before = "".join(START.splitlines(keepends=True)[:-1])
    ranks = line(
        61, "rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, TP rank 0", ENGINE
    )
    took = line(
        75, "init engine (profile, create kv cache, warmup model) took 14.4 seconds", ENGINE
    )
    root, *phases = spans_of(before + ranks + took + READY)
    (cache,) = [p for p in phases if p.name == "vllm.startup.kv_cache"]
    assert cache.end_unix_nano == root.end_unix_nano
    assert max(p.end_unix_nano for p in phases) <= root.end_unix_nano


def test_a_log_that_begins_while_serving_shows_no_start() -> None:
    """What cannot be seen is not made up."""
    text = line(0, "Added request cmpl-1-0.") * 3 + line(5, "Received request x: params: y")
    assert spans_of(text) == []


def test_a_stray_line_does_not_stretch_an_earlier_phase() -> None:
    """Settings are printed late too: the phase of configuration has long ended."""
    text = START + line(61, "Resolved architecture: LlamaForCausalLM", ENGINE) + READY
    (config,) = [
        s
        for s in spans_of(text)
        if s.name == "vllm.startup.config" and s.attributes["process.pid"] == 2
    ]
    assert config.start_unix_nano == config.end_unix_nano


def test_records_of_a_start_bear_its_trace() -> None:
    """Until the server is ready each record has the ids of its phase."""
    signals = signals_of(START + READY + line(80, "GPU KV cache size: 48,704 tokens", ENGINE))
    spans = {s.span_id for s in signals if isinstance(s, Span)}
    records = [s for s in signals if isinstance(s, LogRecord)]
    assert all(record.span_id in spans for record in records[:-1])
    assert records[-1].span_id is None


def test_a_restart_is_a_start_of_its_own() -> None:
    """The second banner of a stream begins another trace, and is counted."""
    again = START.replace("pid=", "pid=9").replace("12-01", "12-02")
    signals = signals_of(START + READY + again)
    roots = [s for s in signals if isinstance(s, Span) and s.name == "vllm.startup"]
    assert [root.attributes["vllm.startup.number"] for root in roots] == [1, 2]
    assert len({root.trace_id for root in roots}) == 2
    restarts = [s for s in signals if isinstance(s, MetricPoint) and s.name == "vllm.restarts"]
    assert [point.value for point in restarts] == [1]


def test_state_can_be_put_away_and_taken_up_again() -> None:
    """Encoded between any two records, the machine gives the same spans."""
    normalizer = Normalizer("x", year=2026)
    records = [*normalizer.feed((START + READY).encode()), *normalizer.flush()]
    machine = Startup("x")
    signals: list[Signal] = []
    for record in records:
        machine.take(record, record.attributes, signals.append)
        machine = msgspec.msgpack.decode(msgspec.msgpack.encode(machine), type=Startup)
    assert len(signals) == 7


def test_processes_without_end_take_no_memory() -> None:
    """The phases that are held are bounded, whatever a stream claims."""
    text = "".join(line(0, "Starting to load model /m...", f"Worker pid={n}") for n in range(6000))
    normalizer = Normalizer("x", year=2026)
    machine = Startup("x")
    for record in [*normalizer.feed(text.encode()), *normalizer.flush()]:
        machine.take(record, record.attributes, lambda _signal: None)
    assert len(machine.phases) <= 4096
