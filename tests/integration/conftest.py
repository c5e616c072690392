"""Servers that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.servers import Collector, Jaeger


@pytest.fixture(scope="module")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """A Jaeger of its own for the tests of a module."""
    with Jaeger(tmp_path_factory.mktemp("jaeger")).run() as server:
        yield server


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    """A Collector of its own for each test."""
    with Collector(tmp_path).run() as server:
        yield server
