"""What a record says about a failure of the server."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from vllm_logpipe.derive.machine import NS, Attributes
from vllm_logpipe.model import AttributeValue, LogRecord


class Rank(IntEnum):
    """How a class of failure stands to the others: the lower explains the higher."""

    FAULT = 0
    """Something that broke by itself: memory, a GPU, a configuration."""
    DEATH = 1
    """A process that died without saying why."""
    COLLECTIVE = 2
    """A collective operation that failed or hung."""
    STALL = 3
    """A time limit that was exceeded because something else hung."""
    SYMPTOM = 4
    """What follows from a failure that is not named."""


class Culprit(Struct, frozen=True, gc=False):
    """The process that a piece of evidence is about."""

    name: str | None = None
    kind: str | None = None
    pid: int | None = None
    host: str | None = None
    ranks: dict[str, int] = {}


class Evidence(Struct, frozen=True, gc=False):
    """One record that tells of a failure."""

    uid: str
    time: int
    """When it was printed, ns since 1970 UTC."""
    began: int
    """When what it reports began: a time limit was exceeded that much later."""
    error_type: str
    rank: Rank
    is_root: bool
    """Whether the record names a cause."""
    is_death: bool
    """Whether it means that a process of the server is gone."""
    layer: int
    """Machine 0, worker 1, engine 2, server 3: causes lie low."""
    culprit: Culprit
    process_name: str | None
    message: str
    exception_type: str | None = None
    exception_message: str | None = None
    contained: bool = False
    """Whether a running server survives it."""


_DEATHS = frozenset({"engine.dead", "engine.init_failed", "worker.died", "ray.actor_died"})
_STALLS = frozenset(
    {"engine.rpc_timeout", "engine.iteration_timeout", "engine.stalled", "ipc.stalled"}
)
_SYMPTOMS = frozenset(
    {"engine.dead", "engine.init_failed", "worker.exception", "distributed.connection_lost"}
)
_REQUEST_CLASSES = frozenset({"structured_output.invalid", "multimodal.failed"})
CONTAINED = frozenset({"lora.load_failed", "kv_transfer.failed", "model.download_failed"})
"""Classes that a server which is ready survives."""
_TEARDOWN_CLASSES = (
    _DEATHS
    | _SYMPTOMS
    | frozenset({"nccl.remote_error", "process.segfault", "ipc.stalled", "_OTHER"})
)
_LAYERS = {"worker": 1, "engine_core": 2, "coordinator": 2, "api_server": 3, "supervisor": 3}
_COLLECTIVE_FORMATS = frozenset({"c10d", "nccl"})
_RANKS = (
    "vllm.rank.global",
    "vllm.rank.local",
    "vllm.rank.dp",
    "vllm.rank.pp",
    "vllm.rank.tp",
    "vllm.rank.pcp",
    "vllm.rank.ep",
)
_MESSAGE_LENGTH = 2048
_WARNING = 13
_ERROR = 17


def evidence_of(
    record: LogRecord, attributes: Attributes, error_type: str, *, stopping: bool
) -> Evidence | None:
    """What a record with an error class says of the server.

    None for what concerns a request, for advice, and for what a stop brings with it.
    """
    role = attributes.get("vllm.error.role")
    if role in ("teardown", "advice") or is_request_error(record, error_type):
        return None
    if stopping and error_type in _TEARDOWN_CLASSES:
        return None
    rank = _rank(error_type, str(role))
    level = record.severity_number
    death = error_type in _DEATHS or error_type == "process.segfault"
    if level is not None and level < _ERROR:
        # Below ERROR vLLM reports what it can live with, but for the death of its engine.
        loud = level >= _WARNING or attributes.get("vllm.log.format") == "kernel"
        if not loud or not (death or error_type.startswith("gpu.")):
            return None
    elapsed = attributes.get("nccl.elapsed", attributes.get("nccl.timeout"))
    lasted = round(float(elapsed) * NS) if isinstance(elapsed, (int, float)) else 0
    root_type = attributes.get("vllm.exception.root.type", attributes.get("exception.type"))
    root_message = attributes.get(
        "vllm.exception.root.message", attributes.get("exception.message")
    )
    return Evidence(
        uid=str(attributes.get("log.record.uid", "")),
        time=record.time_unix_nano,
        began=record.time_unix_nano - lasted,
        error_type=error_type,
        rank=rank,
        is_root=role == "root" and rank is not Rank.SYMPTOM,
        is_death=death,
        layer=_layer(attributes),
        culprit=culprit_of(attributes),
        process_name=_text(attributes.get("vllm.process.name")),
        message=_first_line(record.body),
        exception_type=_text(root_type),
        exception_message=_text(root_message),
        contained=error_type in CONTAINED,
    )


def is_request_error(record: LogRecord, error_type: str) -> bool:
    """Whether the failure is one of a request and leaves the server as it is."""
    if error_type.startswith("request.") or error_type in _REQUEST_CLASSES:
        return True
    event = record.event_name
    if event is None or not event.startswith(("vllm.request.", "vllm.http.")):
        return False
    return error_type in ("_OTHER", "worker.exception")


def culprit_of(attributes: Attributes) -> Culprit:
    """The process that a record names as failed, else the one that printed it."""
    failed = attributes.get("vllm.failed_process.name")
    pid = attributes.get("vllm.failed_process.pid")
    if failed is not None or pid is not None:
        return Culprit(
            name=_text(failed), pid=pid if isinstance(pid, int) else None, kind=_kind(str(failed))
        )
    pid = attributes.get("process.pid")
    ranks = {name: value for name in _RANKS if isinstance(value := attributes.get(name), int)}
    rank = attributes.get("nccl.rank")
    if isinstance(rank, int):
        ranks.setdefault("vllm.rank.global", rank)
    return Culprit(
        name=_text(attributes.get("vllm.process.name")),
        kind=_text(attributes.get("vllm.process.kind")),
        pid=pid if isinstance(pid, int) else None,
        host=_text(attributes.get("nccl.host")),
        ranks=ranks,
    )


def _kind(name: str) -> str | None:
    if "Worker" in name:
        return "worker"
    return "engine_core" if name.startswith("EngineCore") else None


def _rank(error_type: str, role: str) -> Rank:
    if error_type in _STALLS:
        return Rank.STALL
    if error_type in ("worker.died", "ray.actor_died"):
        return Rank.DEATH if role == "root" else Rank.SYMPTOM
    if error_type.startswith("nccl."):
        return Rank.COLLECTIVE
    if error_type in _SYMPTOMS or role != "root":
        return Rank.SYMPTOM
    return Rank.FAULT


def _layer(attributes: Attributes) -> int:
    form = attributes.get("vllm.log.format")
    if form == "kernel":
        return 0
    if form in _COLLECTIVE_FORMATS:
        return 1
    return _LAYERS.get(str(attributes.get("vllm.process.kind")), 2)


def _text(value: AttributeValue | None) -> str | None:
    return value[:_MESSAGE_LENGTH] if isinstance(value, str) else None


def _first_line(body: str) -> str:
    return body.lstrip()[:_MESSAGE_LENGTH].partition("\n")[0]
