"""What container runtimes, journald and syslog put around a line, and how it is taken off again.

A layer takes one envelope off a piece, or leaves the piece as it is and says so: a line that does
not fit loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct

MAX_DEPTH = 3
"""Envelopes that may stand around each other."""
SAMPLE_LINES = 8
"""Lines at the start of a stream that decide on its envelopes."""
SAMPLE_BYTES = 65_536
"""Bytes after which they are decided on, however few lines there are."""

_NS = 1_000_000_000
_MIN_FITS = 3
_MAX_NAME = 256
_MAX_SECONDS = 4096
_MAX_SECOND = 2**63 // _NS - 1
_MONTHS = {
    name: f"{number:02}"
    for number, name in enumerate(
        "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), start=1
    )
}


class Piece(Struct):
    """A line, or the part of one, as the envelopes taken off so far leave it."""

    text: str
    iostream: str = ""
    """stdout or stderr; empty where no envelope tells."""
    name: str = ""
    """What tells servers apart: container, pod or unit."""
    time: int = -1
    """The envelope's time, ns since 1970 UTC; -1 for none, or none with a year and zone."""
    local: str = ""
    """Its time as `MM-DD hh:mm:ss`, where neither year nor zone is printed."""
    fraction: int = 0
    """The ns that belong to `local`."""
    fine: bool = True
    """Whether the time has a fraction of the second."""
    partial: bool = False
    """Whether the line goes on in the next piece of the same iostream."""
    rotates: bool = False
    """Whether the runtime begins files anew, so that an offset alone tells no line."""
    resource: dict[str, str] = {}
    """What the envelope says of where the line comes from."""


Layer: TypeAlias = Callable[[Piece], bool]
"""Takes an envelope off a piece; False, and nothing changed, where there is none."""

_STAMP = r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)"
_LOCAL = r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?"
_SENDER = r"(\S{1,256}) ([^\s:\[\]]{1,256})(?:\[\d{1,10}\])?: ?"
_RFC3339 = re.compile(_STAMP + "(?: |$)", re.ASCII)
_CRI = re.compile(_STAMP + r" (stdout|stderr) ([PF](?::[^ ]{0,256})?)(?: |$)", re.ASCII)
_COMPOSE = re.compile(r"([A-Za-z0-9][\w.-]{0,255}) *\|(?: |$)", re.ASCII)
_KUBECTL = re.compile(r"\[pod/([^/\]\s]{1,256})/([^/\]\s]{1,256})\](?: |$)")
_JOURNALD = re.compile(_LOCAL + " " + _SENDER, re.ASCII)
_JOURNALD_ISO = re.compile(_STAMP + " " + _SENDER, re.ASCII)
_PRI = re.compile(r"<\d{1,3}>", re.ASCII)
_RFC5424 = re.compile(
    r"<\d{1,3}>1 (?:-|" + _STAMP + r") (\S{1,255}) (\S{1,48}) \S{1,128} \S{1,32} "
    r'(?:-|(?:\[(?:[^\]"]|"(?:[^"\\]|\\.)*+")*+\])++)(?: |$)(?:\ufeff)?',
    re.ASCII,
)


class _Docker(Struct):
    log: str
    time: str
    stream: str = ""


class _Journal(Struct):
    MESSAGE: str | list[int]
    REALTIME: str = msgspec.field(name="__REALTIME_TIMESTAMP", default="")
    host: object = msgspec.field(name="_HOSTNAME", default=None)
    unit: object = msgspec.field(name="_SYSTEMD_UNIT", default=None)
    user_unit: object = msgspec.field(name="_SYSTEMD_USER_UNIT", default=None)
    container: object = msgspec.field(name="CONTAINER_NAME", default=None)
    identifier: object = msgspec.field(name="SYSLOG_IDENTIFIER", default=None)


_docker = msgspec.json.Decoder(_Docker).decode
_journal = msgspec.json.Decoder(_Journal).decode
_seconds: dict[tuple[str, str], int] = {}


def parse_stamp(date: str, fraction: str | None, zone: str) -> int:
    """The ns since 1970 UTC of an RFC 3339 time in parts; -1 for no time that ns can say."""
    second = _seconds.get((date, zone))
    if second is None:
        try:
            second = int(datetime.fromisoformat(f"{date}{zone}").timestamp())
        except (ValueError, OverflowError):
            return -1
        if not 0 <= second <= _MAX_SECOND:
            return -1
        if len(_seconds) >= _MAX_SECONDS:
            _seconds.clear()
        _seconds[date, zone] = second
    return second * _NS + (int(fraction.ljust(9, "0")) if fraction else 0)


def read_cri(piece: Piece) -> bool:
    """`2026-11-30T12:00:01.123456789Z stdout F text`, as the kubelet's log files have it."""
    found = _CRI.match(piece.text)
    if found is None:
        return False
    date, fraction, zone, iostream, tag = found.groups()
    if (time := parse_stamp(date, fraction, zone)) < 0:
        return False
    piece.time, piece.iostream, piece.partial = time, iostream, tag[0] == "P"
    piece.rotates = True
    piece.text = piece.text[found.end() :]
    return True


def read_docker(piece: Piece) -> bool:
    """An object a line with `log`, `stream` and `time`, as Docker's json-file driver writes it."""
    if not piece.text.startswith("{"):
        return False
    try:
        document = _docker(piece.text)
    except (msgspec.DecodeError, RecursionError):
        return False
    found = _RFC3339.fullmatch(document.time)
    if found is None or (time := parse_stamp(*found.groups())) < 0:
        return False
    piece.time = time
    if document.stream in ("stdout", "stderr"):
        piece.iostream = document.stream
    piece.rotates = True
    piece.partial = not document.log.endswith("\n")
    piece.text = document.log if piece.partial else document.log[:-1]
    return True


def read_compose(piece: Piece) -> bool:
    """`name-1  | text`, as `docker compose logs` prints it."""
    found = _COMPOSE.match(piece.text)
    if found is None:
        return False
    _named(piece, found[1], {"container.name": found[1]})
    piece.text = piece.text[found.end() :]
    return True


def read_kubectl(piece: Piece) -> bool:
    """`[pod/name/container] text`, as `kubectl logs --prefix` prints it."""
    found = _KUBECTL.match(piece.text)
    if found is None:
        return False
    pod, container = found.groups()
    _named(piece, f"{pod}/{container}", {"k8s.pod.name": pod, "k8s.container.name": container})
    piece.text = piece.text[found.end() :]
    return True


def read_journald(piece: Piece) -> bool:
    """`Nov 30 12:00:01 host unit[7]: text`; also with a fraction, or an ISO time."""
    return _read_sender(piece, piece.text)


def read_journald_json(piece: Piece) -> bool:
    """An object a line with `MESSAGE`, as `journalctl -o json` prints it."""
    if not piece.text.startswith("{"):
        return False
    try:
        document = _journal(piece.text)
        message = document.MESSAGE
        if not isinstance(message, str):
            message = bytes(message).decode(errors="backslashreplace")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    stamp = document.REALTIME
    if stamp:
        if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 16):
            return False
        if (time := int(stamp) * 1000) > _MAX_SECOND * _NS:
            return False
        piece.time = time
    host, container = document.host, document.container
    names = (container, document.user_unit, document.unit, document.identifier)
    name = next((text for text in names if isinstance(text, str) and text), "")
    resource = {"host.name": host[:_MAX_NAME]} if isinstance(host, str) and host else {}
    if isinstance(container, str) and container:
        resource["container.name"] = container[:_MAX_NAME]
    _named(piece, name[:_MAX_NAME], resource)
    piece.text = message
    return True


def read_syslog(piece: Piece) -> bool:
    """`<14>1 time host app pid id - text` (RFC 5424) or `<14>Nov 30 12:00:01 host app[7]: text`."""
    if found := _RFC5424.match(piece.text):
        date, fraction, zone, host, name = found.groups()
        time = -1 if date is None else parse_stamp(date, fraction, zone)
        if date is not None and time < 0:
            return False
        piece.time, piece.fine = time, fraction is not None
        _sent(piece, host, name)
        piece.text = piece.text[found.end() :]
        return True
    found = _PRI.match(piece.text)
    return found is not None and _read_sender(piece, piece.text[found.end() :])


def read_rfc3339(piece: Piece) -> bool:
    """`2026-11-30T12:00:01.123Z text`, as `kubectl logs --timestamps` and `docker logs -t` do."""
    found = _RFC3339.match(piece.text)
    if found is None or (time := parse_stamp(*found.groups())) < 0:
        return False
    piece.time, piece.fine = time, True
    piece.text = piece.text[found.end() :]
    return True


def _read_sender(piece: Piece, text: str) -> bool:
    if found := _JOURNALD.match(text):
        month, day, clock, fraction, host, name = found.groups()
        if month not in _MONTHS:
            return False
        piece.local = f"{_MONTHS[month]}-{day.replace(' ', '0')} {clock}"
        piece.fraction = int(fraction.ljust(9, "0")) if fraction else 0
    elif found := _JOURNALD_ISO.match(text):
        date, fraction, zone, host, name = found.groups()
        if (time := parse_stamp(date, fraction, zone)) < 0:
            return False
        piece.time = time
    else:
        return False
    piece.fine = fraction is not None
    _sent(piece, host, name)
    piece.text = text[found.end() :]
    return True


def _sent(piece: Piece, host: str, name: str) -> None:
    _named(piece, f"{host} {name}", {} if host == "-" else {"host.name": host})


def _named(piece: Piece, name: str, resource: dict[str, str]) -> None:
    piece.name = f"{piece.name}\0{name}" if piece.name else name
    piece.resource = {**piece.resource, **resource}


LAYERS: dict[str, Layer] = {
    "cri": read_cri,
    "docker": read_docker,
    "journald-json": read_journald_json,
    "kubectl": read_kubectl,
    "syslog": read_syslog,
    "journald": read_journald,
    "compose": read_compose,
    "rfc3339": read_rfc3339,
}
"""The envelopes by name, in the order in which they are looked for: the narrowest first."""

ENVELOPES = ("auto", "none", *LAYERS)
"""What a caller may ask for."""

_PLAIN = frozenset({"journald", "compose", "rfc3339"})
"""Envelopes that a single line of text may look like by chance."""
_NOTICES = ("-- ", "Defaulted container ")
"""What journalctl and kubectl say themselves before the first line."""


def may_have_envelope(lines: Iterable[str]) -> bool:
    """Whether the first line that says something has an envelope, or none says anything yet."""
    line = next(filter(_says_something, lines), None)
    return line is None or any(layer(Piece(line)) for layer in LAYERS.values())


def detect(lines: Iterable[str], forced: str, *, whole: bool) -> list[Layer]:
    """The envelopes around the first lines of a stream, the outermost first.

    forced: the name of the outermost, or `auto`. whole: whether the stream has no further lines,
    so that a few suffice.
    """
    pieces = [Piece(line) for line in lines if _says_something(line)]
    layers: list[Layer] = []
    if forced != "auto":
        layer = LAYERS[forced]
        layers.append(layer)
        pieces = [piece for piece in pieces if layer(piece)]
    while len(layers) < MAX_DEPTH:
        for name, layer in LAYERS.items():
            if layer not in layers and _is_around(name, layer, pieces, whole=whole):
                layers.append(layer)
                pieces = [piece for piece in pieces if layer(piece)]
                break
        else:
            break
    return layers


def _is_around(name: str, layer: Layer, pieces: list[Piece], *, whole: bool) -> bool:
    copies = [msgspec.structs.replace(piece) for piece in pieces]
    fits = [piece for piece, copy in zip(pieces, copies, strict=True) if layer(copy)]
    if name == "compose" and len({piece.text.find("|") for piece in fits}) > 1:
        # Its names are padded to one width: a table of words is no envelope.
        return False
    least = min(_MIN_FITS, len(pieces)) if whole else _MIN_FITS
    return len(fits) >= max(least, 1 + (name in _PLAIN)) and len(fits) * 2 > len(pieces)


def gives_time(layer: Layer) -> bool:
    """Whether an envelope has a time."""
    return layer not in (read_compose, read_kubectl)


def _says_something(line: str) -> bool:
    return bool(line) and not line.isspace() and not line.startswith(_NOTICES)
