"""From the text of a hole to a JSON value: types, base units, and what is no value."""

from __future__ import annotations

import json

import pytest

from vllm_logpipe.catalogue.template import BYTE_UNITS, SECOND_UNITS, parse_template
from vllm_logpipe.catalogue.values import (
    compile_extract,
    converter,
    float_json,
    int_json,
    member,
    quote,
)

GIB = 2**30


def value(kind: str, text: str, attribute_type: str, parameter: str = "") -> object:
    """The value of a hole's text, decoded; None where it gives none."""
    converted = converter(kind, parameter, attribute_type)(text)
    return None if converted is None else json.loads(converted)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("48,704", 48704),
        ("1,234,560", 1234560),
        ("0", 0),
        ("-3", -3),
        ("+5", 5),
        ("007", 7),
        ("123456789012345678", 123456789012345678),
        ("99999999999999999999", None),
        ("9" * 5000, None),
    ],
)
def test_an_int_is_read_without_its_thousands_separators(text: str, expected: int | None) -> None:
    """Separators, a plus and leading zeros go; a number beyond 64 bits is no value."""
    converted = int_json(text)
    assert (None if converted is None else json.loads(converted)) == expected
    assert value("int", text, "int") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.25", 0.25),
        ("310.40", 310.4),
        ("5", 5.0),
        ("0", 0.0),
        ("-1.5", -1.5),
        ("+1.5", 1.5),
        ("1e-05", 1e-05),
        ("1E3", 1000.0),
        ("007.5", 7.5),
        ("1.2345678901234567890", 1.2345678901234568),
        ("nan", None),
        ("inf", None),
        ("-inf", None),
        ("-nan", None),
        ("1e999", None),
        ("9" * 400, None),
    ],
)
def test_a_float_is_a_json_number_or_nothing(text: str, expected: float | None) -> None:
    """A whole number keeps a fraction, so that it stays a double; nan and infinity are left out."""
    converted = float_json(text)
    if expected is None:
        assert converted is None
    else:
        assert converted is not None
        decoded = json.loads(converted)
        assert (type(decoded), decoded) == (float, expected)


def test_an_int_hole_of_a_double_attribute_gives_a_double() -> None:
    """The attribute's type decides, not the hole's."""
    decoded = value("int", "1,000", "double")
    assert (type(decoded), decoded) == (float, 1000.0)


@pytest.mark.parametrize(
    ("text", "parameter", "expected"),
    [
        ("61.06 GiB", "", round(61.06 * GIB)),
        ("20.00MiB", "", 20 * 2**20),
        ("512 bytes", "", 512),
        ("7 B", "", 7),
        ("14 GB", "", 14 * 10**9),
        ("14 GB", "GB=GiB", 14 * GIB),
        ("14 MB", "GB=GiB", 14 * 10**6),
        ("1.5 KB", "KB=KiB", 1536),
        ("14.3", "GiB", round(14.3 * GIB)),
        ("2", "MB", 2_000_000),
        ("-0.5 GiB", "", -GIB // 2),
        ("1e3 KiB", "", 1024000),
        ("nan GiB", "", None),
        ("inf", "GiB", None),
        ("17179869184.00 GiB", "", None),
        ("9" * 50 + " B", "", None),
    ],
)
def test_bytes_are_whole_bytes(text: str, parameter: str, expected: int | None) -> None:
    """The printed or given unit is multiplied out; what an int64 cannot hold is no value."""
    decoded = value("bytes", text, "int", parameter)
    assert decoded == expected
    assert decoded is None or type(decoded) is int


@pytest.mark.parametrize("unit", sorted(BYTE_UNITS))
def test_every_unit_of_bytes_is_read(unit: str) -> None:
    """Each unit has its factor, printed with or without a space, or given."""
    assert value("bytes", f"3 {unit}", "int") == 3 * BYTE_UNITS[unit]
    assert value("bytes", f"3{unit}", "int") == 3 * BYTE_UNITS[unit]
    assert value("bytes", "3", "int", unit) == 3 * BYTE_UNITS[unit]


def test_decimal_and_binary_units_differ() -> None:
    """GB is a power of 1000, GiB one of 1024."""
    assert (BYTE_UNITS["GB"], BYTE_UNITS["GiB"]) == (10**9, GIB)
    assert (BYTE_UNITS["KB"], BYTE_UNITS["KiB"], BYTE_UNITS["TiB"]) == (1000, 1024, 2**40)


@pytest.mark.parametrize(
    ("text", "parameter", "expected"),
    [
        ("1.5 s", "", 1.5),
        ("10 secs", "", 10.0),
        ("3 seconds", "", 3.0),
        ("1 sec", "", 1.0),
        ("1 second", "", 1.0),
        ("2min", "", 120.0),
        ("12.5 ms", "", 0.0125),
        ("5 us", "", 5e-06),
        ("7 ns", "", 7e-09),
        ("5e-05 s", "", 5e-05),
        ("600000", "ms", 600.0),
        ("0.1", "ms", 0.0001),
        ("4", "s", 4.0),
        ("nan s", "", None),
        ("inf", "s", None),
    ],
)
def test_seconds_are_seconds(text: str, parameter: str, expected: float | None) -> None:
    """The printed or given unit is multiplied out, without the noise of binary fractions."""
    decoded = value("seconds", text, "double", parameter)
    assert decoded == expected
    assert decoded is None or type(decoded) is float


@pytest.mark.parametrize("unit", sorted(SECOND_UNITS))
def test_every_unit_of_seconds_is_read(unit: str) -> None:
    """Each unit has its factor, printed or given."""
    expected = pytest.approx(3 * SECOND_UNITS[unit])
    assert value("seconds", f"3 {unit}", "double") == expected
    assert value("seconds", "3", "double", unit) == expected


@pytest.mark.parametrize(
    ("text", "parameter", "expected"),
    [
        ("87", "", 0.87),
        ("3.2", "", 0.032),
        ("0.0", "", 0.0),
        ("100", "", 1.0),
        ("41.7", "", 0.417),
        ("nan", "", None),
        ("0.87", "1", 0.87),
        ("1", "1", 1.0),
    ],
)
def test_a_ratio_runs_from_zero_to_one(text: str, parameter: str, expected: float | None) -> None:
    """Percent are divided by a hundred, a ratio that is one already stays."""
    assert value("ratio", text, "double", parameter) == expected


@pytest.mark.parametrize(
    ("kind", "text", "attribute_type", "expected"),
    [
        ("quoted", "'a\\nb'", "string", "a\nb"),
        ("quoted", '"it\'s"', "string", "it's"),
        ("quoted", "'\\x1b[0m'", "string", "\x1b[0m"),
        ("quoted", "'\\ud800'", "string", "\\ud800"),
        ("word", "a:b", "string", "a:b"),
        ("text", 'say "x" \\ \x07', "string", 'say "x" \\ \x07'),
        ("rest", "líne\nzwei", "string", "líne\nzwei"),
        ("path", "/models/a b", "string", "/models/a b"),
        ("hex", "0x1aF", "string", "0x1aF"),
        ("choice", "takes", "string", "takes"),
        ("text", "stop", "string[]", ["stop"]),
        ("ints", "1, 2, 1,024", "int[]", [1, 2, 1024]),
        ("floats", "0.5, nan, 1", "double[]", [0.5, 1.0]),
        ("words", "a, b-c", "string[]", ["a", "b-c"]),
        ("list", "[1, 2, 4]", "int[]", [1, 2, 4]),
        ("list", "[0.5, nan]", "double[]", [0.5]),
        ("list", "['a, b', \"c]\"]", "string[]", ["a, b", "c]"]),
        ("list", "[a, b]", "string[]", ["a", "b"]),
        ("list", "[1, None, x]", "int[]", [1]),
        ("list", "[]", "string[]", []),
        ("bool", "True", "boolean", True),
        ("bool", "False", "boolean", False),
        ("bool", "maybe", "boolean", None),
    ],
)
def test_texts_and_lists_become_strings_and_arrays(
    kind: str, text: str, attribute_type: str, expected: object
) -> None:
    """Quotes are taken off, items are typed, and items that are no value are left out."""
    assert value(kind, text, attribute_type) == expected


@pytest.mark.parametrize("kind", ["list", "ints", "words"])
def test_a_list_is_cut_at_a_thousand_and_some_items(kind: str) -> None:
    """A hostile list cannot make an attribute of any length."""
    text = ", ".join(["7"] * 5000)
    items = value(kind, f"[{text}]" if kind == "list" else text, "int[]")
    assert isinstance(items, list)
    assert len(items) == 1024


@pytest.mark.parametrize("text", ['"', "\\", "\n\r\t\0", "é\u2028𝄞", "</script>", "a" * 100_000])
def test_any_text_is_a_json_string(text: str) -> None:
    """Quotes, backslashes, control characters and other scripts survive."""
    assert json.loads(quote(text)) == text
    assert json.loads(f"{{{member(text)[1:]}1}}") == {text: 1}


TYPES = {"a.count": "int", "a.share": "double", "a.name": "string", "a.sizes": "int[]"}


def members(source: str, text: str, constants: str = "") -> dict[str, object]:
    """The attributes that a template takes from a text."""
    template = parse_template(source)
    found = template.pattern().match(text)
    assert found is not None
    extracted = compile_extract(template, TYPES, {}, constants)(found.groups())
    decoded: dict[str, object] = json.loads(f"{{{extracted[1:]}}}")
    return decoded


def test_only_attributes_are_kept_in_the_order_of_the_holes() -> None:
    """Unnamed and local holes are matched and dropped."""
    got = members("x {:int} {local:word} {a.name:word} {a.count:int}", "x 1 b c 4,000")
    assert list(got.items()) == [("a.name", "c"), ("a.count", 4000)]


def test_a_value_that_is_none_is_left_out() -> None:
    """A nan gives no attribute, the others of the same text stay."""
    assert members("x {a.share:ratio} of {a.count:int}", "x nan% of 3") == {"a.count": 3}
    assert members("x {a.share:float}", "x nan") == {}


def test_constants_stand_in_every_match() -> None:
    """What an entry sets is there whether or not the holes give a value."""
    constants = ',"a.name":"set"'
    assert members("x", "x", constants) == {"a.name": "set"}
    assert members("x {a.share:float}", "x nan", constants) == {"a.name": "set"}
    assert members("x {a.count:int} {a.sizes:list}", "x 1 [2]", constants) == {
        "a.name": "set",
        "a.count": 1,
        "a.sizes": [2],
    }


def test_nested_holes_go_to_their_own_readers() -> None:
    """The text of a nested hole is read by the parser given for its type."""
    template = parse_template("x {a.count:int} {:kwargs}")
    found = template.pattern().match("x 3 k=v, l=w")
    assert found is not None
    extract = compile_extract(
        template, TYPES, {"kwargs": lambda text: f",{quote('all')}:{quote(text)}"}
    )
    assert extract(found.groups()) == ',"a.count":3,"all":"k=v, l=w"'


def test_an_item_that_is_cut_off_goes_to_the_end_of_its_list() -> None:
    """A string without its closing quote is one item, however many quotes it escapes."""
    assert value("list", "['a', 'b\\', c]", "string[]") == ["a", "'b\\', c"]
    assert value("list", "['" + "\\'" * 100_000 + "x]", "string[]") == ["'" + "\\'" * 100_000 + "x"]
