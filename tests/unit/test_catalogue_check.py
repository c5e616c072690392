"""What a catalogue must satisfy before it loads: one broken catalogue for each refusal.

Each folder of `tests/bad-catalogue` holds a catalogue with one fault, and the line that tells it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vllm_logpipe import CatalogueError, load_catalogue
from vllm_logpipe.catalogue.loader import catalogue_faults, read_built_in, read_directory
from vllm_logpipe.cli import run

BAD = Path(__file__).parent.parent / "bad-catalogue"
FAULTS = sorted(path.name for path in BAD.iterdir())

NOTE = """
[[event]]
name = "vllm.site.note"
brief = "A note that this site prints."
"""


def golden(fault: str) -> str:
    """The line that a broken catalogue is refused with."""
    return (BAD / fault / "expected.txt").read_text("utf-8").removesuffix("\n")


def refusal(directory: Path, *content: str) -> str | None:
    """What is wrong with the catalogue of these files; None where it loads."""
    for number, text in enumerate(content):
        (directory / f"{number}.toml").write_text(text, "utf-8")
    try:
        load_catalogue([directory])
    except CatalogueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_catalogue_is_refused_with_its_line(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is one line that names file, entry, sample and what is wrong."""
    monkeypatch.chdir(BAD)
    with pytest.raises(CatalogueError) as error:
        load_catalogue([Path(fault)])
    assert str(error.value) == golden(fault)
    assert "\n" not in golden(fault)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_command_prints_the_line_and_ends_with_2(
    fault: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`normalize` reads no file with a catalogue that does not load."""
    log = tmp_path / "server.log"
    log.write_text("INFO 11-30 12:00:01 [core.py:1] hello\n")
    monkeypatch.chdir(BAD)
    assert run(["normalize", "--catalogue", fault, str(log)]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"vllm-logpipe: {golden(fault)}\n")


def test_the_status_and_the_line_are_those_of_the_process() -> None:
    """A shell sees status 2, one line on standard error and nothing on standard output."""
    fault = "no-sample"
    done = subprocess.run(
        [sys.executable, "-m", "vllm_logpipe", "normalize", "--catalogue", fault, "-"],
        cwd=BAD,
        input="hello\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"vllm-logpipe: {golden(fault)}\n"


def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """A missing folder, a file in its place and a folder in a file's place are told."""
    missing = tmp_path / "missing"
    assert refusal(missing) == f"{missing}: No such file or directory"
    file = tmp_path / "file"
    file.write_text("")
    assert refusal(file) == f"{file}: Not a directory"
    (tmp_path / "entries.toml").mkdir()
    assert refusal(tmp_path) == f"{tmp_path / 'entries.toml'}: Is a directory"


def test_the_first_fault_refuses_and_a_check_tells_them_all(tmp_path: Path) -> None:
    """Loading stops at the first fault; the faults of all files come in the files' order."""
    unsampled = NOTE + 'match = "Site note: {:rest}"\n'
    assert refusal(tmp_path, unsampled, unsampled.replace("note", "word")) == (
        "0.toml: event 1 'vllm.site.note': no sample"
    )
    faults = catalogue_faults(list(read_directory(tmp_path)), beside=read_built_in())
    assert list(faults) == [
        "0.toml: event 1 'vllm.site.note': no sample",
        "1.toml: event 1 'vllm.site.word': no sample",
    ]


def test_two_folders_are_checked_against_each_other(tmp_path: Path) -> None:
    """A name stands once over all catalogues given."""
    text = NOTE + 'match = "Site note: {:rest}"\nsample = [{ line = "Site note: hello" }]\n'
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.toml").write_text(text)
    load_catalogue([tmp_path / "first"])
    with pytest.raises(CatalogueError) as error:
        load_catalogue([tmp_path / "first", tmp_path / "second"])
    assert str(error.value) == (
        "second.toml: event 1 'vllm.site.note': the name stands already in first.toml"
    )


def test_a_private_hole_may_stand_in_a_tail(tmp_path: Path) -> None:
    """A private hole must be in the entry, not in every choice of its tails."""
    text = NOTE + (
        'match = "Site note for {vllm.request.id:word} end"\n'
        'tail = [", output: {output:rest}"]\n'
        'private = { output = "output" }\n'
        "[[event.sample]]\n"
        'line = "Site note for a end, output: b"\n'
        'expect = { "vllm.request.id" = "a" }\n'
    )
    assert refusal(tmp_path, text) is None


def test_a_private_hole_that_no_wording_has_is_refused(tmp_path: Path) -> None:
    """A misspelt private hole would let the text out, however many wordings there are."""
    text = NOTE + (
        'match = ["Site note: {text:rest}", "Site word: {text:rest}"]\n'
        'private = { txet = "prompt" }\n'
        'sample = [{ line = "Site note: a" }, { line = "Site word: a" }]\n'
    )
    assert refusal(tmp_path, text) is not None


@pytest.mark.parametrize("value", ["5", "true", '["a"]'])
def test_a_constant_of_another_type_than_its_attribute_is_refused(
    tmp_path: Path, value: str
) -> None:
    """One attribute name has one type, also where the value is set."""
    text = NOTE + (
        'match = "Site note: {:rest}"\n'
        f'set = {{ "vllm.request.outcome" = {value} }}\n'
        f'sample = [{{ line = "Site note: a", expect = {{ "vllm.request.outcome" = {value} }} }}]\n'
    )
    assert refusal(tmp_path, text) is not None


EVERYTHING = r"""
[[attribute]]
name = "vllm.site.size"
type = "int"
unit = "By"
brief = "A size that this site prints."

[[event]]
name = "vllm.site.note"
brief = "A note that this site prints."
phase = "serving"
since = "0.8.5"
until = "0.10.2.post1"
match = ["Site note: {=read|write} {text:quoted}", "Site note: {vllm.site.size:bytes}"]
tail = [" at {:hex}", ", {:kwargs}"]
lines = ["- size: {vllm.site.size:bytes}"]
formats = ["v1", "raw"]
error = "request.internal_error"
role = "unknown"
not = "Other notes."
set = { "vllm.request.outcome" = "failed" }
private = { text = "prompt" }
keys = { seed = "gen_ai.request.seed:int" }
sample = [
  { line = "Site note: read 'x' at 1f, seed=7", expect = { "gen_ai.request.seed" = 7 } },
  { line = "Site note: write 'x'\n- size: 2 KiB", expect = { "vllm.site.size" = 2048 } },
  { line = "Site note: 4 KiB", expect = { "vllm.site.size" = 4096 } },
]

[[event]]
name = "vllm.site.pieces"
brief = "A list of pieces that this site prints."
match = "Site pieces: {:fields}"
fields = ["Model: {vllm.model:word}"]
starts_instance = true
sample = [{ line = "Site pieces: New: 1, Model: m", expect = { "vllm.model" = "m" } }]

[[error]]
error = "request.internal_error"
role = "root"
not = "Other failures."
types = ["SiteError"]
match = "Site failure: {:rest}"
sample = [{ line = "SiteError: Site failure: hello" }]

[[error]]
error = "engine.dead"
role = "cascade"
not = "Other failures."
types = ["site.DeadError"]
sample = [{ line = "site.DeadError: hello" }]
"""


def test_an_entry_may_use_every_key_of_the_language(tmp_path: Path) -> None:
    """A catalogue of all keys has no fault, and its constants need not stand in the samples."""
    assert refusal(tmp_path, EVERYTHING) is None
