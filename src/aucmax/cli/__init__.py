"""The command line: parse, call, print."""

import os
import signal
from collections.abc import Sequence

from aucmax import signals

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command of the shell; Ctrl-C and SIGTERM end it with one line, codes 130 and 143."""
    if arguments is None:  # a notebook that calls us has named a backend of its own environment
        os.environ["MPLBACKEND"] = "agg"
    try:
        with signals.raising(), signals.saying_so():
            # Here, as Ctrl-C may come in the second that it takes to load torch.
            from aucmax.cli._main import run_command

            run_command(arguments)
    finally:
        if arguments is None:  # all is done and said: one more signal must not change that
            for number in signals.LISTENED:
                signal.signal(number, signal.SIG_IGN)
