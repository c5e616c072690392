"""Which of several pieces of evidence is the cause."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_logpipe.derive.evidence import Evidence, Rank
from vllm_logpipe.derive.machine import NS

_SAME_MOMENT = NS
"""Within the resolution of the printed times the lower layer decides."""
_EXPLAINS = 30 * NS
"""So much later than a collective began to hang a fault is still reported late."""
_REASON_DELAY = 15 * NS
"""So much later than a death its reason can be printed, as by the kernel."""

_VAGUE = frozenset({"_OTHER", "engine.dead", "worker.exception"})
"""Classes that say where an exception was met, not what it is."""
_ECHOES = ("DeadError", "CancelledError", "KeyboardInterrupt", "SystemExit")
"""Exceptions that tell of a failure elsewhere, or of none."""


def cause_of(candidates: Sequence[Evidence]) -> Evidence | None:
    """The cause among the evidence of one failure; None where no record names one.

    What began first counts. A fault explains a death, both explain a collective that began to
    hang about then or later, and that explains time limits exceeded elsewhere.
    """
    fault = _first([c for c in candidates if c.is_root and c.rank is Rank.FAULT])
    death = _first([c for c in candidates if c.is_root and c.rank is Rank.DEATH])
    collective = _first([c for c in candidates if c.is_root and c.rank is Rank.COLLECTIVE])
    if collective is not None:
        if fault is not None and fault.time > collective.began + _EXPLAINS:
            fault = None
        if death is not None and death.time > collective.began + _EXPLAINS:
            death = None
    if fault is not None and death is not None and fault.time > death.time + _REASON_DELAY:
        fault = None
    stall = _first([c for c in candidates if c.is_root and c.rank is Rank.STALL])
    return fault or death or collective or _echo(candidates) or stall or _unnamed(candidates)


def _echo(candidates: Sequence[Evidence]) -> Evidence | None:
    """What follows from a collective that hung, where the report itself is torn or elsewhere."""
    return _first([c for c in candidates if c.error_type == "nccl.collective_timeout"])


def _unnamed(candidates: Sequence[Evidence]) -> Evidence | None:
    """An exception that no class fits, where nothing else explains the failure."""
    return _first(
        [
            c
            for c in candidates
            if c.error_type in _VAGUE
            and c.exception_type is not None
            and not c.exception_type.rpartition(".")[2].endswith(_ECHOES)
        ]
    )


def _first(candidates: Sequence[Evidence]) -> Evidence | None:
    if not candidates:
        return None
    earliest = min(candidate.began for candidate in candidates)
    moment = [c for c in candidates if c.began <= earliest + _SAME_MOMENT]
    return min(moment, key=lambda c: (c.layer, c.began))
