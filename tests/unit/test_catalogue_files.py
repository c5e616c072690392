"""The built-in catalogue: every entry proves itself by its samples; a user's entries join it."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from vllm_logpipe import Catalogue, Normalizer, load_catalogue, semconv
from vllm_logpipe.catalogue.entry import ErrorEntry, EventEntry, Sample
from vllm_logpipe.catalogue.loader import SETTINGS_FILES, catalogue_faults, read_built_in
from vllm_logpipe.recognize import Recognition, Recognizer
from vllm_logpipe.redact import Redactor

EVENTS = {entry.name: entry for _, file in read_built_in() for entry in file.event}
ERRORS = [entry for _, file in read_built_in() for entry in file.error]
TYPES = {attribute.name: attribute.type for attribute in semconv.ATTRIBUTES}
PYTHON_TYPES = {"int": int, "double": float, "string": str, "boolean": bool}
FRAMES = 'Traceback (most recent call last):\n  File "/opt/a.py", line 1, in f\n    g()\n'


@functools.cache
def built_in() -> Catalogue:
    """The built-in catalogue."""
    return load_catalogue()


@functools.cache
def recognizer() -> Recognizer:
    """A recogniser of the built-in catalogue."""
    return Recognizer(built_in(), Redactor())


def attributes(found: Recognition) -> dict[str, object]:
    """The attributes of a recognition."""
    decoded: dict[str, object] = json.loads(f"{{{found.members[1:]}}}")
    return decoded


def has_type(value: object, attribute_type: str) -> bool:
    """Whether a value is exactly of the type that its attribute has."""
    if attribute_type.endswith("[]"):
        item = PYTHON_TYPES[attribute_type.removesuffix("[]")]
        return isinstance(value, list) and all(type(part) is item for part in value)
    return type(value) is PYTHON_TYPES[attribute_type]


def test_the_built_in_catalogue_has_no_fault() -> None:
    """Every entry satisfies what is asked of a user's."""
    assert list(catalogue_faults(read_built_in(), beside=[])) == []


def test_the_built_in_files_are_all_read() -> None:
    """Each TOML file beside the settings holds entries."""
    names = [name for name, _ in read_built_in()]
    assert not SETTINGS_FILES.intersection(names)
    assert {"startup.toml", "requests.toml", "errors.toml", "nccl.toml", "server.toml"} <= set(
        names
    )
    assert all(file.event or file.error for _, file in read_built_in())
    assert not any(file.attribute for _, file in read_built_in())
    assert len(EVENTS) == sum(len(file.event) for _, file in read_built_in()) > 400


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_found_for_each_of_its_samples(name: str) -> None:
    """In each of its formats a sample is this event, with exactly the values that it states."""
    entry = EVENTS[name]
    constants = entry.constants | ({"vllm.phase": entry.phase} if entry.phase else {})
    if entry.error is not None:
        constants |= {"error.type": entry.error, "vllm.error.role": entry.role or ""}
    for sample in entry.sample:
        for log_format in entry.formats or ("v0", "v1", "v1_prefixed", "json", "raw"):
            text = sample.line
            found = built_in().find(text, log_format)
            if found is None:
                found = built_in().find(text.partition("\n")[0], log_format)
            assert found is not None
            assert found[0].entry.name == name
            recognised = recognizer().recognize(text, log_format, None)
            assert recognised.entry is not None
            assert recognised.entry.name == name
            got = attributes(recognised)
            assert constants | sample.expect == {
                key: value for key, value in got.items() if not key.startswith("exception.stack")
            }
            assert all(has_type(value, TYPES[key]) for key, value in got.items())


def exception_text(entry: ErrorEntry, sample: Sample) -> str:
    """A traceback that ends as the sample says: an exception, or a further line of its text."""
    if sample.line.startswith(("  ", "nccl")):
        kind = entry.types[0] if entry.types else "site.Error"
        return f"{FRAMES}{kind}: 1 failure\n{sample.line}"
    return FRAMES + sample.line


@pytest.mark.parametrize("entry", ERRORS, ids=lambda entry: f"{entry.error}-{entry.role}")
def test_an_exception_is_classed_for_each_of_its_samples(entry: ErrorEntry) -> None:
    """A traceback that ends in a sample has the class and role of the entry, and its values."""
    assert entry.sample
    for sample in entry.sample:
        got = attributes(recognizer().recognize(exception_text(entry, sample), "raw", None))
        assert (got["error.type"], got["vllm.error.role"]) == (entry.error, entry.role), sample.line
        assert sample.expect.items() <= got.items()
        assert all(has_type(value, TYPES[key]) for key, value in got.items())


def test_an_error_record_has_the_class_of_the_exception_in_its_traceback() -> None:
    """The same exceptions inside a vLLM record are classed alike."""
    for entry in ERRORS:
        for sample in entry.sample:
            text = f"Something nobody knows\n{exception_text(entry, sample)}"
            got = attributes(recognizer().recognize(text, "v1", "ERROR"))
            assert (got["error.type"], got["vllm.error.role"]) == (entry.error, entry.role)


HEADERS = {
    "v0": "INFO 11-30 12:00:01 core.py:7] ",
    "v1": "INFO 11-30 12:00:01 [core.py:7] ",
    "v1_prefixed": "(EngineCore_DP1 pid=811) INFO 11-30 12:00:01 [core.py:7] ",
}


def test_no_attribute_stands_twice_in_a_record() -> None:
    """What header and message both give is there once, under every header."""
    for header in HEADERS.values():
        for entry in EVENTS.values():
            for sample in entry.sample:
                normalizer = Normalizer("a.log", catalogue=built_in(), reference=1_796_083_200.0)
                line = f"{header}{sample.line.partition(chr(10))[0]}\n"
                for record in normalizer.feed(line.encode()) + normalizer.flush():
                    pairs = json.loads(record.attributes_json, object_pairs_hook=list)
                    names = [name for name, _ in pairs]
                    assert len(set(names)) == len(names), line


USER_FILE = """
[[attribute]]
name = "vllm.site.queue"
type = "int"
unit = "{request}"
brief = "Requests that wait in this site's own queue."

[[event]]
name = "vllm.site.queue"
brief = "The length of this site's own queue."
phase = "serving"
match = ["Site queue holds {vllm.site.queue:int} requests"]

[[event.sample]]
line = "Site queue holds 1,024 requests"
expect = { "vllm.site.queue" = 1024 }

[[error]]
error = "request.queue_full"
role = "root"
types = ["SiteQueueFull"]
not = "A queue of vLLM's own."

[[error.sample]]
line = "site.SiteQueueFull: too many"
"""


@pytest.fixture
def user_catalogue(tmp_path: Path) -> Catalogue:
    """The built-in catalogue and a user's folder with one file, beside a file that is none."""
    (tmp_path / "site.toml").write_text(USER_FILE)
    (tmp_path / "notes.txt").write_text("no catalogue")
    return load_catalogue([tmp_path])


def records(catalogue: Catalogue, text: str) -> list[tuple[str | None, dict[str, object]]]:
    """The events and attributes of a log."""
    normalizer = Normalizer("a.log", catalogue=catalogue, reference=1_796_083_200.0)
    found = normalizer.feed(text.encode()) + normalizer.flush()
    return [(record.event_name, dict(record.attributes)) for record in found]


def test_a_user_folder_adds_events_and_attributes(user_catalogue: Catalogue) -> None:
    """A user's event is found with its typed values, and the built-in ones still are."""
    header = HEADERS["v1"]
    (queue, ready) = records(
        user_catalogue,
        f"{header}Site queue holds 3 requests\n{header}Added request cmpl-7.\n",
    )
    assert queue[0] == "vllm.site.queue"
    assert queue[1]["vllm.site.queue"] == 3
    assert queue[1]["vllm.phase"] == "serving"
    assert ready[0] == "vllm.request.added"


def test_a_user_folder_adds_exception_classes(user_catalogue: Catalogue) -> None:
    """A user's exception is classed by its type, full or last part."""
    for kind in ("SiteQueueFull", "site.SiteQueueFull"):
        ((event, got),) = records(user_catalogue, f"{FRAMES}{kind}: too many\n")
        assert event == "vllm.exception"
        assert (got["error.type"], got["vllm.error.role"]) == ("request.queue_full", "root")


def test_a_user_folder_leaves_the_built_in_catalogue_alone(user_catalogue: Catalogue) -> None:
    """What one catalogue adds is in no other one."""
    assert len(user_catalogue.events) == len(EVENTS) + 1
    text = f"{HEADERS['v1']}Site queue holds 3 requests\n"
    assert records(built_in(), text)[0][0] is None
    assert isinstance(user_catalogue.events[-1], EventEntry)


def test_files_are_taken_in_the_order_of_their_names(tmp_path: Path) -> None:
    """The order of a folder's entries does not depend on the file system."""
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.toml").write_text(USER_FILE.replace("queue", name).replace("full", ""))
    with pytest.raises(ValueError, match=r"^a\.toml: error 1 'request\.a_': unknown error class"):
        load_catalogue([tmp_path])
