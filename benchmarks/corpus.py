"""Writes a mixed corpus: four interleaved vLLM servers of three header eras in one file.

`write_corpus` streams to disk. The shares are of physical lines and hold for every thousand:
40 % access lines, 25 % request lines, 15 % periodic statistics, 10 % scheduler and memory lines,
5 % lines no catalogue entry knows, 5 % tracebacks, c10d and NCCL lines. One seed gives one file.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

from benchmarks import trouble, wordings
from benchmarks.values import Context, Text, compile_text

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.wordings import Wording

SHARES = {
    "access": 400,
    "request": 250,
    "stats": 150,
    "scheduler": 100,
    "unknown": 50,
    "trouble": 50,
}
_FAILURE_SLOTS = 32
_START = datetime(2026, 11, 30, 11, 40, tzinfo=UTC)
_BATCH = 2048


@dataclass(frozen=True)
class CorpusFacts:
    """What a corpus holds: sizes, physical lines a kind, and what must come out unrecognised."""

    lines: int
    bytes: int
    kinds: dict[str, int]
    unknown: int
    wordings: int
    first: str
    last: str


@dataclass
class _Server:
    """One vLLM server: its era and the name and pid of each of its processes."""

    era: str
    pids: dict[str, tuple[str, int]]
    context: Context = field(repr=False)

    def header(self, role: str, level: str, place: str) -> str:
        """Return the header of a vLLM record."""
        stamp = self.context.stamp
        if self.era == "8":
            return f"{level} {stamp} [{place}] "
        return f"{self.prefix(role)}{level} {stamp} [{place}] "

    def prefix(self, role: str) -> str:
        """Return the process prefix of a vLLM record."""
        if self.era == "8":
            return ""
        name, pid = self.pids[role]
        return f"({name} pid={pid}) "

    def stream_prefix(self, role: str) -> str:
        """Return the prefix of what a process prints outside vLLM's logger."""
        return self.prefix(role) if self.era == "16" else ""


def _servers(rng: Random) -> list[_Server]:
    first_id = compile_text("@{rid}")
    servers = []
    for index, era in enumerate(("32", "32", "16", "8")):
        pid = 4000 + index * 1500 + int(rng.random() * 1000)
        core = "EngineCore_DP0" if era == "16" else "EngineCore"
        pids = {"api": ("APIServer", pid), "core": (core, pid + 57), "worker": ("Worker", pid + 91)}
        server = _Server(era, pids, Context(Random(rng.getrandbits(64))))
        first_id(server.context)
        servers.append(server)
    return servers


Line = Callable[[_Server], str]


def _line(wording: Wording) -> Line:
    text: Text = compile_text(wording.text)
    era, role, level, place, _ = wording
    if role == "uvicorn":
        return lambda server: f"{server.stream_prefix('api')}{level}:     {text(server.context)}\n"
    if era == "raw":
        return lambda server: text(server.context) + "\n"
    if era == "seed":
        return lambda server: f"{level} {server.context.stamp} {place}] {text(server.context)}\n"
    return lambda server: f"{server.header(role, level, place)}{text(server.context)}\n"


def _by_server(pool: Sequence[Wording], servers: list[_Server]) -> list[tuple[_Server, Line]]:
    """Return who may print what; every wording has the same weight."""
    choices: list[tuple[_Server, Line]] = []
    for wording in pool:
        line = _line(wording)
        if wording.era in ("raw", "seed"):
            printers = [servers[-1]]
        else:
            printers = [server for server in servers if wording.era in (server.era, "*")]
        choices.extend((printer, line) for printer in printers)
        if wording.era != "*" and len(printers) == 1:
            choices.append((printers[0], line))
    return choices


class _Failures:
    """Writes tracebacks and transport lines."""

    def __init__(self, rng: Random, servers: list[_Server]) -> None:
        self._rng = rng
        self._servers = servers
        self._frames = [compile_text(frame) for frame in trouble.FRAMES]
        self._headed = [(each, compile_text(each.exception)) for each in trouble.HEADED]
        self._bare = [(each, compile_text(each.exception)) for each in trouble.BARE]
        self._transport = [compile_text(text) for text in trouble.TRANSPORT]

    def _pick(self, era: str) -> _Server:
        fitting = [server for server in self._servers if era in (server.era, "rank")]
        return self._rng.choice(fitting)

    def _body(self, context: Context, exception: Text) -> list[str]:
        lines = ["Traceback (most recent call last):"]
        for frame in self._rng.choices(self._frames, k=self._rng.randint(2, 6)):
            lines.extend(frame(context).split("\n"))
        lines.append(exception(context))
        return lines

    def draw(self) -> tuple[list[str], list[str]]:
        """Return lines to write at once, and lines that others may come between."""
        draw = self._rng.random()
        if draw < 0.05:
            return [], self._with_header()
        if draw < 0.10:
            return self._without_header(), []
        server = self._rng.choice(self._servers)
        return [self._rng.choice(self._transport)(server.context) + "\n"], []

    def _with_header(self) -> list[str]:
        """Return a traceback with vLLM's header on each line; all but the last end in CR."""
        failure, exception = self._rng.choice(self._headed)
        server = self._pick(failure.era)
        head = server.header(failure.role, "ERROR", failure.place)
        lines = [failure.opening, *self._body(server.context, exception)]
        return [f"{head}{line}\r\n" for line in lines[:-1]] + [f"{head}{lines[-1]}\n"]

    def _without_header(self) -> list[str]:
        """Return a traceback without header."""
        failure, exception = self._rng.choice(self._bare)
        server = self._pick(failure.era)
        prefix = "[rank0]: " if failure.era == "rank" else ""
        if failure.era == "16":
            prefix = server.stream_prefix(failure.role)
        lines = self._body(server.context, exception)
        if failure.opening:
            lines.insert(0, failure.opening)
        return [f"{prefix}{line}\n" for line in lines]


class _Clock:
    """Advances the servers' shared clock: up to some hundreds of lines a second, with pauses."""

    def __init__(self, rng: Random, servers: list[_Server]) -> None:
        self._rng = rng
        self._servers = servers
        self._now = _START
        self._left = 0
        self._set()

    def _set(self) -> None:
        self.stamp = self._now.strftime("%m-%d %H:%M:%S")
        for server in self._servers:
            server.context.stamp = self.stamp

    def tick(self) -> None:
        """Count one line."""
        self._left -= 1
        if self._left > 0:
            return
        pause = self._rng.randint(2, 40) if self._rng.random() < 0.02 else 1
        self._now += timedelta(seconds=pause)
        self._left = self._rng.randint(10, 500)
        self._set()


def _generate(rng: Random) -> Iterator[tuple[str, str]]:
    """Yield kind and line without end."""
    servers = _servers(rng)
    clock = _Clock(rng, servers)
    failures = _Failures(rng, servers)
    pools = {
        "access": _by_server(wordings.ACCESS, servers),
        "request": _by_server(wordings.REQUESTS, servers),
        "stats": _by_server(wordings.STATS, servers),
        "scheduler": _by_server(wordings.SCHEDULER, servers),
        "unknown": _by_server(wordings.UNKNOWN, servers),
    }
    kinds = [kind for kind, share in SHARES.items() if kind != "trouble" for _ in range(share)]
    kinds += ["trouble"] * _FAILURE_SLOTS
    pending: deque[str] = deque()
    allowance = 0
    while True:
        rng.shuffle(kinds)
        allowance += SHARES["trouble"]
        for kind in kinds:
            for _ in range(min(len(pending), 4)):
                yield "trouble", pending.popleft()
            if kind != "trouble":
                pool = pools[kind]
                server, line = pool[int(rng.random() * len(pool))]
                yield kind, line(server)
                clock.tick()
            elif allowance > 0:
                together, apart = failures.draw()
                allowance -= len(together) + len(apart)
                pending.extend(apart)
                for text in together:
                    yield "trouble", text


def count_wordings() -> int:
    """Return the number of distinct wordings a corpus can hold."""
    named = (wordings.REQUESTS, wordings.ACCESS, wordings.STATS, wordings.SCHEDULER)
    texts = {wording.text for pool in (*named, wordings.UNKNOWN) for wording in pool}
    return len(texts) + len(trouble.HEADED) + len(trouble.BARE) + len(trouble.TRANSPORT)


def write_corpus(path: Path, lines: int, seed: int = 1) -> CorpusFacts:
    """Write `lines` physical lines to `path` and returns what they are."""
    counts: Counter[str] = Counter()
    size = 0
    batch: list[str] = []
    first = last = ""
    source = _generate(Random(seed))
    with path.open("wb") as file:
        for number in range(1, lines + 1):
            kind, text = next(source)
            counts[kind] += 1
            batch.append(text)
            if len(batch) == _BATCH or number == lines:
                data = "".join(batch).encode()
                size += file.write(data)
                first = first or batch[0].rstrip()
                last = batch[-1].rstrip()
                batch.clear()
    return CorpusFacts(
        lines=lines,
        bytes=size,
        kinds=dict(counts),
        unknown=counts["unknown"],
        wordings=count_wordings(),
        first=first,
        last=last,
    )
