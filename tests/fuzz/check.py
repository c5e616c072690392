"""The properties that every stream is checked for."""

from __future__ import annotations

import json
import random
import re
import time

import msgspec

from vllm_logpipe import LogRecord, Normalizer, encode_ndjson, encode_otlp_json, load_catalogue
from vllm_logpipe.derive.deriver import Deriver, Server
from vllm_logpipe.sinks.signals import encode_signals
from vllm_logpipe.sinks.text import encode_text

CATALOGUE = load_catalogue()
REFERENCE = 1_796_083_200.0
WORD = re.compile(rb"oddword[a-z]{8}")
SLOW_US = 400.0
"""us of CPU time a byte that nothing should take: some 50 are usual for mutated short lines."""

Said = tuple[object, ...]


class Fault(Exception):  # noqa: N818
    """What a stream showed."""


def normalizer() -> Normalizer:
    """A fresh one."""
    return Normalizer("fuzz", catalogue=CATALOGUE, reference=REFERENCE)


def said(record: LogRecord) -> Said:
    """All of a record but the time of reading."""
    return (
        record.time_unix_nano, record.severity_text, record.severity_number, record.event_name,
        record.body, record.attributes_json, record.resource_json, record.trace_id, record.span_id,
    )  # fmt: skip


def check(data: bytes, chance: random.Random) -> None:
    """Raise Fault, or what the code raises, where a property does not hold."""
    start = time.process_time()
    whole = normalizer()
    records = [*whole.feed(data), *whole.flush()]
    spent = (time.process_time() - start) * 1e6
    _check_cuts(data, records, chance)
    _check_forms(records)
    _check_signals(records)
    _check_words(data, records)
    if len(data) > 20_000 and spent / len(data) > SLOW_US:
        _check_growth(data)


def _check_cuts(data: bytes, records: list[LogRecord], chance: random.Random) -> None:
    cut = normalizer()
    found: list[LogRecord] = []
    place = 0
    while place < len(data):
        size = chance.choice((1, 2, 7, 64, 500, 5000))
        found += cut.feed(data[place : place + size])
        place += size
    found += cut.flush()
    if [said(record) for record in found] != [said(record) for record in records]:
        raise Fault("cut into pieces the stream gives other records")


def _check_forms(records: list[LogRecord]) -> None:
    uids = set()
    for line in encode_ndjson(records).splitlines():
        uid = json.loads(line)["attributes"]["log.record.uid"]
        if uid in uids:
            raise Fault(f"the uid {uid} stands twice")
        uids.add(uid)
    if records:
        json.loads(encode_otlp_json(records))
    encode_text(records)


def _check_signals(records: list[LogRecord]) -> None:
    deriver = Deriver(request_spans=True)
    signals = deriver.take(records[: len(records) // 2])
    data = msgspec.msgpack.encode(deriver.servers())
    deriver.restore(msgspec.msgpack.decode(data, type=list[Server]))
    signals += deriver.take(records[len(records) // 2 :])
    signals += deriver.finish()
    kinds = [json.loads(line)["kind"] for line in encode_signals(signals).splitlines()]
    if kinds.count("log") != len(records):
        raise Fault("a record got lost among the signals")
    other = Deriver(request_spans=True)
    if other.take(records) + other.finish() != signals:
        raise Fault("a state that was put away gives other signals")


def _check_words(data: bytes, records: list[LogRecord]) -> None:
    """Lines of one odd word come out, unless something was redacted."""
    out = "\n".join(f"{record.body}\n{record.attributes_json}" for record in records)
    if "[redacted" in out:
        return
    for word in WORD.findall(data):
        if word.decode() not in out:
            raise Fault("a word got lost")


def _check_growth(data: bytes) -> None:
    def spent(content: bytes) -> float:
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            one = normalizer()
            one.feed(content)
            one.flush()
            best = min(best, time.process_time() - start)
        return best

    once, fourfold = spent(data), spent(data * 4)
    if fourfold > 8 * once + 0.05:
        raise Fault(f"four times the stream takes {fourfold / once:.1f} times as long")
