"""Trains on every rank of a process group and writes what each rank ends with.

    python tests/helpers/ranks_fit.py FOLDER CASE [CASE ...]

Started by test_fit_ranks.py, which runs the same cases in one process. It forks into two ranks, as
torchrun would start them. STOP="HOW BATCH" in the environment stops them at a batch.
"""

import math
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict  # which checkpoints of sharded models import
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset
from two_ranks import fork_into_two_ranks

import aucmax
import aucmax.train
from aucmax.loss.cross_entropy import CrossEntropy
from aucmax.stages import Stage

STEPS, BATCH = 40, 16
KEPT_STEPS = 48
LOCAL_STEPS = 3
INSIDE_A_BALL = {"radius": 1.5, "dual_radius": 0.2}
TWO_STAGES = [
    Stage(index=1, lr=0.1, steps=25, dual_samples=32),
    Stage(index=2, lr=0.03, steps=15, dual_samples=32),
]
ONE_STAGE = [Stage(index=1, lr=0.1, steps=STEPS, dual_samples=0)]


def world():
    """Number of processes and this one's number."""
    return (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)


# --- data and models ------------------------------------------------------------------------------


def rows(n=360, share=0.4, seed=0):
    """Inputs, and labels of which a share is positive; the classes overlap."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=generator) < share).double()
    x = torch.randn(n, 6, generator=generator, dtype=torch.float64)
    return x + 0.5 * y[:, None], y


def weighted(n=360, kept=1.0):
    """Rows with weights from 0.1 to 10, of which a share is not zero."""
    x, y = rows(n)
    generator = torch.Generator().manual_seed(5)
    weight = 10 ** (2 * torch.rand(n, generator=generator, dtype=torch.float64) - 1)
    return x, y, weight * (torch.rand(n, generator=generator) < kept)


def stream_batch(k, rank, size=BATCH // 2):
    """The labels of rank 1 are other than those of rank 0."""
    return rows(size, share=(0.2, 0.6)[rank], seed=1000 * rank + k + 1)


def stream():
    """This rank's batches without end; in one process those of both ranks."""
    size, rank = world()
    k = 0
    while True:
        parts = [stream_batch(k, r) for r in ((rank,) if size == 2 else (0, 1))]
        yield tuple(torch.cat(column) for column in zip(*parts, strict=True))
        k += 1


class Rows(Dataset):
    """A Dataset of rows, as a worker process loads them."""

    def __init__(self, *arrays):
        self.arrays, self.targets = arrays, arrays[1]

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        return tuple(column[i] for column in self.arrays)


def network(kind="plain", seed=0):
    """A small model in double precision; ``kind`` adds layers that depend on more than weights."""
    torch.manual_seed(seed)
    norm = [nn.BatchNorm1d(8)] if "norm" in kind else []
    dropout = [nn.Dropout(0.2)] if "dropout" in kind else []
    layers = [nn.Linear(6, 8), *norm, nn.Tanh(), *dropout, nn.Linear(8, 8), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(8, 1)).double()


def uneven_rows():
    """An odd number of rows, and more of them than an evaluation takes at a time on one rank."""
    return rows(513, seed=3)


def one_sided_rows():
    """Positives in even rows only, then a part without any: ranks that share rows lack a class."""
    x, y = rows(201, seed=4)
    y[1::2] = 0
    y[101:] = 0
    return x, y


# --- cases ----------------------------------------------------------------------------------------


def train(model, data, valid=None, **options):
    given = {"steps": STEPS, "batch_size": BATCH, "eval_every": 15, "probe": 64}
    given |= {"progress": False, "device": "cpu"}
    return aucmax.fit(model, data, valid, **(given | options))


def of_method(method, data, **options):
    extra = {"optimizer_options": INSIDE_A_BALL} if method == "pga" else {}
    return lambda: ending(train(network(), data(), method=method, **extra, **options))


def grouped():
    """Rows in 60 groups, some of one class."""
    return (*rows(), None, torch.arange(360) // 6)


def rare():
    return rows(share=0.05)


def counting():
    """Training on rare positives, with the number of them in every batch of this rank."""
    loss, seen = aucmax.AUCLoss(rare()[1].mean().item()).double(), []
    loss.register_forward_pre_hook(lambda _, batch: seen.append(batch[1].sum()))
    result = train(network(), rare(), loss=loss, probe=0)
    return ending(result) | {"positives": torch.stack(seen)}


def counting_weights():
    """Training on weights that are often zero, with their sum in every batch of this rank."""
    loss, seen = CrossEntropy(), []
    loss.register_forward_pre_hook(lambda _, batch: seen.append(batch[2].sum()))
    result = train(network(), weighted(kept=0.4), loss=loss, method="sgd", steps=60, probe=0)
    return ending(result) | {"weights": torch.stack(seen)}


def validated(valid, **options):
    def run():
        x, y = valid()
        result = train(network(), rows(), (x, y), **options)
        scores = result.model(x).detach().reshape(-1)
        return ending(result) | {"scores": scores, "labels": y}

    return run


def evaluated():
    """The AUC of one model on rows of every kind."""
    model, found = network(), {}
    for name, valid in {"uneven": uneven_rows(), "one-sided": one_sided_rows()}.items():
        data = Rows(*valid)
        found[f"{name}, arrays"] = aucmax.evaluate(model, valid)
        found[f"{name}, small batches"] = aucmax.evaluate(model, valid, batch_size=7)
        found[f"{name}, Dataset"] = aucmax.evaluate(model, data, batch_size=7)
        found[f"{name}, DataLoader"] = aucmax.evaluate(model, DataLoader(data, 27))
    return found


def with_batch_norm():
    out = Path(sys.argv[1], "batch norm") if dist.is_initialized() else None
    return ending(train(network("norm"), rows(), rows(101, seed=3), out=out))


SHARDS = {"parallel": "fsdp", "clip_norm": 0.05, "steps": 24, "eval_every": 12}


def sharded(method, valid=None, data=rows, **options):
    extra = {"optimizer_options": INSIDE_A_BALL} if method == "pga" else {}
    extra |= SHARDS | options

    def run():
        judged = None if valid is None else valid()
        return ending(train(network(), data(), judged, method=method, **extra))

    return run


def sharded_by_its_owner():
    model = network()
    if dist.is_initialized():
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
    return ending(train(model, rows(), **SHARDS))


def indivisible():
    return ending(train(network(), rows(), batch_size=15))


# --- local steps ----------------------------------------------------------------------------------


def local_and_not(method, data, **options):
    """Gradients averaged at every step, and one local step between averages."""

    def run():
        given = {"method": method, "stages": TWO_STAGES, "steps": 40, "eval_every": 20, "probe": 16}
        given |= options
        return [ending(train(network(), data(), **given, local_steps=n)) for n in (None, 1)]

    return run


def meetings():
    """The parameters and saddle variables that every step began with."""
    model, loss = network(seed=world()[1]), aucmax.AUCLoss(0.4).double()
    optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.1, momentum=0.5)
    seen = []

    def note(*_):
        parameters = [*model.parameters(), *loss.parameters()]
        seen.append(torch.cat([p.detach().flatten() for p in parameters]))

    optimizer.register_step_pre_hook(note)
    own = {"loss": loss, "optimizer": optimizer, "stages": ONE_STAGE, "probe": 0}
    train(model, rows(), **own, steps=20, eval_every=10, local_steps=LOCAL_STEPS)
    return torch.stack(seen)


def groups_of_two():
    """Training on pairs, whose rows must come to one process."""
    x, _ = rows()
    data = (x, torch.arange(360) % 2, None, torch.arange(360) // 2)
    return ending(train(network(), data, method="sgd", objective="pairwise", local_steps=2))


def far_and_near():
    """Training with an average after every step, and after several, judged by validation."""
    given = {"stages": ONE_STAGE, "eval_every": STEPS, "probe": 0}
    return [
        ending(train(network(), rows(), rows(301, seed=3), **given, local_steps=n))
        for n in (1, LOCAL_STEPS)
    ]


def messages():
    """How many numbers each all-reduce carried, as the process group's own profile says."""
    found = {}
    for n in (None, 1, LOCAL_STEPS):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
            train(network(), rows(), steps=9, stages=ONE_STAGE, probe=0, local_steps=n)
        sent = [e for e in profiled.events() if e.name == "gloo:all_reduce"]
        found[n] = [math.prod(e.input_shapes[0]) for e in sent]
    return found


def sent_rows():
    """The largest message that a rank sent to the others, of a loss that keeps an entry per row."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        train(network(), rows(), steps=3, method="adamw", objective="ap", eval_every=3, probe=0)
    sent = [e for e in profiled.events() if e.name == "gloo:broadcast"]
    return max(math.prod(e.input_shapes[0]) for e in sent)


def cut_short(folder, name, batches, how):
    """A run that is stopped at a batch and gone on with, and how it stopped."""
    Pace.left, Pace.at_the_end = batches, how
    try:
        run(folder, name)
    except (StoppedError, SystemExit) as stop:
        stopped = repr(stop)
    Pace.left, Pace.at_the_end = math.inf, crash
    step = max(int(p.stem[5:]) for p in (folder / name).glob("checkpoints/step-*.json"))
    return run(folder, name) | {"stopped": stopped, "saved step": step}


class StoppedError(Exception):
    """In place of a crash."""


def crash():
    """The end of a process, as far as a run can tell."""
    raise StoppedError


def tell_second_rank():
    """SIGTERM for one of the processes."""
    if world()[1] == 1:
        os.kill(os.getpid(), signal.SIGTERM)


def kill_all():
    """SIGKILL for every process of the launch."""
    os.killpg(0, signal.SIGKILL)


def kill_first_rank():
    """SIGKILL for the process that writes."""
    if world()[1] == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def tell_all():
    """SIGTERM for every rank, as torchrun passes it on."""
    os.kill(os.getpid(), signal.SIGTERM)


class Pace:
    """How many more batches may be loaded, and what happens then."""

    left, at_the_end = math.inf, staticmethod(crash)


def pace(x):
    """Inputs as they are, if they come at all."""
    Pace.left -= 1
    if Pace.left == -1:
        Pace.at_the_end()
    return x


def kept(out, parallel="ddp", kind="norm and dropout", **options):
    """A run with a folder; checkpoints lie between the evaluations."""
    result = train(
        network(kind),
        rows(),
        rows(101, seed=3),
        out=out,
        steps=KEPT_STEPS,
        eval_every=15,
        save_every=11,
        augment=pace,
        parallel=parallel,
        progress=True,
        **options,
    )
    return ending(result)


def full(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def ending(result):
    """All that a run ends with, as tensors and plain values."""
    return {
        "model": {name: full(x).clone() for name, x in result.model.state_dict().items()},
        "loss": {name: x.clone() for name, x in result.loss.state_dict().items()},
        "auc": result.auc,
        "step": result.step,
        "iterate": result.iterate,
        "history": result.history,
    }


UNKNOWN = {"stages": ONE_STAGE, "probe": 0}
EQUAL = {
    "ppd-sg": of_method("ppd-sg", rows),
    **{f"{x}, rare positives": of_method(x, rare) for x in ("ppd-adagrad", "oauc", "sgd", "adamw")},
    "counting": counting,
    "balanced": of_method("ppd-sg", rare, positives=0.5),
    "pre-training": of_method("ppd-sg", rows, pretrain=40),
    "weights, balanced": of_method("ppd-sg", weighted, positives=0.5),
    "pga, rare positives, accumulate": of_method("pga", rare, accumulate=2),
    "accumulate, weights": of_method("adamw", weighted, accumulate=2),
    "stream, accumulate": of_method("ppd-sg", stream, accumulate=2),
    "stream, unknown prior": of_method("ppd-sg", stream, **UNKNOWN),
    "Dataset": of_method("ppd-sg", lambda: Rows(*rows()), workers=1),
    "clipped": of_method("ppd-sg", rows, clip_norm=0.05),
    "uneven validation": validated(uneven_rows),
    "one-sided validation": validated(one_sided_rows),
    "weights, many zero": counting_weights,
    "pairs, weights, accumulate": of_method(
        "adamw", weighted, objective="pairwise+ce", accumulate=2
    ),
    "pairs in groups": of_method("sgd", grouped, objective="pairwise"),
    "groups": of_method("ppd-sg", grouped),
    "average precision": of_method("adamw", rare, objective="ap", positives=0.5),
    "partial": of_method("ppd-sg", weighted, objective="partial"),
}
SHARDED = {
    "fsdp, ppd-sg, rare positives, accumulate": sharded("ppd-sg", data=rare, accumulate=2),
    "fsdp, ppd-adagrad, uneven validation": sharded("ppd-adagrad", uneven_rows),
    "fsdp, pga": sharded("pga"),
    "fsdp, adamw": sharded("adamw"),
    "fsdp, by its owner": sharded_by_its_owner,
}
MOMENTUM = {"optimizer_options": {"momentum": 0.5, "weight_decay": 1e-2}}
ONE_LOCAL_STEP = {
    "local, momentum and decay": local_and_not("ppd-sg", rows, **MOMENTUM),
    "local, going on from the last": local_and_not("ppd-sg", rare, restart="last", pretrain=10),
    "local, unknown prior": local_and_not("ppd-sg", stream, probe=0),
    "local, accumulate": local_and_not("ppd-sg", weighted, accumulate=2),
    "local, sgd on AUC": local_and_not("sgd", rows, objective="auc"),
}
LOCAL = {
    "meetings": meetings,
    "far and near": far_and_near,
    "messages": messages,
    "groups of two": groups_of_two,
}
REMEMBERING = {
    "local_steps": LOCAL_STEPS,
    "objective": "auc+pairwise+ap",
}
ENDS = (kill_all, kill_first_rank, tell_all)
STOPS = {
    "local/crashed": (297, crash),
    "local/told": (288, tell_second_rank),
    "fsdp/told": (150, tell_second_rank),
}
ALONE = {"evaluate": evaluated, "batch norm": with_batch_norm, "sent rows": sent_rows}
RUNS = {
    "fsdp": ("fsdp", "norm and dropout"),
    "plain": ("ddp", "plain"),
    "local": ("ddp", "norm and dropout"),
}


def run(folder, case):
    """One case; ``KIND/NAME`` begins, or goes on with, a run of that kind in a folder."""
    if "/" in case:
        kind = case.split("/")[0]
        local = REMEMBERING if kind == "local" else {}
        return kept(folder / case, *RUNS[kind], **local)
    cases = {**EQUAL, **SHARDED, **ALONE, **ONE_LOCAL_STEP, **LOCAL, "indivisible": indivisible}
    return cases[case]()


def main():
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    if "STOP" in os.environ:
        how, batch = os.environ["STOP"].split()
        Pace.left, Pace.at_the_end = int(batch), {x.__name__: x for x in ENDS}[how]
    if len(sys.argv) > 3:  # a single case leaves it to fit() to join the others
        dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    for case in sys.argv[2:]:
        try:
            found = cut_short(folder, case, *STOPS[case]) if case in STOPS else run(folder, case)
        except ValueError as error:
            (folder / f"{case}-{rank}.error").write_text(str(error))
            raise
        torch.save(found, folder / f"{case}-{rank}.pt")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" not in os.environ:
        fork_into_two_ranks()
    main()
