"""What is held of hostile or endless streams is bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT_KIB = 300 * 1024
PEAK = """
import sys
from pathlib import Path
from vllm_logpipe.__main__ import main
sys.argv = ["vllm-logpipe", "normalize", sys.argv[1], "--signals"]
status = main()
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(status)
"""
HEAD = "(APIServer pid=1) INFO 12-01 10:{:02d}:{:02d} [x.py:1] "


def peak(path: Path) -> tuple[int, int]:
    """Peak resident memory in KiB of a run over a file, and how many lines it put out."""
    with (path.parent / "out").open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(path)],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
    with (path.parent / "out").open("rb") as file:
        lines = sum(1 for _ in file)
    return int(done.stderr.split()[-1]), lines


def test_a_hundred_thousand_open_requests_fit(tmp_path: Path) -> None:
    """Requests that no line ends are held, and given up when there are too many."""
    path = tmp_path / "open.log"
    with path.open("w") as file:
        for number in range(102_000):
            head = HEAD.format(number // 4000 % 60, number // 60 % 60)
            file.write(
                f"{head}Received request chatcmpl-{number:032x}: params: SamplingParams(n=1,"
                " presence_penalty=0.0, temperature=0.7, top_p=0.9, top_k=0, seed=7,"
                f" max_tokens=512), lora_request: None.\n{head}Added request"
                f" chatcmpl-{number:032x}-{number:08x}.\n"
            )
    memory, lines = peak(path)
    assert memory < LIMIT_KIB
    assert lines > 306_000


def test_an_endless_traceback_fits(tmp_path: Path) -> None:
    """A record that never ends is cut, its incident holds a part of it."""
    path = tmp_path / "traceback.log"
    frame = '  File "/opt/vllm/x.py", line 1, in run\n    step(' + "x" * 200 + ")\n"
    with path.open("w") as file:
        file.write("Traceback (most recent call last):\n")
        for _ in range(400):
            file.write(frame * 250)
    memory, lines = peak(path)
    assert memory < LIMIT_KIB
    assert lines >= 10
