"""What signals cost beside the normaliser alone: two of them fed the same blocks in turn.

Run ``python -m benchmarks.signals``. Both put out NDJSON that is thrown away; the clock of the
machine varies, so only the ratio holds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.corpus import write_corpus
from benchmarks.subject import BLOCK
from benchmarks.timing import median, pin, say
from vllm_logpipe import Normalizer, encode_ndjson
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.sinks.signals import encode_signals


def compare(path: Path) -> tuple[float, float, int, int]:
    """CPU s of the normaliser alone and with signals; records, and signals beside them."""
    alone, deriving = Normalizer("bench"), Normalizer("bench")
    deriver = Deriver()
    plain = signalled = 0.0
    records = signals = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            start = time.process_time()
            encode_ndjson(alone.feed(block))
            middle = time.process_time()
            found = deriver.take(deriving.feed(block))
            encode_signals(found)
            end = time.process_time()
            plain += middle - start
            signalled += end - middle
            records += block.count(b"\n")
            signals += len(found)
    start = time.process_time()
    for part in deriver.drain():
        encode_signals(part)
    signalled += time.process_time() - start
    return plain, signalled, records, signals


def main() -> None:
    """Print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000, help="lines of the made corpus")
    parser.add_argument("--repeat", type=int, default=3, help="runs; the median counts")
    options = parser.parse_args()
    say(f"{pin()}, CPU time, median of {options.repeat}")
    with tempfile.TemporaryDirectory(prefix="logpipe-bench-") as directory:
        path = Path(directory, "corpus.log")
        write_corpus(path, options.lines)
        runs = [compare(path) for _ in range(options.repeat)]
    lines = options.lines
    for name, place in (("bytes -> NDJSON", 0), ("bytes -> signals as NDJSON", 1)):
        seconds = median([run[place] for run in runs])
        say(f"{name:32}{seconds / lines * 1e6:9.2f} us/line")
    ratio = median([run[1] / run[0] for run in runs])
    say(f"{'signals / normaliser alone':32}{ratio:9.2f}")


if __name__ == "__main__":
    main()
