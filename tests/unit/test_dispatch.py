"""Looking texts up: nothing that matches is missed, and the most specific template wins."""

from __future__ import annotations

import itertools

import pytest

from vllm_logpipe.catalogue import Catalogue, load_catalogue
from vllm_logpipe.catalogue.compiled import Variant, event_variants
from vllm_logpipe.catalogue.dispatch import Dispatcher
from vllm_logpipe.catalogue.entry import EventEntry, Sample


def entry(name: str, *match: str, **more: object) -> EventEntry:
    """An event of these wordings."""
    made = EventEntry(name=name, match=list(match))
    for field, value in more.items():
        setattr(made, field, value)
    return made


def variants(*sources: str) -> list[Variant[EventEntry]]:
    """One variant a template."""
    return [v for source in sources for v in event_variants(entry(source, source), {})]


def offered(dispatcher: Dispatcher[Variant[EventEntry]], text: str) -> list[str]:
    """The templates that a text's beginning leads to, then those with an inner literal in it."""
    return [v.template.source for v in (*dispatcher.leading(text), *dispatcher.inner(text))]


LEADS = [
    "",
    "a",
    "ab",
    "abc",
    "abcd",
    "abd",
    "b",
    "bcdefghijklmnopqrstuvwxyz0123456789",
    "bcdefghijklmnopqrstuvwxyz01234567",
    "bcdefghijklmnopqrstuvwxyz",
]


@pytest.mark.parametrize("leads", [*itertools.combinations(LEADS[1:], 6)], ids="|".join)
def test_every_template_is_offered_for_texts_that_begin_with_its_lead(
    leads: tuple[str, ...],
) -> None:
    """Whatever leads share their beginnings, no candidate is lost, the longest comes first."""
    dispatcher = Dispatcher(variants(*(f"{lead}{{x:rest}}" for lead in leads)))
    for text in (begin + end for begin in LEADS for end in ("", "c", "Z", "d more text")):
        found = [source.removesuffix("{x:rest}") for source in offered(dispatcher, text)]
        expected = [lead for lead in leads if text.startswith(lead)]
        assert set(expected) <= set(found)
        assert found == sorted(found, key=len, reverse=True)


def test_many_templates_of_one_lead_are_told_apart_by_their_ends() -> None:
    """The text's end may choose among them, never lose one that matches."""
    ends = [" a", " b", " aborted.", " failed.", " is done", "d.", "", " failed (dead).", "!"]
    candidates = variants(*(f"Request {{x:text}}{end}" for end in ends if end), "Request {x:rest}")
    dispatcher = Dispatcher(candidates)
    for end in ends:
        text = f"Request 1{end}"
        matching = {v.template.source for v in candidates if v.match(text)}
        assert matching <= set(offered(dispatcher, text))


def test_a_template_that_begins_with_a_hole_is_found_by_its_longest_literal() -> None:
    """The literal may stand anywhere; the more specific comes first."""
    dispatcher = Dispatcher(
        variants(
            "{x:word} loaded weights", "{x:word} loaded weights in {y:seconds}", "lead {x:rest}"
        )
    )
    sources = offered(dispatcher, "all loaded weights in 3 s")
    assert [source for source in sources if source.startswith("{")] == [
        "{x:word} loaded weights in {y:seconds}",
        "{x:word} loaded weights",
    ]
    assert "{x:word} loaded weights" not in offered(dispatcher, "lead")


def test_an_empty_dispatcher_offers_nothing() -> None:
    """Neither an empty text nor any other leads anywhere."""
    dispatcher: Dispatcher[Variant[EventEntry]] = Dispatcher([])
    assert offered(dispatcher, "") == offered(dispatcher, "text") == []


GENERAL = entry("vllm.general", "Using {x:rest}")
SPECIFIC = entry("vllm.specific", "Using {x:word} backend")
TAILED = entry("vllm.tailed", "loaded {x:text}", tail=[" in {y:seconds}", ", twice"])
TAGGED = entry("vllm.tagged", "Using {x:text}nd", formats=["tagged", "raw"])
LED = "Using backend is the one in use"
HOLED = entry("vllm.holed", "{x:word} backend is the one in use", sample=[Sample(LED)])


def found(text: str, log_format: str, *entries: EventEntry) -> tuple[str, str] | None:
    """The event and the template that a text is."""
    result = Catalogue(list(entries), []).find(text, log_format)
    return None if result is None else (result[0].entry.name, result[0].template.source)


@pytest.mark.parametrize("order", [*itertools.permutations([GENERAL, SPECIFIC, TAGGED, HOLED])])
def test_the_most_specific_template_wins_in_any_order_of_entries(
    order: tuple[EventEntry, ...],
) -> None:
    """More fixed text goes before less, a format's own entry before one for all formats."""
    assert found("Using xyz backend", "v1", *order) == ("vllm.specific", SPECIFIC.wordings[0])
    assert found("Using xyz", "v1", *order) == ("vllm.general", GENERAL.wordings[0])
    assert found("Using xyz backend", "tagged", *order) == ("vllm.tagged", TAGGED.wordings[0])
    assert found("Using xyz backend", "raw", *order) == ("vllm.tagged", TAGGED.wordings[0])
    assert found(LED, "v1", *order) == ("vllm.holed", HOLED.wordings[0])
    assert found("my backend is the one in use", "v1", *order) == ("vllm.holed", HOLED.wordings[0])
    assert found("Used", "v1", *order) is None


def test_an_entry_of_another_format_is_passed_over() -> None:
    """An entry that is limited to formats matches nowhere else."""
    assert found("Using xyz backend", "v1", TAGGED) is None
    assert found("Using xyz backend", "raw", TAGGED) == ("vllm.tagged", TAGGED.wordings[0])


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("loaded it", ""),
        ("loaded it in 3 s", " in {y:seconds}"),
        ("loaded it, twice", ", twice"),
        ("loaded it in 3 s, twice", " in {y:seconds}, twice"),
        ("loaded it, twice in 3 s", " in {y:seconds}"),
        ("loaded it in time", ""),
    ],
)
def test_an_open_hole_does_not_swallow_an_optional_tail(text: str, tail: str) -> None:
    """The longest choice of tails that fits wins."""
    assert found(text, "v1", TAILED) == ("vllm.tailed", f"loaded {{x:text}}{tail}")


def every_text() -> set[tuple[str, str]]:
    """All sample texts of the built-in catalogue, whole and first lines alone, by format."""
    return {
        (text, log_format)
        for event in load_catalogue().events
        for sample in event.sample
        for text in (sample.line, sample.line.partition("\n")[0])
        for log_format in event.formats or ("v1", "json", "uvicorn", "raw")
    }


def test_on_the_built_in_catalogue_the_search_equals_trying_everything() -> None:
    """For each sample the template found is the most specific of all that match it."""
    catalogue = load_catalogue()
    everything = sorted(catalogue.variants(), key=lambda variant: variant.rank)
    for text, log_format in sorted(every_text()):
        allowed = (
            variant
            for variant in everything
            if (not variant.entry.formats or log_format in variant.entry.formats)
            and text.startswith(variant.lead)
            and variant.anchor in text
            and variant.match(text)
        )
        result = catalogue.find(text, log_format)
        assert (result and result[0]) is next(allowed, None), text
