"""Every place of a log where private text stands: none of it is in what leaves."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_logpipe import Catalogue, Normalizer, encode_ndjson, load_catalogue
from vllm_logpipe.catalogue.compiled import Variant
from vllm_logpipe.catalogue.entry import EventEntry
from vllm_logpipe.catalogue.template import Hole

HEADER = "INFO 11-30 12:00:01 [core.py:7] "
BEFORE = "INFO 11-30 12:00:00 [core.py:1] before\n"
AFTER = "INFO 11-30 12:00:02 [core.py:2] after\n"
PARAMS = "SamplingParams(n=1, stop=[], max_tokens=16)"
LORA = "LoRARequest(lora_name='MARKED', lora_int_id=1, lora_path='/l/MARKED')"
FRAMES = 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    g(pwd="MARKED")\n'
DATA = Path(__file__).parent.parent / "data" / "private_places.toml"
"""Messages that hold MARKED where something private stands."""
MESSAGES = tomllib.loads(DATA.read_text("utf-8"))
PLACES: dict[str, str] = MESSAGES["place"]
TRACEBACKS: dict[str, str] = MESSAGES["traceback"]
SEVERAL_LINES: list[str] = MESSAGES["text"]["several_lines"]
CUT_OFF: list[str] = MESSAGES["text"]["cut_off"]


@functools.cache
def built_in() -> Catalogue:
    """The built-in catalogue."""
    return load_catalogue()


def leaves(text: str, *, keep: tuple[str, ...] = (), redact: tuple[str, ...] = ()) -> str:
    """All that leaves for a log, the originals included."""
    normalizer = Normalizer(
        "a.log",
        catalogue=built_in(),
        reference=1_796_083_200.0,
        original=True,
        keep=keep,
        redact=redact,
    )
    return encode_ndjson(normalizer.feed(text.encode()) + normalizer.flush()).decode()


def headed(message: str, *, cr: bool = True) -> str:
    """A record of vLLM's between two others: the header on each line, CRs kept or stripped."""
    lines = message.replace("\n", f"{chr(13) if cr else ''}\n{HEADER}")
    return f"{BEFORE}{HEADER}{lines}\n{AFTER}"


def as_json(message: str, **more: object) -> str:
    """A record in JSON mode."""
    document = {
        "asctime": "2026-11-30 12:00:01,454",
        "levelname": "INFO",
        "name": "vllm.a",
        "processName": "MainProcess",
        "process": 7,
        "message": message,
    }
    return json.dumps(document | more) + "\n"


@pytest.mark.parametrize("place", PLACES)
def test_private_text_does_not_leave_a_text_log(place: str) -> None:
    """Neither body, attributes nor original hold it."""
    assert "MARKED" not in leaves(headed(PLACES[place]))


@pytest.mark.parametrize("place", PLACES)
def test_private_text_does_not_leave_a_json_log(place: str) -> None:
    """Nor in JSON mode, where line feeds stand inside the message."""
    assert "MARKED" not in leaves(as_json(PLACES[place]))


def test_a_private_part_of_any_length_does_not_leave() -> None:
    """Neither the end of a long schema nor what stands behind it."""
    schema = f"guided_decoding=G(json='{'x' * 300_000}MARKED')"
    message = f"Received request a-1: params: SamplingParams({schema}, stop=['MARKED'])"
    assert "MARKED" not in leaves(headed(f"{message}, lora_request: None."))


@pytest.mark.parametrize("cr", [True, False], ids=["with CR", "CR stripped"])
@pytest.mark.parametrize("message", SEVERAL_LINES)
def test_private_text_of_several_lines_does_not_leave(message: str, *, cr: bool) -> None:
    """Text printed as it is may have line feeds; its further lines are as private as the first."""
    assert "MARKED" not in leaves(headed(message, cr=cr))


@pytest.mark.parametrize("message", CUT_OFF)
def test_private_text_of_a_cut_line_does_not_leave(message: str) -> None:
    """A line limit on the way takes the end that a template waits for."""
    assert "MARKED" not in leaves(headed(message))


@pytest.mark.parametrize("name", TRACEBACKS)
def test_private_text_does_not_leave_a_traceback(name: str) -> None:
    """Body, stacktrace, message and original of an exception, raw, headed or in JSON mode."""
    trace = f"{FRAMES}{TRACEBACKS[name]}"
    for text in (
        f"{trace}\n",
        headed(f"EngineCore failed to start.\n{trace}"),
        headed(f"EngineCore failed to start.\n{trace}", cr=False),
        as_json("EngineCore failed to start.", exc_info=trace),
    ):
        left = leaves(text)
        assert "exception.stacktrace" in left
        assert "MARKED" not in left


@pytest.mark.parametrize(
    "line",
    [
        'INFO:     192.0.2.7:51234 - "GET /v1/models?q=MARKED HTTP/1.1" 200 OK',
        'INFO:     2001:db8::7:51234 - "GET /v1/models?q=MARKED HTTP/1.1" 200 OK',
        'INFO:     192.0.2.7:51234 - "GET /v1/models?a="b&q=MARKED HTTP/1.1" 404 Not Found',
        'INFO:     192.0.2.7:51234 - "WebSocket /v1/realtime?q=MARKED" [accepted]',
        'INFO:     192.0.2.7:51234 - "WebSocket /v1/realtime?q=MARKED" 403',
    ],
)
def test_a_query_string_does_not_leave_an_access_line(line: str) -> None:
    """Query strings go, also those of WebSockets."""
    left = leaves(f"{line}\n")
    assert "MARKED" not in left
    assert "/v1/" in left
    assert "MARKED" not in leaves(as_json(line.partition("INFO:     ")[2]))


def test_private_text_does_not_leave_the_extras_of_a_json_line() -> None:
    """Keys nobody knows are scrubbed like any text."""
    left = leaves(as_json("hello", api_key="MARKED", extra={"url": "http://u:MARKED@h.test/"}))
    assert "vllm.log.extra" in left
    assert "MARKED" not in left


FILLERS = {
    "int": "7",
    "float": "1.5",
    "bytes": "3 GiB",
    "seconds": "2.5 s",
    "ratio": "50%",
    "hex": "0x1f",
    "ints": "1, 2",
    "floats": "1.5, 2.5",
    "quoted": "'q'",
    "list": "[1, 2]",
    "sampling_params": PARAMS,
}


def filled(variant: Variant[EventEntry], private: Hole, value: str) -> str:
    """A text of a template in which one hole has the given value."""
    text = ""
    for part in variant.template.parts:
        if isinstance(part, str):
            text += part
        elif part is private:
            text += value
        elif part.choices:
            text += part.choices[0]
        elif part.parameter and "=" not in part.parameter:
            text += "1.5"
        else:
            text += FILLERS.get(part.type, "word")
    return text


def open_holes(*, private: bool) -> Iterator[tuple[Variant[EventEntry], Hole]]:
    """The open holes of all templates that are private, or that are not."""
    for variant in built_in().variants():
        for hole in variant.template.holes:
            if hole.is_open and (hole.name in variant.entry.private) == private:
                yield variant, hole


def test_no_private_hole_of_the_catalogue_lets_its_text_out() -> None:
    """Whatever the template, the text of a private hole stays in."""
    holes = list(open_holes(private=True))
    assert len(holes) > 50
    for variant, hole in holes:
        value = "'MARKED'" if hole.type == "quoted" else "MARKED"
        text = filled(variant, hole, value)
        assert "MARKED" not in leaves(headed(text)), text


@pytest.mark.parametrize("secret", ["api_key='MARKED'", "http://u:MARKED@h.test/a?b=MARKED"])
def test_no_hole_of_the_catalogue_lets_a_secret_out(secret: str) -> None:
    """A secret in any other text of any template is taken out."""
    for variant, hole in open_holes(private=False):
        forms = {
            "quoted": repr(secret),
            "list": f"[{secret!r}]",
            "sampling_params": f"SamplingParams(n=1, note={secret!r})",
        }
        text = filled(variant, hole, forms.get(hole.type, secret))
        assert "MARKED" not in leaves(headed(text)), text


KEPT = {
    "prompt": ("prompt", "details", "body", "media part"),
    "token_ids": ("token ids", "output token ids", "rejected tokens"),
    "stop": ("stop strings",),
    "schema": ("schema", "refused schema", "matcher"),
    "params": ("extra arguments", "refused text", "KV transfer", "engine dump"),
    "output": ("output", "output delta", "response body", "tool call"),
    "media_url": ("media URL", "base64"),
    "query": ("signed URL",),
    "secret": ("arguments", "connector", "other process"),
}


@pytest.mark.parametrize("field", KEPT)
def test_what_an_operator_keeps_leaves_and_nothing_else(field: str) -> None:
    """A kept field stands in body and original; the other places stay private."""
    for other, places in KEPT.items():
        for place in places:
            left = leaves(headed(PLACES[place]), keep=(field,))
            assert ("MARKED" in left) == (other == field), place


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("client_address", 'INFO:     MARKED:51234 - "GET /health HTTP/1.1" 200 OK'),
        ("client_address", 'INFO:     192.0.2.77:51234 - "GET /health HTTP/1.1" 200 OK'),
        ("client_address", 'INFO:     2001:db8::77:51234 - "GET /health HTTP/1.1" 200 OK'),
        ("client_address", f"{HEADER}Connection to 192.0.2.77:5 lost"),
        ("path", f"{HEADER}Starting to load model /srv/MARKED/m..."),
        ("path", f"{HEADER}Loaded new LoRA adapter: name 'a', path '/srv/MARKED'"),
        ("path", 'Traceback (most recent call last):\n  File "/srv/MARKED/a.py", line 1, in f'),
        ("user", f"{HEADER}Using cache directory: /home/MARKED/x for vLLM's torch.compile"),
        ("lora", f"{HEADER}Loaded new LoRA adapter: name 'MARKED', path '/l/MARKED'"),
        ("lora", f"{HEADER}Resolved and loaded LoRA adapter 'MARKED' using FilesystemResolver"),
        ("lora", f"{HEADER}Removed LoRA adapter: name 'MARKED'"),
        ("lora", f"{HEADER}Received request a: params: None, lora_request: {LORA}."),
        ("host", "MARKED:811:1024 [0] NCCL INFO cudaDriverVersion 12040"),
        ("host", f"(RayWorkerProc pid=3, ip=192.0.2.77) {HEADER}hello"),
    ],
)
def test_what_an_operator_takes_out_does_not_leave(field: str, line: str) -> None:
    """An optional field goes from body, attributes and original alike; by default it stays."""

    def shown(left: str) -> bool:
        return any(mark in left for mark in ("MARKED", "192.0.2.77", "2001:db8::77"))

    assert shown(leaves(f"{line}\n"))
    assert not shown(leaves(f"{line}\n", redact=(field,)))
