"""Two servers that print to one stream do not mix."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.model import Signal, Span

DATA = Path(__file__).parent.parent / "data" / "logs"
HEAD = re.compile(rb"\([^)]*pid=\d+\) [A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\]")


def blocks(name: str, pid_prefix: bytes) -> list[list[bytes]]:
    """The lines of a log, those of one call of a logger together, with pids of their own."""
    found: list[list[bytes]] = []
    last: bytes | None = None
    for line in gzip.decompress((DATA / f"{name}.log.gz").read_bytes()).split(b"\n"):
        match = HEAD.match(line)
        head = match[0] if match else None
        if found and (head == last or head is None):
            found[-1].append(line)
        else:
            found.append([line])
        last = head or last
    return [[line.replace(b"pid=", b"pid=" + pid_prefix) for line in lines] for lines in found]


def interleaved(seed: int) -> bytes:
    """A healthy server, and one whose engine is killed, in one stream."""
    one, other = blocks("07c_kill_enginecore", b"7"), blocks("07_tp2", b"8")
    chance = random.Random(seed)
    lines: list[bytes] = []
    while one or other:
        take = one if not other or (one and chance.random() < 0.4) else other
        lines += take.pop(0)
    return b"\n".join(lines)


def derived(data: bytes) -> list[Signal]:
    """What is derived of a stream."""
    normalizer = Normalizer("x", reference=1_796_083_200.0)
    deriver = Deriver()
    records = [*normalizer.feed(data), *normalizer.flush()]
    return deriver.take(records) + deriver.finish()


@pytest.mark.parametrize("seed", range(8))
def test_the_failure_of_one_is_not_the_other_s(seed: int) -> None:
    """One incident, of the server that failed; requests end by what their own server prints."""
    signals = derived(interleaved(seed))
    incidents = {
        (str(s.resource["service.instance.id"]), s.attributes["error.type"])
        for s in signals
        if isinstance(s, LogRecord) and s.event_name == "vllm.incident"
    }
    ((failed, error_type),) = incidents
    assert error_type == "engine.dead"
    outcomes = Counter(
        (failed in s.resource_json, s.attributes["vllm.request.outcome"])
        for s in signals
        if isinstance(s, Span) and s.kind == "server"
    )
    assert outcomes[True, "failed"] == 12
    assert outcomes[False, "aborted"] == 3
    assert outcomes[False, "failed"] == outcomes[True, "aborted"] == 0
    assert sum(outcomes.values()) == 16 + 38
    pids = {
        str(s.attributes["process.pid"])[0]: str(s.resource["service.instance.id"])
        for s in signals
        if isinstance(s, LogRecord) and s.event_name == "vllm.request.received"
    }
    assert len(set(pids.values())) == 2
