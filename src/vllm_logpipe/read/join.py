"""From lines to drafts of records: which lines belong together.

vLLM repeats the header on each line of a record and ends all but the last in CR, which most
shippers strip. So header and shape decide alone; CR, once a stream has proved to keep it, confirms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from vllm_logpipe.model import FAILED_LEVELS
from vllm_logpipe.read.clock import NS, Clock
from vllm_logpipe.read.draft import Draft, TimeSource, Traceback
from vllm_logpipe.read.exceptions import starts_traceback
from vllm_logpipe.read.header import Beginning, Head, HeaderReader, Lane, load_settings
from vllm_logpipe.read.jsonline import read_json
from vllm_logpipe.read.lines import Block
from vllm_logpipe.read.process import Process, as_printed, describe_process
from vllm_logpipe.read.progress import Bar, match_bar

MAX_GAP = 64
"""Lines of others that may stand between two lines of one record."""
MAX_RECORD_LENGTH = 8 * 1024 * 1024
"""Characters after which a record is closed, marked as truncated; a new one goes on."""
MAX_SPAN = 20_000
"""Lines of the stream that a record may reach over, its neighbours' included."""
MAX_GLUED = 100
"""Pieces that are looked for in one line without CRs; what is left is one record."""
MAX_UNDATED = 256
"""Lines at the start of a stream that wait for the first printed time."""

WholeLine: TypeAlias = tuple[Head, str, str, int, int, TimeSource]
"""A line that is a record by itself: head, header, text, offset, time and how that was found."""

_MAX_LANES = 1024
_MAX_BARS = 64
_BAR_GAP = 4
_DUMP_LETTERS = "tFCT!*"
"""What the first line of a dump begins with."""
_STAMP = len("11-30 12:00:01")
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


class Joiner:
    """Joins the lines of one stream.

    `knows` says whether a text is a message of the catalogue in a given format; `declares` whether
    the first text declares the second as its further line. `redact` gives what stands for the text
    of an attribute that a header gives, by its name.
    """

    def __init__(
        self,
        clock: Clock,
        knows: Callable[[str, str], bool],
        declares: Callable[[str, str, str], bool],
        redact: Callable[[str, str], str] = as_printed,
        *,
        live: bool = False,
    ) -> None:
        self.clock = clock
        self.observed_ns = 0
        self._base = 0
        self._pieces = 0
        self._used = clock.used
        self._taken = clock.taken
        self._knows = knows
        self._declares = declares
        self._redact = redact
        self._live = live
        self._settings = load_settings()
        self._reader = HeaderReader(redact)
        self._width = self._settings.uvicorn_width
        self._line = 0
        self._raw: dict[str, Draft] = {}
        self._pending: list[Draft | WholeLine] = []
        self._undated: list[Draft] | None = []
        self._undated_since = 0
        self._stream = Lane()
        self._bars: dict[str, tuple[Bar, Draft | None]] = {}
        self._cr_continues = False
        self._cr_absent = False
        self._crlf = False

    def feed(self, block: Block) -> list[Draft | WholeLine]:
        """Take lines; gives what is complete, in the order it began."""
        if block.continued or block.cut:
            self._line += 1
            self._cut(block)
            return self._take()
        if block.offsets[0] == 0 and block.lines[0].startswith("\ufeff"):
            block.lines[0] = block.lines[0][1:]
        decorated = block.has_cr or block.has_escape
        heads = self._reader.known
        uvicorn = self._reader.known_uvicorn
        seconds = self.clock.known
        width = self._width
        for line, offset in zip(block.lines, block.offsets, strict=True):
            self._line += 1
            self._base = offset
            self._pieces = 0
            if decorated and ("\r" in line or "\x1b" in line):
                self._decorated(line, offset)
                continue
            cut = line.find("] ")
            if cut > _STAMP:
                header = line[: cut + 1]
                at = header.rfind(" ")
                head = heads.get(header[: at - _STAMP] + header[at:])
                if head is not None:
                    second = seconds.get(header[at - _STAMP : at])
                    if second is not None:
                        self._headed(head, header, line[cut + 2 :], offset, second, 0)
                        continue
            elif cut < 0:
                start = width if line[:1] != "(" else line.find(") ") + 2 + width
                head = uvicorn.get(line[:start])
                if head is not None:
                    self._uvicorn(head, line[:start], line[start:], offset)
                    continue
            self._physical(line, offset, 0)
        return self._take()

    def expire(self) -> list[Draft | WholeLine]:
        """Close what is open: the caller knows that no more lines of it are to be expected."""
        for draft in self._pending:
            if draft.__class__ is Draft:
                draft.closed = True
        return self._take()

    def flush(self) -> list[Draft | WholeLine]:
        """Close everything; gives the rest."""
        for key in list(self._bars):
            self._close_bar(key)
        if self._undated:
            self._date_undated(None)
        for draft in self._pending:
            if draft.__class__ is Draft:
                draft.closed = True
        self._raw.clear()
        return self._take()

    def _take(self) -> list[Draft | WholeLine]:
        pending = self._pending
        line = self._line
        count = 0
        for draft in pending:
            if draft.__class__ is Draft:
                if draft.time < 0 or (not draft.closed and line - draft.last_line <= draft.gap):
                    break
                draft.closed = True
            count += 1
        taken = pending[:count]
        del pending[:count]
        return taken

    def _cut(self, block: Block) -> None:
        """A piece of a line that was too long: the first is read as any line, the rest is raw."""
        (line,), (offset,) = block.lines, block.offsets
        self._base, self._pieces = offset, 0
        before = len(self._pending)
        if block.continued:
            text = _ANSI.sub("", line).rstrip("\r")
            if text.strip():
                self._start_raw("", None, text, offset, truncated=True)
        else:
            self._decorated(line, offset)
            for draft in list(self._pending)[before:]:
                if isinstance(draft, Draft):
                    draft.truncated = draft.closed = True

    def _decorated(self, line: str, offset: int) -> None:
        """A line that holds ANSI codes or CRs."""
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        whole = len(line)
        line = line.rstrip("\r")
        cr = whole - len(line)
        if "\r" in line:
            self._refreshed(line, offset)
        else:
            self._physical(line, offset, cr)

    def _refreshed(self, line: str, offset: int) -> None:
        """A line of several states, parted by CRs: bars, or text that overwrote them."""
        beginning = self._reader.read(line)
        if beginning.head is not None and match_bar(line[beginning.start :]) is None:
            self._physical(line.replace("\r", "\n"), offset, 0)
            return
        prefix = beginning.prefix if beginning.head is None else ""
        for part in line[len(prefix) :].split("\r"):
            if part.strip():
                self._physical(prefix + part if prefix else part, self._piece_offset(), 0)

    def _piece_offset(self) -> int:
        """An offset of its own for the next record of a line that holds several.

        Every piece takes a byte at least, so the offsets of the next line are not reached.
        """
        offset = self._base + self._pieces
        self._pieces += 1
        return offset

    def _physical(self, line: str, offset: int, cr: int) -> None:
        """Any line, without ANSI codes and trailing CRs."""
        beginning = self._reader.read(line)
        head = beginning.head
        if head is None:
            self._headless(beginning, line, offset, cr)
            return
        text = line[beginning.start :]
        header = beginning.text
        if head.stamp_kind == "month_day":
            resolved = self.clock.resolve(beginning.stamp, "month_day", _clock_lane(head))
            second = -1 if resolved is None else resolved[0]
            self._headed(head, header, text, offset, second, cr)
            # Only a header that ends at the first `] ` is found again by that cut.
            if resolved is not None and line.find("] ") == len(header) - 1:
                at = header.rfind(" ")
                key = header[: at - _STAMP] + header[at:]
                self._reader.remember(self._reader.known, key, head)
        elif head.format == "uvicorn":
            self._reader.remember(self._reader.known_uvicorn, header, head)
            self._uvicorn(head, header, text, offset)
        else:
            self._foreign(beginning, head, text, offset)

    def _headed(
        self, head: Head, header: str, text: str, offset: int, second: int, cr: int
    ) -> None:
        line = self._line
        lane = head.lane
        draft = lane.draft
        if draft is not None and not draft.closed:
            if draft.header == header:
                if line - draft.last_line <= MAX_GAP and self._take_up(draft, text, cr):
                    return
            elif draft.cr:
                self._crlf = True
            draft.closed = True
        if not cr:
            self._cr_absent = True
        if second < 0 or self._undated is not None:
            draft = Draft(head, header, text, offset, line, MAX_GAP)
            if second < 0:
                self._inherit(draft, lane)
            else:
                self._date(draft, lane, second, 0)
        else:
            stream = self._stream
            lane.second = stream.second = second
            lane.fraction = stream.fraction = 0
            used = self._used.get(second, -1) + 1
            time = second * NS + used
            if not used or time in self._taken:
                time = self.clock.unique(second, 0)
            else:
                self._used[second] = used
            draft = Draft(head, header, text, offset, line, MAX_GAP, time)
        draft.cr = cr
        draft.first_line = line
        lane.draft = draft
        self._pending.append(draft)
        if not text:
            # An empty message with a traceback: vLLM leaves that one without headers.
            draft.state = Traceback.EXPECTED
            self._await_raw("", draft)
            if head.process is not None:
                self._await_raw(header[: header.rfind(") ") + 2], draft)

    def _take_up(self, draft: Draft, text: str, cr: int) -> bool:
        """Add a line with the header of an open record to it, if it belongs there."""
        if draft.cr:
            self._cr_continues = True
        if not self._continues(draft, text):
            return False
        if self._is_full(draft):
            draft.truncated = True
            return False
        draft.append(text, self._line)
        draft.cr = cr
        return True

    def _is_full(self, draft: Draft) -> bool:
        """Whether a record may not grow further: it would hold back all that came after it."""
        return draft.size >= MAX_RECORD_LENGTH or self._line - draft.first_line > MAX_SPAN

    def _continues(self, draft: Draft, text: str) -> bool:
        """Whether a line with the header of an open record belongs to it."""
        proved = False
        if self._crlf:
            proved = draft.cr > 1
        elif self._cr_continues and self._cr_absent:
            if not draft.cr:
                return False
            proved = True
        if self._advance(draft, text) or proved or not text or text[0] in " \t":
            return True
        if draft.more is None:
            return not draft.text or self._declares(draft.text, text, _format(draft))
        if not draft.text and not any(draft.more):
            return True
        return not self._knows(text, _format(draft))

    def _advance(self, draft: Draft, text: str) -> bool:
        """Follow a traceback; whether the line is part of it."""
        if starts_traceback(text):
            draft.state = Traceback.FRAMES
            return True
        if text in self._settings.traceback_chains:
            draft.state = Traceback.CHAIN
            return True
        if draft.state == Traceback.FRAMES and text and text[0] not in " \t":
            draft.state = Traceback.EXCEPTION
            return True
        return False

    def _uvicorn(self, head: Head, header: str, text: str, offset: int) -> None:
        """A uvicorn line: complete, unless a traceback may follow."""
        lane = head.lane
        last = lane if lane.second >= 0 else self._stream
        if last.second >= 0 and not self._live and head.level not in FAILED_LEVELS:
            second = last.second
            used = self._used.get(second, -1) + 1
            time = second * NS + used
            if not used or last.fraction or time in self._taken:
                time = self.clock.unique(second, last.fraction)
            else:
                self._used[second] = used
            self._pending.append((head, header, text, offset, time, TimeSource.PREVIOUS))
            return
        draft = Draft(head, header, text, offset, self._line, 0)
        self._inherit(draft, lane)
        self._pending.append(draft)
        if head.level in FAILED_LEVELS:
            draft.first_line = self._line
            draft.gap = MAX_GAP
            draft.state = Traceback.EXPECTED
            self._await_raw(header[: -self._width], draft)
        else:
            draft.closed = True

    def _foreign(self, beginning: Beginning, head: Head, text: str, offset: int) -> None:
        """A line with the header of a neighbour: c10d, NCCL, a tag, a Python warning."""
        prefix = beginning.prefix
        gap = MAX_GAP if prefix else 1
        draft = Draft(head, beginning.text, text, offset, self._line, gap)
        draft.first_line = self._line
        resolved = self.clock.resolve(beginning.stamp, head.stamp_kind, _clock_lane(head))
        if resolved is None:
            self._inherit(draft, self._lane_of(prefix))
        else:
            self._date(draft, head.lane, *resolved)
        self._pending.append(draft)
        before = self._raw.get(prefix)
        if before is not None and before.state < Traceback.FRAMES:
            before.closed = True
        self._await_raw(prefix, draft)

    def _headless(self, beginning: Beginning, line: str, offset: int, cr: int) -> None:
        prefix = beginning.prefix
        text = line[len(prefix) :] if prefix else line
        if text.startswith("{") and (
            found := read_json(text, self._reader.lane(prefix), self._redact)
        ):
            head, stamp, message, trace, ids = found
            draft = Draft(head, prefix, message, offset, self._line, 0)
            draft.trace_at = -1
            if trace:
                draft.text = f"{message}\n{trace}" if message else trace
                draft.trace_at = len(draft.text) - len(trace)
            draft.closed = True
            draft.ids = ids
            resolved = self.clock.resolve(stamp, head.stamp_kind, _clock_lane(head))
            if resolved is None:
                self._inherit(draft, head.lane)
            else:
                self._date(draft, head.lane, *resolved)
            self._pending.append(draft)
            return
        rest = text
        while bar := match_bar(rest):
            self._progress(bar, prefix, beginning.process, offset)
            rest = rest[bar.end() :]
            self._pieces = max(self._pieces, 1)
            offset = self._piece_offset()
        if rest is not text:
            if not rest.strip():
                return
            # What is glued to a bar may begin with a prefix of its own.
            if self._pieces <= MAX_GLUED:
                self._physical(rest if rest.startswith("(") else prefix + rest, offset, cr)
                return
            text = rest
        self._raw_line(prefix, beginning.process, text, offset, cr)

    def _raw_line(
        self, prefix: str, process: Process | None, text: str, offset: int, cr: int
    ) -> None:
        line = self._line
        draft = self._raw.get(prefix)
        if draft is not None and (draft.closed or line - draft.last_line > max(draft.gap, 1)):
            draft = None
        if not text or text.isspace():
            if draft is not None and draft.state >= Traceback.FRAMES and not self._is_full(draft):
                draft.blanks += 1
                draft.last_line = line
            return
        if cr:
            self._crlf = True
        if draft is not None:
            if self._raw_continues(draft, text, adjacent=self._adjacent(draft, prefix)):
                if not self._is_full(draft):
                    draft.append(text, line)
                    return
                draft.truncated = True
            draft.closed = True
        self._start_raw(prefix, process, text, offset)

    def _await_raw(self, prefix: str, draft: Draft) -> None:
        """Let lines without header and with this process prefix go on with a draft."""
        if len(self._raw) >= _MAX_LANES:
            self._raw.clear()
        self._raw[prefix] = draft

    def _adjacent(self, draft: Draft, prefix: str) -> bool:
        """Whether nothing of the same process stands between a draft and the current line."""
        if not prefix:
            return self._line - draft.last_line <= 1
        between = self._reader.lane(prefix).draft
        return between is None or between.last_line < draft.last_line

    def _start_raw(
        self,
        prefix: str,
        process: Process | None,
        text: str,
        offset: int,
        *,
        truncated: bool = False,
    ) -> None:
        draft = Draft(None, prefix, text, offset, self._line, MAX_GAP if prefix else 1)
        draft.first_line = self._line
        draft.process = process
        draft.truncated = truncated
        if starts_traceback(text):
            draft.state = Traceback.FRAMES
            draft.gap = MAX_GAP
        elif text[0] in _DUMP_LETTERS and (state := self._dump(text)):
            draft.state = state
            draft.gap = MAX_GAP
        elif found := self._settings.traceback_process.fullmatch(text):
            draft.state = Traceback.EXPECTED
            draft.gap = MAX_GAP
            draft.process = process or describe_process(found["name"], None, redact=self._redact)
        self._inherit(draft, self._lane_of(prefix))
        self._pending.append(draft)
        if not truncated:
            self._await_raw(prefix, draft)

    def _raw_continues(self, draft: Draft, text: str, *, adjacent: bool) -> bool:
        """Whether a line without header belongs to the open record without header."""
        if draft.state >= Traceback.ABORT:
            return self._dump_continues(draft, text, adjacent=adjacent)
        if starts_traceback(text):
            if draft.state in (Traceback.EXPECTED, Traceback.CHAIN):
                draft.state = Traceback.FRAMES
                draft.gap = MAX_GAP
                return True
            return False
        if draft.state >= Traceback.FRAMES and self._advance(draft, text):
            return True
        indented = text[0] in " \t"
        if draft.state in (Traceback.FRAMES, Traceback.CHAIN):
            return indented
        if draft.state == Traceback.EXCEPTION:
            return indented or (adjacent and not self._knows(text, "raw"))
        if not adjacent:
            return False
        if self._declares(draft.text, text, _format(draft)):
            return True
        return indented and not self._knows(text, "raw")

    def _dump(self, text: str) -> Traceback | None:
        """What kind of dump a line begins, if any."""
        if self._settings.dump_start.match(text):
            return Traceback.ABORT
        return Traceback.DUMP if self._settings.dump_crash.match(text) else None

    def _dump_continues(self, draft: Draft, text: str, *, adjacent: bool) -> bool:
        """Whether a line belongs to the dump of a process that C++ or the interpreter ended."""
        if self._settings.dump_frames.match(text):
            draft.state = Traceback.DUMP
            return True
        if not adjacent:
            return False
        if text[0] in " \t":
            return True
        return draft.state == Traceback.ABORT and not draft.blanks and not self._knows(text, "raw")

    def _progress(
        self, found: re.Match[str], prefix: str, process: Process | None, offset: int
    ) -> None:
        key = f"{prefix}{found['description'].strip()}"
        bar, draft = self._bars.get(key, (None, None))
        if bar is not None and draft is not None and self._line - bar.last_line > _BAR_GAP:
            bar = None
        if bar is None:
            if len(self._bars) >= _MAX_BARS:
                self._close_bar(next(iter(self._bars)))
            bar = Bar(prefix, offset, process.members if process else "")
            draft = None
        bar.update(found, self._line)
        last = self._lane_of(prefix)
        last = last if last.second >= 0 else self._stream
        bar.time = (last.second, last.fraction) if last.second >= 0 else None
        if bar.finished and draft is None:
            draft = self._bar_draft(bar)
        elif draft is not None:
            draft.last_line = self._line
        self._bars.pop(key, None)
        self._bars[key] = (bar, draft)

    def _bar_draft(self, bar: Bar) -> Draft:
        draft = Draft(None, bar.prefix, "", bar.offset, self._line, _BAR_GAP)
        draft.bar = bar
        if bar.time is not None and not self._live:
            draft.time = self.clock.unique(*bar.time)
            draft.time_source = TimeSource.PREVIOUS
        else:
            self._inherit(draft, self._lane_of(bar.prefix))
        self._pending.append(draft)
        return draft

    def _close_bar(self, key: str) -> None:
        bar, draft = self._bars.pop(key)
        if draft is None:
            self._bar_draft(bar).closed = True

    def _lane_of(self, prefix: str) -> Lane:
        return self._reader.lane(prefix) if prefix else self._stream

    def _date(self, draft: Draft, lane: Lane, second: int, fraction: int) -> None:
        """Take a printed time."""
        if self._undated is not None:
            self._date_undated((second, fraction))
        stream = self._stream
        lane.second = stream.second = second
        lane.fraction = stream.fraction = fraction
        draft.time = self.clock.unique(second, fraction)

    def _inherit(self, draft: Draft, lane: Lane) -> None:
        """The time of the record before, or of the first dated one where none is before."""
        last = lane if lane.second >= 0 else self._stream
        if self._live or (last.second < 0 and self._undated is None):
            self._observe(draft)
        elif last.second >= 0:
            draft.time = self.clock.unique(last.second, last.fraction)
            draft.time_source = TimeSource.PREVIOUS
        elif self._undated is not None:
            if not self._undated:
                self._undated_since = self._line
            self._undated.append(draft)
            if self._line - self._undated_since >= MAX_UNDATED:
                self._date_undated(None)

    def _observe(self, draft: Draft) -> None:
        second, fraction = divmod(self.observed_ns, NS)
        draft.time = self.clock.unique(second, fraction)
        draft.time_source = TimeSource.OBSERVED

    def _date_undated(self, resolved: tuple[int, int] | None) -> None:
        waiting, self._undated = self._undated or [], None
        for draft in waiting:
            if resolved is None:
                self._observe(draft)
            else:
                draft.time = self.clock.unique(*resolved)
                draft.time_source = TimeSource.NEXT


def _clock_lane(head: Head) -> int:
    """What the clock tells processes apart by; all that name no process are one."""
    return 0 if head.process is None else id(head.lane)


def _format(draft: Draft) -> str:
    return draft.head.format if draft.head is not None else "raw"
