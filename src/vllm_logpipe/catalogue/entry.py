"""The shapes of a catalogue file: what a TOML document may hold."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from vllm_logpipe.model import AttributeValue
from vllm_logpipe.semconv import AttributeType

OneOrMore: TypeAlias = str | list[str]


class Sample(Struct, forbid_unknown_fields=True):
    """A message that the entry must match, and all the attributes that it must give."""

    line: str
    expect: dict[str, AttributeValue] = {}


class EventEntry(Struct, forbid_unknown_fields=True):
    """One message: its wordings over the releases, its meaning and its samples."""

    name: str
    match: OneOrMore
    sample: list[Sample] = []
    brief: str | None = None
    """Meaning, for names that are not in `semconv`."""
    phase: str | None = None
    since: str | None = None
    until: str | None = None
    """First and last release that prints it, of those looked at."""
    tail: list[str] = []
    """Optional endings, each optional, in this order."""
    lines: list[str] = []
    """Further lines of the message, any number in any order."""
    formats: list[str] = []
    """The `vllm.log.format` values it is limited to; empty for all."""
    error: str | None = None
    role: str | None = None
    excludes: str | None = field(default=None, name="not")
    """What an error entry may not match, in words."""
    constants: dict[str, AttributeValue] = field(default_factory=dict, name="set")
    private: dict[str, str] = {}
    """Redaction field by local hole name."""
    fields: list[str] = []
    """Piece templates of the `fields` hole."""
    keys: dict[str, str] = {}
    """`attribute:type` by key, for the `kwargs` hole."""
    starts_instance: bool = False
    """Whether the message begins a new server start."""

    @property
    def wordings(self) -> tuple[str, ...]:
        """The wordings as a tuple, whether one or several were given."""
        return (self.match,) if isinstance(self.match, str) else tuple(self.match)


class ErrorEntry(Struct, forbid_unknown_fields=True):
    """One class of exception, by its type, its text, or both."""

    error: str
    role: str
    sample: list[Sample] = []
    types: list[str] = []
    """Exception classes: the last component or the full dotted name."""
    match: OneOrMore = []
    """Templates for a line of the exception's text."""
    excludes: str | None = field(default=None, name="not")
    since: str | None = None
    until: str | None = None

    @property
    def wordings(self) -> tuple[str, ...]:
        """The wordings as a tuple, whether one or several were given."""
        return (self.match,) if isinstance(self.match, str) else tuple(self.match)


class AttributeEntry(Struct, forbid_unknown_fields=True):
    """An attribute that a user's own catalogue adds."""

    name: str
    type: AttributeType
    brief: str
    unit: str = ""


class CatalogueFile(Struct, forbid_unknown_fields=True):
    """One TOML document of entries."""

    event: list[EventEntry] = []
    error: list[ErrorEntry] = []
    attribute: list[AttributeEntry] = []
