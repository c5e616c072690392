"""How the ids of one request relate: the client's, the engine's, those of children and batches."""

from __future__ import annotations

import re

_CHILD = re.compile(r"\d{1,9}_(?=.)")
"""Children of n > 1 choices bear their number in front."""
_SUFFIX = re.compile(r"-[0-9a-f]{8}\Z")
"""From 0.14.1 on the engine's id is the client's with 8 random digits behind it."""
_BEAM = re.compile(r"-[0-9a-f]{16,32}-beam-\d{1,9}\Z")
_DASHED = re.compile(r"(?:cmpl|embd|pool|score|rerank|classify)-.*(?=-(\d{1,9})\Z)", re.DOTALL)
"""Endpoints that make a request of each prompt number them behind a dash."""
_UNDERLINED = re.compile(r"(?:resp_|chatcmpl-).*(?=_(\d{1,9})\Z)", re.DOTALL)
_OPERATIONS = (
    ("chatcmpl-", "chat"),
    ("chat-", "chat"),
    ("resp_", "chat"),
    ("cmpl-", "text_completion"),
    ("embd-", "embeddings"),
    ("beam_search-", "text_completion"),
    ("generate-tokens-", "text_completion"),
)


def without_child(name: str) -> str:
    """The id without the number of a child."""
    return _CHILD.sub("", name, count=1) if _CHILD.match(name) else name


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
    found = _DASHED.match(name) or _UNDERLINED.match(name)
    return None if found is None else (found[0], int(found[1]))


def operation_of(name: str) -> str | None:
    """The operation that an id's prefix tells, in the terms of the GenAI conventions."""
    for prefix, operation in _OPERATIONS:
        if name.startswith(prefix):
            return operation
    return None
