"""The command, run as an operator runs it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from vllm_logpipe import __version__

COMMAND = [sys.executable, "-m", "vllm_logpipe"]
HEADER = "(EngineCore pid=7) INFO 11-30 12:00:01 [core.py:5] "
LOG = f"{HEADER}one\n{HEADER}  more\nraw\n".encode()
MANY = "".join(
    f"(EngineCore pid=7) INFO 11-30 12:{n // 60 % 60:02d}:{n % 60:02d} [core.py:{n}] line {n}\n"
    for n in range(5_000)
).encode()

Done = subprocess.CompletedProcess[bytes]


def run(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> Done:
    """The command, run to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def records(done: Done) -> list[dict[str, object]]:
    """The records that were put out."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def bodies(done: Done) -> list[object]:
    """Their bodies."""
    return [record["body"] for record in records(done)]


def succeeded(done: Done) -> Done:
    """The same, after a look at status and standard error."""
    assert (done.returncode, done.stderr) == (0, b"")
    return done


def complaint(done: Done) -> str:
    """The one line that a run which failed has on standard error."""
    assert done.returncode == 2
    text = done.stderr.decode()
    assert text.startswith("vllm-logpipe: ")
    assert text.endswith("\n")
    assert text.count("\n") == 1
    return text.removeprefix("vllm-logpipe: ").rstrip("\n")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A small log file."""
    path = tmp_path / "server.log"
    path.write_bytes(LOG)
    return path


def test_a_file_becomes_records(log: Path) -> None:
    """Without options the records of a file come out as NDJSON."""
    done = succeeded(run("normalize", log))
    assert bodies(done) == ["one\n  more", "raw"]
    assert set(records(done)[0]) == {
        *("timestamp", "observed_timestamp", "severity_text", "severity_number"),
        *("body", "attributes", "resource"),
    }


def test_standard_input_is_read_without_a_file() -> None:
    """Without a file, and for `-`, standard input is read."""
    assert bodies(succeeded(run("normalize", stdin=LOG))) == ["one\n  more", "raw"]
    assert bodies(succeeded(run("normalize", "-", stdin=LOG))) == ["one\n  more", "raw"]


def test_several_files_are_streams_of_their_own(tmp_path: Path, log: Path) -> None:
    """Records of files are put out in order, never joined, and have different instances."""
    other = tmp_path / "other.log"
    other.write_bytes(f"  continued\n{HEADER}  more\n".encode())
    done = succeeded(run("normalize", log, other))
    assert bodies(done) == ["one\n  more", "raw", "  continued", "  more"]
    resources = [record["resource"] for record in records(done)]
    assert resources[0] == resources[1] != resources[2] == resources[3]


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("a.log.gz", gzip.compress(LOG, mtime=0)),
        ("a.log", zstandard.ZstdCompressor().compress(LOG)),
    ],
)
def test_packed_files_are_read(tmp_path: Path, name: str, packed: bytes) -> None:
    """Rotated logs need not be unpacked first."""
    (tmp_path / name).write_bytes(packed)
    assert bodies(succeeded(run("normalize", tmp_path / name))) == ["one\n  more", "raw"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n \n\r\n", []),
        (b"one", ["one"]),
        (f"{HEADER}one".encode(), ["one"]),
        (b"\x00\x00\n\x00x\n", ["\x00\x00", "\x00x"]),
        (b"\xff\n", ["\\xff"]),
        ("ü 😀\n".encode(), ["ü 😀"]),
    ],
    ids=["empty", "blank", "no LF", "no LF after header", "NUL", "no UTF-8", "UTF-8"],
)
def test_any_content_is_read(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    """An empty file, a last line without LF, NULs and bytes that are no text are no trouble."""
    path = tmp_path / "a.log"
    path.write_bytes(content)
    assert bodies(succeeded(run("normalize", path))) == expected


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["normalize", "--bogus", "LOG"], "--bogus"),
        (["normalize", "--to", "xml", "LOG"], "xml"),
        (["normalize", "--year", "1969", "LOG"], "1969"),
        (["normalize", "--year", "2262", "LOG"], "2262"),
        (["normalize", "--year", "last", "LOG"], "last"),
        (["normalize", "--year", "-1", "LOG"], "--year"),
        (["normalize", "--year", "²", "LOG"], "²"),
        (["normalize", "--year", "", "LOG"], "--year"),
        (["normalize", "--timezone", "Mars/Base", "LOG"], "Mars/Base"),
        (["normalize", "--timezone", "", "LOG"], "time zone"),
        (["normalize", "--timezone", "../x", "LOG"], "../x"),
        (["normalize", "--keep", "prompt,everything", "LOG"], "everything"),
        (["normalize", "--redact", "prompt", "LOG"], "prompt"),
        (["normalize", "--catalogue", "LOG", "LOG"], "server.log"),
        (["normalize", "--catalogue", "LOG.missing", "LOG"], "server.log.missing"),
        (["normalize", "LOG.missing"], "server.log.missing: No such file"),
        (["normalize", "two\nlines"], "two lines: No such file"),
        (["normalize", "--follow", "LOG.missing"], "server.log.missing: No such file"),
        (["normalize", "."], "."),
        (["normalize", "--follow", "."], "."),
        (["normalize", "/proc/self/mem"], "/proc/self/mem"),
        (["explain"], "LINE"),
        (["explain", "--catalogue", "LOG", "x"], "server.log"),
        (["catalogue"], "ACTION"),
        (["catalogue", "check", "LOG.missing"], "server.log.missing"),
        (["catalogue", "list", "LOG.missing"], "server.log.missing"),
        (["frobnicate"], "frobnicate"),
        ([], "COMMAND"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_told_in_one_line(
    log: Path, arguments: list[str], named: str
) -> None:
    """A mistake is one line on standard error that names it, status 2, and no output."""
    done = run(*(argument.replace("LOG", str(log)) for argument in arguments))
    assert named in complaint(done)
    assert done.stdout == b""


def test_a_broken_catalogue_is_told_in_one_line(tmp_path: Path, log: Path) -> None:
    """File and entry are named; nothing is normalised with half a catalogue."""
    (tmp_path / "broken.toml").write_text('[[event]]\nname = "vllm.made.up"\nmatch = "x"\n')
    for done in (
        run("normalize", "--catalogue", tmp_path, log),
        run("catalogue", "check", tmp_path),
    ):
        assert "broken.toml" in complaint(done)
        assert b"body" not in done.stdout


def test_files_that_can_be_read_are_put_out_beside_one_that_cannot(
    tmp_path: Path, log: Path
) -> None:
    """One missing file does not keep the others from being read."""
    done = run("normalize", log, tmp_path / "missing", log)
    assert "missing" in complaint(done)
    assert bodies(done) == ["one\n  more", "raw"] * 2


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
@pytest.mark.parametrize("damage", ["truncated", "corrupt"])
def test_what_can_be_read_of_a_damaged_file_is_put_out(
    tmp_path: Path, pack: str, damage: str
) -> None:
    """The records before the damage come out; one line names the file."""
    content = MANY + os.urandom(200_000).hex().encode()
    packed = bytearray(
        gzip.compress(content, mtime=0)
        if pack == "gzip"
        else zstandard.ZstdCompressor(write_checksum=True).compress(content)
    )
    if damage == "truncated":
        del packed[-1000:]
    else:
        packed[-2000:-1000] = bytes(1000)
    path = tmp_path / "a.log"
    path.write_bytes(packed)
    done = run("normalize", path)
    assert complaint(done).startswith(f"{path}: ")
    assert [body for body in bodies(done) if str(body).startswith("line ")] == [
        f"line {n}" for n in range(5_000)
    ]


def test_the_time_of_a_file_tells_the_year(log: Path) -> None:
    """Without --year a file's own time is the reference; with it the year is as given."""
    os.utime(log, (1_613_000_000, 1_613_000_000))
    assert str(records(run("normalize", log))[0]["timestamp"]).startswith("2020-11-30T12:00:01")
    done = succeeded(run("normalize", "--year", "2015", "--timezone", "Asia/Tokyo", log))
    assert str(records(done)[0]["timestamp"]).startswith("2015-11-30T03:00:01")


def test_a_warning_is_told_and_is_no_failure(log: Path) -> None:
    """A 02-29 in a year without one is read and told in one line."""
    log.write_bytes(LOG.replace(b"11-30", b"02-29"))
    done = run("normalize", "--year", "2027", log)
    assert done.returncode == 0
    assert done.stderr.decode().startswith(f"vllm-logpipe: {log}: 02-29")
    assert done.stderr.count(b"\n") == 1


def test_records_as_otlp_json(log: Path) -> None:
    """Each line of output is a request as a Collector takes it."""
    done = succeeded(run("normalize", "--to", "otlp-json", log))
    found = [
        record["body"]["stringValue"]
        for line in done.stdout.splitlines()
        for resource in json.loads(line)["resourceLogs"]
        for record in resource["scopeLogs"][0]["logRecords"]
    ]
    assert found == ["one\n  more", "raw"]


def test_records_as_text(log: Path) -> None:
    """For a person a record is one line with time, level, process and message."""
    lines = succeeded(run("normalize", "--to", "text", log)).stdout.decode().splitlines()
    assert len(lines) == 2
    assert lines[0].split() == ["12:00:01", "INFO", "EngineCore", "-", "one"]


def test_options_of_redaction(log: Path) -> None:
    """--original adds the line as printed, --redact takes more out, --keep leaves it in."""
    line = 'INFO:     192.0.2.1:1 - "GET /x?a=b HTTP/1.1" 200 OK\n'
    log.write_text(line)
    (plain,) = bodies(succeeded(run("normalize", log)))
    assert plain == '192.0.2.1:1 - "GET /x?[redacted] HTTP/1.1" 200 OK'
    done = succeeded(
        run("normalize", "--original", "--keep", "query", "--redact", "client_address", log)
    )
    (record,) = records(done)
    assert record["body"] == '[redacted]:1 - "GET /x?a=b HTTP/1.1" 200 OK'
    attributes = record["attributes"]
    assert isinstance(attributes, dict)
    assert attributes["log.record.original"] == f"INFO:     {record['body']}"


@pytest.mark.parametrize("redirection", ["<&-", ">&-", ">/dev/full", "<&- >&-"])
@pytest.mark.parametrize("command", ["normalize -", "explain x", "catalogue list"])
def test_broken_standard_streams_are_no_traceback(redirection: str, command: str) -> None:
    """Closed streams and a full disk are told in one line at most."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m vllm_logpipe {command} {redirection}', sys.executable],
        input=b"x\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") <= 1
    if "full" in redirection:
        assert done.returncode not in (0, -signal.SIGPIPE)
        assert b"No space left" in done.stderr


def test_output_in_another_encoding_is_no_traceback() -> None:
    """What a terminal cannot show is no reason to stop."""
    done = succeeded(run("explain", "█ made-up ü", PYTHONIOENCODING="ascii", PYTHONUTF8="0"))
    assert b"made-up" in done.stdout


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    """`| head -1` gets its line, and nothing is said."""
    path = tmp_path / "a.log"
    path.write_bytes(MANY)
    done = subprocess.run(
        ["sh", "-c", '"$0" -m vllm_logpipe normalize "$1" | head -1', sys.executable, path],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert bodies(succeeded(done)) == ["line 0"]


def test_an_interrupt_ends_the_command_quietly() -> None:
    """Ctrl-C puts out what was read, says nothing, and gives the status that shells expect."""
    with subprocess.Popen(
        [*COMMAND, "normalize"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"".join(MANY.splitlines(keepends=True)[:50]))
        process.stdin.flush()
        lines = [process.stdout.readline()]
        process.send_signal(signal.SIGINT)
        lines += process.stdout.readlines()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 130
    numbers = [int(str(json.loads(line)["body"]).removeprefix("line ")) for line in lines]
    assert numbers == list(range(50))


def test_version_and_help() -> None:
    """The version is that of the package; every command has a help text."""
    assert succeeded(run("--version")).stdout.decode() == f"vllm-logpipe {__version__}\n"
    for arguments in (["-h"], ["normalize", "--help"], ["explain", "-h"], ["catalogue", "-h"]):
        assert b"usage: vllm-logpipe" in succeeded(run(*arguments)).stdout


def test_the_catalogue_can_be_listed_and_checked() -> None:
    """The built-in entries are all right."""
    assert b"vllm.kv_cache.capacity" in succeeded(run("catalogue", "list")).stdout
    assert b"all right" in succeeded(run("catalogue", "check")).stdout


def test_a_line_is_explained() -> None:
    """`explain` names the entry of a line."""
    done = succeeded(run("explain", f"{HEADER}GPU KV cache size: 48,704 tokens"))
    assert b"entry    vllm.kv_cache.capacity" in done.stdout


@pytest.mark.parametrize("options", [(), ("--follow",)], ids=["replay", "follow"])
def test_standard_input_is_told_apart_by_the_name_it_is_given(options: tuple[str, ...]) -> None:
    """Piped logs of two servers get ids of their own; the same name gives the same ones."""
    ids = [
        (one["attributes"]["log.record.uid"], one["resource"]["service.instance.id"])  # type: ignore[index]
        for name in ("pod-a", "pod-b", "pod-a")
        for one in records(run("normalize", "--source", name, *options, stdin=LOG))[:1]
    ]
    assert len(ids) == 3
    assert ids[0] == ids[2]
    assert ids[0][0] != ids[1][0]
    assert ids[0][1] != ids[1][1]


def test_an_envelope_is_found_or_named() -> None:
    """A line of the kubelet's files is unwrapped, unless told otherwise."""
    line = f"2026-11-30T12:00:01.5Z stdout F {HEADER}one\n".encode()
    assert bodies(succeeded(run("normalize", stdin=line))) == ["one"]
    assert bodies(succeeded(run("normalize", "--envelope", "cri", stdin=line))) == ["one"]
    (body,) = bodies(succeeded(run("normalize", "--envelope", "none", stdin=line)))
    assert str(body).startswith("2026-11-30T12:00:01.5Z stdout F ")


def test_an_unknown_envelope_is_a_mistake() -> None:
    """The complaint names what there is."""
    text = complaint(run("normalize", "--envelope", "zip", stdin=LOG))
    assert text.startswith("unknown envelope 'zip': one of auto, none, cri, docker")
