"""Growth: what a catalogue twice as large costs, and whether any input costs more than its length.

Run ``python -m benchmarks.growth``. The first part times one corpus with the built-in catalogue
and with as many synthetic entries again. The second feeds hostile lines of growing size, for each
hole type through a throw-away entry and raw, and prints time per MB: level means linear.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import tomllib
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import hostile, subject, synthetic
from benchmarks.corpus import write_corpus
from benchmarks.timing import alternate, median, pin, say, timed
from vllm_logpipe import Normalizer, encode_ndjson, load_catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

SIZES = (1, 2, 5, 10)
_MB = 1_000_000
_SUPERLINEAR = 1.6
_SLOW_PER_MB = 0.5
_SLOW_PER_LINE = 1e-4
_GIVE_UP_PER_MB = 10.0
_GIVEN_UP = 0.99 * _GIVE_UP_PER_MB


def built_in_entries() -> int:
    """Return how many event entries the built-in catalogue has."""
    folder = resources.files("vllm_logpipe") / "catalogue"
    return sum(
        len(tomllib.loads(file.read_text("utf-8")).get("event", ()))
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    )


def double_catalogue(lines: int, repeat: int) -> None:
    """Print the time of one corpus with the catalogue as it is and with it doubled."""
    entries = built_in_entries()
    with tempfile.TemporaryDirectory(prefix="logpipe-bench-") as directory:
        corpus, extra = Path(directory, "corpus.log"), Path(directory, "extra")
        extra.mkdir()
        write_corpus(corpus, lines)
        synthetic.write_catalogue(extra, entries)
        start = time.process_time()
        doubled = load_catalogue([extra])
        loading = time.process_time() - start
        results = alternate(
            {
                "built-in": lambda: timed(lambda: subject.run(corpus, Normalizer(source="bench"))),
                "doubled": lambda: timed(
                    lambda: subject.run(corpus, Normalizer(source="bench", catalogue=doubled))
                ),
            },
            repeat,
        )
    own, twice = median(results["built-in"]), median(results["doubled"])
    say(f"{entries} entries: {own / lines * 1e6:.3f} us a line")
    say(f"{2 * entries} entries: {twice / lines * 1e6:.3f} us a line, ratio {twice / own:.3f}")
    say(f"loading both catalogues: {loading:.2f} s\n")


class Growth(NamedTuple):
    """Seconds per MB by size; empty where a smaller size already took too long."""

    name: str
    seconds: dict[int, float]
    records: int
    lines_per_mb: float

    @property
    def ratio(self) -> float:
        """Per-MB time of the largest size over that of the smallest."""
        sizes = sorted(self.seconds)
        return self.seconds[sizes[-1]] / self.seconds[sizes[0]]

    @property
    def worst(self) -> float:
        """The largest time per MB."""
        return max(self.seconds.values())

    @property
    def suspect(self) -> bool:
        """Whether it grows faster than its input, or is slow though it has few lines."""
        if self.worst >= _GIVEN_UP:
            return True
        if self.ratio > _SUPERLINEAR and self.worst > _SLOW_PER_MB / 10:
            return True
        return self.worst > _SLOW_PER_MB and self.worst / self.lines_per_mb > _SLOW_PER_LINE


def _feed(data: bytes, fresh: Callable[[], Normalizer]) -> tuple[float, int]:
    normalizer = fresh()
    records = 0
    start = time.process_time()
    for offset in range(0, len(data), subject.BLOCK):
        batch = normalizer.feed(data[offset : offset + subject.BLOCK])
        records += len(batch)
        encode_ndjson(batch)
    batch = normalizer.flush()
    encode_ndjson(batch)
    return time.process_time() - start, records + len(batch)


class _TooLongError(Exception):
    """A measurement that was given up."""


def _give_up(_signal: int, _frame: FrameType | None) -> None:
    raise _TooLongError


def _limited(data: bytes, fresh: Callable[[], Normalizer]) -> tuple[float, int]:
    """Time one feed; after the limit of CPU time it counts as that long."""
    signal.signal(signal.SIGPROF, _give_up)
    limit = _GIVE_UP_PER_MB * len(data) / _MB
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        return _feed(data, fresh)
    except _TooLongError:
        return limit, 0
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def measure(
    name: str, build: Callable[[int], bytes], fresh: Callable[[], Normalizer], sizes: list[int]
) -> Growth:
    """Time `build`'s bytes at each size; small ones twice, the better time counts."""
    seconds: dict[int, float] = {}
    records, lines = 0, 1.0
    for size in sizes:
        data = build(size * _MB)
        spent, records = _limited(data, fresh)
        if spent < 1:
            spent = min(spent, _feed(data, fresh)[0])
        seconds[size] = spent / (len(data) / _MB)
        lines = (1 + data.count(b"\n") + data.count(b"\r")) / (len(data) / _MB)
        if seconds[size] >= _GIVEN_UP:
            break
    return Growth(name, seconds, records, lines)


def _better(one: Growth, other: Growth) -> Growth:
    """The better time of each size: what else runs on the machine only ever adds to a time."""
    seconds = {
        size: min(spent, other.seconds.get(size, spent)) for size, spent in one.seconds.items()
    }
    return one._replace(seconds=seconds)


def _row(growth: Growth, sizes: list[int]) -> str:
    cells = "".join(
        f"{growth.seconds[size] * 1e3:10.1f}" if size in growth.seconds else f"{'-':>10}"
        for size in sizes
    )
    mark = "  <-- look" if growth.suspect else ""
    return f"{growth.name:44}{cells}{growth.ratio:8.2f}{growth.records:9}{mark}"


def _head(title: str, sizes: list[int]) -> str:
    cells = "".join(f"{f'{size} MB':>10}" for size in sizes)
    return f"{title:44}{cells}{'ratio':>8}{'records':>9}"


def _measure_all(
    cases: Mapping[str, Callable[[int], bytes]],
    fresh: Callable[[], Normalizer],
    sizes: list[int],
    *,
    everything: bool,
) -> list[Growth]:
    """Print the rows that want a look as they come, or all, then the slowest and steepest."""
    rows: list[Growth] = []
    for name, build in cases.items():
        row = measure(name, build, fresh, sizes)
        if row.suspect and row.worst < _GIVEN_UP:
            row = _better(row, measure(name, build, fresh, sizes))
        rows.append(row)
        if everything or row.suspect:
            say(_row(row, sizes))
    shown = {row.name for row in rows if everything or row.suspect}
    for row in (max(rows, key=lambda row: row.worst), max(rows, key=lambda row: row.ratio)):
        if row.name not in shown:
            say(_row(row, sizes))
            shown.add(row.name)
    return rows


def _headed(message: Callable[[int], str], size: int) -> bytes:
    return hostile.headed(message(size))


def hostile_holes(only: str | None, sizes: list[int], *, everything: bool) -> list[Growth]:
    """Print and return the growth of hostile lines, hole by hole."""
    say(_head("ms per MB: hole, stress", sizes))
    found: list[Growth] = []
    for ends, holes in ((False, hostile.HOLES), (True, hostile.LAST_HOLES)):
        for kind, hole in holes.items():
            if only and only != kind:
                continue
            with tempfile.TemporaryDirectory(prefix="logpipe-bench-") as directory:
                hostile.write_probe(Path(directory), hole, ends=ends)
                catalogue = load_catalogue([Path(directory)])
            cases = {
                f"{kind}, {name}": partial(_headed, message)
                for name, message in hostile.messages(hole, ends=ends).items()
            }
            fresh = partial(Normalizer, source="bench", catalogue=catalogue)
            rows = _measure_all(cases, fresh, sizes, everything=everything)
            found.extend(rows)
    return found


def hostile_raw(only: str | None, sizes: list[int], *, everything: bool) -> list[Growth]:
    """Print and return the growth of raw hostile bytes."""
    say("\n" + _head("ms per MB: raw", sizes))
    cases = {name: build for name, build in hostile.RAW.items() if not only or only in name}
    if not cases:
        return []
    return _measure_all(cases, partial(Normalizer, source="bench"), sizes, everything=everything)


def main() -> None:
    """Run the benchmark; the exit code is 1 when anything grows faster than its input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000, help="lines of the corpus")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--part", choices=("catalogue", "holes", "raw"), help="only this part")
    parser.add_argument("--only", help="only this hole type, or raw inputs whose name has this")
    parser.add_argument("--max", type=int, default=max(SIZES), help="largest hostile size, MB")
    parser.add_argument("--all", action="store_true", help="print every row")
    options = parser.parse_args()
    sizes = [size for size in SIZES if size <= options.max]
    say(f"Python {sys.version.split()[0]}, {pin()}, CPU time")
    if options.part in (None, "catalogue"):
        double_catalogue(options.lines, options.repeat)
    rows: list[Growth] = []
    if options.part in (None, "holes"):
        rows += hostile_holes(options.only, sizes, everything=options.all)
    if options.part in (None, "raw"):
        rows += hostile_raw(options.only, sizes, everything=options.all)
    suspects = [row for row in rows if row.suspect]
    if rows:
        say(f"\n{len(rows)} kinds of hostile input, {len(suspects)} to look at")
    sys.exit(1 if suspects else 0)


if __name__ == "__main__":
    main()
