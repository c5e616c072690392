"""Synthetic catalogue entries: as many distinct, realistic wordings as a benchmark asks for.

They share their first words with vLLM's own wordings, so that dispatch has to look further.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_OPENERS = (
    "Using", "Loading", "Received", "Request", "Engine", "Added", "Aborted", "GPU", "Initializing",
    "Failed", "Running", "Starting", "Available", "Estimated", "Capturing", "Model", "Prefix",
    "KV", "Scheduling", "Finished", "Waiting", "Avg", "Found", "Overriding", "Allocated",
)  # fmt: skip
_SUBJECTS = (
    "expert router", "paged cache", "draft head", "tokenizer pool", "adapter slot", "mooncake link",
    "prefill queue", "decode lane", "vision tower", "speech encoder", "weight shard", "mesh peer",
    "block table", "radix tree", "graph bucket", "fp8 scale", "tensor ring", "host buffer",
    "offload tier", "grammar engine", "beam group", "reward head", "stream relay",
)  # fmt: skip
_ACTIONS = (
    "was rebuilt", "moved over", "is limited", "has settled", "was evicted", "grew by one",
    "was reused", "stays idle", "was merged", "is pinned", "was resumed",
)  # fmt: skip
_ENDINGS = (
    (" for {vllm.model:path}", " for /models/a"),
    (" with {vllm.model.max_len:int} tokens", " with 8,192 tokens"),
    (" after {:seconds} on {:word}", " after 1.5 s on rank-0"),
    (" ({:ratio} of {:bytes})", " (12.5% of 16 GiB)"),
    (": {:list} left, {=kept|dropped}", ": [1, 2] left, kept"),
    (" by {vllm.request.id:last}.", " by cmpl-0."),
)


def _entry(number: int) -> tuple[str, str]:
    """Return template and sample of the entry `number`; distinct below 6,325."""
    rest, opener = divmod(number, len(_OPENERS))
    rest, subject = divmod(rest, len(_SUBJECTS))
    action = _ACTIONS[(rest + number) % len(_ACTIONS)]
    template_end, sample_end = _ENDINGS[number % len(_ENDINGS)]
    text = f"{_OPENERS[opener]} {_SUBJECTS[subject]} {action}"
    if number % 40 == 39:
        return "{:word} " + text + template_end, "[backbone] " + text + sample_end
    return text + template_end, text + sample_end


def write_catalogue(directory: Path, count: int) -> None:
    """Write `count` entries into `directory` as one catalogue file."""
    blocks = []
    for number in range(count):
        template, sample = _entry(number)
        expect = _expect(sample)
        blocks.append(
            f'[[event]]\nname = "vllm.bench.e{number:05d}"\nbrief = "Synthetic."\n'
            f'match = ["{template}"]\n\n'
            f'[[event.sample]]\nline = "{sample}"\nexpect = {{{expect}}}\n'
        )
    (directory / "synthetic.toml").write_text("\n".join(blocks), encoding="utf-8")


def _expect(sample: str) -> str:
    if sample.endswith("/models/a"):
        return ' "vllm.model" = "/models/a" '
    if sample.endswith("8,192 tokens"):
        return ' "vllm.model.max_len" = 8192 '
    if sample.endswith("cmpl-0."):
        return ' "vllm.request.id" = "cmpl-0" '
    return ""
