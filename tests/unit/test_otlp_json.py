"""Records as OTLP/JSON, read back with the official message definitions."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from google.protobuf.json_format import Parse
from msgspec.structs import replace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as OtlpRecord

from vllm_logpipe import LogRecord, Normalizer, __version__, encode_otlp_json
from vllm_logpipe.semconv import SCHEMA_URL

ATTRIBUTES = {
    "text": "ü\n",
    "empty": "",
    "int": 7,
    "large": 2**63 - 1,
    "negative": -1,
    "zero": 0,
    "double": 0.5,
    "whole": 1.0,
    "tiny": 1e-9,
    "true": True,
    "false": False,
    "texts": ["a", ""],
    "ints": [1, -2],
    "doubles": [0.0, 1.5],
    "none": [],
}
RECORD = LogRecord(
    time_unix_nano=1_796_040_001_000_000_001,
    observed_time_unix_nano=1_796_083_200_000_000_000,
    severity_text="WARNING",
    severity_number=13,
    event_name="vllm.kv_cache.capacity",
    body="two\nlines",
    attributes_json=json.dumps(ATTRIBUTES),
    resource_json='{"service.name":"vllm","service.instance.id":"a"}',
)


def parse(*records: LogRecord) -> ExportLogsServiceRequest:
    """What a receiver reads."""
    data = encode_otlp_json(records)
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    request = ExportLogsServiceRequest()
    Parse(data, request)
    return request


def changed(**changes: str | int | None) -> LogRecord:
    """The record with other members."""
    return replace(RECORD, **changes)


def value(given: AnyValue) -> tuple[str, object]:
    """The kind of a value, and the value."""
    kind = given.WhichOneof("value")
    assert kind is not None
    if kind == "array_value":
        return kind, [value(item) for item in given.array_value.values]
    return kind, getattr(given, kind)


def values(pairs: list[KeyValue]) -> Mapping[str, tuple[str, object]]:
    """Kinds and values by key; no key stands twice."""
    found = {pair.key: value(pair.value) for pair in pairs}
    assert len(found) == len(pairs)
    return found


def only(request: ExportLogsServiceRequest) -> OtlpRecord:
    """The one record of a request."""
    (resource,) = request.resource_logs
    (scope,) = resource.scope_logs
    assert len(scope.log_records) == 1
    record: OtlpRecord = scope.log_records[0]
    return record


def test_the_fields_of_a_record_arrive() -> None:
    """Times, severity, event name and body stand in the fields of the protocol."""
    record = only(parse(RECORD))
    assert record.time_unix_nano == RECORD.time_unix_nano
    assert record.observed_time_unix_nano == RECORD.observed_time_unix_nano
    assert (record.severity_number, record.severity_text) == (13, "WARNING")
    assert record.event_name == "vllm.kv_cache.capacity"
    assert value(record.body) == ("string_value", "two\nlines")
    assert (record.trace_id, record.span_id) == (b"", b"")


def test_every_attribute_keeps_its_type() -> None:
    """Texts, integers, doubles, booleans and arrays are told apart, whole doubles too."""
    kinds = {str: "string_value", int: "int_value", float: "double_value", bool: "bool_value"}
    found = values(list(only(parse(RECORD)).attributes))
    assert found == {
        key: ("array_value", [(kinds[type(item)], item) for item in given])
        if isinstance(given, list)
        else (kinds[type(given)], given)
        for key, given in ATTRIBUTES.items()
    }


def test_scope_and_schema_are_stated() -> None:
    """Each group names this package, its version, and the version of the conventions."""
    (resource,) = parse(RECORD).resource_logs
    (scope,) = resource.scope_logs
    assert (scope.scope.name, scope.scope.version) == ("vllm_logpipe", __version__)
    assert resource.schema_url == scope.schema_url == SCHEMA_URL
    assert values(list(resource.resource.attributes)) == {
        "service.name": ("string_value", "vllm"),
        "service.instance.id": ("string_value", "a"),
    }


def test_records_are_grouped_by_resource() -> None:
    """Records of one resource share a group, in their order."""
    other = RECORD.resource_json.replace('"a"', '"b"')
    request = parse(
        changed(body="1"), changed(body="2", resource_json=other), changed(body="3"), RECORD
    )
    groups = [
        [value(record.body)[1] for record in resource.scope_logs[0].log_records]
        for resource in request.resource_logs
    ]
    assert groups == [["1", "3", "two\nlines"], ["2"]]


@pytest.mark.parametrize("member", ["severity_text", "severity_number", "event_name"])
def test_what_is_not_known_is_left_out(member: str) -> None:
    """A receiver need not know what null means: members without a value are absent."""
    data = encode_otlp_json([changed(**{member: None})])
    assert b"null" not in data
    parts = member.split("_")
    assert f'"{parts[0]}{parts[1].title()}"'.encode() not in data
    assert getattr(only(parse(changed(**{member: None}))), member) in ("", 0)


def test_an_empty_body_arrives_as_an_empty_text() -> None:
    """An empty message is a text, not a missing one."""
    assert value(only(parse(changed(body=""))).body) == ("string_value", "")


def test_ids_are_hex_as_the_protocol_says() -> None:
    """In OTLP/JSON trace and span ids are hex texts, unlike other bytes."""
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    document = json.loads(encode_otlp_json([changed(trace_id=trace_id, span_id=span_id)]))
    record = document["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    assert (record["traceId"], record["spanId"]) == (trace_id, span_id)


def test_integers_of_64_bits_are_texts() -> None:
    """JSON numbers lose digits above 2^53, so the protocol has integers as texts."""
    document = json.loads(encode_otlp_json([RECORD]))
    record = document["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    assert record["timeUnixNano"] == "1796040001000000001"
    found = {pair["key"]: pair["value"] for pair in record["attributes"]}
    assert found["large"] == {"intValue": "9223372036854775807"}


def test_no_records_are_no_bytes() -> None:
    """An empty batch makes no request."""
    assert encode_otlp_json([]) == b""


def test_records_of_a_real_stream_arrive_whole() -> None:
    """What the normaliser makes of mixed lines is read back field by field."""
    normalizer = Normalizer("test", reference=1_796_083_200.0)
    data = (
        "raw\n"
        "(EngineCore pid=7) INFO 11-30 12:00:01 [core.py:5] GPU KV cache size: 48,704 tokens\n"
        '(APIServer pid=3) INFO:     192.0.2.1:1 - "GET /v1/models?a=b HTTP/1.1" 200 OK\n'
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: bad\n'
    )
    records = normalizer.feed(data.encode()) + normalizer.flush()
    (resource,) = parse(*records).resource_logs
    arrived = list(resource.scope_logs[0].log_records)
    assert len(arrived) == len(records) == 4
    for record, otlp in zip(records, arrived, strict=True):
        assert otlp.time_unix_nano == record.time_unix_nano
        assert otlp.severity_number == (record.severity_number or 0)
        assert otlp.event_name == (record.event_name or "")
        assert value(otlp.body)[1] == record.body
        found = {key: item for key, (_, item) in values(list(otlp.attributes)).items()}
        assert found == record.attributes
