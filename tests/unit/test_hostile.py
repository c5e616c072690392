"""Lines that somebody made to break the reader, and what they must not do."""

from __future__ import annotations

import json

import pytest

from vllm_logpipe import LogRecord, Normalizer, encode_ndjson

HEADER = "INFO 11-30 12:00:01 [a.py:1] "


def normalize(text: str) -> list[LogRecord]:
    """The records of a text; each must be valid JSON."""
    normalizer = Normalizer("hostile", reference=1_796_083_200.5)
    records = normalizer.feed(text.encode()) + normalizer.flush()
    for line in encode_ndjson(records).splitlines():
        json.loads(line)
    return records


@pytest.mark.parametrize(
    "text",
    [
        "x: 50%|#| 1/2 [00:01<00:01]" * 3000,
        "(A pid=1) x: 50%|#| 1/2 [00:01<00:01]" * 3000,
        "[STATS] " * 3000,
        f"{HEADER}{'[STATS] ' * 3000}",
        "(A pid=1) " * 3000,
    ],
    ids=["glued bars", "glued bars with prefixes", "tags", "tags under a header", "prefixes"],
)
def test_repetition_in_one_line_does_not_end_the_stream(text: str) -> None:
    """However often a line repeats what begins one, the line behind it is read."""
    records = normalize(f"{text}\n{HEADER}last\n")
    assert "last" in [record.body for record in records]


@pytest.mark.parametrize(
    "message",
    [
        "Available KV cache memory: -nanGiB",
        "Loading weights took -infs",
        "Received request x: params: SamplingParams(n=٣, max_tokens=²), lora_request: None.",
        "GPU KV cache size: ٣ tokens",
    ],
)
@pytest.mark.parametrize("header", ["", HEADER], ids=["raw", "headed"])
def test_a_number_that_is_none_gives_no_value(header: str, message: str) -> None:
    """Signed nan and infinity and digits of other scripts leave the record and its JSON whole."""
    (record,) = normalize(f"{header}{message}\n")
    assert record.body == message
    assert not any(
        isinstance(value, int | float) and name.startswith("gen_ai.")
        for name, value in record.attributes.items()
    )


def test_lines_of_one_printed_fraction_have_times_of_their_own() -> None:
    """Thousands of undated lines behind one with a fraction get distinct, ascending times."""
    first = "[rank0]:[E1130 12:00:01.267261276 P.cpp:607] x\n"
    records = normalize(first + 'INFO:     192.0.2.1:5 - "GET /health HTTP/1.1" 200 OK\n' * 3000)
    times = [record.time_unix_nano for record in records]
    assert times == sorted(set(times))


def test_text_of_an_exception_in_a_group_keeps_its_bars() -> None:
    """Only the border of an exception group is taken off, not a bar inside the text."""
    lines = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "a.py", line 1, in f',
        "  | RuntimeError: a | b + c",
    ]
    (record,) = normalize("\n".join(lines) + "\n")
    assert record.attributes["exception.message"] == "a | b + c"


def test_a_record_that_never_ends_does_not_hold_the_others_back() -> None:
    """A traceback whose lines keep coming between others is closed after a bounded span."""
    mine, theirs = "(A pid=1) ", "(B pid=2) "
    text = f"{mine}Traceback (most recent call last):\n"
    text += (f"{theirs}{HEADER}x\n" * 50 + f"{mine}  \n") * 500
    normalizer = Normalizer("endless")
    assert len(normalizer.feed(text.encode())) > 10_000


def test_a_byte_order_mark_is_no_part_of_the_first_header() -> None:
    """A file that an editor saved with a mark begins with an ordinary record."""
    assert normalize(f"\ufeff{HEADER}x\n")[0].severity_text == "INFO"


def test_a_secret_in_a_bar_does_not_leave() -> None:
    """The description of a download bar is redacted as the body is."""
    bar = "Get https://user:MARKED@h.test/m?sig=MARKED:  50%|##| 1/2 [00:01<00:01,  1.20s/it]\n"
    assert b"MARKED" not in encode_ndjson(normalize(bar))


@pytest.mark.parametrize("name", ["password=[x", 'api_key="x', "credentials={x", "token='x"])
@pytest.mark.parametrize("key", ["name", "processName", "note"])
def test_an_unclosed_secret_in_a_json_line_leaves_the_record_whole(key: str, name: str) -> None:
    """What is taken out of one value does not reach into the next."""
    line = {"message": "x", "levelname": "INFO", "process": 7, "asctime": "2026-11-30 12:00:01,5"}
    (record,) = normalize(json.dumps(line | {key: name}) + "\n")
    assert (record.body, record.attributes["process.pid"]) == ("x", 7)
    assert name not in record.attributes_json


def test_a_prompt_among_the_extras_of_a_json_line_is_hidden() -> None:
    """Keys that hold what a client wrote are private, also where no entry names them."""
    line = {"message": "x", "levelname": "INFO", "prompt": "MARKED", "output": ["MARKED"]}
    assert b"MARKED" not in encode_ndjson(normalize(json.dumps(line) + "\n"))


def test_a_secret_in_a_process_name_does_not_leave() -> None:
    """The names that a header gives are redacted as texts are."""
    secret = "hf_" + "MARKED" * 4
    text = f"({secret} pid=7) {HEADER}x\n"
    assert secret.encode() not in encode_ndjson(normalize(text))


CONFIG = "Initializing an LLM engine with config: "
PARAMS = "Received request x: params: SamplingParams(n=1, "


@pytest.mark.parametrize(
    "message",
    [
        CONFIG + "a=1, " + "\\'" * 500_000,
        CONFIG + "model='" + "\\'" * 500_000,
        CONFIG + "model='\\n'" + "+'a'" * 50_000 + ", seed=1",
        CONFIG + "a=b, " * 200_000,
        PARAMS + "a=b, " * 200_000 + "), lora_request: None.",
        PARAMS + "," * 1_000_000 + "), lora_request: None.",
        PARAMS + "a=" * 500_000 + "), lora_request: None.",
        PARAMS + "stop='" + "\\'" * 500_000 + "), lora_request: None.",
        "jwt " + "-eyJabcdefgh" * 80_000,
        "http://a:b@c/?d=e&" * 50_000,
    ],
    ids=[
        *("escaped quotes", "value of escaped quotes", "sum of strings", "many keys"),
        *("many parameters", "commas", "equal signs", "stop of escaped quotes"),
        *("starts of tokens", "credentials"),
    ],
)
def test_a_long_message_is_one_record(message: str) -> None:
    """A value without end is passed over once: the record comes, and so does the next."""
    records = normalize(f"{HEADER}{message}\nINFO 11-30 12:00:02 [b.py:2] last\n")
    assert len(records) == 2
    assert records[1].body == "last"
