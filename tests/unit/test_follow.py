"""Files that are followed as they grow, and rotated."""

from __future__ import annotations

import gzip
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

HEADER = "(EngineCore pid=7) INFO 11-30 12:00:01 [core.py:5] "
PATIENCE_S = 10.0
"""Long enough for a slow machine: a record is there within two seconds."""


class Follower:
    """The command with `--follow`, and what it puts out."""

    def __init__(self, *names: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vllm_logpipe", "normalize", "--follow", *map(str, names)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def record(self) -> dict[str, object]:
        """The next record."""
        found: dict[str, object] = json.loads(self._lines.get(timeout=PATIENCE_S))
        return found

    def body(self) -> object:
        """The body of the next record."""
        return self.record()["body"]

    def rest(self) -> list[object]:
        """The bodies of what has come by the end."""
        self._reader.join()
        return [json.loads(self._lines.get())["body"] for _ in range(self._lines.qsize())]

    def send(self, data: bytes) -> None:
        """Write to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def stop(self, signal_number: int = signal.SIGINT) -> tuple[int, bytes]:
        """Status and standard error after a signal."""
        self.process.send_signal(signal_number)
        return self.end()

    def end(self) -> tuple[int, bytes]:
        """Status and standard error after the end that comes by itself."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        status = self.process.wait(timeout=PATIENCE_S)
        return status, self.process.stderr.read()

    def close(self) -> None:
        """End it for certain."""
        self.process.kill()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        self.process.wait()


@pytest.fixture
def followers() -> Iterator[list[Follower]]:
    """What a test started, ended after it."""
    started: list[Follower] = []
    yield started
    for follower in started:
        follower.close()


END = "\n\n\n"
"""Blank lines, after which a line without a header is known to be complete."""


def append(path: Path, text: str) -> None:
    """Add to a file."""
    with path.open("a") as file:
        file.write(text)


def test_what_is_appended_is_put_out(tmp_path: Path, followers: list[Follower]) -> None:
    """The beginning of a file comes first, then each line that is added, the last one too."""
    path = tmp_path / "a.log"
    path.write_text(f"{HEADER}one\n")
    follower = Follower(path)
    followers.append(follower)
    assert follower.body() == "one"
    append(path, f"{HEADER}two\n{HEADER}  more\n")
    assert follower.body() == "two\n  more"
    append(path, "half a line")
    append(path, ", then its end\n")
    assert follower.body() == "half a line, then its end"
    append(path, "unfinished")
    assert follower.stop() == (130, b"")
    assert follower.rest() in ([], ["unfinished"])


def test_a_file_that_is_rotated_is_followed_on(tmp_path: Path, followers: list[Follower]) -> None:
    """After rename and create the new file is another stream; the old one is read to its end."""
    path = tmp_path / "a.log"
    path.write_text(f"one{END}")
    follower = Follower(path)
    followers.append(follower)
    first = follower.record()
    assert first["body"] == "one"
    path.rename(tmp_path / "a.log.1")
    append(tmp_path / "a.log.1", f"two{END}")
    assert follower.body() == "two"
    path.write_text(f"three{END}")
    third = follower.record()
    assert third["body"] == "three"
    assert third["resource"] != first["resource"]
    append(path, f"four{END}")
    assert follower.body() == "four"
    assert follower.stop() == (130, b"")


def test_a_file_that_is_cut_short_is_read_anew(tmp_path: Path, followers: list[Follower]) -> None:
    """After a truncation (logrotate's copytruncate) the file is read from its start."""
    path = tmp_path / "a.log"
    path.write_text(f"a rather long line{END}")
    follower = Follower(path)
    followers.append(follower)
    first = follower.record()
    path.write_text(f"new{END}")
    second = follower.record()
    assert (first["body"], second["body"]) == ("a rather long line", "new")
    assert uid(first) != uid(second)
    assert follower.stop() == (130, b"")


def uid(record: dict[str, object]) -> object:
    """The uid of a record."""
    attributes = record["attributes"]
    assert isinstance(attributes, dict)
    return attributes["log.record.uid"]


def test_a_file_that_goes_away_is_waited_for(tmp_path: Path, followers: list[Follower]) -> None:
    """Between the removal of a file and the next one of its name nothing is said."""
    path = tmp_path / "a.log"
    path.write_text(f"one{END}")
    follower = Follower(path)
    followers.append(follower)
    assert follower.body() == "one"
    path.unlink()
    (tmp_path / "b.log").write_text(f"two{END}")
    (tmp_path / "b.log").rename(path)
    assert follower.body() == "two"
    assert follower.stop() == (130, b"")


def test_several_files_are_followed_at_once(tmp_path: Path, followers: list[Follower]) -> None:
    """Each file is a stream of its own."""
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    for path in paths:
        path.write_text("")
    follower = Follower(*paths)
    followers.append(follower)
    for number in range(2):
        for path in paths:
            append(path, f"{path.name} {number}{END}")
            assert follower.body() == f"{path.name} {number}"
    assert follower.stop() == (130, b"")


def test_an_interrupt_puts_out_what_was_read(tmp_path: Path, followers: list[Follower]) -> None:
    """A record that is still open is not lost by Ctrl-C."""
    path = tmp_path / "a.log"
    path.write_text(f"raw{END}{HEADER}open\n")
    follower = Follower(path)
    followers.append(follower)
    assert follower.body() == "raw"
    assert follower.stop() == (130, b"")
    assert follower.rest() == ["open"]


def test_standard_input_is_read_to_its_end(followers: list[Follower]) -> None:
    """A pipe that is followed ends the command with its own end."""
    follower = Follower("-")
    followers.append(follower)
    follower.send(f"raw\n{HEADER}one\n".encode())
    assert follower.end() == (0, b"")
    assert follower.rest() == ["raw", "one"]


def test_a_pause_of_a_pipe_puts_out_what_is_complete(followers: list[Follower]) -> None:
    """`tail -F log | vllm-logpipe normalize --follow` need not wait for the next line."""
    follower = Follower("-")
    followers.append(follower)
    follower.send(f"{HEADER}one\n".encode())
    assert follower.body() == "one"
    assert follower.end() == (0, b"")


def test_a_named_pipe_can_be_followed(tmp_path: Path, followers: list[Follower]) -> None:
    """What a writer puts into a named pipe, or `<(…)`, comes out; a pipe is never rotated."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        os.write(writer, b"one\n\n\ntwo\n")
        follower = Follower(path)
        followers.append(follower)
        assert follower.body() == "one"
    finally:
        os.close(writer)
    assert follower.body() == "two"
    follower.process.send_signal(signal.SIGINT)
    status, complaint = follower.end()
    assert status in (0, 130)
    assert complaint == b""


def test_a_packed_file_cannot_be_followed(tmp_path: Path, followers: list[Follower]) -> None:
    """A packed file does not grow: one line says so."""
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    follower = Follower(path)
    followers.append(follower)
    status, complaint = follower.end()
    assert status == 2
    assert complaint.count(b"\n") == 1
    assert str(path).encode() in complaint


def test_a_request_to_end_puts_out_what_is_held(tmp_path: Path, followers: list[Follower]) -> None:
    """How containers and services are stopped: folded repeats leave with their count."""
    path = tmp_path / "a.log"
    append(path, f"{HEADER}slow\n" * 30)
    follower = Follower(path)
    followers.append(follower)
    assert [follower.body() for _ in range(10)] == ["slow"] * 10
    follower.process.send_signal(signal.SIGTERM)
    assert follower.process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert follower.rest() == ["slow"]


def test_metrics_leave_while_nothing_more_comes(tmp_path: Path, followers: list[Follower]) -> None:
    """What becomes due in a pause is put out in it."""
    path = tmp_path / "a.log"
    append(path, f"{HEADER}one\n")
    follower = Follower(path, "--signals")
    followers.append(follower)
    assert follower.body() == "one"
    append(path, f"{HEADER}two\n")
    assert follower.body() == "two"
    kinds = {follower.record()["kind"] for _ in range(2)}
    assert kinds == {"metric"}
