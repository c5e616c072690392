"""Records for a person at a terminal: one line each, aligned."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vllm_logpipe.model import LogRecord
from vllm_logpipe.read.clock import rfc3339

_MAX_BODY = 110
_SHOWN_ELSEWHERE = (
    "code.",
    "log.",
    "vllm.log.",
    "vllm.process.",
    "process.pid",
    "vllm.phase",
    "exception.stacktrace",
    "exception.message",
    "client.",
    "network.",
)

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def on_one_line(text: str) -> str:
    r"""The text with control characters and line breaks shown as in `\n`."""
    return _CONTROLS.sub(lambda found: repr(found.group())[1:-1], text)


def encode_text(records: Iterable[LogRecord]) -> bytes:
    """The records as text: time, level, process, phase, event or message, and values.

    An error's message stands behind a bar.
    """
    return "".join(f"{on_one_line(_line(record))}\n" for record in records).encode()


def _line(record: LogRecord) -> str:
    attributes = record.attributes
    process = attributes.get("vllm.process.name") or attributes.get("vllm.process.kind") or "-"
    columns = (
        rfc3339(record.time_unix_nano)[11:19],
        f"{record.severity_text or '-':<8}",
        f"{process!s:<14}",
        f"{attributes.get('vllm.phase', '-')!s:<16}",
    )
    return f"{' '.join(columns)} {_what(record, dict(attributes))}"


def _what(record: LogRecord, attributes: dict[str, object]) -> str:
    values = [
        f"{name.removeprefix('vllm.')}={_short(str(value), 60)}"
        for name, value in attributes.items()
        if not name.startswith(_SHOWN_ELSEWHERE)
    ]
    if record.event_name is None:
        first = next((line for line in record.body.split("\n") if line.strip()), "")
        return " ".join((_short(first, _MAX_BODY), *values))
    if "error.type" in attributes:
        said = str(attributes.get("exception.message") or record.body)
        values.append(f"| {_short(said.strip(), _MAX_BODY)}")
    return " ".join((record.event_name, *values))


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
