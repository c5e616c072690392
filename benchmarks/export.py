"""Ways to encode logs, against a real Collector, its decoding included.

Run ``python -m benchmarks.export`` after ``make tools``. Each way sends the same records in the
same batches to a Collector that throws them away; figures are CPU time a record, and ratios.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
from opentelemetry._logs import LogRecord as ApiRecord
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from benchmarks.corpus import write_corpus
from benchmarks.timing import median, say
from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.sinks.otlp_json import encode_otlp_json
from vllm_logpipe.sinks.otlp_proto import logs_request

_BATCH = 2000
_TICKS = os.sysconf("SC_CLK_TCK")
_TOOLS = Path(__file__).parents[1] / ".ci" / "tools"
_SCOPE = InstrumentationScope("vllm_logpipe")

Encode = Callable[[Sequence[LogRecord]], bytes]


def _sdk(records: Sequence[LogRecord]) -> bytes:
    """The SDK's own records through the SDK's own encoder."""
    resources: dict[str, Resource] = {}
    converted = []
    for record in records:
        resource = resources.get(record.resource_json)
        if resource is None:
            resource = resources[record.resource_json] = Resource(json.loads(record.resource_json))
        number = record.severity_number
        converted.append(
            ReadableLogRecord(
                ApiRecord(
                    timestamp=record.time_unix_nano,
                    observed_timestamp=record.observed_time_unix_nano,
                    severity_text=record.severity_text,
                    severity_number=None if number is None else SeverityNumber(number),
                    body=record.body,
                    attributes=record.attributes,
                    event_name=record.event_name,
                ),
                resource=resource,
                instrumentation_scope=_SCOPE,
            )
        )
    return bytes(encode_logs(converted).SerializeToString())


WAYS: dict[str, tuple[str, Encode]] = {
    "SDK's encoder, protobuf": ("application/x-protobuf", _sdk),
    "protocol buffers": (
        "application/x-protobuf",
        lambda records: bytes(logs_request(records).SerializeToString()),
    ),
    "msgspec, JSON": ("application/json", encode_otlp_json),
}


def _port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _collector() -> Iterator[tuple[str, int]]:
    """A Collector that drops what it decodes: its URL for logs and its pid."""
    listed = subprocess.run([_TOOLS, "path"], capture_output=True, text=True, check=True).stdout
    program = listed.splitlines()[0]
    if not Path(program).exists():
        sys.exit("no Collector: run make tools")
    port = _port()
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"nop": {}},
        "service": {
            "pipelines": {"logs": {"receivers": ["otlp"], "exporters": ["nop"]}},
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.yaml"
        path.write_text(json.dumps(config))
        with (Path(directory) / "log").open("wb") as log:
            process = subprocess.Popen([program, "--config", str(path)], stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}/v1/logs"
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(url, timeout=1).close()
                except urllib.error.HTTPError:
                    break
                except OSError:
                    time.sleep(0.05)
            yield url, process.pid
        finally:
            process.terminate()
            process.wait()


def _cpu(pid: int) -> float:
    """CPU time of a process so far, s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _send(
    way: str, batches: list[list[LogRecord]], url: str, pid: int
) -> tuple[float, float, float]:
    """CPU s of this process, of the Collector, and wall s."""
    kind, encode = WAYS[way]
    session = requests.Session()
    headers = {"content-type": kind, "content-encoding": "gzip"}
    theirs, ours, wall = _cpu(pid), time.process_time(), time.perf_counter()
    for batch in batches:
        body = gzip.compress(encode(batch), 1)
        session.post(url, data=body, headers=headers, timeout=60).raise_for_status()
    return time.process_time() - ours, _cpu(pid) - theirs, time.perf_counter() - wall


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--lines", type=int, default=60_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "corpus.log"
        write_corpus(path, options.lines)
        normalizer = Normalizer("bench", reference=1_796_083_200.0)
        records = [*normalizer.feed(path.read_bytes()), *normalizer.flush()]
    batches = [records[i : i + _BATCH] for i in range(0, len(records), _BATCH)]
    figures: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    with _collector() as (url, pid):
        for _ in range(options.repeat):
            for way in WAYS:
                figures[way].append(_send(way, batches, url, pid))
    best = min(median([sum(run[:2]) for run in runs]) for runs in figures.values())
    say(f"{'':28}{'our CPU':>9}{'Collector':>11}{'both':>8}{'wall':>8}  us a record{'ratio':>8}")
    for way, runs in figures.items():
        ours, theirs, wall = (median([run[i] for run in runs]) for i in range(3))
        both = median([sum(run[:2]) for run in runs])
        scale = 1e6 / len(records)
        say(
            f"{way:28}{ours * scale:9.2f}{theirs * scale:11.2f}{both * scale:8.2f}"
            f"{wall * scale:8.2f}{'':13}{both / best:8.2f}"
        )


if __name__ == "__main__":
    main()
