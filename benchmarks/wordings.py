"""The wordings of the benchmark corpus, with holes for synthetic values.

A hole is written ``@{kind}`` or ``@{kind:argument}``; `benchmarks.values` fills it. `Wording.era`
names the servers that print a wording: 32, 16 and 8 for vLLM 0.32, 0.16 and 0.8, ``seed`` for the
layout without an opening bracket, ``raw`` for a line without vLLM's header, ``*`` for 32, 16 and 8.
"""

from __future__ import annotations

from typing import NamedTuple


class Wording(NamedTuple):
    """One message and the place it is printed from."""

    era: str
    role: str
    level: str
    place: str
    text: str


_SAMPLING_HEAD = (
    "params: SamplingParams(n=@{pick:1|1|1|2}, presence_penalty=@{pick:0.0|0.0|0.5},"
    " frequency_penalty=@{pick:0.0|0.0|0.2}, repetition_penalty=@{pick:1.0|1.05},"
    " temperature=@{pick:0.0|0.2|0.6|0.7|1.0},"
)
_SAMPLING_MIDDLE = (
    " top_p=@{pick:1.0|0.95|0.9}, top_k=@{pick:0|20|40}, min_p=0.0, seed=@{seed},"
    " stop=@{stop}, stop_token_ids=[], bad_words=[],"
)
_SAMPLING_TAIL = (
    " include_stop_str_in_output=False, ignore_eos=False, max_tokens=@{int:1-4096},"
    " min_tokens=@{pick:0|0|16}, logprobs=@{pick:None|None|5}, prompt_logprobs=None,"
    " skip_special_tokens=True, spaces_between_special_tokens=True,"
)
_SCHEMA = "@{schema}"
_LORA = "@{lora}"
_REQUEST_32 = (
    "Received request @{rid}: " + _SAMPLING_HEAD + " watermarking=None," + _SAMPLING_MIDDLE
    + " thinking_token_budget=None," + _SAMPLING_TAIL + " structured_outputs=" + _SCHEMA
    + ", extra_args=None), lora_request: " + _LORA + "."
)  # fmt: skip
_REQUEST_16 = (
    "Received request @{rid}: " + _SAMPLING_HEAD + _SAMPLING_MIDDLE + _SAMPLING_TAIL
    + " truncate_prompt_tokens=None, structured_outputs=" + _SCHEMA
    + ", extra_args=None), lora_request: " + _LORA + "."
)  # fmt: skip
_REQUEST_8 = (
    "Received request @{rid}: prompt: @{prompt}, " + _SAMPLING_HEAD + _SAMPLING_MIDDLE
    + _SAMPLING_TAIL + " truncate_prompt_tokens=None, guided_decoding=None, extra_args=None),"
    " prompt_token_ids: @{ids}, lora_request: None, prompt_adapter_request: None."
)  # fmt: skip

REQUESTS = (
    Wording("32", "api", "INFO", "request_logger.py:65", _REQUEST_32),
    Wording("16", "api", "INFO", "logger.py:49", _REQUEST_16),
    Wording("8", "api", "INFO", "logger.py:39", _REQUEST_8),
)

ACCESS = (Wording("*", "uvicorn", "INFO", "", '@{client} - "@{call}'),)

_RATES = (
    "Avg prompt throughput: @{float:0-2400:1} tokens/s,"
    " Avg generation throughput: @{float:0-3100:1} tokens/s, "
)
_DRAFT = "Accepted: @{int:90-900} tokens, Drafted: @{int:900-1800} tokens,"
_POSITIONS = "Per-position acceptance rate: @{fraction:3}, @{fraction:3}, @{fraction:3}"

STATS = (
    *[
        Wording(
            "32", "api", "INFO", "loggers.py:335",
            "Engine @{pick:000|001}: " + _RATES + "Running: @{int:0-256} reqs,"
            " Waiting: @{int:0-64} reqs, " + extra
            + "GPU KV cache usage: @{float:0-100:1}%, Prefix cache hit rate: @{float:0-100:1}%"
            + tail,
        )
        for extra, tail in (
            ("", ""),
            ("Deferred: @{int:1-9} reqs, ", ""),
            ("", ", External prefix cache hit rate: @{float:0-100:1}%"),
            (
                ("KV fetch: @{int:0-9} waiting to start, @{int:0-9} in progress,"
                " @{int:0-9} completed waiting, "),
                ", MM cache hit rate: @{float:0-100:1}%",
            ),
        )
    ],
    Wording("16", "api", "INFO", "loggers.py:257", "Engine 000: " + _RATES
            + "Running: @{int:0-256} reqs, Waiting: @{int:0-64} reqs,"
            " GPU KV cache usage: @{float:0-100:1}%, Prefix cache hit rate: @{float:0-100:1}%"),
    Wording("16", "api", "INFO", "loggers.py:257", "2 Engines Aggregated: " + _RATES
            + "Running: @{int:0-512} reqs, Waiting: @{int:0-64} reqs,"
            " GPU KV cache usage: @{float:0-100:1}%, Prefix cache hit rate: @{float:0-100:1}%"),
    Wording("8", "api", "INFO", "metrics.py:486", _RATES
            + "Running: @{int:0-256} reqs, Swapped: @{int:0-4} reqs, Pending: @{int:0-64} reqs,"
            " GPU KV cache usage: @{float:0-100:1}%, CPU KV cache usage: @{float:0-100:1}%."),
    Wording("8", "api", "INFO", "metrics.py:502",
            "Prefix cache hit rate: GPU: @{float:0-100:2}%, CPU: @{float:0-100:2}%"),
    Wording("8", "api", "INFO", "metrics.py:510",
            "Speculative metrics: Draft acceptance rate: @{fraction:3}, System efficiency:"
            " @{fraction:3}, Number of speculative tokens: @{int:1-8}, Number of accepted tokens:"
            " @{int:1-90000}, Number of draft tokens: @{int:1-99999}, Number of emitted tokens:"
            " @{int:1-99999}."),
    Wording("8", "api", "INFO", "metrics.py:33",
            "SpecDecoding metrics: Draft acceptance rate: @{float:0-100:1}%, Mean acceptance"
            " length: @{float:1-4:2}, " + _DRAFT + " " + _POSITIONS),
    Wording("32", "api", "INFO", "metrics.py:101",
            "SpecDecoding metrics: Mean acceptance length: @{float:1-4:2}, Accepted throughput:"
            " @{float:0-900:2} tokens/s, Drafted throughput: @{float:0-1800:2} tokens/s, "
            + _DRAFT + " " + _POSITIONS + ", Avg Draft acceptance rate: @{float:0-100:1}%"),
    Wording("32", "api", "INFO", "metrics.py:64",
            "DiffusionDecoding metrics: Committed token throughput: @{float:0-900:2} tokens/s,"
            " Mean denoising steps per canvas: @{float:1-64:2}, Mean tokens committed per"
            " denoising step: @{float:1-8:2}, Committed: @{int:1-9000} tokens, Denoising steps:"
            " @{int:1-900}, Canvas positions evaluated: @{int:1-99999}"),
    Wording("32", "api", "INFO", "metrics.py:140",
            "KV Transfer metrics: Num successful transfers=@{int:1-900}, Avg xfer time"
            " (ms)=@{float:1-90:3}, P90 xfer time (ms)=@{float:1-90:3}, Avg post time"
            " (ms)=@{float:0-9:3}, P90 post time (ms)=@{float:0-9:3}, Avg MB per"
            " transfer=@{float:1-900:3}, Throughput (MB/s)=@{float:1-9000:3}, Avg number of"
            " descriptors=@{float:1-900:1}"),
    Wording("32", "api", "INFO", "loggers.py:352",
            "Engine 000: MFU: @{float:0-900:1} TF/s/device @{float:0-3000:1} GB/s/device"),
    Wording("32", "api", "INFO", "loggers.py:361",
            "Engine 000: Iteration(@{int:1-99999}): @{int:0-9} context requests, @{int:0-8192}"
            " context tokens, @{int:0-256} generation requests, @{int:0-256} generation tokens,"
            " iteration elapsed time: @{float:1-90:2} ms, GPU KV cache usage: @{float:0-100:1}%"),
    Wording("16", "core", "INFO", "core.py:402",
            "Iteration(@{int:1-99999}): @{int:0-9} context requests, @{int:0-8192} context tokens,"
            " @{int:0-256} generation requests, @{int:0-256} generation tokens, iteration elapsed"
            " time: @{float:1-90:2} ms"),
    Wording("raw", "", "", "", "[PERF] Average cache hit rate: @{int:0-100}%"),
    Wording("raw", "", "", "", "[STATS] Memory usage: @{float:1-39:1}/40GB"),
    Wording("raw", "", "", "", "[NCCL] AllReduce latency: @{int:1-90}ms"),
    Wording("raw", "", "", "", "[PROF] TP communication: @{int:1-60}% of step time"),
    Wording("raw", "", "", "", "[STATS] CPU-GPU bandwidth: @{int:4-24}GB/s"),
)  # fmt: skip

SCHEDULER = (
    *[Wording("32", "api", "INFO", "async_llm.py:578", "Added request @{iid}.")] * 4,
    *[Wording("16", "api", "INFO", "async_llm.py:391", "Added request @{iid}.")] * 4,
    *[Wording("8", "api", "INFO", "engine.py:310", "Added request @{last}.")] * 4,
    Wording("32", "api", "INFO", "async_llm.py:922", "Aborted request(s) @{iid}."),
    Wording("32", "api", "INFO", "async_llm.py:783", "Request @{last} aborted."),
    Wording("16", "api", "INFO", "async_llm.py:700", "Aborted request(s) @{iid},@{iid}."),
    Wording("16", "api", "INFO", "async_llm.py:564", "Request @{last} aborted."),
    Wording("8", "api", "INFO", "engine.py:330", "Aborted request @{last}."),
    Wording("32", "api", "INFO", "async_llm.py:801",
            "Request @{last} failed (bad request): max_tokens must be at least 1, got 0.."),
    Wording("8", "core", "WARNING", "scheduler.py:1769",
            "Sequence group @{last} is preempted by PreemptionMode.RECOMPUTE mode because there"
            " is not enough KV cache space. This can affect the end-to-end performance. Increase"
            " gpu_memory_utilization or tensor_parallel_size to provide more KV cache memory."
            " total_num_cumulative_preemption=@{fifty}"),
    Wording("16", "core", "DEBUG", "scheduler.py:1803",
            "Finished recving KV transfer for request @{iid}"),
    Wording("32", "core", "WARNING", "nixl.py:1501",
            "Releasing expired KV blocks for request @{iid} which were retrieved by @{int:1-4}"
            " remote worker(s) before lease expired."),
    Wording("32", "core", "WARNING", "core.py:618",
            "Multi-modal cache miss for request @{iid} (mm_hashes=['@{hex:16}']): P0/P1 cache"
            " drift; returning a retryable response so the items are resent with data."),
    Wording("16", "core", "INFO", "shm_broadcast.py:501",
            "No available shared memory broadcast block found in 60 seconds. This typically"
            " happens when some processes are hanging or doing some time-consuming work (e.g."
            " compilation, weight/kv cache quantization)."),
    Wording("32", "worker", "INFO", "gpu_worker.py:160",
            "Sleep mode freed @{float:1-70:2} GiB memory, @{float:1-9:2} GiB memory is still in"
            " use."),
    Wording("32", "worker", "INFO", "gpu_worker.py:371",
            "Available KV cache memory: @{float:1-70:2} GiB"),
    Wording("32", "core", "INFO", "kv_cache_utils.py:2327",
            "GPU KV cache size: @{commas:9000-2000000} tokens, Maximum concurrency for"
            " @{commas:1024-131072} tokens per request: @{float:1-90:2}x"),
    Wording("16", "core", "INFO", "kv_cache_utils.py:1307",
            "GPU KV cache size: @{commas:9000-2000000} tokens"),
    Wording("32", "worker", "INFO", "default_loader.py:501",
            "Loading weights took @{float:1-90:2} seconds"),
    Wording("16", "worker", "INFO", "gpu_model_runner.py:4105",
            "Model loading took @{float:1-90:2} GiB memory and @{float:1-90:6} seconds"),
    Wording("32", "worker", "INFO", "monitor.py:63",
            "[backbone] torch.compile took @{float:1-90:2} s in total"),
    Wording("16", "worker", "INFO", "gpu_model_runner.py:5011",
            "Graph capturing finished in @{int:1-60} secs, took @{float:0-4:2} GiB"),
    Wording("8", "core", "INFO", "executor_base.py:112",
            "# cuda blocks: @{int:900-90000}, # CPU blocks: @{int:0-4096}"),
    Wording("8", "api", "INFO", "serving_models.py:185",
            "Loaded new LoRA adapter: name 'tenant-@{int:1-99}', path '/models/lora/a'"),
    Wording("seed", "", "INFO", "scheduler.py:789",
            "Request 0x@{hex:12}: prompt_tokens=@{int:1-4096}, generated_tokens=@{int:1-2048},"
            " ttft=@{float:9-400:1}ms, itl=@{float:4-90:1}ms, total_latency=@{float:0-40:1}s"),
    Wording("seed", "", "INFO", "scheduler.py:234",
            "Scheduling request 0x@{hex:12}: priority=0, num_scheduled_blocks=@{int:1-64},"
            " remaining_blocks=@{int:0-64}"),
    Wording("seed", "", "INFO", "scheduler.py:256",
            "Preempting request 0x@{hex:12}: reason=long_context, preempted_blocks=@{int:1-9}"),
    Wording("seed", "", "INFO", "scheduler.py:312",
            "Running queue: @{int:0-64} requests, waiting queue: @{int:0-64} requests, free"
            " blocks: @{int:0-64}/64"),
    Wording("seed", "", "INFO", "memory.py:123",
            "Allocated block 0x@{hex:12} for request 0x@{hex:12}, size=16KB"),
    Wording("seed", "", "INFO", "memory.py:145",
            "Freed block 0x@{hex:12} for request 0x@{hex:12}, reason=completed"),
    Wording("seed", "", "INFO", "memory.py:200",
            "GPU memory usage: @{float:1-16:1}GB/16.0GB (@{float:1-99:2}%), cache usage:"
            " @{float:1-9:1}GB, kv_cache blocks: @{int:1-640}/640"),
    Wording("seed", "", "WARNING", "scheduler.py:450",
            "Request 0x@{hex:12} timed out after 30s"),
    Wording("seed", "", "ERROR", "memory.py:300",
            "CUDA out of memory. Tried to allocate @{int:1-900}MB for kv_cache block"),
)  # fmt: skip

UNKNOWN = tuple(
    Wording("*", "api", "INFO", place, text)
    for place, text in (
        ("quota.py:88", "Tenant ledger reconciled @{int:1-900} entries for pool-@{hex:6}"),
        ("shadow.py:31", "Mirrored @{int:1-99} calls to the shadow pool within @{int:1-90}ms"),
        ("autoscale.py:140", "Hint for replica set blue-@{int:1-9}: hold at @{int:1-16}"),
        ("tariff.py:12", "Billing window @{hex:8} sealed at checkpoint @{int:1-999999}"),
        ("guard.py:207", "Moderation verdict=@{pick:pass|flag} score=@{fraction:4} lane=@{hex:4}"),
        ("router.py:64", "Affinity key @{hex:12} pinned to shelf @{int:0-31}"),
        ("warmer.py:9", "Nightly rehearsal finished, @{int:1-400} scenarios green"),
        ("audit.py:55", "Signed digest @{hex:32} appended to journal segment @{int:1-900}"),
    )
)
