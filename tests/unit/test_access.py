"""uvicorn's access lines."""

from __future__ import annotations

import json

import pytest

from vllm_logpipe.read.access import AccessReader

Attributes = dict[str, str | int]


def read(
    text: str, *, hide_query: bool = True, hide_address: bool = False
) -> tuple[Attributes, str] | None:
    """Attributes and text of a line, with secrets replaced by `*`."""
    reader = AccessReader(
        lambda path: path.replace("secret", "*"),
        lambda query: "*" if hide_query else query,
        lambda address: "*" if hide_address else address,
    )
    first = reader.read(text)
    # What was read once is kept: the second reading must say the same.
    assert reader.read(text) == first
    if first is None:
        return None
    attributes: Attributes = json.loads("{" + first[0].strip(",") + "}")
    return attributes, first[1]


@pytest.mark.parametrize(
    ("client", "address", "port"),
    [
        ("192.0.2.1:51234", "192.0.2.1", 51234),
        ("2001:db8::1:80", "2001:db8::1", 80),
        ("::1:0", "::1", 0),
        ("my-host:1", "my-host", 1),
        (":1", "", 1),
    ],
)
def test_an_access_line_gives_client_and_request(client: str, address: str, port: int) -> None:
    """Address, port, method, path, status and protocol are read, of IPv6 clients too."""
    text = f'{client} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    assert read(text) == (
        {
            "vllm.phase": "serving",
            "client.address": address,
            "client.port": port,
            "http.request.method": "POST",
            "url.path": "/v1/chat/completions",
            "http.response.status_code": 200,
            "network.protocol.version": "1.1",
        },
        text,
    )


@pytest.mark.parametrize(
    ("request_line", "path", "status"),
    [
        ('"GET /health HTTP/1.1" 200', "/health", 200),
        ('"GET /health HTTP/2" 503 Service Unavailable', "/health", 503),
        ('"OPTIONS * HTTP/1.0" 404 Not Found', "*", 404),
        ('"GET /a%20b HTTP/1.1" 200 OK', "/a%20b", 200),
        ('"GET  HTTP/1.1" 400 Bad Request', "", 400),
        ('"GET /x" 200 HTTP/1.1" 404 Not Found', None, 0),
        ('"GET /x\\" HTTP/1.1" 200 OK', None, 0),
    ],
)
def test_the_request_is_what_stands_in_quotes(
    request_line: str, path: str | None, status: int
) -> None:
    """The reason phrase may be missing; a quote in the path makes it another line."""
    found = read(f"192.0.2.1:1 - {request_line}")
    if path is None:
        assert found is None
    else:
        assert found is not None
        assert (found[0]["url.path"], found[0]["http.response.status_code"]) == (path, status)


def test_the_query_string_is_private() -> None:
    """The query is replaced in text and attribute, the path scrubbed, unless they are kept."""
    text = '192.0.2.1:1 - "GET /secret/a?key=1&b=?x HTTP/1.1" 200 OK'
    found = read(text)
    assert found is not None
    assert (found[0]["url.path"], found[0]["url.query"]) == ("/*/a", "*")
    assert found[1] == '192.0.2.1:1 - "GET /*/a?* HTTP/1.1" 200 OK'
    kept = read(text, hide_query=False)
    assert kept is not None
    assert kept[0]["url.query"] == "key=1&b=?x"


def test_the_client_address_can_go_too() -> None:
    """The address is replaced in text and attribute where the operator asks for it."""
    found = read('192.0.2.1:1 - "GET / HTTP/1.1" 200 OK', hide_address=True)
    assert found is not None
    assert (found[0]["client.address"], found[0]["client.port"]) == ("*", 1)
    assert found[1] == '*:1 - "GET / HTTP/1.1" 200 OK'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Started server process [1]",
        '192.0.2.1 - "GET / HTTP/1.1" 200 OK',
        '192.0.2.1:x - "GET / HTTP/1.1" 200 OK',
        '192.0.2.1:123456 - "GET / HTTP/1.1" 200 OK',
        '192.0.2.1:1 "GET / HTTP/1.1" 200 OK',
        "192.0.2.1:1 - GET / HTTP/1.1 200 OK",
        '192.0.2.1:1 - "get / HTTP/1.1" 200 OK',
        '192.0.2.1:1 - "GET / HTTP/1.1" 20 OK',
        '192.0.2.1:1 - "GET / HTTP/1.1" 200 OK "x"',
        '192.0.2.1:1 - "GET /\nx" 200 OK',
        '"192.0.2.1:1 - "GET / HTTP/1.1" 200 OK',
        '192.0.2.1:1 - "WebSocket /v1/realtime" [accepted]',
    ],
)
def test_any_other_line_is_none(text: str) -> None:
    """What is no access line in every part is left to the catalogue."""
    assert read(text) is None


def test_many_different_requests_are_read_alike() -> None:
    """More requests than are kept give no other answer."""
    reader = AccessReader(str, str, str)
    for number in range(10_000):
        found = reader.read(f'192.0.2.1:1 - "GET /files/{number} HTTP/1.1" 200 OK')
        assert found is not None
        assert f'"url.path":"/files/{number}"' in found[0]
