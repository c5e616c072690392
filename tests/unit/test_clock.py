"""When a line was printed: zone, order, and the text of a time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from vllm_logpipe.read.clock import NS, Clock, find_zone, rfc3339

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()


def resolve(stamp: str, kind: str, clock: Clock | None = None, lane: str = "") -> str | None:
    """A printed time as UTC text; None for no valid time."""
    resolved = (clock or Clock(REFERENCE)).resolve(stamp, kind, lane)
    return None if resolved is None else rfc3339(resolved[0] * NS + resolved[1])


@pytest.mark.parametrize(
    ("stamp", "kind", "expected"),
    [
        ("11-30 12:00:01", "month_day", "2026-11-30T12:00:01Z"),
        ("11-30 23:59:60", "month_day", "2026-12-01T00:00:00Z"),
        ("12-01 23:59:59", "month_day", "2026-12-01T23:59:59Z"),
        ("12-02 00:00:01", "month_day", "2025-12-02T00:00:01Z"),
        ("1012 22:31:22.267261276", "glog", "2026-10-12T22:31:22.267261276Z"),
        ("1012 22:31:22.5", "glog", "2026-10-12T22:31:22.500000000Z"),
        ("1012 22:31:22.000000", "glog", "2026-10-12T22:31:22Z"),
        ("2024-02-29 00:00:00", "date", "2024-02-29T00:00:00Z"),
        ("2026-11-30 12:00:01,454", "date", "2026-11-30T12:00:01.454000000Z"),
        ("2026-11-30T12:00:01.000001", "date", "2026-11-30T12:00:01.000001000Z"),
        ("1999-12-31 23:59:59", "date", "1999-12-31T23:59:59Z"),
    ],
)
def test_a_printed_time_is_read_to_its_last_digit(stamp: str, kind: str, expected: str) -> None:
    """Each notation gives UTC where no zone is known, with the fraction it has."""
    assert resolve(stamp, kind) == expected


@pytest.mark.parametrize(
    ("stamp", "kind"),
    [
        ("11-31 12:00:01", "month_day"),
        ("13-01 12:00:01", "month_day"),
        ("00-01 12:00:01", "month_day"),
        ("11-30 24:00:01", "month_day"),
        ("11-30 12:60:01", "month_day"),
        ("11-30 12:00:61", "month_day"),
        ("11-30 12:00", "month_day"),
        ("", "month_day"),
        ("1131 12:00:01.1", "glog"),
        ("1130 12:00:01", "glog"),
        ("2026-02-29 12:00:01", "date"),
        ("0000-01-01 12:00:01", "date"),
        ("2026-11-30 25:00:01", "date"),
        ("yesterday", "date"),
        ("9999-12-31 23:59:60", "date"),
        ("9999-12-31 23:59:59", "date"),
        ("1969-12-30 23:59:59", "date"),
        ("0001-01-01 00:00:00", "date"),
        ("", ""),
        ("11-30 12:00:01", "unknown"),
    ],
)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/Los_Angeles"])
def test_what_is_no_time_of_our_era_is_none(stamp: str, kind: str, zone: str | None) -> None:
    """An impossible time, or one that ns since 1970 in 64 bits cannot tell, is none."""
    assert resolve(stamp, kind, Clock(REFERENCE, zone=find_zone(zone))) is None


def test_a_time_before_1970_by_its_zone_is_none() -> None:
    """The first hour of 1970 in Berlin was still 1969 in UTC."""
    clock = Clock(REFERENCE, zone=find_zone("Europe/Berlin"))
    assert resolve("1970-01-01 00:30:00", "date", clock) is None
    assert resolve("1970-01-01 01:30:00", "date", clock) == "1970-01-01T00:30:00Z"


@pytest.mark.parametrize(
    ("zone", "stamp", "expected"),
    [
        ("Europe/Berlin", "07-01 12:00:00", "2026-07-01T10:00:00Z"),
        ("Europe/Berlin", "01-15 12:00:00", "2026-01-15T11:00:00Z"),
        ("Asia/Kolkata", "07-01 12:00:00", "2026-07-01T06:30:00Z"),
        ("America/New_York", "07-01 20:00:00", "2026-07-02T00:00:00Z"),
        ("UTC", "07-01 12:00:00", "2026-07-01T12:00:00Z"),
        ("Europe/Berlin", "03-29 02:30:00", "2026-03-29T01:30:00Z"),
    ],
)
def test_a_zone_is_taken_off(zone: str, stamp: str, expected: str) -> None:
    """The time of a known zone becomes UTC, in summer and winter; a skipped hour is no error."""
    clock = Clock(REFERENCE, zone=find_zone(zone))
    assert resolve(stamp, "month_day", clock) == expected


@pytest.mark.parametrize(
    "name", ["Mars/Base", "", "Europe", "../etc/passwd", "/etc/passwd", "a\0b"]
)
def test_an_unknown_zone_is_refused(name: str) -> None:
    """A name that is no IANA zone raises ValueError, and the text names it."""
    with pytest.raises(ValueError, match="unknown time zone"):
        find_zone(name)


def test_no_zone_name_gives_no_zone() -> None:
    """None stands for a zone that is not known."""
    assert find_zone(None) is None


def test_an_hour_that_repeats_keeps_the_order_of_each_process() -> None:
    """Going back in the repeated hour, a process is in its second pass; another need not be."""
    clock = Clock(REFERENCE, zone=find_zone("Europe/Berlin"))
    printed = [
        ("a", "02:30:00", "00:30:00"),
        ("b", "02:50:00", "00:50:00"),
        ("a", "02:10:00", "01:10:00"),
        ("b", "02:51:00", "00:51:00"),
        ("b", "02:50:59", "00:50:59"),
        ("a", "02:59:59", "01:59:59"),
        ("b", "02:00:00", "01:00:00"),
        ("a", "03:00:00", "02:00:00"),
        ("b", "03:00:00", "02:00:00"),
    ]
    for lane, local, utc in printed:
        assert resolve(f"10-25 {local}", "month_day", clock, lane) == f"2026-10-25T{utc}Z"


def test_the_year_counts_on_for_times_that_were_seen_before() -> None:
    """The same printed second a year later is of the next year."""
    clock = Clock(REFERENCE, first_year=2020)
    stamps = [f"{month:02d}-01 00:00:00" for month in (1, 5, 9)] * 3
    years = [str(resolve(stamp, "month_day", clock))[:4] for stamp in stamps]
    assert years == ["2020"] * 3 + ["2021"] * 3 + ["2022"] * 3


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(5, 0)] * 3, [5 * NS, 5 * NS + 1, 5 * NS + 2]),
        ([(5, 0), (6, 0), (5, 0)], [5 * NS, 6 * NS, 5 * NS + 1]),
        ([(5, 454_000_000)] * 2, [5_454_000_000, 5_454_000_001]),
    ],
)
def test_times_of_one_second_ascend_by_ns(
    times: list[tuple[int, int]], expected: list[int]
) -> None:
    """Records of one printed time keep their order; no two of a stream have the same ns."""
    clock = Clock(REFERENCE)
    assert [clock.unique(*time) for time in times] == expected


@pytest.mark.parametrize(
    "fractions",
    [[2, 1], [0, 5, 4], [0, 0, 1], [1, 0, 0], [3, 0, 0, 0, 0], [999_999, 0, 1_000_000], [7] * 9],
)
def test_no_two_times_are_equal_however_fine_they_are_printed(fractions: list[int]) -> None:
    """Times printed to the ns, near to each other and in any order, stay different."""
    clock = Clock(REFERENCE)
    given = [clock.unique(5, fraction) for fraction in fractions]
    assert len(set(given)) == len(given)


@pytest.mark.parametrize(
    ("printed", "envelope", "offset"),
    [
        ("11-30 12:00:01", "2026-11-30T12:00:01.25", "12:00:02"),
        ("11-30 14:00:01", "2026-11-30T12:00:01.25", "12:00:02"),
        ("11-30 06:30:01", "2026-11-30T12:00:02.75", "12:00:02"),
        ("11-30 12:15:01", "2026-11-30T12:00:00", "12:00:02"),
    ],
)
def test_an_envelope_gives_the_fraction_and_tells_the_zone(
    printed: str, envelope: str, offset: str
) -> None:
    """A printed time that is whole quarter-hours off tells the zone of the process."""
    clock = Clock(REFERENCE)
    moment = datetime.fromisoformat(envelope).replace(tzinfo=UTC)
    nanoseconds = round(moment.timestamp() * NS)
    resolved = clock.resolve(printed, "month_day", "a")
    assert resolved is not None
    assert clock.enveloped(nanoseconds, resolved[0], "a") == nanoseconds
    later = f"{printed[:-1]}2"
    assert resolve(later, "month_day", clock, "a") == f"2026-11-30T{offset}Z"


@pytest.mark.parametrize("seconds", [3, -3, 450, 897])
def test_an_envelope_too_far_from_the_printed_time_is_not_taken(seconds: int) -> None:
    """More than two seconds beside a whole quarter-hour, the printed time stands."""
    clock = Clock(REFERENCE)
    assert clock.enveloped((1_796_000_000 + seconds) * NS, 1_796_000_000, "a") is None


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (1_796_083_200 * NS, "2026-12-01T00:00:00Z"),
        (1_796_083_199 * NS + 999_999_999, "2026-11-30T23:59:59.999999999Z"),
        (2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
    ],
)
def test_a_time_as_text_has_nine_decimals_or_none(time: int, text: str) -> None:
    """Times are RFC 3339 in UTC, whole seconds without decimals."""
    assert rfc3339(time) == text
