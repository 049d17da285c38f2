"""Fresh environments, commands in them, and a log of what came out."""

import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Log:
    """Says lines and keeps them.

    Args:
        path: the file that has them in the end.
    """

    def __init__(self, path):
        self.path, self.lines = path, []
        cores = os.cpu_count()
        self.say(f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()}, {cores} cores")

    def say(self, line):
        print(line, flush=True)
        self.lines.append(line)

    def close(self):
        self.path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")


class Environment:
    """A virtual environment of its own, without anything of this one.

    Args:
        folder: where it is made, if it is not there yet.
        python: the interpreter that makes it.
    """

    def __init__(self, folder, python=sys.executable):
        self.bin = Path(folder) / "bin"
        if not self.bin.exists():
            subprocess.run([python, "-m", "venv", folder], check=True)

    def run(self, command, *arguments, cwd, check=True):
        """Run one of its commands elsewhere; what it says comes back, and is shown if it fails."""
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
        """Install by pip; returns how many seconds it took."""
        began = time.monotonic()
        options = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        self.run("python", *options, *arguments, cwd=ROOT)
        return time.monotonic() - began

    def versions(self):
        """Of what is installed, by name in lower case."""
        listed = self.run("python", "-m", "pip", "freeze", "--exclude", "aucmax", cwd=ROOT).stdout
        pairs = [line.split("==") for line in listed.splitlines() if "==" in line]
        return {name.lower().replace("_", "-"): version for name, version in pairs}
