"""Run ``aucmax`` until it has saved a training for the n-th time, and kill it then and there.

    python tests/helpers/killed_command.py FOLDER N ARGUMENT ...

FOLDER is a part of the path of the training whose checkpoints count. A moment that the command
reaches by itself is the same on every machine.
"""

import os
import signal
import sys

import pytest
from image_data import shorten

from aucmax.cli import main

replace = os.replace
saved = set()


def replace_and_die(source, target):
    replace(source, target)
    parent, name = os.path.split(target)
    if sys.argv[1] in parent and name.startswith("step-") and name.endswith(".json"):
        saved.add(name)
        if len(saved) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        patch.setattr(os, "replace", replace_and_die)
        main(sys.argv[3:])
