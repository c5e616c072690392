"""JSON mode: one object a line."""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime

import pytest

from vllm_logpipe import Catalogue, LogRecord, Normalizer, encode_ndjson, load_catalogue
from vllm_logpipe.model import AttributeValue

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
LINE: dict[str, object] = {
    "asctime": "2026-11-30 12:00:01,454",
    "levelname": "WARNING",
    "name": "vllm.v1.engine.core",
    "processName": "EngineCore_DP0",
    "process": 811,
    "message": "a made-up message",
    "vllm_process_name": "EngineCore",
}


@functools.cache
def catalogue() -> Catalogue:
    """The built-in catalogue, once."""
    return load_catalogue()


def normalize(data: str) -> list[LogRecord]:
    """The records of a stream."""
    normalizer = Normalizer("test", catalogue=catalogue(), reference=REFERENCE)
    return normalizer.feed(data.encode()) + normalizer.flush()


def one(**changes: object) -> LogRecord:
    """The one record of the line with some members changed, or taken out by `...`."""
    members = {key: value for key, value in {**LINE, **changes}.items() if value is not ...}
    (record,) = normalize(f"{json.dumps(members)}\n")
    return record


def test_a_line_gives_header_and_message() -> None:
    """Time to the ms, level, logger, pid and process name come from the members."""
    record = one()
    assert record.body == "a made-up message"
    assert (record.severity_text, record.severity_number) == ("WARNING", 13)
    assert json.loads(encode_ndjson([record]))["timestamp"] == "2026-11-30T12:00:01.454000000Z"
    attributes = record.attributes
    assert attributes.pop("log.record.uid")
    assert attributes == {
        "vllm.log.format": "json",
        "process.pid": 811,
        "vllm.process.name": "EngineCore",
        "vllm.process.kind": "engine_core",
        "vllm.log.logger.name": "vllm.v1.engine.core",
        "vllm.log.attribution": "printed",
        "vllm.log.time.source": "printed",
        "vllm.log.time.resolution": 0.001,
    }


@pytest.mark.parametrize("key", ["exc_info", "stack_info"])
def test_a_traceback_is_part_of_the_body(key: str) -> None:
    """`exc_info` and `stack_info` follow the message, each on lines of its own."""
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bad'
    assert one(**{key: trace}).body == f"a made-up message\n{trace}"
    alone = one(**{key: trace, "message": ""})
    assert alone.body == trace
    assert alone.attributes["exception.type"] == "ValueError"
    assert one(**{key: None}).body == one(**{key: ""}).body == "a made-up message"


def test_the_multiprocessing_name_stands_in_for_the_own_one() -> None:
    """Without `vllm_process_name` the name is `processName`."""
    attributes = one(vllm_process_name=...).attributes
    assert attributes["vllm.process.name"] == "EngineCore_DP0"
    assert attributes["vllm.rank.dp"] == 0


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"process": ...}, "process.pid"),
        ({"process": None}, "process.pid"),
        ({"process": "811"}, "process.pid"),
        ({"process": True}, "process.pid"),
        ({"process": -1}, "process.pid"),
        ({"process": 1.5}, "process.pid"),
        ({"process": 2**70}, "process.pid"),
        ({"name": ...}, "vllm.log.logger.name"),
        ({"name": 5}, "vllm.log.logger.name"),
        ({"vllm_process_name": ..., "processName": ...}, "vllm.process.name"),
        ({"vllm_process_name": 5, "processName": []}, "vllm.process.name"),
    ],
    ids=repr,
)
def test_a_member_that_is_missing_or_of_another_type_gives_nothing(
    changes: dict[str, object], absent: str
) -> None:
    """Members that are not what they should be leave the rest of the record whole."""
    record = one(**changes)
    assert absent not in record.attributes
    assert record.body == "a made-up message"


@pytest.mark.parametrize("name", ["a\nb", "\n", 'q"uote', "\x00", "ü" * 500])
def test_a_process_may_have_any_name(name: str) -> None:
    """A name of no known shape is kept as it is."""
    attributes = one(vllm_process_name=name).attributes
    assert attributes["vllm.process.name"] == name
    assert attributes["vllm.process.kind"] == "other"


@pytest.mark.parametrize(
    "asctime",
    [..., None, 5, "", "yesterday", "2026-13-01 00:00:00,000", "2026-11-30 24:00:00,000"],
    ids=repr,
)
def test_a_line_without_a_valid_time_takes_that_of_its_neighbour(asctime: object) -> None:
    """A time that is none counts as not printed."""
    odd = {**LINE, "asctime": asctime, "message": "odd"}
    lines = [LINE, {key: value for key, value in odd.items() if value is not ...}]
    first, second = normalize("".join(f"{json.dumps(line)}\n" for line in lines))
    assert second.time_unix_nano == first.time_unix_nano + 1
    assert second.attributes["vllm.log.time.source"] == "previous_record"
    assert second.attributes["vllm.log.attribution"] == "inferred"


@pytest.mark.parametrize(
    "asctime",
    ["1969-12-31 23:59:59,000", "0001-01-01 00:00:00,000", "9999-12-31 23:59:59,999"],
)
def test_a_time_out_of_our_era_loses_no_record(asctime: str) -> None:
    """A clock that is far off does not hold up its own record nor those after it."""
    lines = [{**LINE, "asctime": asctime, "message": "odd"}, LINE]
    records = normalize("".join(f"{json.dumps(line)}\n" for line in lines) + "raw\n")
    assert [record.body for record in records] == ["odd", "a made-up message", "raw"]
    assert all(0 <= record.time_unix_nano < 2**63 for record in records)


@pytest.mark.parametrize("asctime", ["2026-11-30 12:00:01", "2026-11-30T12:00:01.000"])
def test_other_notations_of_the_time_are_read(asctime: str) -> None:
    """A formatter with another date format is understood, too."""
    record = one(asctime=asctime)
    assert record.attributes["vllm.log.time.source"] == "printed"
    assert record.time_unix_nano == 1_796_040_001_000_000_000


@pytest.mark.parametrize(
    ("level", "number"),
    [("DEBUG", 5), ("info", 9), ("WARN", 13), ("ERROR", 17), ("CRITICAL", 21), ("FATAL", 21)],
)
def test_a_level_gives_the_severity(level: str, number: int) -> None:
    """The level is kept as printed and has its OpenTelemetry number."""
    document = json.loads(encode_ndjson([one(levelname=level)]))
    assert (document["severity_text"], document["severity_number"]) == (level, number)


@pytest.mark.parametrize("level", ["NOTICE", "", 'x"y\n', "Level 25"])
def test_a_level_of_ones_own_is_kept_without_a_number(level: str) -> None:
    """A level that OpenTelemetry has no number for is kept as printed, in valid JSON."""
    document = json.loads(encode_ndjson([one(levelname=level)]))
    assert "severity_number" not in document
    assert document.get("severity_text", "") == level


def test_other_members_are_kept() -> None:
    """What a formatter adds is kept as one JSON text."""
    extra: dict[str, object] = {"request_id": "r-1", "n": [1, 2.5, None], "deep": {"a": "ü\n"}}
    text = one(**extra).attributes["vllm.log.extra"]
    assert json.loads(str(text)) == extra
    huge = one(n=10**30).attributes["vllm.log.extra"]
    assert json.loads(str(huge)) == {"n": 10**30}
    assert "vllm.log.extra" not in one(color_message="\x1b[1mx").attributes


def test_secrets_in_other_members_are_replaced() -> None:
    """What a formatter adds is redacted as the body is."""
    record = one(api_key="sk-made-up-0123456789", message="key sk-made-up-0123456789")
    assert "0123456789" not in record.attributes_json + record.body


def test_a_trace_context_goes_into_its_own_fields() -> None:
    """`trace_id` and `span_id` are the record's, not attributes."""
    record = one(trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331")
    document = json.loads(encode_ndjson([record]))
    assert document["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert document["span_id"] == "b7ad6b7169203331"
    assert "vllm.log.extra" not in document["attributes"]


@pytest.mark.parametrize("value", ["", "none", "0", 0, None, "0af7651916cd43dd", "z" * 32])
def test_what_is_no_trace_id_is_none(value: object) -> None:
    """Only 32 hex digits are a trace id: receivers refuse a whole batch for anything else."""
    record = one(trace_id=value, span_id="none")
    assert (record.trace_id, record.span_id) == (None, None)


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "{",
        '{"message": "m"}',
        '{"levelname": "INFO"}',
        '{"message": 5, "levelname": "INFO"}',
        '{"message": "m", "levelname": 20}',
        '{"message": "m", "levelname": "INFO"',
        '{"message": "m", "levelname": "INFO"} x',
        '{"message": "\\ud800", "levelname": "INFO"}',
        '["message", "levelname"]',
        "{'message': 'm', 'levelname': 'INFO'}",
        '{"message": "m", "levelname": "INFO", "x": NaN}',
        '{"a":' * 20_000,
    ],
    ids=lambda line: line[:40],
)
def test_a_line_that_is_no_such_object_is_raw(line: str) -> None:
    """Other JSON, broken JSON and deep nesting are text like any other."""
    (record,) = normalize(f"{line}\n")
    assert record.attributes["vllm.log.format"] == "raw"
    assert record.body == line


def test_json_and_text_lines_mix() -> None:
    """Native lines stay text in JSON mode; each record keeps its own format."""
    records = normalize(
        f"{json.dumps(LINE)}\nnode:8:9 [0] NCCL INFO x\nraw\n(A pid=1) {json.dumps(LINE)}\n"
    )
    formats: list[AttributeValue] = [record.attributes["vllm.log.format"] for record in records]
    assert formats == ["json", "nccl", "raw", "json"]
