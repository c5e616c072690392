"""A record while its lines are still coming in."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
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
    ABORT = 5
    """In the message of a C++ abort."""
    DUMP = 6
    """In the stacks of a process that crashed."""


class TimeSource(IntEnum):
    """How the time of a draft was found."""

    PRINTED = 0
    PREVIOUS = 1
    NEXT = 2
    OBSERVED = 3
    ENVELOPE = 4


class Draft(Struct, eq=False):
    """The lines of one record so far; what is missing is a line or a gap that ends it."""

    head: Head | None
    header: str
    """The header as printed; the process prefix alone where there is none."""
    text: str
    """The first line, less its header."""
    offset: int
    """Where it begins in the stream, in bytes."""
    last_line: int
    """Number of the last line taken."""
    gap: int
    """Lines of others that may stand before its next line."""
    time: int = -1
    """ns since 1970 UTC; -1 while unknown."""
    more: list[str] | None = None
    """Further lines."""
    closed: bool = False
    cr: int = 0
    """CRs at the end of the last line."""
    time_source: TimeSource = TimeSource.PRINTED
    state: Traceback = Traceback.NONE
    truncated: bool = False
    bar: Bar | None = None
    ids: dict[str, str] | None = None
    process: Process | None = None
    """The process of a record without header."""
    blanks: int = 0
    """Blank lines seen last, which count only if the record goes on."""
    first_line: int = 0
    """Number of the first line taken."""
    trace_at: int | None = None
    """Where the traceback begins in the text, where the line says so; -1 for none."""
    size: int = 0
    """Characters of the further lines."""

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
