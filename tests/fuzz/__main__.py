"""Fuzz for some minutes: ``python -m tests.fuzz --minutes 60``; faults are written down."""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

from tests.fuzz.check import check
from tests.fuzz.mutate import RECORDED, stream


def main() -> int:
    """Give 1 where a stream showed a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    number = size = faults = 0
    seen: set[str] = set()
    while time.monotonic() < end:
        chance = random.Random(f"{options.seed}-{number}")
        data = stream(chance)
        number += 1
        size += len(data)
        try:
            check(data, chance)
        except Exception as error:  # noqa: BLE001
            faults += 1
            frames = traceback.extract_tb(error.__traceback__)
            key = f"{type(error).__name__} {frames[-1].name}:{frames[-1].lineno}"
            if key in seen and len(seen) < 50:
                continue
            seen.add(key)
            RECORDED.mkdir(exist_ok=True)
            path = RECORDED / f"{options.seed}-{number - 1}.log"
            path.write_bytes(data)
            print(f"{path.name}: {type(error).__name__}: {error} ({key})", flush=True)
    print(f"{number} streams, {size} bytes, seed {options.seed}: {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
