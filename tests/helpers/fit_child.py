"""Short training runs that depend on every kind of random number there is.

As a script: reads configurations as JSON from standard input, line by line, and forks a process
for each that trains as told and exits as any script would. Torch is imported but once.
"""

import gc
import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # which every optimizer imports
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
    "ppd-sg after pretraining": case("ppd-sg", rule="growing", pretrain=14, replacement=True),
    "ppd-sg after pretraining, stream": case("ppd-sg", "stream", rule="growing", pretrain=14),
    "ppd-adagrad, DataLoader": case("ppd-adagrad", "loader", rule="growing"),
    "ppd-adagrad, DataLoader, 2 workers": case("ppd-adagrad", "loader", 2, rule="growing"),
    "ppd-adagrad, plateau": case("ppd-adagrad", rule="plateau", restart="last", eval_every=2),
    "pga, stream": case("pga", "stream", optimizer_options={"radius": 5.0, "dual_radius": 1.0}),
    "pga, Dataset": case("pga", "dataset", positives=0.25, accumulate=2),
    "oauc, stream": case("oauc", "stream"),
    "sgd, average precision, 2 workers": case("sgd", "dataset", 2, clip_norm=1.0, objective="ap"),
    "adagrad, DataLoader": case("adagrad", "loader"),
    "adamw, DataLoader with a generator, 2 workers": case("adamw", "seeded loader", 2),
    "adamw, arrays": case("adamw", choose="steady"),
    "adamw, pairs with a memory, groups": case(
        "adamw", "groups", objective="pairwise+ce", loss_options={"memory": 20}
    ),
    "ppd-sg, groups": case("ppd-sg", "groups", rule="growing", loss_options={"sparse": True}),
    "ppd-sg, partial": case("ppd-sg", rule="growing", objective="partial"),
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
            os._exit(self.death) if isinstance(self.death, int) else kill_this_process()
        noise = torch.randn(COLUMNS) + torch.from_numpy(np.random.normal(size=COLUMNS))  # noqa: NPY002
        return (self.x[i] + 0.1 * noise * random.random()).float(), self.targets[i]


def kill_this_process():
    os.kill(os.getpid(), signal.SIGKILL)


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

UNDISTURBED = {"pause": 0.0, "sign": None, "batches": None}
pace = dict(UNDISTURBED)


class StoppedError(Exception):
    """The run has used as many batches as it was given."""


def augment(x):
    """Noise on a batch; it takes its time, and leaves a sign that training is under way."""
    if pace["pause"]:
        time.sleep(pace["pause"])
    if pace["batches"] is not None:
        pace["batches"] -= 1
        if pace["batches"] < 0:
            raise StoppedError
    if pace["sign"]:
        Path(pace["sign"]).touch()
        pace["sign"] = None
    return x + 0.1 * torch.randn_like(x)


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


def train_all(configs, at_once):
    """Several cases in one sweep, taken in turn on the CPU too."""
    aucmax.train._sweep.MOST_ON_CPU = at_once
    return aucmax.sweep([arguments(**config) for config in configs], progress=False)


def serve():
    """Fork for every line; returns in the forked processes, with their configuration."""
    finished = None
    for line in sys.stdin:
        if finished:
            os.waitpid(finished, 0)  # not before, so that its number is not another's meanwhile
        pid = os.fork()
        if pid == 0:
            return json.loads(line)
        print(pid, flush=True)
        end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        exited = end.si_code == os.CLD_EXITED
        print(end.si_status if exited else -end.si_status, flush=True)
        finished = pid
    return None


def slow_disk(seconds):
    """Make every flush to the disk last, so that saving does."""

    def fsync(descriptor, flush=os.fsync):
        flush(descriptor)
        time.sleep(seconds)

    os.fsync = fsync


def delay_workers():
    """Let a process that is forked from this one do nothing before this one is gone."""
    parent = os.getpid()

    def wait():
        while os.getppid() == parent:
            time.sleep(0.01)

    os.register_at_fork(after_in_child=wait)


def main():
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.freeze()  # what was imported is never looked through again: trainees end faster
    config = serve()
    if config is None:
        return
    for descriptor, path in enumerate([os.devnull, config.pop("stdout"), config.pop("stderr")]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
    os.setpgrp()
    pace.update(config.pop("pace", {}))
    slow_disk(config.pop("flush", 0.0))
    if limit := config.pop("file_limit", None):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if config.pop("late_workers", False):
        delay_workers()
    train_all(**config) if "configs" in config else train(**config)


if __name__ == "__main__":
    main()
