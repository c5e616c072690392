"""From files through the normaliser to an output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO

from tqdm import tqdm

from vllm_logpipe.catalogue import Catalogue
from vllm_logpipe.model import LogRecord
from vllm_logpipe.normalizer import Normalizer
from vllm_logpipe.report.text import encode_text
from vllm_logpipe.sinks.ndjson import encode_ndjson
from vllm_logpipe.sinks.otlp_json import encode_otlp_json
from vllm_logpipe.sources.file import FileSource, SourceError

ENCODINGS: dict[str, Callable[[Iterable[LogRecord]], bytes]] = {
    "ndjson": encode_ndjson,
    "otlp-json": encode_otlp_json,
    "text": encode_text,
}
"""The forms of output by name."""

_PROGRESS_SIZE = 16 * 1024 * 1024
_POLL_S = 0.25
_IDLE_S = 1.0


class FollowError(Exception):
    """A file that cannot be followed; the text is one line."""


class Replay:
    """Normalises files, each a stream of its own, with one set of options.

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
    ) -> None:
        self.warnings: list[str] = []
        self._catalogue = catalogue
        self._encode = ENCODINGS[encoding]
        self._year = year
        self._timezone = timezone
        self._keep = keep
        self._redact = redact
        self._original = original
        self._normalizer("")

    def run(
        self, names: Iterable[str], output: BinaryIO, *, show_progress: bool = False
    ) -> list[str]:
        """Normalise the files one after the other; gives what failed, one line a file.

        What could be read of a file is put out, whatever becomes of the rest.
        """
        failures: list[str] = []
        for name in names:
            try:
                source = FileSource(name)
            except SourceError as error:
                failures.append(str(error))
                continue
            try:
                self._run_one(source, output, show_progress=show_progress)
            except SourceError as error:
                failures.append(str(error))
            finally:
                source.close()
        output.flush()
        return failures

    def follow(self, names: Iterable[str], output: BinaryIO) -> list[str]:
        """Normalise the files and go on as they grow, until interrupted.

        A file that another takes the place of, or that is cut short, begins a new stream.
        Raises FollowError for a file that cannot be followed.
        """
        tails: list[_Tail] = []
        for name in names:
            try:
                source = FileSource(name)
            except SourceError as error:
                raise FollowError(str(error)) from error
            if name != "-" and source.is_packed():
                raise FollowError(f"{name}: a packed file cannot be followed")
            tails.append(_Tail(source, self._normalizer(source.identity, live=True)))
        try:
            self._follow(tails, output)
        except KeyboardInterrupt:
            output.writelines(self._encode(tail.normalizer.flush()) for tail in tails)
            output.flush()
            raise
        return []

    def _follow(self, tails: list[_Tail], output: BinaryIO) -> None:
        while tails:
            idle = True
            for tail in list(tails):
                if data := tail.source.more():
                    idle = False
                    tail.read_at = time.monotonic()
                    tail.expired = False
                    output.write(self._encode(tail.normalizer.feed(data)))
                elif tail.source.name == "-":
                    output.write(self._encode(tail.normalizer.flush()))
                    tails.remove(tail)
                elif tail.source.replaced():
                    idle = False
                    output.write(self._encode(tail.normalizer.flush()))
                    self._reopen(tail)
                elif not tail.expired and time.monotonic() - tail.read_at >= _IDLE_S:
                    tail.expired = True
                    output.write(self._encode(tail.normalizer.expire()))
            output.flush()
            if idle and tails:
                time.sleep(_POLL_S)

    def _reopen(self, tail: _Tail) -> None:
        name = tail.source.name
        tail.source.close()
        tail.source = FileSource(name)
        tail.normalizer = self._normalizer(f"{tail.source.identity}\0{time.time_ns()}", live=True)

    def _run_one(self, source: FileSource, output: BinaryIO, *, show_progress: bool) -> None:
        normalizer = self._normalizer(source.identity, reference=source.modified)
        large = source.size is not None and source.size >= _PROGRESS_SIZE
        with tqdm(
            total=source.size,
            unit="B",
            unit_scale=True,
            desc=source.name,
            disable=not (show_progress and large),
            leave=False,
        ) as bar:
            try:
                for block in source.blocks():
                    output.write(self._encode(normalizer.feed(block)))
                    bar.update(source.position - bar.n)
            finally:
                output.write(self._encode(normalizer.flush()))
        self.warnings += [f"{source.name}: {text}" for text in normalizer.warnings]

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
        )


class _Tail:
    """A followed file with the state of its stream."""

    def __init__(self, source: FileSource, normalizer: Normalizer) -> None:
        self.source = source
        self.normalizer = normalizer
        self.read_at = time.monotonic()
        self.expired = False
