"""Server instances: one vLLM start of a stream."""

from __future__ import annotations

import functools
from datetime import UTC, datetime

import pytest

from vllm_logpipe import Catalogue, LogRecord, Normalizer, load_catalogue
from vllm_logpipe.instance import Instances, identity

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
HEADER = "INFO 11-30 12:00:01 [api_server.py:5] "
BANNER = f"{HEADER}vLLM API server version 0.8.5\n"


@functools.cache
def catalogue() -> Catalogue:
    """The built-in catalogue, once."""
    return load_catalogue()


def normalize(data: str, source: str = "test", **resource: str) -> list[LogRecord]:
    """The records of a stream."""
    normalizer = Normalizer(source, catalogue=catalogue(), reference=REFERENCE, resource=resource)
    return normalizer.feed(data.encode()) + normalizer.flush()


def ids(records: list[LogRecord]) -> list[str]:
    """The instance of each record."""
    return [str(record.resource["service.instance.id"]) for record in records]


def test_an_identity_is_stable_and_its_parts_are_told_apart() -> None:
    """The same parts give the same 16 hex digits in every run; other parts give others."""
    assert identity("a.log", 0) == identity("a.log", 0) == "faebd80db33b3188"
    assert len({identity("a", "b"), identity("ab"), identity("a", "b", ""), identity("")}) == 4


@pytest.mark.parametrize("source", ["", "a.log", "x" * 10_000, "\udcff", "a\0b"])
def test_every_record_has_an_instance(source: str) -> None:
    """`service.instance.id` is always set, from the first line on, for a source of any name."""
    records = normalize(f"raw\n{BANNER}", source)
    assert ids(records) == [identity(source, 0)] * 2
    assert records[0].resource["service.name"] == "vllm"


def test_streams_have_different_instances() -> None:
    """Two sources never share an instance, a replay of one does."""
    assert ids(normalize(BANNER, "a")) == ids(normalize(BANNER, "a"))
    assert ids(normalize(BANNER, "a")) != ids(normalize(BANNER, "b"))


def test_the_version_is_in_the_resource_once_it_is_printed() -> None:
    """Records after the banner carry vLLM's version, and the resource that the caller gives."""
    records = normalize(f"raw\n{BANNER}{HEADER}x\n", **{"host.name": "gpu-1"})
    assert [record.resource.get("service.version") for record in records] == [
        None,
        "0.8.5",
        "0.8.5",
    ]
    assert {record.resource["host.name"] for record in records} == {"gpu-1"}


def test_a_second_banner_begins_another_instance() -> None:
    """A server that is started again in the same file is another one, with its own version."""
    later = BANNER.replace("12:00:01", "13:00:01").replace("0.8.5", "0.9.2")
    records = normalize(f"raw\n{BANNER}{HEADER}x\n{later}raw\n")
    first, second = ids(records)[0], ids(records)[-1]
    assert first != second
    assert ids(records) == [first] * 3 + [second] * 2
    assert records[-1].resource["service.version"] == "0.9.2"
    assert records[2].resource["service.version"] == "0.8.5"


def test_the_last_lines_of_a_server_that_was_replaced_are_its_own() -> None:
    """A process belongs to the start that was current when it first printed."""
    instances = Instances("test", {})
    old = instances.start(1, 0)
    assert instances.of(2) is old
    new = instances.start(11, 500)
    assert new is not old
    assert instances.of(1) is instances.of(2) is old
    assert instances.of(12) is instances.of(None) is instances.of(11) is new


def test_a_process_that_starts_twice_is_in_the_newer_instance() -> None:
    """In a container the pid is the same after every restart."""
    instances = Instances("test", {})
    first = instances.start(1, 0)
    instances.of(2)
    second = instances.start(1, 500)
    assert second is not first
    assert instances.of(1) is instances.of(2) is second


def test_a_banner_without_process_begins_an_instance() -> None:
    """Releases that print no process are told apart by their banners alone."""
    instances = Instances("test", {})
    begun = instances.current
    assert instances.start(None, 7) is begun
    assert instances.start(None, 900) is not begun


def test_many_processes_are_no_trouble() -> None:
    """More processes than are kept give no error and an instance each."""
    instances = Instances("test", {})
    assert len({id(instances.of(pid)) for pid in range(10_000)}) == 1
