"""From a text to the few templates that can match it: a trie on their leading literals.

Of several templates that match one text, the one with the most literal characters wins. That
order is fixed when the dispatcher is built; nobody sets priorities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar


class Candidate(Protocol):
    """What the dispatcher needs to know of a template."""

    @property
    def lead(self) -> str:
        """The literal before the first hole."""

    @property
    def anchor(self) -> str:
        """The longest literal anywhere in it."""

    @property
    def rank(self) -> tuple[int, str]:
        """Sort key: the smaller, the more specific."""


C = TypeVar("C", bound=Candidate)

_MAX_STEP = 24
_LEAF_SIZE = 2


class _Node(Generic[C]):
    """A step of the trie: the slice of the text that decides, and where each value leads."""

    __slots__ = ("default", "end", "start", "table")

    def __init__(self, start: int, end: int, default: tuple[C, ...]) -> None:
        self.start = start
        self.end = end
        self.default = default
        self.table: dict[str, _Node[C] | tuple[C, ...]] = {}


class Dispatcher(Generic[C]):
    """All candidates, indexed.

    `examples` are (candidate, text) pairs: a candidate that begins with a hole is tried before
    less specific ones where one of its own texts leads.
    """

    def __init__(self, candidates: Iterable[C], examples: Iterable[tuple[C, str]] = ()) -> None:
        everything = sorted(candidates, key=lambda candidate: candidate.rank)
        self._root = _build([c for c in everything if c.lead], 0)
        self._inner = [(c.anchor, c) for c in everything if not c.lead]
        for candidate, text in examples:
            if not candidate.lead:
                self._insert(candidate, text)

    def leading(self, text: str) -> tuple[C, ...]:
        """The candidates whose leading literal fits the text, most specific first."""
        node = self._root
        while node.__class__ is _Node:
            node = node.table.get(text[node.start : node.end], node.default)
        return node  # type: ignore[return-value]

    def inner(self, text: str) -> Iterator[C]:
        """The candidates that begin with a hole and whose longest literal is in the text."""
        for anchor, candidate in self._inner:
            if anchor in text:
                yield candidate

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
            node = node.table.get(key, node.default)
            if key not in parent.table:
                key = None
        if candidate in node or not node:
            return
        merged = tuple(sorted({*node, candidate}, key=lambda c: c.rank))
        if parent is None:
            self._root = merged
        elif key is None:
            parent.default = merged
        else:
            parent.table[key] = merged


def _build(candidates: Sequence[C], start: int) -> _Node[C] | tuple[C, ...]:
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
