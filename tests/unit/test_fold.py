"""Probes and repeats fold into fewer records; none goes uncounted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.fold import Folder

NS = 1_000_000_000
HEAD = "(EngineCore pid=2) {level} 12-01 10:{m:02d}:{s:02d} [x.py:1] "


def line(second: int, text: str, level: str = "WARNING") -> str:
    """A record of the engine."""
    return HEAD.format(level=level, m=second // 60, s=second % 60) + f"{text}\n"


def probe(
    path: str = "/health", status: str = "200 OK", port: int = 4000, method: str = "GET"
) -> str:
    """An access line."""
    return f'INFO:     192.0.2.7:{port} - "{method} {path} HTTP/1.1" {status}\n'


def records_of(text: str) -> list[LogRecord]:
    """The records of a log, none folded."""
    normalizer = Normalizer("x", year=2026)
    return [*normalizer.feed(text.encode()), *normalizer.flush()]


def folded(text: str, *kinds: str) -> list[LogRecord]:
    """The records that leave of a log."""
    folder = Folder(kinds) if kinds else Folder()
    signals = folder.take(records_of(text)) + folder.flush()
    return [signal for signal in signals if isinstance(signal, LogRecord)]


def count(record: LogRecord) -> int:
    """How many records one stands for."""
    found = record.attributes.get("vllm.log.repeat.count", 1)
    assert isinstance(found, int)
    return found


def test_probes_become_one_record_a_minute() -> None:
    """With the number of them, the uid of the first and the time of the last."""
    text = "".join(
        line(second, f"step {second}") + probe(port=second) for second in range(0, 120, 5)
    )
    found = [record for record in folded(text) if record.event_name == "vllm.http.access"]
    assert len(found) == 2
    assert sum(map(count, found)) == 24
    first = next(r for r in records_of(text) if r.event_name == "vllm.http.access")
    assert found[0].attributes["log.record.uid"] == first.attributes["log.record.uid"]
    assert found[0].time_unix_nano == first.time_unix_nano
    assert str(found[1].attributes["vllm.log.repeat.until"]).startswith("2026-12-01T10:01:55")


@pytest.mark.parametrize(
    "text",
    [
        probe(status="503 Service Unavailable"),
        probe(path="/v1/models"),
        probe(method="POST"),
        probe(path="/healthy"),
    ],
    ids=["it failed", "another path", "another method", "a longer path"],
)
def test_what_is_no_successful_probe_leaves_as_it_is(text: str) -> None:
    """A probe that fails is what an operator wants to see."""
    assert [count(record) for record in folded(line(0, "x") + text * 3)] == [1, 1, 1, 1]


def test_of_repeats_ten_leave_and_the_rest_is_one() -> None:
    """The eleventh and all after it within the minute are one record."""
    found = folded("".join(line(second % 50, "disk is slow") for second in range(40)))
    assert [count(record) for record in found] == [1] * 10 + [30]


def test_a_run_of_repeats_goes_on_over_minutes() -> None:
    """Later minutes give one record each; after a quiet minute ten leave again."""
    noisy = "".join(line(second, "disk is slow") for second in range(0, 180, 2))
    found = folded(noisy)
    assert [count(record) for record in found][:10] == [1] * 10
    assert len(found) <= 10 + 4
    assert sum(map(count, found)) == 90
    again = noisy + line(400, "done") + "".join(line(500, "disk is slow") for _ in range(5))
    tail = folded(again)[-5:]
    assert [count(record) for record in tail] == [1] * 5


def test_records_that_differ_do_not_fold() -> None:
    """Another level, process, place or text is another record."""
    texts = [
        "".join(line(0, f"step {n}") for n in range(30)),
        "".join(line(0, "x", level) for level in ("WARNING", "ERROR") for _ in range(10)),
        "".join(line(0, "x").replace("pid=2", f"pid={n}") for n in range(30)),
        "".join(line(0, "x").replace("x.py:1", f"x.py:{n}") for n in range(30)),
    ]
    for text in texts:
        found = folded(text)
        assert [count(record) for record in found] == [1] * len(found)


def test_requests_and_stats_are_no_repeats() -> None:
    """Equal lines of traffic are different requests, and stats are samples."""
    stats = (
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 1.0 tokens/s,"
        " Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%"
    )
    text = line(0, stats, "INFO") * 20 + probe("/v1/completions", method="POST") * 20
    text += line(1, "Added request a-0.", "INFO") * 20
    assert [count(record) for record in folded(text)] == [1] * 60


def test_errors_fold_with_their_count() -> None:
    """A flood of one error is ten records and one with the rest."""
    found = folded(line(0, "CUDA error: out of memory", "ERROR") * 5000)
    assert [count(record) for record in found] == [1] * 10 + [4990]
    assert found[-1].attributes["error.type"] == "cuda.out_of_memory"


def test_counts_that_were_printed_add_up() -> None:
    """Ray's own folding counts: a repeat of seven stands for seven."""
    head = "(RayWorkerWrapper pid=7, ip=192.0.2.2) "
    text = f"{head}WARNING 12-01 10:00:00 [x.py:1] slow [repeated 7x across cluster]\n"
    found = folded(text * 12)
    assert [count(record) for record in found] == [7] * 10 + [14]


def test_a_probe_that_fails_and_its_recovery_leave_at_once() -> None:
    """What was held before it leaves first, and what succeeds after it is not hidden."""
    bad = probe(status="503 Service Unavailable")
    found = folded(line(0, "x") + probe() * 2 + bad * 2 + probe() * 3 + line(5, "y"))
    shown = [(r.attributes.get("http.response.status_code"), count(r)) for r in found]
    assert shown == [(None, 1), (200, 2), (503, 1), (503, 1), (200, 1), (None, 1), (200, 2)]


def test_folded_records_leave_when_nothing_comes_any_more() -> None:
    """By the time that has passed, whatever the log's own clock says."""
    folder = Folder()
    assert len(folder.take(records_of(line(0, "slow") * 30 + probe() * 30))) == 10
    assert folder.advance(59 * NS) == []
    found = folder.advance(2 * NS)
    assert sorted(count(r) for r in found if isinstance(r, LogRecord)) == [20, 30]
    assert folder.flush() == []


def test_a_clock_that_was_ahead_holds_nothing_back() -> None:
    """After one record of the far future runs go on by the minutes of those that follow."""
    text = line(3300, "early") + "".join(line(second, "slow") for second in range(0, 300, 3))
    found = folded(text)
    assert sum(map(count, found)) == 101
    assert len(found) >= 1 + 10 + 4


def test_each_kind_can_be_left_alone() -> None:
    """Probes, repeats, or neither."""
    text = line(0, "x") * 20 + probe() * 20
    assert len(folded(text, "probes")) == 21
    assert len(folded(text, "repeats")) == 31
    folder = Folder(())
    assert len(folder.take(records_of(text))) == 40


def test_long_records_are_not_held() -> None:
    """What would take memory to compare leaves as it is."""
    assert len(folded(line(0, "x" * 10_000) * 20)) == 20


def test_many_different_records_take_no_memory() -> None:
    """Keys are bounded; what is folded stays counted."""
    text = line(0, "same") * 20 + "".join(line(0, f"other {n}") for n in range(9000))
    folder = Folder()
    found = folder.take(records_of(text + line(0, "same") * 5))
    assert len(folder._repeats) <= 4096
    found += folder.flush()
    assert sum(count(r) for r in found if isinstance(r, LogRecord)) == 9025


def test_a_kind_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """In one line, with status 2."""
    (tmp_path / "a.log").write_text(line(0, "x"))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "vllm_logpipe",
            "normalize",
            str(tmp_path / "a.log"),
            "--fold",
            "all",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "vllm-logpipe: all: nothing that folds; known: probes, repeats\n"


def test_the_command_folds_unless_told_not_to(tmp_path: Path) -> None:
    """Signals count all records, whatever is folded."""
    path = tmp_path / "a.log"
    path.write_text(line(0, "disk is slow") * 50 + probe() * 50)

    def run(*arguments: str) -> list[dict[str, object]]:
        done = subprocess.run(
            [sys.executable, "-m", "vllm_logpipe", "normalize", str(path), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(text) for text in done.stdout.splitlines()]

    assert len(run()) == 12
    assert len(run("--fold", "none")) == 100
    signals = run("--signals")
    assert sum(signal["kind"] == "log" for signal in signals) == 12
    counted = {
        str(signal["attributes"]): signal["value"]
        for signal in signals
        if signal.get("name") == "vllm.log.records"
    }
    assert sorted(map(str, counted.values())) == ["50", "50"]
