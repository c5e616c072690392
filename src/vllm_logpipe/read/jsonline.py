"""JSON mode: one object a line, as python-json-logger writes it."""

from __future__ import annotations

import re

import msgspec

from vllm_logpipe.catalogue.values import member, quote
from vllm_logpipe.read.header import Head, Lane, date_kind, make_head
from vllm_logpipe.read.process import describe_process

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
_MAX_PID = 2**31 - 1


def read_json(line: str, lane: Lane) -> tuple[Head, str, str, str, dict[str, str]] | None:
    """Header, printed time, message, traceback and ids of a JSON line.

    None for any other line. Keys nobody knows are kept as one JSON text in `vllm.log.extra`.
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
    )
    members = f'"vllm.log.format":"json"{process.members}'
    logger = document.get("name")
    if isinstance(logger, str):
        members += f"{member('vllm.log.logger.name')}{quote(logger)}"
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
        ids["extra"] = _encode(more).decode()
    return head, printed, message, trace, ids
