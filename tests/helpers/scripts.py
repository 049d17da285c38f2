"""Scripts, each run in a process of its own, with what they import loaded but once.

As a script: imports the files it is told, and then forks for every line of JSON it reads a process
that runs a script as ``python SCRIPT`` would.
"""

import gc
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Finished(NamedTuple):
    """How a script ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


class Scripts:
    """Runs scripts.

    Args:
        imported: scripts whose imports are all that will be needed.
        folder: for what the scripts print.
        flags: of the interpreter.
    """

    def __init__(self, imported, folder, flags=()):
        self.files = [folder / "stdout", folder / "stderr"]
        self.process = subprocess.Popen(
            [sys.executable, *flags, __file__, *map(str, imported)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"},
            encoding="utf-8",
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)

    def run(self, script, *options, cwd, env=None):
        """Run a script; the variables ``env`` are added, or left out if they are None."""
        arguments = [str(script), *map(str, options)]
        order = {"arguments": arguments, "cwd": str(cwd), "env": env or {}}
        print(json.dumps({**order, "files": list(map(str, self.files))}), file=self.process.stdin)
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        return Finished(code, *(without_leaks(path.read_text("utf-8")) for path in self.files))


def without_leaks(text):
    """Without what Triton 3.9 lists of objects that are never collected: gc.freeze() keeps them."""
    return re.sub(r"nanobind: leaked.*refleaks\.html\n?", "", text, flags=re.S)


def run_one(arguments, cwd, env, files):
    for descriptor, path in enumerate([os.devnull, *files]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
    for name, value in env.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    os.chdir(cwd)
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


def main():
    sys.path[0] = str(Path(sys.argv[1]).parent)  # that of the scripts, as if one were run
    importlib.import_module("torch._dynamo")  # which every optimizer imports in its first step
    for path in sys.argv[1:]:
        runpy.run_path(path, run_name="imported")
    gc.freeze()  # what was imported is never looked through again: scripts end faster
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            return run_one(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


if __name__ == "__main__":
    main()
