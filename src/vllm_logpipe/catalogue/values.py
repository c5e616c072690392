"""From the text in a hole to a JSON member: typed, in base units, or left out where it is no value.

Members are made as text (`,"name":value`), because most records are only passed on: building
Python objects that nobody reads would cost more than everything else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from vllm_logpipe.catalogue.nested import STRING, unquote
from vllm_logpipe.catalogue.template import BYTE_UNITS, FLOAT, SECOND_UNITS, Template

Member: TypeAlias = str
"""JSON members, each with its leading comma; empty for no value."""
Extract: TypeAlias = Callable[[Sequence[str]], Member]

_encode = msgspec.json.encode
_BOOLEANS = {"True": "true", "False": "false"}
_MAX_DIGITS = 18
_MAX_NUMBER_LENGTH = 40
_MAX_ITEMS = 1024
_MAX_KNOWN = 4096
_NUMBER_AND_UNIT = re.compile(rf"({FLOAT}) ?([A-Za-z]+)")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_PLAIN = re.compile(r"[1-9][0-9]{0,15}(\.[0-9]{1,15})?|0(\.[0-9]{1,15})?")
_ITEM = re.compile(rf"""{STRING}|[^,\s'"\[\]]++""", re.DOTALL)


def quote(text: str) -> str:
    """The text as a JSON string."""
    return _encode(text).decode()


def int_json(text: str) -> str | None:
    """A JSON integer from a printed one; None beyond 64 bits."""
    digits = text.replace(",", "")
    if len(digits) > _MAX_DIGITS:
        return None
    if digits.isdecimal() and digits.isascii() and digits[0] != "0":
        return digits
    return str(int(digits)) if _INTEGER.fullmatch(digits) else None


def float_json(text: str) -> str | None:
    """A JSON number with a fraction from a printed one; None for nan, infinity and overlong."""
    if plain := _PLAIN.fullmatch(text):
        return text if plain.group(1) or plain.group(2) else text + ".0"
    if len(text) > _MAX_NUMBER_LENGTH:
        return None
    return _finite(float(text))


def _finite(value: float) -> str | None:
    return repr(value) if -1e308 < value < 1e308 else None


def _scaled(text: str, factor: float) -> float | None:
    if len(text) > _MAX_NUMBER_LENGTH:
        return None
    value = float(text) * factor
    return value if -1e308 < value < 1e308 else None


def _bytes_json(text: str, factor: float) -> str | None:
    value = _scaled(text, factor)
    return None if value is None or abs(value) >= 2**63 else str(round(value))


def _seconds_json(text: str, factor: float) -> str | None:
    value = _scaled(text, factor)
    return None if value is None else repr(round(value, 12))


def _with_unit(
    units: dict[str, float], convert: Callable[[str, float], str | None]
) -> Callable[[str], str | None]:
    def read(text: str) -> str | None:
        found = _NUMBER_AND_UNIT.fullmatch(text)
        return (
            None if found is None else convert(found.group(1), units.get(found.group(2), math.nan))
        )

    return read


def _byte_units(parameter: str) -> dict[str, float]:
    units: dict[str, float] = {unit: float(size) for unit, size in BYTE_UNITS.items()}
    if parameter:
        printed, _, meant = parameter.partition("=")
        units[printed] = float(BYTE_UNITS[meant])
    return units


def _array(
    item: Callable[[str], str | None], split: Callable[[str], list[str]]
) -> Callable[[str], str | None]:
    def read(text: str) -> str | None:
        values = [value for value in map(item, split(text)[:_MAX_ITEMS]) if value is not None]
        return f"[{','.join(values)}]"

    return read


def _bare_items(text: str) -> list[str]:
    return text.split(", ")


def _bracket_items(text: str) -> list[str]:
    if not text.startswith("["):
        return [text]
    items: list[str] = []
    for found in _ITEM.finditer(text, 1, len(text) - 1):
        items.append(found.group())
        if len(items) >= _MAX_ITEMS:
            break
    return items


def _remembered(convert: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """For values of which there are few: a share is printed with one decimal."""
    known: dict[str, str | None] = {}

    def read(text: str) -> str | None:
        try:
            return known[text]
        except KeyError:
            pass
        if len(known) >= _MAX_KNOWN:
            known.clear()
        value = convert(text)
        if len(text) <= _MAX_NUMBER_LENGTH:
            known[text] = value
        return value

    return read


def _guarded(convert: Callable[[str], str | None]) -> Callable[[str], str | None]:
    def read(text: str) -> str | None:
        try:
            return convert(text)
        except ValueError:
            return None

    return read


def converter(kind: str, parameter: str, attribute_type: str) -> Callable[[str], str | None]:
    """The function that turns the text of a hole into a JSON value, or None for no value."""
    match kind:
        case "int":
            if attribute_type == "int":
                return int_json
            return lambda text: float_json(text.replace(",", ""))
        case "float":
            return float_json
        case "bytes" if not parameter or "=" in parameter:
            return _with_unit(_byte_units(parameter), _bytes_json)
        case "bytes":
            factor = float(BYTE_UNITS[parameter])
            return lambda text: _bytes_json(text, factor)
        case "seconds" if not parameter:
            return _with_unit(SECOND_UNITS, _seconds_json)
        case "seconds":
            second = SECOND_UNITS[parameter]
            return lambda text: _seconds_json(text, second)
        case "ratio":
            ratio = 1.0 if parameter else 0.01
            return _remembered(lambda text: _seconds_json(text, ratio))
        case "quoted":
            return lambda text: quote(unquote(text))
        case "ints":
            return _array(int_json, _bare_items)
        case "floats":
            return _array(float_json, _bare_items)
        case "words":
            return _array(quote, _bare_items)
        case "list":
            items = {"int[]": _guarded(int_json), "double[]": _guarded(float_json)}
            item = items.get(attribute_type, lambda text: quote(unquote(text)))
            return _array(item, _bracket_items)
        case "bool":
            return _BOOLEANS.get
    if attribute_type == "string[]":
        return lambda text: f"[{quote(text)}]"
    return quote


def member(name: str) -> str:
    """The start of a JSON member: comma, quoted name, colon."""
    return f",{quote(name)}:"


def compile_extract(
    template: Template,
    types: dict[str, str],
    hosts: dict[str, Callable[[str], Member]],
    constants: Member = "",
) -> Extract:
    """A function from the groups of a match to JSON members.

    `types` gives the attribute types, `hosts` the parsers of nested holes by hole type, and
    `constants` the members that every match has. It is written out as one expression: a call a
    value would cost more than the value, so plain numbers are tested and taken in place.
    """
    scope: dict[str, object] = {"constants": constants, "encode": _encode}
    terms = ["constants"] if constants else []
    for index, hole in enumerate(template.holes):
        group = f"groups[{index}]"
        if hole.type in hosts:
            scope[f"host{index}"] = hosts[hole.type]
            terms.append(f"host{index}({group})")
        elif hole.is_attribute:
            convert = converter(hole.type, hole.parameter, types.get(hole.name, "string"))
            scope[f"name{index}"] = member(hole.name)
            if convert is quote:
                terms.append(f"name{index} + encode({group}).decode()")
            else:
                scope[f"convert{index}"] = convert
                slow = f"('' if (value := convert{index}({group})) is None else name{index}+value)"
                plain = _PLAIN_TESTS.get(convert, "{group}").format(group=group)
                terms.append(
                    f"(name{index} + {group} if {plain} else {slow})"
                    if convert in _PLAIN_TESTS
                    else slow
                )
    source = f"lambda groups: {' + '.join(terms) or repr('')}"
    # The text is made of indexes and of the names above; nothing of the template is in it.
    extract: Extract = eval(source, scope)  # noqa: S307
    return extract


_PLAIN_TESTS: dict[object, str] = {
    int_json: "{group}.isdecimal() and {group}[0] != '0' and len({group}) < 18",
    float_json: "'.' in {group} and ({group}[0] != '0' or {group}[1] == '.') and len({group}) < 18"
    " and {group}.replace('.', '', 1).isdecimal()",
}
"""When the text of a group is already the JSON value, by converter."""
