"""The starts of real servers: one trace each, beside what was seen from outside."""

from __future__ import annotations

import functools
import gzip
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.derive.deriver import Deriver, Server
from vllm_logpipe.model import Histogram, MetricPoint, Signal, Span
from vllm_logpipe.semconv import METRICS, PHASES

DATA = Path(__file__).parent.parent / "data"
NS = 1_000_000_000
REFERENCE = 1_796_083_200.0
STARTS = {row["log"]: row for row in tomllib.loads((DATA / "starts.toml").read_text())["start"]}
FAILED = tomllib.loads((DATA / "incidents.toml").read_text())
ANSWERED = [name for name, row in STARTS.items() if "ready" in row]
ALL_PHASES = {"config", "distributed_init", "model_load", "kv_cache", "api_server"}
"""The phases that every start on a CPU shows, whichever the release."""
WARMS_UP_LATE = "old016_"
"""Release 0.16 on a CPU prints its warm-up after the size of the KV cache."""


@functools.cache
def records_of(name: str) -> tuple[LogRecord, ...]:
    """The records of a log."""
    normalizer = Normalizer(name, reference=REFERENCE)
    data = gzip.decompress((DATA / "logs" / f"{name}.log.gz").read_bytes())
    return (*normalizer.feed(data), *normalizer.flush())


def derive(records: Sequence[LogRecord]) -> list[Signal]:
    """What is derived of records."""
    deriver = Deriver()
    return deriver.take(records) + deriver.finish()


@functools.cache
def start_of(name: str) -> tuple[Span, tuple[Span, ...]]:
    """The root and the phases of the one start of a log."""
    spans = [
        signal
        for signal in derive(records_of(name))
        if isinstance(signal, Span) and signal.name.startswith("vllm.startup")
    ]
    (root,) = [span for span in spans if span.name == "vllm.startup"]
    return root, tuple(span for span in spans if span is not root)


def test_every_log_is_listed() -> None:
    """What is known from outside is known of each log, of servers that came up and did not."""
    logs = {path.name.removesuffix(".log.gz") for path in (DATA / "logs").glob("*.log.gz")}
    assert set(STARTS) == logs
    assert len(ANSWERED) >= 12
    assert len(logs) - len(ANSWERED) >= 12


@pytest.mark.parametrize("name", STARTS)
def test_the_outcome_is_what_happened(name: str) -> None:
    """Ready where the server answered or the program ended well, else failed, with the cause."""
    root, _ = start_of(name)
    row = STARTS[name]
    if "ready" in row or row["status"] == 0:
        assert root.attributes["vllm.startup.outcome"] == "ready"
        assert root.status == "unset"
        assert "error.type" not in root.attributes
    else:
        assert root.attributes["vllm.startup.outcome"] == "failed"
        assert root.status == "error"
        assert root.attributes["error.type"] == FAILED[name]["error"]
        assert root.status_message


@pytest.mark.parametrize("name", ANSWERED)
def test_a_start_lies_where_it_was_seen(name: str) -> None:
    """It begins after the process was started, and ends shortly before the first answer."""
    root, _ = start_of(name)
    row = STARTS[name]
    blur = float(str(root.attributes["vllm.span.clock.resolution"]))
    assert root.start_unix_nano / NS >= row["started"] - blur
    assert 0 <= row["ready"] - root.end_unix_nano / NS <= 5


@pytest.mark.parametrize("name", STARTS)
def test_phases_lie_within_the_start_and_in_order(name: str) -> None:
    """Each process has each phase once, and comes to them in the order of a start."""
    root, phases = start_of(name)
    assert phases
    processes: dict[object, list[Span]] = defaultdict(list)
    for phase in phases:
        assert phase.trace_id == root.trace_id
        assert phase.parent_span_id == root.span_id
        assert root.start_unix_nano <= phase.start_unix_nano <= phase.end_unix_nano
        assert phase.end_unix_nano <= root.end_unix_nano
        processes[phase.attributes.get("process.pid")].append(phase)
    for found in processes.values():
        names = [str(phase.attributes["vllm.phase"]) for phase in found]
        assert len(set(names)) == len(names)
        by_start = sorted(found, key=lambda phase: phase.start_unix_nano)
        order = [
            PHASES.index(str(phase.attributes["vllm.phase"]))
            for phase in by_start
            if not (name.startswith(WARMS_UP_LATE) and phase.attributes["vllm.phase"] == "compile")
        ]
        assert order == sorted(order), names


@pytest.mark.parametrize("name", ANSWERED)
def test_a_server_that_came_up_shows_all_its_phases(name: str) -> None:
    """No phase of a whole start is missing."""
    _, phases = start_of(name)
    assert {phase.attributes["vllm.phase"] for phase in phases} >= ALL_PHASES


@pytest.mark.parametrize(
    ("name", "workers"), [("01_serve_info_default", 1), ("07_tp2", 2), ("08_dp2", 2)]
)
def test_each_worker_loads_the_model(name: str, workers: int) -> None:
    """Parallel processes have spans of their own."""
    _, phases = start_of(name)
    loads = [phase for phase in phases if phase.name == "vllm.startup.model_load"]
    assert len({phase.attributes["process.pid"] for phase in loads}) == len(loads) == workers


@pytest.mark.parametrize("name", STARTS)
def test_durations_of_phases_are_counted_once(name: str) -> None:
    """The histogram holds as many phases as there are spans."""
    _, phases = start_of(name)
    last: dict[str, Histogram] = {}
    for signal in derive(records_of(name)):
        if isinstance(signal, MetricPoint) and signal.name == "vllm.startup.phase.duration":
            assert isinstance(signal.value, Histogram)
            last[repr(signal.attributes)] = signal.value
    assert sum(histogram.count for histogram in last.values()) == len(phases)


@pytest.mark.parametrize("name", STARTS)
def test_points_are_of_declared_metrics(name: str) -> None:
    """In real logs too, no attribute but a metric's own, and no point before the first record."""
    declared = {metric.name: metric for metric in METRICS}
    counted = 0
    for signal in derive(records_of(name)):
        if isinstance(signal, MetricPoint):
            assert set(signal.attributes) <= set(declared[signal.name].attributes)
            assert signal.start_unix_nano <= signal.time_unix_nano
            counted += 1
    assert counted


@pytest.mark.parametrize(
    "name", ["06f_fail_corrupt_shard", "07_tp2", "09_preemption", "old085_02_log_requests"]
)
def test_a_start_goes_on_from_stored_state(name: str) -> None:
    """Put away as MessagePack in the middle of the log, what is derived is the same."""
    records = records_of(name)
    whole = derive(records)
    assert whole == derive(records)
    for place in (len(records) // 4, len(records) // 2):
        first = Deriver()
        signals = first.take(records[:place])
        state = msgspec.msgpack.encode(first.servers())
        second = Deriver()
        second.restore(msgspec.msgpack.decode(state, type=list[Server]))
        signals += second.take(records[place:]) + second.finish()
        assert [s for s in signals if isinstance(s, Span)] == [
            s for s in whole if isinstance(s, Span)
        ]
        assert _totals(signals) == _totals(whole)


def _totals(signals: Sequence[Signal]) -> dict[str, object]:
    """The last value of each series."""
    points = [signal for signal in signals if isinstance(signal, MetricPoint)]
    return {f"{point.name} {point.attributes}": point.value for point in points}
