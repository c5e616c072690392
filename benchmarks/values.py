"""Fills the holes of the corpus's wordings with synthetic values from one seeded generator."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_HOLE = re.compile(r"@\{([a-z0-9]+)(?::([^{}]*))?\}")
_CALLS = (
    *['POST /v1/chat/completions HTTP/1.1" 200 OK'] * 9,
    *['POST /v1/completions HTTP/1.1" 200 OK'] * 4,
    'POST /v1/chat/completions HTTP/1.1" 400 Bad Request',
    'POST /v1/chat/completions HTTP/1.1" 404 Not Found',
    'POST /v1/embeddings?trace=1 HTTP/1.1" 200 OK',
    'POST /tokenize HTTP/1.1" 200 OK',
    'GET /v1/models HTTP/1.1" 200 OK',
    'GET /health HTTP/1.1" 200 OK',
    'GET /metrics HTTP/1.1" 200 OK',
    'POST /v1/completions HTTP/1.1" 500 Internal Server Error',
)
_SCHEMA = (
    "StructuredOutputsParams(json={'type': 'object', 'properties': {'city': {'type': 'string'}},"
    " 'required': ['city']}, regex=None, choice=None, grammar=None)"
)
_LORA = "LoRARequest(lora_name='tenant-7', lora_int_id=7, lora_path='/models/lora/tenant-7')"
_WORDS = re.findall(
    r"\w+",
    "the server answers each question with a short list of stations and the time of the next train",
)


@dataclass
class Context:
    """What the values of one line depend on: generator, clock, request ids of the server."""

    rng: Random
    stamp: str = "11-30 12:00:00"
    fraction: int = 0
    last_id: str = ""
    preemptions: int = 0


Fill = Callable[[Context], str]
Text = Callable[[Context], str]


def _range(argument: str) -> tuple[float, float]:
    low, high = argument.split("-")
    return float(low), float(high)


def _int(argument: str) -> Fill:
    low, high = _range(argument)
    span = int(high) - int(low) + 1
    return lambda context: str(int(low) + int(context.rng.random() * span))


def _commas(argument: str) -> Fill:
    low, high = _range(argument)
    return lambda context: f"{int(low + context.rng.random() * (high - low)):,}"


def _float(argument: str) -> Fill:
    bounds, digits = argument.split(":")
    low, high = _range(bounds)
    form = f"%.{digits}f"
    return lambda context: form % (low + context.rng.random() * (high - low))


def _fraction(argument: str) -> Fill:
    return _float(f"0-1:{argument}")


def _hex(argument: str) -> Fill:
    bits, form = int(argument) * 4, f"%0{argument}x"
    return lambda context: form % context.rng.getrandbits(bits)


def _pick(argument: str) -> Fill:
    options = argument.split("|")
    return lambda context: options[int(context.rng.random() * len(options))]


def _rid(context: Context) -> str:
    bits = context.rng.getrandbits(129)
    identity = f"{bits >> 1:032x}"
    context.last_id = f"chatcmpl-{identity}" if bits & 1 else f"cmpl-{identity}-0"
    return context.last_id


def _iid(context: Context) -> str:
    return f"{context.last_id}-{context.rng.getrandbits(32):08x}"


def _last(context: Context) -> str:
    return context.last_id


def _seed(context: Context) -> str:
    bits = context.rng.getrandbits(33)
    return str(bits >> 1) if bits & 1 else "None"


def _schema(context: Context) -> str:
    return _SCHEMA if context.rng.random() < 0.04 else "None"


def _stop(context: Context) -> str:
    return "['User:', 'Observation:']" if context.rng.random() < 0.08 else "[]"


def _lora(context: Context) -> str:
    return _LORA if context.rng.random() < 0.08 else "None"


def _prompt(context: Context) -> str:
    words = " ".join(context.rng.choices(_WORDS, k=6 + int(context.rng.random() * 14)))
    if context.rng.random() < 0.01:
        words += " à la gare 駅"
    return f"'<|im_start|>user\\n{words}<|im_end|>\\n'"


def _ids(context: Context) -> str:
    if context.rng.random() < 0.7:
        return "None"
    return str([437 + int(context.rng.random() * 900) for _ in range(12)])


def _fifty(context: Context) -> str:
    context.preemptions += 50
    return str(context.preemptions)


def _client(context: Context) -> str:
    bits = context.rng.getrandbits(24)
    return f"192.0.2.{bits & 255}:{32768 + (bits >> 9)}"


def _call(context: Context) -> str:
    return _CALLS[int(context.rng.random() * len(_CALLS))]


def _c10d(context: Context) -> str:
    context.fraction = (context.fraction + 7919) % 1_000_000_000
    day, clock = context.stamp.split(" ")
    return f"{day.replace('-', '')} {clock}.{context.fraction:09d}"


def _stamp(context: Context) -> str:
    return f"2026-{context.stamp}"


_WITH_ARGUMENT: dict[str, Callable[[str], Fill]] = {
    "int": _int,
    "commas": _commas,
    "float": _float,
    "fraction": _fraction,
    "hex": _hex,
    "pick": _pick,
}
_PLAIN: dict[str, Fill] = {
    "rid": _rid,
    "iid": _iid,
    "last": _last,
    "seed": _seed,
    "schema": _schema,
    "stop": _stop,
    "lora": _lora,
    "prompt": _prompt,
    "ids": _ids,
    "fifty": _fifty,
    "client": _client,
    "call": _call,
    "c10d": _c10d,
    "stamp": _stamp,
}


def compile_text(text: str) -> Text:
    """Return the function that writes `text` with its holes filled."""
    pieces = _HOLE.split(text)
    form = "%s".join(literal.replace("%", "%%") for literal in pieces[::3])
    fills = [
        _PLAIN[kind] if argument is None else _WITH_ARGUMENT[kind](argument)
        for kind, argument in zip(pieces[1::3], pieces[2::3], strict=True)
    ]
    if not fills:
        return lambda _: text
    if len(fills) == 1:
        only = fills[0]
        return lambda context: form % only(context)
    return lambda context: form % tuple([fill(context) for fill in fills])
