"""Records as NDJSON: one object a line."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from vllm_logpipe import LogRecord, Normalizer, encode_ndjson

RECORD = LogRecord(
    time_unix_nano=1_796_040_001_000_000_001,
    observed_time_unix_nano=1_796_083_200_000_000_000,
    severity_text="WARNING",
    severity_number=13,
    event_name="vllm.kv_cache.capacity",
    body="a made-up message",
    attributes_json='{"process.pid":7,"vllm.process.name":"EngineCore"}',
    resource_json='{"service.name":"vllm","service.instance.id":"0123456789abcdef"}',
)


def changed(**changes: str | int | None) -> LogRecord:
    """The record with other members."""
    return replace(RECORD, **changes)


def test_a_record_has_the_members_of_the_convention() -> None:
    """Names, order-free, as the page on names and shapes promises them."""
    assert json.loads(encode_ndjson([RECORD])) == {
        "timestamp": "2026-11-30T12:00:01.000000001Z",
        "observed_timestamp": "2026-12-01T00:00:00Z",
        "severity_text": "WARNING",
        "severity_number": 13,
        "event_name": "vllm.kv_cache.capacity",
        "body": "a made-up message",
        "attributes": {"process.pid": 7, "vllm.process.name": "EngineCore"},
        "resource": {"service.name": "vllm", "service.instance.id": "0123456789abcdef"},
    }


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"severity_text": None, "severity_number": None}, {"severity_text", "severity_number"}),
        ({"severity_text": None, "severity_number": 17}, {"severity_text"}),
        ({"severity_text": "NOTICE", "severity_number": None}, {"severity_number"}),
        ({"event_name": None}, {"event_name"}),
    ],
    ids=["no level", "no level text", "no level number", "no event"],
)
def test_what_is_not_known_is_left_out(
    changes: dict[str, str | int | None], absent: set[str]
) -> None:
    """A record without level or event has no such members, rather than null or a guess."""
    document = json.loads(encode_ndjson([changed(**changes)]))
    full = set(json.loads(encode_ndjson([RECORD])))
    assert full - set(document) == absent
    for name, value in changes.items():
        assert document.get(name) == value


def test_ids_are_put_out_where_there_are_any() -> None:
    """A trace id may stand without a span id."""
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    document = json.loads(encode_ndjson([changed(trace_id=trace_id)]))
    assert document["trace_id"] == trace_id
    assert "span_id" not in document
    document = json.loads(encode_ndjson([changed(trace_id=trace_id, span_id="b7ad6b7169203331")]))
    assert document["span_id"] == "b7ad6b7169203331"


@pytest.mark.parametrize(
    "body",
    ["", "two\nlines", 'quote " and \\', "\x00\x01\x1b\x7f", "ü 😀 \u2028", "x" * 1_000_000],
    ids=lambda body: repr(body[:20]),
)
def test_any_text_is_one_line_of_valid_json(body: str) -> None:
    """Line breaks and control characters are escaped; each record is one line, ended by LF."""
    data = encode_ndjson([changed(body=body)] * 3)
    lines = data.decode().split("\n")
    assert [json.loads(line)["body"] for line in lines[:-1]] == [body] * 3
    assert lines[-1] == ""


def test_no_records_are_no_bytes() -> None:
    """An empty batch puts out nothing."""
    assert encode_ndjson([]) == b""


def test_records_observed_at_different_times_say_so() -> None:
    """The time of observation is that of each record."""
    records = [changed(observed_time_unix_nano=second * 1_000_000_000) for second in (1, 2, 1)]
    seconds = [
        json.loads(line)["observed_timestamp"][17:] for line in encode_ndjson(records).splitlines()
    ]
    assert seconds == ["01Z", "02Z", "01Z"]


def test_attributes_can_be_read_without_json() -> None:
    """A record gives its attributes and resource as objects, too."""
    assert RECORD.attributes == {"process.pid": 7, "vllm.process.name": "EngineCore"}
    assert RECORD.resource["service.name"] == "vllm"


def test_a_record_of_the_normalizer_says_when_it_was_read() -> None:
    """`observed_timestamp` is near to now, though the log is old."""
    normalizer = Normalizer("test", year=2020)
    records = normalizer.feed(b"INFO 11-30 12:00:01 [a.py:1] x\n") + normalizer.flush()
    document = json.loads(encode_ndjson(records))
    assert document["timestamp"].startswith("2020-11-30")
    assert document["observed_timestamp"] > "2026-01-01"
