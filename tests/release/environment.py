"""Fresh virtual environments and commands in them."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Environment:
    """A virtual environment without anything of this one.

    Args:
        folder: where it is made, if it does not exist.
        python: the interpreter that makes it.
    """

    def __init__(self, folder, python=sys.executable):
        self.bin = Path(folder) / "bin"
        if not self.bin.exists():
            subprocess.run([python, "-m", "venv", folder], check=True)

    def run(self, command, *arguments, cwd, check=True):
        """Run one of its commands in a folder; show what a failing one printed."""
        hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
        env = {name: value for name, value in os.environ.items() if name not in hidden}
        done = subprocess.run(
            [self.bin / command, *map(str, arguments)],
            cwd=cwd, env=env, capture_output=True, text=True,
        )  # fmt: skip
        if check and done.returncode:
            shown = " ".join([command, *map(str, arguments)])
            sys.exit(f"{done.stdout}{done.stderr}\n{shown}: exit code {done.returncode}")
        return done

    def install(self, *arguments):
        """Install by pip; return the seconds that it took."""
        began = time.monotonic()
        options = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        self.run("python", *options, *arguments, cwd=ROOT)
        return time.monotonic() - began

    def versions(self):
        """Return the version of each installed package, by its name in lower case."""
        listed = self.run("python", "-m", "pip", "freeze", "--exclude", "aucmax", cwd=ROOT).stdout
        pairs = [line.split("==") for line in listed.splitlines() if "==" in line]
        return {name.lower().replace("_", "-"): version for name, version in pairs}
