"""Verdicts on stuck collectives, from logs of several ranks whose culprit is known."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.derive.deriver import Deriver

ASSIGNED = (
    "(Worker_TP{0} pid={1}) INFO 12-01 10:00:00 [parallel_state.py:1200] rank {0} in world size"
    " {2} is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank {0}, EP rank {0}"
)
PIPELINED = (
    "(Worker_PP{3}_TP{4} pid={1}) INFO 12-01 10:00:00 [parallel_state.py:1200] rank {0} in world"
    " size {2} is assigned as DP rank 0, PP rank {3}, PCP rank 0, TP rank {4}, EP rank {4}"
)
DUMP = (
    "{prefix}[E1201 10:10:01.000000000 ProcessGroupNCCL.cpp:1683] {tag} Received a dump signal due"
    " to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last"
    " enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely"
    " caused by incorrect usages of collectives."
)
XID = "[  812.100000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."


def world(*ranks: int, size: int) -> list[str]:
    """The start-up lines of the ranks that are seen."""
    return [ASSIGNED.format(rank, 100 + rank, size) for rank in ranks]


def tag(rank: int, group: str) -> str:
    """How torch names a process group and the rank in it."""
    return f"[PG ID 2 PG GUID {group} Rank {rank}]"


def watchdog(
    rank: int,
    sequence: int = 12,
    kind: str = "ALLREDUCE",
    size: int = 1024,
    *,
    group: str = "0(default_pg)",
    elapsed: int = 600_500,
    second: str = "00.500000000",
    own: int | None = None,
) -> str:
    """The watchdog of a rank reports a collective that ran too long."""
    return (
        f"[rank{rank}]:[E1201 10:10:{second} ProcessGroupNCCL.cpp:629]"
        f" {tag(rank if own is None else own, group)} Watchdog caught collective operation timeout:"
        f" WorkNCCL(SeqNum={sequence}, OpType={kind}, NumelIn={size}, NumelOut={size},"
        f" Timeout(ms)=600000) ran for {elapsed} milliseconds before timing out."
    )


def status(
    rank: int, sequence: int, enqueued: int, completed: int, *, group: str = "0(default_pg)"
) -> str:
    """The watchdog of a rank says how far it had come."""
    return (
        f"[rank{rank}]:[E1201 10:10:00.600000000 ProcessGroupNCCL.cpp:2168] {tag(rank, group)}"
        f" Timeout at NCCL work: {sequence}, last enqueued NCCL work: {enqueued},"
        f" last completed NCCL work: {completed}."
    )


def dump(rank: int, enqueued: int, completed: int, *, group: str = "0(default_pg)") -> str:
    """A rank that heard of another one's timeout says how far it had come."""
    return DUMP.format(
        prefix=f"[rank{rank}]:", tag=tag(rank, group), enqueued=enqueued, completed=completed
    )


def desync(rank: int, *lines: str) -> str:
    """Torch's own report, printed by one rank."""
    head = (
        f"[rank{rank}]:[E1201 10:10:02.000000000 ProcessGroupNCCL.cpp:1484]"
        f" {tag(rank, '0(default_pg)')} "
    )
    return "\n".join([head, *lines])


FOUND = "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:"
DIED = (
    "(EngineCore pid=50) ERROR 12-01 10:00:02 [multiproc_executor.py:230] Worker proc VllmWorker-2"
    " died unexpectedly (exit code: -9), shutting down executor."
)
OUT_OF_MEMORY = (
    "(Worker_TP1 pid=101) ERROR 12-01 10:00:03 [multiproc_executor.py:540] WorkerProc hit an"
    " exception.\n"
    "(Worker_TP1 pid=101) ERROR 12-01 10:00:03 [multiproc_executor.py:540] Traceback (most recent"
    " call last):\n"
    '(Worker_TP1 pid=101) ERROR 12-01 10:00:03 [multiproc_executor.py:540]   File "/opt/vllm/x.py",'
    " line 1, in run\n"
    "(Worker_TP1 pid=101) ERROR 12-01 10:00:03 [multiproc_executor.py:540]     forward()\n"
    "(Worker_TP1 pid=101) ERROR 12-01 10:00:03 [multiproc_executor.py:540]"
    " torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total"
    " capacity of 79.10 GiB of which 1.00 GiB is free."
)
RPC_TIMEOUT = (
    "(EngineCore pid=50) ERROR 12-01 10:05:00 [core.py:900] EngineCore encountered a fatal error.\n"
    "(EngineCore pid=50) ERROR 12-01 10:05:00 [core.py:900] Traceback (most recent call last):\n"
    '(EngineCore pid=50) ERROR 12-01 10:05:00 [core.py:900]   File "/opt/vllm/y.py", line 1, in f\n'
    "(EngineCore pid=50) ERROR 12-01 10:05:00 [core.py:900]     step()\n"
    "(EngineCore pid=50) ERROR 12-01 10:05:00 [core.py:900] TimeoutError: RPC call to"
    " sample_tokens timed out."
)

TAKING_DOWN = (
    "[rank0]:[E1201 10:10:00.500000000 ProcessGroupNCCL.cpp:681] [Rank 0] Some NCCL"
    " operations have failed or timed out. Due to the asynchronous nature of CUDA kernels,"
    " subsequent GPU operations might run on corrupted/incomplete data."
)

CASES: dict[str, tuple[list[str], dict[str, object]]] = {
    "did not join: one rank never enqueued the operation": (
        [
            *world(0, 1, 2, 3, size=4),
            *(watchdog(rank) for rank in (0, 1, 3)),
            *(status(rank, 12, 14, 11) for rank in (0, 1, 3)),
            dump(2, 11, 11),
        ],
        {
            "event": "nccl.incident",
            "verdict": "did_not_join",
            "confidence": "strong",
            "suspected": [2],
            "nccl.sequence_number": 12,
            "nccl.collective": "ALLREDUCE",
            "nccl.ranks.expected": [0, 1, 2, 3],
            "nccl.ranks.reported": [0, 1, 2, 3],
            "nccl.ranks.silent": [],
            "process.pid": 102,
            "vllm.process.name": "Worker_TP2",
            "vllm.rank.tp": 2,
        },
    ),
    "did not join: two ranks of eight": (
        [
            *world(*range(8), size=8),
            *(status(rank, 40, 41, 39) for rank in (0, 1, 2, 3, 6, 7)),
            dump(4, 39, 39),
            dump(5, 39, 39),
        ],
        {"verdict": "did_not_join", "confidence": "strong", "suspected": [4, 5]},
    ),
    "did not join: a rank that completed less than the others": (
        [
            *world(0, 1, 2, 3, size=4),
            *(status(rank, 13, 14, 12) for rank in (0, 1, 2)),
            status(3, 12, 14, 11),
        ],
        {"verdict": "did_not_join", "confidence": "strong", "suspected": [3]},
    ),
    "did not join: torch's report names the rank": (
        [
            *world(0, 1, 2, 3, size=4),
            watchdog(0),
            desync(
                0,
                FOUND,
                "\t   - [3] finished collective #11, but didn't join collective #12",
                "\t     [0, 1, 2] joined but didn't finish collective #12",
                "\t - Snapshot of ranks' latest states:",
                "\t   #12 started ranks:",
                "\t     [0, 1, 2] started ALLREDUCE",
            ),
        ],
        {"verdict": "did_not_join", "confidence": "reported", "suspected": [3]},
    ),
    "did not join: torch says that a rank never joined": (
        [
            *world(0, 1, size=2),
            watchdog(0),
            desync(
                0,
                "\t - To our best knowledge, ranks [1] are the lagging ranks that caused this"
                " timeout. They never joined any collectives",
            ),
        ],
        {"verdict": "did_not_join", "confidence": "reported", "suspected": [1]},
    ),
    "a silent rank is only suspected": (
        [
            *world(0, 1, 2, 3, size=4),
            *(watchdog(rank) for rank in (0, 1, 2)),
            *(status(rank, 12, 14, 11) for rank in (0, 1, 2)),
        ],
        {
            "verdict": "did_not_join",
            "confidence": "weak",
            "suspected": [3],
            "nccl.ranks.silent": [3],
            "known": False,
        },
    ),
    "died: a worker was killed before": (
        [
            *world(0, 1, 2, 3, size=4),
            DIED,
            *(watchdog(rank, elapsed=600_000) for rank in (0, 1, 3)),
        ],
        {
            "event": "vllm.incident",
            "error.type": "worker.died",
            "verdict": "died",
            "suspected": [2],
            "process.pid": 102,
            "cascades": ["nccl.collective_timeout"],
        },
    ),
    "died: a rank ran out of memory before": (
        [
            *world(0, 1, 2, 3, size=4),
            OUT_OF_MEMORY,
            *(watchdog(rank, elapsed=599_000) for rank in (0, 2, 3)),
        ],
        {
            "event": "vllm.incident",
            "error.type": "cuda.out_of_memory",
            "verdict": "died",
            "suspected": [1],
            "process.pid": 101,
            "known": True,
        },
    ),
    "died: a GPU fell off the bus": (
        [*world(0, 1, size=2), XID, watchdog(0), watchdog(1)],
        {"event": "vllm.incident", "error.type": "gpu.lost", "verdict": "died"},
    ),
    "mismatch: one rank runs another collective": (
        [
            *world(0, 1, 2, 3, size=4),
            *(watchdog(rank, kind="ALLREDUCE") for rank in (0, 1, 3)),
            watchdog(2, kind="_ALLGATHER_BASE"),
        ],
        {"verdict": "mismatch", "confidence": "strong", "suspected": [2]},
    ),
    "mismatch: one rank passes another size": (
        [
            *world(0, 1, 2, 3, size=4),
            *(watchdog(rank, size=4096) for rank in (0, 1, 2)),
            watchdog(3, size=2048),
        ],
        {"verdict": "mismatch", "confidence": "strong", "suspected": [3]},
    ),
    "mismatch: of two ranks neither is the odd one": (
        [*world(0, 1, size=2), watchdog(0, size=4096), watchdog(1, size=2048)],
        {"verdict": "mismatch", "confidence": "strong", "suspected": []},
    ),
    "mismatch: torch's report shows different operations": (
        [
            *world(0, 1, size=2),
            watchdog(0),
            desync(
                0,
                FOUND,
                "\t   - [0, 1] joined but didn't finish collective #12",
                "\t - Snapshot of ranks' latest states:",
                "\t   #12 started ranks:",
                "\t     [0] started ALLREDUCE",
                "\t     [1] started BROADCAST",
            ),
        ],
        {"verdict": "mismatch", "confidence": "reported"},
    ),
    "a gather whose sizes differ is no mismatch": (
        [
            *world(0, 1, size=2),
            watchdog(0, kind="GATHER", size=4096),
            watchdog(1, kind="GATHER", size=1),
            status(0, 12, 12, 11),
            status(1, 12, 12, 11),
        ],
        {"verdict": "fabric_or_kernel", "confidence": "strong", "suspected": []},
    ),
    "fabric: all ranks are in the operation and none completed it": (
        [
            *world(0, 1, 2, 3, size=4),
            *(watchdog(rank) for rank in range(4)),
            *(status(rank, 12, 12, 11) for rank in range(4)),
        ],
        {"verdict": "fabric_or_kernel", "confidence": "strong", "suspected": [], "known": True},
    ),
    "fabric: without a status of the ranks it is only weak": (
        [*world(0, 1, size=2), watchdog(0), watchdog(1)],
        {"verdict": "fabric_or_kernel", "confidence": "weak", "known": False},
    ),
    "one node only: the other ranks are not visible": (
        [
            *world(0, 1, size=4),
            *(watchdog(rank) for rank in (0, 1)),
            *(status(rank, 12, 12, 11) for rank in (0, 1)),
        ],
        {
            "verdict": "undecided",
            "confidence": "weak",
            "suspected": [],
            "nccl.ranks.not_visible": [2, 3],
            "nccl.ranks.silent": [],
        },
    ),
    "several groups: the first that stuck is in question": (
        [
            *(PIPELINED.format(rank, 100 + rank, 4, rank // 2, rank % 2) for rank in range(4)),
            # The pipeline's groups wait for the tensor group of ranks 2 and 3.
            watchdog(0, 90, "SEND", group="7(pp:0)", elapsed=600_100),
            watchdog(2, 12, group="9(tp:1)", elapsed=602_000),
            status(2, 12, 13, 11, group="9(tp:1)"),
            dump(3, 11, 11, group="9(tp:1)"),
        ],
        {
            "verdict": "did_not_join",
            "suspected": [3],
            "nccl.process_group.description": "tp:1",
            "nccl.sequence_number": 12,
            "nccl.ranks.expected": [2, 3],
        },
    ),
    "torn lines leave it undecided": (
        [
            *world(0, 1, size=2),
            watchdog(0).partition("OpType")[0] + "OpTy",
            TAKING_DOWN,
            "ximately 600000 milliseconds before timing out.",
        ],
        {"verdict": "undecided", "confidence": "weak", "known": False},
    ),
    "an RPC timeout printed before the watchdog is a cascade": (
        [
            *world(0, 1, size=2),
            RPC_TIMEOUT,
            *(watchdog(rank) for rank in (0, 1)),
            *(status(rank, 12, 12, 11) for rank in (0, 1)),
        ],
        {
            "event": "nccl.incident",
            "verdict": "fabric_or_kernel",
            "cascades": ["engine.rpc_timeout"],
        },
    ),
    "ranks without a start-up line": (
        [watchdog(0), watchdog(1), status(0, 12, 12, 11), dump(1, 11, 11)],
        {"verdict": "did_not_join", "suspected": [1], "vllm.rank.global": 1},
    ),
}


REORDERED = [
    name
    for name, (lines, _) in CASES.items()
    if not any("lagging" in line or "ximately" in line for line in lines)
]
"""Cases whose reports are each one whole line."""


def incidents_of(text: str | bytes, *, source: str = "x") -> list[LogRecord]:
    """The closed incidents of a log."""
    normalizer = Normalizer(source, year=2026)
    data = text.encode() if isinstance(text, str) else text
    deriver = Deriver()
    signals = deriver.take([*normalizer.feed(data), *normalizer.flush()]) + deriver.finish()
    return [
        signal
        for signal in signals
        if isinstance(signal, LogRecord)
        and signal.event_name in ("vllm.incident", "nccl.incident")
        and signal.attributes["vllm.incident.state"] == "closed"
    ]


def _names(values: Iterable[tuple[str, object]]) -> dict[str, object]:
    short = {
        "verdict": "vllm.incident.verdict",
        "confidence": "vllm.incident.confidence",
        "suspected": "nccl.ranks.suspected",
        "known": "vllm.incident.root_cause_known",
        "cascades": "vllm.incident.cascades",
    }
    return {short.get(name, name): value for name, value in values}


@pytest.mark.parametrize("name", CASES)
def test_a_stuck_collective_gets_the_right_verdict(name: str) -> None:
    """One incident, with the verdict, the suspects and the process that the case is about."""
    lines, expected = CASES[name]
    (incident,) = incidents_of("\n".join(lines) + "\n")
    found = {"event": incident.event_name, **incident.attributes}
    wanted = _names(expected.items())
    assert {key: found.get(key) for key in wanted} == wanted


@pytest.mark.parametrize("name", REORDERED)
def test_the_order_of_the_ranks_is_of_no_matter(name: str) -> None:
    """Ranks print in any order: reports of other ranks first give the same verdict."""
    lines, _ = CASES[name]
    reports = [line for line in lines if "ProcessGroupNCCL" in line]
    others = [line for line in lines if line not in reports]
    (incident,) = incidents_of("\n".join(lines) + "\n")
    (turned,) = incidents_of("\n".join([*others, *reversed(reports)]) + "\n")
    for key in ("vllm.incident.verdict", "vllm.incident.confidence", "nccl.ranks.suspected"):
        assert turned.attributes.get(key) == incident.attributes.get(key)


def test_a_watchdog_that_reports_a_cuda_error_is_no_fault_of_the_collective() -> None:
    """The watchdog thread ends on errors of any kernel: the incident is the CUDA error."""
    line = (
        "[rank1]:[E1201 10:10:00.500000000 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID"
        " 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: CUDA"
        " error: an illegal memory access was encountered\n"
    )
    (incident,) = incidents_of(line)
    assert incident.event_name == "vllm.incident"
    assert incident.attributes["error.type"] == "cuda.illegal_memory_access"
    assert incident.attributes["vllm.rank.global"] == 1


def test_reports_of_no_rank_are_survived() -> None:
    """Ranks far out of range and groups without end take no memory and crash nothing."""
    lines = [watchdog(10**9, own=10**9)] + [
        status(0, 12, 12, 11, group=f"{number}(tp:{number})") for number in range(2000)
    ]
    (incident,) = incidents_of("\n".join(lines) + "\n")
    assert incident.attributes["error.type"] == "nccl.collective_timeout"
