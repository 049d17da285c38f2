"""Training runs in processes of their own, and what must be equal between two of them."""

import json
from contextlib import contextmanager
from pathlib import Path

import torch
from fit_child import CASES
from process import Scripts

from aucmax import checkpoint, history

CHILD = Path(__file__).with_name("fit_child.py")
WARNINGS = ("-W", "error", "-W", "ignore::ResourceWarning")  # a dying worker interrupts anything
TIMINGS = ("seconds", "steps_per_second", "recorded")


# ---- Processes ---------------------------------------------------------------------------------


class Trainer:
    """Trains in processes forked from one that has torch loaded."""

    def __init__(self, folder, scripts):
        self.folder, self.scripts = folder, scripts

    def start(self, config, **more):
        """Begin a run; ``more`` are options of the child, as ``stop=`` is."""
        return self.scripts.start(CHILD, json.dumps({**config, **more}), cwd=self.folder)

    def run(self, config, **more):
        """A run from start to end."""
        return self.start(config, **more).wait()


@contextmanager
def make_trainer(folder, hash_seed=0):
    with Scripts([CHILD], folder, WARNINGS, {"PYTHONHASHSEED": str(hash_seed)}) as scripts:
        yield Trainer(folder, scripts)


def finished(trainer, name, out, **options):
    """What a run ends with, or one that goes on, if nobody disturbs it."""
    end = trainer.run(configure(name, out, **options))
    assert (end.returncode, end.stderr) == (0, "")
    return outcome_of(out) | {"taken": json.loads(end.stdout)}


# ---- Folders -----------------------------------------------------------------------------------


def configure(name, out=None, **options):
    """A case that writes into ``out``, with other options of fit if wanted."""
    config = CASES[name]
    fit = {**config["fit"], "out": None if out is None else str(out), **options}
    return {**config, "fit": fit}


def steps_saved(out):
    """The names of the states in a folder, newest last."""
    return sorted(path.stem for path in (out / "checkpoints").glob("step-*.json"))


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
    for name in expected.keys() - {"taken"}:
        value = expected[name]
        if isinstance(value, bytes):
            assert len(actual[name]) == len(value), name
            assert actual[name] == value, f"{name} differs"
        else:
            assert actual[name] == value, name
