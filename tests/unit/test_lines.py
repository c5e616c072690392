"""From blocks of bytes to lines."""

from __future__ import annotations

import pytest

from vllm_logpipe.read.lines import MAX_LINE_LENGTH, LineSplitter


def split(*pieces: bytes, limit: int = MAX_LINE_LENGTH) -> list[tuple[int, str, bool]]:
    """Offset, text and whether it goes on from the line before, of all lines of a stream."""
    splitter = LineSplitter(limit)
    blocks = [block for piece in pieces for block in splitter.feed(piece)]
    blocks += splitter.flush()
    return [
        (offset, line, block.continued)
        for block in blocks
        for offset, line in zip(block.offsets, block.lines, strict=True)
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [(0, "")]),
        (b"a\n", [(0, "a")]),
        (b"a", [(0, "a")]),
        (b"a\nb", [(0, "a"), (2, "b")]),
        (b"a\n\n\nb\n", [(0, "a"), (2, ""), (3, ""), (4, "b")]),
        (b"a\r\nb\r\r\n", [(0, "a\r"), (3, "b\r\r")]),
        (b"a\x0bb\x0cc\x1cd\x85\n", [(0, "a\x0bb\x0cc\x1cd\\x85")]),
        ("ä\u2028b\nc\n".encode(), [(0, "ä\u2028b"), (7, "c")]),
        (b"\x00\x00a\x00\nb\n", [(0, "\x00\x00a\x00"), (5, "b")]),
        (b"a\xffb\nc\n", [(0, "a\\xffb"), (4, "c")]),
        (b"\xc3\nc\n", [(0, "\\xc3"), (2, "c")]),
        (b"\xed\xa0\x80\n", [(0, "\\xed\\xa0\\x80")]),
    ],
    ids=repr,
)
def test_lines_end_at_lf_only(data: bytes, expected: list[tuple[int, str]]) -> None:
    """Each line has its byte offset; invalid UTF-8 becomes escapes; nothing else is touched."""
    assert split(data) == [(offset, line, False) for offset, line in expected]


@pytest.mark.parametrize("limit", [3, 4, 5, MAX_LINE_LENGTH])
def test_it_does_not_matter_where_the_blocks_were_cut(limit: int) -> None:
    """Any two cuts of a stream give the lines of the whole."""
    data = "a\r\nüöä\n\n0123456789ab\n\xff0123\nlast".encode() + b"\xff\xfe\nx"
    whole = split(data, limit=limit)
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            assert split(data[:first], data[first:second], data[second:], limit=limit) == whole
    assert split(*(bytes([byte]) for byte in data), limit=limit) == whole


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"12345678\n", [(0, "12345678", False)]),
        (b"123456789\nx\n", [(0, "12345678", False), (8, "9", True), (10, "x", False)]),
        (b"1234567812345678\n", [(0, "12345678", False), (8, "12345678", True)]),
        (
            b"123456781234567\r\n",
            [(0, "12345678", False), (8, "1234567\r", True)],
        ),
        (b"1\n2\n3\n4\n5\n6\n", [(n * 2, str(n + 1), False) for n in range(6)]),
        (b"123456789", [(0, "12345678", False), (8, "9", True)]),
        (b"123456789\n\n", [(0, "12345678", False), (8, "9", True), (10, "", False)]),
    ],
    ids=repr,
)
def test_a_line_over_the_limit_is_cut(data: bytes, expected: list[tuple[int, str, bool]]) -> None:
    """The pieces after the first say that they go on; a block of short lines is not cut."""
    assert split(data, limit=8) == expected


def test_no_byte_is_lost_where_a_line_is_cut() -> None:
    """A character that the cut goes through is kept as the escapes of its bytes."""
    assert split("1234567ü9\n".encode(), limit=8) == [
        (0, "1234567\\xc3", False),
        (8, "\\xbc9", True),
    ]


@pytest.mark.parametrize(
    ("data", "has_cr", "has_escape"),
    [
        (b"a\n", False, False),
        (b"a\r\n", True, False),
        (b"\x1b[0ma\n", False, True),
        (b"\xff\r\x1b\n", True, True),
    ],
    ids=repr,
)
def test_a_block_says_whether_it_holds_cr_or_escapes(
    data: bytes, *, has_cr: bool, has_escape: bool
) -> None:
    """Blocks without CR and ESC can be read faster, so they say which they hold."""
    (block,) = LineSplitter().feed(data)
    assert (block.has_cr, block.has_escape) == (has_cr, has_escape)


def test_an_unfinished_line_waits_for_its_end() -> None:
    """A line comes out when its LF is there, or at the end of the stream."""
    splitter = LineSplitter()
    assert list(splitter.feed(b"one\ntw")) != []
    assert list(splitter.feed(b"")) == []
    (block,) = splitter.feed(b"o\nthr")
    assert (block.lines, block.offsets) == (["two"], [4])
    (block,) = splitter.flush()
    assert (block.lines, block.offsets) == (["thr"], [8])
    assert list(splitter.flush()) == []
