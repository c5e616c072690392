"""From blocks of bytes to lines with their byte offsets, however the blocks were cut."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

MAX_LINE_LENGTH = 16 * 1024 * 1024
"""Bytes after which a line is cut; its further pieces count as lines of their own."""


class Block(Struct, gc=False):
    """Some lines of a stream, without LF, with the byte offset of each."""

    lines: list[str]
    offsets: list[int]
    has_cr: bool
    has_escape: bool
    continued: bool = False
    """Whether the (only) line is a further piece of a line that was cut."""
    cut: bool = False
    """Whether the (only) line goes on in a further piece."""


class LineSplitter:
    r"""Cuts a stream of bytes into lines.

    Invalid UTF-8 becomes `\xNN` escapes, so that nothing is lost and the text stays valid.
    """

    def __init__(self, max_line_length: int = MAX_LINE_LENGTH) -> None:
        self._max = max_line_length
        self._rest = bytearray()
        self._offset = 0
        self._continued = False

    def feed(self, data: bytes) -> Iterator[Block]:
        """The lines that are complete so far."""
        end = data.rfind(b"\n")
        if end < 0:
            self._rest += data
            yield from self._cut_rest()
            return
        block = bytes(self._rest) + data[:end] if self._rest else data[:end]
        self._rest = bytearray(data[end + 1 :])
        if self._continued or len(block) > self._max:
            for raw in block.split(b"\n"):
                yield from self._pieces(raw)
                self._offset += 1
                self._continued = False
        else:
            yield self._split(block)
        yield from self._cut_rest()

    def flush(self) -> Iterator[Block]:
        """The last line, when it has no end."""
        if self._rest:
            rest, self._rest = bytes(self._rest), bytearray()
            yield from self._pieces(rest)
        self._continued = False

    def _cut_rest(self) -> Iterator[Block]:
        while len(self._rest) > self._max:
            yield self._piece(bytes(self._rest[: self._max]), cut=True)
            del self._rest[: self._max]

    def _pieces(self, raw: bytes) -> Iterator[Block]:
        while len(raw) > self._max:
            yield self._piece(raw[: self._max], cut=True)
            raw = raw[self._max :]
        if raw or not self._continued:
            yield self._piece(raw, cut=False)

    def _piece(self, raw: bytes, *, cut: bool) -> Block:
        block = Block(
            [raw.decode(errors="backslashreplace")],
            [self._offset],
            b"\r" in raw,
            b"\x1b" in raw,
            self._continued,
            cut,
        )
        self._offset += len(raw)
        self._continued = True
        return block

    def _split(self, block: bytes) -> Block:
        offset = self._offset
        offsets: list[int] = []
        append = offsets.append
        if block.isascii():
            lines = block.decode("ascii").split("\n")
            for line in lines:
                append(offset)
                offset += len(line) + 1
        else:
            lines = []
            for raw in block.split(b"\n"):
                append(offset)
                offset += len(raw) + 1
                lines.append(raw.decode(errors="backslashreplace"))
        self._offset = offset
        return Block(lines, offsets, b"\r" in block, b"\x1b" in block)
