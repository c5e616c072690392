"""`SamplingParams(…)` of a request line: the GenAI request attributes and what is private in it."""

from __future__ import annotations

from collections.abc import Callable

from vllm_logpipe.catalogue.nested import key_spans, replace_values
from vllm_logpipe.catalogue.values import Member, float_json, int_json, member

_READ: tuple[tuple[str, str, Callable[[str], str | None]], ...] = (
    ("n=", member("gen_ai.request.choice.count"), int_json),
    ("temperature=", member("gen_ai.request.temperature"), float_json),
    ("top_p=", member("gen_ai.request.top_p"), float_json),
    ("top_k=", member("gen_ai.request.top_k"), float_json),
    ("seed=", member("gen_ai.request.seed"), int_json),
    ("max_tokens=", member("gen_ai.request.max_tokens"), int_json),
)
_BY_KEY = {key[:-1]: (name, convert) for key, name, convert in _READ}
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


def sampling_members(text: str) -> Member:
    """The GenAI request attributes as JSON members."""
    if "'" not in text and '"' not in text and "{" not in text and text.count("(") == 1:
        # No string and nothing nested: a key found anywhere is a key.
        return _plain_members(text)
    members = ""
    for key, start, end in key_spans(text):
        if key in _BY_KEY:
            name, convert = _BY_KEY[key]
            members += _member(name, convert, text[start:end])
    return members


def redact_sampling(text: str, keep: frozenset[str], placeholder: Callable[[str], str]) -> str:
    """The text with the values a client wrote (stop strings, schemas, token ids) replaced."""
    if "'" not in text and '"' not in text and "{" not in text:
        if text.count("[") == text.count("[]") and text.count("(") == 1:
            return text
    spans = [
        (start, end, placeholder(text[start:end]))
        for key, start, end in key_spans(text)
        if key in _PRIVATE and _PRIVATE[key] not in keep and text[start:end] not in _EMPTY
    ]
    return replace_values(text, spans) if spans else text


def _plain_members(text: str) -> Member:
    members = ""
    begin = text.find("(")
    for key, name, convert in _READ:
        found = text.find(key, begin)
        # A key of which this one is the end (min_p=, max_tokens= for n=) does not count.
        while found > 0 and text[found - 1] not in "( ":
            found = text.find(key, found + 1)
        if found < 0:
            continue
        start = found + len(key)
        end = text.find(",", start)
        if end < 0:
            end = text.find(")", start)
        value = text[start:end] if end >= 0 else text[start:]
        if value != "None":
            members += _member(name, convert, value)
    return members


def _member(name: str, convert: Callable[[str], str | None], text: str) -> Member:
    try:
        value = convert(text)
    except ValueError:
        return ""
    return "" if value is None else name + value
