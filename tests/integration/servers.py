"""Real servers on free loopback ports: found on PATH or in the cache, else run in a container."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".ci" / "tools"
PATIENCE_S = 60.0
IMAGES = {
    "otelcol": ("otel/opentelemetry-collector-contrib:0.161.0", "/etc/otelcol-contrib/config.yaml"),
    "jaeger": ("jaegertracing/jaeger:2.13.0", "/etc/jaeger/config.yaml"),
}
"""Where Docker answers: image, and the place of its configuration."""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def executable(name: str) -> str | None:
    """The server's program, on PATH or in the cache that `make tools` fills."""
    found = shutil.which(name)
    if found is not None:
        return found
    paths = subprocess.run([TOOLS, "path"], capture_output=True, text=True, check=True).stdout
    return next(
        (p for p in paths.splitlines() if p.endswith(f"/{name}") and Path(p).exists()), None
    )


def get(url: str) -> Any:  # noqa: ANN401
    """The JSON that a URL answers."""
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.loads(response.read() or b"null")


def wait_for(what: str, ready: Any, log: Path | None = None) -> Any:  # noqa: ANN401
    """The first true result of `ready`; fails with the server's last lines after a minute."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
            if result := ready():
                return result
        time.sleep(0.1)
    tail = "" if log is None else "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    pytest.fail(f"{what}: not within {PATIENCE_S:.0f} s\n{tail}")


@contextlib.contextmanager
def running(name: str, config: Path, ports: list[int], health: str) -> Iterator[None]:
    """The server with this configuration, until the block ends; skips where there is none."""
    program = executable(name)
    if program is None:
        with _container(name, config, ports):
            wait_for(name, lambda: _answers(health))
            yield
        return
    log = config.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "--config", str(config)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_for(name, lambda: process.poll() is None and _answers(health), log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=5) as response:
        return bool(response.status == 200)


@contextlib.contextmanager
def _container(name: str, config: Path, ports: list[int]) -> Iterator[None]:
    reason = f"no {name}: not on PATH, not built by `make tools`, and Docker does not answer"
    try:
        import docker
        from testcontainers.core.container import DockerContainer

        docker.from_env().ping()
    except Exception:  # noqa: BLE001
        pytest.skip(reason)
    image, place = IMAGES[name]
    container = DockerContainer(image).with_volume_mapping(str(config), place, "ro")
    container.with_volume_mapping(str(config.parent), str(config.parent), "rw")
    for port in ports:
        container.with_bind_ports(port, port)
    with container:
        yield


class Collector:
    """A Collector that writes what it receives to files, and passes traces on to Jaeger."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.http = f"http://127.0.0.1:{free_port()}"
        self.grpc = f"http://127.0.0.1:{free_port()}"
        self.health = f"http://127.0.0.1:{free_port()}"

    @contextlib.contextmanager
    def run(self, traces_to: str | None = None) -> Iterator[Collector]:
        """Run it; `traces_to` is an OTLP endpoint of HTTP."""
        exporters = {
            f"file/{kind}": {
                "path": str(self.directory / f"{kind}.json"),
                "flush_interval": "100ms",
            }
            for kind in ("logs", "traces", "metrics")
        }
        pipelines = {
            kind: {"receivers": ["otlp"], "exporters": [f"file/{kind}"]}
            for kind in ("logs", "traces", "metrics")
        }
        further: dict[str, object] = {}
        if traces_to is not None:
            further = {"otlphttp/traces": {"endpoint": traces_to}}
            pipelines["traces"]["exporters"].append("otlphttp/traces")
        port = {url: url.removeprefix("http://") for url in (self.http, self.grpc, self.health)}
        config = {
            "receivers": {
                "otlp": {
                    "protocols": {
                        "http": {"endpoint": port[self.http]},
                        "grpc": {"endpoint": port[self.grpc]},
                    }
                }
            },
            "exporters": {**exporters, **further},
            "extensions": {"health_check": {"endpoint": port[self.health]}},
            "service": {
                "extensions": ["health_check"],
                "pipelines": pipelines,
                "telemetry": {"metrics": {"level": "none"}},
            },
        }
        path = self.directory / "otelcol.yaml"
        path.write_text(json.dumps(config))
        ports = [int(url.rpartition(":")[2]) for url in port]
        with running("otelcol", path, ports, self.health):
            yield self

    def received(self, kind: str) -> list[dict[str, Any]]:
        """The export requests that were written so far: `logs`, `traces` or `metrics`."""
        path = self.directory / f"{kind}.json"
        if not path.exists():
            return []
        lines = path.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1] if line]

    def records(self) -> list[dict[str, Any]]:
        """The log records that were written so far."""
        return [
            record
            for request in self.received("logs")
            for resource in request["resourceLogs"]
            for scope in resource["scopeLogs"]
            for record in scope["logRecords"]
        ]

    def spans(self) -> list[dict[str, Any]]:
        """The spans that were written so far."""
        return [
            span
            for request in self.received("traces")
            for resource in request["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics that were written so far."""
        return [
            metric
            for request in self.received("metrics")
            for resource in request["resourceMetrics"]
            for scope in resource["scopeMetrics"]
            for metric in scope["metrics"]
        ]


class Jaeger:
    """A Jaeger that keeps traces in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.otlp = f"http://127.0.0.1:{free_port()}"
        self.query = f"http://127.0.0.1:{free_port()}"
        self._query_grpc = free_port()
        self._otlp_grpc = free_port()

    @contextlib.contextmanager
    def run(self) -> Iterator[Jaeger]:
        """Run it."""
        config = {
            "receivers": {
                "otlp": {
                    "protocols": {
                        "http": {"endpoint": self.otlp.removeprefix("http://")},
                        "grpc": {"endpoint": f"127.0.0.1:{self._otlp_grpc}"},
                    }
                }
            },
            "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
            "extensions": {
                "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": 100_000}}}},
                "jaeger_query": {
                    "storage": {"traces": "memory"},
                    "http": {"endpoint": self.query.removeprefix("http://")},
                    "grpc": {"endpoint": f"127.0.0.1:{self._query_grpc}"},
                },
            },
            "service": {
                "extensions": ["jaeger_storage", "jaeger_query"],
                "pipelines": {
                    "traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}
                },
                "telemetry": {"metrics": {"level": "none"}},
            },
        }
        path = self.directory / "jaeger.yaml"
        path.write_text(json.dumps(config))
        ports = [int(url.rpartition(":")[2]) for url in (self.otlp, self.query)]
        with running("jaeger", path, ports, f"{self.query}/api/services"):
            yield self

    def trace(self, trace_id: str) -> list[dict[str, Any]]:
        """The spans of a trace; empty while there is none."""
        try:
            answer = get(f"{self.query}/api/traces/{trace_id}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
        spans: list[dict[str, Any]] = answer["data"][0]["spans"] if answer["data"] else []
        return spans

    def search(self, **given: str | int) -> list[dict[str, Any]]:
        """The traces that a search finds."""
        query = urllib.parse.urlencode({"service": "vllm", "limit": 20_000, **given})
        traces: list[dict[str, Any]] = get(f"{self.query}/api/traces?{query}")["data"]
        return traces
