"""How the ids of one request relate: the client's, the engine's, those of children and batches."""

from __future__ import annotations

import re

_CHILD = re.compile(r"[0-9]{1,9}_(?=.)", re.DOTALL)
"""Children of n > 1 choices bear their number in front."""
_SUFFIX = re.compile(r"-[0-9a-f]{8}\Z")
"""From 0.14.1 on the engine's id is the client's with 8 random digits behind it."""
_BEAM = re.compile(r"-[0-9a-f]{16,32}-beam-\d{1,9}\Z")
_DASHED = ("cmpl-", "embd-", "pool-", "score-", "rerank-", "classify-")
"""Endpoints that make a request of each prompt number them behind a dash."""
_UNDERLINED = ("resp_", "chatcmpl-")
_OPERATIONS = {
    "chatcmpl": "chat",
    "chat": "chat",
    "cmpl": "text_completion",
    "embd": "embeddings",
    "generate": "text_completion",
}


def without_child(name: str) -> str:
    """The id without the number of a child."""
    if name[:1].isdecimal() and (found := _CHILD.match(name)):
        return name[found.end() :]
    return name


def external_names(internal: str) -> tuple[str, ...]:
    """What the client may have called a request of the engine, the likeliest first."""
    bare = without_child(internal)
    if not _SUFFIX.search(bare):
        return (bare,)
    base = bare[:-9]
    beam = _BEAM.search(base)
    if beam is not None:
        return (base[: beam.start()], base, bare)
    return (base, bare)


def batch_of(name: str) -> tuple[str, int] | None:
    """The id of the whole batch and the place in it, for ids that are numbered."""
    if not name[-1:].isdecimal():
        return None
    separator = "-" if name.startswith(_DASHED) else "_" if name.startswith(_UNDERLINED) else ""
    if not separator:
        return None
    whole, _, place = name.rpartition(separator)
    if whole and place.isascii() and place.isdecimal() and len(place) < 10:
        return whole, int(place)
    return None


def operation_of(name: str) -> str | None:
    """The operation that an id's prefix tells, in the terms of the GenAI conventions."""
    if name.startswith(("resp_", "beam_search-")):
        return "chat" if name[0] == "r" else "text_completion"
    return _OPERATIONS.get(name.partition("-")[0])
