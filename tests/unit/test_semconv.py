"""The names that leave: each once, with type, unit and meaning."""

from __future__ import annotations

import re

import pytest

from vllm_logpipe import semconv
from vllm_logpipe.catalogue.loader import read_built_in

NAME = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+")
BRIEF = re.compile(r"[^\s](?:(?!  )[^\n])*[.!?]")
UNIT = re.compile(r"|1|By|s|By/s|\{[a-z_]+\}|\{[a-z_]+\}/s")
BORROWED_ROOTS = {
    "client", "code", "error", "exception", "gen_ai", "host", "http", "log", "network", "otel",
    "process", "url",
}  # fmt: skip
OWN_ROOTS = {"vllm", "nccl"}
ATTRIBUTES = semconv.ATTRIBUTES
EVENTS = semconv.EVENTS
METRICS = semconv.METRICS
BRIEFS = [(a.name, a.brief) for a in ATTRIBUTES]
BRIEFS += [(e.name, e.brief) for e in (*EVENTS, *semconv.SIGNAL_EVENTS)]
"""Names and meanings, attributes and events."""


@pytest.mark.parametrize(
    "names",
    [
        [a.name for a in ATTRIBUTES],
        [e.name for e in EVENTS],
        [m.name for m in METRICS],
        [e.name for e in semconv.SIGNAL_EVENTS],
    ],
    ids=["attributes", "events", "metrics", "signal events"],
)
def test_names_are_sorted_and_stand_once(names: list[str]) -> None:
    """The tables are in the order of their names, so that a second entry would show."""
    assert names == sorted(set(names))


def test_a_name_is_dotted_lower_case_under_a_known_root() -> None:
    """Names of our own stand under our own roots."""
    roots = OWN_ROOTS | BORROWED_ROOTS
    assert [
        name
        for name, _ in BRIEFS
        if not NAME.fullmatch(name) or name.partition(".")[0] not in roots
    ] == []
    assert {event.name.partition(".")[0] for event in EVENTS} == OWN_ROOTS


def test_a_brief_is_a_sentence() -> None:
    """Each name says what it means, in one or more full sentences on one line."""
    others = [(metric.name, metric.brief) for metric in METRICS]
    others += [(span.name, span.brief) for span in semconv.SPANS]
    assert [name for name, text in BRIEFS + others if not BRIEF.fullmatch(text)] == []


def test_a_metric_is_sound() -> None:
    """Metrics have UCUM units, known attributes, and bounds only and always with a histogram."""
    known = {attribute.name for attribute in ATTRIBUTES}
    for metric in METRICS:
        assert metric.unit, metric.name
        assert UNIT.fullmatch(metric.unit), metric.name
        assert known.issuperset(metric.attributes), metric.name
        assert bool(metric.bounds) is (metric.type == "histogram"), metric.name
        assert list(metric.bounds) == sorted(set(metric.bounds)), metric.name


def test_a_span_name_holds_known_attributes() -> None:
    """What stands in braces within the name of a span is an attribute."""
    known = {attribute.name for attribute in ATTRIBUTES}
    held = [re.findall(r"\{(.*?)\}", span.name) for span in semconv.SPANS]
    assert known.issuperset(name for names in held for name in names)
    assert any(held)


def test_an_attribute_has_a_base_unit() -> None:
    """Units are UCUM's base units or annotations."""
    assert [(a.name, a.unit) for a in ATTRIBUTES if not UNIT.fullmatch(a.unit)] == []


def test_type_and_unit_go_together() -> None:
    """Texts and booleans have no unit; seconds and ratios are doubles."""
    assert {attribute.type for attribute in ATTRIBUTES} <= set(semconv.ATTRIBUTE_TYPES)
    numbers = [a for a in ATTRIBUTES if a.type.removesuffix("[]") in ("int", "double")]
    assert [a.name for a in ATTRIBUTES if a.unit and a not in numbers] == []
    doubles = [a for a in numbers if a.type.startswith("double")]
    assert [a.name for a in numbers if a.unit in ("s", "1") and a not in doubles] == []


def test_only_borrowed_names_can_be_stable() -> None:
    """Our own roots and the GenAI conventions are all in development."""
    for attribute in ATTRIBUTES:
        if attribute.name.startswith(("vllm.", "nccl.", "gen_ai.")):
            assert attribute.stability == "development"


def test_the_event_name_is_no_attribute() -> None:
    """The name of an event is the record's, never an attribute."""
    names = {attribute.name for attribute in ATTRIBUTES}
    assert not {"event.name", "event_name", "vllm.event.name"} & names


def test_every_event_of_the_catalogue_is_declared_and_no_other() -> None:
    """The table has the events of the built-in entries, and those that need no entry."""
    entries = {entry.name for _, file in read_built_in() for entry in file.event}
    declared = {event.name for event in EVENTS}
    assert declared - entries == {"vllm.exception", "vllm.progress"}
    assert entries <= declared


def test_every_class_is_area_and_what_and_in_use() -> None:
    """A class is `area.what`, `_OTHER` the one that fits nowhere, and an entry gives each."""
    files = [file for _, file in read_built_in()]
    given = {entry.error for file in files for entry in file.event if entry.error is not None}
    given |= {entry.error for file in files for entry in file.error}
    for error in semconv.ERROR_CLASSES - {"_OTHER"}:
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", error)
    assert semconv.ERROR_CLASSES - {"_OTHER"} <= given <= semconv.ERROR_CLASSES


def test_phases_are_in_the_order_of_a_servers_life() -> None:
    """Configuration first, shutdown last, each phase once, and entries use no other."""
    assert semconv.PHASES == (
        "config",
        "distributed_init",
        "model_load",
        "compile",
        "profile",
        "kv_cache",
        "graph_capture",
        "scheduler",
        "api_server",
        "serving",
        "shutdown",
    )
    used = {entry.phase for _, file in read_built_in() for entry in file.event}
    assert used - {None} == set(semconv.PHASES)


def test_roles_formats_and_fields_are_the_agreed_ones() -> None:
    """Words that operators write in rules and options."""
    assert semconv.ERROR_ROLES == ("root", "cascade", "teardown", "advice", "unknown")
    assert {"v0", "v1", "v1_prefixed", "json", "uvicorn", "raw"} <= set(semconv.LOG_FORMATS)
    assert len(set(semconv.LOG_FORMATS)) == len(semconv.LOG_FORMATS)
    assert {"prompt", "output", "secret", "query"} <= semconv.PRIVATE_FIELDS
    assert {"client_address", "path", "lora"} <= semconv.OPTIONAL_FIELDS
    assert not semconv.PRIVATE_FIELDS & semconv.OPTIONAL_FIELDS


@pytest.mark.parametrize(
    ("name", "kind", "unit"),
    [
        ("vllm.kv_cache.capacity", "int", "{token}"),
        ("vllm.engine.kv_cache.utilization", "double", "1"),
        ("vllm.engine.throughput.output", "double", "{token}/s"),
        ("vllm.engine.requests.running", "int", "{request}"),
        ("vllm.request.id", "string", ""),
        ("gen_ai.request.max_tokens", "int", "{token}"),
        ("gen_ai.response.finish_reasons", "string[]", ""),
        ("http.response.status_code", "int", ""),
        ("nccl.timeout", "double", "s"),
        ("nccl.sequence_number", "int", ""),
        ("process.pid", "int", ""),
        ("code.line.number", "int", ""),
        ("error.type", "string", ""),
    ],
)
def test_names_that_dashboards_use_keep_their_type_and_unit(
    name: str, kind: str, unit: str
) -> None:
    """A change of these breaks dashboards and alerts."""
    (attribute,) = (a for a in ATTRIBUTES if a.name == name)
    assert (attribute.type, attribute.unit) == (kind, unit)
