"""One core, CPU time, alternating runs and their median: how the benchmarks measure."""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def pin() -> str:
    """Bind this process and its children to one core where the platform allows it; say which."""
    if not hasattr(os, "sched_setaffinity"):
        return "not pinned: the platform cannot"
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return f"pinned to core {core}"


def timed(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def alternate(contenders: Mapping[str, Callable[[], float]], repeat: int) -> dict[str, list[float]]:
    """Run each contender in turn, `repeat` times over; a contender returns its CPU seconds."""
    results: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeat):
        for name, contender in contenders.items():
            results[name].append(contender())
    return results


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def say(text: str = "") -> None:
    """Write one line to standard output at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
