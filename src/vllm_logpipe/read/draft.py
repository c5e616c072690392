"""A record while its lines are still coming in."""

from __future__ import annotations

from enum import IntEnum

from vllm_logpipe.read.header import Head
from vllm_logpipe.read.process import Process
from vllm_logpipe.read.progress import Bar


class Traceback(IntEnum):
    """Where in a traceback the last line of a draft stands."""

    NONE = 0
    EXPECTED = 1
    """A line that a traceback follows, such as `Process EngineCore:`."""
    FRAMES = 2
    EXCEPTION = 3
    CHAIN = 4


class TimeSource(IntEnum):
    """How the time of a draft was found."""

    PRINTED = 0
    PREVIOUS = 1
    NEXT = 2
    OBSERVED = 3
    ENVELOPE = 4


class Draft:
    """The lines of one record so far; what is missing is a line or a gap that ends it."""

    __slots__ = (
        "bar",
        "blanks",
        "closed",
        "cr",
        "gap",
        "head",
        "ids",
        "last_line",
        "more",
        "offset",
        "prefix",
        "process",
        "size",
        "state",
        "text",
        "time",
        "time_source",
        "truncated",
    )

    def __init__(self, head: Head | None, text: str, offset: int, line: int, gap: int) -> None:
        self.head = head
        self.text = text
        self.offset = offset
        self.last_line = line
        self.gap = gap
        self.more: list[str] | None = None
        self.closed = False
        self.cr = 0
        self.time = -1
        self.time_source = TimeSource.PRINTED
        self.state = Traceback.NONE
        self.truncated = False
        self.bar: Bar | None = None
        self.ids: dict[str, str] | None = None
        self.process: Process | None = None
        self.prefix = ""
        self.blanks = 0
        self.size = 0

    def append(self, text: str, line: int) -> None:
        """Add a line, with the blank ones that stood before it."""
        if self.more is None:
            self.more = []
        if self.blanks:
            self.more.extend([""] * self.blanks)
            self.blanks = 0
        self.more.append(text)
        self.size += len(text) + 1
        self.last_line = line

    def body(self) -> str:
        """All lines, joined by LF."""
        if self.bar is not None:
            return self.bar.text
        if self.more is None:
            return self.text
        return "\n".join((self.text, *self.more))
