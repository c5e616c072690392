"""`SamplingParams(…)`: the request attributes in it, and the parts a client wrote taken out."""

from __future__ import annotations

import json

import pytest

from vllm_logpipe.catalogue.nested import MAX_NESTED_LENGTH, key_spans, replace_values
from vllm_logpipe.catalogue.sampling import redact_sampling, sampling_members
from vllm_logpipe.catalogue.values import float_json, int_json
from vllm_logpipe.redact import hide

NUMBERS = (
    "n=2, presence_penalty=0.0, repetition_penalty=1.0, temperature=0.7, top_p=0.95, top_k=-1,"
    " min_p=0.01, seed=42"
)
EXPECTED = {
    "gen_ai.request.choice.count": 2,
    "gen_ai.request.temperature": 0.7,
    "gen_ai.request.top_p": 0.95,
    "gen_ai.request.top_k": -1.0,
    "gen_ai.request.seed": 42,
    "gen_ai.request.max_tokens": 128,
}


def attributes(text: str) -> dict[str, object]:
    """The attributes of a text."""
    decoded: dict[str, object] = json.loads(f"{{{sampling_members(text)[1:]}}}")
    return decoded


def redacted(text: str, *keep: str) -> str:
    """The text with its private parts replaced by their length."""
    return redact_sampling(text, frozenset(keep), hide)


@pytest.mark.parametrize(
    "middle",
    [
        "stop=[], stop_token_ids=[], bad_words=[], min_tokens=0, ",
        "stop=['END, '], stop_token_ids=[2], bad_words=[], min_tokens=0, ",
        "guided_decoding=GuidedDecodingParams(json={'n': 9, 'seed': 9}), min_tokens=0, ",
        "structured_outputs=StructuredOutputsParams(regex='(max_tokens=9, )'), ",
        "stop=['n=9, temperature=9, max_tokens=9'], ",
        'stop=["it\'s, n=9, seed=9"], ',
        "extra_args={'max_tokens': 9}, logprobs=None, ",
    ],
)
def test_numbers_are_read_whatever_stands_between(middle: str) -> None:
    """Keys inside strings, schemas and other calls are not the request's."""
    text = f"SamplingParams({NUMBERS}, {middle}max_tokens=128, skip_special_tokens=True)"
    assert attributes(text) == EXPECTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("None", {}),
        ("", {}),
        ("PoolingParams(task=None, dimensions=256)", {}),
        ("SamplingParams(seed=None, max_tokens=None, temperature=0.0)", {"temperature": 0.0}),
        ("SamplingParams(min_p=0.5, min_tokens=3)", {}),
        ("SamplingParams(top_p=1, top_k=50)", {"top_p": 1.0, "top_k": 50.0}),
        ("SamplingParams(max_tokens=16)", {"max_tokens": 16}),
        ("SamplingParams(temperature=1e-05, n=1)", {"temperature": 1e-05, "choice.count": 1}),
        ("SamplingParams(temperature=nan, seed=-7)", {"seed": -7}),
        ("SamplingParams(temperature=hot, n=few)", {}),
        ("SamplingParams(temperature=hot, n=few, stop=['x'])", {}),
        ("BeamSearchParams(beam_width=2, max_tokens=8)", {"max_tokens": 8}),
        ("SamplingParams(n=1, stop=['cut", {"choice.count": 1}),
    ],
)
def test_none_and_what_is_no_number_give_nothing(text: str, expected: dict[str, object]) -> None:
    """A key that is unset, misspelt or no number is left out, the others stay, read again too."""
    for _ in range(3):
        redacted(text)
        assert attributes(text) == {f"gen_ai.request.{key}": v for key, v in expected.items()}


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("stop", "stop"),
        ("bad_words", "stop"),
        ("stop_token_ids", "token_ids"),
        ("allowed_token_ids", "token_ids"),
        ("logit_bias", "token_ids"),
        ("guided_decoding", "schema"),
        ("structured_outputs", "schema"),
        ("logits_processors", "params"),
        ("extra_args", "params"),
        ("vllm_xargs", "params"),
    ],
)
@pytest.mark.parametrize("value", ["['MARKED, x)']", "{'k': ['MARKED']}", "Kind(a='MARKED', b=1)"])
def test_what_a_client_wrote_is_replaced_unless_kept(key: str, field: str, value: str) -> None:
    """Stop strings, token ids, schemas and extra arguments go; keeping their field keeps them."""
    text = f"SamplingParams(n=1, {key}={value}, max_tokens=16)"
    clean = f"SamplingParams(n=1, {key}=[redacted {len(value)} chars], max_tokens=16)"
    assert redacted(text) == clean
    assert redacted(text, field) == text
    assert redacted(text, *({"stop", "token_ids", "schema", "params"} - {field})) == clean


@pytest.mark.parametrize("empty", ["None", "[]", "{}", "()", "set()"])
def test_an_empty_private_part_stays(empty: str) -> None:
    """That a client gave no stop string is no secret."""
    text = f"SamplingParams(n=1, stop={empty}, stop_token_ids=[5], bad_words={empty}, max_tokens=3)"
    assert redacted(text) == text.replace("[5]", "[redacted 3 chars]")


def test_a_text_of_numbers_only_comes_back_as_it_is() -> None:
    """Nothing is copied where nothing is private."""
    text = f"SamplingParams({NUMBERS}, stop=[], max_tokens=16)"
    assert redacted(text) is text


@pytest.mark.parametrize("key", ["stop", "structured_outputs", "logit_bias"])
@pytest.mark.parametrize("length", [1000, MAX_NESTED_LENGTH, 4 * MAX_NESTED_LENGTH])
def test_a_private_part_of_any_length_is_replaced(key: str, length: int) -> None:
    """A long stop string or schema leaves neither its end nor the private part behind it."""
    long = "x" * length
    text = f"SamplingParams(n=1, {key}=['{long}MARKED1'], bad_words=['MARKED2'], max_tokens=16)"
    clean = redacted(text)
    assert "MARKED" not in clean
    assert "xxx" not in clean


def test_a_part_that_is_cut_off_is_replaced_to_the_end() -> None:
    """A string without its closing quote hides what follows."""
    assert redacted("SamplingParams(n=1, stop=['MARKED, max_tokens=1") == (
        "SamplingParams(n=1, stop=[redacted 22 chars]"
    )


HOSTILE = [
    "[]",
    "None",
    "['a']",
    "['a', \"it's\"]",
    "['), max_tokens=9']",
    "[\"', max_tokens=9, stop='\"]",
    "['\\', n=9, \\'']",
    "[1, 2]",
    "{'a': [1, (2, {3})]}",
    "f(x='(', y=g(z=[']']))",
    "[" * 9 + "]" * 9,
    "'a'",
    "a.b.C(json='{', regex=None)",
    "<K.D: 0>",
    "['a'",
    "max_tokens=9",
    "",
]


def careful(text: str) -> tuple[dict[str, object], str]:
    """The attributes and the redacted text, read pair by pair without any short cut."""
    spans = list(key_spans(text))
    numbers: dict[str, object] = {}
    for key, start, end in spans:
        if key in ("n", "max_tokens"):
            name = "choice.count" if key == "n" else key
            numbers[f"gen_ai.request.{name}"] = int(text[start:end])
    hidden = [
        (start, end, hide(text[start:end]))
        for key, start, end in spans
        if key == "stop" and text[start:end] not in ("None", "[]", "")
    ]
    return numbers, replace_values(text, hidden)


@pytest.mark.parametrize("before", HOSTILE)
def test_what_was_read_before_changes_nothing(before: str) -> None:
    """A text is read the same whichever texts of the same keys came first."""
    form = "SamplingParams(n=2, stop={}, max_tokens=16, detokenize=True)"
    for text in map(form.format, HOSTILE):
        redacted(form.format(before))
        attributes(form.format(before))
        assert attributes(text) == careful(text)[0]
        assert redacted(text) == careful(text)[1]
        assert attributes(text) == careful(text)[0]
        assert redacted(text, "stop") == text


NUMERALS = (
    "1 0 -1 +1 01 1.0 0.5 -0.25 1. .5 1e-05 1E5 nan inf -inf None True 1_000 99999999999999999999"
    " 1.2345678901234567890123 0x1f hot"
).split()


def number(text: str, *, whole: bool) -> object:
    """A number as it is read elsewhere; None where it is none."""
    try:
        converted = int_json(text) if whole else float_json(text)
    except ValueError:
        return None
    return None if converted is None else json.loads(converted)


@pytest.mark.parametrize("stop", ["[]", "['a']"])
@pytest.mark.parametrize("numeral", NUMERALS)
def test_a_learned_order_reads_numbers_as_they_are_read_without(numeral: str, stop: str) -> None:
    """Every notation of a number gives the value or the absence that it has elsewhere."""
    form = f"SamplingParams(n={{0}}, temperature={{0}}, top_k={{0}}, stop={stop}, max_tokens={{0}})"
    for before in ("1", "0.5", "None", "1e-05"):
        redacted(form.format(before))
        redacted(form.format(numeral))
        got = attributes(form.format(numeral))
        for key in ("choice.count", "temperature", "top_k", "max_tokens"):
            value = got.get(f"gen_ai.request.{key}")
            expected = number(numeral, whole=key in ("choice.count", "max_tokens"))
            assert (type(value), value) == (type(expected), expected), key


@pytest.mark.parametrize("count", [40, 64, 65, 5000])
def test_any_number_of_keys_is_read_and_redacted_alike(count: int) -> None:
    """More keys than any release prints change neither the values nor what is hidden."""
    keys = ", ".join(f"key{number}={number}" for number in range(count - 3))
    text = f"SamplingParams(n=2, {keys}, stop=['MARKED'], max_tokens=16)"
    for _ in range(2):
        assert redacted(text) == text.replace("['MARKED']", "[redacted 10 chars]")
        assert attributes(text) == {
            "gen_ai.request.choice.count": 2,
            "gen_ai.request.max_tokens": 16,
        }


def test_a_key_that_stands_twice_gives_one_value() -> None:
    """JSON has no second member of a name: the last one stands."""
    text = "SamplingParams(n=1, n=2, n=3)"
    redacted(text)
    assert sampling_members(text) == ',"gen_ai.request.choice.count":3'
