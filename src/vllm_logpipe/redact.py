"""What must not leave: secrets anywhere in a text, and what the catalogue calls private."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources

import msgspec
import tomli
from msgspec import Struct

from vllm_logpipe.catalogue.sampling import redact_sampling
from vllm_logpipe.semconv import OPTIONAL_FIELDS, PRIVATE_FIELDS

PLACEHOLDER = "[redacted]"

_MAX_ID_LENGTH = 100
_MAX_CLEAN = 4096


class Pattern(Struct, frozen=True, forbid_unknown_fields=True):
    """One pattern of `redaction.toml`, with the sample that proves it."""

    name: str
    field: str
    trigger: tuple[str, ...]
    pattern: str
    sample: str
    expect: str
    optional: bool = False


class Settings(Struct, frozen=True):
    """The decoded `redaction.toml`."""

    patterns: tuple[Pattern, ...]
    request_id: re.Pattern[str]
    """vLLM's own request ids: they come on every other line and hold no secret."""
    whole: dict[str, str]
    """Fields that are the whole text of an attribute, by its name."""


@cache
def load_settings() -> Settings:
    """What must not leave, as it ships with the catalogue."""
    source = resources.files("vllm_logpipe.catalogue") / "redaction.toml"
    document = tomli.loads(source.read_text("utf-8"))
    patterns = document["pattern"]
    # A part may name those before it, so the last one goes in first.
    for name, part in reversed(document["parts"].items()):
        for pattern in patterns:
            pattern["pattern"] = pattern["pattern"].replace(f"%{name}%", part)
    return Settings(
        msgspec.convert(patterns, tuple[Pattern, ...]),
        re.compile(document["request_id"]["pattern"]),
        document["whole"],
    )


def load_patterns() -> tuple[Pattern, ...]:
    """The patterns that ship with the catalogue."""
    return load_settings().patterns


def hide(text: str) -> str:
    """What stands in place of a private text: its length is kept, its content is not."""
    return f"[redacted {len(text)} chars]"


class Redactor:
    """Replaces secrets in texts.

    `keep` names fields that are private by default and shall stay, `also` optional fields that
    shall go too. Raises ValueError for a name that is none of them.
    """

    def __init__(self, keep: Iterable[str] = (), also: Iterable[str] = ()) -> None:
        self.keep = frozenset(keep)
        self.also = frozenset(also)
        for given, known in ((self.keep, PRIVATE_FIELDS), (self.also, OPTIONAL_FIELDS)):
            if unknown := given - known:
                raise ValueError(
                    f"unknown redaction field {min(unknown)!r}; known: {', '.join(sorted(known))}"
                )
        self._clean: set[str] = set()
        settings = load_settings()
        self._is_id = settings.request_id.fullmatch
        self._whole = settings.whole
        self._rules = [
            (pattern.trigger, re.compile(pattern.pattern))
            for pattern in settings.patterns
            if (pattern.field in self.also if pattern.optional else pattern.field not in self.keep)
        ]
        triggers = {trigger for rule in self._rules for trigger in rule[0]}
        self._triggers = tuple(
            t for t in sorted(triggers) if not any(o in t for o in triggers if o != t)
        )

    def scrub(self, text: str) -> str:
        """The text with every secret replaced; the same object when there is none."""
        if text in self._clean:
            return text
        short = len(text) < _MAX_ID_LENGTH
        if short and self._is_id(text):
            return text
        lowered = text.lower()
        for trigger in self._triggers:
            if trigger in lowered:
                return self._scrub_all(text, lowered)
        if short:
            if len(self._clean) >= _MAX_CLEAN:
                self._clean.clear()
            self._clean.add(text)
        return text

    def for_hole(self, kind: str, field: str | None, name: str = "") -> Callable[[str], str]:
        """The function that redacts the text of a hole: its type, private field and attribute."""
        if field is not None and field not in self.keep:
            return hide
        whole = self._whole.get(name)
        if whole in self.also:
            return _replace_whole
        if whole in PRIVATE_FIELDS - self.keep:
            return hide
        if kind == "sampling_params":
            keep, scrub = self.keep, self.scrub

            def scrub_sampling(text: str) -> str:
                redacted = redact_sampling(text, keep, hide)
                if "'" in redacted or '"' in redacted:
                    return scrub(redacted)
                return redacted

            return scrub_sampling
        return self.scrub

    def attribute(self, name: str, text: str) -> str:
        """What stands for the text of an attribute that a header gives."""
        return self.for_hole("text", None, name)(text)

    def _scrub_all(self, text: str, lowered: str) -> str:
        before = text
        for triggers, pattern in self._rules:
            if any(trigger in lowered for trigger in triggers):
                text = pattern.sub(_replace, text)
        return before if text == before else text


def _replace_whole(_text: str) -> str:
    return PLACEHOLDER


def _replace(found: re.Match[str]) -> str:
    if not found.re.groupindex:
        return PLACEHOLDER
    start, end = found.span("secret")
    whole = found.group()
    if start < 0:
        return whole
    offset = found.start()
    return f"{whole[: start - offset]}{PLACEHOLDER}{whole[end - offset :]}"
