"""What holds for any stream with envelopes: nothing crashes or is lost, cuts do not matter."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_logpipe import Normalizer, encode_ndjson
from vllm_logpipe.read.envelope import ENVELOPES

REFERENCE = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
TIMES = ["2026-11-30T12:00:01.5Z", "2026-11-30T20:00:01+08:00", "2026-13-45T12:00:01Z"]
LINES = [
    "{t} stdout F {m}",
    "{t} stdout P {m}",
    "{t} stderr P {m}",
    "{t} stderr F {m}",
    '{{"log":"{m}\\n","stream":"stdout","time":"{t}"}}',
    '{{"log":"{m}","stream":"stderr","time":"{t}"}}',
    '{{"log":"{m}"',
    "llm-1  | {m}",
    "llm-2  | {t} {m}",
    "[pod/llm-0/vllm] {m}",
    "[pod/llm-1/vllm] {t} {m}",
    "Nov 30 12:00:01 node1 vllm[7]: {m}",
    "Feb 31 25:00:01 node1 vllm: {m}",
    "{t} node1 vllm[7]: {m}",
    '{{"MESSAGE":"{m}","__REALTIME_TIMESTAMP":"1796040001000005"}}',
    '{{"MESSAGE":"one\\n{m}","__REALTIME_TIMESTAMP":"1","_SYSTEMD_UNIT":"a.service"}}',
    "<14>1 {t} node1 vllm 7 - - {m}",
    "<14>Nov 30 12:00:01 node1 vllm: {m}",
    "{t} {m}",
    "{m}",
    "",
]
INNER = [
    "{m}",
    "  {m}",
    "{m}\r",
    "(EngineCore_DP0 pid=7) INFO 11-30 12:00:01 [core.py:5] {m}",
    "INFO 11-30 20:00:02 [a.py:1] {m}",
    "INFO:     {m}",
    "Traceback (most recent call last): {m}",
    "{m}:  50%|#####     | 1/2 [00:01<00:01,  1.20s/it]",
]
Line = tuple[str, str, str]
lines = st.lists(
    st.tuples(st.sampled_from(LINES), st.sampled_from(INNER), st.sampled_from(TIMES)), max_size=30
)
streams = st.one_of(
    lines,
    # Streams of one envelope, which is found by itself.
    st.tuples(st.sampled_from(LINES), lines).map(
        lambda drawn: [(drawn[0], inner, stamp) for _, inner, stamp in drawn[1]]
    ),
)


def written(drawn: list[Line]) -> bytes:
    """The bytes of a stream, each line with a word of its own."""
    rows = []
    for number, (line, inner, stamp) in enumerate(drawn):
        text = inner.format(m=f"w{number}w")
        if "{{" in line:
            text = text.replace("\r", "\\r")
        rows.append(line.format(m=text, t=stamp))
    return "\n".join(rows).encode()


def documents(data: bytes, envelope: str, cuts: list[int]) -> list[dict[str, object]]:
    """The records of a stream that is cut at some places."""
    normalizer = Normalizer("test", reference=REFERENCE, envelope=envelope)
    places = sorted({min(cut, len(data)) for cut in cuts})
    records = []
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        records += normalizer.feed(data[start:end])
    records += normalizer.flush()
    decoded = [json.loads(line) for line in encode_ndjson(records).splitlines()]
    return [{k: v for k, v in d.items() if k != "observed_timestamp"} for d in decoded]


@settings(max_examples=150, deadline=None)
@given(streams, st.sampled_from(ENVELOPES), st.lists(st.integers(0, 2000), max_size=8))
def test_any_stream_keeps_its_words_and_may_be_cut_anywhere(
    drawn: list[Line], envelope: str, cuts: list[int]
) -> None:
    """Each word comes out once at least, uids differ, and every cut gives the same records."""
    data = written(drawn)
    whole = documents(data, envelope, [])
    assert documents(data, envelope, cuts) == whole
    text = json.dumps(whole)
    shown = [n for n, (line, _, _) in enumerate(drawn) if "{m}" in line]
    assert [n for n in shown if f"w{n}w" not in text] == []
    uids = [json.dumps(record["attributes"]) for record in whole]
    assert len(set(uids)) == len(uids)
