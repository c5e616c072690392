"""What a line is, told to a person who writes entries or wonders about a record."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from vllm_logpipe.catalogue import Catalogue
from vllm_logpipe.catalogue.compiled import Variant
from vllm_logpipe.catalogue.entry import EventEntry
from vllm_logpipe.model import LogRecord
from vllm_logpipe.normalizer import Normalizer
from vllm_logpipe.read.clock import rfc3339
from vllm_logpipe.sinks.text import on_one_line

_NEAR = 3
_MIN_LIKENESS = 0.45
_PREFIXES = ("log.record.uid", "vllm.log.attribution", "vllm.log.time")


def explain_line(line: str, catalogue: Catalogue) -> Iterator[str]:
    """The lines of an explanation: a section for each record that the line makes."""
    normalizer = Normalizer("explain", catalogue=catalogue)
    records = normalizer.feed(line.encode(errors="surrogateescape") + b"\n") + normalizer.flush()
    if not records:
        yield "no record: the line is blank, or holds a process prefix only"
    for number, record in enumerate(records):
        if number:
            yield ""
        yield from _explain(record, catalogue)


def _explain(record: LogRecord, catalogue: Catalogue) -> Iterator[str]:
    attributes = record.attributes
    log_format = str(attributes["vllm.log.format"])
    yield f"header   {log_format}"
    yield f"  time   {rfc3339(record.time_unix_nano)} ({attributes['vllm.log.time.source']})"
    yield f"  level  {on_one_line(record.severity_text or 'none')}"
    for name in ("vllm.process.name", "process.pid", "code.file.path", "code.line.number"):
        if name in attributes:
            yield f"  {name} = {on_one_line(str(attributes[name]))}"
    yield f"message  {record.body!r}"
    found = catalogue.find(record.body, log_format)
    if found is None and "\n" in record.body:
        found = catalogue.find(record.body.partition("\n")[0], log_format)
    yield f"entry    {record.event_name or 'none'}"
    if found is not None:
        yield f"  template  {found[0].template.source}"
    values = {
        name: value
        for name, value in attributes.items()
        if not name.startswith((*_PREFIXES, "code.", "vllm.process.", "process.pid"))
        and name not in ("vllm.log.format", "exception.stacktrace")
    }
    if values:
        yield "values"
        for name, value in values.items():
            yield f"  {name} = {value!r}"
    near = _near(record.body, record.event_name, catalogue)
    if near:
        yield "near"
        for variant in near:
            yield f"  {variant.entry.name}: {variant.template.source}"


def _near(text: str, event: str | None, catalogue: Catalogue) -> list[Variant[EventEntry]]:
    """The entries that were looked at too, else those whose fixed text is most alike."""
    looked_at = {
        variant.entry.name: variant
        for variant in catalogue.near(text)
        if variant.entry.name != event
    }
    if looked_at or event is not None:
        return list(looked_at.values())[:_NEAR]
    line = text.partition("\n")[0][:160]
    matcher = SequenceMatcher(None, "", line, autojunk=False)
    scored: dict[str, tuple[float, Variant[EventEntry]]] = {}
    for variant in catalogue.variants():
        matcher.set_seq1(variant.template.source[:160])
        if matcher.real_quick_ratio() < _MIN_LIKENESS or matcher.quick_ratio() < _MIN_LIKENESS:
            continue
        score = matcher.ratio()
        name = variant.entry.name
        if score >= _MIN_LIKENESS and score > scored.get(name, (0.0, variant))[0]:
            scored[name] = score, variant
    best = sorted(scored.values(), key=lambda pair: -pair[0])
    return [variant for _, variant in best[:_NEAR]]
