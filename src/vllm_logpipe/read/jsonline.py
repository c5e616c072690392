"""JSON mode: one object a line, as python-json-logger writes it."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from vllm_logpipe.catalogue.values import member, quote
from vllm_logpipe.read.header import Head, Lane, date_kind, make_head
from vllm_logpipe.read.process import as_printed, describe_process

_decode = msgspec.json.Decoder(dict[str, object]).decode
_encode = msgspec.json.encode
_KNOWN = frozenset(
    "asctime levelname name processName process message vllm_process_name exc_info stack_info"
    " color_message".split()
)
_IDS = {
    "trace_id": re.compile("(?!0{32})[0-9a-f]{32}"),
    "span_id": re.compile("(?!0{16})[0-9a-f]{16}"),
}
_EXTRA = "vllm.log.extra"
_MAX_PID = 2**31 - 1


def read_json(
    line: str, lane: Lane, redact: Callable[[str, str], str] = as_printed
) -> tuple[Head, str, str, str, dict[str, str]] | None:
    """Header, printed time, message, traceback and ids of a JSON line; None for any other line.

    Keys nobody knows are kept as one JSON text in `vllm.log.extra`. `redact` gives what stands for
    the text of an attribute, by its name.
    """
    try:
        document = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    message = document.get("message")
    level = document.get("levelname")
    if not isinstance(message, str) or not isinstance(level, str):
        return None
    traces = [document.get(key) for key in ("exc_info", "stack_info")]
    trace = "\n".join(text for text in traces if isinstance(text, str) and text)
    name = document.get("vllm_process_name") or document.get("processName") or ""
    pid = document.get("process")
    process = describe_process(
        name if isinstance(name, str) else "",
        str(pid) if type(pid) is int and 0 <= pid <= _MAX_PID else None,
        redact=redact,
    )
    members = f'"vllm.log.format":"json"{process.members}'
    logger = document.get("name")
    if isinstance(logger, str):
        members += (
            f"{member('vllm.log.logger.name')}{quote(redact('vllm.log.logger.name', logger))}"
        )
    stamp = document.get("asctime")
    printed = stamp if isinstance(stamp, str) else ""
    head = make_head("json", level, process, lane, date_kind(printed) if printed else "", members)
    ids = {
        key: value
        for key, pattern in _IDS.items()
        if isinstance(value := document.get(key), str) and pattern.fullmatch(value)
    }
    more = {key: value for key, value in document.items() if key not in _KNOWN and key not in ids}
    if more:
        clean = {key: _redacted(f"{_EXTRA}.{key}", value, redact) for key, value in more.items()}
        ids["extra"] = _encode(clean).decode()
    return head, printed, message, trace, ids


def _redacted(name: str, value: object, redact: Callable[[str, str], str]) -> object:
    """A value of a key that nobody knows; what is nested in it goes as a whole, if it must."""
    if isinstance(value, str):
        return redact(name, value)
    if not isinstance(value, list | dict):
        return value
    text = _encode(value).decode()
    clean = redact(name, text)
    return value if clean == text else clean
