"""Run a plan, and kill the command as soon as a worker has saved the state of a run.

    python tests/experiments/killed_run.py ARGUMENT ...

The worker goes no further by itself: it ends if the death of its parent ends it. A moment that the
command reaches by itself is the same on every machine.
"""

import os
import signal
import sys
import time
from pathlib import Path

from experiments.run import main

replace = os.replace


def replace_and_kill(source, target):
    replace(source, target)
    path = Path(target)
    if path.match("fit/checkpoints/step-*.json"):
        os.kill(os.getppid(), signal.SIGKILL)
        while True:
            time.sleep(1)


if __name__ == "__mp_main__":  # workers import this file, too
    os.replace = replace_and_kill

if __name__ == "__main__":
    main(sys.argv[1:])
