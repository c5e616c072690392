"""When a line was printed: year, zone and order for times that state none of them."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from vllm_logpipe.read.year import YearFinder

NS = 1_000_000_000
_QUARTER_HOUR = 900
_ENVELOPE_TOLERANCE = 2.0
_MAX_SECONDS = 4096
_MAX_TAKEN = 65_536
_MAX_SECOND = 2**63 // 10**9 - 1
"""The last second that ns in 64 bits can say; earlier than 1970 none is."""
_MAX_PROCESSES = 4096
_MONTH_DAY = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)", re.ASCII)
_GLOG = re.compile(r"(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})", re.ASCII)
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(?: ?(Z|[+-]\d\d(?::?\d\d)?))?",
    re.ASCII,
)
_MAX_OFFSET_HOURS = 15


def find_zone(name: str | None) -> tzinfo | None:
    """The zone of an IANA name; None for none. Raises ValueError for a name that is unknown."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"unknown time zone {name!r}") from error


class Clock:
    """Turns the printed times of one stream into ns since 1970 UTC, in the stream's order.

    `reference` (s since 1970 UTC) is a time shortly after the last line: the file's mtime or the
    time of reading. A time without a year takes the year that brings it nearest to the reference,
    never more than a day ahead of it. `first_year` is the year of the first dated line instead
    and wins; years count on from there over New Year. `zone` None: UTC, unless an envelope tells.
    """

    def __init__(
        self,
        reference: float,
        first_year: int | None = None,
        zone: tzinfo | None = None,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.reference = reference
        self._zone = zone
        self._years = YearFinder(first_year, warn)
        self._month = 0
        self._offsets: dict[object, int] = {}
        self._latest: dict[object, int] = {}
        self.known: dict[str, int] = {}
        """Seconds by printed month-and-day times that mean the same for every process."""
        self.used: dict[int, int] = {}
        """The last ns given out, by second, where none is printed: a caller in a hurry counts on
        here itself, past what is `taken`."""
        self.taken: dict[int, int] = {}
        """Times given out whose ns were printed, each with the next to try."""
        self._repeated_hour = False

    def resolve(self, stamp: str, kind: str, lane: object) -> tuple[int, int] | None:
        """Seconds since 1970 and ns of a printed time of a lane; None for no valid time.

        A lane is anything hashable that stands for the process.
        """
        if kind == "month_day":
            second = self.known.get(stamp)
            if second is None:
                second = self._month_day(stamp, lane)
                if second is None:
                    return None
                if not self._offsets and not self._repeated_hour:
                    if len(self.known) >= _MAX_SECONDS:
                        self.known.clear()
                    self.known[stamp] = second
            return second, 0
        if kind in ("glog", "klog"):
            return self._glog(stamp, lane)
        if kind in ("date", "date_fraction"):
            return self._dated(stamp, lane)
        return None

    def enveloped(self, envelope_ns: int, second: int, lane: object) -> int | None:
        """The envelope's time for a printed one: it gives the fraction and tells the zone.

        None where the two differ by more than two seconds modulo whole quarter-hours.
        """
        difference = envelope_ns / NS - second
        quarters = round(difference / _QUARTER_HOUR)
        if abs(difference - quarters * _QUARTER_HOUR) > _ENVELOPE_TOLERANCE:
            return None
        if self._zone is None and abs(quarters) <= _MAX_OFFSET_HOURS * 4 and quarters:
            if len(self._offsets) >= _MAX_PROCESSES:
                self._offsets.clear()
            self._offsets[lane] = self._offsets.get(lane, 0) + quarters * _QUARTER_HOUR
            self.known.clear()
        return envelope_ns

    def unique(self, second: int, fraction: int) -> int:
        """The time in ns, moved on by ns where the stream has used it: order is kept."""
        used = self.used.get(second, -1)
        first = time = second * NS + max(fraction, used + 1)
        while time in self.taken:
            time = self.taken[time]
        if fraction:
            # The way to the next free time is remembered from both ends.
            self.taken[time] = self.taken[first] = time + 1
            if len(self.taken) > _MAX_TAKEN:
                for old in list(self.taken)[: _MAX_TAKEN // 2]:
                    del self.taken[old]
            return time
        if used < 0 and len(self.used) >= _MAX_SECONDS:
            for old in list(self.used)[: _MAX_SECONDS // 2]:
                del self.used[old]
        self.used[second] = time - second * NS
        return time

    def _month_day(self, stamp: str, lane: object) -> int | None:
        found = _MONTH_DAY.fullmatch(stamp)
        if found is None:
            return None
        month, day, hour, minute, second = map(int, found.groups())
        if hour > 23 or minute > 59 or second > 60:
            return None
        date = month, day, hour, minute, second
        if month != self._month:
            # What is known holds for one month: a year later the same text means another time.
            self._month = month
            self.known.clear()
        year = self._years.find(date, self.reference)
        return None if year is None else self._to_utc(year, date, lane)

    def _to_utc(self, year: int, rest: tuple[int, int, int, int, int], lane: object) -> int | None:
        month, day, hour, minute, second = rest
        try:
            naive = datetime(year, month, day, hour, minute, tzinfo=None)  # noqa: DTZ001
            naive += timedelta(seconds=second)
        except (ValueError, OverflowError):
            return None
        if self._zone is None:
            second_of_all = calendar.timegm(naive.timetuple()) + self._offsets.get(lane, 0)
            return second_of_all if 0 <= second_of_all <= _MAX_SECOND else None
        try:
            early = int(naive.replace(tzinfo=self._zone, fold=0).timestamp())
            late = int(naive.replace(tzinfo=self._zone, fold=1).timestamp())
        except (ValueError, OverflowError):
            return None
        if not 0 <= early <= late <= _MAX_SECOND and not 0 <= late <= early <= _MAX_SECOND:
            return None
        chosen = early
        self._repeated_hour = late > early
        latest = self._latest.get(lane)
        # An hour that repeats: a process that is already past the first pass is in the second.
        if late > early and latest is not None and latest - early > _ENVELOPE_TOLERANCE:
            chosen = late
        if len(self._latest) >= _MAX_PROCESSES:
            self._latest.clear()
        self._latest[lane] = max(chosen, latest) if latest is not None else chosen
        return chosen

    def _glog(self, stamp: str, lane: object) -> tuple[int, int] | None:
        found = _GLOG.fullmatch(stamp)
        if found is None:
            return None
        month, day, hour, minute, second, fraction = found.groups()
        seconds = self._month_day(f"{month}-{day} {hour}:{minute}:{second}", lane)
        return None if seconds is None else (seconds, int(fraction.ljust(9, "0")))

    def _dated(self, stamp: str, lane: object) -> tuple[int, int] | None:
        found = _DATE.fullmatch(stamp)
        if found is None:
            return None
        year, month, day, hour, minute, second = (int(group) for group in found.groups()[:6])
        if hour > 23 or minute > 59 or second > 60:
            return None
        zone = found.group(8)
        if zone is None:
            seconds = self._to_utc(year, (month, day, hour, minute, second), lane)
        else:
            seconds = _at_offset((year, month, day, hour, minute, second), zone)
        fraction = found.group(7)
        return (
            None if seconds is None else (seconds, int(fraction.ljust(9, "0")) if fraction else 0)
        )


def _at_offset(parts: tuple[int, int, int, int, int, int], zone: str) -> int | None:
    """A full date of a printed zone, s since 1970 UTC; None for no such day."""
    digits = zone[1:].replace(":", "").ljust(4, "0") if zone != "Z" else "0000"
    offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    try:
        moment = datetime(*parts[:5], min(parts[5], 59), tzinfo=UTC)
    except ValueError:
        return None
    seconds = int(moment.timestamp()) - (-offset if zone[0] == "-" else offset)
    return seconds if 0 <= seconds <= _MAX_SECOND else None


def rfc3339(time_unix_nano: int) -> str:
    """A time as RFC 3339 UTC with nine decimals, or none for whole seconds."""
    second, fraction = divmod(time_unix_nano, NS)
    text = _SECOND_TEXTS.get(second) or _second_text(second)
    return f"{text}.{fraction:09d}Z" if fraction else f"{text}Z"


_SECOND_TEXTS: dict[int, str] = {}


def _second_text(second: int) -> str:
    text = _SECOND_TEXTS.get(second)
    if text is None:
        if len(_SECOND_TEXTS) >= _MAX_SECONDS:
            _SECOND_TEXTS.clear()
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        text = _SECOND_TEXTS[second] = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return text
