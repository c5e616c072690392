"""Delivery over OTLP: retries, refusals, settings."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.sinks.otlp import ExportError, LogExporter
from vllm_logpipe.sinks.otlp_settings import OtlpSettings

Answer = tuple[int, dict[str, str], bytes]
LINE = b"INFO 09-15 12:00:01 [kv_cache_utils.py:1] GPU KV cache size: 48,704 tokens\n"


def records(count: int = 1) -> list[LogRecord]:
    """Records to deliver."""
    normalizer = Normalizer("x", year=2026)
    return [*normalizer.feed(LINE * count), *normalizer.flush()]


class Receiver:
    """An HTTP server that gives prepared answers and keeps what it was sent."""

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.url = ""


@contextmanager
def receiving(*answers: Answer) -> Iterator[Receiver]:
    """A receiver with these answers, the last one for ever."""
    receiver = Receiver([*answers])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.append((self.path, headers, body))
            few = len(receiver.answers) == 1
            status, given, content = receiver.answers[0] if few else receiver.answers.pop(0)
            self.send_response(status)
            for name, value in {**given, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def exporter(
    endpoint: str, environment: dict[str, str] | None = None, waits: list[float] | None = None
) -> LogExporter:
    """An exporter that does not wait."""
    sleep: Callable[[float], None] = (lambda _seconds: None) if waits is None else waits.append
    return LogExporter(OtlpSettings.of(endpoint, environment or {}), sleep=sleep)


OK: Answer = (200, {}, b"")


def test_a_batch_is_one_compressed_request() -> None:
    """JSON in gzip, at the path of logs."""
    with receiving(OK) as receiver:
        exporter(receiver.url).export(records(3))
    ((path, headers, body),) = receiver.requests
    assert path == "/v1/logs"
    assert headers["content-type"] == "application/json"
    (resource,) = json.loads(gzip.decompress(body))["resourceLogs"]
    found = resource["scopeLogs"][0]["logRecords"]
    assert [record["eventName"] for record in found] == ["vllm.kv_cache.capacity"] * 3


def test_protocol_buffers_and_no_compression_are_there_for_the_asking() -> None:
    """The standard variables say how."""
    environment = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a%20b, authorization=Basic%20eDp5",
    }
    with receiving(OK) as receiver:
        exporter(receiver.url, environment).export(records())
    ((_, headers, body),) = receiver.requests
    assert headers["content-type"] == "application/x-protobuf"
    assert "content-encoding" not in headers
    assert (headers["x-tenant"], headers["authorization"]) == ("a b", "Basic eDp5")
    request = ExportLogsServiceRequest.FromString(body)
    found = request.resource_logs[0].scope_logs[0].log_records
    assert [record.event_name for record in found] == ["vllm.kv_cache.capacity"]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_receiver_that_refuses_for_now_is_asked_again(status: int) -> None:
    """Nothing is lost, nothing is sent twice once it was taken."""
    waits: list[float] = []
    with receiving((status, {"retry-after": "7"}, b""), (status, {}, b""), OK) as receiver:
        sink = exporter(receiver.url, waits=waits)
        sink.export(records())
    assert len(receiver.requests) == 3
    assert waits[0] == 7
    assert 0 < waits[1] <= 30
    assert sink.accepted == 1


def test_a_receiver_that_stays_away_is_given_up_with_a_reason() -> None:
    """After several tries, in one line."""
    with receiving(OK) as receiver:
        url = receiver.url
    with pytest.raises(ExportError, match=r"Connection refused \(5 tries\)"):
        exporter(url).export(records())


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500])
def test_a_receiver_that_refuses_for_good_is_not_asked_again(status: int) -> None:
    """A batch that it will never take fails at once."""
    with receiving((status, {}, b"no")) as receiver, pytest.raises(ExportError, match=str(status)):
        exporter(receiver.url).export(records())
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("kind", ["http/protobuf", "http/json"])
def test_records_that_are_refused_alone_are_counted(kind: str) -> None:
    """The receiver took the batch but not all of it, and says why."""
    response = ExportLogsServiceResponse()
    response.partial_success.rejected_log_records = 2
    response.partial_success.error_message = "too old"
    body = response.SerializeToString()
    if kind == "http/json":
        body = b'{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old"}}'
    with receiving((200, {}, body)) as receiver:
        sink = exporter(receiver.url, {"OTEL_EXPORTER_OTLP_PROTOCOL": kind})
        sink.export(records(5))
    assert (sink.accepted, sink.refused, sink.refusal) == (3, 2, "too old")


@pytest.mark.parametrize("body", [b"\xff\xff", b"<html>", b"[]", b'{"partialSuccess":7}'])
@pytest.mark.parametrize("kind", ["http/protobuf", "http/json"])
def test_an_answer_that_cannot_be_read_is_still_an_answer(kind: str, body: bytes) -> None:
    """The status says that the batch was taken."""
    with receiving((200, {}, body)) as receiver:
        sink = exporter(receiver.url, {"OTEL_EXPORTER_OTLP_PROTOCOL": kind})
        sink.export(records())
    assert sink.accepted == 1


@pytest.mark.parametrize(
    ("endpoint", "environment", "text"),
    [
        ("collector:4318", {}, "--endpoint: 'collector:4318' is no URL"),
        ("ftp://x", {}, "--endpoint: 'ftp://x' is no URL"),
        ("http://x:99999", {}, "has a port that is none"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "x"}, "OTEL_EXPORTER_OTLP_ENDPOINT: 'x' is no URL"),
        (None, {"OTEL_EXPORTER_OTLP_PROTOCOL": "udp"}, "PROTOCOL: 'udp' is none of"),
        (None, {"OTEL_EXPORTER_OTLP_COMPRESSION": "br"}, "COMPRESSION: 'br' is none of"),
        (None, {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "TIMEOUT: 'soon' is no number"),
        (None, {"OTEL_EXPORTER_OTLP_HEADERS": "key"}, "HEADERS: 'key' is not of the form"),
    ],
)
def test_a_wrong_setting_is_named(
    endpoint: str | None, environment: dict[str, str], text: str
) -> None:
    """In one line that says which, and what is wrong with it."""
    with pytest.raises(ValueError, match=text.replace("(", r"\(")):
        OtlpSettings.of(endpoint, environment)


def test_settings_of_logs_win_over_those_of_all_signals() -> None:
    """An endpoint of logs alone is taken as it is; a common one gets the path."""
    both = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1/base/",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://b:2/custom",
    }
    assert OtlpSettings.of(None, both).logs_url == "http://b:2/custom"
    del both["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"]
    assert OtlpSettings.of(None, both).logs_url == "http://a:1/base/v1/logs"
    assert OtlpSettings.of("http://c:3", both).logs_url == "http://c:3/v1/logs"
    assert OtlpSettings.of(None, {}).logs_url == "http://127.0.0.1:4318/v1/logs"


def test_headers_do_not_leak_into_messages() -> None:
    """A wrong header is named without what may be its secret."""
    with pytest.raises(ValueError, match="not of the form") as caught:
        OtlpSettings.of(None, {"OTEL_EXPORTER_OTLP_HEADERS": "=secret"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["x.log", "--to", "otlp", "--endpoint", "nonsense"], "--endpoint: 'nonsense' is no URL"),
        (["x.log", "--endpoint", "http://a"], "--endpoint: only with --to otlp"),
        (["--rebase", "now"], "--rebase: only for files"),
        (["x.log", "--rebase", "now", "--follow"], "--rebase: only for files"),
        (["x.log", "--to", "text", "--signals"], "--signals: only with --to ndjson or otlp"),
        (["x.log", "--server-group", "a"], "only with --signals or --to otlp"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], text: str) -> None:
    """One line on standard error, status 2."""
    done = subprocess.run(
        [sys.executable, "-m", "vllm_logpipe", "normalize", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
