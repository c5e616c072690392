"""What a real Collector receives of a replayed log."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.servers import Collector, wait_for

DATA = Path(__file__).parents[1] / "data" / "logs"
NS = 1_000_000_000


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "vllm_logpipe", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a server whose engine was killed."""
    path = tmp_path / "server.log"
    path.write_bytes(gzip.decompress((DATA / "07c_kill_enginecore.log.gz").read_bytes()))
    return path


def signals(log: Path) -> dict[str, list[dict[str, Any]]]:
    """What the command prints of a log, by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in command("normalize", str(log), "--signals", "--year", "2026").stdout.splitlines():
        signal = json.loads(line)
        found.setdefault(signal["kind"], []).append(signal)
    return found


def values(attributes: list[dict[str, Any]]) -> dict[str, object]:
    """The attributes of OTLP/JSON as plain values."""
    return {pair["key"]: _value(pair["value"]) for pair in attributes}


def _value(value: dict[str, Any]) -> object:
    if not value:
        return ""
    ((kind, inner),) = value.items()
    if kind == "intValue":
        return int(inner)
    if kind == "arrayValue":
        return [_value(item) for item in inner.get("values", [])]
    return inner


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json", "grpc"])
def test_a_replayed_log_arrives_whole(collector: Collector, log: Path, protocol: str) -> None:
    """Logs, spans and metrics are those that the command prints, with types, ids and times."""
    endpoint = collector.grpc if protocol == "grpc" else collector.http
    done = command(
        "normalize", str(log), "--to", "otlp", "--endpoint", endpoint, "--year", "2026",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    printed = signals(log)
    wait_for("the metrics", lambda: collector.metrics())
    wait_for("the spans", lambda: len(collector.spans()) >= len(printed["span"]))
    logs = [r for r in collector.records() if r.get("eventName") != "vllm.incident"]
    assert len(logs) == len(printed["log"])
    for record, wanted in zip(logs, printed["log"], strict=True):
        assert record["body"]["stringValue"] == wanted["body"]
        assert record.get("eventName", None) == wanted.get("event_name")
        assert record.get("severityNumber") == wanted.get("severity_number")
        assert record.get("severityText") == wanted.get("severity_text")
        assert record.get("traceId", "") == wanted.get("trace_id", "")
        assert record.get("spanId", "") == wanted.get("span_id", "")
        assert values(record["attributes"]) == wanted["attributes"]
        kinds = {pair["key"]: next(iter(pair["value"]), "") for pair in record["attributes"]}
        assert kinds["vllm.log.time.resolution"] == "doubleValue"
        assert kinds.get("process.pid", "intValue") == "intValue"
    incidents = [r for r in collector.records() if r.get("eventName") == "vllm.incident"]
    assert [values(i["attributes"])["vllm.incident.state"] for i in incidents][-1] == "closed"
    arrived = {span["spanId"]: span for span in collector.spans()}
    assert len(arrived) == len(printed["span"])
    for wanted in printed["span"]:
        span = arrived[wanted["span_id"]]
        assert span["name"] == wanted["name"]
        assert span["traceId"] == wanted["trace_id"]
        assert span.get("parentSpanId", "") == wanted.get("parent_span_id", "")
        assert span.get("status", {}).get("code", 0) == (2 if wanted["status"] == "error" else 0)
        assert values(span["attributes"]) == wanted["attributes"]
    points = {metric["name"] for metric in collector.metrics()}
    assert points == {metric["name"] for metric in printed["metric"]}
    for metric in collector.metrics():
        if "sum" in metric:
            assert metric["sum"]["aggregationTemporality"] == 2
            assert metric["sum"]["isMonotonic"] is True
            assert all(
                int(p["startTimeUnixNano"]) <= int(p["timeUnixNano"])
                for p in metric["sum"]["dataPoints"]
            )


def test_a_log_that_is_replayed_twice_has_the_same_ids(collector: Collector, log: Path) -> None:
    """Whoever receives both can tell that they are one."""
    for _ in range(2):
        done = command("normalize", str(log), "--to", "otlp", "--endpoint", collector.http)
        assert done.returncode == 0, done.stderr
    spans = wait_for("both replays", lambda: collector.spans())
    ids = [span["spanId"] for span in spans]
    assert sorted(ids) == sorted([*set(ids), *set(ids)])
    uids = [str(values(record["attributes"])["log.record.uid"]) for record in collector.records()]
    assert sorted(uids) == sorted([*set(uids), *set(uids)])


def test_an_old_log_can_be_moved_to_the_present(collector: Collector, log: Path) -> None:
    """The last record is now; all else keeps its distance and its ids."""
    arguments = ("normalize", str(log), "--year", "2020", "--to", "otlp")
    done = command(*arguments, "--endpoint", collector.http, "--rebase", "now")
    assert done.returncode == 0, done.stderr
    spans = wait_for("the spans", lambda: collector.spans())
    now = max(int(record["observedTimeUnixNano"]) for record in collector.records())
    times = [int(record["timeUnixNano"]) for record in collector.records()]
    assert 0 <= now - max(times) < 60 * NS
    (root,) = [span for span in spans if span["name"] == "vllm.startup"]
    assert 42 * NS <= int(root["endTimeUnixNano"]) - int(root["startTimeUnixNano"]) < 43 * NS
    wanted = {span["span_id"] for span in signals(log)["span"]}
    assert {span["spanId"] for span in spans} == wanted


def test_the_endpoint_can_come_from_the_environment(collector: Collector, log: Path) -> None:
    """The standard variables name it, for all signals."""
    done = command(
        "normalize", str(log), "--to", "otlp", OTEL_EXPORTER_OTLP_ENDPOINT=collector.http
    )
    assert done.returncode == 0, done.stderr
    wait_for("the spans", lambda: collector.spans())
    assert len(collector.records()) > 100


def test_an_incident_of_a_followed_file_is_told_while_it_lasts(
    collector: Collector, tmp_path: Path
) -> None:
    """A failure is known while it lasts: it opens although nothing more is printed."""
    path = tmp_path / "live.log"
    path.write_text("(EngineCore pid=2) INFO 12-01 10:00:00 [x.py:1] Nothing to see\n")
    arguments = ["normalize", str(path), "--follow", "--to", "otlp", "--endpoint", collector.http]
    process = subprocess.Popen([sys.executable, "-m", "vllm_logpipe", *arguments])
    try:
        wait_for("the first record", lambda: collector.records())
        with path.open("a") as file:
            file.write(
                "(EngineCore pid=2) ERROR 12-01 10:00:01 [x.py:1] CUDA error: out of memory\n"
            )

        def incident() -> list[object]:
            return [r for r in collector.records() if r.get("eventName") == "vllm.incident"]

        wait_for("the incident", incident)
        (record,) = [r for r in collector.records() if r.get("eventName") == "vllm.incident"]
        given = values(record["attributes"])
        assert given["vllm.incident.state"] == "open"
        assert given["error.type"] == "cuda.out_of_memory"
    finally:
        process.terminate()
        assert process.wait(20) == 143
