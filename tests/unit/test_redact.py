"""Secrets in texts: each pattern by its example, look-alikes, and what operators switch."""

from __future__ import annotations

import pytest

from vllm_logpipe.redact import Pattern, Redactor, hide, load_patterns
from vllm_logpipe.semconv import OPTIONAL_FIELDS, PRIVATE_FIELDS

PATTERNS = load_patterns()
ID = "0123456789abcdef0123456789abcdef"


def scrub(text: str, *, keep: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> str:
    """The text without its secrets."""
    return Redactor(keep, also).scrub(text)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_pattern_replaces_the_secret_of_its_example(pattern: Pattern) -> None:
    """The sample becomes what it states."""
    also = (pattern.field,) if pattern.optional else ()
    assert scrub(pattern.sample, also=also) == pattern.expect


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_pattern_is_ruled_by_its_field(pattern: Pattern) -> None:
    """A private field is kept on demand, an optional one is taken out on demand only."""
    if pattern.optional:
        assert pattern.field in OPTIONAL_FIELDS
        assert scrub(pattern.sample) == pattern.sample
    else:
        assert pattern.field in PRIVATE_FIELDS
        assert scrub(pattern.sample, keep=tuple(PRIVATE_FIELDS)) == pattern.sample


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_pattern_is_woken_by_its_triggers(pattern: Pattern) -> None:
    """A trigger is in the sample, in lower case, or the pattern would never be tried on it."""
    assert pattern.trigger
    assert all(trigger == trigger.lower() for trigger in pattern.trigger)
    assert any(trigger in pattern.sample.lower() for trigger in pattern.trigger)


def test_every_pattern_has_a_name_of_its_own() -> None:
    """Names tell patterns apart."""
    assert len({pattern.name for pattern in PATTERNS}) == len(PATTERNS)


@pytest.mark.parametrize(
    "text",
    [
        "hf_token='MARKED'",
        'hf_token="MARKED"',
        "HF_TOKEN=MARKED",
        "'hf_token': 'MARKED'",
        '{"token":"MARKED"}',
        "api_key='MARKED'",
        "api_key=['a', 'MARKED']",
        "'api_key': ['a]b', 'MARKED']",
        "'api_key': [\"it's]\", 'MARKED']",
        "api-key: MARKED",
        "apikey=MARKED&x=1",
        "VLLM_API_KEY=MARKED",
        "{'X-Api-Key': 'MARKED'}",
        "aws_secret_access_key='MARKED'",
        "AWS_ACCESS_KEY_ID=MARKED",
        "aws_session_token='MARKED'",
        "secret_key: MARKED",
        "client_secret=MARKED,",
        "ssl_keyfile_password='MARKED'",
        "password='with \\' quote MARKED'",
        "passwd=MARKED;",
        "pwd: MARKED",
        "passphrase: 'several words MARKED'",
        "credentials={'user': 'a', 'pass': 'MARKED'}",
        "credentials={'a': {'b': 1}, 'c': 'MARKED'}",
        "cache_salt='MARKED'",
        '"cache_salt": "MARKED"',
        "Authorization: Bearer MARKED",
        "authorization: basic MARKED",
        "'Authorization': 'Token MARKED'",
        "(b'authorization', b'Bearer MARKED')",
        "Authorization: MARKED",
        "vllm serve m --api-key MARKED --port 1",
        "vllm serve m --api-key=MARKED",
        "['vllm', '--hf-token', 'MARKED', '--port']",
        "serve --ssl-keyfile-password MARKED",
        "redis://:MARKED@192.0.2.1/0",
        "http://user:MARKED@192.0.2.1:8000/v1",
        "tcp://MARKED@192.0.2.1:5",
        "redis://user:p@ssMARKED@192.0.2.1/0",
        "s3://bucket/k?X-Amz-Signature=MARKED",
        "https://h.test/a?b=1&c=MARKED#d",
        "wss://h.test/a?MARKED",
        "two http://h.test/a?MARKED and http://h.test/b?MARKED",
        "http://h.test/a?next=http://MARKED",
        "Max retries exceeded with url: /models/a?X-Amz-Signature=MARKED (Caused by X)",
        "data:image/png;base64,MARKED+/=",
        "input_value={'prompt': 'MARKED'}, input_type=dict]",
        "input_value={'prompt': 'a, input_type=str] MARKED'}, input_type=dict]",
        "sk-MARKED0123456789",
        "ghp_MARKED0123456789",
        "github_pat_MARKED0123",
        "xoxb-1-MARKED0123",
        "glpat-MARKED0123",
        "nvapi-MARKED0123",
        "AIzaMARKED0123456789",
        "hf_MARKEDMARKED",
        "eyJMARKEDMARKED.eyJNQVJLRUQ.c2ln",
        "-----BEGIN PRIVATE KEY-----\nMARKED\n-----END PRIVATE KEY-----",
    ],
)
def test_a_secret_is_taken_out_wherever_it_stands(text: str) -> None:
    """Each notation of a secret is known, alone, in a sentence, twice and in a later line."""
    for form in ("{}", "said {} then", "{0} {0}", "first line\n  {}\nlast line"):
        assert "MARKED" not in scrub(form.format(text))


@pytest.mark.parametrize(
    "text",
    [
        "password='never closed MARKED",
        'api_key="never closed, MARKED',
        "api_key=['never closed', 'MARKED",
        "credentials={'never': 'closed', 'MARKED",
        "token='never closed MARKED",
        "input_value='never closed MARKED",
        "-----BEGIN EC PRIVATE KEY-----\nMARKED and cut off",
        "lora_name='never closed MARKED",
    ],
)
def test_a_secret_that_is_cut_off_goes_to_its_end(text: str) -> None:
    """A line limit may take the end of a secret, not uncover the rest of it."""
    assert "MARKED" not in scrub(f"said {text}", also=("lora",))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "max_tokens=16",
        "max_tokens=16, min_tokens=0)",
        "'max_tokens': 16}",
        '{"max_completion_tokens":128}',
        "48,704 tokens",
        "tokens: 512",
        "num_tokens=1024.",
        "token=None",
        "api_key='***', hf_token='***'",
        "hf_token=None, api_key=None",
        '{"api_key":null}',
        "api_key=[], credentials={}",
        "password=False",
        "took 3.5 s per token: 12ms",
        "first token: 0.25 s",
        "prompt_token_ids: None",
        "disk-0123456789abcdef",
        "task-0123456789abcdef",
        "desk-lamp-and-more",
        f"chatcmpl-{ID}",
        f"cmpl-{ID}-0",
        f"0_chatcmpl-{ID}-1a2b3c4d",
        f"resp_{ID}_1",
        f"Added request embd-{ID}-0-1a2b3c4d.",
        "keyword arguments: {'a': 1}",
        "monkey: see",
        "the key of the dict",
        "secretary: bob",
        "passed: 3",
        "http://192.0.2.1:8000/v1/models",
        "s3://bucket/model",
        "tcp://192.0.2.1:29500",
        "ops@example.test",
        "Who asked? Why?",
        "a?b:c",
        "input_type=dict",
        "metadata: image/png",
        "/home/alice/models/x",
        "192.0.2.7:51234",
        "LoRARequest(lora_name='tenant-a', lora_int_id=1)",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    """Counts, empty settings, ids, plain addresses and paths are what operators need."""
    assert scrub(text) is text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "host='0.0.0.0', api_key='k1k1', seed=0, hf_token='abcdef', max_tokens=16",
            "host='0.0.0.0', api_key=[redacted], seed=0, hf_token=[redacted], max_tokens=16",
        ),
        ("http://u:p@h.test/a?b=c d", "http://[redacted]@h.test/a?[redacted] d"),
        ("--api-key k1 --port 8000", "--api-key [redacted] --port 8000"),
        ("Bearer abc, next", "Bearer [redacted], next"),
        ("{'password': 'x', 'port': 1}", "{'password': [redacted], 'port': 1}"),
    ],
)
def test_the_text_around_a_secret_stays(text: str, expected: str) -> None:
    """Only the secret is replaced."""
    assert scrub(text) == expected


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("client_address", "peer 192.0.2.77:51234 lost"),
        ("client_address", "peer [2001:db8::77]:51234 lost"),
        ("path", "loaded /srv/MARKED/m.bin"),
        ("path", 'File "/srv/MARKED/a.py", line 3'),
        ("path", "'/srv/MARKED'"),
        ("user", "/home/MARKED/.cache"),
        ("user", "in /Users/MARKED/x"),
        ("lora", "LoRARequest(lora_name='MARKED', lora_path='/l/MARKED')"),
        ("lora", "Loaded new LoRA adapter: name 'MARKED', path '/l/MARKED'"),
        ("lora", "Removed LoRA adapter: name 'MARKED'"),
        ("host", "(RayWorkerProc pid=3, ip=192.0.2.77)"),
    ],
)
def test_optional_fields_go_only_on_demand(field: str, text: str) -> None:
    """Addresses, paths, hosts, users and adapters stay unless the operator names them."""
    assert scrub(text) == text
    clean = scrub(text, also=(field,))
    assert "MARKED" not in clean
    assert "::77" not in clean
    assert ".77" not in clean


@pytest.mark.parametrize("kept", sorted(PRIVATE_FIELDS))
def test_keeping_one_field_keeps_no_other(kept: str) -> None:
    """The switches are independent of each other."""
    for pattern in PATTERNS:
        if not pattern.optional:
            expected = pattern.sample if pattern.field == kept else pattern.expect
            assert scrub(pattern.sample, keep=(kept,)) == expected


@pytest.mark.parametrize(
    ("keep", "also", "fault"),
    [
        (("prompts",), (), "unknown redaction field 'prompts'; known: media_url, output, params,"),
        (("path",), (), "unknown redaction field 'path'; known: media_url, output, params,"),
        ((), ("prompt",), "unknown redaction field 'prompt'; known: client_address, host, lora,"),
        ((), ("",), "unknown redaction field ''; known: client_address, host, lora, path, user"),
    ],
)
def test_an_unknown_field_is_refused(
    keep: tuple[str, ...], also: tuple[str, ...], fault: str
) -> None:
    """A field that no switch has is an error that names those there are."""
    with pytest.raises(ValueError, match=r"^unknown redaction field ") as error:
        Redactor(keep, also)
    assert str(error.value).startswith(fault)


@pytest.mark.parametrize("kind", ["text", "quoted", "rest", "sampling_params", "kwargs"])
def test_a_private_hole_is_hidden_whole(kind: str) -> None:
    """What is private leaves only its length, whatever it holds; kept, secrets still go."""
    text = "it's 'quoted', api_key='MARKED'"
    assert Redactor().for_hole(kind, "prompt")(text) == hide(text) == "[redacted 31 chars]"
    kept = Redactor(keep=["prompt"]).for_hole(kind, "prompt")(text)
    assert kept == "it's 'quoted', api_key=[redacted]"
    assert Redactor(keep=["prompt", "secret"]).for_hole(kind, "prompt")(text) == text


def test_a_hole_of_no_field_is_scrubbed() -> None:
    """Secrets go from any open text, and the private parts of sampling parameters with them."""
    text = "SamplingParams(n=1, stop=['MARKED'], note='api_key=MARKED')"
    clean = Redactor().for_hole("sampling_params", None)(text)
    assert clean == "SamplingParams(n=1, stop=[redacted 10 chars], note='api_key=[redacted]')"
    assert Redactor().for_hole("text", None)("api_key=MARKED") == "api_key=[redacted]"


@pytest.mark.parametrize(
    "filler",
    [
        "://",
        "password=",
        "token=",
        "?a=",
        "'",
        "\\'",
        "--",
        "-key ",
        "Bearer ",
        "eyJa.",
        "-eyJabcdefgh",
        "eyJabcdefgh_",
        "/a",
        "1.2.",
    ],
)
def test_a_hostile_text_is_passed_over(filler: str) -> None:
    """Text that almost holds a secret many times over gives an answer."""
    redactor = Redactor(also=OPTIONAL_FIELDS)
    for text in (filler * 20_000, f"api_key='{filler * 20_000}", f"http://{filler * 20_000}"):
        assert len(redactor.scrub(text)) <= 20 * len(text)
