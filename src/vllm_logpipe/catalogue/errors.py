"""The one error a catalogue raises."""

from __future__ import annotations


class CatalogueError(ValueError):
    """A catalogue that does not load; the text is one line: file, entry, sample, what is wrong."""
