"""The beginning of a line, in the shapes of all releases and of vLLM's neighbours."""

from __future__ import annotations

import json

import pytest

from vllm_logpipe.read.header import HeaderReader, load_settings

Attributes = dict[str, str | int]

SOURCE: Attributes = {"code.file.path": "core.py", "code.line.number": 139}
ENGINE: Attributes = {
    "process.pid": 77,
    "vllm.process.name": "EngineCore_DP0",
    "vllm.process.kind": "engine_core",
    "vllm.rank.dp": 0,
}
WORKER: Attributes = {
    "process.pid": 9,
    "vllm.process.name": "VllmWorker",
    "vllm.process.kind": "worker",
    "vllm.rank.global": 3,
}
RAY: Attributes = {
    "process.pid": 12,
    "vllm.process.name": "RayWorkerWrapper",
    "vllm.process.kind": "worker",
}
API: Attributes = {"vllm.process.kind": "api_server"}

HEADERS: list[tuple[str, str, str | None, int | None, Attributes]] = [
    ("INFO 06-03 12:00:01 core.py:139] ", "v0", "INFO", 9, SOURCE),
    ("INFO 06-03 12:00:01 [core.py:139] ", "v1", "INFO", 9, SOURCE),
    ("DEBUG 06-03 12:00:01 [core.py:139] ", "v1", "DEBUG", 5, SOURCE),
    ("WARNING 06-03 12:00:01 [core.py:139] ", "v1", "WARNING", 13, SOURCE),
    ("ERROR 06-03 12:00:01 [core.py:139] ", "v1", "ERROR", 17, SOURCE),
    ("CRITICAL 06-03 12:00:01 [core.py:139] ", "v1", "CRITICAL", 21, SOURCE),
    (
        "DEBUG 06-03 12:00:01 [model_executor/.../utils/fp8.py:1] ",
        "v1",
        "DEBUG",
        5,
        {"code.file.path": "model_executor/.../utils/fp8.py", "code.line.number": 1},
    ),
    (
        "(EngineCore_DP0 pid=77) INFO 06-03 12:00:01 [core.py:139] ",
        "v1_prefixed",
        "INFO",
        9,
        {**ENGINE, **SOURCE},
    ),
    (
        "(VllmWorker rank=3 pid=9) INFO 06-03 12:00:01 [core.py:139] ",
        "v1_prefixed",
        "INFO",
        9,
        {**WORKER, **SOURCE},
    ),
    ("(VllmWorker rank=3 pid=9) INFO 06-03 12:00:01 core.py:139] ", "v0", "INFO", 9, WORKER),
    (
        "(RayWorkerWrapper pid=12, ip=192.0.2.2) INFO 06-03 12:00:01 [core.py:139] ",
        "v1_prefixed",
        "INFO",
        9,
        {**RAY, **SOURCE},
    ),
    (
        "(A pid=1) (EngineCore_DP0 pid=77) INFO 06-03 12:00:01 [core.py:139] ",
        "v1_prefixed",
        "INFO",
        9,
        {**ENGINE, **SOURCE},
    ),
    ("INFO:     ", "uvicorn", "INFO", 9, API),
    ("WARNING:  ", "uvicorn", "WARNING", 13, API),
    ("CRITICAL: ", "uvicorn", "CRITICAL", 21, API),
    ("(EngineCore_DP0 pid=77) ERROR:    ", "uvicorn", "ERROR", 17, ENGINE),
    (
        "[rank3]:[E1012 22:31:22.267261276 ProcessGroupNCCL.cpp:607] ",
        "c10d",
        "ERROR",
        17,
        {"code.file.path": "ProcessGroupNCCL.cpp", "code.line.number": 607, "nccl.rank": 3},
    ),
    ("[W1012 22:31:22.2 a/b.cpp:7] ", "c10d", "WARNING", 13, {"code.line.number": 7}),
    ("[I socket.cpp:442] ", "c10d", "INFO", 9, {"code.file.path": "socket.cpp"}),
    (
        "[rank1]:V0915 12:00:01.123000 811 torch/_inductor/utils.py:1250] ",
        "torch",
        "DEBUG",
        5,
        {"process.pid": 811, "vllm.rank.global": 1, "code.line.number": 1250},
    ),
    ("C0915 12:00:01.1 811 torch/a.py:1] ", "torch", "CRITICAL", 21, {"process.pid": 811}),
    (
        "node-1.local:811:1024 [0] NCCL INFO ",
        "nccl",
        "INFO",
        9,
        {"nccl.host": "node-1.local", "process.pid": 811},
    ),
    (
        "[2026-10-12 22:31:22.123] n:8:9 [7] misc/socket.cc:521 NCCL WARN ",
        "nccl",
        "WARN",
        13,
        {"process.pid": 8, "code.file.path": "misc/socket.cc", "code.line.number": 521},
    ),
    ("n:8:9 [-1] NCCL ABORT ", "nccl", "FATAL", 21, {"nccl.host": "n"}),
    ("[STATS] ", "tagged", None, None, {}),
    ("[WARN] ", "tagged", "WARN", 13, {}),
    (
        "/opt/a b/c.py:138: ",
        "python_warning",
        None,
        None,
        {"code.file.path": "/opt/a b/c.py", "code.line.number": 138},
    ),
]
MESSAGES = ["", "text", " indented", "[rank0]: x", "INFO 01-01 00:00:00 [a.py:1] inner", "{}"]


@pytest.mark.parametrize(
    ("header", "log_format", "level", "number", "attributes"),
    HEADERS,
    ids=[header[0] for header in HEADERS],
)
def test_a_header_gives_format_level_and_attributes(
    header: str,
    log_format: str,
    level: str | None,
    number: int | None,
    attributes: Attributes,
) -> None:
    """What the header says is read, and the message begins after it, whatever it is."""
    # A tag may stand before anything, a warning's place only before a warning.
    messages = ["FutureWarning: x"] if log_format == "python_warning" else MESSAGES
    for message in messages:
        beginning = HeaderReader().read(header + message)
        head = beginning.head
        assert head is not None, message
        assert (head.format, head.level, head.number) == (log_format, level, number)
        assert (header + message)[beginning.start :] == message
        members: Attributes = json.loads("{" + head.members.strip(",") + "}")
        assert members.pop("vllm.log.format") == log_format
        assert members.items() >= attributes.items()


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "text",
        "info 06-03 12:00:01 [core.py:139] x",
        "INFO 6-3 12:00:01 [core.py:139] x",
        "INFO 06-03 12:00 [core.py:139] x",
        "INFO 06-03 12:00:01 [core.py] x",
        "INFO 06-03 12:00:01 [core.py:139]x",
        "INFO 06-03 12:00:01 [co re.py:139] x",
        "INFO 06-03 12:00:01 x",
        " INFO 06-03 12:00:01 [core.py:139] x",
        "INFO: x",
        "INFO:    x",
        "NOTICE:   x",
        "[E ] x",
        "[other] x",
        "(not a prefix) x",
        "(pid=) x",
        "(A pid=1)x",
        "n:8 NCCL INFO x",
        "/opt/c.py:138: note",
        "a: 50%",
        "INFO ٠٦-٠٣ ١٢:٠٠:٠١ [core.py:139] x",
    ],
)
def test_what_only_looks_like_a_header_is_none(line: str) -> None:
    """A line that differs from a header in one place has none."""
    assert HeaderReader().read(line).head is None


@pytest.mark.parametrize(
    ("line", "name", "pid"),
    [
        ("(A pid=1) text", "A", 1),
        ("(A pid=1) (B_TP0 rank=1 pid=2) text", "B_TP0", 2),
        ("(A pid=1) (B pid=2) (C d pid=3, ip=2001:db8::1) text", "C d", 3),
        ("(pid=4) text", "", 4),
        ("(rank=2 pid=4) text", "", 4),
    ],
)
def test_a_prefix_names_the_process_of_a_line_without_header(
    line: str, name: str, pid: int
) -> None:
    """Of nested prefixes the innermost one names the process; all are taken off."""
    beginning = HeaderReader().read(line)
    assert beginning.head is None
    assert beginning.process is not None
    assert (beginning.process.name, beginning.process.pid) == (name, pid)
    assert line[beginning.start :] == "text"
    assert beginning.prefix + "text" == line


CUSTOM = ["[pod-7/llm-a] ", "prod|", "(blue) ", "%s\\d+ ", "INFO ", "ü: "]


@pytest.mark.parametrize("shape", ["{c}{h}", "{p}{c}{h}", "{c}{p}{h}"])
@pytest.mark.parametrize("custom", CUSTOM)
def test_a_constant_text_before_the_header_is_learned(custom: str, shape: str) -> None:
    """VLLM_LOGGING_PREFIX may stand before or after the process prefix; the first header tells."""
    reader = HeaderReader()
    for second in range(3):
        header = f"INFO 06-03 12:00:0{second} [core.py:139] "
        start = shape.format(c=custom, p="(EngineCore_DP0 pid=77) ", h=header)
        beginning = reader.read(f"{start}text")
        assert beginning.head is not None
        assert beginning.start == len(start)
        assert (beginning.head.process is not None) == ("{p}" in shape)
    assert reader.read(f"other {header}text").head is None
    assert reader.read(f"{custom}text").head is None
    assert reader.read(f"x {custom}{header}text").head is None


def test_after_a_header_without_text_before_it_none_is_learned() -> None:
    """A header in the middle of raw text is no header, once a real one was seen."""
    reader = HeaderReader()
    assert reader.read("INFO 06-03 12:00:01 [core.py:139] x").head is not None
    assert reader.read("he said INFO 06-03 12:00:01 [core.py:139] x").head is None
    assert reader.read("(A pid=1) got INFO 06-03 12:00:01 [core.py:139] x").head is None


@pytest.mark.parametrize(
    "before",
    [
        "x" * 65,
        " ",
        "Load:  50%|#####     | 1/2 [00:01<00:01,  1.20s/it]",
        "(A pid=1) Load:  50%|#####     | 1/2 [00:01<00:01]",
    ],
)
def test_not_every_text_before_a_header_is_learned(before: str) -> None:
    """A long text, blanks or a progress bar before the first header is no constant prefix."""
    header = "INFO 06-03 12:00:01 [core.py:139] "
    assert HeaderReader().read(f"{before}{header}text").head is None


@pytest.mark.parametrize(
    "line",
    [
        "(" * 200_000,
        "(A pid=1) " * 20_000,
        "INFO " * 40_000,
        "[rank0]:" * 25_000,
        "a:1: " * 40_000 + "Warning: ",
        "x" * 200_000 + " NCCL ",
        "\x00" * 200_000,
    ],
    ids=lambda line: line[:12],
)
def test_a_hostile_line_is_read_to_its_end(line: str) -> None:
    """A very long line of repeated beginnings makes no header, and the text stays whole."""
    beginning = HeaderReader().read(line)
    assert beginning.head is None
    assert line[: beginning.start] == beginning.prefix


def test_the_samples_of_the_grammars_are_read() -> None:
    """Every grammar of the catalogue reads its own sample as its format."""
    for grammar, _ in load_settings().grammars:
        head = HeaderReader().read(grammar.sample).head
        assert head is not None
        assert head.format == grammar.format
