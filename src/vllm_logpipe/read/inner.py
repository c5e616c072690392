"""The streams inside of an envelope: each joins its own lines, with the envelope's times."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from vllm_logpipe.read.clock import NS, Clock
from vllm_logpipe.read.draft import Draft, TimeSource
from vllm_logpipe.read.header import Lane
from vllm_logpipe.read.join import Joiner, WholeLine
from vllm_logpipe.read.lines import Block
from vllm_logpipe.read.process import Process

_QUARTER_HOUR = 900
_TOLERANCE = 2 * NS
_PART_COST = 64
"""What a piece weighs whatever its text: endless empty ones take memory too."""
_BROKEN = re.compile(r"(?:\\x[0-9a-f]{2}){1,3}\Z", re.ASCII)
_BROKEN_REST = re.compile(r"(?:\\x[89ab][0-9a-f]){1,3}", re.ASCII)


class LocalTimes:
    """The times of envelopes that print neither year nor zone, such as journald's.

    The printed times of the servers tell how many quarter-hours that zone is off; it is one for
    all units of a stream.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.shift = 0
        """s that the envelopes are ahead of the printed times."""


class InnerJoiner(Joiner):
    """Joins the lines of one inner stream.

    dated: whether the envelope has times. They date the lines that print none, and give the
    fraction and the zone to those that do.
    """

    def __init__(
        self,
        clock: Clock,
        knows: Callable[[str, str], bool],
        declares: Callable[[str, str, str], bool],
        redact: Callable[[str, str], str],
        *,
        live: bool,
        dated: bool,
    ) -> None:
        # What is told the time needs neither neighbours nor a wait for the first printed one.
        super().__init__(clock, knows, declares, redact, live=live or dated)
        self._dated = dated
        self._observes = live
        self.local = LocalTimes(clock)
        self._neighbour = TimeSource.PREVIOUS
        self.envelope_ns = -1
        """The time of the envelope of the current line, ns since 1970 UTC; -1 for none."""
        self.zoned = True
        """Whether it is in UTC for certain."""
        self.fine = True
        """Whether it has a fraction of the second."""

    @property
    def open_count(self) -> int:
        """Records that have begun and are not given out yet."""
        return len(self._pending)

    def follow(self, time_ns: int, source: TimeSource) -> None:
        """Tell the time of the line before or after, for one without an envelope."""
        self._stream.second, self._stream.fraction = divmod(time_ns, NS)
        self._neighbour = source

    def _date(self, draft: Draft, lane: Lane, second: int, fraction: int) -> None:
        if not self._dated:
            super()._date(draft, lane, second, fraction)
            return
        if self.envelope_ns >= 0:
            second, fraction, found = self._enveloped(draft, second, fraction)
            if found:
                draft.time_source = TimeSource.ENVELOPE
        stream = self._stream
        lane.second = stream.second = second
        lane.fraction = stream.fraction = fraction
        draft.time = self.clock.unique(second, fraction)

    def _enveloped(self, draft: Draft, second: int, fraction: int) -> tuple[int, int, bool]:
        """The time of a line that prints one, and whether it is the envelope's."""
        envelope = self.envelope_ns
        difference = envelope - second * NS
        quarters = round(difference / (_QUARTER_HOUR * NS)) * _QUARTER_HOUR
        if abs(difference - quarters * NS) > _TOLERANCE:
            return second, fraction, False
        if self.zoned:
            process = None if draft.head is None else draft.head.process
            lane = 0 if process is None or draft.head is None else id(draft.head.lane)
            self.clock.enveloped(envelope, second, lane)
            if not self.fine:
                # The zone is the envelope's, the rest as printed.
                return second + quarters, fraction, False
        else:
            self.local.shift = quarters
            envelope -= quarters * NS
            if not self.fine or envelope < 0:
                return second, fraction, False
        return *divmod(envelope, NS), True

    def _inherit(self, draft: Draft, lane: Lane) -> None:
        if not self._dated:
            super()._inherit(draft, lane)
            return
        if self.envelope_ns >= 0:
            self._take_envelope(draft, self.envelope_ns)
            return
        last = lane if lane.second >= 0 else self._stream
        if self._observes or last.second < 0:
            self._observe(draft)
        else:
            draft.time = self.clock.unique(last.second, last.fraction)
            draft.time_source = self._neighbour

    def _take_envelope(self, draft: Draft, envelope: int) -> None:
        shifted = envelope if self.zoned else max(envelope - self.local.shift * NS, 0)
        stream = self._stream
        stream.second, stream.fraction = divmod(shifted, NS)
        draft.time = self.clock.unique(stream.second, stream.fraction)
        draft.time_source = TimeSource.ENVELOPE

    def _progress(
        self, found: re.Match[str], prefix: str, process: Process | None, offset: int
    ) -> None:
        super()._progress(found, prefix, process, offset)
        if self._dated and self.envelope_ns >= 0:
            # A bar is given out when it ends: its time is that of its last state.
            bar = next(reversed(self._bars.values()))[0]
            bar.time = divmod(self.envelope_ns, NS)

    def _close_bar(self, key: str) -> None:
        bar, draft = self._bars[key]
        if not self._dated or draft is not None or bar.time is None:
            super()._close_bar(key)
            return
        now, self.envelope_ns = self.envelope_ns, bar.time[0] * NS + bar.time[1]
        super()._close_bar(key)
        self.envelope_ns = now


class InnerStream:
    """An inner stream: what its lines have in common, the open line and the open records."""

    def __init__(self, joiner: InnerJoiner, name: str, iostream: str) -> None:
        self.joiner = joiner
        self.name = name
        self.iostream = iostream
        self.resource: dict[str, str] = {}
        self.fine = True
        """Whether its envelopes have fractions of the second, by the first."""
        self.last_line = 0
        """Number of the last physical line."""
        self.parts: list[str] = []
        """The pieces so far of a line that is not complete."""
        self.position = 0
        """Where that line begins, as its record says it."""
        self.size = 0
        """Characters of the pieces, and what a piece costs beside them."""
        self.continued = False
        """Whether what comes next goes on with a line that was cut."""
        self.places: deque[int] = deque()
        """Where the open records came to be: the order in which they leave."""

    def add_part(self, text: str) -> None:
        """Add a piece; a character whose bytes two pieces share is put together again."""
        if self.parts and (right := _BROKEN_REST.match(text)):
            left = _BROKEN.search(self.parts[-1][-12:])
            if left is not None:
                code = (left[0] + right[0]).replace("\\x", "")
                try:
                    whole = bytes.fromhex(code).decode()
                except UnicodeDecodeError:
                    whole = ""
                if len(whole) == 1:
                    self.parts[-1] = self.parts[-1][: -len(left[0])] + whole
                    text = text[right.end() :]
        self.parts.append(text)
        self.size += len(text) + _PART_COST

    def feed(
        self, line: str, position: int, place: int, *, cut: bool = False
    ) -> list[tuple[int, Draft | WholeLine]]:
        """Take a line; gives what is complete, each with its place in the whole stream."""
        block = Block([line], [position], "\r" in line, "\x1b" in line, self.continued, cut)
        self.continued = cut
        before = self.joiner.open_count
        return self._placed(self.joiner.feed(block), before, place)

    def expire(self, place: int, *, end: bool) -> list[tuple[int, Draft | WholeLine]]:
        """Close the open records; at the end also what else is open."""
        before = self.joiner.open_count
        items = self.joiner.flush() if end else self.joiner.expire()
        return self._placed(items, before, place)

    def _placed(
        self, items: list[Draft | WholeLine], before: int, place: int
    ) -> list[tuple[int, Draft | WholeLine]]:
        added = len(items) + self.joiner.open_count - before
        self.places.extend([place] * added)
        return [(self.places.popleft(), item) for item in items]
