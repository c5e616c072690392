"""`SamplingParams(…)` of a request line: the GenAI request attributes and what is private in it."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from vllm_logpipe.catalogue.nested import key_spans, replace_values
from vllm_logpipe.catalogue.values import Member, float_json, int_json, member

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
_NAME = re.compile(r"[A-Za-z_]\w{0,63}")
_QUOTED = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""
_PLAIN_VALUE = r"""[^,()\[\]{}<>'"=]*+(?:\[\])?+"""
_MAX_DEPTH = 6


def _bracketed(depth: int) -> str:
    """The pattern of a list, call or dict that holds others, this deep."""
    inner = "" if depth == 0 else f"|{_bracketed(depth - 1)}"
    return rf"""[\[({{](?:[^\[\](){{}}'"]++|{_QUOTED}{inner})*+[\])}}]"""


_PRIVATE_VALUE = rf"(None|[A-Za-z_.]{{0,64}}+{_bracketed(_MAX_DEPTH)}|{_QUOTED})"
"""A value a client may have written."""
_JSON_INT = r"(-?(?:0|[1-9][0-9]{0,17}))|None"
_JSON_FLOAT = r"(-?(?:0|[1-9][0-9]{0,15})\.[0-9]{1,17})|None"
"""Numbers that are JSON as they stand."""
_LEARNABLE = re.compile(rf"{_PLAIN_VALUE}|{_PRIVATE_VALUE}", re.DOTALL)


class _Shape(Struct, frozen=True):
    """The keys of one release, in its order, as one pattern that reads them all at once."""

    pattern: re.Pattern[str]
    reads: tuple[tuple[int, str, str], ...]
    """Group, JSON member and what makes the printed number one of the attribute's type."""
    privates: tuple[tuple[int, str], ...]


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
        members = ""
        last = self._last
        found = last[1:] if last is not None and last[0] is text else self._match(text)
        if found is None:
            for key, start, end in key_spans(text):
                if key in _READ:
                    members += _member(*_READ[key], text[start:end])
            return members
        shape, match = found
        for group, name, ending in shape.reads:
            value = match[group]
            if value is not None:
                members += name + value + ending
        return members

    def redact(self, text: str, keep: frozenset[str], placeholder: Callable[[str], str]) -> str:
        """The text with the values a client wrote (stop strings, schemas, token ids) replaced."""
        found = self._match(text)
        if found is None:
            self._learn(text)
            values = [(key, start, end) for key, start, end in key_spans(text) if key in _PRIVATE]
        else:
            shape, match = found
            values = [(key, *match.span(group)) for group, key in shape.privates]
        spans = [
            (start, end, placeholder(text[start:end]))
            for key, start, end in values
            if _PRIVATE[key] not in keep and text[start:end] not in _EMPTY
        ]
        return replace_values(text, spans) if spans else text

    def _match(self, text: str) -> tuple[_Shape, re.Match[str]] | None:
        for index, shape in enumerate(self._shapes):
            if match := shape.pattern.fullmatch(text):
                if index:
                    self._shapes.insert(0, self._shapes.pop(index))
                self._last = text, shape, match
                return shape, match
        return None

    def _learn(self, text: str) -> None:
        """Take up the keys of a text, where no value is nested deeper than a list."""
        opening, bracket, _ = text.partition("(")
        values = {key: text[start:end] for key, start, end in key_spans(text)}
        keys = list(values)
        if not bracket or not keys or not all(map(_NAME.fullmatch, (opening, *keys))):
            return
        if not all(_LEARNABLE.fullmatch(value) for value in values.values()):
            return
        reads: list[tuple[int, str, str]] = []
        privates: list[tuple[int, str]] = []
        pieces: list[str] = []
        group = 0
        for key in keys:
            value = f"(?:{_PLAIN_VALUE})"
            if key in _READ:
                group += 1
                name, convert = _READ[key]
                whole = convert is int_json or key == "top_k"
                value = f"(?:{_JSON_INT if whole else _JSON_FLOAT})"
                reads.append((group, name, ".0" if key == "top_k" else ""))
            elif key in _PRIVATE:
                group += 1
                value = _PRIVATE_VALUE
                privates.append((group, key))
            pieces.append(f"{key}={value}")
        pattern = re.compile(rf"{opening}\({', '.join(pieces)}\)", re.DOTALL)
        if pattern.fullmatch(text):
            self._shapes.insert(0, _Shape(pattern, tuple(reads), tuple(privates)))
            del self._shapes[_MAX_SHAPES:]


_PARAMS = SamplingParams()
"""One for all: what it learns is the order of keys, not their values."""

sampling_members = _PARAMS.members
redact_sampling = _PARAMS.redact


def _member(name: str, convert: Callable[[str], str | None], text: str) -> Member:
    if text == "None":
        return ""
    try:
        value = convert(text)
    except ValueError:
        return ""
    return "" if value is None else name + value
