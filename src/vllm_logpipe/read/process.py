"""What a process prefix says: name, pid, kind and ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import resources

import tomli
from msgspec import Struct

from vllm_logpipe.catalogue.values import member, quote


class Process(Struct, frozen=True, gc=False):
    """A process as a line names it, with its attributes as JSON members."""

    name: str
    pid: int | None
    kind: str
    members: str


@cache
def _kinds() -> tuple[tuple[str, re.Pattern[str]], ...]:
    source = resources.files("vllm_logpipe.catalogue") / "processes.toml"
    document = tomli.loads(source.read_text("utf-8"))
    return tuple(
        (entry["kind"], re.compile(entry["pattern"], re.DOTALL)) for entry in document["process"]
    )


def as_printed(_attribute: str, text: str) -> str:
    """The redaction of nothing: every text stays."""
    return text


def describe_process(
    name: str,
    pid: str | None,
    rank: str | None = None,
    redact: Callable[[str, str], str] = as_printed,
) -> Process:
    """The process of a printed name, pid and `rank=` (the global rank of old V1 workers).

    `redact` gives what stands for the text of an attribute.
    """
    kind, found = next(
        (kind, found) for kind, pattern in _kinds() if (found := pattern.fullmatch(name))
    )
    ranks = {key: value for key, value in found.groupdict().items() if value is not None}
    members = "" if pid is None else f"{member('process.pid')}{int(pid)}"
    if name:
        members += f"{member('vllm.process.name')}{quote(redact('vllm.process.name', name))}"
        members += f"{member('vllm.process.kind')}{quote(kind)}"
    index = ranks.pop("index", None)
    if index is not None:
        members += f"{member('vllm.engine.index')}{int(index)}"
    for key, value in ranks.items():
        members += f"{member('vllm.rank.' + key)}{int(value)}"
    if rank is not None:
        members += f"{member('vllm.rank.global')}{int(rank)}"
    return Process(name, None if pid is None else int(pid), kind if name else "", members)
