"""A stream whose lines may have envelopes: unwrapped, parted, joined, and in order again."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from vllm_logpipe.read.clock import NS, Clock
from vllm_logpipe.read.draft import Draft, TimeSource
from vllm_logpipe.read.envelope import (
    ENVELOPES,
    SAMPLE_BYTES,
    SAMPLE_LINES,
    Layer,
    Piece,
    detect,
    gives_time,
    may_have_envelope,
)
from vllm_logpipe.read.inner import InnerJoiner, InnerStream, LocalTimes
from vllm_logpipe.read.join import WholeLine
from vllm_logpipe.read.lines import MAX_LINE_LENGTH, Block, LineSplitter

MAX_STREAMS = 256
"""Inner streams at once; the one that was silent longest makes room."""
MAX_SILENCE = 256
"""Lines of others after which an inner stream's open records are closed."""
MAX_HELD = 2 * MAX_LINE_LENGTH
"""Characters of lines that are not complete, of all inner streams together."""
OFFSET_BITS = 48
"""Where a position holds the envelope's time too, it stands above these bits of the offset."""

Emit = Callable[[InnerStream, "Draft | WholeLine"], None]
JoinerFactory = Callable[[Clock, bool], InnerJoiner]


class Unwrapper:
    """Takes the envelopes off the lines of one stream.

    It holds back the first lines until they have shown whether there are any: see `decide`.

    envelope: the outermost, by name, or `auto`.
    clock: makes the clock of an inner stream.
    join: makes the joiner of one, by its clock and whether the envelopes have times.
    emit: takes each record's draft, in the order in which they began.

    Raises ValueError for a name that is not known.
    """

    def __init__(
        self,
        envelope: str,
        clock: Callable[[], Clock],
        join: JoinerFactory,
        emit: Emit,
    ) -> None:
        if envelope not in ENVELOPES:
            raise ValueError(f"unknown envelope {envelope!r}: one of {', '.join(ENVELOPES)}")
        self._forced = envelope
        self._make_clock = clock
        self._join = join
        self._emit = emit
        self._sample: bytearray | None = bytearray()
        self._layers: list[Layer] = []
        self._dated = False
        self._splitter = LineSplitter()
        self._streams: dict[tuple[str, str], InnerStream] = {}
        """All inner streams, the one that was silent longest first."""
        self._open: dict[InnerStream, None] = {}
        """Those that may have open records, in the same order."""
        self._clocks: dict[str, Clock] = {}
        self._used: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._done: list[tuple[int, int, InnerStream, Draft | WholeLine]] = []
        self._count = 0
        self._line = 0
        self._end = 0
        self._held = 0
        self._cut_bare = False
        self._last = ("", "")
        self._latest = -1
        self._latest_zoned = True
        self._neighbour = TimeSource.NEXT
        self._local = LocalTimes(clock())
        self.observed_ns = 0
        """When the bytes were read, ns since 1970 UTC."""

    def decide(self, data: bytes, *, whole: bool = False) -> bytes | None:
        """Take the next bytes of a stream of which it is not known what it is.

        Gives all its bytes so far where it has no envelopes, so that it needs no unwrapping; else
        None. whole: whether no more bytes are to be waited for.
        """
        sample = self._sample
        if sample is None:
            self.feed(data)
            return None
        sample += data
        if not whole and b"\n" not in data and len(sample) < SAMPLE_BYTES:
            return None
        head = bytes(sample[:SAMPLE_BYTES])
        full = len(sample) >= SAMPLE_BYTES
        raw = head.split(b"\n")
        if not (whole or (full and len(raw) == 1)):
            # A line without its end yet could still turn out to be another.
            raw.pop()
        lines = [text.decode(errors="backslashreplace").lstrip("\ufeff") for text in raw]
        bare = self._forced == "auto" and not may_have_envelope(lines)
        if not (bare or whole or full or len(raw) >= SAMPLE_LINES):
            return None
        if not bare:
            self._layers = detect(lines[:SAMPLE_LINES], self._forced, whole=whole or full)
        self._sample = None
        if not self._layers:
            return bytes(sample)
        self._dated = any(map(gives_time, self._layers))
        times = [self._time_of(self._unwrap(line)) for line in lines[:SAMPLE_LINES]]
        self._latest = next((time for time in times if time >= 0), -1)
        self.feed(bytes(sample))
        return None

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        self._observe()
        self._take(self._splitter.feed(data))
        self._give()

    def flush(self) -> None:
        """The end: what is open is closed and given out."""
        self._observe()
        self._take(self._splitter.flush())
        self._end += 1
        for stream in list(self._streams.values()):
            self._close(stream)
        self._give()

    def expire(self) -> None:
        """A pause: gives out the records whose lines have all been seen for sure."""
        self._observe()
        for stream in self._open:
            self._add(stream, stream.expire(self._end, end=False))
        self._give()

    def _observe(self) -> None:
        for stream in self._streams.values():
            stream.joiner.observed_ns = self.observed_ns

    def _take(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._cut_bare = block.cut
            for line, offset in zip(block.lines, block.offsets, strict=True):
                self._line += 1
                self._end = offset
                if block.continued:
                    # What was cut goes on where it began.
                    piece = Piece(line, name=self._last[0], iostream=self._last[1])
                else:
                    piece = self._unwrap(line.lstrip("\ufeff") if offset == 0 else line)
                self._route(piece, offset)
        self._cut_bare = False

    def _unwrap(self, line: str) -> Piece:
        piece = Piece(line)
        for layer in self._layers:
            if not layer(piece):
                break
        return piece

    def _route(self, piece: Piece, offset: int) -> None:
        """Bring a piece into its inner stream."""
        stream = self._stream(piece)
        if piece.resource:
            stream.resource = piece.resource
        self._silence()
        position = offset
        if piece.rotates:
            position += piece.time << OFFSET_BITS
        if not stream.parts:
            stream.position = position
        self._held -= stream.size
        stream.add_part(piece.text)
        self._held += stream.size
        full = stream.size > MAX_LINE_LENGTH or self._held > MAX_HELD
        if piece.partial and not full:
            return
        text = "".join(stream.parts)
        self._held -= stream.size
        stream.parts, stream.size = [], 0
        self._time(stream.joiner, piece)
        cut = self._cut_bare or piece.partial
        if "\n" in text and not cut:
            for number, line in enumerate(text.split("\n")):
                self._add(stream, stream.feed(line, stream.position + number, offset))
            return
        self._add(stream, stream.feed(text, stream.position, offset, cut=cut))

    def _time(self, joiner: InnerJoiner, piece: Piece) -> None:
        """Tell the joiner the envelope's time of the line that comes next."""
        joiner.zoned, joiner.fine = piece.time >= 0, piece.fine
        joiner.envelope_ns = self._time_of(piece)
        if joiner.envelope_ns >= 0:
            joiner.clock.reference = joiner.envelope_ns / NS
            self._latest, self._neighbour = joiner.envelope_ns, TimeSource.PREVIOUS
            self._latest_zoned = joiner.zoned
        elif self._latest >= 0:
            shift = 0 if self._latest_zoned else self._local.shift * NS
            joiner.follow(max(self._latest - shift, 0), self._neighbour)

    def _time_of(self, piece: Piece) -> int:
        """The time of an envelope, ns since 1970; -1 for none."""
        if piece.time >= 0 or not piece.local:
            return piece.time
        resolved = self._local.clock.resolve(piece.local, "month_day", 0)
        return -1 if resolved is None else resolved[0] * NS + piece.fraction

    def _stream(self, piece: Piece) -> InnerStream:
        """The inner stream of a container, pod or unit and an iostream, made when first seen."""
        name, iostream = key = piece.name, piece.iostream
        stream = self._streams.pop(key, None)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                self._close(self._streams.pop(next(iter(self._streams))))
            clock = self._clocks.get(name)
            if clock is None:
                if len(self._clocks) >= MAX_STREAMS:
                    self._clocks.clear()
                clock = self._clocks[name] = self._make_clock()
                # No two records of the stream share a time, whichever container they are of.
                clock.used, clock.taken = self._used, self._taken
            stream = InnerStream(self._join(clock, self._dated), name, iostream)
            stream.joiner.local = self._local
            stream.joiner.observed_ns = self.observed_ns
            stream.fine = piece.fine
        self._streams[key] = stream
        self._last = key
        self._open.pop(stream, None)
        self._open[stream] = None
        stream.last_line = self._line
        return stream

    def _silence(self) -> None:
        """Close the records of what has been silent for long: they hold back all others."""
        oldest = next(iter(self._open))
        if self._line - oldest.last_line > MAX_SILENCE:
            del self._open[oldest]
            self._add(oldest, oldest.expire(self._end, end=not self._dated))

    def _close(self, stream: InnerStream) -> None:
        if stream.parts:
            text = "".join(stream.parts)
            self._held -= stream.size
            stream.parts, stream.size = [], 0
            self._add(stream, stream.feed(text, stream.position, self._end))
        self._add(stream, stream.expire(self._end, end=True))
        self._open.pop(stream, None)

    def _add(self, stream: InnerStream, items: Iterable[tuple[int, Draft | WholeLine]]) -> None:
        for place, item in items:
            self._count += 1
            heapq.heappush(self._done, (place, self._count, stream, item))

    def _give(self) -> None:
        """Give out what nothing open comes before."""
        for stream, item in self._complete():
            self._emit(stream, item)

    def _complete(self) -> Iterator[tuple[InnerStream, Draft | WholeLine]]:
        oldest = min(
            (stream.places[0] for stream in self._streams.values() if stream.places), default=None
        )
        while self._done and (oldest is None or self._done[0][0] < oldest):
            _, _, stream, item = heapq.heappop(self._done)
            yield stream, item
