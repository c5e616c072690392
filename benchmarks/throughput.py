"""Throughput and memory: bytes to NDJSON bytes on one core, beside the floors of the same run.

Run ``python -m benchmarks.throughput``. Absolute figures belong to the machine; the ratios hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import floors, subject
from benchmarks.corpus import write_corpus
from benchmarks.timing import alternate, median, pin, say, timed

SUBJECT = "subject: bytes -> NDJSON"
_FLOORS = {
    "iterate lines as bytes": floors.iterate,
    "header expression, with groups": floors.header,
    "encode a ready record": floors.encode_ready,
    "build a record and encode it": floors.encode_built,
}
_COPY = 1 << 20


def _count(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _twice(path: Path, target: Path) -> None:
    with target.open("wb") as out:
        for _ in range(2):
            with path.open("rb") as file:
                while block := file.read(_COPY):
                    out.write(block)


def compare(path: Path, lines: int, repeat: int) -> None:
    """Print the table of the subject and the floors."""
    size = path.stat().st_size
    runs = {name: (lambda floor=floor: floor(path)) for name, floor in _FLOORS.items()}
    results = alternate({**runs, SUBJECT: lambda: timed(lambda: subject.run(path))}, repeat)
    own = median(results[SUBJECT])
    say(f"{'':32}{'lines/s':>12}{'MB/s':>9}{'us/line':>9}{'subject/this':>14}{'spread':>9}")
    for name, seconds in results.items():
        middle = median(seconds)
        spread = (max(seconds) - min(seconds)) / middle
        say(
            f"{name:32}{lines / middle:12,.0f}{size / middle / 1e6:9.1f}"
            f"{middle / lines * 1e6:9.3f}{own / middle:14.2f}{spread:9.0%}"
        )


def memory(path: Path, lines: int) -> None:
    """Print the peak resident memory of a fresh process that normalises `path`."""
    command = [sys.executable, "-m", "benchmarks.subject", str(path)]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    facts = json.loads(done.stdout)
    say(
        f"{lines:>12,} lines: peak {facts['peak_kib'] / 1024:.1f} MiB resident"
        f" ({facts['idle_kib'] / 1024:.1f} MiB before the first byte)"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of the made corpus")
    parser.add_argument("--corpus", type=Path, help="a log to use in place of the made one")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the median counts")
    options = parser.parse_args()
    say(f"Python {sys.version.split()[0]}, {pin()}, CPU time, median of {options.repeat}")
    with tempfile.TemporaryDirectory(prefix="logpipe-bench-") as directory:
        path, double = Path(directory, "corpus.log"), Path(directory, "double.log")
        unknown = None
        if options.corpus is None:
            facts = write_corpus(path, options.lines)
            write_corpus(double, 2 * options.lines)
            unknown = facts.unknown
            say(f"corpus: {facts.kinds}, {facts.wordings} wordings")
        else:
            path = options.corpus.resolve()
            _twice(path, double)
        lines = _count(path)
        say(f"{lines:,} lines, {path.stat().st_size / lines:.0f} bytes a line\n")
        compare(path, lines, options.repeat)
        say("\nmemory of a process that only normalises:")
        memory(path, lines)
        memory(double, 2 * lines)
        outcome = subject.run(path, look=True)
        plain = outcome.records - outcome.recognised
        say(f"\n{outcome.records:,} records, {outcome.bytes / outcome.records:.0f} bytes each")
        say(
            f"without an event: {plain:,}" + (f", of which unknown: {unknown:,}" if unknown else "")
        )


if __name__ == "__main__":
    main()
