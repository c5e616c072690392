"""Progress bars: many states, one record."""

from __future__ import annotations

import functools
from datetime import UTC, datetime

import pytest

from vllm_logpipe import Catalogue, LogRecord, Normalizer, load_catalogue
from vllm_logpipe.read.clock import rfc3339
from vllm_logpipe.read.progress import match_bar

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
HEADER = "(EngineCore pid=7) INFO 11-30 12:00:01 [core.py:5] "


@functools.cache
def catalogue() -> Catalogue:
    """The built-in catalogue, once."""
    return load_catalogue()


def normalize(data: str) -> list[LogRecord]:
    """The records of a stream."""
    normalizer = Normalizer("test", catalogue=catalogue(), reference=REFERENCE)
    return normalizer.feed(data.encode()) + normalizer.flush()


def bar(share: int, name: str = "Making up data") -> str:
    """A state of a bar, as tqdm prints it."""
    return f"{name}: {share:3d}%|{'█' * (share // 10):10}| {share}/100 [00:01<00:02,  1.20it/s]"


def completed(loaded: int) -> str:
    """A state of the bar of vLLM's weight loader, which ends each state by LF."""
    name = "Loading safetensors checkpoint shards"
    return f"{name}: {loaded * 25:3d}% Completed | {loaded}/4 [00:01<00:01,  1.20s/it]"


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        (
            bar(50),
            {
                "vllm.progress.description": "Making up data",
                "vllm.progress.completed": 50,
                "vllm.progress.total": 100,
                "vllm.progress.ratio": 0.5,
                "vllm.progress.elapsed": 1.0,
            },
        ),
        (
            "a.bin:  12%|█▏        | 1.20k/10.0k [01:02:03<00:08, 1.15kB/s]",
            {
                "vllm.progress.description": "a.bin",
                "vllm.progress.completed": 1_200,
                "vllm.progress.total": 10_000,
                "vllm.progress.ratio": 0.12,
                "vllm.progress.elapsed": 3_723.0,
            },
        ),
        (
            "Capturing (decode, FULL): 100%|██████████| 2.5G/2.5G [00:09<00:00]",
            {
                "vllm.progress.description": "Capturing (decode, FULL)",
                "vllm.progress.completed": 2_500_000_000,
                "vllm.progress.ratio": 1.0,
            },
        ),
        (
            completed(1),
            {
                "vllm.progress.description": "Loading safetensors checkpoint shards",
                "vllm.progress.completed": 1,
                "vllm.progress.total": 4,
                "vllm.progress.ratio": 0.25,
            },
        ),
        ("x:   0%|          | 0/1 [00:00<?, ?it/s]", {"vllm.progress.completed": 0}),
        ("x: 999%|#| 9/1 [00:00<?]", {"vllm.progress.ratio": 1.0}),
        ("x:  50%|#| .../2 [00:00<?]", {"vllm.progress.total": 2}),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_state_of_a_bar_gives_its_figures(text: str, attributes: dict[str, object]) -> None:
    """Description, count, total, share and elapsed time are read, in base units."""
    (record,) = normalize(f"{text}\n")
    assert record.attributes["vllm.log.format"] == "progress"
    assert record.body == text
    assert record.attributes.items() >= attributes.items()
    assert "vllm.log.refreshes" not in record.attributes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "50%",
        "x: 50% of [it]",
        "x:  50%|#| 1/2",
        "x:  50%|#| 1 of 2 [00:01<00:02]",
        "x: 5000%|#| 1/2 [00:01<00:02]",
        "KV cache usage: 50%, hit rate: 10% [x]",
        "%[" * 50_000,
        "x: 50%|" * 20_000 + "[",
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_bar_is_none(text: str) -> None:
    """A share in a text makes no bar."""
    assert match_bar(text) is None


STATES = [bar(share) for share in (0, 30, 60, 100)]


@pytest.mark.parametrize(
    "data",
    [
        "\r" + "\r".join(STATES) + "\n",
        "\r".join(STATES) + "\r\n",
        "\r\n".join(STATES) + "\n",
        "\n".join(STATES) + "\n",
        "\n\r".join(STATES) + "\n",
        "".join(f"\r{state}\x1b[A" for state in STATES) + "\n",
        "(A pid=1) \r" + "\r".join(STATES) + "\n",
        "".join(f"(A pid=1) \r{state}\n" for state in STATES),
        "".join(f"(A pid=1) {state}\n(A pid=1) \n" for state in STATES),
        "".join(f"(A pid=1) \r{state}\n(A pid=1) \r\n" for state in STATES),
    ],
)
def test_the_states_of_a_bar_are_one_record(data: str) -> None:
    """However the states are parted, the record has the last one and their number."""
    records = normalize(f"{HEADER}before\n{data}{HEADER}after\n")
    (progress,) = [r for r in records if r.attributes["vllm.log.format"] == "progress"]
    assert progress.body == STATES[-1]
    assert progress.attributes["vllm.log.refreshes"] == len(STATES)
    assert {r.body for r in records} == {"before", STATES[-1], "after"}
    assert progress.attributes.get("process.pid") == (1 if "pid=1" in data else None)


def test_bars_of_several_processes_and_names_are_told_apart() -> None:
    """A bar is known by its process and its description."""
    data = "".join(
        f"({process} pid=1) {bar(share, name)}\n"
        for share in (10, 100)
        for process in ("A", "B")
        for name in ("first", "second")
    )
    found = [(r.attributes["vllm.process.name"], r.body[:6].strip(": ")) for r in normalize(data)]
    assert sorted(found) == [("A", "first"), ("A", "second"), ("B", "first"), ("B", "second")]


def test_a_bar_that_runs_again_is_a_record_of_its_own() -> None:
    """A finished bar that starts over later is another one."""
    other = "".join(f"{HEADER.replace(':5', f':{number}')}x{number}\n" for number in range(20))
    records = normalize("\n".join(STATES) + f"\n{other}" + "\n".join(STATES) + "\n")
    progress = [r for r in records if r.attributes["vllm.log.format"] == "progress"]
    assert [r.body for r in progress] == [STATES[-1]] * 2
    assert [r.attributes["vllm.log.refreshes"] for r in progress] == [4, 4]


def test_a_bar_that_never_ends_has_the_time_of_its_last_state() -> None:
    """A bar that was cut off by a crash is put out with the time it stood still at."""
    later = HEADER.replace("12:00:01", "13:00:01")
    records = normalize(f"{bar(0)}\n{HEADER}a\n{bar(30)}\n{later}b\n")
    (progress,) = [r for r in records if r.attributes["vllm.log.format"] == "progress"]
    assert progress.body == bar(30)
    assert rfc3339(progress.time_unix_nano).startswith("2026-11-30T12:00:01")


@pytest.mark.parametrize("first", [f"{HEADER}before\n", ""], ids=["later", "first line"])
@pytest.mark.parametrize("prefix", ["", "(A pid=1) "])
@pytest.mark.parametrize("start", ["", f"\r{bar(10)}\r"], ids=["one state", "two states"])
def test_what_is_glued_to_a_bar_is_a_record_of_its_own(start: str, prefix: str, first: str) -> None:
    """Another process prints its line right behind a bar that has no LF yet."""
    records = normalize(f"{first}{prefix}{start}{bar(60)}{HEADER}glued\n{bar(100)}\n")
    glued = next(r for r in records if r.body == "glued")
    assert glued.attributes["process.pid"] == 7
    assert glued.severity_text == "INFO"
    assert {bar(60), bar(100)} & {r.body for r in records}
    assert not any("glued" in r.body and "%" in r.body for r in records)


def test_a_record_whose_first_line_is_glued_to_a_bar_is_whole() -> None:
    """The lines of a record belong together also where the first one stands behind a bar."""
    error = HEADER.replace("INFO", "ERROR")
    for prefix in ("", "(A pid=1) "):
        records = normalize(
            f"{HEADER}x\n{prefix}{bar(60)}{error}it failed\n{error}  more\n{error}\tand more\n"
        )
        assert "it failed\n  more\n\tand more" in [r.body for r in records], prefix


@pytest.mark.parametrize("glued", ["text", "123456789", "n:8:9 [0] NCCL INFO x"])
def test_uids_stay_different_where_lines_are_glued(glued: str) -> None:
    """Every record has its own uid, also of several in one physical line."""
    data = f"(A pid=1) {bar(10)}{glued}\rpart2\rpart3\n" + "1\n" * 200
    records = normalize(data)
    uids = [r.attributes["log.record.uid"] for r in records]
    assert len(set(uids)) == len(uids)


def test_more_bars_than_are_kept_lose_none() -> None:
    """Hundreds of open bars each make a record with their last state."""
    names = [f"file-{number}.bin" for number in range(300)]
    records = normalize("".join(f"{bar(50, name)}\n" for name in names))
    assert sorted(r.body for r in records) == sorted(bar(50, name) for name in names)


def test_the_bar_of_the_weight_loader_has_its_event() -> None:
    """The catalogue knows the bar, and gives it phase and figures of its own."""
    data = "".join(f"\r{completed(loaded)}\n" for loaded in range(5))
    (record,) = normalize(data)
    assert record.event_name == "vllm.weights.progress"
    assert record.attributes["vllm.phase"] == "model_load"
    assert record.attributes["vllm.weights.shards.loaded"] == 4


def test_an_unknown_bar_has_the_general_event() -> None:
    """A bar that no entry knows is `vllm.progress`."""
    assert normalize(f"{bar(100)}\n")[0].event_name == "vllm.progress"


def test_a_finished_bar_does_not_hold_up_a_live_stream() -> None:
    """In a pause a finished bar is put out; one that goes on waits for its end."""
    normalizer = Normalizer("test", catalogue=catalogue(), live=True)
    assert normalizer.feed(f"{bar(50)}\n".encode()) + normalizer.expire() == []
    records = normalizer.feed(f"{bar(100)}\n".encode()) + normalizer.expire()
    assert [record.body for record in records] == [bar(100)]
    assert normalizer.flush() == []
