"""From a text to the few templates that can match it: a trie on their leading literals.

Of several templates that match one text, the one with the most literal characters wins. That
order is fixed when the dispatcher is built; nobody sets priorities. Of templates with one leading
literal, those whose next literal stands leftmost in the text are asked first: what a client wrote
further right has no say before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar


class Candidate(Protocol):
    """What the dispatcher needs to know of a template."""

    @property
    def lead(self) -> str:
        """The literal before the first hole."""

    @property
    def stop(self) -> str:
        """The literal after the first hole; empty for none."""

    @property
    def always(self) -> bool:
        """Whether it is asked in its rank wherever its leading literal fits."""

    @property
    def anchor(self) -> str:
        """The longest literal anywhere in it."""

    @property
    def rank(self) -> tuple[int, str]:
        """Sort key: the smaller, the more specific."""


C = TypeVar("C", bound=Candidate)

_MAX_STEP = 24
_LEAF_SIZE = 2
_FORK_SIZE = 3


class _Node(Generic[C]):
    """A step of the trie: the slice of the text that decides, and where each value leads."""

    __slots__ = ("default", "end", "start", "table")

    def __init__(self, start: int, end: int, default: tuple[C, ...]) -> None:
        self.start = start
        self.end = end
        self.default: _Leaf[C] = default
        self.table: dict[str, _Node[C] | _Leaf[C]] = {}


class _Fork(Generic[C]):
    """Candidates of one leading literal, told apart by the literal after their first hole."""

    __slots__ = ("default", "search", "start", "table")

    def __init__(self, candidates: tuple[C, ...], start: int) -> None:
        stops = {c.stop for c in candidates if c.lead and c.stop}
        longest_first = sorted(stops, key=len, reverse=True)
        self.start = start
        self.search = re.compile("|".join(map(re.escape, longest_first))).search
        self.default = tuple(c for c in candidates if not (c.lead and c.stop))
        self.table: dict[str, tuple[C, ...]] = {}
        for stop in stops:
            first = [
                c
                for c in candidates
                if not c.lead or c.always or (c.stop and stop.startswith(c.stop))
            ]
            self.table[stop] = (*first, *(c for c in candidates if c not in first))


_Leaf: TypeAlias = tuple[C, ...] | _Fork[C]


class Dispatcher(Generic[C]):
    """All candidates, indexed.

    `examples` are (candidate, text) pairs: a candidate that begins with a hole is tried before
    less specific ones where one of its own texts leads.
    """

    def __init__(self, candidates: Iterable[C], examples: Iterable[tuple[C, str]] = ()) -> None:
        everything = sorted(candidates, key=lambda candidate: candidate.rank)
        self._root: _Node[C] | _Leaf[C] = _build([c for c in everything if c.lead], 0)
        self._inner = [(c.anchor, c) for c in everything if not c.lead]
        self._words = frozenset(_word(anchor) for anchor, _ in self._inner) - {""}
        self._wordless = [(anchor, c) for anchor, c in self._inner if not _word(anchor)]
        for candidate, text in examples:
            if not candidate.lead:
                self._insert(candidate, text)
        self._root = _fork(self._root)

    def leading(self, text: str) -> tuple[C, ...]:
        """The candidates whose leading literal fits the text, most specific first."""
        node = self._root
        while isinstance(node, _Node):
            node = node.table.get(text[node.start : node.end], node.default)
        if isinstance(node, _Fork):
            found = node.search(text, node.start)
            return node.default if found is None else node.table[found.group()]
        return node

    def inner(self, text: str) -> Iterator[C]:
        """The candidates that begin with a hole and whose longest literal is in the text."""
        inner = self._inner
        if self._words.isdisjoint(text.split(" ")):
            inner = self._wordless
        for anchor, candidate in inner:
            if anchor in text:
                yield candidate

    def may_match(self, text: str) -> bool:
        """Whether any candidate may match a text: a cheap look."""
        return bool(self.leading(text)) or any(anchor in text for anchor, _ in self._inner)

    def candidates(self, text: str) -> Iterator[C]:
        """All that may match a text: those that lead first."""
        yield from self.leading(text)
        yield from self.inner(text)

    def _insert(self, candidate: C, text: str) -> None:
        parent: _Node[C] | None = None
        key: str | None = None
        node = self._root
        while isinstance(node, _Node):
            parent, key = node, text[node.start : node.end]
            if key not in node.table:
                key = None
            node = node.default if key is None else node.table[key]
        if not isinstance(node, tuple) or not node or candidate in node:
            return
        merged = tuple(sorted({*node, candidate}, key=lambda c: c.rank))
        if parent is None:
            self._root = merged
        elif key is None:
            parent.default = merged
        else:
            parent.table[key] = merged


def _word(anchor: str) -> str:
    """The longest part of a literal that stands between blanks: a text without it has no match."""
    return max(anchor.split(" ")[1:-1], key=len, default="")


def _build(candidates: Sequence[C], start: int) -> _Node[C] | _Leaf[C]:
    finished = [c for c in candidates if len(c.lead) <= start]
    longer = [c for c in candidates if len(c.lead) > start]
    if len(candidates) <= _LEAF_SIZE or not longer:
        return tuple(candidates)
    step = min(_MAX_STEP, *(len(c.lead) - start for c in longer))
    node: _Node[C] = _Node(start, start + step, tuple(finished))
    groups: dict[str, list[C]] = {}
    for candidate in longer:
        groups.setdefault(candidate.lead[start : start + step], []).append(candidate)
    for key, group in groups.items():
        merged = sorted([*finished, *group], key=lambda c: c.rank)
        node.table[key] = _build(merged, start + step)
    return node


def _fork(node: _Node[C] | _Leaf[C]) -> _Node[C] | _Leaf[C]:
    """The trie with its large leaves forked; all candidates of a fork have one lead."""
    if isinstance(node, _Node):
        node.table = {key: _fork(child) for key, child in node.table.items()}
        default = _fork(node.default)
        if not isinstance(default, _Node):
            node.default = default
        return node
    if not isinstance(node, tuple) or len(node) < _FORK_SIZE:
        return node
    leads = {c.lead for c in node if c.lead}
    if len(leads) != 1 or not any(c.lead and c.stop for c in node):
        return node
    return _Fork(node, len(leads.pop()))
