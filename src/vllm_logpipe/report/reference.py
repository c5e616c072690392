"""The catalogue as a Markdown page: what is recognised, with a sample of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vllm_logpipe import semconv
from vllm_logpipe.catalogue.entry import ErrorEntry, EventEntry, Sample
from vllm_logpipe.report.entries import list_files, releases

_MAX_SAMPLE = 160
_LEAD = """# What is recognised

Each message by its `event_name`, with its phase or error class, the vLLM releases looked at that
print it, and one line that it is recognised in. Made by `vllm-logpipe catalogue markdown`;
`vllm-logpipe explain 'LINE'` tells which one a line is.
"""


def catalogue_page(directory: Path | None) -> Iterator[str]:
    """The lines of the page of the built-in entries, or of those of a directory."""
    yield _LEAD
    briefs = {event.name: event.brief for event in semconv.EVENTS}
    for name, file in list_files(directory):
        title = name.removesuffix(".toml").replace("_", " ")
        if file.event:
            yield f"## {title[:1].upper()}{title[1:]}\n"
            yield "| event | meaning | phase or class | releases | sample |\n|---|---|---|---|---|"
            for event in file.event:
                brief = event.brief or briefs.get(event.name, "")
                yield _row(f"`{event.name}`", _cell(brief), _kind(event), event)
            yield ""
        if file.error:
            yield "## Exceptions\n"
            yield "| class | role | not | releases | sample |\n|---|---|---|---|---|"
            for error in file.error:
                yield _row(f"`{error.error}`", error.role, _cell(error.excludes or ""), error)
            yield ""


def _row(first: str, second: str, third: str, entry: EventEntry | ErrorEntry) -> str:
    printed = releases(entry.since, entry.until).strip("-")
    return f"| {first} | {second} | {third} | {printed} | {_sample(entry.sample)} |"


def _kind(event: EventEntry) -> str:
    return f"`{event.error}` ({event.role})" if event.error else event.phase or ""


def _sample(samples: list[Sample]) -> str:
    if not samples:
        return ""
    line, _, more = samples[0].line.partition("\n")
    cut = more or len(line) > _MAX_SAMPLE
    text = f"{line[:_MAX_SAMPLE]}{' …' if cut else ''}".replace("|", "\\|")
    fence = "``" if "`" in text else "`"
    gap = " " if "`" in text else ""
    return f"{fence}{gap}{text}{gap}{fence}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
