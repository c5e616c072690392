"""What a process prefix says."""

from __future__ import annotations

import json

import pytest

from vllm_logpipe.read.process import describe_process

Attributes = dict[str, str | int]

CASES: list[tuple[str, str, Attributes]] = [
    ("APIServer", "api_server", {}),
    ("ApiServer_3", "api_server", {}),
    ("APIServer_DP1", "api_server", {"vllm.rank.dp": 1}),
    ("EngineCore", "engine_core", {}),
    ("EngineCore_0", "engine_core", {"vllm.engine.index": 0}),
    ("EngineCore_DP12", "engine_core", {"vllm.rank.dp": 12}),
    ("DPEngineCoreActor", "engine_core", {}),
    ("DPMoEEngineCoreActor", "engine_core", {}),
    ("Worker", "worker", {}),
    ("Worker_TP1", "worker", {"vllm.rank.tp": 1}),
    (
        "Worker_DP0_PP1_PCP2_TP3_DCP4_EP5",
        "worker",
        {
            "vllm.rank.dp": 0,
            "vllm.rank.pp": 1,
            "vllm.rank.pcp": 2,
            "vllm.rank.tp": 3,
            "vllm.rank.dcp": 4,
            "vllm.rank.ep": 5,
        },
    ),
    ("VllmWorker-2", "worker", {"vllm.rank.local": 2}),
    ("VllmWorkerProcess", "worker", {}),
    ("RayWorkerWrapper", "worker", {}),
    ("RayWorkerVllm", "worker", {}),
    ("RayWorkerProc", "worker", {}),
    ("VLLM_DP_Coordinator", "coordinator", {}),
    ("DPSupervisor", "supervisor", {}),
    ("MainProcess", "main", {}),
    ("SyncManager-1", "other", {}),
    ("Worker_TPx", "other", {}),
    ("my process\nof two lines", "other", {}),
    ("\x00", "other", {}),
]


def members(text: str) -> Attributes:
    """Attributes from their JSON members."""
    decoded: Attributes = json.loads("{" + text.strip(",") + "}")
    return decoded


@pytest.mark.parametrize(("name", "kind", "more"), CASES, ids=[repr(case[0]) for case in CASES])
def test_a_name_gives_kind_and_ranks(name: str, kind: str, more: Attributes) -> None:
    """The kind and the ranks are read out of the printed name, whatever the name is."""
    process = describe_process(name, "77")
    assert (process.name, process.pid, process.kind) == (name, 77, kind)
    assert members(process.members) == {
        "process.pid": 77,
        "vllm.process.name": name,
        "vllm.process.kind": kind,
        **more,
    }


def test_the_rank_of_old_workers_is_the_global_one() -> None:
    """`(VllmWorker rank=3 pid=7)` names the rank among all workers."""
    assert members(describe_process("VllmWorker", "7", "3").members) == {
        "process.pid": 7,
        "vllm.process.name": "VllmWorker",
        "vllm.process.kind": "worker",
        "vllm.rank.global": 3,
    }


def test_what_is_not_printed_is_left_out() -> None:
    """A pid without a name says nothing about the kind, a name without a pid has no pid."""
    nameless = describe_process("", "7")
    assert (nameless.kind, members(nameless.members)) == ("", {"process.pid": 7})
    assert "process.pid" not in members(describe_process("EngineCore", None).members)
