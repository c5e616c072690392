"""Logs over OTLP, by HTTP or gRPC: batches, retries, and a count of what was refused."""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import grpc
import requests
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub

from vllm_logpipe.model import LogRecord
from vllm_logpipe.sinks.otlp_json import encode_otlp_json
from vllm_logpipe.sinks.otlp_proto import logs_request
from vllm_logpipe.sinks.otlp_settings import OtlpSettings

_RETRYABLE = frozenset({429, 502, 503, 504})
_RETRYABLE_GRPC = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_MAX_TRIES = 5
_MAX_WAIT = 30.0
_LEVEL = 1
"""gzip's cheapest: logs shrink tenfold with it already."""


class ExportError(Exception):
    """What could not be delivered and why, in one line."""


class _Temporary(Exception):  # noqa: N818
    """A try that may be repeated, after a time that the receiver may have told."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class _Transport(Protocol):
    """One way to deliver a batch."""

    def send(self, records: Sequence[LogRecord]) -> tuple[int, str]:
        """Deliver; gives how many records were refused, and why.

        Raises _Temporary, or ExportError where a repeat is of no use.
        """
        ...

    def close(self) -> None: ...


class LogExporter:
    """Delivers batches of records to one endpoint.

    sleep: waits between tries; s.
    """

    def __init__(
        self, settings: OtlpSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._transport: _Transport = (
            _Grpc(settings) if settings.protocol == "grpc" else _Http(settings)
        )
        self._sleep = sleep
        self.accepted = 0
        self.refused = 0
        self.refusal = ""
        """Why the last records were refused."""

    def export(self, records: Sequence[LogRecord]) -> None:
        """Deliver the records, with retries; those that a receiver refuses are counted.

        Raises ExportError where the receiver cannot be reached or refuses the whole batch.
        """
        if not records:
            return
        refused, reason = self._deliver(records)
        self.accepted += len(records) - refused
        if refused:
            self.refused += refused
            self.refusal = reason

    def close(self) -> None:
        """Give up the connection."""
        self._transport.close()

    def _deliver(self, records: Sequence[LogRecord]) -> tuple[int, str]:
        for attempt in range(1, _MAX_TRIES + 1):
            try:
                return self._transport.send(records)
            except _Temporary as error:
                if attempt == _MAX_TRIES:
                    raise ExportError(f"{error} ({attempt} tries)") from error
                backoff = 0.5 * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311
                self._sleep(min(error.wait if error.wait is not None else backoff, _MAX_WAIT))
        raise AssertionError("unreachable")


class _Http:
    """JSON over HTTP, or protocol buffers."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._settings = settings
        self._is_json = settings.protocol == "http/json"
        self._session = requests.Session()
        self._session.headers.update(settings.headers)
        kind = "json" if self._is_json else "x-protobuf"
        self._session.headers["content-type"] = f"application/{kind}"
        if settings.gzip:
            self._session.headers["content-encoding"] = "gzip"
        if settings.certificate is not None:
            self._session.verify = settings.certificate
        if settings.client_certificate is not None:
            self._session.cert = (
                (settings.client_certificate, settings.client_key)
                if settings.client_key
                else settings.client_certificate
            )

    def send(self, records: Sequence[LogRecord]) -> tuple[int, str]:
        body = (
            encode_otlp_json(records)
            if self._is_json
            else logs_request(records).SerializeToString()
        )
        if self._settings.gzip:
            body = gzip.compress(body, _LEVEL)
        url = self._settings.logs_url
        try:
            response = self._session.post(url, data=body, timeout=self._settings.timeout)
        except (requests.ConnectionError, requests.Timeout) as error:
            raise _Temporary(f"{url}: {_cause(error)}") from error
        except (requests.RequestException, OSError) as error:
            raise ExportError(f"{url}: {_cause(error)}") from error
        if response.status_code in _RETRYABLE:
            raise _Temporary(
                f"{url}: status {response.status_code}",
                _seconds(response.headers.get("retry-after")),
            )
        if not response.ok:
            text = " ".join(response.text[:200].split()) if self._is_json else ""
            raise ExportError(f"{url}: status {response.status_code} {text}".rstrip())
        return self._partial(response)

    def _partial(self, response: requests.Response) -> tuple[int, str]:
        try:
            if self._is_json:
                partial = response.json().get("partialSuccess") or {}
                count = int(partial.get("rejectedLogRecords", 0))
                return count, str(partial.get("errorMessage", ""))
            parsed = ExportLogsServiceResponse.FromString(response.content)
        except Exception:  # noqa: BLE001
            # The batch was taken: an answer that cannot be read says no more.
            return 0, ""
        partial_success = parsed.partial_success
        return partial_success.rejected_log_records, partial_success.error_message

    def close(self) -> None:
        self._session.close()


class _Grpc:
    """Protocol buffers over gRPC."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._settings = settings
        scheme, _, target = settings.logs_url.partition("://")
        compression = grpc.Compression.Gzip if settings.gzip else grpc.Compression.NoCompression
        if scheme == "https":
            self._channel = grpc.secure_channel(
                target, _credentials(settings), compression=compression
            )
        else:
            self._channel = grpc.insecure_channel(target, compression=compression)
        self._stub = LogsServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def send(self, records: Sequence[LogRecord]) -> tuple[int, str]:
        try:
            response = self._stub.Export(
                logs_request(records),
                timeout=self._settings.timeout,
                metadata=tuple(self._settings.headers.items()),
            )
        except grpc.RpcError as error:
            if not isinstance(error, grpc.Call):
                raise
            details = " ".join(str(error.details()).split())[:200]
            reason = f"{self._settings.logs_url}: {error.code().name} {details}"
            if error.code() in _RETRYABLE_GRPC:
                raise _Temporary(reason) from error
            raise ExportError(reason) from error
        partial = response.partial_success
        return partial.rejected_log_records, partial.error_message

    def close(self) -> None:
        self._channel.close()


def _credentials(settings: OtlpSettings) -> grpc.ChannelCredentials:
    def read(path: str | None) -> bytes | None:
        if path is None:
            return None
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise ExportError(f"{path}: {error.strerror}") from error

    return grpc.ssl_channel_credentials(
        read(settings.certificate), read(settings.client_key), read(settings.client_certificate)
    )


def _cause(error: BaseException) -> str:
    """The innermost reason, without the addresses of objects."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(text.split())[:200]


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
