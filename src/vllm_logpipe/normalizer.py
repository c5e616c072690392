"""The normaliser: bytes of one stream in, log records out. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgspec

from vllm_logpipe.catalogue import Catalogue, load_catalogue
from vllm_logpipe.catalogue.values import member, quote
from vllm_logpipe.enveloped import EnvelopedStream
from vllm_logpipe.instance import Instance, Instances, identity
from vllm_logpipe.model import SEVERITY_NUMBERS, LogRecord
from vllm_logpipe.read.access import AccessReader
from vllm_logpipe.read.clock import NS, Clock, find_zone
from vllm_logpipe.read.draft import Draft, TimeSource
from vllm_logpipe.read.header import Head
from vllm_logpipe.read.inner import InnerJoiner
from vllm_logpipe.read.join import Joiner, WholeLine
from vllm_logpipe.read.lines import Block, LineSplitter
from vllm_logpipe.read.ray import REPEAT_ENDINGS, cut_repeat
from vllm_logpipe.recognize import Recognition, Recognizer, deduplicate
from vllm_logpipe.redact import PLACEHOLDER, Redactor

_SOURCES = {
    TimeSource.PRINTED: "printed",
    TimeSource.PREVIOUS: "previous_record",
    TimeSource.NEXT: "next_record",
    TimeSource.OBSERVED: "observed",
    TimeSource.ENVELOPE: "envelope",
}
_RESOLUTIONS = {
    "month_day": "1.0",
    "date": "1.0",
    "date_fraction": "0.001",
    "glog": "1e-9",
    "klog": "1e-6",
    "": "1.0",
}
_OBSERVED_RESOLUTION = "1e-9"
_NO_NAMES: frozenset[str] = frozenset()
_ACCESS = "vllm.http.access"
_ACCESS_FORMATS = frozenset({"uvicorn", "json"})
_REPEATS = member("vllm.log.repeat.count")
_STACKTRACE = member("exception.stacktrace")


class Normalizer:
    """Normalises one stream of bytes.

    source: what identifies the stream (a path with device and inode, a container id with restart
        and stream): uids and instance ids are derived from it, so a replay gives the same ones.
    catalogue: the built-in one where none is given.
    year: of the first dated line; else the nearest year to `reference`.
    timezone: IANA name of the zone the servers print; UTC where none is given.
    reference: s since 1970 UTC, shortly after the last line (a file's mtime); now, if None.
    keep, redact: redaction fields to leave in, optional fields to take out.
    original: whether records carry `log.record.original`.
    live: whether lines come as they are printed, so that an undated one happened just now.
    resource: further resource attributes, such as those of the source.
    envelope: what a container runtime, journald or syslog puts around each line, one of
        `read.envelope.ENVELOPES`; `auto` finds it in the first lines.

    Raises ValueError for an unknown zone, redaction field or envelope.
    """

    def __init__(
        self,
        source: str = "",
        *,
        catalogue: Catalogue | None = None,
        year: int | None = None,
        timezone: str | None = None,
        reference: float | None = None,
        keep: Iterable[str] = (),
        redact: Iterable[str] = (),
        original: bool = False,
        live: bool = False,
        resource: Mapping[str, str] | None = None,
        envelope: str = "auto",
    ) -> None:
        redactor = Redactor(keep, redact)
        self.warnings: list[str] = []
        """What the caller should know and no record says, one sentence each."""
        self._recognizer = Recognizer(catalogue or load_catalogue(), redactor)
        self._scrub = redactor.scrub
        self._access = AccessReader(
            redactor.scrub,
            redactor.scrub if "query" in redactor.keep else _hidden,
            _hidden if "client_address" in redactor.also else str,
        )
        self._replayed_ns = None if reference is None else round(reference * NS)
        self._clock = Clock(
            time.time() if reference is None else reference,
            year,
            find_zone(timezone),
            self._warn,
        )
        self._splitter = LineSplitter()
        self._joiner = Joiner(
            self._clock,
            self._recognizer.knows,
            self._recognizer.declares,
            redactor.attribute,
            live=live,
        )
        if self._replayed_ns is not None:
            self._joiner.observed_ns = self._replayed_ns
        self._instances = Instances(source, dict(resource or {}))
        self._observed = 0
        self._tails = _tails(identity(source))
        self._original = original
        self._envelopes = (
            None
            if envelope == "none"
            else EnvelopedStream(
                envelope,
                source,
                resource or {},
                lambda: Clock(self._clock.reference, year, find_zone(timezone), self._warn),
                lambda clock, dated: InnerJoiner(
                    clock,
                    self._recognizer.knows,
                    self._recognizer.declares,
                    redactor.attribute,
                    live=live,
                    dated=dated,
                ),
                self._record_of,
                _tails,
                redactor.attribute,
            )
        )

    def feed(self, data: bytes) -> list[LogRecord]:
        """Take the next bytes, cut anywhere; gives the records that are complete by now."""
        if self._envelopes is not None:
            self._observe()
            bare, records = self._envelopes.feed(data, self._joiner.observed_ns)
            if bare is None:
                return records
            self._envelopes, data = None, bare
        return self._normalise(self._splitter.feed(data))

    def flush(self) -> list[LogRecord]:
        """The end of the stream: gives the records that were still open."""
        records: list[LogRecord] = []
        if self._envelopes is not None:
            self._observe()
            bare, records = self._envelopes.flush(self._joiner.observed_ns)
            if bare is None:
                return records
            self._envelopes = None
            records = self._normalise(self._splitter.feed(bare))
        records += self._normalise(self._splitter.flush())
        return records + self._records(self._joiner.flush())

    def expire(self) -> list[LogRecord]:
        """A pause in a live stream: gives the records whose lines have all been seen for sure.

        A caller that follows a file calls it after a second without new bytes.
        """
        records: list[LogRecord] = []
        if self._envelopes is not None:
            self._observe()
            bare, records = self._envelopes.expire(self._joiner.observed_ns)
            if bare is None:
                return records
            self._envelopes = None
            records = self._normalise(self._splitter.feed(bare))
        self._observed = time.time_ns()
        return records + self._records(self._joiner.expire())

    def _observe(self) -> None:
        self._observed = time.time_ns()
        if self._replayed_ns is None:
            self._joiner.observed_ns = self._observed
            self._clock.reference = self._observed / NS

    def _record_of(
        self, instances: Instances, tails: list[dict[str, str]], item: Draft | WholeLine
    ) -> LogRecord:
        """The record of an inner stream: what is said of streams is that one's."""
        self._instances, self._tails = instances, tails
        return self._records([item])[0]

    def _normalise(self, blocks: Iterable[Block]) -> list[LogRecord]:
        self._observe()
        records: list[LogRecord] = []
        for block in blocks:
            records += self._records(self._joiner.feed(block))
        return records

    def _records(self, items: list[Draft | WholeLine]) -> list[LogRecord]:
        record, complete = self._record, self._complete
        return [complete(*item) if isinstance(item, tuple) else record(item) for item in items]

    def _complete(
        self, head: Head, header: str, text: str, offset: int, when: int, source: TimeSource
    ) -> LogRecord:
        """The record of a line that is one by itself: two fifths of a busy log are access lines."""
        if self._original or (access := self._access.read(text)) is None:
            draft = Draft(head, header, text, offset, 0, 0, when, time_source=source)
            return self._record(draft)
        pid = head.pid
        instance = self._instances.current if pid is None else self._instances.of(pid)
        return LogRecord(
            when,
            self._observed,
            head.level,
            head.number,
            _ACCESS,
            access[1],
            f'{{{head.members}{access[0]}{self._tails[source][""]}{offset:x}"}}',
            instance.resource_json,
        )

    def _record(self, draft: Draft) -> LogRecord:
        head = draft.head
        if head is None:
            return self._headless_record(draft)
        text = draft.text if draft.more is None else draft.body()
        ending, repeats = "", 0
        if text.endswith(REPEAT_ENDINGS):
            text, ending, repeats = cut_repeat(draft.header, text)
        pid = head.pid
        event: str | None = None
        instance: Instance | None = None
        clashes: frozenset[str] | None = None
        if head.format in _ACCESS_FORMATS and (access := self._access.read(text)):
            event, clashes = _ACCESS, _NO_NAMES
            members, body = access
        else:
            found = self._recognizer.recognize(text, head.format, head.level, draft.trace_at)
            members, body, clashes = found.members, found.body, found.clashes
            if found.entry is not None:
                event = found.entry.name
                if found.announces:
                    instance = self._announce(found, pid, draft.offset)
        if instance is None:
            instance = self._instances.current if pid is None else self._instances.of(pid)
        if repeats:
            members += f"{_REPEATS}{repeats}"
        tail = self._tails[draft.time_source][head.stamp_kind]
        attributes = f'{{{head.members}{members}{tail}{draft.offset:x}"}}'
        if clashes is None or (clashes and not clashes.isdisjoint(head.names)):
            attributes = deduplicate(attributes)
        trace_id = span_id = None
        if draft.ids is not None or draft.truncated or self._original:
            attributes = f"{attributes[:-1]}{self._rare_members(draft, body + ending)}}}"
            if draft.ids is not None:
                trace_id, span_id = draft.ids.get("trace_id"), draft.ids.get("span_id")
        return LogRecord(
            draft.time,
            self._observed,
            head.level,
            head.number,
            event,
            body,
            attributes,
            instance.resource_json,
            trace_id,
            span_id,
        )

    def _announce(self, found: Recognition, pid: int | None, offset: int) -> Instance:
        """A message that begins a server start, or tells the version."""
        if found.entry is not None and found.entry.starts_instance:
            instance = self._instances.start(pid, offset)
        else:
            instance = self._instances.of(pid)
        values: dict[str, object] = msgspec.json.decode(f"{{{found.members[1:]}}}")
        version = values.get("vllm.version")
        if isinstance(version, str):
            instance.set_version(version)
        return instance

    def _headless_record(self, draft: Draft) -> LogRecord:
        """A record without header: a traceback, a bar, or a line that somebody printed."""
        text, ending, repeats = cut_repeat(draft.header, draft.body())
        process = draft.process
        instance = self._instances.of(process.pid if process is not None else None)
        number: int | None = None
        if draft.bar is not None:
            found = self._recognizer.recognize(text, "progress", None)
            event: str | None = "vllm.progress" if found.entry is None else found.entry.name
            bar = draft.bar
            members = f'"vllm.log.format":"progress"{bar.members}{bar.attributes(self._scrub)}'
        else:
            found = self._recognizer.recognize(text, "raw", None)
            event = None if found.entry is None else found.entry.name
            members = '"vllm.log.format":"raw"'
            if _STACKTRACE in found.members:
                number = SEVERITY_NUMBERS["ERROR"]
                event = event or "vllm.exception"
                if process is None:
                    members += f'{member("vllm.process.kind")}"main"'
            if process is not None:
                members += process.members
        if repeats:
            members += f"{_REPEATS}{repeats}"
        tail = self._tails[draft.time_source][""]
        attributes = deduplicate(f'{{{members}{found.members}{tail}{draft.offset:x}"}}')
        if draft.truncated or self._original:
            attributes = f"{attributes[:-1]}{self._rare_members(draft, found.body + ending)}}}"
        return LogRecord(
            draft.time,
            self._observed,
            None,
            number,
            event,
            found.body,
            attributes,
            instance.resource_json,
        )

    def _rare_members(self, draft: Draft, body: str) -> str:
        members = ""
        ids = draft.ids or {}
        if "extra" in ids:
            members += f"{member('vllm.log.extra')}{quote(self._scrub(ids['extra']))}"
        if draft.truncated:
            members += f"{member('vllm.log.truncated')}true"
        if self._original:
            printed = self._scrub(draft.header)
            gap = " " if printed and not printed.endswith(" ") else ""
            head = draft.head
            repeated = head is None or head.stamp_kind == "month_day"
            separator = f"\n{printed}{gap}" if repeated else "\n"
            text = f"{printed}{gap}{body.replace(chr(10), separator)}"
            members += f"{member('log.record.original')}{quote(text)}"
        return members

    def _warn(self, text: str) -> None:
        if text not in self.warnings and len(self.warnings) < 100:
            self.warnings.append(text)


def _hidden(_text: str) -> str:
    return PLACEHOLDER


def _tails(stream: str) -> list[dict[str, str]]:
    """The members that end a record's attributes, up to the offset.

    By how the time was found (`TimeSource`), and by the notation it was printed in.
    """
    return [
        {
            kind: (
                f"{member('vllm.log.attribution')}"
                f"{quote('printed' if source is TimeSource.PRINTED else 'inferred')}"
                f"{member('vllm.log.time.source')}{quote(_SOURCES[source])}"
                f"{member('vllm.log.time.resolution')}"
                f"{_OBSERVED_RESOLUTION if source is TimeSource.OBSERVED else resolution}"
                f'{member("log.record.uid")}"{stream}-'
            )
            for kind, resolution in _RESOLUTIONS.items()
        }
        for source in TimeSource
    ]
