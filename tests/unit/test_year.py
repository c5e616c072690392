"""The year of a date that is printed without one."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime

import pytest

from vllm_logpipe.read.year import YearFinder

Date = tuple[int, int, int, int, int]


def moment(text: str) -> float:
    """Seconds since 1970 of a UTC time."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def date(text: str) -> Date:
    """Month, day, hour, minute and second of `MM-DD HH:MM:SS`."""
    month, day = map(int, text[:5].split("-"))
    hour, minute, second = map(int, text[6:].split(":"))
    return month, day, hour, minute, second


def find(text: str, reference: str, first_year: int | None = None) -> tuple[int | None, int]:
    """The year of one date, and the number of warnings."""
    warnings: list[str] = []
    finder = YearFinder(first_year, warnings.append)
    return finder.find(date(text), moment(reference)), len(warnings)


@pytest.mark.parametrize(
    ("text", "reference", "year"),
    [
        ("11-30 12:00:00", "2026-11-30 12:00:01", 2026),
        ("11-30 12:00:00", "2026-12-31 23:59:59", 2026),
        ("12-31 23:59:59", "2027-01-01 00:00:10", 2026),
        ("01-01 00:00:01", "2027-01-01 00:00:10", 2027),
        ("01-01 00:30:00", "2026-12-31 23:59:59", 2027),
        ("01-01 23:59:58", "2026-12-31 23:59:59", 2027),
        ("01-02 00:00:00", "2026-12-31 23:59:59", 2026),
        ("12-01 23:59:59", "2026-12-01 00:00:00", 2026),
        ("12-02 00:00:01", "2026-12-01 00:00:00", 2025),
        ("06-02 00:00:01", "2026-12-01 00:00:00", 2026),
        ("05-30 00:00:01", "2026-12-01 00:00:00", 2026),
    ],
)
def test_the_year_is_the_nearest_that_is_no_more_than_a_day_ahead(
    text: str, reference: str, year: int
) -> None:
    """A date belongs to the nearest year, but never lies more than a day after the reference."""
    assert find(text, reference) == (year, 0)


def test_a_date_of_any_day_is_never_more_than_a_day_ahead() -> None:
    """For every day of a year and of a leap year the rule holds, and the year before is not it."""
    finder = YearFinder(None, lambda _text: None)
    for reference in (moment("2026-03-01 05:00:00"), moment("2028-12-31 23:00:00")):
        for month in range(1, 13):
            for day in range(1, calendar.monthrange(2023, month)[1] + 1):
                year = finder.find((month, day, 12, 0, 0), reference)
                assert year is not None
                ahead = calendar.timegm((year, month, day, 12, 0, 0)) - reference
                assert -365 * 86_400 < ahead <= 86_400


@pytest.mark.parametrize(
    ("reference", "year", "warnings"),
    [
        ("2028-02-29 12:00:00", 2028, 0),
        ("2028-02-28 13:00:00", 2028, 0),
        ("2028-02-27 00:00:00", 2024, 1),
        ("2025-01-05 00:00:00", 2024, 0),
        ("2026-03-05 00:00:00", 2024, 1),
        ("2101-03-05 00:00:00", 2096, 1),
    ],
)
def test_a_leap_day_is_of_a_leap_year(reference: str, year: int, warnings: int) -> None:
    """A 02-29 takes the nearest leap year that is not ahead, with a warning if it is not near."""
    assert find("02-29 12:00:00", reference) == (year, warnings)


@pytest.mark.parametrize(
    ("first", "year", "warnings"),
    [(2024, 2024, 0), (2025, 2024, 1), (2027, 2028, 1), (2101, 2104, 1)],
)
def test_a_leap_day_in_a_given_year_that_has_none(first: int, year: int, warnings: int) -> None:
    """The nearest leap year is taken, with a warning."""
    assert find("02-29 12:00:00", "2026-12-01 00:00:00", first) == (year, warnings)


@pytest.mark.parametrize(
    ("first", "texts", "years"),
    [
        (2020, ["06-01 00:00:00", "06-02 00:00:00"], [2020, 2020]),
        (2020, ["12-31 23:59:59", "01-01 00:00:00", "01-01 00:00:01"], [2020, 2021, 2021]),
        (2020, ["12-31 23:59:59", "01-01 00:00:00", "12-31 23:59:59"], [2020, 2021, 2020]),
        (
            2020,
            ["12-31 00:00:00", "01-01 00:00:00", "12-31 00:00:01", "01-01 00:00:02"],
            [2020, 2021, 2020, 2021],
        ),
        (
            2020,
            [f"{month:02d}-01 00:00:00" for month in (12, 4, 8, 12, 4, 8, 12)],
            [2020, 2021, 2021, 2021, 2022, 2022, 2022],
        ),
        (2020, ["06-15 00:00:00", "01-01 00:00:00"], [2020, 2020]),
        (1999, ["12-31 00:00:00", "01-01 00:00:00"], [1999, 2000]),
    ],
)
def test_a_given_year_counts_on_over_new_year(
    first: int, texts: list[str], years: list[int]
) -> None:
    """The given year is that of the first date; a December line among January ones is late."""
    finder = YearFinder(first, lambda _text: None)
    assert [finder.find(date(text), moment("2026-12-01 00:00:00")) for text in texts] == years


@pytest.mark.parametrize("first", [None, 2026])
@pytest.mark.parametrize("day", [(0, 1), (13, 1), (1, 0), (1, 32), (2, 30), (4, 31)])
def test_a_date_of_no_year_has_none(day: tuple[int, int], first: int | None) -> None:
    """A month or day that no year has gives no year, and no error."""
    finder = YearFinder(first, lambda _text: None)
    assert finder.find((*day, 0, 0, 0), moment("2026-12-01 00:00:00")) is None
