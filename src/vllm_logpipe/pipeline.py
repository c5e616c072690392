"""From files through the normaliser to an output."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Protocol

from msgspec.structs import replace

from vllm_logpipe.catalogue import Catalogue
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.derive.incidents import Incidents
from vllm_logpipe.fold import Folder
from vllm_logpipe.model import LogRecord, Signal
from vllm_logpipe.normalizer import Normalizer
from vllm_logpipe.read.clock import NS
from vllm_logpipe.semconv import FOLDS, SIGNAL_EVENTS
from vllm_logpipe.sinks.ndjson import encode_ndjson
from vllm_logpipe.sinks.otlp_json import encode_otlp_json
from vllm_logpipe.sinks.signals import encode_signals
from vllm_logpipe.sinks.text import encode_text
from vllm_logpipe.sources.file import FileSource, SourceError

if TYPE_CHECKING:
    from tqdm import tqdm

ENCODINGS: dict[str, Callable[[Iterable[LogRecord]], bytes]] = {
    "ndjson": encode_ndjson,
    "otlp-json": encode_otlp_json,
    "text": encode_text,
}
"""The forms of output by name."""

_INCIDENTS = frozenset(event.name for event in SIGNAL_EVENTS)

_PROGRESS_SIZE = 16 * 1024 * 1024
_POLL_S = 0.25
_IDLE_S = 1.0


class Replay:
    """Normalises files, each a stream of its own, with one set of options.

    signals: whether spans, incidents and metrics are derived and put out beside the logs.
    request_spans: whether requests become spans; None leaves it to what vLLM's arguments say.
    server_group: names the one server that all files are nodes of: its incidents span them.
    export: takes the signals instead of the output; implies `signals`.
    rebase: whether all times are shifted so that the last record of all files is now.
    folds: what is folded into fewer records, of `semconv.FOLDS`.

    Raises ValueError for an option that the normaliser refuses.
    """

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        encoding: str = "ndjson",
        year: int | None = None,
        timezone: str | None = None,
        keep: Sequence[str] = (),
        redact: Sequence[str] = (),
        original: bool = False,
        stdin: str = "stdin",
        envelope: str = "auto",
        signals: bool = False,
        request_spans: bool | None = None,
        server_group: str | None = None,
        export: Callable[[Iterable[Signal]], None] | None = None,
        rebase: bool = False,
        folds: Sequence[str] = FOLDS,
    ) -> None:
        self.warnings: list[str] = []
        self._folds = folds
        Folder(folds)
        self._signals = signals or export is not None
        self._export = export
        self._rebase = rebase
        self._shift = 0
        self._request_spans = request_spans
        self._group = None if server_group is None else Incidents(server_group, grouped=True)
        self._catalogue = catalogue
        self._encode = ENCODINGS[encoding]
        self._year = year
        self._timezone = timezone
        self._keep = keep
        self._redact = redact
        self._original = original
        self._stdin = stdin
        self._envelope = envelope
        self._normalizer("")

    def run(
        self, names: Iterable[str], output: BinaryIO, *, show_progress: bool = False
    ) -> list[str]:
        """Normalise the files one after the other; gives what failed, one line a file.

        What could be read of a file is put out, whatever becomes of the rest.
        """
        failures: list[str] = []
        names = [*names]
        if self._rebase:
            self._shift = time.time_ns() - self._last_time(names)
        for name in names:
            try:
                source = FileSource(name, stdin=self._stdin)
            except SourceError as error:
                failures.append(str(error))
                continue
            try:
                self._run_one(source, output, show_progress=show_progress)
            except SourceError as error:
                failures.append(str(error))
            finally:
                source.close()
        self._end_group(output)
        output.flush()
        return failures

    def follow(self, names: Iterable[str], output: BinaryIO) -> None:
        """Normalise the files and go on as they grow, until interrupted; a pipe to its end.

        A file that another takes the place of, or that is cut short, begins a new stream.
        Raises SourceError for a file that cannot be followed (on).
        """
        tails: list[_Tail] = []
        try:
            for name in names:
                source = FileSource(name, waits=False, stdin=self._stdin)
                normalizer = self._normalizer(source.identity, live=True)
                tails.append(_Tail(source, self._stream(normalizer, output)))
                if source.is_packed():
                    raise SourceError(f"{name}: a packed file cannot be followed")
            while tails:
                advanced = [self._advance(tail, output) for tail in tails]
                output.flush()
                if not any(advanced):
                    _wait(tails)
                ended = [tail for tail in tails if tail.source.ended]
                tails = [tail for tail in tails if not tail.source.ended]
                for tail in ended:
                    self._end(tail)
            self._end_group(output)
            output.flush()
        except (KeyboardInterrupt, SourceError):
            for tail in tails:
                tail.stream.flush()
            self._end_group(output)
            output.flush()
            raise
        finally:
            for tail in tails:
                tail.source.close()

    def _advance(self, tail: _Tail, output: BinaryIO) -> bool:
        """Take what has come since; gives whether there may be more at once."""
        if data := tail.source.more():
            tail.read_at = tail.advanced_at = time.monotonic()
            tail.expired = False
            tail.stream.feed(data)
            return True
        if not tail.source.replaced():
            tail.expire()
            return False
        tail.stream.flush()
        try:
            source = FileSource(tail.source.name, waits=False)
        except SourceError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                # Gone again already: the next one of the name is waited for.
                return False
            raise
        self._end(tail)
        tail.source = source
        normalizer = self._normalizer(f"{source.identity}\0{time.time_ns()}", live=True)
        tail.stream = self._stream(normalizer, output)
        return True

    def _end(self, tail: _Tail) -> None:
        tail.stream.flush()
        self._take_warnings(tail.source, tail.stream)
        tail.source.close()

    def _run_one(self, source: FileSource, output: BinaryIO, *, show_progress: bool) -> None:
        normalizer = self._normalizer(source.identity, reference=source.modified)
        stream = self._stream(normalizer, output)
        large = source.size is not None and source.size >= _PROGRESS_SIZE
        bar = _progress_bar(source) if show_progress and large else None
        try:
            for block in source.blocks():
                stream.feed(block)
                if bar is not None:
                    bar.update(source.position - bar.n)
        finally:
            stream.flush()
            if bar is not None:
                bar.close()
        self._take_warnings(source, stream)

    def _take_warnings(self, source: FileSource, stream: _Stream) -> None:
        self.warnings += [f"{source.name}: {text}" for text in stream.normalizer.warnings]

    def _stream(self, normalizer: Normalizer, output: BinaryIO) -> _Stream:
        folder = Folder(self._folds)
        form: _Form = _Plain(folder, self._encode)
        if self._signals:
            deriver = Deriver(request_spans=self._request_spans, group=self._group)
            form = _Derived(deriver, folder, self._leave)
        if self._shift:
            form = _Shifted(form, self._shift)
        return _Stream(normalizer, form, output)

    def _leave(self, signals: list[Signal]) -> bytes:
        """The signals in the form of the output, unless they go elsewhere."""
        if self._export is None:
            return encode_signals(_complete(signals))
        self._export(signals)
        return b""

    def _last_time(self, names: Iterable[str]) -> int:
        """The time of the last record of all files, ns since 1970 UTC; now, without any."""
        last = 0
        for name in names:
            try:
                source = FileSource(name, stdin=self._stdin)
            except SourceError:
                continue
            normalizer = self._normalizer(source.identity, reference=source.modified)
            try:
                for block in source.blocks():
                    last = max([last, *(r.time_unix_nano for r in normalizer.feed(block))])
            except SourceError:
                # What can be read of it is put out; the second reading tells what fails.
                pass
            finally:
                source.close()
            last = max([last, *(r.time_unix_nano for r in normalizer.flush())])
        return last or time.time_ns()

    def _end_group(self, output: BinaryIO) -> None:
        if self._group is not None:
            signals: list[Signal] = []
            self._group.finish(0, signals.append)
            output.write(self._leave(signals))

    def _normalizer(
        self, identity: str, *, reference: float | None = None, live: bool = False
    ) -> Normalizer:
        return Normalizer(
            identity,
            catalogue=self._catalogue,
            year=self._year,
            timezone=self._timezone,
            reference=reference,
            keep=self._keep,
            redact=self._redact,
            original=self._original,
            live=live,
            envelope=self._envelope,
        )


class _Form(Protocol):
    """What becomes of the records of one stream."""

    def take(self, records: list[LogRecord]) -> bytes:
        """The records in the form of the output."""
        ...

    def advance(self, elapsed: int) -> bytes:
        """What is due after so many ns in which no record came."""
        ...

    def finish(self) -> Iterator[bytes]:
        """What is still open at the end of the stream, in parts."""
        ...


class _Plain:
    """Records alone."""

    def __init__(self, folder: Folder, encode: Callable[[Iterable[LogRecord]], bytes]) -> None:
        self._folder = folder
        self._encode = encode

    def take(self, records: list[LogRecord]) -> bytes:
        return self._encoded(self._folder.take(records))

    def advance(self, elapsed: int) -> bytes:
        return self._encoded(self._folder.advance(elapsed))

    def finish(self) -> Iterator[bytes]:
        yield self._encoded(self._folder.flush())

    def _encoded(self, signals: list[Signal]) -> bytes:
        return self._encode(signal for signal in signals if isinstance(signal, LogRecord))


class _Derived:
    """Records with what is derived of them: of all, before any are folded."""

    def __init__(
        self, deriver: Deriver, folder: Folder, leave: Callable[[list[Signal]], bytes]
    ) -> None:
        self._deriver = deriver
        self._folder = folder
        self._leave = leave

    def take(self, records: list[LogRecord]) -> bytes:
        return self._leave(self._folder.take(self._deriver.take(records)))

    def advance(self, elapsed: int) -> bytes:
        signals = self._folder.take(self._deriver.advance(elapsed))
        return self._leave(signals + self._folder.advance(elapsed))

    def finish(self) -> Iterator[bytes]:
        yield self._leave(self._folder.flush())
        yield from map(self._leave, self._deriver.drain())


class _Shifted:
    """Records at other times: all that is derived of them moves along."""

    def __init__(self, form: _Form, shift: int) -> None:
        self._form = form
        self._shift = shift
        self.advance = form.advance
        self.finish = form.finish

    def take(self, records: list[LogRecord]) -> bytes:
        shift = self._shift
        return self._form.take(
            [replace(record, time_unix_nano=record.time_unix_nano + shift) for record in records]
        )


def _complete(signals: Iterable[Signal]) -> Iterable[Signal]:
    """Without the states of incidents that go on: as lines of a file only the last one counts."""
    for signal in signals:
        if isinstance(signal, LogRecord) and signal.event_name in _INCIDENTS:
            if signal.attributes.get("vllm.incident.state") == "closed":
                yield signal
        else:
            yield signal


class _Stream:
    """A normaliser whose records go to an output in some form."""

    def __init__(self, normalizer: Normalizer, form: _Form, output: BinaryIO) -> None:
        self.normalizer = normalizer
        self._form = form
        self._output = output
        self._broken = False

    def feed(self, data: bytes) -> None:
        # An interrupt in here leaves the normaliser between two states.
        self._broken = True
        text = self._form.take(self.normalizer.feed(data))
        self._broken = False
        self._output.write(text)

    def expire(self) -> None:
        self._broken = True
        text = self._form.take(self.normalizer.expire())
        self._broken = False
        self._output.write(text)

    def advance(self, elapsed: int) -> None:
        """Put out what is due after so many ns in which nothing came."""
        self._broken = True
        text = self._form.advance(elapsed)
        self._broken = False
        self._output.write(text)

    def flush(self) -> None:
        """Put out what is still open, unless the stream broke off within a block."""
        if not self._broken:
            self._output.write(self._form.take(self.normalizer.flush()))
            for text in self._form.finish():
                self._output.write(text)


class _Tail:
    """A followed file with the state of its stream."""

    def __init__(self, source: FileSource, stream: _Stream) -> None:
        self.source = source
        self.stream = stream
        self.read_at = self.advanced_at = time.monotonic()
        self.expired = False

    def expire(self) -> None:
        """After a pause put out what is complete, and while it lasts what becomes due."""
        now = time.monotonic()
        if not self.expired and now - self.read_at >= _IDLE_S:
            self.expired = True
            self.stream.expire()
        if now - self.advanced_at >= _IDLE_S:
            self.stream.advance(round((now - self.advanced_at) * NS))
            self.advanced_at = now


def _wait(tails: Iterable[_Tail]) -> None:
    """Until a pipe has more, or it is time to look at the files again."""
    waiting = select.poll()
    for tail in tails:
        if (pipe := tail.source.pipe()) is not None:
            waiting.register(pipe, select.POLLIN)
    waiting.poll(_POLL_S * 1000)


def _progress_bar(source: FileSource) -> tqdm[NoReturn]:
    # Few runs show a bar, and the import takes its time.
    from tqdm import tqdm

    return tqdm(total=source.size, unit="B", unit_scale=True, desc=source.name, leave=False)
