"""The conformance corpus: what the records of a log have to be, one behaviour a file.

`NAME.log` holds the bytes as printed, `NAME.expected.jsonl` the records that they have to give, and
`NAME.options.json`, where one is needed, the settings. `make corpus` writes what differs.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from msgspec import Struct

from vllm_logpipe import Catalogue, Normalizer, encode_ndjson, load_catalogue

Record: TypeAlias = dict[str, object]

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
"""Shortly after the last line of each log."""
DYNAMIC = {"observed_timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{9})?Z"}
"""What differs from run to run: the key and what its value has to look like."""
ABSENT = "(absent)"
MAX_DIFFERENCES = 20
SMALLEST = 30
"""Behaviours that the corpus shows at least."""


class Options(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a case, and what the normaliser has to warn of."""

    year: int | None = None
    timezone: str | None = None
    keep: list[str] = []
    redact: list[str] = []
    original: bool = False
    warnings: list[str] = []


@functools.cache
def catalogue() -> Catalogue:
    """The built-in catalogue, once."""
    return load_catalogue()


def normalize(log: Path, *, block_size: int | None = None) -> tuple[bytes, list[str]]:
    """The NDJSON of a log by the case's settings, and the warnings."""
    options = read_options(log)
    normalizer = Normalizer(
        f"corpus/{log.name}",
        catalogue=catalogue(),
        year=options.year,
        timezone=options.timezone,
        reference=REFERENCE,
        keep=options.keep,
        redact=options.redact,
        original=options.original,
    )
    data = log.read_bytes()
    size = block_size or max(len(data), 1)
    records = []
    for start in range(0, len(data), size):
        records += normalizer.feed(data[start : start + size])
    return encode_ndjson(records + normalizer.flush()), normalizer.warnings


def read_options(log: Path) -> Options:
    """The settings of a case."""
    path = log.with_suffix(".options.json")
    return msgspec.json.decode(path.read_bytes() if path.exists() else b"{}", type=Options)


def expected_file(log: Path) -> Path:
    """Where the records of a log are laid down."""
    return log.with_suffix(".expected.jsonl")


def decode(ndjson: str) -> list[Record]:
    """The records of an NDJSON text, none of which may have a key twice."""
    return [json.loads(line, object_pairs_hook=once) for line in ndjson.split("\n")[:-1]]


def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The members of an object, all names of which differ."""
    members = dict(pairs)
    assert len(members) == len(pairs), f"a key stands twice: {[name for name, _ in pairs]}"
    return members


def settle(records: list[Record]) -> str:
    """Records as the expected file holds them, with markers for what differs from run to run."""
    for number, record in enumerate(records, 1):
        for key, pattern in DYNAMIC.items():
            value = str(record.get(key, ABSENT))
            assert re.fullmatch(pattern, value), f"record {number}, {key}: {value}"
            record[key] = marker(key)
    return "".join(
        f"{json.dumps(record, ensure_ascii=False, sort_keys=True)}\n" for record in records
    )


def marker(key: str) -> str:
    """What stands for a value that differs from run to run."""
    return f"<{key}>"


def flatten(record: Record) -> dict[str, str]:
    """The values of a record as JSON texts, so that 1, 1.0 and true are three things."""
    values: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            values.update((f"{key} {name}", json.dumps(v)) for name, v in value.items())
        else:
            values[key] = json.dumps(value, ensure_ascii=False)
    return values


def differences(expected: list[Record], got: list[Record]) -> list[str]:
    """What is not as expected, a line each: record number, key, expected, got."""
    lines = []
    if len(expected) != len(got):
        lines.append(f"records: expected {len(expected)}, got {len(got)}")
    for number in range(1, max(len(expected), len(got)) + 1):
        old = flatten(expected[number - 1]) if number <= len(expected) else {}
        new = flatten(got[number - 1]) if number <= len(got) else {}
        if not old or not new:
            what = "missing" if old else "unexpected"
            lines.append(f"record {number} is {what}: {(old or new)['body']}")
            continue
        lines += [
            f"record {number}, {key}:\n    expected {old.get(key, ABSENT)}\n"
            f"    got      {new.get(key, ABSENT)}"
            for key in sorted(old.keys() | new.keys())
            if old.get(key) != new.get(key)
        ]
    return lines


def report(name: str, lines: list[str]) -> str:
    """The differences of a case as a failure shows them."""
    more = len(lines) - MAX_DIFFERENCES
    shown = [*lines[:MAX_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])]
    return "\n".join([f"{name}: not as expected", *shown])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a log of the corpus."""
    if "log" in metafunc.fixturenames:
        corpus: Path = metafunc.config.getoption("corpus")
        logs = sorted(corpus.glob("*.log"))
        metafunc.parametrize("log", logs, ids=[log.stem for log in logs])


def check(log: Path, *, regenerate: bool) -> None:
    """Fail where the records of a log are not those of its expected file, or had to be written."""
    ndjson, warnings = normalize(log)
    got = settle(decode(ndjson.decode()))
    path = expected_file(log)
    expected = path.read_text("utf-8") if path.exists() else None
    if expected != got and regenerate:
        path.write_text(got, "utf-8")
        pytest.fail(f"wrote {path.name}: read it, record by record, before it is committed", False)
    lines = differences(decode(expected or ""), decode(got))
    if lines:
        pytest.fail(report(path.name, lines), pytrace=False)
    assert expected == got, f"{path.name} is not written as `make corpus` writes it"
    assert warnings == read_options(log).warnings


def test_the_log_gives_the_expected_records(log: Path, pytestconfig: pytest.Config) -> None:
    """Each record has exactly the expected keys and values, in the expected order."""
    check(log, regenerate=pytestconfig.getoption("regenerate"))


def test_the_records_are_the_same_however_the_bytes_are_cut(log: Path) -> None:
    """A stream read in blocks of seven bytes gives what it gives when read at once."""
    whole, cut = (decode(normalize(log, block_size=size)[0].decode()) for size in (None, 7))
    settle(whole)
    settle(cut)
    if lines := differences(whole, cut):
        pytest.fail(report(log.name, lines), pytrace=False)


def test_every_log_has_its_expected_file_and_the_other_way_round(
    pytestconfig: pytest.Config,
) -> None:
    """No file of the corpus stands alone, and all are of a known kind."""
    corpus: Path = pytestconfig.getoption("corpus")
    kinds: dict[str, set[str]] = {".log": set(), ".expected.jsonl": set(), ".options.json": set()}
    for path in corpus.iterdir():
        if not path.name.startswith("."):
            kind = next((kind for kind in kinds if path.name.endswith(kind)), None)
            assert kind is not None, f"{path.name}: no file of a corpus"
            kinds[kind].add(path.name.removesuffix(kind))
    logs, expected, options = kinds.values()
    assert logs == expected
    assert options <= logs
    assert len(logs) >= SMALLEST


def test_an_expected_file_tells_a_number_from_its_like() -> None:
    """A difference names the record, the key and both values, also for 1, 1.0 and true."""
    expected: list[Record] = [{"body": "a", "attributes": {"n": 1}}, {"body": "b"}]
    got: list[Record] = [{"body": "a", "attributes": {"n": 1.0}, "event_name": "e"}]
    assert differences(expected, got) == [
        "records: expected 2, got 1",
        "record 1, attributes n:\n    expected 1\n    got      1.0",
        'record 1, event_name:\n    expected (absent)\n    got      "e"',
        'record 2 is missing: "b"',
    ]


def test_a_value_that_may_differ_has_to_fit_its_pattern() -> None:
    """A marker takes the place of a time only."""
    assert marker("observed_timestamp") in settle([{"observed_timestamp": "2026-12-01T00:00:00Z"}])
    with pytest.raises(AssertionError, match="record 1, observed_timestamp: soon"):
        settle([{"observed_timestamp": "soon"}])


def test_regenerating_writes_what_differs_and_fails_for_it(tmp_path: Path) -> None:
    """A file that is written fails its case; one that is right passes and stays as it is."""
    log = tmp_path / "shown.log"
    log.write_text("INFO 11-30 12:00:01 [a.py:1] made up\n")
    with pytest.raises(pytest.fail.Exception, match="record 1 is unexpected"):
        check(log, regenerate=False)
    assert not expected_file(log).exists()
    with pytest.raises(pytest.fail.Exception, match=r"wrote shown\.expected\.jsonl: read it"):
        check(log, regenerate=True)
    written = expected_file(log).read_text()
    assert json.loads(written)["body"] == "made up"
    check(log, regenerate=True)
    check(log, regenerate=False)

    expected_file(log).write_text(written.replace("made up", "invented"))
    shown = r'record 1, body:\n    expected "invented"\n    got      "made up"'
    with pytest.raises(pytest.fail.Exception, match=shown):
        check(log, regenerate=False)
    with pytest.raises(pytest.fail.Exception, match=r"wrote shown\.expected\.jsonl: read it"):
        check(log, regenerate=True)
    assert expected_file(log).read_text() == written


def run_corpus(corpus: Path) -> tuple[int, str]:
    """Regenerate the cases of another corpus: the exit code and what was printed."""
    case = f"{__file__}::{test_the_log_gives_the_expected_records.__name__}"
    command = [sys.executable, "-m", "pytest", case, "--regenerate", "--corpus", str(corpus)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_option_fails_where_it_writes_and_passes_where_nothing_changes(tmp_path: Path) -> None:
    """`pytest --regenerate` names the files that it wrote and fails; run again, it passes."""
    (tmp_path / "right.log").write_text("INFO 11-30 12:00:01 [a.py:1] made up\n")
    with pytest.raises(pytest.fail.Exception):
        check(tmp_path / "right.log", regenerate=True)
    (tmp_path / "new.log").write_text("INFO 11-30 12:00:02 [a.py:1] made up too\n")
    code, output = run_corpus(tmp_path)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "wrote new.expected.jsonl: read it" in output
    assert "right.expected.jsonl" not in output
    assert run_corpus(tmp_path)[0] == pytest.ExitCode.OK
