"""Files as bytes: plain, gzip and zstd, whole or as they grow."""

from __future__ import annotations

import gzip
import io
import os
import select
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

BLOCK_SIZE = 65_536
"""Bytes read at once: more does not fit the processor's cache, and is slower."""
MAX_ZSTD_WINDOW = 128 * 1024 * 1024
"""Bytes of memory that a zstd file may ask for."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_PIECE = 4096
"""Packed bytes taken at once: four can stand for 128 KiB, so more might not fit into memory."""


class SourceError(Exception):
    """A file that cannot be read (on); the text is one line."""


class FileSource:
    """One file, or standard input for `-`.

    waits: whether a named pipe is waited for until somebody writes to it.
    stdin: what identifies standard input, which says nothing of where it comes from.

    Raises SourceError for a file that does not open.
    """

    def __init__(self, name: str, *, waits: bool = True, stdin: str = "stdin") -> None:
        self.name = name
        self.size: int | None = None
        """Bytes; None where that is not known before the end."""
        self.modified: float | None = None
        """s since 1970 UTC; None for standard input."""
        self.identity = stdin
        self.ended = False
        """Whether all has been read that there will ever be; a file may always grow."""
        self._file = self._open(waits=waits)
        try:
            status = os.fstat(self._file.fileno())
            self._regular = stat.S_ISREG(status.st_mode)
            if self._regular:
                # Some files open and are not readable.
                self._file.peek(1)
        except OSError as error:
            self.close()
            raise self._error(error) from error
        self._grows = self._regular and name != "-"
        self._waiting = select.poll()
        self._waiting.register(self._file, select.POLLIN)
        if name != "-":
            self.identity = f"{Path(name).resolve()}\0{status.st_dev}\0{status.st_ino}"
            self.size = status.st_size if self._regular else None
            self.modified = status.st_mtime

    @property
    def position(self) -> int:
        """Bytes of the file read so far, before they are unpacked."""
        return 0 if self.size is None else self._file.tell()

    def blocks(self) -> Iterator[bytes]:
        """The content, unpacked. Raises SourceError where it does not go on."""
        try:
            first = self._file.peek(4)
            if first.startswith(_GZIP):
                yield from _blocks(gzip.GzipFile(fileobj=self._file))
            elif first.startswith(_ZSTD):
                yield from self._zstd_blocks()
            else:
                yield from _blocks(self._file)
        except (OSError, EOFError, zlib.error) as error:
            raise self._error(error) from error

    def more(self) -> bytes:
        """What has been written to the file since it was last read; empty for nothing.

        A pipe is not waited for. Raises SourceError where reading fails.
        """
        try:
            if not self._grows and not self._waiting.poll(0):
                return b""
            data = self._file.read1(BLOCK_SIZE)
        except OSError as error:
            raise self._error(error) from error
        self.ended = not self._grows and not data
        return data

    def replaced(self) -> bool:
        """Whether the name leads to another file by now, or the file was cut short."""
        if not self._grows:
            return False
        try:
            status = Path(self.name).stat()
        except OSError:
            return False
        mine = os.fstat(self._file.fileno())
        if (status.st_dev, status.st_ino) != (mine.st_dev, mine.st_ino):
            return True
        return status.st_size < self._file.tell()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self.name != "-":
            self._file.close()

    def is_packed(self) -> bool:
        """Whether a regular file begins as gzip or zstd does."""
        return self._regular and self._file.peek(4).startswith((_GZIP, _ZSTD))

    def pipe(self) -> int | None:
        """The descriptor that tells when there is more; None for a file that grows."""
        return None if self._grows else self._file.fileno()

    def _open(self, *, waits: bool) -> io.BufferedReader:
        if self.name == "-":
            if sys.stdin is None:
                raise SourceError("-: standard input is closed")
            return sys.stdin.buffer  # type: ignore[return-value]
        try:
            return io.BufferedReader(io.FileIO(self.name, opener=None if waits else _open_at_once))
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> SourceError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return SourceError(f"{self.name}: {reason}")

    def _zstd_blocks(self) -> Iterator[bytes]:
        # Most logs are not packed, and the import takes its time.
        import zstandard

        unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
        frame = unpacker.decompressobj()
        try:
            while packed := self._file.read1(_ZSTD_PIECE):
                while packed:
                    if frame.eof:
                        frame = unpacker.decompressobj()
                    data = frame.decompress(packed)
                    for start in range(0, len(data), BLOCK_SIZE):
                        yield data[start : start + BLOCK_SIZE]
                    packed = frame.unused_data
        except zstandard.ZstdError as error:
            raise self._error(error) from error
        if not frame.eof:
            raise EOFError("Compressed file ended before the end of its last frame")


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)


def _blocks(file: io.BufferedReader | gzip.GzipFile) -> Iterator[bytes]:
    while data := file.read1(BLOCK_SIZE):
        yield data
