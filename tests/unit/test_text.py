"""Records for a person at a terminal: one line each."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from vllm_logpipe import LogRecord
from vllm_logpipe.sinks.text import encode_text

RECORD = LogRecord(
    time_unix_nano=1_796_040_001_000_000_001,
    observed_time_unix_nano=1_796_083_200_000_000_000,
    severity_text="WARNING",
    severity_number=13,
    event_name="vllm.kv_cache.capacity",
    body="GPU KV cache size: 48,704 tokens",
    attributes_json=json.dumps(
        {
            "vllm.process.name": "EngineCore",
            "process.pid": 7,
            "code.file.path": "core.py",
            "vllm.phase": "kv_cache",
            "vllm.kv_cache.capacity": 48704,
            "log.record.uid": "a-0",
        }
    ),
    resource_json="{}",
)


def text(**changes: str | int | None) -> str:
    """The record with other members, as text."""
    return encode_text([replace(RECORD, **changes)]).decode()


def test_a_known_record_shows_event_and_values() -> None:
    """Time, level, process, phase, event and values, without what only machines need."""
    assert text().split() == [
        *("12:00:01", "WARNING", "EngineCore", "kv_cache", "vllm.kv_cache.capacity"),
        "kv_cache.capacity=48704",
    ]


def test_a_plain_record_shows_its_message() -> None:
    """Without an event the first line of the message that is not blank is shown."""
    shown = text(
        event_name=None, severity_text=None, attributes_json="{}", body="\n  \none made-up\ntwo"
    )
    assert shown.split() == ["12:00:01", "-", "-", "-", "one", "made-up"]


def test_the_kind_of_a_process_stands_in_for_its_name() -> None:
    """A process that is not named is shown by its kind."""
    assert "api_server" in text(attributes_json='{"vllm.process.kind":"api_server"}')


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vllm.process.name", "a\nb"),
        ("vllm.request.id", "a\nb"),
        ("vllm.request.id", "\n"),
        ("vllm.request.id", "a\r\x0b\x1b[2Jb"),
    ],
)
def test_a_record_is_one_line_whatever_is_in_it(name: str, value: str) -> None:
    """Line breaks and control characters in a value do not reach the terminal."""
    shown = text(attributes_json=json.dumps({name: value}))
    assert shown.count("\n") == 1
    assert shown.rstrip("\n").isprintable()


def test_long_texts_are_shortened() -> None:
    """A prompt of a megabyte does not fill the screen."""
    long = "x" * 1_000_000
    assert len(text(event_name=None, body=long)) < 300
    assert len(text(attributes_json=json.dumps({"vllm.request.id": long}))) < 300


def test_no_records_are_no_text() -> None:
    """An empty batch puts out nothing."""
    assert encode_text([]) == b""


def test_an_error_shows_its_message() -> None:
    """Whoever is paged reads what went wrong, not only its class."""
    attributes = '{"vllm.log.format":"v1","error.type":"worker.died","vllm.error.role":"root"}'
    line = text(event_name="vllm.worker.ended", body="worker 3 died", attributes_json=attributes)
    assert line.rstrip().endswith("error.type=worker.died error.role=root | worker 3 died")
