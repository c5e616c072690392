"""The command `vllm-logpipe`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command; gives the exit status."""
    if sys.argv[1:] == ["--version"]:
        # Nothing else is needed for this, and an operator's script may ask often.
        from vllm_logpipe._version import __version__

        print(f"vllm-logpipe {__version__}")
        return 0
    from vllm_logpipe.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
