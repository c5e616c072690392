"""Incidents: one a failure, with the cause that the records tell."""

from __future__ import annotations

import msgspec
import pytest

from vllm_logpipe import LogRecord, Normalizer
from vllm_logpipe.derive.deriver import Deriver
from vllm_logpipe.derive.incidents import Incidents
from vllm_logpipe.model import Signal

READY = "(APIServer pid=1) INFO 12-01 10:00:00 [server.py:1] Application startup complete.\n"
STOPPING = (
    "(APIServer pid=1) INFO 12-01 10:00:05 [launcher.py:1] [shutdown] API server: shutdown"
    " triggered\n"
)
ENGINE_DIED = (
    "(APIServer pid=1) WARNING 12-01 10:00:06 [core_client.py:1] [shutdown] MPClient: engine core"
    " exited unexpectedly; starting cleanup\n"
)
KILLED = (
    "[  812.100000] Out of memory: Killed process 102 (VLLM::EngineCor) total-vm:812345678kB,"
    " anon-rss:64123456kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1234kB"
    " oom_score_adj:0\n"
)
REFUSED = "(APIServer pid=1) ERROR 12-01 10:00:{:02d} [serving.py:1] {}\n"


def error(
    second: int,
    text: str,
    *,
    process: str = "EngineCore pid=2",
    minute: int = 0,
    first: str = "EngineCore encountered a fatal error.",
) -> str:
    """An ERROR with a traceback that ends in `text`."""
    head = f"({process}) ERROR 12-01 10:{minute:02d}:{second:02d} [core.py:1] "
    lines = [
        first,
        "Traceback (most recent call last):",
        '  File "/opt/vllm/core.py", line 1, in run',
        "    step()",
        text,
    ]
    return "".join(f"{head}{line}\n" for line in lines)


def info(minute: int, second: int = 0, text: str = "Nothing to see") -> str:
    """A line that only lets time go on."""
    return f"(APIServer pid=1) INFO 12-01 10:{minute:02d}:{second:02d} [x.py:1] {text}\n"


def stats(second: int, running: int, output: float, *, minute: int = 1) -> str:
    """The stats of an engine."""
    return info(
        minute,
        second,
        f"Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {output}"
        f" tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 3.2%, Prefix"
        " cache hit rate: 0.0%",
    )


def signals_of(text: str, source: str = "x") -> list[Signal]:
    """What is derived of a log."""
    normalizer = Normalizer(source, year=2026)
    deriver = Deriver()
    records = [*normalizer.feed(text.encode()), *normalizer.flush()]
    return deriver.take(records) + deriver.finish()


def incidents_of(text: str, state: str | None = "closed") -> list[LogRecord]:
    """The incidents of a log, as they were told in one state or all."""
    return [
        signal
        for signal in signals_of(text)
        if isinstance(signal, LogRecord)
        and signal.event_name in ("vllm.incident", "nccl.incident")
        and state in (None, signal.attributes["vllm.incident.state"])
    ]


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_a_fault_is_one_incident_with_its_cause() -> None:
    """The traceback of the engine is the root, what the server says of it follows."""
    (incident,) = incidents_of(READY + error(5, OOM) + ENGINE_DIED)
    given = incident.attributes
    assert given["error.type"] == "cuda.out_of_memory"
    assert given["vllm.incident.root_cause_known"] is True
    assert given["vllm.incident.cascades"] == ["engine.dead"]
    assert given["vllm.incident.record_count"] == 2
    assert given["vllm.incident.process_names"] == ["EngineCore", "APIServer"]
    assert given["process.pid"] == 2
    assert incident.body.startswith("cuda.out_of_memory: OutOfMemoryError: CUDA out of memory.")


def test_a_death_without_reason_has_no_known_root() -> None:
    """Where no record names a cause, the incident says so."""
    (incident,) = incidents_of(READY + ENGINE_DIED)
    assert incident.attributes["error.type"] == "engine.dead"
    assert incident.attributes["vllm.incident.root_cause_known"] is False
    assert incident.body.endswith("(the cause is not in the log)")


def test_the_kernel_names_the_cause_of_a_death() -> None:
    """The kernel's line on memory explains the engine that exited."""
    (incident,) = incidents_of(READY + KILLED + ENGINE_DIED)
    assert incident.attributes["error.type"] == "host.out_of_memory"
    assert incident.attributes["vllm.incident.root_cause_known"] is True


def test_a_cause_printed_shortly_after_the_death_is_the_cause() -> None:
    """The kernel's line may come a moment after the server has noticed."""
    (incident,) = incidents_of(READY + ENGINE_DIED + KILLED)
    assert incident.attributes["error.type"] == "host.out_of_memory"


def test_a_clean_stop_is_no_incident() -> None:
    """After a stop was asked for, an engine that is gone is no failure."""
    assert incidents_of(READY + STOPPING + ENGINE_DIED, state=None) == []


def test_an_error_of_a_request_is_no_incident() -> None:
    """A request that names no model of the server fails alone."""
    text = REFUSED.format(
        1, "Error with model error=ErrorInfo(message='The model `x` does not exist.', code=404)"
    )
    assert incidents_of(READY + text, state=None) == []


def test_an_error_of_no_class_is_no_incident_by_itself() -> None:
    """A server that goes on after an unknown error has not failed."""
    text = error(1, "KeyError: 'x'", process="APIServer pid=1", first="Something went wrong")
    assert incidents_of(READY + text, state=None) == []


def test_an_exception_of_no_class_is_the_cause_of_a_death_that_follows() -> None:
    """Of a failure that no class explains the exception is shown."""
    text = READY + error(4, "ZeroDivisionError: division by zero") + ENGINE_DIED
    (incident,) = incidents_of(text)
    assert incident.attributes["exception.type"] == "ZeroDivisionError"
    assert incident.attributes["vllm.incident.root_cause_known"] is True


def test_a_start_that_ends_in_an_unknown_error_has_failed() -> None:
    """A start that prints but one error failed of it, whatever its class."""
    text = 'Traceback (most recent call last):\n  File "/opt/x.py", line 1, in f\nEOFError: gone\n'
    (incident,) = incidents_of(text)
    assert incident.attributes["error.type"] == "_OTHER"
    assert incident.attributes["exception.type"] == "EOFError"


def test_a_flood_is_one_incident() -> None:
    """40,000 repeats of an error make one incident that counts them, and little state."""
    line = "(EngineCore pid=2) ERROR 12-01 10:00:05 [x.py:1] CUDA error: out of memory\n"
    text = READY + line * 40_000
    incidents = incidents_of(text)
    assert len(incidents) == 1
    assert incidents[0].attributes["vllm.incident.record_count"] == 40_000
    machine = Incidents("x")
    normalizer = Normalizer("x", year=2026)
    for record in [*normalizer.feed(text.encode()), *normalizer.flush()]:
        machine.take(record, record.attributes)
    assert len(msgspec.msgpack.encode(machine)) < 20_000


def test_an_incident_is_told_as_it_goes() -> None:
    """It opens within 15 s, is updated as evidence comes and closes when all is quiet."""
    text = READY + "".join(error(s, OOM) for s in (5, 12, 30, 50)) + info(2) + info(5)
    told = incidents_of(text, state=None)
    assert [i.attributes["vllm.incident.state"] for i in told] == ["open", "updated", "closed"]
    assert len({i.attributes["vllm.incident.id"] for i in told}) == 1
    assert [i.attributes["vllm.incident.record_count"] for i in told][-1] == 4


def test_failures_far_apart_are_two_incidents() -> None:
    """What happens long after the first failure was over is another one."""
    text = READY + error(5, OOM) + info(3) + error(5, OOM, minute=20) + info(30)
    ids = [i.attributes["vllm.incident.id"] for i in incidents_of(text)]
    assert len(set(ids)) == len(ids) == 2


def test_records_bear_the_incident_they_belong_to() -> None:
    """Evidence and cascades can be found by the id of their incident."""
    signals = signals_of(READY + error(5, OOM) + ENGINE_DIED)
    (incident,) = [s for s in signals if getattr(s, "event_name", "") == "vllm.incident"]
    assert isinstance(incident, LogRecord)
    key = incident.attributes["vllm.incident.id"]
    marked = [
        signal.attributes["log.record.uid"]
        for signal in signals
        if isinstance(signal, LogRecord)
        and signal is not incident
        and signal.attributes.get("vllm.incident.id") == key
    ]
    assert marked == incident.attributes["vllm.incident.evidence"]


def test_what_a_server_survives_stays_apart() -> None:
    """A LoRA adapter that cannot be loaded is an incident of its own."""
    lora = error(
        1,
        "vllm.exceptions.LoRAAdapterNotFoundError: Loading lora tenant-a failed",
        minute=1,
        process="APIServer pid=1",
        first="Loading lora tenant-a failed",
    )
    found = incidents_of(READY + lora + error(40, OOM, minute=1) + info(30))
    assert [i.attributes["error.type"] for i in found] == ["lora.load_failed", "cuda.out_of_memory"]
    assert found[1].attributes["vllm.incident.record_count"] == 1


def test_an_engine_that_yields_no_token_has_stalled() -> None:
    """Requests run and nothing comes out over several intervals: no line says so."""
    text = READY + "".join(stats(s, 3, 0.0) for s in (0, 10, 20, 30, 40)) + info(3)
    (incident,) = incidents_of(text)
    assert incident.attributes["error.type"] == "engine.stalled"
    assert incident.attributes["vllm.incident.root_cause_known"] is False


@pytest.mark.parametrize(
    "lines",
    [
        [stats(s, 3, 0.0) for s in (0, 10, 20)] + [stats(30, 3, 9.0), stats(40, 0, 1.0)],
        [stats(s, 0, 0.0) for s in range(0, 60, 10)],
        [stats(s, 3, 9.0) for s in range(0, 60, 10)] + [stats(0, 0, 0.0, minute=2), info(9)],
    ],
    ids=["a long prefill", "an idle server", "a server that becomes idle"],
)
def test_a_pause_is_no_stall(lines: list[str]) -> None:
    """Servers without requests, and long prefills, yield no token either."""
    assert incidents_of(READY + "".join(lines) + info(10), state=None) == []


def test_stats_that_stop_while_requests_run_mean_a_stall() -> None:
    """Other lines show that the server is alive; its engine has said nothing for minutes."""
    text = READY + stats(0, 3, 9.0) + "".join(info(minute) for minute in range(2, 8))
    (incident,) = incidents_of(text)
    assert incident.attributes["error.type"] == "engine.stalled"


def test_repeated_waits_on_shared_memory_mean_a_stall_once_the_server_is_ready() -> None:
    """During start-up the same line is what compiling looks like."""
    waits = "".join(
        f"(EngineCore pid=2) INFO 12-01 10:{minute:02d}:00 [shm_broadcast.py:1] No available shared"
        " memory broadcast block found in 60 seconds. This typically happens when some processes"
        " are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache"
        " quantization).\n"
        for minute in (2, 3, 4)
    )
    assert incidents_of(waits + READY, state=None) == []
    (incident,) = incidents_of(READY + waits + info(6))
    assert incident.attributes["error.type"] == "engine.stalled"


def test_state_can_be_put_away_and_taken_up_again() -> None:
    """Between any two records the machine survives encoding: the same incidents come out."""
    text = READY + stats(0, 3, 0.0) + error(5, OOM, minute=1) + ENGINE_DIED + info(9)
    normalizer = Normalizer("x", year=2026)
    records = [*normalizer.feed(text.encode()), *normalizer.flush()]
    told: list[list[Signal]] = []
    for stored in (False, True):
        machine = Incidents("x")
        signals: list[Signal] = []
        for record in records:
            machine.take(record, record.attributes)
            machine.advance(record.time_unix_nano, signals.append)
            if stored:
                data = msgspec.msgpack.encode(machine)
                machine = msgspec.msgpack.decode(data, type=Incidents)
        machine.finish(0, signals.append)
        told.append(signals)
    assert told[0] == told[1]
    assert told[0]


def test_two_servers_in_one_stream_do_not_mix() -> None:
    """A restart begins a server of its own: its failure is another incident."""
    banner = (
        "(APIServer pid={0}) INFO 12-01 10:{1:02d}:00 [api_server.py:1] vLLM API server version"
        " 0.11.0\n"
    )
    first = banner.format(1, 0) + error(5, OOM) + ENGINE_DIED
    second = banner.format(9, 1) + error(
        30, "RuntimeError: CUDA error: an illegal memory access was encountered", minute=1
    ).replace("pid=2", "pid=10")
    found = incidents_of(first + second)
    assert [i.attributes["error.type"] for i in found] == [
        "cuda.out_of_memory",
        "cuda.illegal_memory_access",
    ]
    assert len({str(i.resource["service.instance.id"]) for i in found}) == 2


def test_nodes_of_one_server_make_one_incident() -> None:
    """What one node prints explains what another one waited for."""
    group = Incidents("group", grouped=True)
    signals: list[Signal] = []
    late = ENGINE_DIED.replace("10:00:06", "10:00:08")
    for source, text in (("b", READY + late), ("a", READY + error(5, OOM))):
        normalizer = Normalizer(source, year=2026)
        deriver = Deriver(group=group)
        signals += deriver.take([*normalizer.feed(text.encode()), *normalizer.flush()])
        signals += deriver.finish()
    group.finish(0, signals.append)
    (incident,) = [s for s in signals if getattr(s, "event_name", "") == "vllm.incident"]
    assert isinstance(incident, LogRecord)
    assert incident.attributes["error.type"] == "cuda.out_of_memory"
    assert incident.attributes["vllm.incident.record_count"] == 2
