"""What Ray adds to the lines of its actors: how often other actors printed the same."""

from __future__ import annotations

import re

REPEAT_ENDINGS = (" across cluster]", " across all nodes]", " options.)")
"""How texts end that Ray may have added to: a cheap look."""
_REPEATED = re.compile(
    r" \[repeated (?P<count>[0-9]{1,9})x across (?:cluster|all nodes)\]"
    r"(?: \(Ray deduplicates logs by default\.[^()\n]{0,512}\))?\Z"
)
_ACTOR = re.compile(r"\((?:Ray\w{0,80}|\w{0,80}Actor) pid=|, ip=")


def cut_repeat(header: str, text: str) -> tuple[str, str, int]:
    """A text less Ray's ` [repeated 7x across cluster]`, that ending, and the number in it.

    Without it: the text, nothing, and 0. Only a header with the prefix of an actor has Ray behind
    it: anybody may write such a text.
    """
    if not text.endswith(REPEAT_ENDINGS) or not _ACTOR.search(header):
        return text, "", 0
    at = text.rfind(" [repeated ")
    found = None if at < 0 else _REPEATED.match(text, at)
    return (text, "", 0) if found is None else (text[:at], text[at:], int(found["count"]))
