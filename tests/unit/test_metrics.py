"""Metrics of constructed logs."""

from __future__ import annotations

import msgspec
import pytest

from vllm_logpipe import Normalizer
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.derive.metrics import Metrics
from vllm_logpipe.derive.route import route_of
from vllm_logpipe.model import Histogram, MetricPoint, Signal
from vllm_logpipe.semconv import METRICS

NS = 1_000_000_000


def line(second: int, text: str, level: str = "INFO") -> str:
    """A record of the API server."""
    clock = f"{10 + second // 3600}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"(APIServer pid=1) {level} 12-01 {clock} [x.py:1] {text}\n"


def access(path: str, status: int = 200, method: str = "POST") -> str:
    """An access line."""
    return f'INFO:     192.0.2.7:51234 - "{method} {path} HTTP/1.1" {status} OK\n'


def points_of(text: str, name: str | None = None) -> list[MetricPoint]:
    """The points of a log, or those of one metric."""
    normalizer = Normalizer("x", year=2026)
    deriver = Deriver()
    records = [*normalizer.feed(text.encode()), *normalizer.flush()]
    signals = deriver.take(records) + deriver.finish()
    points = [s for s in signals if isinstance(s, MetricPoint)]
    return [point for point in points if name in (None, point.name)]


def last_values(text: str, name: str) -> dict[tuple[object, ...], object]:
    """The last value of each series of a metric."""
    return {tuple(p.attributes.values()): p.value for p in points_of(text, name)}


STATS = (
    "Engine 001: Avg prompt throughput: 51.2 tokens/s, Avg generation throughput: 310.4 tokens/s,"
    " Running: 4 reqs, Waiting: 2 reqs, GPU KV cache usage: 3.2%, Prefix cache hit rate: 87.5%"
)
TIMING = (
    "Request cmpl-1-0: prompt_tokens=64, generated_tokens=32, ttft=250.0ms, itl=62.5ms,"
    " total_latency=2.25s"
)


def test_stats_set_gauges_at_the_time_of_their_line() -> None:
    """Each figure is a point of its own, by engine, with the line's own time."""
    points = points_of(line(30, STATS))
    gauges = {
        (p.name, *p.attributes.values()): p.value for p in points if p.name[:12] == "vllm.engine."
    }
    assert gauges == {
        ("vllm.engine.throughput", "input", 1): 51.2,
        ("vllm.engine.throughput", "output", 1): 310.4,
        ("vllm.engine.requests", "running", 1): 4,
        ("vllm.engine.requests", "waiting", 1): 2,
        ("vllm.engine.kv_cache.utilization", 1): 0.032,
        ("vllm.engine.cache.hit_ratio", "prefix", 1): 0.875,
    }
    (running,) = [p for p in points if p.attributes.get("vllm.request.state") == "running"]
    assert running.time_unix_nano % (60 * NS) == 30 * NS


def test_workers_of_one_engine_are_apart() -> None:
    """The memory of each rank is a series of its own."""
    text = "".join(
        f"(Worker_TP{rank} pid={rank + 2}) INFO 12-01 10:00:00 [x.py:1] Available KV cache memory:"
        f" {rank + 1}.00 GiB\n"
        for rank in (0, 1)
    )
    values = last_values(text, "vllm.engine.kv_cache.memory")
    assert values == {(0,): 2**30, (1,): 2**31}


def test_counters_are_cumulative_since_the_first_record() -> None:
    """They leave at most every 10 s of event time, and at the end."""
    text = "".join(line(second, "Nothing to see") for second in range(25))
    points = points_of(text, "vllm.log.records")
    assert [p.value for p in points] == [10, 20, 25]
    assert {p.start_unix_nano for p in points} == {points[0].time_unix_nano - 10 * NS}
    assert points[0].attributes == {"vllm.log.severity": "INFO", "vllm.log.format": "v1_prefixed"}
    assert [p.value for p in points_of(text, "vllm.log.unrecognised")] == [10, 20, 25]


def test_responses_count_by_route_and_status() -> None:
    """Ids in paths are replaced, query strings are no part of a route."""
    text = (
        line(0, STATS)
        + access("/v1/completions") * 3
        + access("/v1/completions", 400)
        + access("/v1/responses/resp_8e00aa11bb22cc33", method="GET")
        + access("/health?x=1", method="GET")
    )
    assert last_values(text, "vllm.http.responses") == {
        ("/v1/completions", 200): 3,
        ("/v1/completions", 400): 1,
        ("/v1/responses/{id}", 200): 1,
        ("/health", 200): 1,
    }


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/models/7", "/v1/models/{id}"),
        ("/v1/files/550e8400-e29b-41d4-a716-446655440000", "/v1/files/{id}"),
        ("/v1/files/0123456789abcdef", "/v1/files/{id}"),
        ("/", "/"),
        ("/a/../../etc/passwd", "other"),
        ("/%2e%2e/x", "other"),
        ("nonsense", "other"),
        ("/" + "a" * 500, "other"),
        ("/a" * 40, "other"),
    ],
)
def test_a_route_holds_no_value_of_a_client(path: str, route: str) -> None:
    """What varies from request to request, or is no path of an API, is replaced."""
    assert route_of(path) == route


def test_routes_without_end_become_one_series() -> None:
    """A scanner's thousand paths do not make a thousand series."""
    names = ("".join(chr(97 + int(digit)) for digit in str(n)) for n in range(5000))
    text = line(0, STATS) + "".join(access(f"/{name}", 404) for name in names)
    values = last_values(text, "vllm.http.responses")
    assert len(values) <= 201
    assert sum(v for v in values.values() if isinstance(v, int)) == 5000


def test_ids_in_paths_use_up_no_routes() -> None:
    """However many responses were fetched, a route that comes later is still named."""
    text = line(0, STATS) + "".join(
        access(f"/v1/responses/resp_8e00aa11bb22{n:04x}", method="GET") for n in range(1500)
    )
    assert last_values(text + access("/v1/completions"), "vllm.http.responses") == {
        ("/v1/responses/{id}", 200): 1500,
        ("/v1/completions", 200): 1,
    }


def test_levels_without_end_become_one_series() -> None:
    """A program names its levels as it likes; all records are counted all the same."""
    machine = Metrics()
    (record,) = Normalizer("x", year=2026).feed(line(0, "x").encode() * 2)
    signals: list[Signal] = []
    for number in range(1000):
        named = msgspec.structs.replace(record, severity_text=f"LEVEL{number}")
        machine.take(named, named.attributes, signals.append)
    machine.finish(0, signals.append)
    points = [s for s in signals if isinstance(s, MetricPoint) and s.name == "vllm.log.records"]
    assert len(points) <= 100
    assert sum(p.value for p in points if isinstance(p.value, int)) == 1000
    assert points[-1].attributes == {"otel.metric.overflow": True}


def test_memory_of_old_and_new_profiles_is_measured() -> None:
    """What profiling found is a gauge; the sizes that it proposes are none."""
    split = (
        "model weights take 14.25GiB; non_torch_memory takes 0.06GiB; PyTorch activation peak"
        " memory takes 0.45GiB; the rest of the memory reserved for KV Cache is 56.48GiB."
    )
    assert last_values(line(0, split), "vllm.engine.kv_cache.memory") == {(): 60644938220}
    queues = "Running queue: 16 requests, waiting queue: 3 requests, free blocks: 4/128"
    assert last_values(line(0, queues), "vllm.engine.requests") == {
        ("running",): 16,
        ("waiting",): 3,
    }
    proposal = (
        "Free memory on device (78.5/79.15 GiB) on startup. Desired GPU memory utilization is"
        " (0.9, 71.24 GiB). Actual usage is 14.25 GiB for weight, 0.45 GiB for peak activation,"
        " 0.06 GiB for non-torch memory, and 0.93 GiB for CUDAGraph memory. "
        "Replace gpu_memory_utilization config with `--kv-cache-memory=59000000000` "
        "(54.95 GiB) to fit into requested memory, or `--kv-cache-memory=66000000000` "
        "(61.47 GiB) to fully utilize gpu memory. Current kv cache memory in use is 56.48 "
        "GiB."
    )
    assert last_values(line(0, proposal), "vllm.log.unrecognised") == {}
    assert last_values(line(0, proposal), "vllm.engine.kv_cache.memory") == {(): 60644938220}


def test_printed_timings_fill_histograms() -> None:
    """Durations and tokens come only from lines that print them."""
    text = line(9, TIMING) + line(10, TIMING.replace("2.25s", "30.0s"))
    (duration,) = points_of(text, "gen_ai.server.request.duration")
    assert isinstance(duration.value, Histogram)
    assert (duration.value.count, duration.value.sum) == (2, 32.25)
    assert sum(duration.value.bucket_counts) == 2
    bounds = {m.name: m.bounds for m in METRICS}["gen_ai.server.request.duration"]
    assert duration.value.bounds == bounds
    assert duration.value.bucket_counts[bounds.index(2.56)] == 1
    (first,) = points_of(text, "gen_ai.server.time_to_first_token")
    assert isinstance(first.value, Histogram)
    assert first.value.sum == 0.5
    tokens = {
        p.attributes["gen_ai.token.type"]: p.value for p in points_of(text, "vllm.request.tokens")
    }
    assert isinstance(tokens["input"], Histogram)
    assert tokens["input"].sum == 128


def test_requests_count_by_outcome() -> None:
    """A request that no line ends counts as unknown."""
    text = (
        line(0, "Added request cmpl-1-0-1a2b3c4d.")
        + line(1, "Aborted request(s) cmpl-1-0-1a2b3c4d.")
        + line(2, "Received request cmpl-2-0: params: SamplingParams(n=1), lora_request: None.")
    )
    assert last_values(text, "vllm.requests") == {("aborted",): 1, ("unknown",): 1}


def test_preemptions_count_as_the_line_tells() -> None:
    """Old releases print every fiftieth with the total, newer ones how many in an interval."""
    old = (
        "Sequence group {} is preempted by PreemptionMode.RECOMPUTE mode because there is not"
        " enough KV cache space. This can affect the end-to-end performance. Increase"
        " gpu_memory_utilization or tensor_parallel_size to provide more KV cache memory."
        " total_num_cumulative_preemption={}"
    )
    text = line(0, old.format("a-0", 1), "WARNING") + line(1, old.format("b-0", 51), "WARNING")
    assert last_values(text, "vllm.preemptions") == {(): 51}
    new = STATS.replace("GPU KV", "Preemptions: 5, GPU KV")
    assert last_values(line(0, new) + line(10, new), "vllm.preemptions") == {(1,): 10}


def test_errors_count_by_class_and_role() -> None:
    """Each record with a class counts; incidents count once."""
    text = "".join(line(second, "CUDA error: out of memory", "ERROR") for second in range(3))
    assert last_values(text, "vllm.errors") == {("cuda.out_of_memory", "root"): 3}
    assert last_values(text, "vllm.incidents") == {("cuda.out_of_memory",): 1}


def test_every_point_is_of_a_declared_metric_with_declared_attributes() -> None:
    """Attributes are the metric's own, none is a request, process or file."""
    declared = {metric.name: metric for metric in METRICS}
    text = line(0, STATS) + line(1, TIMING) + access("/v1/completions") + line(2, "x", "ERROR")
    points = points_of(text)
    assert len({point.name for point in points}) >= 10
    for point in points:
        metric = declared[point.name]
        assert set(point.attributes) <= {*metric.attributes, "otel.metric.overflow"}
        assert isinstance(point.value, Histogram) is (metric.type == "histogram")


def test_series_without_end_overflow_into_one() -> None:
    """What comes after the limit is counted together."""
    machine = Metrics()
    for number in range(3000):
        machine._add("vllm.errors", (f"class.{number}", "root"), 1)
    signals: list[Signal] = []
    machine.finish(0, signals.append)
    points = [s for s in signals if isinstance(s, MetricPoint) and s.name == "vllm.errors"]
    assert len(points) == 2001
    overflow = [p.value for p in points if p.attributes == {"otel.metric.overflow": True}]
    assert overflow == [1000]
    lost = [s for s in signals if isinstance(s, MetricPoint) and s.name == "vllm.derived.evicted"]
    assert [(p.attributes, p.value) for p in lost] == [({"vllm.derived.kind": "series"}, 1000)]


def test_state_can_be_put_away_and_taken_up_again() -> None:
    """Encoded between any two records, the machine gives the same points."""
    text = line(0, STATS) + line(5, TIMING) + access("/v1/completions") + line(30, STATS)
    normalizer = Normalizer("x", year=2026)
    records = [*normalizer.feed(text.encode()), *normalizer.flush()]
    found: list[list[Signal]] = []
    for stored in (False, True):
        machine = Metrics()
        signals: list[Signal] = []
        for record in records:
            machine.take(record, record.attributes, signals.append)
            machine.advance(record.time_unix_nano, signals.append)
            if stored:
                machine = msgspec.msgpack.decode(msgspec.msgpack.encode(machine), type=Metrics)
        machine.finish(0, signals.append)
        found.append(signals)
    assert found[0] == found[1]
