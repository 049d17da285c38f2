"""The command line in processes of its own, with or without a terminal, and what it leaves."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path

from fit_helpers import end_session, session

AUCMAX = Path(sys.executable).with_name("aucmax")
LIMIT = 100
TIMES = ("seconds", "steps_per_second", "seconds_per_step", "date", "commit")


def options(out, *more, lines=("ppd-sg", "sgd"), steps=1200):
    """A small experiment's command."""
    chosen = ["--removed", 0.9, "--protocol", "strong", "--seeds", 1, "--workers", 2]
    command = ["reproduce", "figure1", "--out", out, "--steps", steps, "--lines", *lines]
    return [str(word) for word in [*command, *chosen, *more]]


class Command:
    """The shell's command under way, in a session of its own.

    Args:
        arguments: of ``aucmax``.
        columns: of the terminal it runs in; None gives it none.
        program: run instead of ``aucmax``.
    """

    def __init__(self, arguments, columns=None, program=(AUCMAX,), cwd=None):
        self.columns, self.said = columns, {"out": b"", "err": b""}
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        ends = {}
        if columns is None:
            how = {
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "stdin": subprocess.DEVNULL,
            }
        else:
            ends["out"], theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            how = {"stdout": theirs, "stderr": theirs, "stdin": theirs}
            how["preexec_fn"] = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            environment["TERM"] = "xterm-256color"
        self.process = subprocess.Popen(
            [*map(str, program), *arguments],
            env=environment,
            start_new_session=True,
            cwd=cwd,
            **how,
        )
        if columns is None:
            ends = {"out": self.process.stdout.fileno(), "err": self.process.stderr.fileno()}
        else:
            os.close(theirs)
        self.terminal = ends["out"]
        self.reader = threading.Thread(target=self._read, args=(ends,))
        self.reader.start()

    def _read(self, ends):
        while ends:
            for end in select.select([*ends.values()], [], [], LIMIT)[0]:
                (name,) = [name for name, other in ends.items() if other == end]
                text = b""
                with suppress(OSError):  # a terminal that nobody writes to any more
                    text = os.read(end, 65536)
                self.said[name] += text
                if not text:
                    del ends[name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end_session(self.process.pid)
        self.process.wait(LIMIT)
        self.reader.join(LIMIT)
        if self.columns is None:
            self.process.stdout.close()
            self.process.stderr.close()
        else:
            os.close(self.terminal)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def workers(self):
        """The processes that train."""
        for pid in session(self.process.pid):
            with suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    yield pid

    def is_over(self):
        return self.process.poll() is not None

    def wait_until(self, condition):
        """Watch closely until something is the case; that the command ends first is an error."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert not self.is_over(), self.text()
            assert time.monotonic() < deadline, "nothing happened"
            time.sleep(0.005)

    def wait(self):
        """The exit code, and no process may be left."""
        code = self.process.wait(LIMIT)
        self.wait_for_the_end_of_all()
        self.reader.join(LIMIT)
        return code

    def wait_for_the_end_of_all(self, seconds=10):
        deadline = time.monotonic() + seconds
        while left := list(session(self.process.pid)):
            assert time.monotonic() < deadline, f"processes are left: {left}"
            time.sleep(0.02)

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)

    def text(self, name="out"):
        return self.said[name].decode()


def run(arguments, **how):
    """A command from start to end: its exit code, standard output and standard error."""
    with Command(arguments, **how) as command:
        code = command.wait()
        return code, command.text("out"), command.text("err")


# ---- A terminal --------------------------------------------------------------------------------


def screen(text):
    """What a terminal shows in the end, line by line, and how long the longest bar was."""
    lines, longest = [""], 0
    for piece in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r\n|\r|\n)", text):
        if piece in ("\n", "\r\n"):
            lines.append("")
        elif piece == "\r" or piece.endswith("K"):
            lines[-1] = ""
        elif not piece.startswith("\x1b"):
            lines[-1] += piece
            if "━" in lines[-1]:
                longest = max(longest, len(lines[-1]))
    return lines, longest


def assert_bar(text, columns, closed=True):
    """It grew to 100 % on a line of its own; once it is closed, the cursor is back."""
    _, longest = screen(text)
    assert 20 < longest <= columns
    shown = [int(found) for found in re.findall(r"(\d+)%", text)]
    assert shown[0] == 0
    assert shown[-1] == 100
    assert text.count("\x1b[?25l") == 1
    assert text.count("\x1b[?25h") == closed
    assert "\x1b[1A" not in text  # nor did it ever need a second line
    assert "Traceback" not in text


# ---- What is left ------------------------------------------------------------------------------


def records(out, place="runs"):
    """The most evaluations that an unfinished run has recorded."""
    return max(
        (path.read_bytes().count(b"\n") for path in _histories(out, place) if path.exists()),
        default=0,
    )


def _histories(out, place):
    with suppress(FileNotFoundError):
        names = os.listdir(out / "unfinished" / place)
        return [out / "unfinished" / place / name / "history.jsonl" for name in names]
    return []


def results(out, place="runs"):
    """Each result by its name; a file that is not whole is an error, and so is nan."""
    return {
        path.stem: json.loads(path.read_text(), parse_constant=_refuse)
        for path in sorted((out / place).glob("*.json"))
    }


def _refuse(name):
    raise AssertionError(f"{name} is no JSON")


def stamps(out):
    """When each file but the lock was written; one that was replaced by its like is another."""
    return {
        str(path.relative_to(out)): (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in out.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def timeless(tree):
    """Without times, day and commit."""
    if isinstance(tree, dict):
        return {key: timeless(value) for key, value in tree.items() if key not in TIMES}
    return [timeless(value) for value in tree] if isinstance(tree, list) else tree
