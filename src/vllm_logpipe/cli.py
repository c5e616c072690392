"""The command line: options, errors in one line, exit status."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vllm_logpipe._version import __version__

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from vllm_logpipe.model import Signal
    from vllm_logpipe.pipeline import Replay

_FAILED = 2
_UNDELIVERED = 1


class UsageError(Exception):
    """What the caller did wrong, in one line; the command ends with status 2."""


class _Parser(argparse.ArgumentParser):
    """argparse, but an error is one line, and one of the output is told too."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # argparse says nothing of output that fails.
        if file is not None:
            file.write(message)


def run(arguments: Sequence[str]) -> int:
    """Run the command with these arguments; gives the exit status.

    Raises KeyboardInterrupt.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _terminate)
    if sys.stdout is None:
        _complain("standard output is closed")
        return _FAILED
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a terminal cannot show is no reason to stop.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return _execute(_parser().parse_args(arguments))
        finally:
            sys.stdout.flush()
    except UsageError as error:
        _complain(str(error))
    except OSError as error:
        _complain(f"{error.filename or 'standard output'}: {error.strerror or error}")
        _drop_output()
    return _FAILED


def _terminate(number: int, _frame: object) -> NoReturn:
    """End as an interrupt does, with what is held put out: how containers are stopped."""
    raise KeyboardInterrupt(128 + number)


def _execute(options: argparse.Namespace) -> int:
    # Help and a mistyped option need not wait for this import.
    from vllm_logpipe.catalogue import CatalogueError

    try:
        status: int = options.command(options)
    except (CatalogueError, RecursionError) as error:
        raise UsageError(str(error)) from error
    return status


def _complain(text: str) -> None:
    # With standard error closed, print would write to standard output.
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"vllm-logpipe: {' '.join(text.splitlines())}", file=sys.stderr)


def _drop_output() -> None:
    """Keep the interpreter from another try to write what could not be written."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _parser() -> _Parser:
    parser = _Parser(
        prog="vllm-logpipe",
        description="Turns what vLLM and its neighbours print into OpenTelemetry logs.",
    )
    parser.add_argument("--version", action="version", version=f"vllm-logpipe {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    _add_normalize(commands.add_parser)
    _add_explain(commands.add_parser)
    _add_catalogue(commands.add_parser)
    page = commands.add_parser("telemetry", help="write every name that leaves, as a page")
    page.set_defaults(command=_print_telemetry)
    return parser


def _add_normalize(add: Callable[..., argparse.ArgumentParser]) -> None:
    from vllm_logpipe.semconv import OPTIONAL_FIELDS, PRIVATE_FIELDS

    parser = add("normalize", help="log files in, records out on standard output")
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        default=["-"],
        help="a log file, plain, gzip or zstd; - for standard input",
    )
    parser.add_argument(
        "--to",
        choices=("ndjson", "otlp-json", "text", "otlp"),
        default="ndjson",
        help="the form of output, or otlp: send logs, spans and metrics to an endpoint",
    )
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="where --to otlp sends; without it OTEL_EXPORTER_OTLP_ENDPOINT, else this machine",
    )
    parser.add_argument(
        "--rebase", choices=("now",), help="shift all times so that the last record is now"
    )
    parser.add_argument(
        "--source",
        default="stdin",
        metavar="NAME",
        help="what names standard input: record and instance ids come from it",
    )
    parser.add_argument("--year", type=_year, help="the year of the first dated line")
    parser.add_argument("--timezone", help="IANA name of the zone that the servers print")
    parser.add_argument(
        "--envelope",
        default="auto",
        metavar="NAME",
        help="what stands around each line: auto, none, cri, docker, compose, kubectl, journald,"
        " journald-json, syslog or rfc3339",
    )
    parser.add_argument("--follow", action="store_true", help="go on as the files grow")
    parser.add_argument(
        "--keep",
        type=_words,
        default=(),
        metavar="FIELD,…",
        help=f"private fields to leave in: {', '.join(sorted(PRIVATE_FIELDS))}",
    )
    parser.add_argument(
        "--redact",
        type=_words,
        default=(),
        metavar="FIELD,…",
        help=f"further fields to take out: {', '.join(sorted(OPTIONAL_FIELDS))}",
    )
    parser.add_argument(
        "--original", action="store_true", help="add log.record.original, redacted alike"
    )
    parser.add_argument(
        "--fold",
        type=_folds,
        default=None,
        metavar="KIND,…",
        help="what folds into fewer records with a count: probes, repeats (both unless told"
        " otherwise) or none",
    )
    parser.add_argument(
        "--signals",
        action="store_true",
        help="also derive spans, incidents and metrics; each object then has a kind",
    )
    parser.add_argument(
        "--request-spans",
        choices=("auto", "on", "off"),
        default="auto",
        help="whether requests become spans: auto leaves them to a vLLM that traces itself",
    )
    parser.add_argument(
        "--server-group",
        metavar="NAME",
        help="all files are nodes of one server: its incidents span them",
    )
    _add_directory(parser)
    parser.set_defaults(command=_normalize)


def _add_explain(add: Callable[..., argparse.ArgumentParser]) -> None:
    parser = add("explain", help="what a line is: header, entry, values, and what was near")
    parser.add_argument("line", metavar="LINE")
    _add_directory(parser)
    parser.set_defaults(command=_explain)


def _add_catalogue(add: Callable[..., argparse.ArgumentParser]) -> None:
    parser = add("catalogue", help="the entries: list, check or document them")
    actions = parser.add_subparsers(required=True, metavar="ACTION", parser_class=_Parser)
    for name, command, text in (
        ("list", _list_catalogue, "list the built-in entries, or those of a directory"),
        ("markdown", _print_page, "write the built-in entries, or those of a directory, as a page"),
        ("check", _check_catalogue, "check the built-in entries, or those of a directory"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("directory", nargs="?", type=Path, metavar="DIR")
        action.set_defaults(command=command)


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--catalogue",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a directory of further entries",
    )


def _year(text: str) -> int:
    if not text.isdecimal() or not 1970 <= int(text) <= 2261:
        raise argparse.ArgumentTypeError(f"{text!r} is not a year from 1970 to 2261")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _folds(text: str) -> tuple[str, ...]:
    return () if text == "none" else _words(text)


def _normalize(options: argparse.Namespace) -> int:
    _check_signals(options)
    if options.to == "otlp":
        return _export(options)
    try:
        replay = _replay(options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return _put_out(options, replay)


def _replay(
    options: argparse.Namespace, export: Callable[[Iterable[Signal]], None] | None = None
) -> Replay:
    """The replay that the options describe; raises ValueError for what they may not be."""
    from vllm_logpipe.catalogue import load_catalogue
    from vllm_logpipe.pipeline import Replay
    from vllm_logpipe.semconv import FOLDS

    return Replay(
        catalogue=load_catalogue(options.catalogue),
        encoding="ndjson" if options.to == "otlp" else options.to,
        year=options.year,
        timezone=options.timezone,
        keep=options.keep,
        redact=options.redact,
        original=options.original,
        stdin=options.source,
        envelope=options.envelope,
        signals=options.signals,
        request_spans={"auto": None, "on": True, "off": False}[options.request_spans],
        server_group=options.server_group,
        export=export,
        rebase=options.rebase is not None,
        folds=FOLDS if options.fold is None else options.fold,
    )


def _export(options: argparse.Namespace) -> int:
    """Send what the options name to an OTLP endpoint."""
    # A second of imports that no other form of output needs.
    from vllm_logpipe.sinks.otlp_settings import OtlpSettings
    from vllm_logpipe.sinks.otlp_sink import ExportError, OtlpSink

    try:
        settings = OtlpSettings.of(options.endpoint, os.environ)
        sink = OtlpSink(settings)
        replay = _replay(options, sink.deliver if options.follow else sink.take)
    except (ValueError, ExportError) as error:
        raise UsageError(str(error)) from error
    try:
        status = _put_out(options, replay)
        sink.flush()
    except ExportError as error:
        _complain(f"not delivered: {error}")
        return _UNDELIVERED
    finally:
        sink.close()
    if sink.refused:
        _complain(f"{sink.refused} records refused: {sink.refusal}")
        return _UNDELIVERED
    return status


def _put_out(options: argparse.Namespace, replay: Replay) -> int:
    from vllm_logpipe.sources.file import SourceError

    # With PYTHONUNBUFFERED standard output is raw, and may take a part of what is written only.
    output = io.BufferedWriter(io.FileIO(sys.stdout.fileno(), "wb", closefd=False))
    failures: list[str] = []
    try:
        if options.follow:
            replay.follow(options.files, output)
        else:
            failures = replay.run(options.files, output, show_progress=_shows_progress())
    except SourceError as error:
        failures = [str(error)]
    finally:
        output.flush()
    for text in (*replay.warnings, *failures):
        _complain(text)
    return _FAILED if failures else 0


def _check_signals(options: argparse.Namespace) -> None:
    derives = options.signals or options.to == "otlp"
    if options.signals and options.to not in ("ndjson", "otlp"):
        raise UsageError("--signals: only with --to ndjson or otlp")
    if not derives and (options.server_group is not None or options.request_spans != "auto"):
        raise UsageError("--request-spans and --server-group: only with --signals or --to otlp")
    if options.endpoint is not None and options.to != "otlp":
        raise UsageError("--endpoint: only with --to otlp")
    if options.rebase is not None and (options.follow or "-" in options.files):
        raise UsageError("--rebase: only for files that are read to their end")


def _shows_progress() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and not sys.stdout.isatty()


def _explain(options: argparse.Namespace) -> int:
    from vllm_logpipe.catalogue import load_catalogue
    from vllm_logpipe.report.explain import explain_line

    _print(explain_line(options.line, load_catalogue(options.catalogue)))
    return 0


def _list_catalogue(options: argparse.Namespace) -> int:
    from vllm_logpipe.report.entries import list_entries

    _print(list_entries(options.directory))
    return 0


def _print_page(options: argparse.Namespace) -> int:
    from vllm_logpipe.report.reference import catalogue_page

    _print(catalogue_page(options.directory))
    return 0


def _print_telemetry(_options: argparse.Namespace) -> int:
    from vllm_logpipe.report.telemetry import telemetry_page

    _print(telemetry_page())
    return 0


def _check_catalogue(options: argparse.Namespace) -> int:
    from vllm_logpipe.report.entries import check_entries_of

    summary, faults = check_entries_of(options.directory)
    for fault in faults:
        _complain(fault)
    _print([summary])
    return _FAILED if faults else 0


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
