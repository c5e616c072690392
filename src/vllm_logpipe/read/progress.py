"""Progress bars: tqdm's states, of which a stream may hold thousands, as one record."""

from __future__ import annotations

import re
from collections.abc import Callable

from vllm_logpipe.catalogue.values import member, quote
from vllm_logpipe.read.header import load_settings

_UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMGT]?)(i?B?)")


class Bar:
    """One bar of a stream: its last state, and where and how often it was printed."""

    __slots__ = ("_found", "last_line", "members", "offset", "prefix", "refreshes", "text", "time")

    def __init__(self, prefix: str, offset: int, members: str) -> None:
        self.prefix = prefix
        self.offset = offset
        self.members = members
        self.refreshes = 0
        self.last_line = 0
        self.text = ""
        self.time: tuple[int, int] | None = None
        """Second and ns of the record before its last state."""
        self._found: re.Match[str] | None = None

    def update(self, found: re.Match[str], line: int) -> None:
        """Take over a state of the bar, as `match_bar` found it."""
        self._found = found
        self.text = found.group()
        self.refreshes += 1
        self.last_line = line

    @property
    def finished(self) -> bool:
        """Whether the bar has reached its total."""
        return self._found is not None and self._found["completed"] == self._found["total"]

    def attributes(self, scrub: Callable[[str], str]) -> str:
        """The state as JSON members; `scrub` takes secrets out of the description."""
        found = self._found
        if found is None:
            return ""
        members = (
            f"{member('vllm.progress.description')}{quote(scrub(found['description'].strip()))}"
        )
        for key in ("completed", "total"):
            value = _count(found[key])
            if value is not None:
                members += f"{member('vllm.progress.' + key)}{value}"
        members += f"{member('vllm.progress.ratio')}{min(int(found['percent']), 100) / 100}"
        elapsed = _elapsed(found["elapsed"])
        if elapsed is not None:
            members += f"{member('vllm.progress.elapsed')}{elapsed}"
        if self.refreshes > 1:
            members += f"{member('vllm.log.refreshes')}{self.refreshes}"
        return members


def match_bar(text: str) -> re.Match[str] | None:
    """The bar state that a text begins with; something else may be glued to its end."""
    if "%" not in text or "[" not in text:
        return None
    return load_settings().progress.match(text)


def _count(text: str) -> int | None:
    found = _COUNT.fullmatch(text)
    if found is None:
        return None
    number, unit, _ = found.groups()
    return round(float(number) * _UNITS.get(unit, 1))


def _elapsed(text: str) -> float | None:
    seconds = 0
    for part in text.split(":"):
        if not part:
            return None
        seconds = seconds * 60 + int(part)
    return float(seconds)
