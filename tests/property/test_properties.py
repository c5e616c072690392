"""What holds for any stream: nothing crashes, nothing is lost, and every reading says the same."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from google.protobuf.json_format import Parse
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from vllm_logpipe import (
    Catalogue,
    LogRecord,
    Normalizer,
    encode_ndjson,
    encode_otlp_json,
    load_catalogue,
)
from vllm_logpipe.fold import Folder
from vllm_logpipe.semconv import ATTRIBUTES
from vllm_logpipe.sinks.text import encode_text

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
TYPES = {attribute.name: attribute.type for attribute in ATTRIBUTES}
RESOURCE = {"service.name", "service.instance.id", "service.version"}
PYTHON_TYPES: dict[str, type] = {"string": str, "int": int, "double": float, "boolean": bool}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{9})?Z", re.ASCII)

BAR = "{m}:  50%|#####     | 1/2 [00:01<00:01,  1.20s/it]"
FULL_BAR = "{m}: 100%|##########| 2/2 [00:01<00:00]"
LINES = [
    # Headers of all releases; {m} is a word that must not get lost, {s} a second.
    "INFO 11-30 12:00:0{s} a.py:1] {m}",
    "INFO 11-30 12:00:0{s} [a.py:1] {m}",
    "ERROR 11-30 12:00:0{s} [a.py:1]   {m}",
    "INFO 11-30 12:00:0{s} [a.py:1] ",
    "INFO 11-30 12:00:0{s} [a.py:1]",
    "WARNING 12-31 23:59:5{s} [b.py:2] {m}",
    "CRITICAL 01-01 00:00:0{s} [b.py:2] {m}",
    "INFO 02-29 12:00:0{s} [b.py:2] {m}",
    "INFO 13-45 25:00:0{s} [b.py:2] {m}",
    "(EngineCore_DP0 pid=7) ERROR 11-30 12:00:0{s} [core.py:5] {m}",
    "(EngineCore_DP0 pid=7) ERROR 11-30 12:00:0{s} [core.py:5] Traceback (most recent call last):",
    '(EngineCore_DP0 pid=7) ERROR 11-30 12:00:0{s} [core.py:5]   File "{m}.py", line 1, in f',
    "(EngineCore_DP0 pid=7) ERROR 11-30 12:00:0{s} [core.py:5] ValueError: {m}",
    "(VllmWorker rank=1 pid=8) INFO 11-30 12:00:0{s} [core.py:5] {m}",
    "(A pid=1) (B pid=2) INFO 11-30 12:00:0{s} [a.py:1] {m}",
    "(RayWorkerWrapper pid=12, ip=192.0.2.2) INFO 11-30 12:00:0{s} [a.py:1] {m}",
    "[llm-a] INFO 11-30 12:00:0{s} [a.py:1] {m}",
    "INFO 11-30 12:00:0{s} [a.py:1] vLLM API server version 0.8.5",
    "INFO 11-30 12:00:0{s} [a.py:1] GPU KV cache size: 48,704 tokens {m}",
    "INFO 11-30 12:00:0{s} [a.py:1] Added request {m}.",
    "INFO 11-30 12:00:0{s} [a.py:1] one\r{m}",
    "\x1b[0;36m(A pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m 11-30 12:00:0{s} [a.py:1] \x1b[1m{m}\x1b[0m",
    # uvicorn, JSON mode, and the neighbours.
    "INFO:     {m}",
    'INFO:     192.0.2.1:1 - "GET /{m}?a=b HTTP/1.1" 200 OK',
    'INFO:     192.0.2.1:1 - "GET /{m} HTTP/1.1" 200 OK',
    "ERROR:    Exception in ASGI application {m}",
    '{{"asctime": "2026-11-30 12:00:0{s},5", "levelname": "INFO", "message": "{m}"}}',
    '{{"levelname": "INFO", "message": "", "exc_info": "Traceback {m}", "process": true}}',
    '{{"levelname": "NOTICE", "message": "a", "x": "{m}", "process": 7, "processName": "a\\nb"}}',
    '{{"asctime": "1969-12-31 23:59:59,0", "levelname": "INFO", "message": "{m}"}}',
    '{{"levelname": "INFO", "message": "{m}", "trace_id": "none", "n": 1e400}}',
    '{{"message": "{m}"',
    "[rank0]:[E1012 22:31:22.00000000{s} ProcessGroupNCCL.cpp:607] {m}",
    "[rank0]:V0915 12:00:01.12300{s} 811 torch/a.py:1250] {m}",
    "node-1:811:1024 [0] NCCL INFO {m}",
    "[1969-10-12 22:31:22] node-1:811:1024 [0] NCCL WARN {m}",
    "[STATS] {m}: 1.5",
    "/opt/a/b.py:138: FutureWarning: {m}",
    "  warnings.warn({m})",
    # Tracebacks without headers, with and without a process.
    "Process EngineCore_DP0:",
    "Process {m}:",
    "Traceback (most recent call last):",
    '  File "{m}.py", line 1, in f',
    "    {m}()",
    "ValueError: {m}",
    "The above exception was the direct cause of the following exception:",
    "(A pid=1) Traceback (most recent call last):",
    "(A pid=1)   File {m}",
    "(A pid=1) KeyError: {m}",
    "  + Exception Group Traceback (most recent call last):",
    # Bars: each has a description of its own, and may have something glued to it.
    BAR,
    FULL_BAR,
    f"\r{FULL_BAR}\r",
    f"\r{BAR}\r{FULL_BAR}",
    f"(A pid=1) \r{BAR}",
    f"(A pid=1) {FULL_BAR}{{m}}\rpart{{m}}",
    f"(A pid=1) {BAR}123456789\r{{m}}",
    f"{BAR}(EngineCore_DP0 pid=7) INFO 11-30 12:00:0{{s}} [core.py:5] {{m}}",
    f"{BAR}INFO:     {{m}}",
    "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.20s/it]{m}",
    # Text that is nothing, or pretends to be something.
    "",
    "   ",
    "(A pid=1) ",
    "\x1b[A",
    "{m}",
    "  {m}",
    "{m}\r",
    "{m}\rINFO 11-30 12:00:0{s} [a.py:1] {m}",
    "\x00{m}\x00",
    "\udcff\udcfe{m}\r\udcff{m}",
    "(A\rB pid=7) INFO 11-30 12:00:0{s} [a.py:1] {m}",
    "{m} %|[ 50%| ]: 1/2 [<",
    "{m}" + "x" * 70_000,
    "(A pid=1) " * 300 + "{m}",
    "\r" * 2_000 + "{m}",
    "{m} ü 😀 \u2028 \x85 \x0b",
]
PIECES = ["\x1b[", "\x1b]", "\x1b", "\x07", "\udcff", "\udced\udca0\udc80", "\x00", "w", "%|"]
ENDS = ["\n", "\n", "\n", "\r\n", "\r\r\n", "\n\n"]

lines = st.lists(
    st.tuples(st.sampled_from(LINES), st.integers(0, 3), st.sampled_from(ENDS)), max_size=25
)
pieces = st.sampled_from(
    [*(line.format(m="w", s=1) for line in LINES), *ENDS, *PIECES, "\r", '"', "{", "}", ": ", "] "]
)
stream = st.one_of(
    st.binary(max_size=400),
    lines.map(lambda chosen: build(chosen)[0]),
    st.lists(pieces, max_size=15).map(lambda chosen: raw("".join(chosen))),
)
everything = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def raw(text: str) -> bytes:
    """The bytes of a text; lone surrogates stand for bytes that are no UTF-8."""
    return text.encode(errors="surrogateescape")


def build(chosen: list[tuple[str, int, str]]) -> tuple[bytes, list[str]]:
    """A stream of lines, and the words in it that must not get lost."""
    words: list[str] = []
    text = ""
    for number, (line, second, end) in enumerate(chosen):
        word = f"w{number:03d}z"
        if "{m}" in line:
            words.append(word)
        text += line.format(m=word, s=second) + end
    return raw(text), words


@functools.cache
def catalogue() -> Catalogue:
    """The built-in catalogue, once."""
    return load_catalogue()


def normalize(data: bytes, cuts: list[int] | None = None) -> list[LogRecord]:
    """The records of a stream that comes in pieces, less the time of observation."""
    normalizer = Normalizer("test", catalogue=catalogue(), reference=REFERENCE)
    points = sorted(cut % (len(data) + 1) for cut in cuts or [])
    records = [
        record
        for start, end in zip([0, *points], [*points, len(data)], strict=True)
        for record in normalizer.feed(data[start:end])
    ]
    records += normalizer.flush()
    return [replace(record, observed_time_unix_nano=0) for record in records]


@given(stream)
@everything
def test_nothing_crashes_and_every_form_of_output_is_valid(data: bytes) -> None:
    """Whatever comes in, each record comes out as JSON, as OTLP, and as one line of text."""
    records = normalize(data)
    encoded = encode_ndjson(records).decode().split("\n")
    assert len(encoded) == len(records) + 1
    for line in encoded[:-1]:
        document = json.loads(line, object_pairs_hook=unique, parse_constant=refuse)
        assert TIME.fullmatch(str(document["timestamp"]))
        assert isinstance(document["body"], str)
    if records:
        Parse(encode_otlp_json(records), ExportLogsServiceRequest())
    assert encode_text(records).count(b"\n") == len(records)


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object, each of whose keys stands once."""
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def refuse(constant: str) -> None:
    """JSON knows no NaN and no infinity."""
    raise AssertionError(constant)


@given(stream)
@everything
def test_attributes_are_declared_and_have_their_type(data: bytes) -> None:
    """Every attribute is one of `semconv`, and its value is of the declared type."""
    for record in normalize(data):
        attributes: dict[str, object] = json.loads(record.attributes_json)
        for name, value in attributes.items():
            declared = TYPES[name]
            items = value if isinstance(value, list) else [value]
            assert isinstance(value, list) == declared.endswith("[]"), (name, value)
            expected = PYTHON_TYPES[declared.removesuffix("[]")]
            assert all(type(item) is expected for item in items), (name, value)
            assert all(-(2**63) <= item < 2**63 for item in items if isinstance(item, int))
        assert {"vllm.log.format", "vllm.log.time.source", "log.record.uid"} <= set(attributes)
        assert set(record.resource) <= RESOURCE
        assert record.resource["service.instance.id"]


@given(stream)
@everything
def test_times_and_uids_are_unique_in_a_stream(data: bytes) -> None:
    """Every record has a time that 64 bits can tell; no two share a time or a uid."""
    records = normalize(data)
    assert all(0 <= record.time_unix_nano < 2**63 for record in records)
    assert repeated(record.time_unix_nano for record in records) == []
    assert repeated(str(record.attributes["log.record.uid"]) for record in records) == []


def repeated(values: Iterable[object]) -> list[object]:
    """The values that stand more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


@given(stream, st.lists(st.integers(0, 2**31), max_size=5))
@everything
def test_it_does_not_matter_where_the_bytes_were_cut(data: bytes, cuts: list[int]) -> None:
    """Read in any pieces, and read again, a stream gives the same records."""
    assert normalize(data, cuts) == normalize(data)


@given(lines)
@settings(everything, max_examples=25)
def test_a_stream_may_come_byte_by_byte(chosen: list[tuple[str, int, str]]) -> None:
    """Read in single bytes a stream gives the records of the whole."""
    data = build([line for line in chosen if len(line[0]) < 1_000][:8])[0]
    assert normalize(data, list(range(len(data)))) == normalize(data)


@given(lines)
@everything
@example([(BAR + "INFO 11-30 12:00:0{s} [a.py:1] {m}", 1, "\n")])
@example(
    [('{{"asctime": "1969-12-31 23:59:59,0", "levelname": "INFO", "message": "{m}"}}', 1, "\n")]
)
@example([("{m}\rINFO 11-30 12:00:0{s} [a.py:1] {m}", 1, "\n")])
def test_no_word_of_a_log_is_lost(chosen: list[tuple[str, int, str]]) -> None:
    """Every word outside headers and prefixes is in a body, or among the further JSON members."""
    data, words = build(chosen)
    text = "\n".join(found for record in normalize(data) for found in texts(record))
    assert [word for word in words if word not in text] == []


def texts(record: LogRecord) -> Iterator[str]:
    """Where words of a line may be: the body, or what a formatter added."""
    yield record.body
    yield str(record.attributes.get("vllm.log.extra", ""))


@given(st.binary(max_size=300))
@everything
def test_no_byte_of_any_input_is_lost(data: bytes) -> None:
    """Each piece of text between line ends and CRs is in a body, its odd bytes as escapes."""
    data = data.replace(b"\x1b", b"e")
    bodies = "\n".join(record.body for record in normalize(data))
    for line in data.split(b"\n"):
        for part in line.decode(errors="backslashreplace").split("\r"):
            assert part.strip() in bodies


@given(lines)
@everything
def test_bodies_are_clean(chosen: list[tuple[str, int, str]]) -> None:
    """No CR and no ANSI code is left in a body, and none is blank for want of a message."""
    for record in normalize(build(chosen)[0]):
        if record.attributes["vllm.log.format"] != "json":
            assert "\r" not in record.body
            assert "\x1b" not in record.body
        if record.severity_number is None:
            assert record.body.strip()


@everything
@given(st.lists(st.tuples(st.sampled_from(LINES), st.integers(0, 3)), min_size=1, max_size=40))
def test_folding_counts_every_record(chosen: list[tuple[str, int]]) -> None:
    """Over what leaves, counts add up to the records that came, each uid stands once."""
    text = "\n".join(line.format(m="w", s=second) for line, second in chosen * 3)
    normalizer = Normalizer("x", catalogue=catalogue(), reference=REFERENCE)
    data = text.encode("utf-8", "surrogateescape")
    records = [*normalizer.feed(data), *normalizer.flush()]
    folder = Folder()
    found = [*folder.take(records), *folder.flush()]
    shown = [record for record in found if isinstance(record, LogRecord)]

    def total(every: Iterable[LogRecord]) -> int:
        counts = [record.attributes.get("vllm.log.repeat.count", 1) for record in every]
        return sum(count for count in counts if isinstance(count, int))

    assert total(shown) == total(records)
    assert len({record.attributes["log.record.uid"] for record in shown}) == len(shown)
