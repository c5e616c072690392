"""Hostile input of any size: messages that stress one hole, raw bytes that stress the reader."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LEAD = "Hostile probe value "
STOP = " marks the end"
HEADER = "(APIServer pid=4711) INFO 11-30 12:00:01 [probe.py:12] "
_CALL = "n=1, temperature=0.5, max_tokens=16, "


class Hole(NamedTuple):
    """A hole as a throw-away entry writes it, a short value, and the piece of a long one."""

    text: str
    sample: str
    expect: str
    piece: str
    opening: str = ""
    closing: str = ""
    extra: str = ""


HOLES = {
    "int": Hole("{vllm.bench.int:int}", "12", '"vllm.bench.int" = 12', "7"),
    "float": Hole("{vllm.bench.double:float}", "1.5", '"vllm.bench.double" = 1.5', "7"),
    "bytes": Hole("{vllm.bench.int:bytes}", "2 KiB", '"vllm.bench.int" = 2048', "7", "", " KiB"),
    "bytes(GiB)": Hole(
        "{vllm.bench.int:bytes(GiB)}", "2", '"vllm.bench.int" = 2147483648', "7"
    ),
    "seconds": Hole(
        "{vllm.bench.double:seconds}", "2.5 s", '"vllm.bench.double" = 2.5', "7", "", "s"
    ),
    "seconds(ms)": Hole("{vllm.bench.double:seconds(ms)}", "500", '"vllm.bench.double" = 0.5', "7"),
    "ratio": Hole("{vllm.bench.double:ratio}", "50%", '"vllm.bench.double" = 0.5', "7", "", "%"),
    "ratio(1)": Hole("{vllm.bench.double:ratio(1)}", "0.5", '"vllm.bench.double" = 0.5', "7"),
    "word": Hole("{vllm.bench.string:word}", "a", '"vllm.bench.string" = "a"', "wo:rd,"),
    "text": Hole("{vllm.bench.string:text}", "a", '"vllm.bench.string" = "a"', "some text "),
    "last": Hole("{vllm.bench.string:last}", "a", '"vllm.bench.string" = "a"', "some text "),
    "path": Hole("{vllm.bench.string:path}", "/a", '"vllm.bench.string" = "/a"', "/models/a"),
    "quoted": Hole(
        "{vllm.bench.string:quoted}", "'a'", '"vllm.bench.string" = "a"', "text\\n", "'", "'"
    ),
    "list": Hole(
        "{vllm.bench.strings:list}", "['a']", '"vllm.bench.strings" = ["a"]', "'a', ", "[", "'a']"
    ),
    "ints": Hole("{vllm.bench.ints:ints}", "1, 2", '"vllm.bench.ints" = [1, 2]', "1, ", "", "1"),
    "floats": Hole(
        "{vllm.bench.doubles:floats}", "1.5", '"vllm.bench.doubles" = [1.5]', "1.5, ", "", "1.5"
    ),
    "words": Hole(
        "{vllm.bench.strings:words}", "a", '"vllm.bench.strings" = ["a"]', "a, ", "", "a"
    ),
    "hex": Hole("{vllm.bench.string:hex}", "0xa", '"vllm.bench.string" = "0xa"', "a", "0x"),
    "choice": Hole("{vllm.bench.string=aa|ab|b}", "b", '"vllm.bench.string" = "b"', "a"),
    "sampling_params": Hole(
        "{:sampling_params}",
        "SamplingParams(n=1)",
        '"gen_ai.request.choice.count" = 1',
        "stop=['x'], ",
        f"SamplingParams({_CALL}",
        "seed=1)",
    ),
    "kwargs": Hole(
        "{:kwargs}", "a=1", '"vllm.bench.int" = 1', "b='x', ", "a=1, ", "c=2",
        'keys = { "a" = "vllm.bench.int:int" }',
    ),
}  # fmt: skip
"""Holes that a literal may follow."""

LAST_HOLES = {
    "rest": Hole("{vllm.bench.string:rest}", "a", '"vllm.bench.string" = "a"', "some text "),
    "fields": Hole(
        "{:fields}", "Run: 1 reqs", '"vllm.bench.int" = 1', "Odd: 2 reqs, ", "Run: 1 reqs, ", "x",
        'fields = ["Run: {vllm.bench.int:int} reqs"]',
    ),
}  # fmt: skip
"""Holes that end a template."""

_ATTRIBUTES = {
    "int": "int",
    "double": "double",
    "string": "string",
    "ints": "int[]",
    "doubles": "double[]",
    "strings": "string[]",
}


def write_probe(directory: Path, hole: Hole, *, ends: bool) -> None:
    """Write a catalogue of one entry around `hole` into `directory`."""
    attributes = "".join(
        f'[[attribute]]\nname = "vllm.bench.{name}"\ntype = "{kind}"\nbrief = "A probe\'s value."\n'
        for name, kind in _ATTRIBUTES.items()
    )
    stop = "" if ends else STOP
    (directory / "probe.toml").write_text(
        f'{attributes}\n[[event]]\nname = "vllm.bench.probe"\nbrief = "A probe."\n'
        f"match = '''{LEAD}{hole.text}{stop}'''\n{hole.extra}\n\n"
        f"[[event.sample]]\nline = '''{LEAD}{hole.sample}{stop}'''\n"
        f"expect = {{ {hole.expect} }}\n",
        encoding="utf-8",
    )


def _fill(piece: str, size: int) -> str:
    return piece * (size // len(piece.encode()) + 1)


def _value(hole: Hole, size: int) -> str:
    return hole.opening + _fill(hole.piece, size) + hole.closing


FILLERS = {
    "stop's first letter": " m",
    "stop but for its end": STOP[:-1],
    "stop repeated": STOP,
    "blanks": " ",
    "single quotes": "' ",
    "double quotes": '"',
    "escaped quotes": "\\'",
    "backslashes": "\\",
    "square brackets": "[",
    "round brackets": "(",
    "braces": "{",
    "commas": ",",
    "thousands": ",123",
    "list commas": ", ",
    "digits": "9",
    "zeros": "0",
    "decimal points": "1.",
    "exponents": "1e",
    "equal signs": "a=",
    "carriage returns": "\r",
    "bar states": "50%|##\r",
    "escape codes": "\x1b[0m",
    "open escape code": "\x1b[;",
    "headers": " INFO 11-30 12:00:01 [core.py:1] ",
    "prefixes": "(Worker pid=1) ",
    "nested calls": "SamplingParams(",
    "nested arguments": "SamplingParams(n=",
    "secrets": "api_key='x', ",
    "urls": "http://a:b@c/?d=e&",
    "key=value": "a=b, ",
    "non-ASCII": "é",
}
_SPLITTING = frozenset({"carriage returns", "bar states"})
"""Fillers that the reader takes for several states of a line, so that no hole sees them."""


def messages(hole: Hole, *, ends: bool) -> dict[str, Callable[[int], str]]:
    """Return the hostile messages for one hole, by what they stress."""
    stop = "" if ends else STOP
    cases: dict[str, Callable[[int], str]] = {
        "long value": lambda size: LEAD + _value(hole, size) + stop,
        "long value, no stop": lambda size: LEAD + _value(hole, size),
        "long value, never closed": lambda size: LEAD + hole.opening + _fill(hole.piece, size),
    }
    for name, piece in FILLERS.items():
        if name in _SPLITTING:
            continue
        cases[name] = partial(_around, LEAD + hole.opening, piece, stop)
    return cases


def _around(opening: str, piece: str, stop: str, size: int) -> str:
    return opening + _fill(piece, size) + stop


def _headed(text: str) -> bytes:
    return (HEADER + text + "\n").encode()


def _headed_fill(piece: str, size: int) -> bytes:
    return _headed(_fill(piece, size))


def _raw(piece: bytes) -> Callable[[int], bytes]:
    return lambda size: piece * (size // len(piece) + 1) + b"\n"


def _lines(piece: str) -> Callable[[int], bytes]:
    return lambda size: piece.encode() * (size // len(piece.encode()) + 1)


_REQUEST = (
    "Received request cmpl-0-0: prompt: '{}', params: SamplingParams({}), prompt_token_ids: {}"
)
_REQUEST_END = ", lora_request: None, prompt_adapter_request: None."
_STATS = "Engine 000: Avg prompt throughput: 1.0 tokens/s, "

RAW: dict[str, Callable[[int], bytes]] = {
    **{f"line of {name}": _raw(piece.encode()) for name, piece in FILLERS.items()},
    **{f"headed {name}": partial(_headed_fill, piece) for name, piece in FILLERS.items()},
    "line of invalid UTF-8": _raw(b"\xff\xfe"),
    "line of NUL": _raw(b"\x00"),
    "line of levels": _raw(b"INFO "),
    "line of header starts": _raw(b"INFO 11-30 12:00:0"),
    "line of open prefixes": _raw(b"(Worker pid="),
    "line of ranks": _raw(b"[rank0]:"),
    "line of colons": _raw(b"a:1:2 [0] "),
    "line of NCCL": _raw(b"node:1:2 [0] NCCL "),
    "line of JSON": _raw(b'{"message": '),
    "line of tokens": _raw(b"hf_abcdefghijklmnopqrstuvwxyz012345 "),
    "line of bearers": _raw(b"Authorization: Bearer abc "),
    "request, long prompt": lambda size: _headed(
        _REQUEST.format(_fill("a\\nb", size), "n=1", "None") + _REQUEST_END
    ),
    "request, quotes in prompt": lambda size: _headed(
        _REQUEST.format(_fill("\\'", size), "n=1", "None") + _REQUEST_END
    ),
    "request, prompt like params": lambda size: _headed(
        _REQUEST.format(_fill(", params: SamplingParams(", size), "n=1", "None") + _REQUEST_END
    ),
    "request, long ids": lambda size: _headed(
        _REQUEST.format("a", "n=1", "[" + _fill("1, ", size) + "1]") + _REQUEST_END
    ),
    "request, long schema": lambda size: _headed(
        _REQUEST.format("a", "n=1, stop=['" + _fill("{'a': [1, (", size), "None") + _REQUEST_END
    ),
    "request, long id": lambda size: _headed(
        "Received request " + _fill("a: b", size) + ": params: SamplingParams(n=1), lora_request: x"
    ),
    "statistics, many pieces": lambda size: _headed(_STATS + _fill("Odd: 1 reqs, ", size)),
    "statistics, commas": lambda size: _headed(_STATS + _fill(", ", size)),
    "access line, long path": lambda size: (
        'INFO:     192.0.2.1:5 - "GET /' + _fill("a?b=", size) + ' HTTP/1.1" 200 OK\n'
    ).encode(),
    "JSON record, long message": lambda size: (
        '{"asctime": "2026-11-30 12:00:01,454", "levelname": "INFO", "name": "vllm",'
        ' "processName": "MainProcess", "process": 8, "message": "' + _fill("\\n", size) + '"}\n'
    ).encode(),
    "lines: empty": _lines("\n"),
    "lines: CR only": _lines("\r\n"),
    "lines: raw, short": _lines("ab\n"),
    "lines: continued by CR": _lines(HEADER + "and so on\r\n"),
    "lines: equal header, indented": _lines(HEADER + "  and so on\n"),
    "lines: endless traceback": lambda size: (
        _headed("Traceback (most recent call last):")
        + _lines(HEADER + '  File "/a.py", line 1, in f\n')(size)
    ),
    "lines: endless bare traceback": lambda size: (
        b"Traceback (most recent call last):\n" + _lines('  File "/a.py", line 1, in f\n')(size)
    ),
    "lines: chained tracebacks": _lines(
        'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nValueError: a\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
    ),
    "lines: C++ frames": lambda size: (
        b"terminate called after throwing an instance of 'c10::Error'\n"
        + _lines("frame #0: f() + 0x57 (0x7f in libc10.so)\n")(size)
    ),
    "lines: bars": _lines("\rLoading: 50%|##   | 1/2 [00:01<00:01,  1.20s/it]"),
    "lines: new process each": lambda size: "".join(
        f"(Worker pid={number}) INFO 11-30 12:00:01 [a.py:1] Traceback (most recent call last):\r\n"
        for number in range(size // 80)
    ).encode(),
    "lines: new file each": lambda size: "".join(
        f"INFO 11-30 12:00:01 [a{number}.py:1] step done\n" for number in range(size // 44)
    ).encode(),
    "lines: new second each": lambda size: "".join(
        f"INFO 11-{1 + number // 86400 % 28:02} {number // 3600 % 24:02}:{number // 60 % 60:02}:"
        f"{number % 60:02} [a.py:1] step done\n"
        for number in range(0, size // 42 * 7, 7)
    ).encode(),
}
"""Raw hostile bytes by name; most are one line, the rest many lines of one record or of many."""


def headed(message: str) -> bytes:
    """Return the message as one line with vLLM's header."""
    return _headed(message)
