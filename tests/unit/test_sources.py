"""Files as bytes: plain, gzip and zstd, whole or as they grow."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from vllm_logpipe.sources.file import BLOCK_SIZE, FileSource, SourceError

LINES = b"".join(b"a made-up line, number %d\n" % number for number in range(20_000))


def read(path: Path) -> bytes:
    """The content of a file."""
    with closing(FileSource(str(path))) as source:
        return b"".join(source.blocks())


def read_as_far_as_possible(path: Path) -> tuple[bytes, str]:
    """What could be read of a damaged file, and the error."""
    blocks: list[bytes] = []
    with closing(FileSource(str(path))) as source, pytest.raises(SourceError) as error:
        blocks.extend(source.blocks())
    return b"".join(blocks), str(error.value)


def zstd(data: bytes) -> bytes:
    """A zstd frame."""
    return zstandard.ZstdCompressor().compress(data)


def zstd_stream(data: bytes) -> bytes:
    """A zstd frame that does not tell its size, as `zstd` writes from a pipe."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("data", [b"", b"x", b"x\n", b"\x1f", b"\x28\xb5", b"\x00" * 9, LINES])
def test_a_plain_file_is_read_as_it_is(tmp_path: Path, data: bytes) -> None:
    """Any bytes come out unchanged, in blocks of a bounded size."""
    path = tmp_path / "a.log"
    path.write_bytes(data)
    with closing(FileSource(str(path))) as source:
        blocks = list(source.blocks())
    assert b"".join(blocks) == data
    assert all(0 < len(block) <= BLOCK_SIZE for block in blocks)


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(LINES),
        gzip.compress(LINES[:1000]) + gzip.compress(LINES[1000:]),
        gzip.compress(LINES) + b"\x00" * 512,
        zstd(LINES),
        zstd(LINES[:1000]) + zstd(LINES[1000:]),
        zstd_stream(LINES),
    ],
    ids=["gzip", "gzip members", "gzip padded", "zstd", "zstd frames", "zstd stream"],
)
def test_a_packed_file_is_unpacked(tmp_path: Path, packed: bytes) -> None:
    """The content tells the packing, not the name."""
    path = tmp_path / "a.log"
    path.write_bytes(packed)
    assert read(path) == LINES
    with closing(FileSource(str(path))) as source:
        assert source.is_packed()


@pytest.mark.parametrize("pack", [gzip.compress, zstd, zstd_stream], ids=["gzip", "zstd", "stream"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 1.0])
def test_a_truncated_file_gives_what_is_there(
    tmp_path: Path, pack: Callable[[bytes], bytes], share: float
) -> None:
    """The beginning of a file that was cut off is read; then the error is told in one line."""
    content = random.Random(1).randbytes(300_000) + LINES
    packed = pack(content)
    path = tmp_path / "a.log"
    path.write_bytes(packed[: min(int(len(packed) * share), len(packed) - 1)])
    data, error = read_as_far_as_possible(path)
    assert content.startswith(data)
    assert len(data) >= 100_000 or share < 0.5
    assert error.startswith(f"{path}: ")
    assert "\n" not in error


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_corrupt_file_gives_what_is_there(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Up to the damage a file is read; then the error is told in one line."""
    content = random.Random(1).randbytes(300_000) + LINES
    packed = bytearray(pack(content))
    packed[-2000:-1000] = bytes(1000)
    path = tmp_path / "a.log"
    path.write_bytes(packed)
    data, error = read_as_far_as_possible(path)
    assert data[:100_000] == content[:100_000]
    assert error.startswith(f"{path}: ")
    assert "\n" not in error


def test_a_zstd_file_may_not_ask_for_any_memory(tmp_path: Path) -> None:
    """A frame with a window of gigabytes is refused."""
    parameters = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "a.zst"
    path.write_bytes(packer.compress(b"x" * 1000) + packer.flush())
    data, error = read_as_far_as_possible(path)
    assert data == b""
    assert error.startswith(f"{path}: ")


def make_loop(path: Path) -> None:
    """A link to itself."""
    path.symlink_to(path)


@pytest.mark.parametrize(
    "make", [lambda _path: None, Path.mkdir, make_loop], ids=["missing", "directory", "loop"]
)
def test_a_file_that_does_not_open_is_told_in_one_line(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    """The error names the file and the reason."""
    path = tmp_path / "a.log"
    make(path)
    with pytest.raises(SourceError, match=r"^[^\n]*a\.log: [A-Z][^\n]+$"):
        FileSource(str(path))


def test_a_file_that_opens_but_is_not_readable_is_told_in_one_line() -> None:
    """The memory of a process opens, but cannot be read at its start."""
    with pytest.raises(SourceError, match=r"^/proc/self/mem: [^\n]+$"):
        FileSource("/proc/self/mem")


def test_a_file_is_known_by_path_device_and_inode(tmp_path: Path) -> None:
    """Another file of the same name is another stream, another way to a file is not."""
    path = tmp_path / "a.log"
    path.write_bytes(b"x")
    (tmp_path / "link").symlink_to(path)
    found = []
    for name in (path, tmp_path / "." / "a.log", tmp_path / "link"):
        with closing(FileSource(str(name))) as source:
            found.append(source.identity)
    assert len(set(found)) == 1
    (tmp_path / "b.log").write_bytes(b"x")
    (tmp_path / "b.log").rename(path)
    with closing(FileSource(str(path))) as source:
        assert source.identity != found[0]


def test_size_and_time_of_a_file_are_known(tmp_path: Path) -> None:
    """They serve the progress bar and the year."""
    path = tmp_path / "a.log"
    path.write_bytes(LINES)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    with closing(FileSource(str(path))) as source:
        assert (source.size, source.modified) == (len(LINES), 1_700_000_000)
        for _ in source.blocks():
            pass
        assert source.position == len(LINES)


def test_what_is_appended_is_read_on(tmp_path: Path) -> None:
    """At the end of a file nothing comes, until something is added."""
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    with closing(FileSource(str(path))) as source:
        assert source.more() == b"one\n"
        assert source.more() == b""
        with path.open("ab") as file:
            file.write(b"two")
        assert source.more() == b"two"
        assert source.more() == b""
        assert not source.replaced()


def test_a_file_that_takes_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    """Renaming alone does not end a file, as its writer may go on; a new file of the name does."""
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    with closing(FileSource(str(path))) as source:
        source.more()
        path.rename(tmp_path / "a.log.1")
        assert not source.replaced()
        path.write_bytes(b"")
        assert source.replaced()


def test_a_file_that_is_cut_short_is_noticed(tmp_path: Path) -> None:
    """A file that is smaller than what was read has begun anew."""
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    with closing(FileSource(str(path))) as source:
        source.more()
        with path.open("r+b") as file:
            file.truncate(0)
            assert source.replaced()
            file.write(b"x")
        assert source.replaced()


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    """A named pipe has no size, and is never replaced."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, b"x\n")
    with closing(FileSource(str(path))) as source:
        assert (source.size, source.position) == (None, 0)
        assert source.more() == b"x\n"
        assert not source.replaced()
    os.close(writer)
