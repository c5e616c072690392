"""Mutated streams: those that once showed a fault, and some new ones each time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.fuzz.check import check
from tests.fuzz.mutate import RECORDED, stream

FOUND = sorted(RECORDED.glob("*.log"))


@pytest.mark.parametrize("path", FOUND, ids=[path.stem for path in FOUND])
def test_a_stream_that_once_showed_a_fault_shows_none(path: Path) -> None:
    """What fuzzing found stays mended."""
    check(path.read_bytes(), random.Random(path.name))


def test_mutated_streams_show_no_fault() -> None:
    """Nothing crashes or gets lost, cuts and stored states change nothing."""
    for number in range(100):
        chance = random.Random(number)
        check(stream(chance), chance)
