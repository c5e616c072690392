"""Incidents: one a failure of the server, however many records repeat it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from vllm_logpipe.derive.cause import cause_of
from vllm_logpipe.derive.collectives import Collectives, Verdict
from vllm_logpipe.derive.evidence import Culprit, Evidence, Rank, evidence_of
from vllm_logpipe.derive.identifiers import span_id
from vllm_logpipe.derive.machine import NS, Attributes, Emit, rfc3339
from vllm_logpipe.derive.ranks import Ranks
from vllm_logpipe.derive.stall import Stalls
from vllm_logpipe.model import AttributeValue, LogRecord

State: TypeAlias = Literal["open", "updated", "closed"]

_SETTLE = 5 * NS
"""Records of the cause often follow those of its effects within seconds."""
_QUIET = 90 * NS
"""Longer than the minute after which waits are reported again."""
_QUIET_OF_MANY = 1900 * NS
"""Other ranks find out that one is gone when their collectives run out of time."""
_UPDATE = 30 * NS
_PENDING = 120 * NS
_MAX_PENDING = 32
_MAX_CANDIDATES = 64
_MAX_EVIDENCE = 16
_MAX_NAMES = 64
_QUIET_EVENTS = ("vllm.request.", "vllm.http.", "vllm.scheduler.")
"""Records that tell of a failure only by their error class."""
_DEATH_CLASSES = frozenset({"engine.dead", "engine.init_failed", "worker.died"})


class Incident(Struct):
    """One failure and what is known of it."""

    id: str
    resource_json: str
    first: int
    last: int
    count: int = 0
    candidates: list[Evidence] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    root: Evidence | None = None
    state: State | None = None
    """What was told last."""
    told: int = 0
    told_count: int = 0
    told_root: str = ""


class Incidents(Struct):
    """Finds the failures of one server, or of the nodes of one server group."""

    instance: str
    grouped: bool = False
    """Whether the streams of several nodes come in one after the other: event time then goes
    back, and incidents are closed only at the end."""
    ready: bool = False
    stopping: bool = False
    main: Incident | None = None
    contained: dict[str, Incident] = field(default_factory=dict)
    """What the server survives, by error class."""
    pending: list[Evidence] = field(default_factory=list)
    """Errors of no known class, which count only if a failure follows."""
    pending_resource: str = "{}"
    stalls: Stalls = field(default_factory=Stalls)
    ranks: Ranks = field(default_factory=Ranks)
    collectives: Collectives = field(default_factory=Collectives)
    failure: Evidence | None = None
    """The cause of the last failure that was not contained."""

    def take(self, record: LogRecord, attributes: Attributes) -> str | None:
        """Take up a record; gives the id of the incident that it belongs to."""
        event = record.event_name
        error_type = attributes.get("error.type")
        if error_type is None and (event is None or event.startswith(_QUIET_EVENTS)):
            # Most of a busy log.
            return None
        if event is not None:
            if event == "vllm.server.ready":
                self.ready = True
            elif event == "vllm.shutdown.triggered":
                self.stopping = self.main is None
            elif event.startswith(("nccl.", "vllm.distributed.")):
                self.ranks.take(record, attributes)
                self.collectives.take(record, attributes)
        stalled = self.stalls.take(record, attributes)
        if stalled is not None:
            return self._join(stalled, record)
        if not isinstance(error_type, str):
            return None
        found = evidence_of(record, attributes, error_type, stopping=self.stopping)
        if found is None:
            if self.main is not None and error_type in _DEATH_CLASSES:
                self.main.count += 1
                return self.main.id
            return None
        return self._join(found, record)

    def advance(self, now: int, emit: Emit) -> None:
        """Open, update and close incidents as event time goes on."""
        stalled = None if self.grouped else self.stalls.advance(now)
        if stalled is not None:
            self._join(stalled, None)
        if self.grouped:
            return
        for key, incident in [*self.contained.items()]:
            if self._advance(incident, now, emit):
                del self.contained[key]
        if self.main is not None and self._advance(self.main, now, emit):
            self.main = None
            self.collectives.clear()

    def finish(self, _now: int, emit: Emit) -> None:
        """Close what is open; a start that ended in an error of no known class has failed."""
        if self.main is None and not self.ready and not self.stopping:
            unnamed = cause_of(self.pending)
            if unnamed is not None:
                self.main = self._open(unnamed, self.pending_resource)
                self._add(self.main, unnamed)
                self.failure = unnamed
        for incident in (*self.contained.values(), *([self.main] if self.main else ())):
            self._tell(incident, "closed", emit)
        self.contained.clear()
        self.main = None
        self.collectives.clear()

    def _join(self, found: Evidence, record: LogRecord | None) -> str | None:
        resource = record.resource_json if record is not None else self.pending_resource
        self.pending_resource = resource
        if found.error_type == "_OTHER" and self.main is None:
            self._wait(found)
            return None
        if found.contained and self.ready and self.main is None:
            incident = self.contained.get(found.error_type)
            if incident is None:
                incident = self.contained[found.error_type] = self._open(found, resource)
        else:
            if self.main is None:
                self.main = self._adopted(found) or self._open(found, resource)
                for earlier in self.pending:
                    if found.time - earlier.time <= _PENDING:
                        self._add(self.main, earlier)
                self.pending.clear()
            incident = self.main
        self._add(incident, found)
        if incident is self.main:
            self.failure = incident.root or incident.candidates[0]
        return incident.id

    def _wait(self, found: Evidence) -> None:
        self.pending = [e for e in self.pending if found.time - e.time <= _PENDING]
        if len(self.pending) < _MAX_PENDING:
            self.pending.append(found)

    def _adopted(self, found: Evidence) -> Incident | None:
        """What was thought to be survived, where a death without a reason follows at once."""
        if found.is_root:
            return None
        for key, incident in self.contained.items():
            if found.time - incident.last <= _UPDATE:
                return self.contained.pop(key)
        return None

    def _open(self, found: Evidence, resource: str) -> Incident:
        key = span_id(self.instance, "incident", found.uid, found.error_type)
        return Incident(key, resource, found.time, found.time)

    def _add(self, incident: Incident, found: Evidence) -> None:
        incident.count += 1
        incident.first = min(incident.first, found.time)
        incident.last = max(incident.last, found.time)
        names, classes = incident.names, incident.classes
        name = found.process_name
        if name is not None and name not in names and len(names) < _MAX_NAMES:
            names.append(name)
        if found.error_type not in classes:
            classes.append(found.error_type)
        if _is_news(incident.candidates, found):
            incident.candidates.append(found)
            incident.root = cause_of(incident.candidates)
            if len(incident.evidence) < _MAX_EVIDENCE and found.uid:
                incident.evidence.append(found.uid)

    def _advance(self, incident: Incident, now: int, emit: Emit) -> bool:
        """Tell what is due; gives whether the incident is over."""
        if now - incident.last >= self._quiet(incident):
            self._tell(incident, "closed", emit)
            return True
        if incident.state is None:
            if now - incident.first >= _SETTLE:
                self._tell(incident, "open", emit)
        elif now - incident.told >= _UPDATE and (
            incident.count >= 2 * incident.told_count or _root_uid(incident) != incident.told_root
        ):
            self._tell(incident, "updated", emit)
        return False

    def _quiet(self, incident: Incident) -> int:
        root = incident.root
        if self.ranks.size < 2:
            return _QUIET
        if root is not None and (root.contained or root.error_type == "engine.stalled"):
            return _QUIET
        if root is not None and root.rank is Rank.COLLECTIVE:
            return _QUIET
        return _QUIET_OF_MANY

    def _tell(self, incident: Incident, state: State, emit: Emit) -> None:
        incident.state = state
        incident.told = incident.last
        incident.told_count = incident.count
        incident.told_root = _root_uid(incident)
        verdict = self.collectives.verdict(self.ranks) if incident is self.main else None
        emit(_record(incident, state, verdict, self.ranks))


def _is_news(candidates: list[Evidence], found: Evidence) -> bool:
    """Whether the evidence says more than a repeat of what is held: floods take no memory."""
    if len(candidates) >= _MAX_CANDIDATES:
        return False
    return not any(
        held.error_type == found.error_type
        and held.process_name == found.process_name
        and held.is_root == found.is_root
        and held.culprit == found.culprit
        and held.began <= found.began
        for held in candidates
    )


def _root_uid(incident: Incident) -> str:
    return "" if incident.root is None else incident.root.uid


def _record(incident: Incident, state: State, verdict: Verdict | None, ranks: Ranks) -> LogRecord:
    root = incident.root or incident.candidates[0]
    is_collective = root.rank is Rank.COLLECTIVE
    if is_collective and verdict is None:
        explanation = "no rank has reported how far it had come"
        verdict = Verdict("undecided", "weak", explanation, {})
    culprit = ranks.named(_culprit(incident, root, verdict, ranks))
    known = _is_known(incident.root, verdict)
    attributes: dict[str, AttributeValue | None] = {
        "error.type": root.error_type,
        "vllm.error.role": "root" if known else "unknown",
        "exception.type": root.exception_type,
        "exception.message": root.exception_message,
        "vllm.incident.id": incident.id,
        "vllm.incident.state": state,
        "vllm.incident.record_count": incident.count,
        "vllm.incident.process_names": list(incident.names),
        "vllm.incident.first_seen": rfc3339(incident.first),
        "vllm.incident.last_seen": rfc3339(incident.last),
        "vllm.incident.cascades": sorted(set(incident.classes) - {root.error_type}),
        "vllm.incident.evidence": _evidence(incident, root),
        "vllm.incident.root_cause_known": known,
        "vllm.process.name": culprit.name,
        "vllm.process.kind": culprit.kind,
        "process.pid": culprit.pid,
        "host.name": culprit.host,
        **culprit.ranks,
    }
    body = f"{root.error_type}: {_message(root)}"
    if verdict is not None:
        attributes |= verdict.attributes
        if is_collective:
            attributes["vllm.incident.verdict"] = verdict.verdict
            attributes["vllm.incident.confidence"] = verdict.confidence
            attributes["vllm.incident.explanation"] = verdict.explanation
            body = f"{root.error_type}: {verdict.explanation}"
        else:
            attributes["vllm.incident.verdict"] = "died"
            attributes["vllm.incident.confidence"] = "strong"
            attributes["vllm.incident.explanation"] = (
                "the ranks waited for a process that had failed before"
            )
            rank = culprit.ranks.get("vllm.rank.global")
            if rank is not None:
                attributes["nccl.ranks.suspected"] = [rank]
    if not known:
        body += " (the cause is not in the log)"
    given = {name: value for name, value in attributes.items() if value is not None}
    given["log.record.uid"] = f"{incident.id}-{state}-{incident.count}"
    return LogRecord(
        time_unix_nano=incident.first if state == "open" else incident.last,
        observed_time_unix_nano=incident.last,
        severity_text="ERROR",
        severity_number=17,
        event_name="nccl.incident" if is_collective else "vllm.incident",
        body=body,
        attributes_json=msgspec.json.encode(given).decode(),
        resource_json=incident.resource_json,
    )


def _message(root: Evidence) -> str:
    if root.exception_type is None:
        return root.message
    kind = root.exception_type.rpartition(".")[2]
    first, _, _ = (root.exception_message or "").strip().partition("\n")
    return f"{kind}: {first}" if first else kind


def _culprit(incident: Incident, root: Evidence, verdict: Verdict | None, ranks: Ranks) -> Culprit:
    """The process at fault: the one suspected or found dead, not the one that reports."""
    if root.rank is Rank.COLLECTIVE and verdict is not None:
        if verdict.is_global and len(verdict.suspected) == 1:
            return ranks.culprit(verdict.suspected[0])
        return Culprit()
    if root.culprit == Culprit():
        # Old releases and the kernel name no process: the one that repeats it, or died of it.
        for candidate in incident.candidates:
            repeats = candidate.is_root and candidate.error_type == root.error_type
            if candidate.culprit != Culprit() and (repeats or candidate.rank is Rank.DEATH):
                return candidate.culprit
    return root.culprit


def _is_known(root: Evidence | None, verdict: Verdict | None) -> bool:
    if root is None or root.rank in (Rank.DEATH, Rank.STALL):
        return False
    if root.rank is Rank.COLLECTIVE:
        return verdict is not None and verdict.confidence != "weak"
    return True


def _evidence(incident: Incident, root: Evidence) -> AttributeValue:
    others = [uid for uid in incident.evidence if uid != root.uid]
    return [*((root.uid,) if root.uid else ()), *others][:_MAX_EVIDENCE]
