"""Options that the tests take on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the conformance corpus."""
    group = parser.getgroup("corpus")
    group.addoption(
        "--regenerate",
        action="store_true",
        help="write the expected files that differ, then fail, so that they are read first",
    )
    group.addoption(
        "--corpus",
        type=Path,
        default=Path(__file__).parent / "corpus",
        metavar="DIR",
        help="where the logs and expected files are",
    )
