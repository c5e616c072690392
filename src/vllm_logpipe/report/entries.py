"""The catalogue for a person: a list of its entries, or the verdict of a check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vllm_logpipe import semconv
from vllm_logpipe.catalogue.entry import CatalogueFile
from vllm_logpipe.catalogue.loader import catalogue_faults, read_built_in, read_directory


def list_entries(directory: Path | None) -> Iterator[str]:
    """One line an entry: name, phase or error class, releases, file, meaning."""
    briefs = {event.name: event.brief for event in semconv.EVENTS}
    for name, file in list_files(directory):
        for event in file.event:
            kind = f"{event.error} ({event.role})" if event.error else event.phase or "-"
            brief = event.brief or briefs.get(event.name, "")
            yield f"{event.name:<44} {kind:<34} {releases(event.since, event.until):<16} {brief}"
        for error in file.error:
            told = ", ".join(error.types) or error.wordings[0]
            kind = f"{error.error} ({error.role})"
            yield f"{'exception':<44} {kind:<34} {releases(error.since, error.until):<16} {told}"
        if not file.event and not file.error:
            yield f"{name}: no entries"


def check_entries_of(directory: Path | None) -> tuple[str, list[str]]:
    """A line that says what was checked, and a line a fault."""
    files = list_files(directory)
    faults = list(catalogue_faults(files, beside=read_built_in() if directory is not None else []))
    counts = [
        len(entry.sample)
        for _, file in files
        for entries in (file.event, file.error)
        for entry in entries
    ]
    checked = f"{len(files)} files, {len(counts)} entries, {sum(counts)} samples"
    return f"{checked}: {f'{len(faults)} faults' if faults else 'all right'}", faults


def list_files(directory: Path | None) -> list[tuple[str, CatalogueFile]]:
    """The built-in files by name, or those of a directory. Raises CatalogueError."""
    return read_built_in() if directory is None else list(read_directory(directory))


def releases(since: str | None, until: str | None) -> str:
    """The first and the last release that prints a message; a dash where neither is known."""
    if since is None and until is None:
        return "-"
    return f"{since or ''}..{until or ''}"
