"""From the text of a record to its event, its typed values, its error class, and a clean body."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from vllm_logpipe.catalogue import Catalogue
from vllm_logpipe.catalogue.compiled import Variant, attribute_holes, class_members
from vllm_logpipe.catalogue.entry import ErrorEntry, EventEntry
from vllm_logpipe.catalogue.nested import replace_values
from vllm_logpipe.catalogue.template import Hole, Template, parse_template
from vllm_logpipe.catalogue.values import Extract, Member, member, quote
from vllm_logpipe.model import FAILED_LEVELS
from vllm_logpipe.read.exceptions import ExceptionText, find_traceback, read_exceptions
from vllm_logpipe.read.header import load_settings, tag_pattern
from vllm_logpipe.redact import Redactor, hide

_MAX_LINES = 200
"""Lines of a message or an exception's text that are looked at."""
_ONE_LINE_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,255}): (?P<text>.*)", re.DOTALL)
_OTHER = f'{member("error.type")}"_OTHER"{member("vllm.error.role")}"unknown"'
_VERSION = member("vllm.version")
_REQUEST = "request."
"""How the classes begin that a client brings about."""
_KEY = 4
"""Characters by which openings are looked up; every private lead has more."""
_NO_NAMES: frozenset[str] = frozenset()
_HEAD_NAMES = frozenset(
    "process.pid vllm.process.name vllm.process.kind code.file.path code.line.number"
    " vllm.engine.index nccl.rank nccl.host vllm.log.format".split()
)
"""Attributes that a header may give too: the message's own value stands."""

_Scrubs: TypeAlias = tuple[tuple[int, Callable[[str], str]], ...]


class _Bound(Struct, frozen=True):
    """What a variant needs with a redactor."""

    scrubs: _Scrubs
    """What redacts a group, by its index."""
    extract: Extract
    failure: Member
    """The error class, as members."""
    clashes: frozenset[str]
    announces: bool


class _Opening(Struct, frozen=True):
    """The start of a template up to its first private hole: a line limit may take the rest."""

    lead: str
    match: Callable[[str], re.Match[str] | None]
    group: int
    """The group that holds the private text and all behind it."""
    field: str


class Recognition(Struct, frozen=True, gc=False):
    """What a text is."""

    entry: EventEntry | None
    members: Member
    """Values, phase and error class as JSON members."""
    body: str
    """The text, redacted."""
    clashes: frozenset[str] | None = _NO_NAMES
    """Names that a header may have too; None where names may stand twice in the members."""
    announces: bool = False
    """Whether it begins a server start or tells the version of vLLM."""


class Recognizer:
    """Looks texts up in a catalogue and redacts them."""

    def __init__(self, catalogue: Catalogue, redactor: Redactor) -> None:
        self._catalogue = catalogue
        self._redactor = redactor
        self._tag = tag_pattern()
        self._bound: dict[Variant[EventEntry], _Bound] = {}
        self._openings = _openings(catalogue.variants())

    def knows(self, text: str, log_format: str) -> bool:
        """Whether a line begins a message of the catalogue."""
        return self._catalogue.find(text, log_format) is not None

    def declares(self, first: str, line: str, log_format: str) -> bool:
        """Whether a line belongs to a message as its further one.

        An entry declares some. What follows private text is part of it, unless it is a message.
        """
        if self._catalogue.may_be_further(line):
            found = self._catalogue.find(first, log_format)
            if found is not None and self._catalogue.find_line(found[0].entry, line) is not None:
                return True
        openings = [o for o in self._openings.get(first[:_KEY], ()) if first.startswith(o.lead)]
        # Most lines with the header of the one before are another message of the same wording.
        if not openings or any(line.startswith(opening.lead) for opening in openings):
            return False
        found = self._catalogue.find(first, log_format)
        if found is None:
            private = any(opening.match(first) for opening in openings)
        else:
            private = bool(found[0].entry.private)
        return private and self._catalogue.find(line, log_format) is None

    def recognize(
        self, text: str, log_format: str, level: str | None, trace_at: int | None = None
    ) -> Recognition:
        """The event, values and error class of a record's text.

        `trace_at` says where its traceback begins, -1 for none; None has it looked for.
        """
        if "\n" in text or trace_at == 0:
            at = find_traceback(text) if trace_at is None else trace_at
            return self._recognize_lines(text, log_format, level, at)
        found = self._catalogue.find(text, log_format)
        if found is None:
            # One tag is peeled off: whoever prints many means none.
            if log_format != "tagged" and text[:1] == "[" and (tag := self._tag.match(text)):
                inner = self.recognize(text[tag.end() :], "tagged", level)
                return msgspec.structs.replace(inner, body=f"{tag.group()}{inner.body}")
            body = self._scrub_unknown(text)
            if level in FAILED_LEVELS:
                return Recognition(None, self._classify_message(body), body)
            return Recognition(None, "", body)
        variant, match = found
        bound = self._bound.get(variant) or self._bind(variant)
        groups: Sequence[str] = match.groups()
        body = text
        for index, scrub in bound.scrubs:
            value = groups[index]
            if (clean := scrub(value)) is not value:
                body, groups = _redact(match, groups, bound.scrubs, index, clean)
                break
        members = bound.extract(groups)
        if bound.failure:
            members += bound.failure
        elif level in FAILED_LEVELS:
            members += self._classify_message(body)
        return Recognition(
            variant.entry, members, body, bound.clashes, bound.announces or _VERSION in members
        )

    def _values(
        self, variant: Variant[EventEntry], match: re.Match[str]
    ) -> tuple[Member, str, Member]:
        """Members, redacted text and class members of a part of a text."""
        bound = self._bound.get(variant) or self._bind(variant)
        body, groups = _redact(match, match.groups(), bound.scrubs)
        return bound.extract(groups), body, bound.failure

    def _bind(self, variant: Variant[EventEntry]) -> _Bound:
        entry = variant.entry
        extract = variant.extract
        scrubs = tuple(
            (index, self._scrub_of(variant, hole))
            for index, hole in enumerate(variant.template.holes)
            if hole.is_open
        )
        templates = [variant.template, *map(parse_template, entry.fields)]
        names = {h.name for template in templates for h in attribute_holes(template)}
        names.update(target.partition(":")[0] for target in entry.keys.values())
        names.update(entry.constants)
        clashes = frozenset(n for n in names if n in _HEAD_NAMES or n.startswith("vllm.rank."))
        bound = _Bound(scrubs, extract, class_members(entry), clashes, entry.starts_instance)
        self._bound[variant] = bound
        return bound

    def _scrub_of(self, variant: Variant[EventEntry], hole: Hole) -> Callable[[str], str]:
        field = variant.entry.private.get(hole.name)
        scrub = self._redactor.for_hole(hole.type, field, hole.name)
        pieces = variant.pieces
        if hole.type != "fields" or pieces is None:
            return scrub
        # What has the form of a learned list holds known words and numbers only.
        return lambda text: text if pieces.fits(text) else scrub(text)

    def _recognize_lines(
        self, text: str, log_format: str, level: str | None, at: int
    ) -> Recognition:
        message = text if at < 0 else text[:at].rstrip("\n")
        entry: EventEntry | None = None
        members: Member = ""
        failure: Member = ""
        found = self._catalogue.find(message, log_format) if message else None
        first, _, further = message.partition("\n")
        if found is not None:
            entry = found[0].entry
            members, body, failure = self._values(*found)
            if at < 0 and (at := _trace_in_lead(found[0].lead)) >= 0:
                message = body = text[:at]
        elif further and (found := self._catalogue.find(first, log_format)):
            entry = found[0].entry
            members, body, failure = self._values(*found)
            further = self._scrub_further(entry, further)
            body = f"{body}\n{further}"
            members += self._declared(entry, further)
        else:
            body = self._scrub_unknown(message)
        if at >= 0:
            trace = self._redactor.scrub(text[at:])
            body = f"{body}{text[len(message) : at]}{trace}" if message else trace
            exceptions = read_exceptions(trace)
            members += _exception_members(exceptions, trace)
            failure = self._classify(exceptions) or failure or _OTHER
        elif not failure and level in FAILED_LEVELS:
            failure = self._classify_message(body)
        announces = entry is not None and (entry.starts_instance or _VERSION in members)
        return Recognition(entry, members + failure, body, clashes=None, announces=announces)

    def _scrub_unknown(self, text: str) -> str:
        """A text that is no message as a whole: cut off in private text, that text is hidden."""
        cut = len(text)
        for opening in self._openings.get(text[:_KEY], ()):
            if (
                opening.field not in self._redactor.keep
                and text.startswith(opening.lead)
                and (found := opening.match(text))
            ):
                cut = min(cut, found.start(opening.group))
        if cut == len(text):
            return self._redactor.scrub(text)
        return f"{self._redactor.scrub(text[:cut])}{hide(text[cut:])}"

    def _scrub_further(self, entry: EventEntry, further: str) -> str:
        """Further lines, of which those that no entry declares may go on with private text."""
        if self._redactor.keep.issuperset(entry.private.values()):
            return self._redactor.scrub(further)
        clean: list[str] = []
        hidden: list[str] = []
        for line in [*further.split("\n"), None]:
            if line is not None and self._catalogue.find_line(entry, line) is None:
                hidden.append(line)
                continue
            if hidden:
                clean.append(hide("\n".join(hidden)))
                hidden.clear()
            if line is not None:
                clean.append(self._redactor.scrub(line))
        return "\n".join(clean)

    def _declared(self, entry: EventEntry, further: str) -> Member:
        members = ""
        for line in further.split("\n", _MAX_LINES)[:_MAX_LINES]:
            if found := self._catalogue.find_line(entry, line):
                variant, match = found
                members += variant.extract(match.groups())
        return members

    def _classify(self, exceptions: list[ExceptionText]) -> Member:
        """The class of a chain: the first exception that is a root, else the first known one."""
        known: Member = ""
        for exception in exceptions:
            found = self._classify_one(exception.type, exception.message.split("\n"))
            if found is None:
                continue
            entry, members = found
            if entry.role == "root":
                return members
            known = known or members
        return known

    def _classify_message(self, body: str) -> Member:
        """The class of an error message that is no event: by the exceptions its lines name."""
        lines = body.split("\n", _MAX_LINES)[:_MAX_LINES]
        named = _ONE_LINE_EXCEPTION.fullmatch(lines[0])
        if named is not None:
            lines[0] = named["text"]
        found = self._classify_one(named["type"] if named else "", lines)
        return found[1] if found is not None else _OTHER

    def _classify_one(
        self, exception_type: str, lines: Sequence[str]
    ) -> tuple[ErrorEntry, Member] | None:
        """The class of an exception: by a line of its text, its type, or what its text names."""
        lines = lines[:_MAX_LINES]
        by_type = self._catalogue.classify_type(exception_type)
        # The further lines of a refused request may be the client's own.
        own = lines[:1] if by_type is not None and by_type.error.startswith(_REQUEST) else lines
        if found := self._catalogue.find_error(exception_type, own):
            entry, variant, match = found
            return entry, variant.extract(match.groups()) + class_members(entry)
        if by_type is not None:
            return by_type, class_members(by_type)
        # Ray and exception groups print the exceptions of others inside the text of their own.
        for line in lines[1:]:
            if (named := _ONE_LINE_EXCEPTION.fullmatch(line)) and (
                inner := self._classify_one(named["type"], [named["text"]])
            ):
                return inner
        return None


def _openings(variants: Iterable[Variant[EventEntry]]) -> dict[str, list[_Opening]]:
    """The openings of all templates with private holes, by the first characters of their lead."""
    openings: dict[str, list[_Opening]] = {}
    seen: set[tuple[str | Hole, ...]] = set()
    for variant in variants:
        private = variant.entry.private
        if not private or not variant.lead:
            continue
        parts = variant.template.parts
        for index, part in enumerate(parts):
            if isinstance(part, Hole) and part.name in private:
                opening = Template("", (*parts[:index], Hole("", "rest")))
                if opening.parts not in seen:
                    seen.add(opening.parts)
                    openings.setdefault(variant.lead[:_KEY], []).append(
                        _Opening(
                            variant.lead,
                            opening.pattern().match,
                            len(opening.holes),
                            private[part.name],
                        )
                    )
                break
    return openings


def _redact(
    match: re.Match[str], groups: Sequence[str], scrubs: _Scrubs, first: int = 0, known: str = ""
) -> tuple[str, Sequence[str]]:
    """The text of a match and its groups, redacted.

    `first` is the first group to redact, if that has been found out, and `known` its clean text.
    """
    clean = list(groups)
    spans: list[tuple[int, int, str]] = []
    for index, scrub in scrubs:
        if index < first:
            continue
        clean[index] = known if known and index == first else scrub(groups[index])
        if clean[index] is not groups[index]:
            spans.append((*match.span(index + 1), clean[index]))
    return replace_values(match.string, spans) if spans else match.string, clean


def deduplicate(attributes: str) -> str:
    """A JSON object with one member of each name: the last one stands."""
    return msgspec.json.encode(msgspec.json.decode(attributes)).decode()


def _trace_in_lead(lead: str) -> int:
    """Where a traceback begins in a message whose fixed text says that one follows; -1 for none."""
    start = load_settings().traceback_start
    return len(lead) - len(start) if lead.endswith(start) else -1


def _exception_members(exceptions: list[ExceptionText], trace: str) -> Member:
    members = f"{member('exception.stacktrace')}{quote(trace)}"
    if not exceptions:
        return members
    last, first = exceptions[-1], exceptions[0]
    if last.type:
        members += f"{member('exception.type')}{quote(last.type)}"
    members += f"{member('exception.message')}{quote(last.message)}"
    if first is not last and (first.type, first.message) != (last.type, last.message):
        members += f"{member('vllm.exception.root.type')}{quote(first.type)}"
        members += f"{member('vllm.exception.root.message')}{quote(first.message)}"
    return members
