"""What a text is: its event, its class and role, its values, whatever it quotes."""

from __future__ import annotations

import functools
import json

import pytest

from vllm_logpipe import Catalogue, LogRecord, Normalizer, load_catalogue
from vllm_logpipe.catalogue.entry import ErrorEntry, EventEntry
from vllm_logpipe.recognize import Recognition, Recognizer
from vllm_logpipe.redact import Redactor

FRAMES = 'Traceback (most recent call last):\n  File "/opt/a.py", line 1, in f\n    g()\n'
CAUSE = "\n\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing it."
TOO_SMALL = (
    "ValueError: To serve at least one request with the model's max seq len (4096), (0.5 GiB KV"
    " cache is needed, which is larger than the available KV cache memory (0.25 GiB). Try more."
)
TOO_LONG = (
    "ValueError: This model's maximum context length is 1024 tokens. However, you requested 2048"
    " tokens (2000 in the messages, 48 in the completion)."
)
UNKNOWN = "site.StrangeError: nobody knows this"


@functools.cache
def built_in() -> Catalogue:
    """The built-in catalogue."""
    return load_catalogue()


def recognize(
    text: str, level: str | None = "ERROR", catalogue: Catalogue | None = None, kind: str = "v1"
) -> tuple[Recognition, dict[str, object]]:
    """What a text is, and its attributes."""
    found = Recognizer(catalogue or built_in(), Redactor()).recognize(text, kind, level)
    attributes: dict[str, object] = json.loads(f"{{{found.members[1:]}}}")
    return found, attributes


def event(found: Recognition) -> str | None:
    """The name of the event that was found."""
    return None if found.entry is None else found.entry.name


def class_and_role(text: str, level: str | None = "ERROR") -> tuple[object, object]:
    """The class and role of a record's text."""
    _, attributes = recognize(text, level)
    return attributes.get("error.type"), attributes.get("vllm.error.role")


@pytest.mark.parametrize(
    ("message", "exception", "alone", "together"),
    [
        (
            "EngineCore failed to start.",
            TOO_SMALL,
            ("engine.init_failed", "cascade"),
            ("kv_cache.too_small_for_max_model_len", "root"),
        ),
        (
            "WorkerProc failed to start.",
            "safetensors_rust.SafetensorError: Error while deserializing header: bad",
            ("worker.exception", "cascade"),
            ("model.corrupt_weights", "root"),
        ),
        (
            "Error in completion stream generator.",
            DEAD,
            ("request.internal_error", "root"),
            ("engine.dead", "cascade"),
        ),
        (
            "Error in preprocessing prompt inputs",
            TOO_LONG,
            ("request.invalid", "root"),
            ("request.too_long", "root"),
        ),
        (
            "AsyncLLM output_handler failed.",
            UNKNOWN,
            ("engine.dead", "cascade"),
            ("engine.dead", "cascade"),
        ),
        ("nobody knows this message", UNKNOWN, ("_OTHER", "unknown"), ("_OTHER", "unknown")),
        ("nobody knows this message", OOM, ("_OTHER", "unknown"), ("cuda.out_of_memory", "root")),
    ],
)
def test_a_known_exception_decides_over_its_message(
    message: str, exception: str, alone: tuple[str, str], together: tuple[str, str]
) -> None:
    """The message's own class stands only where the exception has none."""
    assert class_and_role(message) == alone
    assert class_and_role(f"{message}\n{FRAMES}{exception}") == together


@pytest.mark.parametrize("link", [CAUSE, DURING], ids=["cause", "during"])
@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ([OOM, NO_BLOCKS], ("cuda.out_of_memory", "root")),
        ([NO_BLOCKS, OOM], ("kv_cache.no_memory", "root")),
        ([DEAD, OOM], ("cuda.out_of_memory", "root")),
        ([OOM, DEAD], ("cuda.out_of_memory", "root")),
        ([UNKNOWN, DEAD], ("engine.dead", "cascade")),
        ([UNKNOWN, DEAD, NO_BLOCKS, OOM], ("kv_cache.no_memory", "root")),
        ([UNKNOWN, UNKNOWN], ("_OTHER", "unknown")),
    ],
)
def test_the_first_root_of_a_chain_is_the_class(
    chain: list[str], link: str, expected: tuple[str, str]
) -> None:
    """Causes come first; an exception that only follows from another counts where no root is."""
    text = link.join(FRAMES + exception for exception in chain)
    assert class_and_role(text, None) == expected
    assert class_and_role(f"nobody knows this message\n{text}") == expected


def test_a_chain_tells_its_first_and_its_last_exception() -> None:
    """The last is `exception.*`, the first the root, where they differ."""
    _, attributes = recognize(f"{FRAMES}{OOM}{CAUSE}{FRAMES}{DEAD}", None)
    assert attributes["exception.type"] == "vllm.v1.engine.exceptions.EngineDeadError"
    assert attributes["exception.message"] == "EngineCore encountered an issue."
    assert attributes["vllm.exception.root.type"] == "torch.OutOfMemoryError"
    assert str(attributes["vllm.exception.root.message"]).startswith("CUDA out of memory.")
    assert str(attributes["exception.stacktrace"]).startswith(FRAMES + OOM)
    for text in (FRAMES + OOM, f"{FRAMES}{OOM}{CAUSE}{FRAMES}{OOM}"):
        _, attributes = recognize(text, None)
        assert attributes["exception.type"] == "torch.OutOfMemoryError"
        assert "vllm.exception.root.type" not in attributes


def test_a_later_line_of_an_exception_may_tell_its_class() -> None:
    """The text of a validation error stands on its following lines."""
    text = (
        f"{FRAMES}pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, User-specified max_model_len (9) is greater than the derived max_model_len"
        " (max_position_embeddings=8 in model's config.json). [type=value_error]"
    )
    assert class_and_role(text, None) == ("config.max_model_len_exceeds_model", "root")


@pytest.mark.parametrize(
    ("text", "level", "expected"),
    [
        (OOM, "ERROR", ("cuda.out_of_memory", "root")),
        (OOM, "CRITICAL", ("cuda.out_of_memory", "root")),
        (OOM, "WARNING", (None, None)),
        (OOM, "INFO", (None, None)),
        (OOM, None, (None, None)),
        (f"nobody knows this message:\n{OOM}", "ERROR", ("cuda.out_of_memory", "root")),
        ("nobody knows this message", "ERROR", ("_OTHER", "unknown")),
        ("", "ERROR", ("_OTHER", "unknown")),
        ("Background task for resp_1 was cancelled", "ERROR", ("_OTHER", "unknown")),
        ("Background task for resp_1 was cancelled", "INFO", (None, None)),
        ("[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", "WARNING",
         ("engine.dead", "unknown")),
        ("Killed", "ERROR", ("_OTHER", "unknown")),
    ],
)  # fmt: skip
def test_every_failed_record_has_a_class(
    text: str, level: str | None, expected: tuple[str | None, str | None]
) -> None:
    """A message nobody knows is classed by the exception that it names, at an error level only."""
    assert class_and_role(text, level) == expected


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (
            "**CUDAGraph Config Settings:**\n\n- Mode: F\n- Capture sizes: [1, 2, 4]\n",
            "vllm.engine.cudagraph_stats",
            {
                "vllm.config.cudagraph_mode": "F",
                "vllm.config.cudagraph_capture_sizes": [1, 2, 4],
            },
        ),
        (
            'nanobind: leaked 64 types!\n - leaked type "a.B"\n - ... skipped remainder',
            "vllm.python.extension_leak",
            {"vllm.python.leaked.count": 64, "vllm.python.leaked.kind": "types"},
        ),
        (
            "Added request cmpl-1.\na line that is declared nowhere",
            "vllm.request.added",
            {"vllm.request.internal_id": "cmpl-1"},
        ),
    ],
)
def test_further_lines_give_their_values_to_the_event(
    text: str, name: str, expected: dict[str, object]
) -> None:
    """The first line names the event, declared lines add values, others stay in the body."""
    found, attributes = recognize(text, "INFO")
    assert event(found) == name
    assert expected == {name: attributes[name] for name in expected}
    assert found.body == text


def test_what_begins_a_message_and_what_goes_on_is_told() -> None:
    """`knows` asks for a whole message, `declares` for a further line of one."""
    recognizer = Recognizer(built_in(), Redactor())
    assert recognizer.knows("Added request cmpl-1.", "v1")
    assert not recognizer.knows("nobody knows this message", "v1")
    assert recognizer.declares("nanobind: leaked 64 types!", ' - leaked type "a.B"', "raw")
    assert not recognizer.declares("nanobind: leaked 64 types!", "Added request cmpl-1.", "raw")
    assert not recognizer.declares("Added request cmpl-1.", ' - leaked type "a.B"', "raw")


OWN = Catalogue(
    [
        EventEntry(
            name="vllm.site.any", match="Site step {:rest}", error="worker.died", role="root"
        ),
        EventEntry(name="vllm.site.done", match="Site step {:word} done"),
        EventEntry(name="vllm.site.tagged", match="Site {:rest}", formats=["tagged"]),
    ],
    [
        ErrorEntry(error="engine.dead", role="cascade", types=["SiteError"]),
        ErrorEntry(
            error="model.not_found", role="root", types=["SiteError"], match="no model {:rest}"
        ),
        ErrorEntry(error="compile.failed", role="root", match="the compiler failed: {:rest}"),
    ],
)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("Site step 1 done", "v1", "vllm.site.done"),
        ("Site step 1 begun", "v1", "vllm.site.any"),
        ("Site step 1 done", "tagged", "vllm.site.tagged"),
        ("Site stop", "v1", None),
    ],
)
def test_the_most_specific_event_of_the_format_wins(
    text: str, kind: str, expected: str | None
) -> None:
    """Only the winner's class counts."""
    found, attributes = recognize(text, "INFO", OWN, kind)
    assert event(found) == expected
    assert ("error.type" in attributes) == (expected == "vllm.site.any")


@pytest.mark.parametrize(
    ("exception", "expected"),
    [
        ("SiteError: something", "engine.dead"),
        ("a.b.SiteError: no model at all", "model.not_found"),
        ("OtherError: no model at all", "_OTHER"),
        ("OtherError: the compiler failed: x", "compile.failed"),
        ("OtherError: first line\nthe compiler failed: x", "compile.failed"),
        ("OtherError: x the compiler failed: x", "_OTHER"),
        ("SiteError", "engine.dead"),
    ],
)
def test_an_exceptions_text_goes_before_its_type(exception: str, expected: str) -> None:
    """A template limited to types is tried on these only, and on whole lines."""
    _, attributes = recognize(FRAMES + exception, None, OWN)
    assert attributes["error.type"] == expected


def records(text: str) -> list[LogRecord]:
    """The records of a log."""
    normalizer = Normalizer("a.log", catalogue=built_in(), reference=1_796_083_200.0)
    return normalizer.feed(text.encode()) + normalizer.flush()


def test_the_message_decides_over_the_header() -> None:
    """A value that both print is the message's, once."""
    (record,) = records(
        "(APIServer pid=7) INFO 11-30 12:00:01 [a.py:7] Started server process [4242]\n"
    )
    assert record.attributes["process.pid"] == 4242
    assert record.attributes_json.count('"process.pid"') == 1
