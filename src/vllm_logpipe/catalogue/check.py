"""What a catalogue entry must satisfy before it loads. Every refusal is one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from vllm_logpipe import semconv
from vllm_logpipe.catalogue.compiled import (
    Variant,
    error_variants,
    event_variants,
    line_variants,
)
from vllm_logpipe.catalogue.entry import CatalogueFile, ErrorEntry, EventEntry, Sample
from vllm_logpipe.catalogue.template import (
    OPEN_TYPES,
    Hole,
    Template,
    TemplateError,
    expand,
    parse_template,
)

if TYPE_CHECKING:
    from vllm_logpipe.catalogue.loader import Catalogue

MIN_LITERAL = 8
"""Characters of fixed text that a template must have at least."""

_NAME = re.compile(r"(?:vllm|nccl|ray|torch)(?:\.[a-z][a-z0-9_]*)+")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:\.post[0-9]+)?")
_FITS = {
    "int": {"int", "double"},
    "float": {"double"},
    "bytes": {"int"},
    "seconds": {"double"},
    "ratio": {"double"},
    "ints": {"int[]"},
    "floats": {"double[]"},
    "words": {"string[]"},
    "list": {"int[]", "double[]", "string[]"},
    "bool": {"boolean"},
}
_VALUES: dict[str, type] = {
    "string": str,
    "int": int,
    "double": float,
    "boolean": bool,
    "string[]": list[str],
    "int[]": list[int],
    "double[]": list[float],
}
_TEXT_FITS = {"string", "string[]"}


class _RefusalError(Exception):
    """Internal: what is wrong with an entry, without its place."""


def find_faults(
    files: Iterable[tuple[str, CatalogueFile]],
    beside: Iterable[tuple[str, CatalogueFile]],
    types: dict[str, str],
    catalogue: Catalogue | None,
) -> Iterator[str]:
    """Check every entry of `files`; `beside` are already accepted files.

    Gives a line a fault: file, entry, sample, what is wrong.
    """
    names = {entry.name: name for name, file in beside for entry in file.event}
    files = list(files)
    for name, file in files:
        for number, event in enumerate(file.event, 1):
            place = f"{name}: event {number} {event.name!r}"
            try:
                if event.name in names:
                    raise _RefusalError(f"the name stands already in {names[event.name]}")
                names[event.name] = name
                _check_event(event, types)
            except (_RefusalError, TemplateError) as error:
                yield f"{place}: {error}"
        for number, entry in enumerate(file.error, 1):
            place = f"{name}: error {number} {entry.error!r}"
            try:
                _check_error(entry, types)
            except (_RefusalError, TemplateError) as error:
                yield f"{place}: {error}"
    if catalogue is None:
        return
    for name, file in files:
        for event in file.event:
            yield from _overlaps(name, event, catalogue)


def _check_event(entry: EventEntry, types: dict[str, str]) -> None:
    if not _NAME.fullmatch(entry.name):
        raise _RefusalError("the name is not dotted lower case under a known root")
    if entry.brief is None and entry.name not in {event.name for event in semconv.EVENTS}:
        raise _RefusalError(
            "the name is not in semconv.py; an entry of your own states its `brief`"
        )
    _check_words(entry)
    _check_class(entry.error, entry.role, entry.excludes)
    sources = [source for wording in entry.wordings for source in expand(wording, (*entry.tail,))]
    if not sources:
        raise _RefusalError("no wording in `match`")
    templates = [parse_template(source) for source in sources]
    for template in templates:
        _check_template(template, types)
    for source in (*entry.lines, *entry.fields):
        _check_holes(parse_template(source), types)
    _check_nested(entry, templates, types)
    _check_samples(entry, types)


def _check_words(entry: EventEntry) -> None:
    if entry.phase is not None and entry.phase not in semconv.PHASES:
        raise _RefusalError(f"unknown phase {entry.phase!r}")
    for log_format in entry.formats:
        if log_format not in semconv.LOG_FORMATS:
            raise _RefusalError(f"unknown format {log_format!r}")
    for version in filter(None, (entry.since, entry.until)):
        if not _VERSION.fullmatch(version):
            raise _RefusalError(f"{version!r} is not a release such as 0.8.5")


def _check_class(error: str | None, role: str | None, excludes: str | None) -> None:
    if error is None:
        if role is not None:
            raise _RefusalError("a role without an error class")
        return
    if error not in semconv.ERROR_CLASSES:
        raise _RefusalError(f"unknown error class {error!r}")
    if role not in semconv.ERROR_ROLES:
        raise _RefusalError(f"unknown role {role!r}" if role else "an error class without a role")
    if not excludes:
        raise _RefusalError("an error class without `not`: say what it may not match")


def _check_template(template: Template, types: dict[str, str]) -> None:
    if template.literal_length < MIN_LITERAL:
        raise _RefusalError(
            f"{template.source!r} has {template.literal_length} literal characters,"
            f" {MIN_LITERAL} are needed"
        )
    if not template.lead and len(template.anchor) < MIN_LITERAL:
        raise _RefusalError(
            f"{template.source!r} begins with a hole and has no literal of {MIN_LITERAL} characters"
        )
    _check_holes(template, types)


def _check_holes(template: Template, types: dict[str, str]) -> None:
    for hole in template.holes:
        if hole.is_attribute:
            _check_attribute(hole.name, hole.type, types)


def _check_attribute(name: str, kind: str, types: dict[str, str]) -> None:
    if name not in types:
        raise _RefusalError(f"the attribute {name!r} is not in semconv.py")
    if types[name] not in _FITS.get(kind, _TEXT_FITS):
        raise _RefusalError(f"the hole {name!r} is {kind}, the attribute {types[name]}")


def _check_nested(entry: EventEntry, templates: list[Template], types: dict[str, str]) -> None:
    holes: list[tuple[Hole, bool]] = [
        (hole, template.parts[-1] is hole) for template in templates for hole in template.holes
    ]
    kinds = {hole.type for hole, _ in holes}
    for kind, value in (("fields", entry.fields), ("kwargs", entry.keys)):
        if value and kind not in kinds:
            raise _RefusalError(
                f"{'keys' if kind == 'kwargs' else kind!s} without a {{:{kind}}} hole"
            )
    if "fields" in kinds and not entry.fields:
        raise _RefusalError("a {:fields} hole without `fields`")
    if any(hole.type == "fields" and not last for hole, last in holes):
        raise _RefusalError("{:fields} is not the last hole")
    for target in entry.keys.values():
        name, _, kind = target.partition(":")
        _check_attribute(name, kind.partition("(")[0] or "text", types)
    local = {hole.name for hole, _ in holes}
    if missing := entry.private.keys() - local:
        raise _RefusalError(f"`private` names the hole {min(missing)!r}, which no wording has")
    for field in entry.private.values():
        if field not in semconv.PRIVATE_FIELDS:
            raise _RefusalError(f"unknown redaction field {field!r}")
    for hole, _ in holes:
        if hole.name in entry.private and hole.type not in OPEN_TYPES:
            raise _RefusalError(f"the private hole {hole.name!r} is {hole.type}, not text")
    for name, constant in entry.constants.items():
        if name not in types:
            raise _RefusalError(f"the attribute {name!r} is not in semconv.py")
        try:
            msgspec.convert(constant, _VALUES[types[name]], strict=True)
        except msgspec.ValidationError as error:
            raise _RefusalError(f"`set` gives {name!r} another value than {types[name]}") from error


def _check_samples(entry: EventEntry, types: dict[str, str]) -> None:
    if not entry.sample:
        raise _RefusalError("no sample")
    variants = sorted(event_variants(entry, types), key=lambda variant: variant.rank)
    used: set[str] = set()
    for number, sample in enumerate(entry.sample, 1):
        variant, got = _recognise(entry, variants, sample, types)
        if variant is None:
            raise _RefusalError(
                f"sample {number} {_short(sample.line)} is not matched by the entry"
            )
        used.add(variant.template.source)
        expect = _expected(entry, sample)
        if got != expect:
            raise _RefusalError(
                f"sample {number} {_short(sample.line)} gives {_show(got)},"
                f" expected {_show(expect)}"
            )
    for wording in entry.wordings:
        if not used.intersection(expand(wording, tuple(entry.tail))):
            raise _RefusalError(f"no sample for the wording {wording!r}")
    for tail in entry.tail:
        if not any(tail in source for source in used):
            raise _RefusalError(f"no sample for the tail {tail!r}")


def _recognise(
    entry: EventEntry, variants: list[Variant[EventEntry]], sample: Sample, types: dict[str, str]
) -> tuple[Variant[EventEntry] | None, dict[str, object]]:
    first, _, rest = sample.line.partition("\n")
    for text, further in ((sample.line, ""), (first, rest)):
        for variant in variants:
            if found := variant.match(text):
                members = variant.extract(found.groups())
                for line in further.split("\n") if further else ():
                    for declared in line_variants(entry, types):
                        if got := declared.match(line):
                            members += declared.extract(got.groups())
                            break
                return variant, msgspec.json.decode(f"{{{members[1:]}}}")
    return None, {}


def _expected(entry: EventEntry, sample: Sample) -> dict[str, object]:
    """What a sample states, with what every match of the entry has."""
    expect: dict[str, object] = {}
    if entry.phase:
        expect["vllm.phase"] = entry.phase
    return expect | entry.constants | sample.expect


def _check_error(entry: ErrorEntry, types: dict[str, str]) -> None:
    _check_class(entry.error, entry.role, entry.excludes)
    if not entry.types and not entry.wordings:
        raise _RefusalError("neither `types` nor `match`")
    if not entry.sample:
        raise _RefusalError("no sample")
    variants = sorted(error_variants(entry, types), key=lambda variant: variant.rank)
    for variant in variants:
        if variant.template.literal_length < MIN_LITERAL:
            raise _RefusalError(
                f"{variant.template.source!r} has under {MIN_LITERAL} literal characters"
            )
        _check_holes(variant.template, types)
    for number, sample in enumerate(entry.sample, 1):
        if not any(_error_matches(entry, variants, line) for line in sample.line.split("\n")):
            raise _RefusalError(
                f"sample {number} {_short(sample.line)} is not matched by the entry"
            )


def _error_matches(entry: ErrorEntry, variants: list[Variant[ErrorEntry]], line: str) -> bool:
    kind, _, text = line.strip().partition(": ")
    names = {kind, kind.rpartition(".")[2]}
    if entry.types and not names.intersection(entry.types):
        return any(variant.match(line.strip()) for variant in variants)
    return not variants or any(
        variant.match(candidate) for variant in variants for candidate in (text, line.strip())
    )


def _overlaps(name: str, entry: EventEntry, catalogue: Catalogue) -> Iterator[str]:
    log_format = entry.formats[0] if entry.formats else "v1"
    for number, sample in enumerate(entry.sample, 1):
        for text in (sample.line, sample.line.partition("\n")[0]):
            if found := catalogue.find(text, log_format):
                break
        if found is None:
            place = f"{name}: event {entry.name!r}: sample {number}"
            yield f"{place} {_short(sample.line)} is not found"
            continue
        if found[0].entry.name == entry.name:
            continue
        other = found[0].entry
        mutual = any(
            variant.match(theirs.line)
            for variant in event_variants(entry, catalogue.types)
            for theirs in other.sample
        )
        kind = "overlaps mutually with" if mutual else "is taken by the more specific"
        yield (
            f"{name}: event {entry.name!r}: sample {number} {_short(sample.line)}"
            f" {kind} {other.name!r}"
        )


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _show(members: dict[str, object]) -> str:
    return msgspec.json.encode(dict(sorted(members.items()))).decode()
