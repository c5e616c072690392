"""The beginning of a line: process prefix, level, time, source, and the format they give away."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import resources

import msgspec
import tomli
from msgspec import Struct

from vllm_logpipe.catalogue.values import member, quote
from vllm_logpipe.model import SEVERITY_NUMBERS
from vllm_logpipe.read.draft import Draft
from vllm_logpipe.read.process import Process, as_printed, describe_process

_MAX_CACHED = 8192
_MAX_PREFIXES = 512
"""Characters of nested process prefixes that are peeled off."""
_CLOCK = re.compile(r"[0-9]{2}:[0-9]{2}")
"""What is no constant prefix: it tells the time."""
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Lane(Struct, eq=False):
    """What the lines of one process share, or of one call site where no process is printed.

    Within a lane a new header ends the record before.
    """

    draft: Draft | None = None
    """The record that is open."""
    second: int = -1
    """The last printed time, s since 1970 UTC; -1 for none yet."""
    fraction: int = 0
    """Its ns."""


class Head(Struct, frozen=True, eq=False):
    """What stands before the message, less the time, and what it says."""

    format: str
    """`vllm.log.format`."""
    level: str | None
    number: int | None
    """Severity number; None with no level."""
    process: Process | None
    lane: Lane
    stamp_kind: str
    """The notation of the time: `month_day`, `glog`, `klog`, `date`, `date_fraction`, or empty."""
    members: str
    """Attributes of the header as JSON members, without the comma before the first."""
    names: frozenset[str]
    """The names of these attributes."""
    pid: int | None


def date_kind(stamp: str) -> str:
    """The notation of a full date: whether it has a fraction of the second."""
    return "date_fraction" if "." in stamp or "," in stamp else "date"


def _from_asctime(text: str) -> str:
    """`Mon Sep 15 12:00:01 2025` as a full date; what is no month stays unread."""
    _, month, day, clock, year = text.split()
    number = _MONTHS.find(month) // 3 + 1
    return f"{year}-{number:02d}-{int(day):02d} {clock}"


def make_head(
    log_format: str,
    level: str | None,
    process: Process | None,
    lane: Lane,
    stamp_kind: str,
    members: str,
) -> Head:
    """A head of what was read, with what follows from it."""
    return Head(
        log_format,
        level,
        None if level is None else SEVERITY_NUMBERS.get(level.upper()),
        process,
        lane,
        stamp_kind,
        members,
        frozenset(_names(f"{{{members}}}")),
        None if process is None else process.pid,
    )


class Beginning(Struct, frozen=True):
    """How a line begins: its header, if it has one, and where the rest starts."""

    head: Head | None
    process: Process | None
    prefix: str
    start: int
    text: str = ""
    """The header as printed, process prefix included: the lines of one record repeat it."""
    stamp: str = ""
    """The time as printed."""


class Grammar(Struct, frozen=True, forbid_unknown_fields=True):
    """One header grammar of `headers.toml`."""

    format: str
    first: str
    pattern: str
    sample: str
    needs: str = ""


class Settings(Struct, frozen=True):
    """The decoded `headers.toml`."""

    prefix: re.Pattern[str]
    rank_prefix: re.Pattern[str]
    grammars: tuple[tuple[Grammar, re.Pattern[str]], ...]
    custom_length: int
    uvicorn: dict[str, str]
    uvicorn_width: int
    access: re.Pattern[str]
    access_client: re.Pattern[str]
    levels: dict[str, str]
    progress: re.Pattern[str]
    traceback_start: str
    traceback_group: str
    """What stands before it where an exception group begins."""
    traceback_starts: tuple[str, str]
    """A traceback's first line, alone and as a group's."""
    traceback_process: re.Pattern[str]
    traceback_chains: frozenset[str]
    dump_start: re.Pattern[str]
    """The first line of a C++ abort: its message follows."""
    dump_crash: re.Pattern[str]
    """The first line of a dump of stacks."""
    dump_frames: re.Pattern[str]
    """Lines that only dumps have."""


@cache
def load_settings() -> Settings:
    """The header grammars that ship with the catalogue."""
    source = resources.files("vllm_logpipe.catalogue") / "headers.toml"
    document = tomli.loads(source.read_text("utf-8"))
    grammars = msgspec.convert(document["header"], tuple[Grammar, ...])
    uvicorn = document["uvicorn"]
    start, group = document["traceback"]["start"], document["traceback"]["group"]
    width = uvicorn["width"]
    return Settings(
        prefix=re.compile(document["prefix"]["pattern"]),
        rank_prefix=re.compile(document["prefix"]["rank"]),
        grammars=tuple((grammar, re.compile(grammar.pattern)) for grammar in grammars),
        custom_length=document["custom_prefix"]["max_length"],
        uvicorn={f"{level}:".ljust(width): level for level in uvicorn["levels"]},
        uvicorn_width=width,
        access=re.compile(uvicorn["access"]),
        access_client=re.compile(uvicorn["client"]),
        levels=document["levels"],
        progress=re.compile(document["progress"]["pattern"]),
        traceback_start=start,
        traceback_group=group,
        traceback_starts=(start, group + start),
        traceback_process=re.compile(document["traceback"]["process"]),
        traceback_chains=frozenset(document["traceback"]["chains"]),
        dump_start=re.compile(document["dump"]["start"]),
        dump_crash=re.compile(document["dump"]["crash"]),
        dump_frames=re.compile(document["dump"]["frames"]),
    )


def tag_pattern() -> re.Pattern[str]:
    """The `[TAG] ` that some print before a message, under a header or without one."""
    return next(
        pattern for grammar, pattern in load_settings().grammars if grammar.format == "tagged"
    )


class HeaderReader:
    """Reads the beginnings of the lines of one stream; learns its VLLM_LOGGING_PREFIX.

    `redact` gives what stands for the text of an attribute, by its name.
    """

    def __init__(self, redact: Callable[[str, str], str] = as_printed) -> None:
        self._redact = redact
        self._settings = load_settings()
        self._vllm = next(p for g, p in self._settings.grammars if g.format == "v1")
        self._first = next(g.first for g, _ in self._settings.grammars if g.format == "v1")
        self._others = [(g, p) for g, p in self._settings.grammars if g.format != "v1"]
        self._heads: dict[tuple[str | None, ...], Head] = {}
        self._lanes: dict[str, Lane] = {}
        self.known: dict[str, Head] = {}
        """Heads by header less its time: a caller in a hurry looks here first."""
        self.known_uvicorn: dict[str, Head] = {}
        """Heads of uvicorn's lines by header."""
        self._processes: dict[tuple[str, str | None, str | None], Process] = {}
        self._custom: str | None = None

    def read(self, line: str) -> Beginning:
        """How a line without ANSI codes begins."""
        process, start = self._peel(line, 0)
        prefix = line[:start]
        rest = line[start : start + 1]
        if rest and rest in self._first:
            if found := self._vllm.match(line, start):
                if self._custom is None:
                    self._custom = ""
                return self._begin(found, prefix, process)
            level = self._settings.uvicorn.get(line[start : start + self._settings.uvicorn_width])
            if level is not None:
                return self._uvicorn(line, level, prefix, process)
        for grammar, pattern in self._others:
            if grammar.first and rest not in grammar.first:
                continue
            if grammar.needs and grammar.needs not in line:
                continue
            if found := pattern.match(line, start):
                return self._foreign(found, grammar.format, prefix, process)
        if self._custom != "" and (beginning := self._after_custom_prefix(line)):
            return beginning
        return Beginning(None, process, prefix, start)

    def _peel(self, line: str, start: int) -> tuple[Process | None, int]:
        """Process prefixes off the front: the innermost names the process."""
        process: Process | None = None
        limit = start + _MAX_PREFIXES
        while start < limit and line.startswith("(", start):
            found = self._settings.prefix.match(line, start)
            if found is None:
                break
            process = self._process(found.group("name"), found.group("pid"), found.group("rank"))
            start = found.end()
        if line.startswith("[rank", start) and (
            found := self._settings.rank_prefix.match(line, start)
        ):
            start = found.end()
            process = self._ranked(process, found["rank"])
        return process, start

    def _ranked(self, process: Process | None, rank: str) -> Process:
        """A process with the rank that torch prints."""
        if process is None:
            return self._process("", None, rank)
        name = member("vllm.rank.global")
        if name in process.members:
            return process
        return Process(
            process.name, process.pid, process.kind, f"{process.members}{name}{int(rank)}"
        )

    def _process(self, name: str, pid: str | None, rank: str | None) -> Process:
        key = (name, pid, rank)
        process = self._processes.get(key)
        if process is None:
            if len(self._processes) >= _MAX_CACHED:
                self._processes.clear()
            process = self._processes[key] = describe_process(name, pid, rank, self._redact)
        return process

    def _after_custom_prefix(self, line: str) -> Beginning | None:
        """A header behind a constant text: VLLM_LOGGING_PREFIX, before or after the process.

        The first header of a stream decides: with a text before it, that text is the prefix; the
        first header without one ends the search for good.
        """
        limit = self._settings.custom_length
        if self._custom:
            at = line.find(self._custom, 0, limit * 4)
            if at < 0:
                return None
            process, start = self._peel(line, at + len(self._custom))
            if at:
                before, end = self._peel(line, 0)
                if end != at:
                    return None
                process = process or before
            found = self._vllm.match(line, start)
            return self._begin(found, line[:start], process, self._custom) if found else None
        found = self._vllm.search(line, 0, limit * 5)
        if found is None:
            return None
        process, start = self._peel(line, 0)
        custom = line[start : found.start()]
        if "(" in custom and (inner := self._settings.prefix.search(custom)):
            process, _ = self._peel(custom, inner.start())
            custom = custom[: inner.start()]
        if not 0 < len(custom) <= limit or custom.isspace() or not custom.isprintable():
            return None
        if self._settings.progress.match(custom) or _CLOCK.search(custom):
            return None
        self._custom = custom
        return self._begin(found, line[: found.start()], process, custom)

    def _begin(
        self, found: re.Match[str], prefix: str, process: Process | None, custom: str = ""
    ) -> Beginning:
        level, stamp, bracket, file, number = found.group(
            "level", "stamp", "bracket", "file", "line"
        )
        key = (prefix, level, bracket, file, number)
        head = self._heads.get(key)
        if head is None:
            log_format = "v0" if not bracket else "v1_prefixed" if process else "v1"
            members = (
                f'"vllm.log.format":{quote(log_format)}'
                f"{'' if process is None else process.members}"
                f"{member('code.file.path')}{quote(self._redact('code.file.path', file))}"
                f"{member('code.line.number')}{int(number)}"
            )
            if custom.strip():
                shown = self._redact("vllm.log.prefix", custom.strip())
                members += f"{member('vllm.log.prefix')}{quote(shown)}"
            lane = self.lane(prefix if process is not None else f"{prefix}{file}:{number}")
            head = self._keep(
                key,
                make_head(log_format, level, process, lane, "month_day", members),
            )
        text = found.string[: found.end("line") + 1]
        return Beginning(head, process, prefix, found.end(), text, stamp)

    def _uvicorn(self, line: str, level: str, prefix: str, process: Process | None) -> Beginning:
        end = len(prefix) + self._settings.uvicorn_width
        key = (prefix, level)
        head = self._heads.get(key)
        if head is None:
            members = '"vllm.log.format":"uvicorn"'
            if process is None:
                members += f'{member("vllm.process.kind")}"api_server"'
            else:
                members += process.members
            lane = self.lane(prefix)
            head = self._keep(key, make_head("uvicorn", level, process, lane, "", members))
        return Beginning(head, process, prefix, end, line[:end])

    def _foreign(
        self, found: re.Match[str], log_format: str, prefix: str, process: Process | None
    ) -> Beginning:
        groups = found.groupdict()
        day, clock, date, asctime = (
            groups.pop(name, None) for name in ("day", "clock", "date", "asctime")
        )
        stamp, kind = "", ""
        if clock is not None and day is not None:
            stamp = f"{day.zfill(4)} {clock}"
            kind = "klog" if log_format == "torch" else "glog"
        elif date is not None:
            stamp = date
            kind = date_kind(stamp)
        elif asctime is not None:
            stamp, kind = _from_asctime(asctime), "date"
        key = (log_format, kind, prefix, *groups.values())
        head = self._heads.get(key)
        if head is None:
            head = self._keep(key, self._foreign_head(groups, log_format, kind, prefix, process))
        text = found.string[: found.end()]
        return Beginning(head, process or head.process, prefix, found.end(), text, stamp)

    def _foreign_head(
        self,
        groups: dict[str, str | None],
        log_format: str,
        kind: str,
        prefix: str,
        process: Process | None,
    ) -> Head:
        word = groups.get("level") or groups.get("tag") or ""
        level = self._settings.levels.get(word, word)
        number = SEVERITY_NUMBERS.get(level)
        if process is None and (pid := groups.get("pid")) is not None:
            process = self._process("", pid, None)
        members = f'"vllm.log.format":{quote(log_format)}'
        if process is not None:
            members += process.members
        if (rank := groups.get("rank")) is not None:
            name = "nccl.rank" if log_format == "c10d" else "vllm.rank.global"
            members += f"{member(name)}{int(rank)}"
        if (host := groups.get("host")) is not None:
            members += f"{member('nccl.host')}{quote(self._redact('nccl.host', host))}"
        if (logger := groups.get("logger")) is not None:
            name = "vllm.log.logger.name"
            members += f"{member(name)}{quote(self._redact(name, logger))}"
        if (file := groups.get("file")) is not None:
            file = self._redact("code.file.path", file)
            members += f"{member('code.file.path')}{quote(file)}"
            members += f"{member('code.line.number')}{int(groups['line'] or 0)}"
        printed = None if number is None else (word if log_format == "tagged" else level)
        lane = self.lane(f"{prefix}{log_format}")
        return make_head(log_format, printed, process, lane, kind, members)

    def lane(self, key: str) -> Lane:
        """The lane of a key, made when first asked for."""
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= _MAX_CACHED:
                # A head that stayed would keep an open record in a lane that nobody finds.
                for cache in (self._lanes, self._heads, self.known, self.known_uvicorn):
                    cache.clear()
            lane = self._lanes[key] = Lane()
        return lane

    def remember(self, heads: dict[str, Head], key: str, head: Head) -> None:
        """Take a head up into `known` or `known_uvicorn`."""
        if len(heads) >= _MAX_CACHED:
            heads.clear()
        heads[key] = head

    def _keep(self, key: tuple[str | None, ...], head: Head) -> Head:
        if len(self._heads) >= _MAX_CACHED:
            self._heads.clear()
        self._heads[key] = head
        return head
