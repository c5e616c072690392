"""The normaliser as a whole: times, identity, options and streams that are still growing."""

from __future__ import annotations

import functools
import json
import time
from datetime import UTC, datetime

import pytest

from vllm_logpipe import Catalogue, LogRecord, Normalizer, encode_ndjson, load_catalogue

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
A = "INFO 11-30 12:00:01 [a.py:1] "
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bad'


@functools.cache
def catalogue() -> Catalogue:
    """The built-in catalogue, once."""
    return load_catalogue()


def normalize(
    data: str | bytes,
    *,
    year: int | None = None,
    timezone: str | None = None,
    reference: str = "2026-12-01 00:00:00",
    original: bool = False,
) -> list[LogRecord]:
    """The records of a stream."""
    normalizer = Normalizer(
        "test",
        catalogue=catalogue(),
        year=year,
        timezone=timezone,
        reference=datetime.fromisoformat(reference).replace(tzinfo=UTC).timestamp(),
        original=original,
    )
    raw = data.encode() if isinstance(data, str) else data
    return normalizer.feed(raw) + normalizer.flush()


def times(records: list[LogRecord]) -> list[str]:
    """The times of records, as they are put out."""
    return [json.loads(encode_ndjson([record]))["timestamp"] for record in records]


def headed(*stamps: str, process: str = "") -> str:
    """A stream of one record a printed time, each from a call site of its own."""
    return "".join(
        f"{process}INFO {stamp} [a.py:{number}] x\n" for number, stamp in enumerate(stamps)
    )


NEW_YEAR = headed("12-31 23:59:58", "12-31 23:59:59", "01-01 00:00:00", "01-01 00:00:01")


@pytest.mark.parametrize(
    ("year", "reference", "first"),
    [
        (None, "2027-01-01 00:00:05", 2026),
        (None, "2027-06-01 00:00:00", 2026),
        (None, "2026-12-31 23:59:59", 2026),
        (2019, "2027-01-01 00:00:05", 2019),
        (2030, "2027-01-01 00:00:05", 2030),
    ],
)
def test_a_log_goes_over_new_year(year: int | None, reference: str, first: int) -> None:
    """December lines are of the year before January ones; a given year is that of the first."""
    assert times(normalize(NEW_YEAR, year=year, reference=reference)) == [
        f"{first}-12-31T23:59:58Z",
        f"{first}-12-31T23:59:59Z",
        f"{first + 1}-01-01T00:00:00Z",
        f"{first + 1}-01-01T00:00:01Z",
    ]


def test_a_year_counts_on_over_several_new_years() -> None:
    """A log with a line a month goes on over years, also where a printed time comes again."""
    months = [f"{month:02d}-01 00:00:00" for month in range(1, 13)]
    found = times(normalize(headed(*months, *months, *months), year=2020))
    assert [text[:7] for text in found] == [
        f"{year}-{month:02d}" for year in (2020, 2021, 2022) for month in range(1, 13)
    ]


def test_a_leap_day_that_the_year_has_not_is_told() -> None:
    """A 02-29 is of the nearest leap year, and the caller is warned once."""
    normalizer = Normalizer("test", catalogue=catalogue(), year=2027, reference=REFERENCE)
    records = normalizer.feed(headed("02-29 12:00:00", "02-29 12:00:01").encode())
    records += normalizer.flush()
    assert [text[:10] for text in times(records)] == ["2028-02-29"] * 2
    assert len(normalizer.warnings) == 1
    assert "02-29" in normalizer.warnings[0]


@pytest.mark.parametrize(
    "processes",
    [("(EngineCore pid=7) ", "(Worker pid=8) "), ("", ""), ("(EngineCore pid=7) ", "")],
    ids=["two", "none", "mixed"],
)
def test_the_hour_that_repeats_keeps_the_order_of_a_process(processes: tuple[str, str]) -> None:
    """At the end of summer time a process that steps back is in the second pass of the hour."""
    first, second = (
        headed("10-25 02:40:00", "10-25 02:59:59", "10-25 02:00:00", "10-25 02:30:00", process=p)
        for p in processes
    )
    expected = ["00:40:00", "00:59:59", "01:00:00", "01:30:00"]
    for data in (first, second):
        found = times(normalize(data, year=2026, timezone="Europe/Berlin"))
        assert [text[11:19] for text in found] == expected
    if processes[0] != processes[1]:
        mixed = "".join(
            f"{one}\n{two}\n"
            for one, two in zip(first.splitlines(), second.splitlines(), strict=True)
        )
        found = times(normalize(mixed, year=2026, timezone="Europe/Berlin"))
        assert [text[11:19] for text in found] == [text for text in expected for _ in range(2)]


def test_records_of_one_printed_second_ascend() -> None:
    """Headed, raw, JSON and access lines of one second have different ns, in their order."""
    line = '{"asctime": "2026-11-30 12:00:01,000", "levelname": "INFO", "message": "m"}'
    data = f"{A}x\nraw\nINFO:     Shutting down\n{A.replace('a.py', 'b.py')}x\n{line}\n" * 50
    records = normalize(data)
    nanoseconds = [record.time_unix_nano for record in records]
    assert len(records) == 250
    assert nanoseconds == sorted(set(nanoseconds))
    assert {text[:19] for text in times(records)} == {"2026-11-30T12:00:01"}


def test_lines_before_the_first_time_take_it() -> None:
    """Leading lines without a time have that of the first dated record, and come before it."""
    records = normalize(f"one\ntwo\nINFO:     three\n{A}x\nfour\n")
    assert [text[:19] for text in times(records)] == ["2026-11-30T12:00:01"] * 5
    assert [record.time_unix_nano % 1000 for record in records] == [0, 1, 2, 3, 4]
    assert [record.attributes["vllm.log.time.source"] for record in records] == [
        *["next_record"] * 3,
        "printed",
        "previous_record",
    ]
    assert [record.attributes["vllm.log.attribution"] for record in records] == [
        *["inferred"] * 3,
        "printed",
        "inferred",
    ]


def test_a_stream_without_any_time_has_that_of_its_reference() -> None:
    """A file of which no line is dated is as old as the file says."""
    records = normalize("one\ntwo\n")
    assert times(records) == ["2026-12-01T00:00:00Z", "2026-12-01T00:00:00.000000001Z"]
    assert {record.attributes["vllm.log.time.source"] for record in records} == {"observed"}


def test_many_lines_before_the_first_time_do_not_wait_for_ever() -> None:
    """A stream that begins with hundreds of undated lines gives them before a dated one comes."""
    normalizer = Normalizer("test", catalogue=catalogue(), reference=REFERENCE)
    early = normalizer.feed(b"x\n" * 1_000)
    assert len(early) > 500
    assert len(early) + len(normalizer.feed(f"{A}x\n".encode()) + normalizer.flush()) == 1_001


def test_an_undated_line_takes_the_time_of_its_own_process() -> None:
    """With a process prefix the record before of the same process tells the time."""
    engine = "(EngineCore pid=7) "
    worker = "(Worker pid=8) "
    records = normalize(
        f"{engine}{A}x\n{worker}{A.replace('12:00', '12:30')}y\n{engine}raw\n{worker}raw\nraw\n"
    )
    assert [text[11:16] for text in times(records)] == ["12:00", "12:30", "12:00", "12:30", "12:30"]


def test_an_undated_line_of_a_live_stream_happened_just_now() -> None:
    """Live, a line without a time has the time of observation, also after a dated one."""
    before = time.time_ns()
    normalizer = Normalizer("test", catalogue=catalogue(), live=True, year=2020)
    records = normalizer.feed(f"raw 1\n{A}x\nraw 2\n".encode()) + normalizer.flush()
    found = {record.body: record for record in records}
    assert times([found["x"]])[0].startswith("2020-11-30T12:00:01")
    for body in ("raw 1", "raw 2"):
        assert before <= found[body].time_unix_nano <= time.time_ns()
        assert found[body].attributes["vllm.log.time.source"] == "observed"


def test_a_complete_record_of_a_live_stream_waits_for_a_pause_at_most() -> None:
    """What may still go on is held back; a pause puts it out, once."""
    normalizer = Normalizer("test", catalogue=catalogue(), live=True)
    data = f"{A}one\n{A}  two\nINFO:     three\n{TRACE}\n"
    early = normalizer.feed(data.encode())
    assert [record.body for record in early] == []
    records = normalizer.expire()
    assert [record.body for record in records] == ["one\n  two", "three", TRACE]
    assert normalizer.expire() == normalizer.flush() == []


def test_a_line_after_a_pause_is_a_record_of_its_own() -> None:
    """What was put out in a pause is not changed by what comes later."""
    normalizer = Normalizer("test", catalogue=catalogue(), live=True)
    assert len(normalizer.feed(f"{A}one\n".encode()) + normalizer.expire()) == 1
    records = normalizer.feed(f"{A}  two\n".encode()) + normalizer.flush()
    assert [record.body for record in records] == ["  two"]


def test_a_replay_gives_the_same_uids() -> None:
    """A second reading of the same bytes gives the same uids; another source gives others."""
    data = f"raw\n{A}one\r\n{A}two\n{TRACE}\n\xff".encode()
    found = [
        [str(record.attributes["log.record.uid"]) for record in records]
        for source in ("a", "a", "b")
        for normalizer in [Normalizer(source, catalogue=catalogue(), reference=REFERENCE)]
        for records in [normalizer.feed(data) + normalizer.flush()]
    ]
    assert found[0] == found[1]
    assert not set(found[0]) & set(found[2])


@pytest.mark.parametrize(
    "data", [b"\xff\xff\rB\nC\nD\nE\n", b"\xff\xfe\xfd\r\xff\r\xffx\n" + b"1\n" * 30]
)
def test_uids_are_different_also_where_bytes_are_no_text(data: bytes) -> None:
    """An escape is longer than its byte: offsets count bytes."""
    records = normalize(data)
    uids = [record.attributes["log.record.uid"] for record in records]
    assert len(set(uids)) == len(uids)


@pytest.mark.parametrize(
    "data",
    [
        f"{A}one\n",
        f"{A}one\n{A}  two\n{A}\n{A}three\n",
        f"(EngineCore pid=7) {A}one\n(EngineCore pid=7) {A} two\n",
        'INFO:     192.0.2.1:1 - "GET /health HTTP/1.1" 200 OK\n',
        "raw\n",
        "(Worker pid=8) raw\n",
        f"{TRACE}\n",
        "".join(f"(Worker pid=8) {line}\n" for line in TRACE.split("\n")),
        "[rank0]:[E1012 22:31:22.267261276 ProcessGroupNCCL.cpp:607] x\n",
        "/opt/a/b.py:138: FutureWarning: old\n  f()\n",
        "Making up data:  50%|█████     | 1/2 [00:01<00:01]\n",
    ],
)
def test_an_original_is_what_was_printed(data: str) -> None:
    """`log.record.original` has the physical lines, headers and prefixes included."""
    (record,) = normalize(data, original=True)
    assert record.attributes["log.record.original"] == data.removesuffix("\n")
    assert "log.record.original" not in normalize(data)[0].attributes


def test_an_original_is_redacted() -> None:
    """What must not leave does not leave in the original either."""
    (record,) = normalize(f"{A}the key is sk-made-up-0123456789\n", original=True)
    assert record.attributes["log.record.original"] == f"{A}the key is [redacted]"


def test_options_that_are_none_are_refused() -> None:
    """An unknown zone or redaction field raises ValueError."""
    with pytest.raises(ValueError, match="unknown time zone"):
        Normalizer(catalogue=catalogue(), timezone="Mars/Base")
    with pytest.raises(ValueError, match="unknown redaction field"):
        Normalizer(catalogue=catalogue(), keep=["everything"])
    with pytest.raises(ValueError, match="unknown redaction field"):
        Normalizer(catalogue=catalogue(), redact=["prompt"])


def test_an_empty_stream_gives_nothing() -> None:
    """No bytes, no records; the end may come twice."""
    normalizer = Normalizer(catalogue=catalogue())
    assert normalizer.feed(b"") == normalizer.expire() == normalizer.flush() == []
    assert normalizer.flush() == []
