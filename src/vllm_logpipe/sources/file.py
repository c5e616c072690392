"""Files as bytes: plain, gzip and zstd, whole or as they grow."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import zstandard

BLOCK_SIZE = 65_536
"""Bytes read at once: more does not fit the processor's cache, and is slower."""
MAX_ZSTD_WINDOW = 128 * 1024 * 1024
"""Bytes of memory that a zstd file may ask for."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class SourceError(Exception):
    """A file that cannot be read (on); the text is one line."""


class FileSource:
    """One file, or standard input for `-`.

    Raises SourceError for a file that does not open.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.size: int | None = None
        self.modified: float | None = None
        self.identity = "stdin"
        self._file: io.BufferedReader
        if name == "-":
            self._file = sys.stdin.buffer  # type: ignore[assignment]
            return
        path = Path(name)
        try:
            self._file = path.open("rb")
            self._file.peek(1)
            status = os.fstat(self._file.fileno())
        except OSError as error:
            raise SourceError(f"{name}: {error.strerror}") from error
        self.identity = f"{path.resolve()}\0{status.st_dev}\0{status.st_ino}"
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None
        self.modified = status.st_mtime

    @property
    def position(self) -> int:
        """Bytes of the file read so far, before they are unpacked."""
        return 0 if self.size is None else self._file.tell()

    def blocks(self) -> Iterator[bytes]:
        """The content, unpacked. Raises SourceError where it does not go on."""
        try:
            yield from self._blocks()
        except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SourceError(f"{self.name}: {reason}") from error

    def more(self) -> bytes:
        """What has been written to the file since it was last read; empty for nothing."""
        return self._file.read1(BLOCK_SIZE)

    def replaced(self) -> bool:
        """Whether the name leads to another file by now, or the file was cut short."""
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
        """Whether the content begins as gzip or zstd does."""
        return self._file.peek(4).startswith((_GZIP, _ZSTD))

    def _blocks(self) -> Iterator[bytes]:
        first = self._file.peek(4)
        if first.startswith(_GZIP):
            unpacked = gzip.GzipFile(fileobj=self._file)
            while data := unpacked.read1(BLOCK_SIZE):
                yield data
        elif first.startswith(_ZSTD):
            unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW)
            with unpacker.stream_reader(
                self._file, read_across_frames=True, closefd=False
            ) as reader:
                while data := reader.read(BLOCK_SIZE):
                    yield data
        else:
            while data := self._file.read1(BLOCK_SIZE):
                yield data
