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
_MAX_CACHED = 4096
_MAX_CACHED_LENGTH = 100
_REJOINED = 3
"""Pieces that belong together at the most: some values hold the separator themselves."""


E = TypeVar("E", bound=EventEntry | ErrorEntry)


class Variant(Generic[E]):
    """One template of an entry, compiled when first needed."""

    __slots__ = (
        "_extract",
        "_types",
        "anchor",
        "constants",
        "entry",
        "lead",
        "match",
        "probe",
        "rank",
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
        self.constants = constants
        limited = isinstance(entry, EventEntry) and bool(entry.formats)
        self.rank = (
            -template.literal_length - (_FORMAT_RANK if limited else 0),
            template.source,
        )
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
            hosts["fields"] = PieceReader(self.entry.fields, self._types)
        if "kwargs" in kinds:
            hosts["kwargs"] = KeywordReader(self.entry.keys, self._types)
        return hosts


class PieceReader:
    """Reads `, `-separated pieces by their own templates; pieces of no template are passed over."""

    def __init__(self, sources: Sequence[str], types: dict[str, str]) -> None:
        entry = EventEntry(name="", match=[])
        pieces: list[Variant[EventEntry]] = [
            Variant(entry, parse_template(source), "", types) for source in sources
        ]
        self._dispatcher = Dispatcher(pieces)
        self._cache: dict[str, tuple[str, Member] | None] = {}

    def __call__(self, text: str) -> Member:
        """The attributes of the pieces."""
        pieces = text.split(", ", _MAX_PIECES)
        members = ""
        seen: set[str] = set()
        index = 0
        while index < len(pieces):
            width = 1
            for width in range(1, _REJOINED + 1):
                piece = pieces[index] if width == 1 else ", ".join(pieces[index : index + width])
                found = self._read(piece)
                if found is not None:
                    # A key that stands twice counts once: JSON has no second member of a name.
                    if found[0] not in seen:
                        seen.add(found[0])
                        members += found[1]
                    break
            else:
                width = 1
            index += width
        return members

    def _read(self, piece: str) -> tuple[str, Member] | None:
        """The first attribute of a piece and its members; None for a piece of no template."""
        try:
            return self._cache[piece]
        except KeyError:
            pass
        read: tuple[str, Member] | None = None
        for variant in self._dispatcher.candidates(piece):
            if found := variant.match(piece):
                names = [hole.name for hole in attribute_holes(variant.template)]
                read = (names[0] if names else piece, variant.extract(found.groups()))
                break
        if len(piece) <= _MAX_CACHED_LENGTH:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[piece] = read
        return read


class KeywordReader:
    """Reads chosen keys of a `k=v` list, a call or a dict; `None` and other types give nothing."""

    def __init__(self, keys: dict[str, str], types: dict[str, str]) -> None:
        self._keys: dict[str, tuple[str, Callable[[str], str | None]]] = {}
        for key, target in keys.items():
            name, _, kind = target.partition(":")
            convert = converter(kind or "text", "", types.get(name, "string"))
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
                value = convert(unquote(text[start:end]))
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
