"""Training runs in processes of their own, and what must be equal between two of them."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from fit_child import CASES
from scripts import without_leaks

from aucmax import checkpoint, history

LIMIT = 60
WARNINGS = ("-W", "error", "-W", "ignore::ResourceWarning")  # a dying worker interrupts anything
TIMINGS = ("seconds", "steps_per_second", "recorded")


# ---- Processes ---------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """The exit status, negative for a signal, and what was written on standard error."""

    code: int
    said: str


class Trainer:
    """A process that has torch loaded and forks one trainee at a time.

    Args:
        folder: for what the trainees write.
    """

    def __init__(self, folder):
        here = Path(__file__).parent
        path = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
        self.scratch = tempfile.TemporaryDirectory(prefix="fit-")  # killed workers do not tidy up
        more = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TMPDIR": self.scratch.name}
        self.stdout, self.stderr = folder / "stdout", folder / "stderr"
        self.process = subprocess.Popen(
            [sys.executable, *WARNINGS, here / "fit_child.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path} | more,
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Wait until all of its processes are gone, forgotten workers too."""
        self.process.stdin.close()
        self.process.wait(LIMIT)
        self.process.stdout.close()
        deadline = time.monotonic() + LIMIT
        while any(session(self.process.pid)):
            if time.monotonic() > deadline:
                left = [
                    Path(f"/proc/{pid}/status").read_text() for pid in session(self.process.pid)
                ]
                end_session(self.process.pid)
                raise AssertionError(f"a trainee left processes behind: {left}")
            time.sleep(0.1)
        self.scratch.cleanup()

    def start(self, config, **more):
        """Begin a run and come back; the run's ``more`` are options of the child."""
        config = {**config, **more, "stdout": str(self.stdout), "stderr": str(self.stderr)}
        self.process.stdin.write(json.dumps(config).encode() + b"\n")
        self.process.stdin.flush()
        return Trainee(self, int(self.process.stdout.readline()))

    def run(self, config, **more):
        """A run from start to end."""
        return self.start(config, **more).wait()


class Trainee:
    """A run under way in a process of its own."""

    def __init__(self, trainer, pid):
        self.trainer, self.pid = trainer, pid

    def is_over(self, seconds=0.0):
        """Whether it has ended, at the latest after so many seconds."""
        return bool(select.select([self.trainer.process.stdout], [], [], seconds)[0])

    def send(self, number):
        os.kill(self.pid, number)

    def wait(self, seconds=LIMIT):
        """How it ended; too late is an error."""
        in_time = self.is_over(seconds)
        if not in_time:
            self.send(signal.SIGKILL)
        code = int(self.trainer.process.stdout.readline())
        said = without_leaks(self.trainer.stderr.read_text())
        assert in_time, f"not over after {seconds} s: {said}"
        return Outcome(code, said)

    def wait_until(self, condition):
        """Watch closely until something is the case or the run is over."""
        deadline = time.monotonic() + LIMIT
        while not condition() and not self.is_over(0.0005):
            assert time.monotonic() < deadline, "nothing happened"


def session(number):
    """The processes of a session, zombies left out."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, found = path.read_text().rpartition(")")[2].split()[:4]
            if int(found) == number and state != "Z":
                yield int(path.parent.name)


def end_session(number):
    for pid in session(number):
        os.kill(pid, signal.SIGKILL)


# ---- Folders -----------------------------------------------------------------------------------


def configure(name, out=None, **options):
    """A case that writes into ``out``, with other options of fit if wanted."""
    config = CASES[name]
    fit = {**config["fit"], "out": None if out is None else str(out), **options}
    return {**config, "fit": fit}


def finished(trainer, name, out, **options):
    """What a run ends with, or one that goes on, if nobody disturbs it."""
    outcome = trainer.run(configure(name, out, **options))
    assert (outcome.code, outcome.said) == (0, "")
    return outcome_of(out)


def records(out):
    """How many lines the history has."""
    with suppress(FileNotFoundError):
        return (out / "history.jsonl").read_bytes().count(b"\n")
    return 0


def steps_saved(out):
    """The names of the states in a folder, newest last."""
    return sorted(path.stem for path in (out / "checkpoints").glob("step-*.json"))


def saving(out):
    """Whether a checkpoint is being written."""
    with suppress(FileNotFoundError):
        return any(name.endswith(".tmp") for name in os.listdir(out / "checkpoints"))
    return False


def contents(out):
    """Every file of a folder, hidden ones too, with its bytes."""
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def outcome_of(out):
    """All that a finished run has made, but for the clock."""
    last, folder = steps_saved(out)[-1], out / "checkpoints"
    state = checkpoint.load(folder, last)
    return {
        "model": (out / "model.safetensors").read_bytes(),
        "notes": (out / "model.json").read_text(),
        "tensors": (folder / f"{last}.safetensors").read_bytes(),
        "state": repr(timeless(state)),
        "best": (folder / f"{state['best']}.safetensors").read_bytes(),
        "history": [repr(timeless(record)) for record in history.read(out / "history.jsonl")],
    }


def timeless(tree):
    """Without timings and tensors."""
    if isinstance(tree, dict):
        return {key: timeless(value) for key, value in tree.items() if key not in TIMINGS}
    if isinstance(tree, list | tuple):
        return [timeless(value) for value in tree]
    return None if isinstance(tree, torch.Tensor) else tree


def assert_same_run(actual, expected):
    """Two results of :func:`outcome_of`, bit for bit; short messages where bytes differ."""
    for name, value in expected.items():
        if isinstance(value, bytes):
            assert len(actual[name]) == len(value), name
            assert actual[name] == value, f"{name} differs"
        else:
            assert actual[name] == value, name


# ---- Kills -------------------------------------------------------------------------------------


class Kill(NamedTuple):
    """Whether the process was killed before it was done, and whether in the midst of a save."""

    landed: bool
    in_a_save: bool


def start_slowly(trainer, config, out, rng, flush=0.003):
    """A run that has begun, slow enough to be hit; with other first weights if it goes on."""
    sign = out.with_suffix(".sign")
    sign.unlink(missing_ok=True)
    init = rng.randrange(1, 100) if steps_saved(out) else 0
    pace = {"pause": rng.choice([0.001, 0.002, 0.004]), "sign": str(sign)}
    trainee = trainer.start(config, init=init, pace=pace, flush=flush)
    trainee.wait_until(sign.exists)
    return trainee


def kill_at_random(trainer, config, out, rng, length):
    """SIGKILL at a moment that the trainee cannot know; ``length`` is that of its history."""
    trainee = start_slowly(trainer, config, out, rng)
    seen = rng.randrange(length)
    trainee.wait_until(lambda: records(out) >= seen)
    if rng.random() < 0.4:
        trainee.wait_until(lambda: saving(out))
        trainee.is_over(rng.uniform(0, 0.002))
    else:
        trainee.is_over(rng.uniform(0, 0.15))
    trainee.send(signal.SIGKILL)
    outcome = trainee.wait()
    assert outcome.code in (0, -signal.SIGKILL), outcome.said
    landed = outcome.code != 0
    return Kill(landed, landed and saving(out))
