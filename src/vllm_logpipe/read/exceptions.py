"""The exceptions of a traceback: which was first, which was last, and what they said."""

from __future__ import annotations

import re

from msgspec import Struct

from vllm_logpipe.read.header import load_settings

_TYPE = re.compile(
    r"(?P<type>[A-Za-z_][\w.]{0,255}(?:\([\w.]{1,255}\))?)(?::(?: (?P<text>.*)|\Z)|\Z)",
    re.DOTALL,
)
_GROUP_BORDER = re.compile(r" *[+|] ?(?:-+ ?[0-9]+ ?-+|-+)?")


class ExceptionText(Struct, frozen=True, gc=False):
    """One exception as printed: its class, its text, all lines of it."""

    type: str
    message: str


def starts_traceback(line: str) -> bool:
    """Whether a line begins a traceback, an exception group's included."""
    return line.startswith(load_settings().traceback_starts)


def find_traceback(body: str) -> int:
    """Where the first traceback begins in a text; -1 for none."""
    settings = load_settings()
    start, group = settings.traceback_start, settings.traceback_group
    found = body.find(start)
    while found > 0 and body[found - 1] != "\n":
        line = found - len(group)
        if line >= 0 and body.startswith(group, line) and (line == 0 or body[line - 1] == "\n"):
            return line
        found = body.find(start, found + 1)
    return found


def read_exceptions(body: str) -> list[ExceptionText]:
    """The exceptions of the tracebacks in a text, in the order printed: the cause is first."""
    chains = load_settings().traceback_chains
    exceptions: list[ExceptionText] = []
    lines = body[max(find_traceback(body), 0) :].split("\n")
    current: list[str] | None = None
    in_frames = False
    grouped = False
    for raw in lines:
        if starts_traceback(raw):
            _finish(current, exceptions)
            current, in_frames = None, True
            grouped = raw.startswith("  +")
            continue
        border = _GROUP_BORDER.match(raw) if grouped else None
        line = raw[border.end() :] if border else raw
        if in_frames:
            if line[:1] not in (" ", "\t", "", "|", "+"):
                current, in_frames = [line], False
        elif line in chains:
            _finish(current, exceptions)
            current = None
        elif current is not None:
            current.append(line)
    _finish(current, exceptions)
    return exceptions


def _finish(lines: list[str] | None, exceptions: list[ExceptionText]) -> None:
    if not lines:
        return
    text = "\n".join(lines).rstrip()
    found = _TYPE.match(text)
    if found is None:
        first, _, rest = text.partition("\n")
        if matched := _TYPE.match(first):
            found = matched
            exceptions.append(ExceptionText(found["type"], rest))
            return
        exceptions.append(ExceptionText("", text))
        return
    exceptions.append(ExceptionText(found["type"], found["text"] or ""))
