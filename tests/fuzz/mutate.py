"""Streams made by mutating what programs print."""

from __future__ import annotations

import gzip
import random
import tomllib
from functools import cache
from pathlib import Path

from vllm_logpipe.catalogue.loader import read_built_in

TESTS = Path(__file__).parents[1]
RECORDED = Path(__file__).parent / "recorded"
"""Inputs that once showed a fault: each is tried first."""

TOKENS = (
    *(b"\r", b"\n", b"\r\n", b"\x1b[32m", b"\x1b[0m", b"\x00", b"\xff", b"\xed\xa0\x80"),
    *(b"\xe2\x80\xa8", b"'", b'"', b"\\", b"{", b"}", b"[", b"]", b"(", b")", b": ", b", "),
    *(b"=", b"%", b"%|", b"/", b"<", b"9" * 400, b"-1", b"nan", b"1e999"),
    b"Traceback (most recent call last):\n",
    b'  File "a.py", line 1, in f\n',
    b"ValueError: ",
    b"INFO 11-30 12:00:01 [a.py:1] ",
    b"(EngineCore pid=7) ERROR 11-30 12:00:01 [a.py:1] ",
    b"[rank0]:[E1012 22:31:22.000000001 P.cpp:607] ",
    b"node-1:811:1024 [0] NCCL WARN ",
    b"2026-11-30T12:00:00.000000000Z stdout F ",
    b"2026-11-30T12:00:00.000000000Z stderr P ",
    b'{"log":"',
    b'","stream":"stdout","time":"2026-11-30T12:00:00Z"}',
    *(b"params: SamplingParams(", b"Aborted request(s) ", b"Received request ", b", params: "),
    b" [repeated 7x across cluster]",
    b"0%|          | 0/7 [00:00<?, ?it/s]",
    b"https://u:p@h/?q=1",
)


@cache
def pool() -> tuple[bytes, ...]:
    """Lines of the corpus, of real logs, and the samples of the catalogue."""
    lines: set[bytes] = set()
    for path in sorted((TESTS / "corpus").glob("*.log")):
        lines.update(path.read_bytes().split(b"\n")[:200])
    for path in sorted((TESTS / "data" / "logs").glob("*.log.gz")):
        every = gzip.decompress(path.read_bytes()).split(b"\n")
        lines.update(every[:: max(1, len(every) // 150)])
    for _, file in read_built_in():
        for entry in file.event:
            lines.update(sample.line.encode("utf-8", "surrogateescape") for sample in entry.sample)
    rows = tomllib.loads((TESTS / "data" / "error_rows.toml").read_text())
    lines.update(text.encode() for text in _texts(rows))
    return tuple(sorted(line for line in lines if len(line) < 20_000))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return []


def stream(chance: random.Random) -> bytes:
    """A stream of mutated lines."""
    lines = [chance.choice(pool()) for _ in range(chance.randint(1, 30))]
    if chance.random() < 0.3:
        lines = [chance.choice(lines) for _ in range(chance.randint(1, 60))]
    lines = [_mutated(line, chance) if chance.random() < 0.5 else line for line in lines]
    if chance.random() < 0.2:
        lines = [_wrapped(line, chance) for line in lines]
    for _ in range(chance.randrange(3)):
        word = bytes(chance.randrange(97, 123) for _ in range(8))
        lines.insert(chance.randrange(len(lines) + 1), b"oddword" + word)
    end = chance.choice((b"\n", b"\n", b"\r\n"))
    data = end.join(lines) + (end if chance.random() < 0.8 else b"")
    if chance.random() < 0.1:
        cut = chance.randrange(len(data) + 1)
        data = data[cut:] + data[:cut]
    return data


def _mutated(line: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(line) + 1)
        other = chance.randrange(len(line) + 1)
        first, last = min(place, other), max(place, other)
        match chance.randrange(8):
            case 0:
                line = line[:place] + chance.choice(TOKENS) + line[place:]
            case 1:
                line = line[:first] + line[last:]
            case 2:
                line = line[:place] + line[first:last] * chance.randint(1, 5) + line[place:]
            case 3:
                mate = chance.choice(pool())
                line = line[:place] + mate[chance.randrange(len(mate) + 1) :]
            case 4:
                line = line[:place] + bytes([chance.randrange(256)]) + line[place + 1 :]
            case 5:
                line = line[:place] + chance.choice(TOKENS) * chance.choice((2, 40)) + line[place:]
            case 6:
                line = line[first:last]
            case _:
                line = line + chance.choice(TOKENS) + chance.choice(pool())
    return line[:100_000]


def _wrapped(line: bytes, chance: random.Random) -> bytes:
    stream = chance.choice((b"stdout", b"stderr"))
    flag = chance.choice((b"F", b"F", b"F", b"P"))
    second = chance.randrange(60)
    return b"2026-11-30T12:00:%02d.123456789Z %s %s %s" % (second, stream, flag, line)
