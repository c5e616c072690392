"""The corpus's failures: tracebacks with and without header, c10d and NCCL lines."""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """One traceback: who prints it, the message before it and the exception after it."""

    era: str
    role: str
    place: str
    opening: str
    exception: str


_FILE = '  File "/opt/vllm/lib/python3.11/site-packages/vllm/v1/'

FRAMES = (
    _FILE
    + 'engine/core.py", line @{int:90-990}, in run_engine_core\n    engine_core.run_busy_loop()',
    _FILE
    + 'engine/async_llm.py", line @{int:90-990}, in output_handler\n'
    + "    outputs = await engine_core.get_output_async()\n"
    + "              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    _FILE
    + 'executor/multiproc_executor.py", line @{int:90-990}, in collective_rpc\n'
    + "    result = get_response(w, dequeue_timeout)",
    _FILE
    + 'worker/gpu_model_runner.py", line @{int:90-4990}, in execute_model\n'
    + "    hidden_states = self.model(**model_inputs)",
    (
        '  File "/usr/local/lib/python3.11/concurrent/futures/thread.py", line 58, in run\n'
        "    result = self.fn(*self.args, **self.kwargs)\n"
        "             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"
    ),
)

HEADED = (
    Failure("32", "core", "core.py:1210", "EngineCore encountered a fatal error.",
            "RuntimeError: CUDA error: an illegal memory access was encountered"),
    Failure("32", "api", "async_llm.py:906", "AsyncLLM output_handler failed.",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack"
            " trace (above) for the root cause."),
    Failure("32", "worker", "multiproc_executor.py:980", "WorkerProc hit an exception.",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a"
            " total capacity of 79.15 GiB of which 12.00 MiB is free."),
    Failure("16", "api", "serving.py:118", "Error in preprocessing prompt inputs",
            "vllm.exceptions.VLLMValidationError: You passed @{int:1009-9000} input tokens and"
            " requested 16 output tokens. However, the model's context length is only 1024 tokens,"
            " resulting in a maximum input length of 1008 tokens. Please reduce the length of the"
            " input prompt. (parameter=input_tokens, value=1009)"),
    Failure("8", "api", "serving_chat.py:200", "Error in preprocessing prompt inputs",
            "ValueError: This model's maximum context length is 1024 tokens. However, you requested"
            " @{int:1025-9000} tokens (13 in the messages, 4096 in the completion). Please reduce"
            " the length of the messages or completion."),
)  # fmt: skip

BARE = (
    Failure("32", "", "", "Process EngineCore_DP0:",
            "RuntimeError: Worker failed with error 'CUDA error: device-side assert triggered',"
            " please check the stack trace above for the root cause"),
    Failure("16", "core", "", "Process EngineCore_DP0:",
            "TimeoutError: RPC call to execute_model timed out."),
    Failure("8", "", "", "", "RuntimeError: Engine process failed to start. See stack trace for the"
            " root cause."),
    Failure("rank", "", "", "", "torch.distributed.DistBackendError: NCCL error in:"
            " ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, unhandled cuda error (run"
            " with NCCL_DEBUG=INFO for details), NCCL version 2.20.5"),
)  # fmt: skip

_WORK = (
    "WorkNCCL(SeqNum=@{int:1-99999}, OpType=@{pick:ALLREDUCE|_ALLGATHER_BASE|BROADCAST},"
    " NumelIn=@{int:1-9999999}, NumelOut=@{int:1-9999999}, Timeout(ms)=600000)"
)
_GROUP = "[PG ID @{int:0-4} PG GUID @{int:0-4}(default_pg) Rank @{int:0-7}] "
_NCCL = "node-@{int:1-8}:@{int:800-900}:@{int:1000-1100} [@{int:0-7}] "

TRANSPORT = (
    "[rank@{int:0-7}]:[E@{c10d} ProcessGroupNCCL.cpp:685] " + _GROUP
    + "Watchdog caught collective operation timeout: " + _WORK
    + " ran for @{int:600000-600999} milliseconds before timing out.",
    "[rank@{int:0-7}]:[E@{c10d} ProcessGroupNCCL.cpp:2252] " + _GROUP
    + " failure detected by watchdog at work sequence id: @{int:1-99999} PG status: last enqueued"
    " work: @{int:1-99999}, last completed work: @{int:1-99999}",
    "[rank@{int:0-7}]:[E@{c10d} ProcessGroupNCCL.cpp:1785] " + _GROUP
    + "Received a dump signal due to a collective timeout from  rank @{int:0-7} and we will try our"
    " best to dump the debug info. Last enqueued NCCL work: @{int:1-99999}, last completed NCCL"
    " work: @{int:1-99999}.",
    ("[rank@{int:0-7}]:[W@{c10d} TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=86,"
    " addr=[node-1]:@{int:30000-60000}, remote=[node-2]:29500): Broken pipe"),
    ("[W@{c10d} socket.cpp:752] [c10d] The client socket cannot be initialized to connect to"
    " [node-1]:29500 (errno: 97 - Address family not supported by protocol)."),
    ("[rank@{int:0-7}]:[W@{c10d} ProcessGroupNCCL.cpp:1496] Warning: WARNING:"
    " destroy_process_group() was not called before program exit, which can leak resources."),
    _NCCL + "NCCL INFO Bootstrap : Using eth0:192.0.2.@{int:1-200}<0>",
    _NCCL + "NCCL INFO Channel 0@{int:0-9}/0 : @{int:0-7}[0] -> @{int:0-7}[1] via P2P/CUMEM",
    _NCCL + "NCCL INFO comm 0x@{hex:12} rank @{int:0-7} nranks 8 cudaDev 0 nvmlDev 0 busId 1a000"
    " commId 0x@{hex:16} - Init COMPLETE",
    _NCCL + "NCCL INFO NET/Plugin: Could not find: libnccl-net.so.",
    _NCCL + "misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by remote peer"
    " node-2<@{int:30000-60000}>",
    "[@{stamp}] " + _NCCL + "transport/net_ib.cc:1304 NCCL WARN NET/IB : Got completion from peer"
    " 192.0.2.@{int:1-200}<0> with status=12 opcode=129 len=0 vendor err 129 (Recv)",
    ("[Gloo] Rank 0 is connected to @{int:0-7} peer ranks. Expected number of connected peer ranks"
    " is : @{int:0-7}"),
)  # fmt: skip
