"""Which ranks a server has, and which process each is, from its start-up lines."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from vllm_logpipe.derive.evidence import Culprit
from vllm_logpipe.derive.machine import Attributes
from vllm_logpipe.model import LogRecord

_MAX_RANKS = 65_536
_ASSIGNED = frozenset({"vllm.distributed.rank_assignment", "vllm.distributed.init"})
_FIELDS = ("dp", "pp", "tp", "pcp", "ep")
_SHARED = {
    "tp": ("dp", "pp", "pcp"),
    "pp": ("dp", "tp", "pcp"),
    "dp": ("pp", "tp", "pcp"),
    "pcp": ("dp", "pp", "tp"),
    "ep": ("pp",),
}
"""By the parallel group the places that all its members have in common."""


class Member(Struct):
    """One rank: its places in the parallel groups, and its process."""

    pid: int | None = None
    name: str | None = None
    host: str | None = None
    local: int | None = None
    places: dict[str, int] = field(default_factory=dict)


class Ranks(Struct):
    """The ranks whose processes print to the streams that are seen."""

    size: int = 0
    """Ranks in all, as printed; 0 while unknown."""
    members: dict[int, Member] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    """Global ranks of which any line was seen."""
    hosts: dict[int, str] = field(default_factory=dict)
    """Hosts by pid, as NCCL's own lines print them."""

    def take(self, record: LogRecord, attributes: Attributes) -> None:
        """Learn from a start-up line, or from any line that bears a rank."""
        event = record.event_name
        if event in _ASSIGNED:
            self._assign(attributes)
        elif event == "nccl.communicator.init":
            self._communicate(attributes)
        else:
            rank = attributes.get("nccl.rank")
            if isinstance(rank, int) and rank >= 0 and len(self.seen) < _MAX_RANKS:
                self.seen.add(rank)

    def group(self, description: str, among: Iterable[int]) -> list[int] | None:
        """The global ranks of the process group that holds `among`; None where not known."""
        kind = description.partition(":")[0]
        everyone = list(range(self.size)) if self.size else None
        if kind in ("", "default_pg", "undefined", "world"):
            return everyone
        shared = _SHARED.get(kind)
        if shared is None:
            return None
        known = [self.members[rank].places for rank in among if rank in self.members]
        if not known or not all("tp" in places for places in known):
            return None
        wanted = {tuple(places.get(place, 0) for place in shared) for places in known}
        found = [
            rank
            for rank, member in self.members.items()
            if tuple(member.places.get(place, 0) for place in shared) in wanted
        ]
        return sorted(found)

    def culprit(self, rank: int) -> Culprit:
        """The process of a global rank, as far as it is known."""
        member = self.members.get(rank, Member())
        places = {f"vllm.rank.{name}": place for name, place in member.places.items()}
        if member.local is not None:
            places["vllm.rank.local"] = member.local
        host = member.host or (self.hosts.get(member.pid) if member.pid is not None else None)
        return Culprit(
            name=member.name,
            kind="worker" if member.name else None,
            pid=member.pid,
            host=host,
            ranks={"vllm.rank.global": rank, **places},
        )

    def named(self, culprit: Culprit) -> Culprit:
        """The culprit with what start-up lines tell of its process."""
        rank = self._rank_of(culprit)
        if rank is None:
            return culprit
        known = self.culprit(rank)
        return Culprit(
            name=culprit.name or known.name,
            kind=culprit.kind or known.kind,
            pid=culprit.pid if culprit.pid is not None else known.pid,
            host=culprit.host or known.host,
            ranks={**known.ranks, **culprit.ranks},
        )

    def _rank_of(self, culprit: Culprit) -> int | None:
        rank = culprit.ranks.get("vllm.rank.global")
        if rank is not None:
            return rank
        if culprit.pid is not None:
            for number, member in self.members.items():
                if member.pid == culprit.pid:
                    return number
            return None
        # On one node the number in a worker's name is its rank.
        prefix, _, number_text = (culprit.name or "").rpartition("-")
        if prefix == "VllmWorker" and number_text.isdecimal() and len(number_text) < 6:
            return int(number_text) if int(number_text) in self.members else None
        return None

    def _assign(self, attributes: Attributes) -> None:
        rank = attributes.get("vllm.rank.global")
        if not isinstance(rank, int) or not 0 <= rank < _MAX_RANKS:
            return
        size = attributes.get("vllm.distributed.world_size")
        if isinstance(size, int) and size <= _MAX_RANKS:
            self.size = max(self.size, size)
        if len(self.seen) < _MAX_RANKS:
            self.seen.add(rank)
        member = self.members.setdefault(rank, Member())
        pid, name = attributes.get("process.pid"), attributes.get("vllm.process.name")
        if isinstance(pid, int):
            member.pid = pid
        if isinstance(name, str):
            member.name = name
        local = attributes.get("vllm.rank.local")
        if isinstance(local, int):
            member.local = local
        for place in _FIELDS:
            value = attributes.get(f"vllm.rank.{place}")
            if isinstance(value, int):
                member.places[place] = value

    def _communicate(self, attributes: Attributes) -> None:
        pid, host = attributes.get("process.pid"), attributes.get("nccl.host")
        if isinstance(pid, int) and isinstance(host, str) and len(self.hosts) < _MAX_RANKS:
            self.hosts[pid] = host
        size = attributes.get("nccl.communicator.size")
        rank = attributes.get("nccl.communicator.rank")
        # The first communicator of a server spans the world; later ones may be smaller.
        if isinstance(size, int) and isinstance(rank, int) and size <= _MAX_RANKS:
            self.size = max(self.size, size)
            if size == self.size and len(self.members) < _MAX_RANKS and rank >= 0:
                self.seen.add(rank)
                member = self.members.setdefault(rank, Member())
                if isinstance(pid, int):
                    member.pid = member.pid or pid
                if isinstance(host, str):
                    member.host = host
