"""The year of a date that is printed without one."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from datetime import UTC, datetime

_DAY_S = 86_400
_HALF_YEAR_MONTHS = 6
_LEAP_REACH = 8
"""Years to look around for a 02-29: 1900 and 2100 have none."""


class YearFinder:
    """Finds years in the order of a stream's lines.

    `first_year` is the year of the first date and wins; years count on from there over New Year.
    Without it a date takes the year that brings it nearest to the reference time, never more than
    a day ahead of it. A 02-29 takes the nearest year that has it.
    """

    def __init__(self, first_year: int | None, warn: Callable[[str], None]) -> None:
        self._year = first_year
        self._month = 0
        self._warn = warn

    def find(self, date: tuple[int, int, int, int, int], reference: float) -> int | None:
        """The year of (month, day, hour, minute, second); None for no date of any year.

        `reference` is in s since 1970 UTC.
        """
        month, day = date[:2]
        if not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(2024, month)[1]:
            return None
        if self._year is not None:
            return self._has_day(self._count(self._year, month), month, day)
        return self._nearest(date, reference)

    def _count(self, year: int, month: int) -> int:
        moved = month - self._month if self._month else 0
        if moved > _HALF_YEAR_MONTHS:
            # A December line among January ones: late, of the year before.
            return year - 1
        if moved < -_HALF_YEAR_MONTHS:
            year += 1
        self._year, self._month = year, month
        return year

    def _has_day(self, year: int, month: int, day: int) -> int:
        if (month, day) != (2, 29) or calendar.isleap(year):
            return year
        years = range(year - _LEAP_REACH, year + _LEAP_REACH + 1)
        nearest = min(filter(calendar.isleap, years), key=lambda other: abs(other - year))
        self._warn(f"02-29 does not exist in {year}: taken as of {nearest}")
        return nearest

    def _nearest(self, date: tuple[int, int, int, int, int], reference: float) -> int | None:
        now = datetime.fromtimestamp(reference, UTC).year
        leap = date[:2] == (2, 29)
        reach = _LEAP_REACH if leap else 1
        years = [
            (abs(ahead), year)
            for year in range(now - reach, now + 2)
            if not leap or calendar.isleap(year)
            if (ahead := calendar.timegm((year, *date)) - reference) <= _DAY_S
        ]
        if not years:
            return None
        year = min(years)[1]
        if year < now - 1:
            self._warn(f"02-29 does not exist in {now} or {now - 1}: taken as of {year}")
        return year
