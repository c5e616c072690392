"""JSON mode: one object a line, as python-json-logger writes it."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from vllm_logpipe.catalogue.values import member, quote
from vllm_logpipe.model import SEVERITY_NUMBERS
from vllm_logpipe.read.header import Head, Lane, date_kind, make_head
from vllm_logpipe.read.process import as_printed, describe_process

_decode = msgspec.json.Decoder(dict[str, object]).decode
_encode = msgspec.json.encode
_MESSAGES = ("message", "msg")
_LEVELS = ("levelname", "level", "severity", "log.level")
_STAMPS = ("asctime", "timestamp", "@timestamp", "time", "ts")
_LOGGERS = ("name", "logger", "logger_name", "log.logger")
_TRACES = ("exc_info", "stack_info", "exception", "error.stack_trace")
_FILES = ("filename", "pathname")
_LINES = ("lineno", "line")
_KNOWN = frozenset("processName process vllm_process_name color_message".split())
"""Keys that are read, or say again what another one does. The field's usual names come first:
python-json-logger renames as it is told to."""
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
    read = set(_KNOWN)
    message = _first(document, _MESSAGES, read)
    level = _first(document, _LEVELS, read)
    if message is None or level is None:
        return None
    if "levelname" not in document and level.upper() not in SEVERITY_NUMBERS:
        return None
    traces = [document.get(key) for key in _TRACES]
    read.update(key for key, text in zip(_TRACES, traces, strict=True) if isinstance(text, str))
    read.update(_TRACES[:2])
    trace = "\n".join(text for text in traces if isinstance(text, str) and text)
    name = document.get("vllm_process_name") or document.get("processName") or ""
    pid = document.get("process")
    process = describe_process(
        name if isinstance(name, str) else "",
        str(pid) if type(pid) is int and 0 <= pid <= _MAX_PID else None,
        redact=redact,
    )
    members = f'"vllm.log.format":"json"{process.members}'
    file = _first(document, _FILES, read)
    number = next((key for key in _LINES if type(document.get(key)) is int), None)
    if file is not None and number is not None:
        read.add(number)
        members += f"{member('code.file.path')}{quote(redact('code.file.path', file))}"
        members += f"{member('code.line.number')}{document[number]}"
    logger = _first(document, _LOGGERS, read)
    if logger is not None:
        members += (
            f"{member('vllm.log.logger.name')}{quote(redact('vllm.log.logger.name', logger))}"
        )
    printed = _first(document, _STAMPS, read) or ""
    head = make_head("json", level, process, lane, date_kind(printed) if printed else "", members)
    ids = {
        key: value
        for key, pattern in _IDS.items()
        if isinstance(value := document.get(key), str) and pattern.fullmatch(value)
    }
    more = {key: value for key, value in document.items() if key not in read and key not in ids}
    if more:
        clean = {key: _redacted(f"{_EXTRA}.{key}", value, redact) for key, value in more.items()}
        ids["extra"] = _encode(clean).decode()
    return head, printed, message, trace, ids


def _first(document: dict[str, object], keys: tuple[str, ...], read: set[str]) -> str | None:
    """The text of the first of the keys that has one; it counts as read."""
    for key in keys:
        value = document.get(key)
        if isinstance(value, str):
            read.add(key)
            return value
    return None


def _redacted(name: str, value: object, redact: Callable[[str, str], str]) -> object:
    """A value of a key that nobody knows; what is nested in it goes as a whole, if it must."""
    if isinstance(value, str):
        return redact(name, value)
    if not isinstance(value, list | dict):
        return value
    text = _encode(value).decode()
    clean = redact(name, text)
    return value if clean == text else clean
