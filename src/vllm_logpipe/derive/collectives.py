"""Which rank a stuck collective is laid to, from what the ranks' watchdogs print."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from vllm_logpipe.derive.machine import NS, Attributes
from vllm_logpipe.derive.ranks import Ranks
from vllm_logpipe.model import AttributeValue, LogRecord

_MAX_GROUPS = 256
_MAX_REPORTS = 4096
_SAME_SIZES = frozenset({"ALLREDUCE", "ALLREDUCE_COALESCED", "BROADCAST", "ALLGATHER", "BARRIER"})
"""Collectives in which every rank passes the same number of elements."""
_SNAPSHOT = "Snapshot of ranks"
_PLACE = re.compile(
    r"\[([\d, ]{1,16384})\] (joined but didn't finish|finished) collective #(\d{1,15})"
)
_NEVER = re.compile(r"\[([\d, ]{1,16384})\] (?:are the lagging|never joined|didn't join)")
_STARTED = re.compile(r"started ([A-Z_]{1,64})")
_WORK_EVENTS = "nccl."


class Report(Struct):
    """What one rank has printed of a process group."""

    sequence: int | None = None
    collective: str | None = None
    sizes: tuple[int, int] | None = None
    enqueued: int | None = None
    completed: int | None = None


class Group(Struct):
    """One process group, by GUID and description."""

    description: str = ""
    began: int = 0
    """When its first operation to hang began, ns since 1970 UTC; 0 while unknown."""
    timeout: float | None = None
    elapsed: float | None = None
    reports: dict[int, Report] = field(default_factory=dict)
    lagging: list[int] = field(default_factory=list)
    """The ranks that torch's own desync report names."""
    desync: str = ""
    is_global: bool = True
    """Whether the ranks of the reports are global ones."""


class Verdict(Struct, frozen=True, gc=False):
    """What became of a collective operation, and how sure that is."""

    verdict: str
    confidence: str
    explanation: str
    attributes: dict[str, AttributeValue]
    suspected: tuple[int, ...] = ()
    """Global ranks; of the group where those are not known."""
    is_global: bool = True


class Collectives(Struct):
    """Gathers the watchdogs' lines of one server group and gives a verdict."""

    groups: dict[str, Group] = field(default_factory=dict)

    def take(self, record: LogRecord, attributes: Attributes) -> None:
        """Take up a line of torch's process groups."""
        event = record.event_name or ""
        if not event.startswith(_WORK_EVENTS):
            return
        rank = attributes.get("nccl.rank")
        is_global = isinstance(rank, int)
        if not is_global:
            rank = attributes.get("nccl.process_group.rank")
        if not isinstance(rank, int):
            return
        group = self._group(attributes)
        if group is None or (len(group.reports) >= _MAX_REPORTS and rank not in group.reports):
            return
        group.is_global = group.is_global and is_global
        report = group.reports.setdefault(rank, Report())
        _note(report, attributes)
        elapsed = attributes.get("nccl.elapsed")
        if isinstance(elapsed, (int, float)):
            began = record.time_unix_nano - round(elapsed * NS)
            group.began = min(group.began or began, began)
            group.elapsed = max(group.elapsed or 0.0, float(elapsed))
        timeout = attributes.get("nccl.timeout")
        if isinstance(timeout, (int, float)):
            group.timeout = float(timeout)
        if event == "nccl.desync_report":
            group.desync = record.body[:65536]
            group.lagging = _lagging(group.desync)

    def clear(self) -> None:
        """Forget the reports: their failure is over."""
        self.groups.clear()

    def verdict(self, ranks: Ranks) -> Verdict | None:
        """The verdict on what has been reported so far; None without a report."""
        groups = [group for group in self.groups.values() if group.reports]
        if not groups:
            return None
        # Of several groups the first that stuck holds the others up.
        group = min(groups, key=lambda group: (not group.lagging, group.began or 1 << 63))
        return _judge(group, ranks)

    def _group(self, attributes: Attributes) -> Group | None:
        guid = attributes.get("nccl.process_group.guid")
        description = str(attributes.get("nccl.process_group.description", ""))[:128]
        if guid is None and not description:
            # Lines without a tag tell of the one group that is in question.
            if len(self.groups) == 1:
                return next(iter(self.groups.values()))
            key = ""
        else:
            key = f"{str(guid)[:128]}\0{description}"
            untagged = self.groups.pop("", None)
            if untagged is not None and key not in self.groups:
                untagged.description = description
                self.groups[key] = untagged
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= _MAX_GROUPS:
                return None
            group = self.groups[key] = Group(description)
        return group


def _note(report: Report, attributes: Attributes) -> None:
    sequence = attributes.get("nccl.sequence_number")
    collective = attributes.get("nccl.collective")
    # The first operation that hung is the one in question: later ones wait behind it.
    if isinstance(sequence, int) and (report.sequence is None or sequence <= report.sequence):
        report.sequence = sequence
        if isinstance(collective, str):
            report.collective = collective
            sent, received = attributes.get("nccl.numel.in"), attributes.get("nccl.numel.out")
            if isinstance(sent, int) and isinstance(received, int):
                report.sizes = (sent, received)
    enqueued = attributes.get("nccl.last_enqueued")
    if isinstance(enqueued, int):
        report.enqueued = max(enqueued, report.enqueued or -1)
    completed = attributes.get("nccl.last_completed")
    if isinstance(completed, int):
        report.completed = max(completed, -1 if report.completed is None else report.completed)


class _Case:
    """One group with the ranks it should have, and the operation in question."""

    def __init__(self, group: Group, ranks: Ranks) -> None:
        self.group = group
        self.reports = group.reports
        reported = sorted(self.reports)
        expected = ranks.group(group.description, reported) if group.is_global else None
        self.expected = sorted({*(expected or []), *reported})
        self.is_complete = expected is not None
        """Whether it is known which ranks the group has."""
        self.reported = reported
        visible = ranks.seen | set(reported)
        self.silent = [r for r in self.expected if r in visible and r not in self.reports]
        self.not_visible = [r for r in self.expected if r not in visible]
        self.sequence = _sequence(self.reports.values())

    def verdict(
        self, verdict: str, confidence: str, explanation: str, suspected: Iterable[int] = ()
    ) -> Verdict:
        suspects = sorted(suspected)
        values: dict[str, AttributeValue | None] = {
            "nccl.collective": self._collective(),
            "nccl.sequence_number": self.sequence,
            "nccl.timeout": self.group.timeout,
            "nccl.elapsed": self.group.elapsed,
            "nccl.process_group.description": self.group.description or None,
            "nccl.ranks.expected": list(self.expected) if self.is_complete else None,
            "nccl.ranks.reported": list(self.reported),
            "nccl.ranks.silent": list(self.silent),
            "nccl.ranks.suspected": list(suspects),
            "nccl.ranks.not_visible": list(self.not_visible),
        }
        return Verdict(
            verdict,
            confidence,
            explanation,
            {name: value for name, value in values.items() if value is not None},
            tuple(suspects),
            self.group.is_global,
        )

    def _collective(self) -> str | None:
        named = [r.collective for r in self.reports.values() if r.collective is not None]
        at = [
            r.collective
            for r in self.reports.values()
            if r.collective is not None and r.sequence == self.sequence
        ]
        counted = Counter(at or named).most_common(1)
        return counted[0][0] if counted else None


def _sequence(reports: Iterable[Report]) -> int | None:
    """The lowest operation that some rank has not completed."""
    reports = list(reports)
    completed = [r.completed for r in reports if r.completed is not None]
    hung = [r.sequence for r in reports if r.sequence is not None]
    candidates = [min(completed) + 1] if completed else []
    candidates += [min(hung)] if hung else []
    return min(candidates) if candidates else None


def _judge(group: Group, ranks: Ranks) -> Verdict:
    case = _Case(group, ranks)
    return _reported(case) or _mismatch(case) or _behind(case) or _stuck(case) or _undecided(case)


def _reported(case: _Case) -> Verdict | None:
    """Torch's own desync report names the culprits."""
    lagging = case.group.lagging
    if not lagging:
        return None
    who = _ranks_text(lagging)
    kinds = sorted(set(_STARTED.findall(case.group.desync.partition(_SNAPSHOT)[2])))
    if len(kinds) > 1:
        what = f"torch reports that ranks started different operations ({', '.join(kinds)})"
        return case.verdict("mismatch", "reported", f"{what}; it names {who}", lagging)
    if len(lagging) == len(case.expected):
        what = "torch reports that all ranks joined the operation and none finished it"
        return case.verdict("fabric_or_kernel", "reported", what)
    what = f"torch reports that {who} lies behind" if len(lagging) == 1 else ""
    what = what or f"torch reports that {who} lie behind"
    return case.verdict("did_not_join", "reported", what, lagging)


def _lagging(report: str) -> list[int]:
    """The ranks that a desync report finds least advanced.

    It says of ranks that they never joined an operation, that they joined operation n and did
    not finish it, or that they finished n and did not join the next.
    """
    found = report.partition(_SNAPSHOT)[0]
    never = [rank for ranks in _NEVER.findall(found) for rank in _numbers(ranks)]
    if never:
        return sorted(set(never))[:_MAX_REPORTS]
    places = [
        (2 * int(operation) + (kind == "finished"), ranks)
        for ranks, kind, operation in _PLACE.findall(found)
    ]
    last = min((place for place, _ in places), default=0)
    lagging = {rank for place, ranks in places if place == last for rank in _numbers(ranks)}
    return sorted(lagging)[:_MAX_REPORTS]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip().isdecimal()]


def _mismatch(case: _Case) -> Verdict | None:
    """Ranks that run another operation, or another size of it, at the same place."""
    by_sequence: dict[int, dict[int, Report]] = {}
    for rank, report in case.reports.items():
        if report.sequence is not None and report.collective is not None:
            by_sequence.setdefault(report.sequence, {})[rank] = report
    for sequence in sorted(by_sequence):
        reports = by_sequence[sequence]
        kinds = Counter(str(r.collective) for r in reports.values())
        if len(kinds) > 1:
            odd = _minority({rank: str(r.collective) for rank, r in reports.items()})
            names = " and ".join(sorted(kinds))
            return case.verdict(
                "mismatch", "strong", f"at operation {sequence} the ranks run {names}", odd
            )
        if next(iter(kinds)) not in _SAME_SIZES:
            continue
        sizes = {rank: str(r.sizes) for rank, r in reports.items() if r.sizes is not None}
        if len(set(sizes.values())) > 1:
            return case.verdict(
                "mismatch",
                "strong",
                f"at operation {sequence} the ranks pass different numbers of elements",
                _minority(sizes),
            )
    return None


def _behind(case: _Case) -> Verdict | None:
    """Ranks whose last enqueued or completed operation lies behind the others'."""
    enqueued = {rank: r.enqueued for rank, r in case.reports.items() if r.enqueued is not None}
    sequence = case.sequence
    if sequence is not None and enqueued:
        late = [rank for rank, last in enqueued.items() if last < sequence]
        waiting = [
            rank for rank, r in case.reports.items() if rank not in late and _waits(r, sequence)
        ]
        if late and waiting:
            what = f"{_ranks_text(late)} never enqueued operation {sequence}, others wait in it"
            return case.verdict("did_not_join", "strong", what, late)
    completed = {rank: r.completed for rank, r in case.reports.items() if r.completed is not None}
    if completed and min(completed.values()) < max(completed.values()):
        ahead = max(completed.values())
        late = [rank for rank, last in completed.items() if last < ahead]
        if len(late) * 2 <= len(completed):
            what = f"{_ranks_text(late)} completed less than the others, who reached {ahead}"
            return case.verdict("did_not_join", "strong", what, late)
    return None


def _stuck(case: _Case) -> Verdict | None:
    """Every rank has enqueued the operation and none has completed it."""
    sequence = case.sequence
    if sequence is None or not case.is_complete or case.silent or case.not_visible:
        return None
    reports = case.reports.values()
    if len(case.reports) < 2 or not all(_waits(report, sequence) for report in reports):
        return None
    if any(r.completed is not None and r.completed >= sequence for r in reports):
        return None
    certain = all(r.enqueued is not None and r.completed is not None for r in reports)
    what = f"all {len(case.reports)} ranks are in operation {sequence} and none has completed it"
    return case.verdict("fabric_or_kernel", "strong" if certain else "weak", what)


def _undecided(case: _Case) -> Verdict:
    if case.not_visible:
        what = f"{_ranks_text(case.not_visible)} print elsewhere: nothing is known of them"
        return case.verdict("undecided", "weak", what)
    sequence = case.sequence
    waiting = sequence is not None and any(_waits(r, sequence) for r in case.reports.values())
    if case.is_complete and case.silent and waiting:
        what = f"{_ranks_text(case.silent)} reported nothing while others wait in {sequence}"
        return case.verdict("did_not_join", "weak", what, case.silent)
    what = "the lines that were printed do not tell the ranks apart"
    return case.verdict("undecided", "weak", what, case.silent if case.is_complete else ())


def _waits(report: Report, sequence: int) -> bool:
    """Whether the rank is in the operation: it enqueued it, or its watchdog reports it."""
    if report.enqueued is not None:
        return report.enqueued >= sequence
    return report.sequence is not None and report.sequence >= sequence


def _minority(values: dict[int, str]) -> list[int]:
    """The ranks that differ from what most have; none where there is no majority."""
    (most, count), *_ = Counter(values.values()).most_common(1)
    if count * 2 <= len(values):
        return []
    return [rank for rank, value in values.items() if value != most]


def _ranks_text(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
