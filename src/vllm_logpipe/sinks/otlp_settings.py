"""Where OTLP goes and how: options and the standard variables `OTEL_EXPORTER_OTLP_*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

Protocol: TypeAlias = Literal["http/protobuf", "http/json", "grpc"]
_PROTOCOLS: dict[str, Protocol] = {
    "http/protobuf": "http/protobuf",
    "http/json": "http/json",
    "grpc": "grpc",
}
_PREFIX = "OTEL_EXPORTER_OTLP_"
_DEFAULTS = {"grpc": "http://127.0.0.1:4317", "": "http://127.0.0.1:4318"}


class OtlpSettings(Struct, frozen=True):
    """How logs reach their endpoint; spans and metrics take the same variables by themselves."""

    protocol: Protocol
    endpoint: str | None
    """The base that was asked for; None where the variables or the default decide."""
    logs_url: str
    """The URL of HTTP, the target of gRPC."""
    headers: dict[str, str]
    timeout: float
    """s for one request."""
    gzip: bool
    certificate: str | None
    """Path of the certificates to trust; None for the system's."""
    client_certificate: str | None
    client_key: str | None

    @classmethod
    def of(cls, endpoint: str | None, environment: Mapping[str, str]) -> OtlpSettings:
        """The settings of an option and an environment; raises ValueError for what is no such."""
        # Of logs JSON costs half of what protocol buffers do, both ends counted: see
        # benchmarks/export.py.
        named = _setting(environment, "PROTOCOL") or "http/json"
        protocol = _PROTOCOLS.get(named)
        if protocol is None:
            known = ", ".join(_PROTOCOLS)
            raise ValueError(f"{_PREFIX}PROTOCOL: {named!r} is none of {known}")
        if endpoint is not None:
            _check_url("--endpoint", endpoint)
        compression = _setting(environment, "COMPRESSION") or "gzip"
        if compression not in ("gzip", "none", "deflate"):
            raise ValueError(f"{_PREFIX}COMPRESSION: {compression!r} is none of gzip, none")
        return cls(
            protocol=protocol,
            endpoint=endpoint,
            logs_url=_logs_url(protocol, endpoint, environment),
            headers=_headers(_setting(environment, "HEADERS") or ""),
            timeout=_timeout(_setting(environment, "TIMEOUT") or "10"),
            gzip=compression == "gzip",
            certificate=_setting(environment, "CERTIFICATE"),
            client_certificate=_setting(environment, "CLIENT_CERTIFICATE"),
            client_key=_setting(environment, "CLIENT_KEY"),
        )


def _setting(environment: Mapping[str, str], name: str) -> str | None:
    """That of logs alone wins over that of all signals."""
    return environment.get(f"{_PREFIX}LOGS_{name}") or environment.get(f"{_PREFIX}{name}") or None


def _logs_url(protocol: Protocol, endpoint: str | None, environment: Mapping[str, str]) -> str:
    if endpoint is None:
        exact = environment.get(f"{_PREFIX}LOGS_ENDPOINT")
        if exact:
            _check_url(f"{_PREFIX}LOGS_ENDPOINT", exact)
            return exact
        endpoint = environment.get(f"{_PREFIX}ENDPOINT") or _DEFAULTS.get(protocol, _DEFAULTS[""])
        _check_url(f"{_PREFIX}ENDPOINT", endpoint)
    return endpoint if protocol == "grpc" else f"{endpoint.rstrip('/')}/v1/logs"


def _check_url(name: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{name}: {url!r} is no URL that begins with http:// or https://")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(f"{name}: {url!r} has a port that is none") from None


def _headers(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = part.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"{_PREFIX}HEADERS: {name.strip()!r} is not of the form name=value")
        headers[unquote(name.strip()).lower()] = unquote(value.strip())
    return headers


def _timeout(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise ValueError(f"{_PREFIX}TIMEOUT: {text!r} is no number of seconds")
    return seconds
