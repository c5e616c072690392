"""`SamplingParams(…)` of a request line: the GenAI request attributes and what is private in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from vllm_logpipe.catalogue.nested import MAX_NESTED_LENGTH, key_spans, replace_values
from vllm_logpipe.catalogue.values import Member, float_json, int_json, member

_Span: TypeAlias = tuple[str, int, int]
"""A key, and where its value begins and ends."""

_READ: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "n": (member("gen_ai.request.choice.count"), int_json),
    "temperature": (member("gen_ai.request.temperature"), float_json),
    "top_p": (member("gen_ai.request.top_p"), float_json),
    "top_k": (member("gen_ai.request.top_k"), float_json),
    "seed": (member("gen_ai.request.seed"), int_json),
    "max_tokens": (member("gen_ai.request.max_tokens"), int_json),
}
_PRIVATE = {
    "stop": "stop",
    "bad_words": "stop",
    "stop_token_ids": "token_ids",
    "allowed_token_ids": "token_ids",
    "logit_bias": "token_ids",
    "guided_decoding": "schema",
    "structured_outputs": "schema",
    "logits_processors": "params",
    "extra_args": "params",
    "vllm_xargs": "params",
    "tokens": "token_ids",
}
_EMPTY = frozenset({"None", "[]", "{}", "()", "set()", ""})
_MAX_SHAPES = 8
_MAX_KEYS = 64
"""Keys of an order that is learned: vLLM prints about half as many."""
_MAX_DEPTH = 6
_NAME = re.compile(r"[A-Za-z_]\w{0,63}")
_QUOTED = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""
_PLAIN = r"""[^,()\[\]{}<>'"=]*+(?:\[\])?+"""
_JSON_INT = r"(?:(-?(?:0|[1-9][0-9]{0,17}))|None)"
_JSON_FLOAT = r"(?:(-?(?:0|[1-9][0-9]{0,15})\.[0-9]{1,17})|None)"
"""Numbers that are JSON as they stand."""


def _bracketed(depth: int) -> str:
    """The pattern of a list, call or dict that holds others, this deep."""
    inner = "" if depth == 0 else f"|{_bracketed(depth - 1)}"
    return rf"""[\[({{](?:[^\[\](){{}}<>'"]++|{_QUOTED}{inner})*+[\])}}]"""


_WRITTEN = rf"(None|[A-Za-z_.]{{0,64}}+{_bracketed(_MAX_DEPTH)}|{_QUOTED})"
"""A value a client may have written."""
_LEARNABLE = re.compile(rf"{_PLAIN}|{_WRITTEN}", re.DOTALL)


class _Shape(Struct, frozen=True):
    """The keys of one release, in its order, as patterns that read them all at once."""

    count: int
    """The number of keys: no other text without a client's words has as many equals signs."""
    plain: Callable[[str], re.Match[str] | None]
    """For texts in which no client wrote anything: its groups are the numbers."""
    full: Callable[[str], re.Match[str] | None]
    """For all texts: its groups are the numbers and what clients may have written."""
    numbers: tuple[int, ...]
    """Groups of `full` that hold the numbers."""
    written: tuple[int, ...]
    """Groups of `full` that hold what clients may have written."""
    names: tuple[tuple[str, str], ...]
    """JSON members of the numbers, and what makes a printed number one of the attribute's type."""
    privates: tuple[str, ...]
    """Keys that clients write values for."""

    def read(self, numbers: Sequence[str | None]) -> Member:
        members = ""
        for (name, ending), number in zip(self.names, numbers, strict=True):
            if number is not None:
                members += name + number + ending
        return members


class SamplingParams:
    """Reads and redacts the text of sampling parameters.

    One server prints the same keys in the same order, so the order is learned and the next text
    is read by one match. What does not fit is read key by key, with the same result.
    """

    def __init__(self) -> None:
        self._shapes: list[_Shape] = []
        self._last: tuple[str, _Shape, re.Match[str]] | None = None

    def members(self, text: str) -> Member:
        """The GenAI request attributes as JSON members."""
        last = self._last
        if last is not None and last[0] is text:
            return last[1].read(last[2].groups())
        for shape in self._shapes:
            if match := shape.full(text):
                return shape.read(match.group(0, 0, *shape.numbers)[2:])
        # A key that stands twice counts once: JSON has no second member of a name.
        values = {key: (start, end) for key, start, end in key_spans(text) if key in _READ}
        return "".join(
            _member(*_READ[key], text[start:end]) for key, (start, end) in values.items()
        )

    def redact(self, text: str, keep: frozenset[str], placeholder: Callable[[str], str]) -> str:
        """The text with the values a client wrote (stop strings, schemas, token ids) replaced."""
        if self._fits_plainly(text):
            return text
        values = self._written(text)
        if values is None:
            values = list(key_spans(text))
            self._learn(text, values)
            if len(text) > MAX_NESTED_LENGTH and not keep.issuperset(_PRIVATE.values()):
                return _redact_unread(text, values, keep, placeholder)
        private = _private(text, values, keep, placeholder)
        return replace_values(text, private) if private else text

    def _written(self, text: str) -> list[_Span] | None:
        """What clients may have written in a text of a learned order; None for any other."""
        for shape in self._shapes:
            if match := shape.full(text):
                return [
                    (key, *match.span(group))
                    for key, group in zip(shape.privates, shape.written, strict=True)
                ]
        return None

    def _fits_plainly(self, text: str) -> bool:
        count = text.count("=")
        for shape in self._shapes:
            if shape.count == count and (match := shape.plain(text)):
                self._last = text, shape, match
                return True
        return False

    def _learn(self, text: str, spans: list[_Span]) -> None:
        """Take up the keys of a text, where they are not too many and no value nests too deep."""
        if not 0 < len(spans) <= _MAX_KEYS:
            return
        opening, bracket, _ = text.partition("(")
        values = {key: text[start:end] for key, start, end in spans}
        if not bracket or not all(map(_NAME.fullmatch, (opening, *values))):
            return
        if not all(map(_LEARNABLE.fullmatch, values.values())):
            return
        reads = [key for key in values if key in _READ]
        plain = {key: _number(key) if key in _READ else _PLAIN for key in values}
        full = {key: _WRITTEN if key in _PRIVATE else plain[key] for key in values}
        groups = [key for key in values if key in _READ or key in _PRIVATE]
        shape = _Shape(
            len(values),
            _pattern(opening, plain),
            _pattern(opening, full),
            tuple(groups.index(key) + 1 for key in reads),
            tuple(groups.index(key) + 1 for key in groups if key in _PRIVATE),
            tuple((_READ[key][0], ".0" if key == "top_k" else "") for key in reads),
            tuple(key for key in values if key in _PRIVATE),
        )
        if shape.full(text):
            self._shapes.insert(0, shape)
            del self._shapes[_MAX_SHAPES:]


def _private(
    text: str, spans: list[_Span], keep: frozenset[str], placeholder: Callable[[str], str]
) -> list[tuple[int, int, str]]:
    """What to put in place of the values that a client wrote."""
    return [
        (start, end, placeholder(text[start:end]))
        for key, start, end in spans
        if key in _PRIVATE and _PRIVATE[key] not in keep and text[start:end] not in _EMPTY
    ]


def _redact_unread(
    text: str, spans: list[_Span], keep: frozenset[str], placeholder: Callable[[str], str]
) -> str:
    """The redacted text where not all of it is looked at: nobody knows what the rest holds."""
    cut = spans[-1][1] if spans else MAX_NESTED_LENGTH
    private = _private(text, spans[:-1], keep, placeholder)
    return replace_values(text, [*private, (cut, len(text), placeholder(text[cut:]))])


def _number(key: str) -> str:
    """The pattern of a number: `top_k` is printed whole, and is a double by convention."""
    return _JSON_INT if key == "top_k" or _READ[key][1] is int_json else _JSON_FLOAT


def _pattern(opening: str, values: dict[str, str]) -> Callable[[str], re.Match[str] | None]:
    pieces = ", ".join(f"{key}={value}" for key, value in values.items())
    return re.compile(rf"{opening}\({pieces}\)", re.DOTALL).fullmatch


def _member(name: str, convert: Callable[[str], str | None], text: str) -> Member:
    if text == "None":
        return ""
    try:
        value = convert(text)
    except ValueError:
        return ""
    return "" if value is None else name + value


_PARAMS = SamplingParams()
"""One for all: what it learns is the order of keys, not their values."""

sampling_members = _PARAMS.members
redact_sampling = _PARAMS.redact
