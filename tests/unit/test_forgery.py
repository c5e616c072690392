"""Text that a client writes may look like a log: it changes neither event nor class of a record."""

from __future__ import annotations

import functools
import json

import pytest

from vllm_logpipe import Catalogue, LogRecord, Normalizer, load_catalogue

HEADER = "INFO 11-30 12:00:01 [core.py:7] "
PARAMS = "SamplingParams(n=1, stop=[], max_tokens=16)"

FORGERIES = [
    "INFO 11-30 12:00:01 [core.py:9] Application startup complete.",
    "(EngineCore pid=9) ERROR 11-30 12:00:01 [core.py:9] EngineCore encountered a fatal error.",
    "ERROR:    Exception in ASGI application",
    "[rank0]:[E1130 12:00:01.000000000 ProcessGroupNCCL.cpp:607] Watchdog caught it",
    '{"levelname": "ERROR", "message": "EngineCore encountered a fatal error."}',
    "Traceback (most recent call last):\n  File 'a'\ntorch.OutOfMemoryError: CUDA out of memory.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "NCCL WARN Cuda failure",
    "Loading shards: 100% Completed | 2/2 [00:01<00:00, 1.2s/it]",
    "Added request a-2.",
    "Request a-2 failed (engine dead).",
    "Request a-2 aborted.",
    "', params: SamplingParams(n=9), prompt_token_ids: None, lora_request: None.",
    "', finish_reason: stop",
    ", finish_reason: length",
    "\x1b[31mERROR\x1b[0m \r\n",
    "\"'\\",
]


@functools.cache
def built_in() -> Catalogue:
    """The built-in catalogue."""
    return load_catalogue()


def records(text: str) -> list[LogRecord]:
    """The records of a log."""
    normalizer = Normalizer("a.log", catalogue=built_in(), reference=1_796_083_200.0)
    return normalizer.feed(text.encode()) + normalizer.flush()


def identity(record: LogRecord) -> tuple[object, ...]:
    """What a text that a client writes must not change."""
    attributes = record.attributes
    return (
        record.event_name,
        record.severity_text,
        attributes.get("error.type"),
        attributes.get("vllm.error.role"),
        attributes["vllm.log.format"],
        attributes.get("process.pid"),
        attributes.get("gen_ai.request.choice.count"),
        attributes.get("gen_ai.response.finish_reasons"),
    )


QUOTED = {
    "prompt": f"Received request a-1: prompt: {{}}, params: {PARAMS}, prompt_token_ids: None,"
    " prompt_embeds shape: None, lora_request: None.",
    "prompt of 0.2.7": f"Received request a-1: prompt: {{}}, sampling params: {PARAMS},"
    " prompt token ids: [1, 2].",
    "stop string": "Received request a-1: params: SamplingParams(n=1, stop=[{}], max_tokens=16),"
    " lora_request: None.",
    "schema": "Received request a-1: params: SamplingParams(n=1, structured_outputs="
    "StructuredOutputsParams(regex={}), max_tokens=16), lora_request: None.",
    "adapter": f"Received request a-1: params: {PARAMS}, lora_request: LoRARequest(lora_name={{}},"
    " lora_int_id=1, lora_path='/l').",
    "output": "Generated response a-1: output: {}, finish_reason: stop",
    "output delta": "Generated response a-1 (streaming delta): output: {},"
    " output_token_ids: [1], finish_reason: None",
    "streamed body": "response_body={{streaming_complete: content={}, chunks=7}}",
}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("place", QUOTED)
def test_a_quoted_text_changes_nothing(place: str, forgery: str) -> None:
    """Prompts, outputs, stop strings, schemas and adapter names are Python strings in the line."""
    (harmless,) = records(f"{HEADER}{QUOTED[place].format(repr('hello'))}\n")
    (forged,) = records(f"{HEADER}{QUOTED[place].format(repr(forgery))}\n")
    assert harmless.event_name is not None
    assert identity(forged) == identity(harmless)


BARE = {
    "id of an arrival": f"Received request {{}}: params: {PARAMS}, lora_request: None.",
    "id of a start": "Added request {}.",
    "id of an abort": "Request {} aborted.",
    "id of an internal failure": "Request {} failed with an internal error during generation",
    "id of a background task": "Background task for {} was cancelled",
    "JSON body": 'Request a-1 JSON body: {{"prompt":"{}"}}',
    "refused text": "Request a-1 failed (bad request): {} is bad.",
    "text refused by the engine": "Request a-1 failed validation: {} is bad",
    "model": "Error with model error=ErrorInfo(message='The model `{}` does not exist.',"
    " type='NotFoundError', param='model', code=404)",
    "path": "Starting to load model /models/{}/x...",
}
ONE_LINE = [forgery for forgery in FORGERIES if forgery.isprintable() and "'" not in forgery]


@pytest.mark.parametrize("forgery", ONE_LINE)
@pytest.mark.parametrize("place", BARE)
def test_a_bare_text_changes_nothing(place: str, forgery: str) -> None:
    """Ids, bodies and refused texts stand in the line as they are, between fixed text."""
    for level in ("INFO", "ERROR"):
        header = HEADER.replace("INFO", level)
        (harmless,) = records(f"{header}{BARE[place].format('hello')}\n")
        (forged,) = records(f"{header}{BARE[place].format(forgery)}\n")
        assert harmless.event_name is not None
        assert identity(forged) == identity(harmless)


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ('Request a-1 JSON body: {"prompt":"x failed (engine dead).', "vllm.request.json_body"),
        (
            'Request a-1 JSON body: {"prompt":"x failed with an internal error during generation',
            "vllm.request.json_body",
        ),
        (
            "Request a-1 failed validation: x failed (engine dead).",
            "vllm.request.failed_validation",
        ),
        ("Request a-1 failed due to ValueError: x failed (engine dead).", "vllm.request.failed"),
        (
            "Request a-1 failed (bad request): x failed (engine dead).",
            "vllm.request.failed_bad_request",
        ),
        (
            "Request a-1 failed (input error): x failed (engine dead).",
            "vllm.request.failed_input_error",
        ),
    ],
)
def test_the_end_of_a_text_does_not_make_another_event(message: str, event: str) -> None:
    """The first fixed text decides: what follows may end like any other message."""
    (record,) = records(f"{HEADER}{message}\n")
    assert record.event_name == event
    assert record.attributes.get("error.type") != "engine.dead"


@pytest.mark.parametrize("forgery", [f for f in FORGERIES if "\x1b" not in f and '"' not in f])
def test_the_path_of_an_access_line_changes_nothing(forgery: str) -> None:
    """Path and query string are as the client sent them, but for white space."""
    path = "".join(forgery.split()).replace("?", "")
    for query in (False, True):
        target = f"/v1/{'m?q=' if query else ''}{path}"
        line = f'INFO:     192.0.2.7:5 - "GET {target} HTTP/1.1" 404 Not Found'
        (record,) = records(f"{line}\n")
        assert record.event_name == "vllm.http.access"
        assert record.attributes["http.response.status_code"] == 404
        assert "error.type" not in record.attributes


@pytest.mark.parametrize("forgery", [*FORGERIES, f"x\n{FORGERIES[5]}", f"x\n{FORGERIES[6]}"])
def test_a_message_in_json_mode_is_no_log_of_its_own(forgery: str) -> None:
    """Line feeds in the message of a JSON line begin neither records nor tracebacks."""
    message = "Request a-1 failed (bad request): {}\nis bad."
    found = []
    for text in ("hello", forgery):
        document = {
            "asctime": "2026-11-30 12:00:01,454",
            "levelname": "INFO",
            "name": "vllm.a",
            "process": 7,
            "message": message.format(text),
        }
        (record,) = records(json.dumps(document) + "\n")
        found.append(identity(record))
    assert found[0] == found[1]
    assert found[0][0] == "vllm.request.failed_bad_request"
    assert found[0][2] == "request.invalid"


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_quoted_exception_in_an_unknown_message_gives_no_class(forgery: str) -> None:
    """An error message that nobody knows is classed by what it begins with, not by a quote."""
    (record,) = records(f"{HEADER.replace('INFO', 'ERROR')}Site refuses {forgery!r} for a reason\n")
    assert record.event_name is None
    assert record.attributes["error.type"] == "_OTHER"
