"""One run on images: rows, network and stages, then :func:`aucmax.fit`."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import aucmax
from aucmax.images.augment import CropAndFlip
from aucmax.models import mlp, resnet20
from aucmax.stages import Stage, geometric, polynomial
from experiments.data import load
from experiments.libauc import loss_and_optimizer
from experiments.plan import Run
from experiments.prepare import binarize, halves, mislabel, random_halves, split, thin

PIECES = 70
"""Stages by which a step size that changes all the time is approximated."""
PRETRAINING_LR = 0.1
CURVES = [
    f"{part}_auc_{which}" for part in ("train", "valid", "test") for which in ("last", "average")
]

Settings = dict[str, Any]
Part = tuple[Tensor, Tensor]
"""Images (N, C, H, W) of bytes, and labels 0 and 1."""


def train(run: Run, data: Path, device: str, folder: Path) -> dict[str, Any]:
    """Train as a run's settings say, and return what came out.

    Both iterates are recorded at every evaluation and at the end ("final": test AUC), and the
    weights that validation rows chose among all of them ("chosen"). A run that diverged has its
    "error" and its history until then.

    Args:
        run: of the kind "image".
        data: folder of the data sets.
        device: such as "cpu" or "cuda".
        folder: of the run's checkpoints; a run that has some resumes.
    """
    settings = run.settings
    parts = make_parts(settings, data)
    model = make_model(settings, parts["train"][0], device)
    common = {
        "model": model,
        "train": parts["train"],
        "test": parts["test"],
        "batch_size": settings["batch_size"],
        "eval_every": settings["eval_every"],
        "save_every": 5 * settings["eval_every"],
        "probe": settings["probe"],
        "seed": settings["seed"],
        "positives": settings.get("positives"),
        "augment": CropAndFlip() if settings.get("augment") else None,
        "amp": "bf16" if settings["precision"] == "bf16" else None,
        "device": device,
        "progress": False,
    }
    history: list[dict[str, Any]] = []
    result, error = None, None
    first = settings.get("pretraining", 0)
    out = folder / "fit"
    try:
        if first:  # without validation rows it ends with its last weights
            stages = [Stage(index=1, lr=PRETRAINING_LR, steps=first, dual_samples=0)]
            before = {
                "method": "sgd",
                "stages": stages,
                "steps": first,
                "out": folder / "pretraining",
            }
            history += aucmax.fit(**common, **before).history
        steps = settings["steps"] - first
        if settings["method"] == "libauc":  # its optimizer cannot resume
            how = {**loss_and_optimizer(settings, model, device), "steps": steps, "out": None}
        else:
            how = {**method_arguments(settings, steps), "steps": steps, "out": out}
        result = aucmax.fit(**common, valid=parts.get("valid"), **how)
        later = result.history
    except aucmax.DivergedError as diverged:
        error = str(diverged)
        later = (
            aucmax.history.read(out / "history.jsonl") if (out / "history.jsonl").exists() else []
        )
    history += [{**record, "step": record["step"] + first} for record in later]

    record: dict[str, Any] = {
        "history": {
            key: [row.get(key, math.nan) for row in history] for key in ("step", "seconds", *CURVES)
        },
        "counts": {name: [int(y.sum()), int(len(y) - y.sum())] for name, (_, y) in parts.items()},
        "fused": type(model).__name__ == "FusedResNet20",
        "error": error,
    }
    speeds = [row["steps_per_second"] for row in later if row["steps_per_second"]]
    record["seconds_per_step"] = 1 / median(speeds) if speeds else math.nan
    if result is not None:
        at = next(row for row in history if row["step"] == result.step + first)
        last = history[-1]
        record["final"] = {
            "last": last["test_auc_last"],
            "average": last["test_auc_average"],
            "valid_last": last.get("valid_auc_last", math.nan),
            "valid_average": last.get("valid_auc_average", math.nan),
        }
        record["chosen"] = {
            "step": result.step + first,
            "iterate": result.iterate,
            "valid_auc": result.auc,
            "test_auc": at[f"test_auc_{result.iterate}"],
        }
    return record


def make_parts(settings: Settings, data: Path) -> dict[str, Part]:
    """Partition, thin, split and mislabel by the run's seed; the test set stays as it is."""
    images, seed = load(settings["dataset"], data), settings["seed"]
    is_random = settings["partition"] == "random"
    positive = random_halves(images.classes, seed) if is_random else halves(images.classes)
    y, y_test = binarize(images.y_train, positive), binarize(images.y_test, positive)
    removed, size = settings["removed"], settings["valid"]
    if settings["hold_out"] == "before":
        rows, valid = split(y, size, seed)
        rows = rows[thin(y[rows], removed, seed)]
    elif settings["hold_out"] == "after":
        kept = thin(y, removed, seed)
        rows, valid = (kept[part] for part in split(y[kept], size, seed))
    else:
        rows = thin(y, removed, seed)
        valid = rows[:0]
    if "wrong" in settings:
        used = np.union1d(rows, valid)
        y[used] = mislabel(y[used], settings["wrong"], seed)

    def tensors(x: NDArray[np.uint8], labels: NDArray[np.int64]) -> Part:
        return torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(labels).float()

    parts = {"train": tensors(images.x_train[rows], y[rows])}
    if len(valid):
        parts["valid"] = tensors(images.x_train[valid], y[valid])
    parts["test"] = tensors(images.x_test, y_test)
    return parts


def make_model(settings: Settings, images: Tensor, device: str) -> nn.Module:
    """Make the network, which standardizes by the training images' own mean and deviation."""
    counts = torch.stack([torch.bincount(x.flatten(), minlength=256) for x in images.unbind(1)])
    share = counts.double() / counts.double().sum(1, keepdim=True)
    values = torch.arange(256, dtype=torch.float64)
    mean = share @ values
    std = (share @ values**2 - mean**2).sqrt()
    inputs = {"mean": mean.tolist(), "std": std.tolist()}
    generator = torch.Generator().manual_seed(settings["seed"])
    if settings["model"] == "mlp":
        return mlp(images[0].numel(), **inputs, generator=generator)
    model = resnet20(channels=images.shape[1], **inputs, generator=generator)
    if device.startswith("cuda") and settings["precision"] == "bf16":
        from experiments.resnet20.model import FusedResNet20  # needs Triton

        return FusedResNet20.like(model)
    return model


def method_arguments(settings: Settings, steps: int) -> dict[str, Any]:
    """Return the arguments of fit for one of its own methods."""
    method = settings["method"]
    names = ("gamma", "delta", "momentum", "weight_decay")
    optimizer: dict[str, Any] = {x: float(settings[x]) for x in names if x in settings}
    if method == "pga":
        optimizer["output"] = "last"  # the running average, not one drawn from all stages
    of_loss = {}
    if settings["objective"] == "auc":  # as the paper has it, without bounds
        of_loss = {"normalize": settings["normalize"], "guard": False}
    # OAUC knows no stages: those that its power takes must neither restart nor draw samples.
    restart = "last" if method == "oauc" else settings.get("restart")
    return {
        "method": method,
        "objective": settings["objective"],
        "loss_options": of_loss,
        "optimizer_options": optimizer,
        "stages": make_stages(settings, steps),
        "restart": restart,
    }


def make_stages(settings: Settings, steps: int) -> list[Stage]:
    """Return the stages of a run's schedule, with at least so many steps."""
    lr, schedule = settings["lr"], settings["schedule"]
    if schedule in ("geometric", "polynomial"):
        first = settings["first_stage"]
        first = math.ceil(first * steps) if first <= 1 else int(first)
        stages: list[Stage] = []
        while sum(stage.steps or 0 for stage in stages) < steps:
            count = len(stages) + 1
            if schedule == "geometric":
                stages = geometric(lr, first, settings["factor"], stages=count)
            else:
                stages = polynomial(lr, first, stages=count)
        return stages
    if schedule == "drops":  # to a tenth
        bounds = [0, *(round(share * steps) for share in settings["drops"]), steps]
        sizes = [lr / 10**k for k in range(len(bounds) - 1)]
    elif schedule == "cosine":
        bounds = sorted({round(steps * k / PIECES) for k in range(PIECES + 1)})
        middles = [(a + b) / 2 / steps for a, b in pairwise(bounds)]
        sizes = [lr * (1 + math.cos(math.pi * middle)) / 2 for middle in middles]
    else:  # lr / t ** power, of which OAUC itself divides by the root of t
        power = settings["power"] - (0.5 if settings["method"] == "oauc" else 0.0)
        pieces = PIECES if power else 1
        bounds = sorted({round((steps + 1) ** (k / pieces)) - 1 for k in range(pieces + 1)})
        sizes = [lr * ((a + 1) * b) ** (-power / 2) for a, b in pairwise(bounds)]
    lengths = [b - a for a, b in pairwise(bounds)]
    stages = [
        Stage(index=k, lr=size, steps=length, dual_samples=0)
        for k, (size, length) in enumerate(zip(sizes, lengths, strict=True), 1)
    ]
    return [stage for stage in stages if stage.steps]
