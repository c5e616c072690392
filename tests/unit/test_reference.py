"""The catalogue as a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vllm_logpipe.catalogue.loader import read_built_in
from vllm_logpipe.report.reference import catalogue_page

PAGE = Path(__file__).parents[2] / "docs" / "catalogue.md"


def rows(text: str) -> list[list[str]]:
    """The cells of the rows of all tables, without the rules under their headings."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in cells if not set("".join(row)) <= set("-")]


def test_the_committed_page_is_current() -> None:
    """Whoever changes an entry writes the page anew."""
    made = "".join(f"{line}\n" for line in catalogue_page(None))
    assert PAGE.read_text("utf-8") == made, (
        "run: vllm-logpipe catalogue markdown > docs/catalogue.md"
    )


def test_every_entry_has_a_row_with_its_five_columns() -> None:
    """No entry is left out, and no text of one breaks the table."""
    found = rows("\n".join(catalogue_page(None)))
    assert {len(row) for row in found} == {5}
    entries = [entry for _, file in read_built_in() for entry in (*file.event, *file.error)]
    headings = sum(row[0].strip() in ("event", "class") for row in found)
    assert len(found) - headings == len(entries)


@pytest.mark.parametrize(
    ("line", "cell"),
    [
        ("a made | up line {:int}", r"`a made \| up line 7`"),
        ("a made `up` line {:int}", "`` a made `up` line 7 ``"),
    ],
)
def test_what_markdown_would_read_is_escaped(tmp_path: Path, line: str, cell: str) -> None:
    """A pipe ends no cell, a backtick no code."""
    sample = line.replace("{:int}", "7")
    (tmp_path / "own.toml").write_text(
        f'[[event]]\nname = "x.y"\nbrief = "a | b"\nphase = "serving"\nmatch = ["{line}"]\n'
        f'[[event.sample]]\nline = "{sample}"\nexpect = {{}}\n'
    )
    (row,) = [row for row in rows("\n".join(catalogue_page(tmp_path))) if "x.y" in row[0]]
    assert row[4].strip() == cell
    assert row[1].strip() == r"a \| b"
