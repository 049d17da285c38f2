"""One run: data, model, fit, and the JSON file of its result."""

from __future__ import annotations

import datetime
import functools
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aucmax import history, stages
from aucmax._version import __version__
from aucmax.data.augment import CropAndFlip
from aucmax.disk import atomic_write, write_json
from aucmax.models import mlp, resnet20
from aucmax.paper import prepare
from aucmax.paper.datasets import ImageData
from aucmax.paper.libauc import with_libauc
from aucmax.paper.plan import STAGED, Run
from aucmax.paper.results import FORMAT
from aucmax.stages import Stage
from aucmax.train import DivergedError, fit
from aucmax.train._sweep import Sweep
from aucmax.train._turns import Outcome

EXTRAS = {
    "ppd-sg": ("momentum", "weight_decay"),
    "sgd": ("momentum", "weight_decay"),
    "adagrad": ("weight_decay",),
}
"""What of a protocol's options each optimizer has."""
KEPT = 4
"""Runs' rows that are kept for runs to come: those of other lines follow each other."""


class Parts(NamedTuple):
    """The rows of a run: images (N, C, H, W) of bytes, channels-last, and labels 0 and 1."""

    train: tuple[Tensor, Tensor]
    valid: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    def counts(self) -> dict[str, list[int]]:
        """Positives and negatives of each part."""
        return {
            name: [int(y.sum()), int(len(y) - y.sum())]
            for name, (_, y) in zip(self._fields, self, strict=True)
        }


def perform(run: Run, out: Path, device: str, at_once: int, place: str = "runs") -> Path:
    """Train as the run says, going on where it was left; returns the file of its result.

    :func:`store_images` has been called before. Checkpoints are kept in ``out / "unfinished"``
    until the result is written. ``at_once`` runs share the machine, which their times tell.
    """
    job = Job(run, make_parts(run, stored_images(out)), out, device, at_once, place)
    outcome: Outcome
    try:
        outcome = fit(**job.arguments(), device=device, progress=False)
    except DivergedError as error:
        outcome = error
    return job.record(outcome)


def perform_in_turn(
    runs: Iterable[Run],
    out: Path,
    device: str,
    at_once: int,
    place: str = "runs",
    tick: Callable[[], object] = lambda: None,
) -> Iterator[tuple[Run, Path]]:
    """The same in this process for many runs, which take turns on a GPU.

    Each comes with the file of its result as it ends; the next is asked for when there is room for
    it. Runs of the same images have them on the device but once. ``tick`` is called a few times a
    second.
    """
    images, jobs, known = stored_images(out), dict[int, Job](), dict[Any, Parts]()

    def configs() -> Iterator[dict[str, Any]]:
        for number, run in enumerate(runs):
            rows = (run.partition, run.removed, run.seed, run.options["valid"])
            if rows not in known:
                if len(known) == KEPT:
                    del known[next(iter(known))]
                known[rows] = make_parts(run, images)
            jobs[number] = Job(run, known[rows], out, device, at_once, place)
            yield jobs[number].arguments()

    sweep = Sweep(configs(), torch.device(device), at_once)
    sweep.tick = tick
    with closing(iter(sweep)) as ended:
        for number, outcome in ended:
            job = jobs.pop(number)
            yield job.run, job.record(outcome)


class Job(NamedTuple):
    """A run with its rows, its files and its machine."""

    run: Run
    parts: Parts
    out: Path
    device: str
    at_once: int
    place: str

    @property
    def work(self) -> Path:
        """The folder of its checkpoints."""
        return self.out / "unfinished" / self.place / self.run.name

    def arguments(self) -> dict[str, Any]:
        """Those of fit, the model made, but for device and progress."""
        model = make_model(self.run, self.parts.train[0])
        return {
            "model": model,
            **self.parts._asdict(),
            **fit_arguments(self.run, model, self.device, self.work),
        }

    def record(self, outcome: Outcome) -> Path:
        """Write the result, after which the checkpoints are not needed; the result's file."""
        target = self.out / self.place / f"{self.run.name}.json"
        found = {**describe(self.run, self.device), **_summary(outcome, self.work)}
        found |= {"counts": self.parts.counts(), "at_once": self.at_once}
        target.parent.mkdir(parents=True, exist_ok=True)
        write_json(target, {**found, **provenance(self.device)})
        shutil.rmtree(self.work, ignore_errors=True)
        return target


def _summary(outcome: Outcome, work: Path) -> dict[str, Any]:
    """The history and what came of it; of a run that diverged, how."""
    if isinstance(outcome, DivergedError):
        path = work / "history.jsonl"
        found = history.read(path) if path.exists() else []
        return {"error": str(outcome), "history": found, "result": None, **_times(found)}
    chosen = {"step": outcome.step, "iterate": outcome.iterate, "valid_auc": outcome.auc}
    at = {record["step"]: record for record in outcome.history}
    chosen["test_auc"] = at[outcome.step][f"test_auc_{outcome.iterate}"]
    last = outcome.history[-1]
    final = {which: last[f"test_auc_{which}"] for which in ("last", "average")}
    result = {"final": final, "chosen": chosen}
    return {"history": outcome.history, "result": result, **_times(outcome.history)}


def _times(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Seconds in all, and of a step in the median, evaluations left out."""
    speeds = [r["steps_per_second"] for r in records if r["steps_per_second"]]
    median = 1 / float(np.median(speeds)) if speeds else math.nan
    seconds = records[-1]["seconds"] if records else 0.0
    return {"seconds_per_step": median if speeds else None, "seconds": seconds}


def describe(run: Run, device: str) -> dict[str, Any]:
    """What a result says of its run, and a run must have in common with a result to be done."""
    return {
        "format": FORMAT,
        "experiment": run.experiment,
        "protocol": run.protocol,
        "dataset": run.dataset,
        "ratio": run.ratio,
        "line": run.line,
        "label": run.options["label"],
        "seed": run.seed,
        "steps": run.options["steps"],
        "iterate": run.options["iterate"],
        "precision": "bf16" if device.startswith("cuda") else "float32",
        "configuration": {
            "partition": run.partition,
            "removed": run.removed,
            **{k: v for k, v in run.options.items() if k not in ("label", "iterate", "steps")},
        },
    }


# ---- Data ----------------------------------------------------------------------------------------


def store_images(out: Path, images: ImageData) -> None:
    """Put the images, without exact repeats, where every worker can map them into its memory."""
    train, test = prepare.distinct(images.x_train, images.x_test)
    arrays: dict[str, NDArray[Any]] = {
        "x_train": images.x_train[train], "y_train": images.y_train[train],
        "x_test": images.x_test[test], "y_test": images.y_test[test],
        "classes": np.array(images.classes),
    }  # fmt: skip
    folder = out / "unfinished" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        with atomic_write(folder / f"{name}.npy") as path, path.open("wb") as file:
            np.save(file, array)


def stored_images(out: Path) -> ImageData:
    """The images that :func:`store_images` has put there, read when they are looked at."""
    folder = out / "unfinished" / "images"
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ImageData._fields}
    return ImageData(**{**arrays, "classes": tuple(map(str, arrays["classes"]))})


def make_parts(run: Run, images: ImageData) -> Parts:
    """Partition, thin, then split, all by the run's seed; the test set stays whole."""
    classes = len(images.classes)
    positive = (
        prepare.halves(classes)
        if run.partition == "halves"
        else prepare.random_halves(classes, run.seed)
    )
    y_train = prepare.binarize(images.y_train, positive)
    kept = prepare.thin(y_train, run.removed, run.seed)
    train, valid = (
        kept[rows] for rows in prepare.split(y_train[kept], run.options["valid"], run.seed)
    )
    y_test = prepare.binarize(images.y_test, positive)
    return Parts(
        _tensors(images.x_train[train], y_train[train]),
        _tensors(images.x_train[valid], y_train[valid]),
        _tensors(images.x_test, y_test),
    )


def _tensors(x: NDArray[np.uint8], y: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(np.array(x)).permute(0, 3, 1, 2), torch.from_numpy(y).float()


# ---- Training ------------------------------------------------------------------------------------


def make_model(run: Run, images: Tensor) -> nn.Module:
    """The run's network, standardizing by the training images' own mean and deviation."""
    mean, std = _moments(images)
    generator = torch.Generator().manual_seed(run.seed)
    if run.options["model"] == "mlp":
        return mlp(images[0].numel(), mean=mean, std=std, generator=generator)
    return resnet20(channels=images.shape[1], mean=mean, std=std, generator=generator)


def _moments(images: Tensor) -> tuple[list[float], list[float]]:
    """Each channel's mean and deviation, from how often each of the 256 values occurs."""
    counts = torch.stack(
        [torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)]
    ).double()
    share, values = counts / counts.sum(1, keepdim=True), torch.arange(256, dtype=torch.float64)
    mean = share @ values
    return mean.tolist(), (share @ values**2 - mean**2).sqrt().tolist()


def fit_options(run: Run) -> dict[str, Any]:
    """The arguments of :func:`aucmax.fit` that the run's options stand for."""
    o, method = run.options, run.options["method"]
    of_optimizer = {key: o[key] for key in EXTRAS.get(method, ()) if key in o}
    of_optimizer |= {"gamma": o["gamma"]} if "gamma" in o and method in STAGED else {}
    of_optimizer |= {"output": "last"} if method == "pga" else {}
    cross_entropy = method in ("sgd", "adagrad")
    pretrain = min(o["pretrain"], o["steps"] // 4) if o.get("pretrained") else 0
    rule = _stages(o, o["steps"] - pretrain)
    return {
        "method": method,
        "steps": o["steps"] - pretrain,
        "batch_size": o["batch_size"],
        "eval_every": o["eval_every"],
        "save_every": 5 * o["eval_every"],
        "probe": o["probe"],
        "seed": run.seed,
        "optimizer_options": of_optimizer,
        "loss_options": {} if cross_entropy else {"normalize": o["normalize"]},
        "pretrain": pretrain,
        "positives": o.get("positives"),
        "augment": CropAndFlip() if o.get("augment") and o["model"] == "resnet20" else None,
        **({"lr": o["lr"]} if rule is None else {"stages": rule}),
    }


def _stages(options: dict[str, Any], steps: int) -> list[Stage] | None:
    """Stages of which the first has a share of the steps; None leaves them to fit."""
    if "first_stage" not in options:
        return None
    first, count = math.ceil(options["first_stage"] * steps), 1
    rule = functools.partial(stages.geometric, factor=options["factor"])
    make = stages.polynomial if options["method"] == "pga" else rule
    while sum(stage.steps or 0 for stage in make(options["lr"], first, stages=count)) < steps:
        count += 1
    return make(options["lr"], first, stages=count)


def fit_arguments(run: Run, model: nn.Module, device: str, out: Path | None) -> dict[str, Any]:
    """How fit is to train; of LibAUC's line, with its loss and optimizer."""
    options = {"out": out, **fit_options(run)}
    options["amp"] = "bf16" if device.startswith("cuda") else None
    if run.options["method"] == "libauc":
        options = with_libauc(options, model, device)
    return options


# ---- Where a result comes from -------------------------------------------------------------------


def provenance(device: str) -> dict[str, Any]:
    """Commit, versions, hardware and day."""
    on_gpu = device.startswith("cuda")
    return {
        "commit": commit(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "aucmax": __version__,
        },
        "hardware": torch.cuda.get_device_name(device) if on_gpu else _processor(),
        "date": datetime.date.today().isoformat(),
    }


def commit() -> str | None:
    """What AUCMAX_COMMIT says, or the source's commit, "-dirty" if it was changed since."""
    if os.environ.get("AUCMAX_COMMIT"):
        return os.environ["AUCMAX_COMMIT"]
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # installed, not run from its repository
    return found.stdout.strip()


def _processor() -> str:
    return f"{platform.machine()} CPU, {os.cpu_count()} cores"
