"""Reads catalogue files into a catalogue, and refuses what must not be in one."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from importlib import resources
from pathlib import Path

import msgspec
import tomli
from msgspec import Struct

from vllm_logpipe import semconv
from vllm_logpipe.catalogue.compiled import (
    Variant,
    error_variants,
    event_variants,
    line_variants,
)
from vllm_logpipe.catalogue.dispatch import Dispatcher
from vllm_logpipe.catalogue.entry import AttributeEntry, CatalogueFile, ErrorEntry, EventEntry
from vllm_logpipe.catalogue.errors import CatalogueError
from vllm_logpipe.catalogue.template import TemplateError

SETTINGS_FILES = frozenset({"headers.toml", "processes.toml", "redaction.toml"})
"""Files beside the entries that hold something else."""


_MAX_FILE_SIZE = 8 * 1024 * 1024


class _Prepared(Struct):
    """The built-in files as one document, with the digest of what they were made from."""

    digest: str
    files: msgspec.Raw


class Catalogue:
    """All entries, ready to look up what a message is."""

    def __init__(
        self,
        events: list[EventEntry],
        errors: list[ErrorEntry],
        attributes: Iterable[AttributeEntry] = (),
    ) -> None:
        self.events = events
        self.errors = errors
        self.types = attribute_types(attributes)
        variants = [variant for e in events for variant in event_variants(e, self.types)]
        self._variants = variants
        examples = [
            (variant, sample.line)
            for variant in variants
            if not variant.lead
            for sample in variant.entry.sample
        ]
        self._events = Dispatcher(variants, examples)
        self._leading = self._events.leading
        self._further = Dispatcher(
            variant for entry in events for variant in line_variants(entry, self.types)
        )
        self._errors = Dispatcher(
            variant for entry in errors for variant in error_variants(entry, self.types)
        )
        self._by_type = {name: e for e in errors if not e.wordings for name in e.types}
        self._lines: dict[str, Dispatcher[Variant[EventEntry]]] = {}

    def find(self, text: str, log_format: str) -> tuple[Variant[EventEntry], re.Match[str]] | None:
        """The most specific event whose template is the whole text, and the text of its holes."""
        for variant in self._leading(text):
            # A cheap look at the text spares most of the matches that would fail.
            if variant.probe in text and (found := variant.match(text)):
                if variant.formats and log_format not in variant.formats:
                    continue
                if variant.lead:
                    return variant, found
                # Of those that begin with a hole, all are asked for the most specific.
                break
        for variant in self._events.inner(text):
            if (not variant.formats or log_format in variant.formats) and (
                found := variant.match(text)
            ):
                return variant, found
        return None

    def variants(self) -> list[Variant[EventEntry]]:
        """Every event template, as written in the files."""
        return list(self._variants)

    def near(self, text: str) -> list[Variant[EventEntry]]:
        """The events that were looked at for a text, most specific first."""
        return list(self._events.candidates(text))

    def may_be_further(self, line: str) -> bool:
        """Whether a line may be one that some entry declares as further: a cheap look."""
        return self._further.may_match(line)

    def find_line(
        self, entry: EventEntry, line: str
    ) -> tuple[Variant[EventEntry], re.Match[str]] | None:
        """The declared further line of an entry that a line is."""
        if not entry.lines:
            return None
        if entry.name not in self._lines:
            self._lines[entry.name] = Dispatcher(line_variants(entry, self.types))
        dispatcher = self._lines[entry.name]
        for variant in dispatcher.candidates(line):
            if found := variant.match(line):
                return variant, found
        return None

    def classify_type(self, exception_type: str) -> ErrorEntry | None:
        """The class that an exception's type alone gives it."""
        for name in (exception_type, exception_type.rpartition(".")[2]):
            if name in self._by_type:
                return self._by_type[name]
        return None

    def find_error(
        self, exception_type: str, lines: Iterable[str]
    ) -> tuple[ErrorEntry, Variant[ErrorEntry], re.Match[str]] | None:
        """The exception entry that a line of the text matches, with the text of its holes."""
        names = {exception_type, exception_type.rpartition(".")[2]}
        for line in lines:
            text = line.strip()
            for variant in self._errors.candidates(text):
                entry = variant.entry
                if entry.types and not names.intersection(entry.types):
                    continue
                if found := variant.match(text):
                    return entry, variant, found
        return None


def attribute_types(added: Iterable[AttributeEntry] = ()) -> dict[str, str]:
    """Attribute types by name: those of `semconv` and those that a user's files add."""
    types: dict[str, str] = {a.name: a.type for a in semconv.ATTRIBUTES}
    for attribute in added:
        types.setdefault(attribute.name, attribute.type)
    return types


def load_catalogue(directories: Iterable[Path] = ()) -> Catalogue:
    """The built-in catalogue and the entries of the given directories.

    Entries of a directory are checked in full, as the built-in ones are by the project's tests.
    Raises CatalogueError, whose text names file, entry and sample.
    """
    directories = tuple(directories)
    built_in = read_built_in()
    if not directories:
        return Catalogue(_events(built_in), _errors(built_in))
    added = [loaded for directory in directories for loaded in read_directory(directory)]
    for fault in catalogue_faults(added, beside=built_in):
        raise CatalogueError(fault)
    files = [*built_in, *added]
    return Catalogue(_events(files), _errors(files), _attributes(files))


def catalogue_faults(
    files: list[tuple[str, CatalogueFile]], beside: list[tuple[str, CatalogueFile]]
) -> Iterator[str]:
    """What is wrong with entries that must not load, a line a fault."""
    # Most runs only use the built-in entries, which need no check.
    from vllm_logpipe.catalogue.check import find_faults

    everything = [*beside, *files]
    types = attribute_types(_attributes(everything))
    try:
        catalogue = Catalogue(_events(everything), _errors(everything), _attributes(everything))
    except TemplateError:
        catalogue = None
    yield from find_faults(files, beside, types, catalogue)


@cache
def read_built_in() -> list[tuple[str, CatalogueFile]]:
    """The files of the built-in catalogue, by name, decoded but not checked."""
    folder = resources.files("vllm_logpipe.catalogue")
    names = sorted(
        item.name
        for item in folder.iterdir()
        if item.name.endswith(".toml") and item.name not in SETTINGS_FILES
    )
    contents = {name: (folder / name).read_bytes() for name in names}
    prepared = folder / "entries.json"
    if prepared.is_file():
        # Made when the package was built: used as long as no TOML file has changed since.
        built = msgspec.json.decode(prepared.read_bytes(), type=_Prepared)
        digest = blake2b(b"\0".join(contents.values()), digest_size=16).hexdigest()
        if built.digest == digest:
            files = msgspec.json.decode(built.files, type=dict[str, CatalogueFile])
            return list(files.items())
    return [(name, _decode(name, content)) for name, content in contents.items()]


def read_directory(directory: Path) -> Iterator[tuple[str, CatalogueFile]]:
    """The catalogue files of a directory, by name. Raises CatalogueError."""
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise CatalogueError(f"{directory}: {error.strerror}") from error
    if not paths:
        raise CatalogueError(f"{directory}: no .toml file in it")
    for path in paths:
        try:
            status = path.stat()
            if stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode):
                raise CatalogueError(f"{path}: not a file")
            if status.st_size > _MAX_FILE_SIZE:
                raise CatalogueError(f"{path}: larger than {_MAX_FILE_SIZE >> 20} MiB")
            content = path.read_bytes()
        except OSError as error:
            raise CatalogueError(f"{path}: {error.strerror}") from error
        yield path.name, _decode(str(path), content)


def _decode(name: str, content: bytes) -> CatalogueFile:
    try:
        document = tomli.loads(content.decode())
        return msgspec.convert(document, CatalogueFile)
    except UnicodeDecodeError as error:
        raise CatalogueError(f"{name}: not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise CatalogueError(f"{name}: nested too deep") from error
    except msgspec.ValidationError as error:
        raise CatalogueError(f"{name}: {error}") from error
    except (tomli.TOMLDecodeError, ValueError) as error:
        raise CatalogueError(f"{name}: not TOML: {error}") from error


def _events(files: Iterable[tuple[str, CatalogueFile]]) -> list[EventEntry]:
    return [entry for _, file in files for entry in file.event]


def _errors(files: Iterable[tuple[str, CatalogueFile]]) -> list[ErrorEntry]:
    return [entry for _, file in files for entry in file.error]


def _attributes(files: Iterable[tuple[str, CatalogueFile]]) -> list[AttributeEntry]:
    return [entry for _, file in files for entry in file.attribute]
