"""Fewer records: probes fold into one a minute, repeats after the tenth, each with a count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from vllm_logpipe.model import LogRecord, Signal
from vllm_logpipe.read.clock import NS, rfc3339
from vllm_logpipe.semconv import FOLDS, SIGNAL_EVENTS

_MINUTE = 60 * NS
_SHOWN = 10
"""Repeats of one record that leave before the rest is folded."""
_MAX_KEYS = 4096
_MAX_LENGTH = 4096
"""Longer records are never folded: what is compared must be held."""
_PROBES = frozenset({"/health", "/metrics", "/ping", "/version", "/load"})
_ACCESS = "vllm.http.access"
_SAMPLES = ("vllm.request.", "vllm.response.", "vllm.http.", "vllm.engine.")
_WARNING = 13
_INCIDENTS = frozenset(event.name for event in SIGNAL_EVENTS)
_UID = ',"log.record.uid":"'
_COUNT = '"vllm.log.repeat.count":'

_Key: TypeAlias = tuple[str, str | None, str, str]


class _Run(Struct):
    """Equal records of the last minute."""

    began: int
    shown: int = 0
    folded: int = 0
    first: LogRecord | None = None
    """The first that was folded: it stands for all."""
    last: int = 0


class Folder:
    """Folds the records of one stream, by event time; other signals pass.

    A successful probe (GET or HEAD of `/health` and the like) is held for a minute and leaves once
    with the number of its like; one that fails leaves at once, and so does the next that succeeds.
    Of other equal records (all but time and uid) ten leave at once; the rest of each minute leaves
    as one, until a minute without any has passed. Requests, responses and stats are never repeats,
    but for their warnings and errors.

    kinds: of `probes` and `repeats` those to fold. Raises ValueError for others.
    """

    def __init__(self, kinds: Iterable[str] = FOLDS) -> None:
        kinds = frozenset(kinds)
        if unknown := kinds - frozenset(FOLDS):
            known = ", ".join(FOLDS)
            raise ValueError(f"{', '.join(sorted(unknown))}: nothing that folds; known: {known}")
        self._folds_probes = "probes" in kinds
        self._folds_repeats = "repeats" in kinds
        self._probes: dict[_Key, _Run] = {}
        self._repeats: dict[_Key, _Run] = {}
        self._failed: set[tuple[str, str]] = set()
        self._now = 0
        self._next = 0

    def take(self, signals: Iterable[Signal]) -> list[Signal]:
        """The signals that leave now, in order; folded ones leave when their minute is over."""
        if not self._folds_probes and not self._folds_repeats:
            return [*signals]
        found: list[Signal] = []
        for signal in signals:
            if not isinstance(signal, LogRecord) or signal.event_name in _INCIDENTS:
                found.append(signal)
                continue
            now = signal.time_unix_nano
            # A clock that was far ahead must not hold back all that comes after it.
            if now > self._now or self._now - now > _MINUTE:
                self._pass_to(now, found)
            if self._failed_probe(signal, found) or not self._folded(signal):
                found.append(signal)
        return found

    def advance(self, elapsed: int) -> list[Signal]:
        """What is due after so many ns without a record: the log's clock need not be ours."""
        found: list[Signal] = []
        self._pass_to(self._now + elapsed, found)
        return found

    def flush(self) -> list[Signal]:
        """All that is held."""
        found: list[Signal] = []
        for runs in (self._probes, self._repeats):
            for run in runs.values():
                _leave(run, found)
            runs.clear()
        return found

    def _pass_to(self, now: int, found: list[Signal]) -> None:
        back = now < self._now
        self._now = now
        if back or now >= self._next:
            self._next = now + NS
            self._expire(found)

    def _folded(self, record: LogRecord) -> bool:
        """Whether the record is held back: as a probe, or as a repeat."""
        if record.event_name == _ACCESS and _probe(record.body) is not None:
            if not self._folds_probes:
                return False
            method, _, rest = record.body.partition('"')[2].partition(" ")
            run = self._run(self._probes, (record.resource_json, method, rest, ""), record)
        else:
            if not self._folds_repeats or _is_sample(record):
                return False
            attributes = record.attributes_json
            length = len(record.body) + len(attributes)
            end = attributes.rfind(_UID)
            if length > _MAX_LENGTH or end < 0:
                return False
            key = (record.resource_json, record.severity_text, record.body, attributes[:end])
            run = self._run(self._repeats, key, record)
            if run is not None and run.shown < _SHOWN:
                run.shown += 1
                run.last = record.time_unix_nano
                return False
        if run is None:
            return False
        if run.first is None:
            run.first = record
        run.folded += _count(record)
        run.last = max(run.last, record.time_unix_nano)
        return True

    def _failed_probe(self, record: LogRecord, found: list[Signal]) -> bool:
        """Whether a probe failed, or is the first one after that: neither is held back."""
        if record.event_name != _ACCESS or not self._folds_probes:
            return False
        probe = _probe(record.body)
        if probe is None:
            return False
        path, succeeded = probe
        failed = (record.resource_json, path)
        if succeeded:
            if failed not in self._failed:
                return False
            self._failed.discard(failed)
            return True
        if len(self._failed) < _MAX_KEYS:
            self._failed.add(failed)
        for key in [k for k in self._probes if (k[0], k[2].partition(" ")[0]) == failed]:
            _leave(self._probes.pop(key), found)
        return True

    def _run(self, runs: dict[_Key, _Run], key: _Key, record: LogRecord) -> _Run | None:
        run = runs.get(key)
        if run is None:
            if len(runs) >= _MAX_KEYS:
                self._forget(runs)
                if len(runs) >= _MAX_KEYS:
                    return None
            run = runs[key] = _Run(record.time_unix_nano)
        return run

    def _forget(self, runs: dict[_Key, _Run]) -> None:
        """Make room: what has not been folded yet need not be known."""
        for key in [key for key, run in runs.items() if run.first is None][: _MAX_KEYS // 2]:
            del runs[key]

    def _expire(self, found: list[Signal]) -> None:
        for runs in (self._probes, self._repeats):
            over = [key for key, run in runs.items() if not 0 <= self._now - run.began < _MINUTE]
            for key in over:
                run = runs[key]
                if run.first is None:
                    # A minute in which nothing was folded ends the run.
                    del runs[key]
                    continue
                _leave(run, found)
                if runs is self._probes:
                    del runs[key]
                else:
                    run.began = self._now
                    run.first = None
                    run.folded = 0


def _is_sample(record: LogRecord) -> bool:
    """Whether equal records are traffic or samples of a state, and each counts for itself."""
    event, level = record.event_name, record.severity_number
    return (
        event is not None and event.startswith(_SAMPLES) and level is not None and level < _WARNING
    )


def _probe(body: str) -> tuple[str, bool] | None:
    """The path of a probe and whether it succeeded: `… "GET /health HTTP/1.1" 200 OK`."""
    _, _, request = body.partition(' - "')
    method, _, rest = request.partition(" ")
    if method not in ("GET", "HEAD"):
        return None
    path, _, after = rest.partition(" ")
    if path.partition("?")[0] not in _PROBES:
        return None
    return path, after.partition('" ')[2][:1] == "2"


def _count(record: LogRecord) -> int:
    if _COUNT not in record.attributes_json:
        return 1
    count = record.attributes.get("vllm.log.repeat.count", 1)
    return count if isinstance(count, int) and count > 0 else 1


def _leave(run: _Run, found: list[Signal]) -> None:
    record = run.first
    if record is None:
        return
    if run.folded > 1:
        attributes = record.attributes_json
        if _COUNT in attributes:
            given = {**record.attributes}
            given.pop("vllm.log.repeat.count", None)
            attributes = msgspec.json.encode(given).decode()
        until = rfc3339(run.last)
        attributes = f'{attributes[:-1]},{_COUNT}{run.folded},"vllm.log.repeat.until":"{until}"}}'
        record = replace(record, attributes_json=attributes)
    found.append(record)
