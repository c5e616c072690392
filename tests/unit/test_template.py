"""The template language: what parses, what each hole takes, and that nothing is ever given back."""

from __future__ import annotations

import pytest

from vllm_logpipe.catalogue.template import (
    HOLE_TYPES,
    Hole,
    TemplateError,
    expand,
    parse_template,
)

LONG = 400_000
"""Characters of a hostile line."""


def taken(source: str, text: str) -> tuple[str, ...] | None:
    """What the holes of a template take from a text; None where it does not match."""
    found = parse_template(source).pattern().match(text)
    return None if found is None else found.groups()


def test_a_template_is_its_literals_and_holes_in_order() -> None:
    """Parsing keeps literals and holes apart, doubled braces being one literal brace."""
    template = parse_template("a {{b}} {x.y:int}{{ {:bytes(GB=GiB)} end")
    assert template.parts == (
        "a {b} ",
        Hole("x.y", "int"),
        "{ ",
        Hole("", "bytes", "GB=GiB"),
        " end",
    )
    assert template.holes == (Hole("x.y", "int"), Hole("", "bytes", "GB=GiB"))
    assert (template.lead, template.anchor, template.literal_length) == ("a {b} ", "a {b} ", 12)


@pytest.mark.parametrize(
    ("source", "lead", "anchor", "length"),
    [
        ("all literal", "all literal", "all literal", 11),
        ("{x:text} is a longer end", "", " is a longer end", 16),
        ("ab {x:int} cdef", "ab ", " cdef", 8),
        ("{x:rest}", "", "", 0),
        ("", "", "", 0),
    ],
)
def test_lead_anchor_and_length_are_those_of_the_literals(
    source: str, lead: str, anchor: str, length: int
) -> None:
    """The lead stands before the first hole, the anchor is the longest literal, the length all."""
    template = parse_template(source)
    assert (template.lead, template.anchor, template.literal_length) == (lead, anchor, length)


@pytest.mark.parametrize(
    ("source", "hole"),
    [
        ("{x.y:int}", Hole("x.y", "int")),
        ("{:text}", Hole("", "text")),
        ("{x:ratio(1)}", Hole("x", "ratio", "1")),
        ("{x:seconds(ms)}", Hole("x", "seconds", "ms")),
        ("{x=a|b c|d:e}", Hole("x", "choice", "", ("a", "b c", "d:e"))),
        ("{=takes|took}", Hole("", "choice", "", ("takes", "took"))),
    ],
)
def test_a_hole_is_name_type_parameter_or_choices(source: str, hole: Hole) -> None:
    """Each notation of a hole gives its parts."""
    assert parse_template(source).holes == (hole,)


def test_only_a_dotted_name_is_an_attribute_and_only_text_is_open() -> None:
    """Attributes leave, local and unnamed holes do not; numbers and choices are not open."""
    holes = parse_template("{a.b:int} {c:text} {:word} {d=x|y} {e.f:quoted}").holes
    assert [hole.is_attribute for hole in holes] == [True, False, False, False, True]
    assert [hole.is_open for hole in holes] == [False, True, True, False, True]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("a { b", "stray '{' at character 3; write it twice"),
        ("a } b", "stray '}' at character 3; write it twice"),
        ("a {x:{y}} b", "stray '{' at character 3; write it twice"),
        ("a {x:int}{y:int}", "no literal before '{y:int}': two holes in a row"),
        ("a {x}", "'{x}' has the unknown type ''"),
        ("a {}", "'{}' has the unknown type ''"),
        ("a {x:regex}", "'{x:regex}' has the unknown type 'regex'"),
        ("a {x:choice}", "'{x:choice}' has the unknown type 'choice'"),
        ("a {x:Int}", "'{x:Int}' has the unknown type 'Int'"),
        ("a {x:bytes(GiB}", "'{x:bytes(GiB}' lacks its closing ')'"),
        ("a {x:bytes(XB)}", "'{x:bytes(XB)}' has the unknown parameter 'XB'"),
        ("a {x:bytes(GB=XB)}", "'{x:bytes(GB=XB)}' has the unknown parameter 'GB=XB'"),
        ("a {x:seconds(h)}", "'{x:seconds(h)}' has the unknown parameter 'h'"),
        ("a {x:ratio(100)}", "'{x:ratio(100)}' has the unknown parameter '100'"),
        ("a {x:int(3)}", "'{x:int(3)}' has the unknown parameter '3'"),
        ("a {x=b}", "'{x=b}' needs two or more choices"),
        ("a {x=b|}", "'{x=b|}' needs two or more choices"),
    ],
)
def test_what_the_language_does_not_allow_is_refused(source: str, fault: str) -> None:
    """Each fault of a template is told with its place."""
    with pytest.raises(TemplateError) as refusal:
        parse_template(source)
    assert str(refusal.value) == fault


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("n {x:int} t", "n 48,704 t", ("48,704",)),
        ("n {x:int} t", "n 1,234,560 t", ("1,234,560",)),
        ("n {x:int} t", "n -3 t", ("-3",)),
        ("n {x:int} t", "n 1,23 t", None),
        ("n {x:int} t", "n 1,2345 t", None),
        ("n {x:int} t", "n 1.5 t", None),
        ("n {x:int} t", "n  t", None),
        ("n {x:int} t", "n \u0663 t", None),
        ("n {x:int}, w", "n 3, w", ("3",)),
        ("n {x:int}, w", "n 1,234, w", ("1,234",)),
        ("n {x:float} t", "n 0.25 t", ("0.25",)),
        ("n {x:float} t", "n nan t", ("nan",)),
        ("n {x:float} t", "n -inf t", ("-inf",)),
        ("n {x:float} t", "n 1e-05 t", ("1e-05",)),
        ("n {x:float}.", "n 1.", ("1",)),
        ("n {x:float} t", "n one t", None),
        ("m {x:bytes} f", "m 61.06 GiB f", ("61.06 GiB",)),
        ("m {x:bytes} f", "m 20.00MiB f", ("20.00MiB",)),
        ("m {x:bytes} f", "m 512 bytes f", ("512 bytes",)),
        ("m {x:bytes} f", "m 5 B f", ("5 B",)),
        ("m {x:bytes} f", "m 5 XB f", None),
        ("m {x:bytes(GiB)} f", "m 14.3 f", ("14.3",)),
        ("m {x:bytes(GiB)}GiB", "m 14.3GiB", ("14.3",)),
        ("m {x:bytes(GB=GiB)} f", "m 14.3 GB f", ("14.3 GB",)),
        ("t {x:seconds}.", "t 3 seconds.", ("3 seconds",)),
        ("t {x:seconds} in", "t 1.5 s in", ("1.5 s",)),
        ("t {x:seconds} in", "t 12ms in", ("12ms",)),
        ("t {x:seconds} in", "t 4 hours in", None),
        ("t {x:seconds(ms)} ms", "t 12.5 ms", ("12.5",)),
        ("u {x:ratio}, p", "u 87.5%, p", ("87.5",)),
        ("u {x:ratio}, p", "u 87 %, p", ("87",)),
        ("u {x:ratio}, p", "u 87, p", None),
        ("u {x:ratio(1)}, p", "u 0.87, p", ("0.87",)),
        ("h {x:hex}!", "h 0x1aF!", ("0x1aF",)),
        ("h {x:hex}!", "h 1a!", ("1a",)),
        ("h {x:hex}!", "h xyz!", None),
        ("l {x:ints} e", "l 1, 2, 3 e", ("1, 2, 3",)),
        ("l {x:floats} e", "l 0.5, nan, 1 e", ("0.5, nan, 1",)),
        ("l {x:words} e", "l ab, c-d e", ("ab, c-d",)),
        ("l {x:words}", "l ab, c d", None),
        ("l {x:list} e", "l [1, 2] e", ("[1, 2]",)),
        ("l {x:list} e", "l ['a]', \"b]\"] e", ("['a]', \"b]\"]",)),
        ("l {x:list} e", "l [] e", ("[]",)),
        ("l {x:list} e", "l [1, 2 e", None),
        ("l {x=take|takes} e", "l takes e", ("takes",)),
        ("l {x=a.c|b} e", "l abc e", None),
    ],
)
def test_a_typed_hole_takes_its_own_grammar_only(
    source: str, text: str, expected: tuple[str, ...] | None
) -> None:
    """Numbers, units, lists and choices take exactly what they describe, in ASCII."""
    assert taken(source, text) == expected


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("w {x:word} e", "w a:b e", ("a:b",)),
        ("w {x:word} e", "w a b e", None),
        ("w {x:word}: e", "w a:b: e", ("a:b",)),
        ("w {x:word}: e", "w a b: e", None),
        ("w {x:word}", "w a", ("a",)),
        ("w {x:word}", "w a b", None),
        ("w {x:word}.", "w a.b.", ("a.b",)),
        ("w {x:word}, {:rest}", "w a, b, c", ("a", "b, c")),
        ("t {x:text}, {y:rest}", "t a b, c, d", ("a b", "c, d")),
        ("t {x:text}, {y:rest}", "t , c", ("", "c")),
        ("t {x:text};{y:rest}", "t a\nb;c", ("a\nb", "c")),
        ("t {x:path} e", "t /a/b c e e", ("/a/b c e",)),
        ("t {x:text}.", "t a. b.", ("a. b",)),
        ("t {x:last}, {y:int} e", "t a, 1, 2 e", ("a, 1", "2")),
        ("t {x:last}.", "t a.b.", ("a.b",)),
        ("t {x:rest}", "t ", ("",)),
        ("t {x:rest}", "t a\nb", ("a\nb",)),
        ("q {x:quoted}, p", "q 'a', p", ("'a'",)),
        ("q {x:quoted}, p", "q 'it\\'s', p", ("'it\\'s'",)),
        ("q {x:quoted}, p", 'q "it\'s, p", p', ('"it\'s, p"',)),
        ("q {x:quoted}, p", "q 'a, p', p", ("'a, p'",)),
        ("q {x:quoted}, p", "q 'a, p", None),
        ("q {x:quoted}, p", "q a, p", None),
        ("k {:kwargs}) e", "k a=1, b=f(2)) e", ("a=1, b=f(2)",)),
        ("k {:sampling_params}, l: {:rest}", "k S(x=', l: '), l: N", ("S(x=', l: ')", "N")),
        ("k {:fields}", "k a: 1, b: 2", ("a: 1, b: 2",)),
    ],
)
def test_an_open_hole_ends_where_its_type_says(
    source: str, text: str, expected: tuple[str, ...] | None
) -> None:
    """First literal, last literal, end of the word, end of the string, or end of the text."""
    assert taken(source, text) == expected


@pytest.mark.parametrize("space", ["\u00a0", "\u2003", "\u3000", "\x85"])
def test_a_word_ends_at_ascii_white_space_only(space: str) -> None:
    """White space outside ASCII is part of a word, as no two engines agree on it."""
    assert taken("w {x:word} e", f"w a{space}b e") == (f"a{space}b",)
    assert taken("w {x:words} e", f"w a{space}b, c e") == (f"a{space}b, c",)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a {:text}, m={x:int} e", "a 1, m=z, m=2 e"),
        ("a {:last} at {x:int} e", "a b at 3 at c e"),
        ("a {:word}-{x:int} e", "a b-c-3 e"),
        ("a {x:int},000 e", "a 1,000 e"),
        ("a {x=ab|abc}cd e", "a abcd e"),
        ("a {x:words}, end", "a b, c, end"),
        ("a {x:quoted}' e", "a 'b'' e' e"),
    ],
)
def test_a_hole_never_gives_back_what_it_took(source: str, text: str) -> None:
    """A later literal that does not follow makes the match fail: there is no second try."""
    assert taken(source, text) is None


@pytest.mark.parametrize("text", ["xa 1 b", "a 1 bx", "a 1 b\n", "\na 1 b", "a 1", "A 1 B", ""])
def test_a_template_is_the_whole_text(text: str) -> None:
    """Text before or behind, a final line feed and another case do not match."""
    assert taken("a {x:int} b", "a 1 b") == ("1",)
    assert taken("a {x:int} b", text) is None


@pytest.mark.parametrize("literal", ["a.b*c+", "(x|y)", "[z]?", "^$", "\\d", "100% {{k}}", "#  t"])
def test_a_literal_means_itself(literal: str) -> None:
    """No character of a literal has the meaning that patterns give it."""
    printed = literal.replace("{{", "{").replace("}}", "}")
    assert taken(f"{literal} {{x:int}}", f"{printed} 7") == ("7",)
    assert taken(f"{literal} {{x:int}}", f"aabcc {printed[1:]} 7") is None


def test_tails_are_expanded_longest_first() -> None:
    """Every choice of the optional endings, in their order, those with more text first."""
    assert expand("w", ()) == ("w",)
    sources = expand("w", (" one", " second"))
    assert sources == ("w one second", "w second", "w one", "w")
    assert expand("w", (" a", " a")) == ("w a a", "w a", "w")


def hostile(hole: str) -> list[str]:
    """Long texts that begin as a match would, by the type of the hole."""
    fillers = {
        "quoted": ["'" + "\\'" * (LONG // 2), "'" + '"' * LONG, "'" * LONG],
        "list": ["[" + "'," * (LONG // 2), "[" * LONG, "['" + "]" * LONG],
        "int": ["1" + ",000" * (LONG // 4), "9" * LONG],
        "ints": ["1, " * (LONG // 3), "1,000, " * (LONG // 7)],
        "float": ["9" * LONG, "1e" + "9" * LONG, "0." + "0" * LONG],
        "floats": ["0.5, " * (LONG // 5)],
        "hex": ["f" * LONG],
        "words": ["a, " * (LONG // 3), "a," * (LONG // 2)],
    }
    common = [" stop" * (LONG // 5), " sto" * (LONG // 4), "a" * LONG, "\n" * LONG, "{=,'" * 99999]
    return [*fillers.get(hole, []), *common]


@pytest.mark.parametrize("hole", sorted(HOLE_TYPES - {"choice"}))
def test_a_hostile_line_of_any_type_is_passed_over(hole: str) -> None:
    """A long text that almost matches ends in an answer, and takes part in no match."""
    pattern = parse_template(f"begin {{x:{hole}}} stop {{y:int}} end").pattern()
    for filler in hostile(hole):
        assert pattern.match(f"begin {filler}") is None


@pytest.mark.parametrize("hole", ["text", "last", "path", "kwargs", "sampling_params"])
def test_a_long_text_is_taken_in_full(hole: str) -> None:
    """A long text of a client is one value."""
    text = "it's [a] {long}, " * (LONG // 17)
    assert taken(f"begin {{x:{hole}}} stop {{y:int}}", f"begin {text} stop 3") == (text, "3")
