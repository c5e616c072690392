"""Our metrics beside those of the servers themselves, figure by figure."""

from __future__ import annotations

import functools
import gzip
import json
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from vllm_logpipe import Normalizer
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.model import Histogram, MetricPoint
from vllm_logpipe.semconv import METRICS

DATA = Path(__file__).parent.parent / "data"
LOGS = sorted(path.stem for path in (DATA / "metrics").glob("*.txt"))
TABLE = tomllib.loads((DATA / "figures.toml").read_text())
CLIENTS = [
    json.loads(line)
    for line in gzip.decompress((DATA / "clients.jsonl.gz").read_bytes()).splitlines()
]
SAMPLE = re.compile(r"([a-z0-9_:]+)\{(.*)\} ([0-9.e+-]+)")
LABEL = re.compile(r'([a-z_]+)="([^"]*)"')

Sample = tuple[str, dict[str, str], float]


@functools.cache
def theirs(name: str) -> tuple[Sample, ...]:
    """What the server's /metrics said at the end of the load."""
    found = []
    for line in (DATA / "metrics" / f"{name}.txt").read_text().splitlines():
        match = SAMPLE.fullmatch(line)
        assert match, line
        found.append((match[1], dict(LABEL.findall(match[2])), float(match[3])))
    return tuple(found)


@functools.cache
def ours(name: str) -> dict[tuple[str, ...], float]:
    """The last value of each of our series."""
    normalizer = Normalizer(name, reference=1_796_083_200.0)
    data = gzip.decompress((DATA / "logs" / f"{name}.log.gz").read_bytes())
    deriver = Deriver()
    signals = deriver.take([*normalizer.feed(data), *normalizer.flush()]) + deriver.finish()
    return {
        (s.name, *map(str, s.attributes.values())): float(s.value)
        for s in signals
        if isinstance(s, MetricPoint) and not isinstance(s.value, Histogram)
    }


def test_the_table_names_metrics_of_both_sides() -> None:
    """Every row has a rule or a reason, and its names exist."""
    known = {metric.name for metric in METRICS}
    printed = {name for log in LOGS for name, _, _ in theirs(log)}
    for row in TABLE["both"]:
        assert row["ours"] in known
        assert row["rule"]
    named = " ".join(row["theirs"] for row in (*TABLE["both"], *TABLE["log_cannot"]))
    for name in printed:
        assert name.removesuffix("_count") in named, f"{name} stands in no row"
    assert all(row["why"] for row in TABLE["log_cannot"])


@pytest.mark.parametrize("name", [name for name in LOGS if not name.startswith("old085")])
def test_responses_agree(name: str) -> None:
    """By route and class; 0.8.5 does not count them itself."""
    counted: Counter[tuple[str, str]] = Counter()
    for series, value in ours(name).items():
        if series[0] == "vllm.http.responses" and series[2] != "405":
            counted[series[1], f"{series[2][0]}xx"] += int(value)
    gone = Counter(
        client["path"]
        for client in CLIENTS
        if client["log"] == name
        and client["outcome"] in ("aborted_by_client", "conn_error")
        and not client["stream"]
    )
    compared = 0
    reference: Counter[tuple[str, str]] = Counter()
    for metric, labels, value in theirs(name):
        # Of a wrong method each release names another handler, or none.
        wrong = labels.get("method") == "GET" and labels.get("status") == "4xx"
        if metric == "http_requests_total" and labels["handler"] != "none" and not wrong:
            reference[labels["handler"], labels["status"]] += int(value)
    for (route, status), value in reference.items():
        compared += 1
        missing = value - counted[route, status]
        assert 0 <= missing <= gone[route], (route, status)
    assert compared >= 4


@pytest.mark.parametrize("name", [name for name in LOGS if name != "08_dp2"])
def test_what_the_engine_reports_last_agrees(name: str) -> None:
    """Running, waiting and the share of the KV cache in use."""
    for state in ("running", "waiting"):
        (value,) = [v for metric, _, v in theirs(name) if metric == f"vllm:num_requests_{state}"]
        found = [v for k, v in ours(name).items() if k[:2] == ("vllm.engine.requests", state)]
        assert found == [value]
    (used,) = [v for metric, _, v in theirs(name) if metric.endswith("_usage_perc")]
    shown = [v for k, v in ours(name).items() if k[0] == "vllm.engine.kv_cache.utilization"]
    assert shown == [used]


@pytest.mark.parametrize("name", [name for name in LOGS if not name.startswith("old085")])
def test_the_capacity_of_the_kv_cache_agrees(name: str) -> None:
    """Blocks times their size: of several engines each reports the blocks of all."""
    wanted = {
        int(labels["num_gpu_blocks"]) * int(labels["block_size"])
        for metric, labels, _ in theirs(name)
        if metric == "vllm:cache_config_info"
    }
    found = [v for k, v in ours(name).items() if k[0] == "vllm.engine.kv_cache.capacity"]
    assert {sum(found)} == wanted


@pytest.mark.parametrize("name", ["02_log_requests_outputs", "12_soak", "09_preemption"])
def test_without_hits_the_share_is_zero(name: str) -> None:
    """Where no prefix was found in the cache, no interval shows a share."""
    totals = {metric: value for metric, _, value in theirs(name)}
    shown = [v for k, v in ours(name).items() if k[:2] == ("vllm.engine.cache.hit_ratio", "prefix")]
    if totals["vllm:prefix_cache_hits_total"] == 0:
        assert shown == [0.0]
    else:
        assert shown
