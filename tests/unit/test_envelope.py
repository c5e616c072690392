"""Envelopes: what is taken off a line, how it is found, and how inner streams come apart."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.read.clock import NS
from vllm_logpipe.read.envelope import ENVELOPES, LAYERS, Piece, detect, parse_stamp
from vllm_logpipe.read.enveloped import MAX_SILENCE, MAX_STREAMS
from vllm_logpipe.read.lines import MAX_LINE_LENGTH

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
SECOND = int(datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC).timestamp())
HEAD = "(EngineCore_DP0 pid=272) INFO 11-30 12:00:01 [core.py:580] "


def normalize(data: str | bytes, **options: object) -> list[LogRecord]:
    """The records of a stream."""
    normalizer = Normalizer("test", reference=REFERENCE, **options)  # type: ignore[arg-type]
    given = data if isinstance(data, bytes) else data.encode(errors="surrogateescape")
    return normalizer.feed(given) + normalizer.flush()


def cri(text: str, iostream: str = "stdout", tag: str = "F", fraction: int = 5) -> str:
    """A line as the kubelet's files have it."""
    return f"2026-11-30T12:00:01.{fraction:09}Z {iostream} {tag} {text}\n"


def docker(log: str, iostream: str = "stdout") -> str:
    """A line of Docker's json-file driver."""
    document = {"log": log, "stream": iostream, "time": "2026-11-30T12:00:01.000000005Z"}
    return json.dumps(document) + "\n"


def said(record: LogRecord) -> tuple[str, str, object]:
    """Body, source of the time, and iostream of a record."""
    attributes = record.attributes
    return record.body, str(attributes["vllm.log.time.source"]), attributes.get("log.iostream")


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("cri", "2026-11-30T12:00:01.5Z stderr P a b", Piece("a b", iostream="stderr")),
        ("cri", "2026-11-30T12:00:01+00:00 stdout F", Piece("")),
        ("docker", '{"log":"a\\n","stream":"stdout","time":"2026-11-30T12:00:01Z"}', Piece("a")),
        ("compose", "llm-1  | a | b", Piece("a | b", name="llm-1")),
        ("kubectl", "[pod/llm-0/vllm] a", Piece("a", name="llm-0/vllm")),
        ("journald", "Nov  3 12:00:01 node1 vllm[77]: a: b", Piece("a: b", name="node1 vllm")),
        ("journald", "2026-11-30T12:00:01+0000 node1 vllm: a", Piece("a", name="node1 vllm")),
        ("journald-json", '{"MESSAGE":[104,105],"CONTAINER_NAME":"x"}', Piece("hi", name="x")),
        ("syslog", "<14>1 - - vllm - - - a", Piece("a", name="- vllm")),
        ("syslog", "<14>Nov 30 12:00:01 node1 vllm: a", Piece("a", name="node1 vllm")),
        ("rfc3339", "2026-11-30T12:00:01Z a", Piece("a")),
    ],
)
def test_a_layer_gives_text_and_origin(name: str, line: str, expected: Piece) -> None:
    """Each notation gives its text, and what it says of where that comes from."""
    piece = Piece(line)
    assert LAYERS[name](piece)
    assert (piece.text, piece.name) == (expected.text, expected.name)
    assert piece.iostream == (expected.iostream or ("stdout" if name in ("cri", "docker") else ""))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "{",
        "{}",
        "[pod/]",
        HEAD + "text",
        "2026-13-45T12:00:01Z stdout F a",
        "2026-11-30T12:00:01+99:99 a",
        "1900-11-30T12:00:01Z a",
        "Foo 30 12:00:01 node1 vllm: a",
        "<14>1 2026-13-45T12:00:01Z node1 vllm - - - a",
        '{"log":"a\\n","time":"soon"}',
        '{"log":1,"time":"2026-11-30T12:00:01Z"}',
        '{"MESSAGE":null}',
        '{"MESSAGE":[256]}',
        '{"MESSAGE":"a","__REALTIME_TIMESTAMP":"-1"}',
        '{"MESSAGE":"a","__REALTIME_TIMESTAMP":"9999999999999999"}',
        "[" * 5000,
        '{"MESSAGE":' * 5000,
    ],
)
def test_a_line_that_does_not_fit_stays_as_it_is(name: str, line: str) -> None:
    """A layer that finds no envelope changes nothing."""
    piece = Piece(line)
    assert not LAYERS[name](piece)
    assert piece == Piece(line)


def test_a_stamp_has_a_zone() -> None:
    """Times in other zones are the same moment; impossible ones are none."""
    assert parse_stamp("2026-11-30T20:00:01", "25", "+08:00") == SECOND * NS + 250_000_000
    assert parse_stamp("2026-11-30T12:00:01", None, "Z") == SECOND * NS
    assert parse_stamp("2026-02-30T12:00:01", None, "Z") == -1
    assert parse_stamp("9999-11-30T12:00:01", None, "Z") == -1


def test_nested_envelopes_are_found_from_the_outside_in() -> None:
    """Compose around RFC 3339 is both, the outer one first."""
    lines = [f"llm-{n}  | 2026-11-30T12:00:0{n}Z text" for n in range(1, 4)]
    assert detect(lines, "auto", whole=False) == [LAYERS["compose"], LAYERS["rfc3339"]]


@pytest.mark.parametrize(
    "lines",
    [
        ["name | size", "a | 1", "llama | 2"],
        ["GPU | a"],
        ["2026-11-30T12:00:01Z alone"],
        ['{"asctime": "2026-11-30 12:00:01,5", "levelname": "INFO", "message": "a"}'] * 4,
        [HEAD + "2026-11-30T12:00:01Z stdout F a"] * 4,
    ],
)
def test_what_only_looks_like_an_envelope_is_none(lines: list[str]) -> None:
    """A table, a single stamped line, JSON mode and quoted envelopes are text."""
    assert detect(lines, "auto", whole=True) == []


def test_a_bare_stream_gives_its_records_at_once() -> None:
    """Detection does not hold back a line that has no envelope."""
    normalizer = Normalizer("test", reference=REFERENCE)
    line = f"{HEAD}a\n{HEAD.replace(':01', ':02')}b\n".encode()
    assert [record.body for record in normalizer.feed(line)] == ["a"]


def test_pieces_are_joined_by_iostream() -> None:
    """Partial lines of stdout go on past a partial line of stderr."""
    data = (
        cri(HEAD + "a", tag="P")
        + cri("x", "stderr", "P")
        + cri("b", tag="P")
        + cri("y", "stderr")
        + cri("c")
    )
    assert [said(record) for record in normalize(data)] == [
        ("xy", "envelope", "stderr"),
        ("abc", "envelope", "stdout"),
    ]


def test_a_character_that_two_pieces_share_is_whole_again() -> None:
    """The runtime cuts at bytes, not at characters."""
    whole = "ü😀".encode()
    start = cri("", tag="P").encode().rstrip(b"\n")
    end = cri("").encode().rstrip(b"\n")
    for at in range(1, len(whole)):
        data = start + whole[:at] + b"\n" + end + whole[at:] + b"\n"
        (record,) = normalize(data, envelope="cri")
        assert record.body == "ü😀"


def test_two_tracebacks_at_once_come_apart() -> None:
    """Each iostream has a traceback of its own, in the order in which they began."""
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    f()"]
    data = ""
    for line in trace:
        data += docker(line + "\n", "stderr") + docker(line + "\n", "stdout")
    data += docker("ValueError: err\n", "stderr") + docker("KeyError: out\n", "stdout")
    records = normalize(data)
    assert [record.attributes["exception.type"] for record in records] == ["ValueError", "KeyError"]
    assert [record.body.count("\n") for record in records] == [3, 3]
    assert len({record.resource_json for record in records}) == 1


def test_containers_are_instances_of_their_own() -> None:
    """Lines of two pods never share a server start, and carry the pod's names."""
    data = "".join(f"[pod/llm-{n % 2}/vllm] {HEAD}{n}\n" for n in range(6))
    records = normalize(data)
    assert [record.body for record in records] == list("012345")
    resources = [record.resource for record in records]
    assert len({str(resource["service.instance.id"]) for resource in resources}) == 2
    assert resources[1]["k8s.pod.name"] == "llm-1"
    assert resources[1]["k8s.container.name"] == "vllm"


def test_the_envelope_gives_the_fraction_and_tells_the_zone() -> None:
    """A server eight hours ahead is put right, also where a line came late."""
    head = "INFO 11-30 20:00:01 [a.py:1] "
    data = cri(head + "a") + cri(head + "b").replace("12:00:01", "12:00:07")
    first, second = normalize(data)
    assert first.time_unix_nano == SECOND * NS + 5
    assert second.time_unix_nano == SECOND * NS
    assert said(second)[1] == "printed"


def test_a_stream_that_falls_silent_holds_back_no_other() -> None:
    """An open record of stderr is given out after enough lines of stdout."""
    normalizer = Normalizer("test", reference=REFERENCE)
    data = cri("Traceback (most recent call last):", "stderr") + cri(HEAD + "a") * MAX_SILENCE * 2
    records = normalizer.feed(data.encode())
    assert records[0].body.startswith("Traceback")
    assert len(records) > MAX_SILENCE


def test_the_year_is_that_of_the_envelope() -> None:
    """A printed month and day takes the year of its own envelope."""
    data = cri("INFO 11-30 12:00:01 [a.py:1] a").replace("2026", "2019")
    (record,) = normalize(data)
    assert record.time_unix_nano // NS == int(
        datetime(2019, 11, 30, 12, 0, 1, tzinfo=UTC).timestamp()
    )


def test_uids_tell_lines_of_rotated_files_apart() -> None:
    """The same offset at another time is another record of a container's log."""
    uids = {
        normalize(cri("a", fraction=fraction))[0].attributes["log.record.uid"]
        for fraction in (1, 2)
    }
    assert len(uids) == 2


def test_endless_pieces_are_cut_and_marked() -> None:
    """A line that never ends is cut at the limit, marked, and no text is lost."""
    size = 1024 * 1024
    count = MAX_LINE_LENGTH // size + 3
    records = normalize(cri("x" * size, tag="P") * count)
    assert sum(len(record.body) for record in records) == count * size
    assert records[0].attributes["vllm.log.truncated"] is True


def test_more_inner_streams_than_are_kept_lose_nothing() -> None:
    """The streams that were silent longest make room."""
    count = MAX_STREAMS * 3
    data = "".join(f"[pod/p{n}/c] word{n}\n" for n in range(count))
    bodies = [record.body for record in normalize(data)]
    assert sorted(bodies) == sorted(f"word{n}" for n in range(count))


@pytest.mark.parametrize("name", ENVELOPES)
def test_no_text_is_lost_to_a_wrong_choice(name: str) -> None:
    """Whatever envelope is said to be there, each word of another one's lines comes out."""
    lines = [
        cri("word1", tag="P"),
        docker("word2", "stderr"),
        '{"log":"word3',
        "Nov 30 12:00:01 node1 vllm[7]: word4\n",
        "\n",
        '{"MESSAGE":"word5\\nword6","__REALTIME_TIMESTAMP":"1"}\n',
        "<14>1 - - - - - - word7\n",
        "llm-1 | word8\n",
        HEAD + "word9",
    ]
    text = "".join(record.body for record in normalize("".join(lines), envelope=name))
    assert [n for n in range(1, 10) if f"word{n}" not in text] == []


def test_an_unknown_envelope_is_refused() -> None:
    """The error names what there is."""
    with pytest.raises(ValueError, match="unknown envelope 'zip': one of auto, none, cri"):
        Normalizer("test", envelope="zip")


def test_none_leaves_envelopes_on() -> None:
    """Without envelopes a line is text from its first byte."""
    (record,) = normalize(cri("a"), envelope="none")
    assert record.body == cri("a").rstrip("\n")


def test_a_pause_decides() -> None:
    """A live stream of one line gives its record after a pause."""
    normalizer = Normalizer("test", live=True)
    assert normalizer.feed(cri("a").encode()) == []
    assert [record.body for record in normalizer.expire()] == ["a"]


def test_what_the_envelope_says_of_hosts_is_redacted_alike() -> None:
    """`--redact host` takes the host of journald too; a secret in a name goes anyway."""
    line = f"Nov 30 12:00:01 node1 vllm[7]: {HEAD}a\n"
    (record,) = normalize(line, envelope="journald", redact=["host"])
    assert record.resource["host.name"] == "[redacted]"
    (record,) = normalize("[pod/hf_AbCdEfGhIjKlMnOpQrStUvWx/vllm] a\n")
    assert record.resource["k8s.pod.name"] == "[redacted]"


def test_endless_empty_pieces_are_bounded() -> None:
    """Pieces without text count too."""
    normalizer = Normalizer("test", reference=REFERENCE, envelope="cri")
    data = cri("", tag="P").encode() * 1000
    for _ in range(270):
        normalizer.feed(data)
    records = normalizer.feed(cri("word").encode()) + normalizer.flush()
    assert [record.body for record in records] == ["word"]
