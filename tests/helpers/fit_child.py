"""Short training runs that depend on every kind of random number there is.

    python fit_child.py CONFIG

trains as the JSON says, and prints how many batches and flushes to the disk it took. It may stop
itself at any of them.
"""

import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import aucmax
import aucmax.train
from aucmax.processes import end_with_parent

ROWS, COLUMNS, SHARE, BATCH = 160, 6, 0.25, 16
LENGTHS = {"steps": 48, "batch_size": BATCH, "eval_every": 6, "save_every": 4, "probe": 32}

LAST_LONG = {"factor": 2, "stages": 5, "dual_samples": 6}
END_SOON = {"factor": 1.2, "stages": 12, "dual_samples": 6, "patience": 2, "min_gain": 0.1}
RULES = {
    None: lambda: None,
    "growing": lambda: aucmax.stages.geometric(0.1, 3, **LAST_LONG),
    "plateau": lambda: aucmax.stages.plateau(0.1, **END_SOON),
}


def case(method, data="arrays", workers=0, rule=None, **options):
    fit = {"method": method, **LENGTHS, **options}
    return {"data": data, "workers": workers, "rule": rule, "fit": fit}


CASES = {
    "ppd-sg, arrays": case("ppd-sg", rule="growing", positives=0.5),
    "ppd-sg, Dataset": case("ppd-sg", "dataset", rule="growing"),
    "ppd-sg, Dataset, 2 workers": case("ppd-sg", "dataset", 2, rule="growing"),
    "ppd-sg after pretraining": case(
        "ppd-sg", rule="growing", pretrain=14, replacement=True, accumulate=2
    ),
    "ppd-adagrad, DataLoader, 2 workers": case("ppd-adagrad", "loader", 2, rule="growing"),
    "ppd-adagrad, plateau": case("ppd-adagrad", rule="plateau", restart="last", eval_every=2),
    "pga after pretraining, stream": case(
        "pga", "stream", pretrain=14, optimizer_options={"radius": 5.0, "dual_radius": 1.0}
    ),
    "oauc, stream": case("oauc", "stream"),
    "sgd, average precision, 2 workers": case("sgd", "dataset", 2, clip_norm=1.0, objective="ap"),
    "adagrad, partial, DataLoader": case("adagrad", "loader", objective="partial"),
    "adamw, DataLoader with a generator, 2 workers": case("adamw", "seeded loader", 2),
    "adamw, arrays": case("adamw"),
    "adamw, pairs, groups": case("adamw", "groups", objective="pairwise+ce", choose="steady"),
    "ppd-sg, groups": case("ppd-sg", "groups", rule="growing"),
}


# ---- Model and data ----------------------------------------------------------------------------


def make_model(seed=0):
    """Batch norm and dropout; all of the caller's random numbers follow from the seed too."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    hidden = nn.Linear(COLUMNS, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3)
    return nn.Sequential(*hidden, nn.Linear(8, 1))


def make_rows(n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) < round(SHARE * n))
    x = rng.normal(size=(n, COLUMNS)) + 0.7 * y[:, None]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


class Noisy(Dataset):
    """Rows whose transforms draw from torch, NumPy and Python; one of them may end its process."""

    def __init__(self, deadly_row=None, death="kill"):
        self.x, self.targets = make_rows()
        self.deadly_row, self.death = deadly_row, death

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if i == self.deadly_row:
            if isinstance(self.death, int):
                os._exit(self.death)
            os.kill(os.getpid(), signal.SIGKILL)
        noise = torch.randn(COLUMNS) + torch.from_numpy(np.random.normal(size=COLUMNS))  # noqa: NPY002
        return (self.x[i] + 0.1 * noise * random.random()).float(), self.targets[i]


def stream(seed=5):
    """Batches without end whose share of positives nobody knows."""
    rng = np.random.default_rng(seed)
    while True:
        x, y = make_rows(BATCH, seed=int(rng.integers(1 << 30)))
        yield x, torch.tensor(rng.permutation(y.numpy()))


def make_train(kind, workers=0, **trouble):
    if kind == "arrays":
        return make_rows()
    if kind == "groups":
        return (*make_rows(), None, np.arange(ROWS) // 8)
    if kind == "stream":
        return stream()
    dataset = Noisy(**trouble)
    if kind == "dataset":
        return dataset
    generator = torch.Generator().manual_seed(3) if kind == "seeded loader" else None
    return DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        num_workers=workers,
        generator=generator,
        worker_init_fn=end_with_parent,  # or one that begins after its parent's death lives on
    )


# ---- The run -----------------------------------------------------------------------------------

taken = {"batch": 0, "flush": 0}
stops = {"batch": {}, "flush": {}}
"""What to do before the batch or the flush of a number."""


class StoppedError(Exception):
    """In place of a crash, in a process that goes on."""


def take(kind):
    """Count a batch or a flush, and stop there if told so."""
    taken[kind] += 1
    if how := stops[kind].get(taken[kind]):
        stop(how)


def stop(how):
    if how == "raise":
        raise StoppedError
    if how == "hold":
        Path("held").touch()
        while Path("held").exists():
            time.sleep(0.005)
    elif how == "kill a worker":
        multiprocessing.active_children()[0].kill()
    elif how == "SIGINT for all":  # as Ctrl-C in a terminal
        os.killpg(0, signal.SIGINT)
    else:
        os.kill(os.getpid(), signal.Signals[how])


def stop_at(batch=None, flush=None, how="raise"):
    """Stop this process before a batch or a flush, counted from one; without either go on."""
    taken.update(batch=0, flush=0)
    stops.update(batch={batch: how}, flush={flush: how})


def augment(x):
    """Add noise to a batch."""
    take("batch")
    return x + 0.1 * torch.randn_like(x)


def count_flushes():
    """Make a moment of every flush: of a file before it gets its name, or of its folder."""

    def fsync(descriptor, flush=os.fsync):
        take("flush")
        flush(descriptor)

    os.fsync = fsync


def arguments(data="arrays", workers=0, rule=None, init=0, trouble=None, valid="arrays", fit=None):
    """Those of fit, as a case says; ``init`` seeds the model's first weights."""
    options = {"stages": RULES[rule](), "augment": augment, **fit}
    if "dataset" in (data, valid):
        options["workers"] = workers
    model, rows = make_model(init), make_train(data, workers, **trouble or {})
    judged = Noisy() if valid == "dataset" else make_rows(60, seed=1)
    return {"model": model, "train": rows, "valid": judged, **options}


def train(**config):
    """Run fit as a case says."""
    return aucmax.fit(**{"progress": False, **arguments(**config)})


def train_all(configs):
    """Several cases in one sweep, taken in turn on the CPU too."""
    aucmax.train._sweep.MOST_ON_CPU = len(configs)
    return aucmax.sweep([arguments(**config) for config in configs], progress=False)


def delay_workers():
    """Let a process that is forked from this one do nothing before this one is gone."""
    parent = os.getpid()

    def wait():
        while os.getppid() == parent:
            time.sleep(0.01)

    os.register_at_fork(after_in_child=wait)


def main():
    torch.set_num_threads(1)
    config = json.loads(sys.argv[1])
    count_flushes()
    stop_at(**config.pop("stop", {}))
    if limit := config.pop("file_limit", None):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if config.pop("late_workers", False):
        delay_workers()
    train_all(**config) if "configs" in config else train(**config)
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
