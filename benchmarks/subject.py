"""The subject of the benchmarks: a log file through the public API, NDJSON thrown away.

Run as ``python -m benchmarks.subject FILE`` it prints its own peak memory as JSON, so that a
benchmark can measure a process that has done nothing else.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from vllm_logpipe import Normalizer, encode_ndjson

BLOCK = 64 * 1024
_RECOGNISED = b'"event_name":'


@dataclass(frozen=True)
class Outcome:
    """What came out of one run."""

    records: int
    bytes: int
    recognised: int


def run(path: Path, normalizer: Normalizer | None = None, *, look: bool = False) -> Outcome:
    """Normalise `path` in blocks and throw the NDJSON away; `look` counts the recognised."""
    normalizer = normalizer or Normalizer(source="bench")
    records = size = recognised = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            batch = normalizer.feed(block)
            out = encode_ndjson(batch)
            records += len(batch)
            size += len(out)
            if look:
                recognised += out.count(_RECOGNISED)
    batch = normalizer.flush()
    out = encode_ndjson(batch)
    if look:
        recognised += out.count(_RECOGNISED)
    return Outcome(records + len(batch), size + len(out), recognised)


def peak_kib() -> int:
    """Return the largest resident set of this process so far, in KiB."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def main() -> None:
    """Print what one run in a fresh process took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    path: Path = parser.parse_args().file
    normalizer = Normalizer(source="bench")
    before = peak_kib()
    start = time.process_time()
    outcome = run(path, normalizer)
    facts = {"cpu": time.process_time() - start, "idle_kib": before, "peak_kib": peak_kib()}
    json.dump(asdict(outcome) | facts, sys.stdout)


if __name__ == "__main__":
    main()
