"""uvicorn's access lines: two fifths of a busy log, so they are read by cutting, not matching."""

from __future__ import annotations

from collections.abc import Callable

from vllm_logpipe.catalogue.values import Member, member, quote
from vllm_logpipe.read.header import load_settings

_MAX_CACHED = 4096
_MAX_CACHED_LENGTH = 256
_MAX_PORT = len("65535")
_EVENT = f'{member("vllm.phase")}"serving"'


class AccessReader:
    """Reads `192.0.2.1:51234 - "GET /health HTTP/1.1" 200 OK`.

    `scrub` takes secrets out of the path, `query` gives what stands for the query string, and
    `address` what stands for the client's address.
    """

    def __init__(
        self,
        scrub: Callable[[str], str],
        query: Callable[[str], str],
        address: Callable[[str], str],
    ) -> None:
        self._scrub = scrub
        self._query = query
        self._address = address
        settings = load_settings()
        self._match = settings.access.fullmatch
        self._is_client = settings.access_client.fullmatch
        self._clients: set[str] = set()
        self._cache: dict[str, tuple[Member, str] | None] = {}

    def read(self, text: str) -> tuple[Member, str] | None:
        """Attributes and redacted text of an access line; None for any other text."""
        client, separator, request = text.partition(" - ")
        address, colon, port = client.rpartition(":")
        if not separator or not colon:
            return None
        if address not in self._clients and not self._is_new_client(address):
            return None
        if not (port.isdecimal() and port.isascii() and len(port) <= _MAX_PORT):
            return None
        try:
            cached = self._cache[request]
        except KeyError:
            cached = self._read_request(request)
        if cached is None:
            return None
        members, clean = cached
        address = self._address(address)
        return (
            f'{_EVENT},"client.address":"{address}","client.port":{int(port)}{members}',
            f"{address}:{port} - {clean}",
        )

    def _is_new_client(self, address: str) -> bool:
        if not self._is_client(address):
            return False
        if len(self._clients) >= _MAX_CACHED:
            self._clients.clear()
        self._clients.add(address)
        return True

    def _read_request(self, request: str) -> tuple[Member, str] | None:
        found = self._match(request)
        read: tuple[Member, str] | None = None
        if found is not None:
            path = self._scrub(found["path"])
            members = (
                f"{member('http.request.method')}{quote(found['method'])}"
                f"{member('url.path')}{quote(path)}"
            )
            clean = f'"{found["method"]} {path}'
            if found["query"] is not None:
                query = self._query(found["query"])
                members += f"{member('url.query')}{quote(query)}"
                clean += f"?{query}"
            members += (
                f"{member('http.response.status_code')}{int(found['status'])}"
                f"{member('network.protocol.version')}{quote(found['version'])}"
            )
            clean += request[found.start("version") - len(" HTTP/") :]
            read = members, clean
        if len(request) <= _MAX_CACHED_LENGTH:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[request] = read
        return read
