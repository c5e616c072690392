"""The incidents of real servers: one for each that failed, none for one stopped cleanly."""

from __future__ import annotations

import functools
import gzip
import tomllib
from pathlib import Path

import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.model import Signal

DATA = Path(__file__).parent.parent / "data"
LOGS = sorted(path.name.removesuffix(".log.gz") for path in (DATA / "logs").glob("*.log.gz"))
FAILED = tomllib.loads((DATA / "incidents.toml").read_text())
HEALTHY = [name for name in LOGS if name not in FAILED]
REFERENCE = 1_796_083_200.0


@functools.cache
def signals_of(name: str, *, strip_cr: bool = False) -> tuple[Signal, ...]:
    """What is derived of a log."""
    data = gzip.decompress((DATA / "logs" / f"{name}.log.gz").read_bytes())
    if strip_cr:
        data = data.replace(b"\r\n", b"\n")
    normalizer = Normalizer(name, reference=REFERENCE)
    deriver = Deriver()
    signals = deriver.take([*normalizer.feed(data), *normalizer.flush()])
    return (*signals, *deriver.finish())


def incidents_of(name: str, *, strip_cr: bool = False) -> list[LogRecord]:
    """The incidents of a log, in the states that they were told in."""
    return [
        signal
        for signal in signals_of(name, strip_cr=strip_cr)
        if isinstance(signal, LogRecord) and signal.event_name in ("vllm.incident", "nccl.incident")
    ]


def test_every_failed_server_is_listed() -> None:
    """The list names logs that exist; both kinds of log are there."""
    assert set(FAILED) <= set(LOGS)
    assert len(HEALTHY) >= 12


@pytest.mark.parametrize("strip_cr", [False, True], ids=["as printed", "without CR"])
@pytest.mark.parametrize("name", FAILED)
def test_a_failed_server_has_one_incident_with_its_cause(name: str, *, strip_cr: bool) -> None:
    """Class, process and whether the cause is known are those of the list."""
    told = incidents_of(name, strip_cr=strip_cr)
    assert len({incident.attributes["vllm.incident.id"] for incident in told}) == 1
    (closed,) = [i for i in told if i.attributes["vllm.incident.state"] == "closed"]
    wanted = FAILED[name]
    assert closed.event_name == "vllm.incident"
    assert closed.attributes["error.type"] == wanted["error"]
    assert closed.attributes["vllm.incident.root_cause_known"] is wanted["known"]
    if "process" in wanted:
        assert closed.attributes["vllm.process.name"] == wanted["process"]


@pytest.mark.parametrize("strip_cr", [False, True], ids=["as printed", "without CR"])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_server_has_no_incident(name: str, *, strip_cr: bool) -> None:
    """Errors of requests and of the stop itself are no failure of the server."""
    assert incidents_of(name, strip_cr=strip_cr) == []


@pytest.mark.parametrize("name", FAILED)
def test_evidence_names_records_of_the_log(name: str) -> None:
    """The uids of the evidence are those of records, which bear the incident's id."""
    (closed, *_) = incidents_of(name)
    evidence = closed.attributes["vllm.incident.evidence"]
    assert isinstance(evidence, list)
    marked = {
        signal.attributes["log.record.uid"]
        for signal in signals_of(name)
        if isinstance(signal, LogRecord)
        and signal.attributes.get("vllm.incident.id") == closed.attributes["vllm.incident.id"]
        and signal.event_name != "vllm.incident"
    }
    assert evidence
    assert marked.issuperset(evidence)


@pytest.mark.parametrize("name", sorted(FAILED)[:4])
def test_a_replay_gives_the_same_signals(name: str) -> None:
    """Read once more, a log gives the same incidents with the same ids."""
    first = [s.attributes for s in incidents_of(name)]
    signals_of.cache_clear()
    assert [s.attributes for s in incidents_of(name)] == first
