"""The command line: parse, call, print."""

import os
import signal
import sys
from collections.abc import Sequence

from aucmax import extras, signals
from aucmax.cli._errors import fail
from aucmax.version import __version__

__all__ = ["main"]

IMAGES = ("fit-images", "predict-images", "evaluate-images")
EXTRA = {**dict.fromkeys(IMAGES, "images"), "tune": "tables,tune", "export": "tables,onnx"}
"""What to install for a command; for the others, "tables"."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command of the shell; Ctrl-C and SIGTERM end it with one line, codes 130 and 143."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:  # at once, and whatever is installed
        print(f"aucmax {__version__}")
        return
    command = given[0] if given else ""
    if arguments is None:  # a notebook that calls us has named a backend of its own environment
        os.environ["MPLBACKEND"] = "agg"
    try:
        with signals.raising(), signals.saying_so():
            try:
                with extras.needed(f"aucmax {command}".strip(), EXTRA.get(command, "tables")):
                    # Here, as Ctrl-C may come in the second that it takes to load torch.
                    from aucmax.cli._main import run_command
            except extras.NotInstalledError as error:
                fail(str(error))
            run_command(given)
    finally:
        if arguments is None:  # all is done and said: one more signal must not change that
            for number in signals.LISTENED:
                signal.signal(number, signal.SIG_IGN)
