"""The command `vllm-logpipe`."""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command; gives the exit status."""
    try:
        from vllm_logpipe.cli import run

        status = run(sys.argv[1:])
        # All is done: while the interpreter ends, an interrupt would only spoil the status.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return status
    except KeyboardInterrupt as interrupt:
        # Output that nobody reads need not be waited for: the next interrupt ends that, too.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        return int(interrupt.args[0]) if interrupt.args else INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
