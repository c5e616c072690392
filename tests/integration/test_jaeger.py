"""Traces of replayed logs, by way of a real Collector, in a real Jaeger."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.servers import Collector, Jaeger, wait_for

from vllm_logpipe import Normalizer
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.model import Span
from vllm_logpipe.semconv import PHASES
from vllm_logpipe.sources.file import FileSource

DATA = Path(__file__).parents[1] / "data" / "logs"
LOGS = sorted(path.name.removesuffix(".log.gz") for path in DATA.glob("*.log.gz"))
LARGE = "12_soak"
"""Its thousands of requests are looked at in one search only."""


def tags(span: dict[str, Any]) -> dict[str, Any]:
    """The tags of one of Jaeger's spans."""
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def derived(path: str) -> list[Span]:
    """The spans that the command gives of a file: ids come from the file's identity."""
    source = FileSource(path)
    normalizer = Normalizer(source.identity, reference=source.modified)
    deriver = Deriver()
    records = [record for block in source.blocks() for record in normalizer.feed(block)]
    source.close()
    records += normalizer.flush()
    return [s for s in deriver.take(records) + deriver.finish() if isinstance(s, Span)]


@pytest.fixture(scope="module")
def replayed(
    jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[Span]]]:
    """All logs, replayed by the command through a Collector into Jaeger: their spans."""
    directory = tmp_path_factory.mktemp("logs")
    with Collector(tmp_path_factory.mktemp("collector")).run(jaeger.otlp) as collector:
        paths = []
        for name in LOGS:
            path = directory / f"{name}.log"
            path.write_bytes(gzip.decompress((DATA / f"{name}.log.gz").read_bytes()))
            os.utime(path, (1_796_083_200, 1_796_083_200))
            paths.append(str(path))
        done = subprocess.run(
            [sys.executable, "-m", "vllm_logpipe", "normalize", *paths, "--to", "otlp"],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.http},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        spans = {}
        for name, file in zip(LOGS, paths, strict=True):
            spans[name] = derived(file)
            last = spans[name][-1].trace_id
            wait_for(f"the last trace of {name}", lambda last=last: jaeger.trace(last))
        yield spans


@pytest.mark.parametrize("name", LOGS)
def test_jaeger_returns_the_startup_trace_with_its_phases_in_order(
    jaeger: Jaeger, replayed: dict[str, list[Span]], name: str
) -> None:
    """One root, a child for each phase of each process; a failed start is an error."""
    wanted = [span for span in replayed[name] if span.name.startswith("vllm.startup")]
    root = wanted[0]
    found = {span["spanID"]: span for span in jaeger.trace(root.trace_id)}
    assert set(found) == {span.span_id for span in wanted}
    assert found[root.span_id]["references"] == []
    failed = "fail" in name
    assert tags(found[root.span_id])["vllm.startup.outcome"] == ("failed" if failed else "ready")
    assert tags(found[root.span_id]).get("error", False) is failed
    children = [span for key, span in found.items() if key != root.span_id]
    assert all(span["references"][0]["spanID"] == root.span_id for span in children)
    by_process: dict[object, list[tuple[int, int]]] = {}
    for span in children:
        given = tags(span)
        process = by_process.setdefault(given.get("process.pid"), [])
        process.append((span["startTime"], PHASES.index(given["vllm.phase"])))
    if not name.startswith("old"):
        # Old releases name no process: what several print is one list.
        for process in by_process.values():
            order = [place for _, place in sorted(process)]
            assert order == sorted(order)


@pytest.mark.parametrize("name", [name for name in LOGS if name != LARGE])
def test_jaeger_returns_every_request_span(
    jaeger: Jaeger, replayed: dict[str, list[Span]], name: str
) -> None:
    """With parent, status, outcome and ids as derived."""
    wanted = [span for span in replayed[name] if span.kind == "server"]
    traces = {span.trace_id: jaeger.trace(span.trace_id) for span in wanted}
    for span in wanted:
        (found,) = [s for s in traces[span.trace_id] if s["spanID"] == span.span_id]
        given = tags(found)
        assert found["operationName"] == span.name
        assert given["span.kind"] == "server"
        assert found["startTime"] == span.start_unix_nano // 1000
        assert given.get("error", False) is (span.status == "error")
        for key in ("vllm.request.id", "vllm.request.outcome", "vllm.request.end_evidence"):
            assert given[key] == span.attributes[key]
        assert given.get("gen_ai.request.max_tokens") == span.attributes.get(
            "gen_ai.request.max_tokens"
        )
        assert [log["fields"][0]["value"] for log in found["logs"]] == [
            event.name for event in span.events
        ]


def test_jaeger_finds_failed_requests_by_their_class(
    jaeger: Jaeger, replayed: dict[str, list[Span]]
) -> None:
    """A search by tag gives the requests that failed with their engine, and no others."""
    wanted = {
        span.trace_id
        for spans in replayed.values()
        for span in spans
        if span.attributes.get("error.type") == "engine.dead" and span.kind == "server"
    }
    start, end = 1_796_000_000_000_000, 1_796_100_000_000_000
    found = jaeger.search(tags='{"error.type":"engine.dead"}', start=start, end=end)
    assert {trace["traceID"] for trace in found} == wanted
    assert len(wanted) == 12


def test_jaeger_holds_the_requests_of_a_long_run(
    jaeger: Jaeger, replayed: dict[str, list[Span]]
) -> None:
    """Each of its thousands of requests is one span."""
    wanted = {span.span_id for span in replayed[LARGE] if span.kind == "server"}
    start, end = 1_796_000_000_000_000, 1_796_100_000_000_000
    found: set[str] = set()
    for outcome in ("completed", "unknown", "aborted", "failed"):
        tag = f'{{"vllm.request.outcome":"{outcome}"}}'
        for trace in jaeger.search(start=start, end=end, tags=tag):
            found |= {span["spanID"] for span in trace["spans"]}
    assert wanted <= found
    assert len(wanted) > 2000
