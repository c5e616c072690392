"""Readers of nested holes: pieces by their own templates, and chosen keys of a list."""

from __future__ import annotations

import itertools
import json

import pytest

from vllm_logpipe.catalogue.compiled import (
    KeywordReader,
    PieceReader,
    attribute_holes,
    class_members,
    error_variants,
    event_variants,
    line_variants,
)
from vllm_logpipe.catalogue.entry import ErrorEntry, EventEntry
from vllm_logpipe.catalogue.template import parse_template

TYPES = {
    "a.running": "int",
    "a.rate": "double",
    "a.usage": "double",
    "a.device": "string",
    "a.starting": "int",
    "a.going": "int",
    "a.done": "int",
    "a.note": "string",
    "a.sizes": "int[]",
    "a.on": "boolean",
}
PIECES = [
    "Avg rate: {a.rate:float} tokens/s",
    "Running: {a.running:int} reqs",
    "{a.device:word} cache usage: {a.usage:ratio}",
    "Fetch: {a.starting:int} starting, {a.going:int} going, {a.done:int} done",
    "Note: {a.note:text}",
]


def decoded(members: str) -> dict[str, object]:
    """JSON members as a dict; a name that stands twice is refused."""
    pairs: list[tuple[str, object]] = json.loads(f"{{{members[1:]}}}", object_pairs_hook=list)
    assert len({name for name, _ in pairs}) == len(pairs), members
    return dict(pairs)


def read(text: str) -> dict[str, object]:
    """What the pieces of a text give to a reader that has read nothing before."""
    return decoded(PieceReader(PIECES, TYPES)(text))


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_pieces_are_read_by_key_in_any_order(order: tuple[int, ...]) -> None:
    """The order of the pieces does not matter."""
    pieces = ["Avg rate: 51.2 tokens/s", "Running: 1,024 reqs", "GPU cache usage: 3.2%"]
    assert read(", ".join(pieces[index] for index in order)) == {
        "a.rate": 51.2,
        "a.running": 1024,
        "a.device": "GPU",
        "a.usage": 0.032,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("nothing known", {}),
        ("Running: 3 reqs, New: 4 things", {"a.running": 3}),
        ("New: 4 things, Running: 3 reqs", {"a.running": 3}),
        ("New: 1, 2, 3, 4 things, Running: 3 reqs", {"a.running": 3}),
        (
            "Fetch: 1 starting, 2 going, 3 done, Running: 4 reqs",
            {"a.starting": 1, "a.going": 2, "a.done": 3, "a.running": 4},
        ),
        ("Fetch: 1 starting, 2 going, Running: 4 reqs", {"a.running": 4}),
        ("Running: 3 reqs, Running: 4 reqs", {"a.running": 3}),
        ("Running: 3 reqs, Avg rate: nan tokens/s", {"a.running": 3}),
        ("Running: many reqs, Avg rate: 1.0 tokens/s", {"a.rate": 1.0}),
        ("Running: 3 reqs.", {}),
        ("Note: a, Running: 3 reqs", {"a.note": "a", "a.running": 3}),
        ("GPU cache usage: 1%, CPU cache usage: 2%", {"a.device": "GPU", "a.usage": 0.01}),
    ],
)
def test_unknown_and_repeated_pieces_are_passed_over(
    text: str, expected: dict[str, object]
) -> None:
    """A piece of no template costs nothing but itself, and the first of a key stands."""
    assert read(text) == expected


SHAPED = [
    "Running: 3 reqs",
    "Running: 3 reqs, Avg rate: 1.5 tokens/s",
    "Running: 4 reqs, Avg rate: nan tokens/s",
    "Running: 4 reqs, Note: b, Avg rate: 2.5 tokens/s",
    "Running: 4 reqs, Note: b, Note: c, Avg rate: 2.5 tokens/s",
    "GPU cache usage: 3.0%, Running: 5 reqs",
    "CPU cache usage: 4.0%, Running: 5 reqs",
    "Running: 6 reqs, New: 1, Avg rate: 3.5 tokens/s",
    "Running: 6 reqs, Running: 7 reqs",
    "Running: many reqs, Avg rate: 1.0 tokens/s",
    "Fetch: 1 starting, 2 going, 3 done, Running: 4 reqs",
]


@pytest.mark.parametrize("before", SHAPED)
def test_what_was_read_before_changes_nothing(before: str) -> None:
    """A reader gives for a text what a fresh one gives, whichever texts came first."""
    reader = PieceReader(PIECES, TYPES)
    for text in SHAPED:
        reader(before)
        assert decoded(reader(text)) == read(text)
        assert decoded(reader(text)) == read(text)


KEYS = {
    "rate": "a.rate:float",
    "running": "a.running:int",
    "note": "a.note:text",
    "plain": "a.device",
    "sizes": "a.sizes:list",
    "on": "a.on:bool",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Namespace(rate=0.9, running=3, note='it\\'s', plain='cuda', sizes=[1, 2], on=True)",
            {
                "a.rate": 0.9,
                "a.running": 3,
                "a.note": "it's",
                "a.device": "cuda",
                "a.sizes": [1, 2],
                "a.on": True,
            },
        ),
        ("{'rate': 1, 'note': \"b\"}", {"a.rate": 1.0, "a.note": "b"}),
        ("rate=0.5, unknown=x(rate=9), running=2", {"a.rate": 0.5, "a.running": 2}),
        ("rate=None, note=None, running=1", {"a.running": 1}),
        ("rate=auto, running='7x', on=yes", {}),
        ("running=1, running=2", {"a.running": 1}),
        ("note='running=9', running=1", {"a.note": "running=9", "a.running": 1}),
        ("unknown={'running': 9}", {}),
        ("running='4'", {"a.running": 4}),
        ("sizes=None, sizes=[3]", {"a.sizes": [3]}),
        ("running=99999999999999999999999", {}),
        ("", {}),
    ],
)
def test_chosen_keys_are_read_where_their_type_fits(text: str, expected: dict[str, object]) -> None:
    """Quotes go; None, another type and what stands inside other values give nothing."""
    assert decoded(KeywordReader(KEYS, TYPES)(text)) == expected


def test_an_event_has_a_variant_a_wording_and_choice_of_tails() -> None:
    """Every variant carries the phase and what the entry sets."""
    entry = EventEntry(
        name="vllm.x",
        match=["first {a.running:int}", "second"],
        tail=[" one", " two"],
        phase="config",
        constants={"a.on": True},
    )
    variants = event_variants(entry, TYPES)
    assert sorted(variant.template.source for variant in variants) == sorted(
        wording + tail
        for wording in ("first {a.running:int}", "second")
        for tail in ("", " one", " two", " one two")
    )
    for variant in variants:
        found = variant.match(variant.template.source.replace("{a.running:int}", "7"))
        assert found is not None
        got = decoded(variant.extract(found.groups()))
        assert got.pop("a.running", 7) == 7
        assert got == {"vllm.phase": "config", "a.on": True}


def test_the_more_literal_characters_the_lower_the_rank() -> None:
    """An entry limited to a format goes first, then the one with more fixed text."""
    short = EventEntry(name="vllm.a", match="some text {:rest}")
    longer = EventEntry(name="vllm.b", match="some text and more {:rest}")
    limited = EventEntry(name="vllm.c", match="some {:rest}", formats=["tagged"])
    variants = [v for entry in (short, longer, limited) for v in event_variants(entry, TYPES)]
    ranked = sorted(variants, key=lambda variant: variant.rank)
    assert [variant.entry.name for variant in ranked] == ["vllm.c", "vllm.b", "vllm.a"]


def test_further_lines_and_exceptions_have_variants_of_their_own() -> None:
    """A further line carries no phase, an exception's template no class: those are the entry's."""
    event = EventEntry(name="vllm.x", match="m", lines=["- size: {a.running:int}"], phase="config")
    (line,) = line_variants(event, TYPES)
    found = line.match("- size: 4")
    assert found is not None
    assert decoded(line.extract(found.groups())) == {"a.running": 4}
    error = ErrorEntry(error="engine.dead", role="cascade", match=["dead after {a.running:int} s"])
    (variant,) = error_variants(error, TYPES)
    found = variant.match("dead after 3 s")
    assert found is not None
    assert decoded(variant.extract(found.groups())) == {"a.running": 3}
    assert decoded(class_members(error)) == {
        "error.type": "engine.dead",
        "vllm.error.role": "cascade",
    }
    assert class_members(event) == ""


def test_only_dotted_holes_are_attributes() -> None:
    """Local and unnamed holes are left out."""
    template = parse_template("x {a.b:int} {c:word} {:rest}")
    assert [hole.name for hole in attribute_holes(template)] == ["a.b"]
