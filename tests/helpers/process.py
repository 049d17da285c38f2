"""Programs in processes of their own: scripts forked from a loaded interpreter, and commands.

As a script: imports the files it is told, then forks for every line of JSON it reads a process
that runs a script as ``python SCRIPT`` would. What the scripts import is so loaded only once.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import pty
import re
import runpy
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

AUCMAX = Path(sys.executable).with_name("aucmax")
LIMIT = 600
"""Seconds after which a process is taken to hang, however busy the machine is."""


# ---- Sessions ------------------------------------------------------------------------------------


def session(number):
    """The processes of a session, zombies left out."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, found = path.read_text().rpartition(")")[2].split()[:4]
            if int(found) == number and state != "Z":
                yield int(path.parent.name)


def end_session(number):
    for pid in session(number):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_until(condition, running=lambda: True):
    """Wait for a condition; that ``running`` ends first, or too much time, is an error."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert running(), "it ended too early"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.005)


# ---- Scripts -------------------------------------------------------------------------------------


class Finished(NamedTuple):
    """The exit status of a script, negative for a signal, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


class Scripts:
    """A process that forks one script at a time.

    Args:
        imported: scripts whose imports are all that will be needed.
        folder: for what the scripts print.
        flags: of the interpreter.
        env: variables to add to the environment.
    """

    def __init__(self, imported, folder, flags=(), env=None):
        self.files = [folder / "stdout", folder / "stderr"]
        self.scratch = tempfile.TemporaryDirectory(prefix="run-")  # killed workers do not tidy up
        more = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8", **(env or {})}
        more |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TMPDIR": self.scratch.name}
        self.process = subprocess.Popen(
            [sys.executable, *flags, __file__, *map(str, imported)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | more,
            bufsize=0,  # select does not see what is read ahead
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """End the process; that a script left others behind is an error."""
        self.process.stdin.close()
        self.process.wait(LIMIT)
        self.process.stdout.close()
        try:
            wait_until(lambda: not any(session(self.process.pid)))
        finally:
            end_session(self.process.pid)
            self.scratch.cleanup()

    def start(self, script, *options, cwd, env=None):
        """Begin a script; the variables ``env`` are added, or left out if they are None."""
        arguments = [str(script), *map(str, options)]
        order = {"arguments": arguments, "cwd": str(cwd), "env": env or {}}
        line = json.dumps({**order, "files": list(map(str, self.files))}) + "\n"
        self.process.stdin.write(line.encode())
        return Started(self, int(self.process.stdout.readline()))

    def run(self, script, *options, cwd, env=None):
        """Run a script from start to end."""
        return self.start(script, *options, cwd=cwd, env=env).wait()


class Started:
    """A script under way, in a process group of its own."""

    def __init__(self, scripts, pid):
        self.scripts, self.pid = scripts, pid

    def is_over(self, seconds=0.0):
        """Whether it has ended, at the latest after so many seconds."""
        return bool(select.select([self.scripts.process.stdout], [], [], seconds)[0])

    def wait_until(self, condition):
        wait_until(condition, lambda: not self.is_over())

    def wait(self):
        """How it ended; too late is an error."""
        in_time = self.is_over(LIMIT)
        if not in_time:
            os.killpg(self.pid, signal.SIGKILL)
        code = int(self.scripts.process.stdout.readline())
        found = Finished(code, *(_without_leaks(path) for path in self.scripts.files))
        assert in_time, f"not over after {LIMIT} s: {found.stderr}"
        return found


def _without_leaks(path):
    """Without Triton's list of objects that are never collected: gc.freeze() keeps them."""
    return re.sub(r"nanobind: leaked.*refleaks\.html\n?", "", path.read_text("utf-8"), flags=re.S)


def _run_script(arguments, cwd, env, files):
    for descriptor, path in enumerate([os.devnull, *files]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
    os.setpgrp()
    for name, value in env.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    os.chdir(cwd)
    sys.argv = arguments
    status = 0
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # freeing all modules would take longer than most scripts


def _serve():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[0] = str(Path(sys.argv[1]).parent)  # that of the scripts, as if one were run
    importlib.import_module("torch._dynamo")  # which every optimizer imports in its first step
    for path in sys.argv[1:]:
        runpy.run_path(path, run_name="imported")
    gc.freeze()  # what was imported is never looked through again: scripts end faster
    finished = None
    for line in sys.stdin:
        if finished:
            os.waitpid(finished, 0)  # not before, so that its number is not another's meanwhile
        pid = os.fork()
        if pid == 0:
            return _run_script(**json.loads(line))
        print(pid, flush=True)
        end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        exited = end.si_code == os.CLD_EXITED
        print(end.si_status if exited else -end.si_status, flush=True)
        finished = pid
    return None


# ---- Commands ------------------------------------------------------------------------------------


class Command:
    """A command of the shell under way, in a session of its own.

    Args:
        arguments: of ``aucmax``.
        columns: of the terminal it runs in; None gives it none.
        program: run instead of ``aucmax``.
        cwd: the folder it runs in.
    """

    def __init__(self, arguments, columns=None, program=(AUCMAX,), cwd=None):
        self.columns, self.said = columns, {"out": b"", "err": b""}
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        streams["stdin"] = subprocess.DEVNULL
        if columns is not None:
            self.terminal, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
            streams["preexec_fn"] = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            environment["TERM"] = "xterm-256color"
        self.process = subprocess.Popen(
            [*map(str, program), *arguments],
            env=environment,
            start_new_session=True,
            cwd=cwd,
            **streams,
        )
        if columns is None:
            pipes = {"out": self.process.stdout, "err": self.process.stderr}
            ends = {pipe.fileno(): name for name, pipe in pipes.items()}
        else:
            os.close(theirs)
            ends = {self.terminal: "out"}
        self.reader = threading.Thread(target=self._read, args=(ends,))
        self.reader.start()

    def _read(self, ends):
        while ends:
            for end in select.select([*ends], [], [])[0]:
                text = b""
                with suppress(OSError):  # a terminal that nobody writes to any more
                    text = os.read(end, 65536)
                self.said[ends[end]] += text
                if not text:
                    del ends[end]

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
        """The processes that multiprocessing has spawned."""
        for pid in session(self.process.pid):
            with suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    yield pid

    def kill(self):
        """SIGKILL for the command alone."""
        os.kill(self.process.pid, signal.SIGKILL)

    def is_over(self):
        return self.process.poll() is not None

    def wait_until(self, condition):
        wait_until(condition, lambda: not self.is_over())

    def wait(self):
        """The exit code; that processes are left is an error."""
        code = self.process.wait(LIMIT)
        wait_until(lambda: not any(session(self.process.pid)))
        self.reader.join(LIMIT)
        return code

    def text(self, name="out"):
        return self.said[name].decode()


def run(arguments, **how):
    """A command from start to end: its exit code, standard output and standard error."""
    with Command(arguments, **how) as command:
        code = command.wait()
        return code, command.text("out"), command.text("err")


if __name__ == "__main__":
    _serve()
