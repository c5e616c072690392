"""Signals as NDJSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from vllm_logpipe import LogRecord
from vllm_logpipe.model import Histogram, MetricPoint, Signal, Span, SpanEvent, SpanLink
from vllm_logpipe.sinks.signals import encode_signals

RESOURCE = '{"service.name":"vllm"}'
RECORD = LogRecord(1_000_000_000, 2_000_000_000, "INFO", 9, None, 'a "b"', "{}", RESOURCE)


def decoded(*signals: Signal) -> list[dict[str, Any]]:
    """What the lines hold."""
    return [json.loads(line) for line in encode_signals(signals).splitlines()]


def test_nothing_gives_nothing() -> None:
    """No signals, no bytes."""
    assert encode_signals([]) == b""


def test_logs_and_incidents_have_their_kind() -> None:
    """An incident is a record with a kind of its own; the order is that of the stream."""
    incident = LogRecord(1, 1, "ERROR", 17, "vllm.incident", "x", '{"error.type":"y"}', RESOURCE)
    found = decoded(RECORD, incident, RECORD)
    assert [signal["kind"] for signal in found] == ["log", "incident", "log"]
    assert found[0]["body"] == 'a "b"'
    assert found[0]["resource"] == {"service.name": "vllm"}
    assert found[1]["attributes"] == {"error.type": "y"}


def test_a_span_has_all_its_parts() -> None:
    """Times are RFC 3339, absent parts are absent."""
    span = Span(
        "chat tiny", "a" * 32, "b" * 16, None, "server", 1_000_000_000, 1_500_000_000,
        {"x": 1}, RESOURCE, "error", "why",
        (SpanEvent("vllm.request.preempted", 1_250_000_000, {"n": 2}),),
        (SpanLink("c" * 32, "d" * 16),),
    )  # fmt: skip
    (found,) = decoded(span)
    assert found == {
        "kind": "span",
        "name": "chat tiny",
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
        "span_kind": "server",
        "start_timestamp": "1970-01-01T00:00:01Z",
        "end_timestamp": "1970-01-01T00:00:01.500000000Z",
        "status": "error",
        "status_message": "why",
        "attributes": {"x": 1},
        "events": [
            {
                "name": "vllm.request.preempted",
                "timestamp": "1970-01-01T00:00:01.250000000Z",
                "attributes": {"n": 2},
            }
        ],
        "links": [{"trace_id": "c" * 32, "span_id": "d" * 16, "attributes": {}}],
        "resource": {"service.name": "vllm"},
    }


def test_a_metric_has_its_unit_and_type() -> None:
    """Counters and histograms tell since when they count."""
    gauge = MetricPoint("vllm.engine.kv_cache.utilization", 10**9, 10**9, {}, 0.5, RESOURCE)
    counter = MetricPoint("vllm.requests", 10**9, 10**9, {"a": "b"}, 3, RESOURCE)
    histogram = MetricPoint(
        "vllm.request.tokens", 10**9, 0, {}, Histogram(3, 9.0, (1.0, 4.0), (1, 1, 1)), RESOURCE
    )
    found = decoded(gauge, counter, histogram)
    assert [(m["kind"], m["type"], m["unit"]) for m in found] == [
        ("metric", "gauge", "1"),
        ("metric", "counter", "{request}"),
        ("metric", "histogram", "{token}"),
    ]
    assert "start_timestamp" not in found[0]
    assert found[0]["value"] == 0.5
    assert (found[1]["value"], found[1]["start_timestamp"]) == (3, "1970-01-01T00:00:01Z")
    assert (found[2]["count"], found[2]["sum"]) == (3, 9.0)
    assert (found[2]["bounds"], found[2]["bucket_counts"]) == ([1.0, 4.0], [1, 1, 1])


def test_the_command_puts_logs_in_stream_order_and_incidents_once(tmp_path: Path) -> None:
    """Of an incident that goes on only the last state is a line of the output."""
    path = tmp_path / "server.log"
    head = "(EngineCore pid=2) ERROR 12-01 10:00:{:02d} [x.py:1] "
    path.write_text("".join(f"{head.format(s)}CUDA error: out of memory\n" for s in range(40)))
    done = subprocess.run(
        [sys.executable, "-m", "vllm_logpipe", "normalize", str(path), "--signals"],
        capture_output=True,
        text=True,
        check=True,
    )
    signals = [json.loads(line) for line in done.stdout.splitlines()]
    times = [s["timestamp"] for s in signals if s["kind"] == "log"]
    assert times == sorted(times)
    (incident,) = [s for s in signals if s["kind"] == "incident"]
    assert incident["attributes"]["vllm.incident.record_count"] == 40


def test_files_of_one_server_group_make_one_incident(tmp_path: Path) -> None:
    """What one node prints is the cause of what another one reports."""
    node_a, node_b = tmp_path / "a.log", tmp_path / "b.log"
    node_a.write_text(
        "(EngineCore pid=2) ERROR 12-01 10:00:05 [x.py:1] CUDA error: out of memory\n"
    )
    node_b.write_text(
        "(APIServer pid=1) WARNING 12-01 10:00:06 [core_client.py:1] [shutdown] MPClient: engine"
        " core exited unexpectedly; starting cleanup\n"
    )
    arguments = [str(node_b), str(node_a), "--signals", "--server-group", "llm-0"]
    done = subprocess.run(
        [sys.executable, "-m", "vllm_logpipe", "normalize", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    incidents = [s for s in map(json.loads, done.stdout.splitlines()) if s["kind"] == "incident"]
    assert [i["attributes"]["error.type"] for i in incidents] == ["cuda.out_of_memory"]
    assert incidents[0]["attributes"]["vllm.incident.record_count"] == 2
