"""Entries made ready to match: one variant a wording with a choice of its tails."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from vllm_logpipe.catalogue.dispatch import Dispatcher
from vllm_logpipe.catalogue.entry import ErrorEntry, EventEntry
from vllm_logpipe.catalogue.nested import key_spans, unquote
from vllm_logpipe.catalogue.sampling import sampling_members
from vllm_logpipe.catalogue.template import NESTED_TYPES, Hole, Template, expand, parse_template
from vllm_logpipe.catalogue.values import Extract, Member, compile_extract, converter, member

Groups = Sequence[str]

_FORMAT_RANK = 10_000
"""An entry limited to formats goes before one that is not, whatever the literals."""

_MAX_PIECES = 256
_MAX_SHAPES = 8
_MAX_KEY_LENGTH = 8
_REJOINED = 3
"""Pieces that belong together at the most: some values hold the separator themselves."""


E = TypeVar("E", bound=EventEntry | ErrorEntry)


class Variant(Generic[E]):
    """One template of an entry, compiled when first needed."""

    __slots__ = (
        "_extract",
        "_types",
        "always",
        "anchor",
        "constants",
        "entry",
        "formats",
        "lead",
        "match",
        "pieces",
        "probe",
        "rank",
        "stop",
        "template",
    )

    def __init__(
        self, entry: E, template: Template, constants: Member, types: dict[str, str]
    ) -> None:
        self.entry: E = entry
        self.template = template
        self.lead = template.lead
        self.anchor = template.anchor
        self.probe = template.probe
        self.stop = template.stop
        self.constants = constants
        self.formats = entry.formats if isinstance(entry, EventEntry) else ()
        self.always = limited = bool(self.formats)
        self.rank = (
            -template.literal_length - (_FORMAT_RANK if limited else 0),
            template.source,
        )
        self.pieces: PieceReader | None = None
        """The reader of the `fields` hole, once `extract` has been asked for."""
        self._types = types
        self._extract: Extract | None = None
        self.match: Callable[[str], re.Match[str] | None] = self._first_match

    def _first_match(self, text: str) -> re.Match[str] | None:
        self.match = self.template.pattern().match
        return self.match(text)

    @property
    def extract(self) -> Extract:
        """The function from the groups of a match to JSON members."""
        if self._extract is None:
            self._extract = compile_extract(
                self.template, self._types, self._hosts(), self.constants
            )
        return self._extract

    def _hosts(self) -> dict[str, Callable[[str], Member]]:
        kinds = {hole.type for hole in self.template.holes} & NESTED_TYPES
        if not kinds or not isinstance(self.entry, EventEntry):
            return {}
        hosts: dict[str, Callable[[str], Member]] = {"sampling_params": sampling_members}
        if "fields" in kinds:
            self.pieces = hosts["fields"] = PieceReader(self.entry.fields, self._types)
        if "kwargs" in kinds:
            hosts["kwargs"] = KeywordReader(self.entry.keys, self._types)
        return hosts


class PieceReader:
    """Reads `, `-separated pieces by their own templates; pieces of no template are passed over.

    One server prints the same pieces in the same order, so the order is learned and the next
    text is read by one match; what does not fit is read piece by piece, with the same result.
    """

    def __init__(self, sources: Sequence[str], types: dict[str, str]) -> None:
        entry: EventEntry = EventEntry(name="", match=[])
        pieces: list[Variant[EventEntry]] = [
            Variant(entry, parse_template(source), "", types) for source in sources
        ]
        self._types = types
        self._dispatcher = Dispatcher(pieces)
        self._shapes: list[tuple[Callable[[str], re.Match[str] | None], Extract]] = []
        self._last: tuple[str, re.Match[str], Extract] | None = None

    def __call__(self, text: str) -> Member:
        """The attributes of the pieces."""
        if (self._last is not None and self._last[0] is text) or self.fits(text):
            _, match, extract = self._last  # type: ignore[misc]
            return extract(match.groups())
        return self._read_pieces(text)

    def fits(self, text: str) -> bool:
        """Whether a learned text has this form: known pieces and numbers, and nothing else."""
        for index, (match, extract) in enumerate(self._shapes):
            if found := match(text):
                if index:
                    self._shapes.insert(0, self._shapes.pop(index))
                self._last = text, found, extract
                return True
        return False

    def _read_pieces(self, text: str) -> Member:
        pieces = text.split(", ", _MAX_PIECES)
        members = ""
        seen: set[str] = set()
        shape: list[str | Hole] | None = []
        index = 0
        while index < len(pieces):
            for width in range(1, _REJOINED + 1):
                piece = ", ".join(pieces[index : index + width])
                if found := self._find(piece):
                    break
            else:
                shape = None
                index += 1
                continue
            index += width
            variant, match = found
            # A key that stands twice counts once: JSON has no second member of a name.
            names = [hole.name for hole in attribute_holes(variant.template)]
            if seen.intersection(names):
                shape = None
                continue
            seen.update(names)
            members += variant.extract(match.groups())
            if shape is not None:
                shape = _with_piece(shape, variant.template, match)
        if shape:
            self._learn(shape)
        return members

    def _find(self, piece: str) -> tuple[Variant[EventEntry], re.Match[str]] | None:
        for variant in self._dispatcher.candidates(piece):
            if found := variant.match(piece):
                return variant, found
        return None

    def _learn(self, parts: list[str | Hole]) -> None:
        template = Template("", tuple(parts))
        extract = compile_extract(template, self._types, {})
        self._shapes.insert(0, (template.pattern().match, extract))
        del self._shapes[_MAX_SHAPES:]


def _with_piece(
    shape: list[str | Hole], template: Template, match: re.Match[str]
) -> list[str | Hole] | None:
    """The parts of a learned text with one more piece; None where a hole may hold the separator.

    A hole that stands first tells pieces apart, as a key does: its text is learned with it.
    """
    parts: list[str | Hole] = [*shape, ", "] if shape else []
    group = 0
    for index, part in enumerate(template.parts):
        if isinstance(part, str):
            parts.append(part)
            continue
        group += 1
        if index == 0:
            # A short word such as a device's name: nothing that redaction would look into.
            if not (match[group].isalpha() and len(match[group]) <= _MAX_KEY_LENGTH):
                return None
            parts.append(Hole(part.name, "choice", "", (match[group],)))
        elif part.is_open:
            return None
        else:
            parts.append(part)
    return parts


class KeywordReader:
    """Reads chosen keys of a `k=v` list, a call or a dict; `None` and other types give nothing."""

    def __init__(self, keys: dict[str, str], types: dict[str, str]) -> None:
        self._keys: dict[str, tuple[str, Callable[[str], str | None]]] = {}
        for key, target in keys.items():
            name, _, kind = target.partition(":")
            kind, _, parameter = kind.partition("(")
            convert = converter(
                kind or "text", parameter.removesuffix(")"), types.get(name, "string")
            )
            self._keys[key] = (member(name), convert)

    def __call__(self, text: str) -> Member:
        """The attributes of the chosen keys."""
        members = ""
        seen: set[str] = set()
        for key, start, end in key_spans(text):
            if key not in self._keys or key in seen or text[start:end] == "None":
                continue
            seen.add(key)
            name, convert = self._keys[key]
            try:
                value = convert(unquote(text[start:end].strip()))
            except ValueError:
                continue
            if value is not None:
                members += name + value
        return members


def event_variants(entry: EventEntry, types: dict[str, str]) -> list[Variant[EventEntry]]:
    """All variants of an event entry. Raises TemplateError."""
    constants = _constant_members(entry)
    return [
        Variant(entry, parse_template(source), constants, types)
        for wording in entry.wordings
        for source in expand(wording, tuple(entry.tail))
    ]


def line_variants(entry: EventEntry, types: dict[str, str]) -> list[Variant[EventEntry]]:
    """The declared further lines of an entry, as variants. Raises TemplateError."""
    return [Variant(entry, parse_template(source), "", types) for source in entry.lines]


def error_variants(entry: ErrorEntry, types: dict[str, str]) -> list[Variant[ErrorEntry]]:
    """All variants of an exception class. Raises TemplateError."""
    return [Variant(entry, parse_template(source), "", types) for source in entry.wordings]


def class_members(entry: EventEntry | ErrorEntry) -> Member:
    """The error class and role of an entry as JSON members; empty for none."""
    if entry.error is None:
        return ""
    return f'{member("error.type")}"{entry.error}"{member("vllm.error.role")}"{entry.role}"'


def attribute_holes(template: Template) -> list[Hole]:
    """The holes of a template that leave as attributes."""
    return [hole for hole in template.holes if hole.is_attribute]


def _constant_members(entry: EventEntry) -> Member:
    members = member("vllm.phase") + f'"{entry.phase}"' if entry.phase else ""
    for name, value in entry.constants.items():
        members += member(name) + msgspec.json.encode(value).decode()
    return members
