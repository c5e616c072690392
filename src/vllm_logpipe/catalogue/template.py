"""The template language: literals and typed holes, compiled to one linear-time pattern each.

A template such as ``GPU KV cache size: {vllm.kv_cache.capacity:int} tokens`` is text with holes.
Semantics are committed: every hole takes its text once, leftmost first, and is never asked to
give any of it back. So a template means the same on every host and costs time linear in the
length of the line, whatever the line holds.
"""

from __future__ import annotations

import re

from msgspec import Struct

OPEN_TYPES = frozenset(
    [
        "word",
        "text",
        "last",
        "rest",
        "path",
        "quoted",
        "list",
        "words",
        "fields",
        "kwargs",
        "sampling_params",
    ]
)
"""Hole types whose text a client or an operator may control: redaction looks into these."""

NUMBER_TYPES = frozenset({"int", "float", "bytes", "seconds", "ratio", "ints", "floats", "hex"})
NESTED_TYPES = frozenset({"fields", "kwargs", "sampling_params"})
HOLE_TYPES = OPEN_TYPES | NUMBER_TYPES | NESTED_TYPES | {"choice"}

BYTE_UNITS = {
    "B": 1,
    "bytes": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
"""Bytes in one unit, by the unit as printed."""

SECOND_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
}
"""Seconds in one unit, by the unit as printed."""

_HOLE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_INT = r"[+-]?[0-9]++(?:,[0-9]{3}(?![0-9]))*+"
FLOAT = r"[+-]?(?:[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|nan|inf)"
_QUOTED = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""
_LIST = rf"\[(?:[^\]'\"]++|{_QUOTED})*+\]"
_SPACES = " \t\n\r\f\v"
"""White space as the patterns know it; what lies outside ASCII is part of a word."""


class TemplateError(ValueError):
    """A template that the language does not allow; the text says where and why."""


class Hole(Struct, frozen=True, gc=False):
    """One hole: attribute name (empty: matched, not kept), type, and the type's parameter."""

    name: str
    type: str
    parameter: str = ""
    choices: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether a client or an operator may control the text."""
        return self.type in OPEN_TYPES

    @property
    def is_attribute(self) -> bool:
        """Whether the value leaves as an attribute: only dotted names do."""
        return "." in self.name


class Template(Struct, frozen=True):
    """A parsed template: its source text and its parts, literals (str) and holes in order."""

    source: str
    parts: tuple[str | Hole, ...]

    @property
    def holes(self) -> tuple[Hole, ...]:
        """The holes in order, which is also the order of the pattern's groups."""
        return tuple(part for part in self.parts if isinstance(part, Hole))

    @property
    def lead(self) -> str:
        """The literal text before the first hole; empty when a hole stands first."""
        first = self.parts[0] if self.parts else ""
        return first if isinstance(first, str) else ""

    @property
    def anchor(self) -> str:
        """The longest literal part: a text without it cannot match."""
        return max((part for part in self.parts if isinstance(part, str)), key=len, default="")

    @property
    def stop(self) -> str:
        """The literal text after the first hole; empty for none."""
        index = 2 if self.lead else 1
        part = self.parts[index] if index < len(self.parts) else ""
        return part if isinstance(part, str) else ""

    @property
    def probe(self) -> str:
        """The longest literal after the first hole: tells templates of one lead apart."""
        return max((part for part in self.parts[1:] if isinstance(part, str)), key=len, default="")

    @property
    def literal_length(self) -> int:
        """Characters of fixed text: what makes one template more specific than another."""
        return sum(len(part) for part in self.parts if isinstance(part, str))

    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern; one group a hole, anchored at both ends of the text."""
        return re.compile(_regex(self.parts), re.DOTALL | re.ASCII)


def parse_template(source: str) -> Template:
    """Parse one template.

    Raises TemplateError for an unknown hole type, a stray brace, a bad parameter or two holes
    without a literal between them.
    """
    parts: list[str | Hole] = []
    literal = ""
    position = 0
    for found in _HOLE.finditer(source):
        literal += source[position : found.start()]
        position = found.end()
        token = found.group()
        if token in ("{{", "}}"):
            literal += token[0]
            continue
        if found.group(1) is None:
            raise TemplateError(f"stray {token!r} at character {found.start() + 1}; write it twice")
        if literal:
            parts.append(literal)
            literal = ""
        hole = _parse_hole(found.group(1))
        if parts and isinstance(parts[-1], Hole):
            raise TemplateError(f"no literal before {token!r}: two holes in a row")
        parts.append(hole)
    literal += source[position:]
    if literal:
        parts.append(literal)
    return Template(source, tuple(parts))


def expand(wording: str, tails: tuple[str, ...]) -> tuple[str, ...]:
    """The template sources of a wording with every choice of its optional tails, longest first."""
    sources = [""]
    for tail in reversed(tails):
        sources = [tail + rest for rest in sources] + sources
    return tuple(sorted({wording + rest for rest in sources}, key=len, reverse=True))


def _parse_hole(text: str) -> Hole:
    name, equals, options = text.partition("=")
    if equals and ":" not in name and "(" not in name:
        choices = tuple(options.split("|"))
        if len(choices) < 2 or "" in choices:
            raise TemplateError(f"'{{{text}}}' needs two or more choices")
        return Hole(name, "choice", "", choices)
    name, _, kind = text.partition(":")
    kind, bracket, parameter = kind.partition("(")
    if bracket and not parameter.endswith(")"):
        raise TemplateError(f"'{{{text}}}' lacks its closing ')'")
    if kind not in HOLE_TYPES - {"choice"}:
        raise TemplateError(f"'{{{text}}}' has the unknown type {kind!r}")
    parameter = parameter.removesuffix(")")
    _check_parameter(text, kind, parameter)
    return Hole(name, kind, parameter)


def _check_parameter(text: str, kind: str, parameter: str) -> None:
    if not parameter:
        return
    if kind == "bytes":
        known = all(unit in BYTE_UNITS for unit in parameter.split("="))
    elif kind == "seconds":
        known = parameter in SECOND_UNITS
    else:
        known = kind == "ratio" and parameter == "1"
    if not known:
        raise TemplateError(f"'{{{text}}}' has the unknown parameter {parameter!r}")


def _regex(parts: tuple[str | Hole, ...]) -> str:
    pieces: list[str] = []
    skip = False
    for index, part in enumerate(parts):
        if isinstance(part, str):
            if not skip:
                pieces.append(re.escape(part))
            skip = False
            continue
        after = parts[index + 1] if index + 1 < len(parts) else None
        stop = after if isinstance(after, str) else None
        ends = index + 2 >= len(parts)
        piece, skip = _hole_regex(part, stop, ends=ends)
        pieces.append(piece)
    return "".join(pieces) + r"\Z"


def _hole_regex(hole: Hole, stop: str | None, *, ends: bool) -> tuple[str, bool]:
    """The pattern of one hole, and whether it has taken the literal behind it too."""
    fixed = _fixed_regex(hole)
    if fixed is not None:
        return fixed, False
    if hole.type in ("rest", "fields") or stop is None:
        if hole.type in ("word", "words"):
            return (r"(\S++)" if hole.type == "word" else r"([^\s,]++(?:, [^\s,]++)*+)"), False
        return r"(.*)", False
    literal = re.escape(stop)
    if hole.type == "word":
        if stop[0] in _SPACES:
            return r"(\S++)", False
        if ends:
            return rf"(?>(\S+){literal}\Z)", True
        return rf"(?>(\S+?){literal})", True
    if hole.type == "words":
        return r"([^\s,]++(?:, [^\s,]++)*+)", False
    if ends:
        return rf"(?>(.*){literal}\Z)", True
    greedy = "" if hole.type in ("last", "kwargs", "sampling_params") else "?"
    if greedy and len(stop) == 1:
        return rf"([^{literal}]*+)", False
    return rf"(?>(.*{greedy}){literal})", True


def _fixed_regex(hole: Hole) -> str | None:
    """The pattern of a hole whose extent its own grammar decides; None for open holes."""
    match hole.type:
        case "int":
            return f"({_INT})"
        case "float":
            return f"({FLOAT})"
        case "bytes" if not hole.parameter or "=" in hole.parameter:
            return f"({FLOAT} ?(?:[KMGT]i?B|bytes|B))"
        case "seconds" if not hole.parameter:
            return f"({FLOAT} ?(?:seconds|second|secs|sec|min|ms|us|ns|s))"
        case "ratio" if not hole.parameter:
            return f"({FLOAT}) ?%"
        case "bytes" | "seconds" | "ratio":
            return f"({FLOAT})"
        case "quoted":
            return f"({_QUOTED})"
        case "list":
            return f"({_LIST})"
        case "ints":
            return f"({_INT}(?:, {_INT})*+)"
        case "floats":
            return f"({FLOAT}(?:, {FLOAT})*+)"
        case "hex":
            return "((?:0x)?+[0-9a-fA-F]++)"
        case "choice":
            options = sorted(hole.choices, key=len, reverse=True)
            return f"((?>{'|'.join(map(re.escape, options))}))"
    return None
