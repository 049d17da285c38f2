"""The pictures of a setting and a seed, and how a ResNet-20 is trained on them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aucmax.data.augment import CropAndFlip
from aucmax.models import resnet20
from aucmax.models.standardize import moments
from aucmax.paper import datasets
from aucmax.paper.prepare import binarize, mislabel, split, thin
from aucmax.study.problems import Labels, Part, Problem, wrong_shares
from aucmax.study.settings import Run, loss_options, plan

BATCH, DECAY, MOMENTUM, EVALUATIONS, SCORED = 128, 0.001, 0.9, 10, 1000
SOURCES = 16
"""Half are trained on; if others are to be tested on, a quarter validates and a quarter tests."""
SPREAD = 2.0
"""At the outermost sources a label's log-odds are so much lower and higher."""


def make_pictures(folder: Path, dataset: str, condition: Mapping[str, Any], seed: int) -> Problem:
    """The pictures of a setting and a seed; most positives are left out, but not of the test.

    Args:
        folder: that holds the data sets' official folders.
        dataset: its name in the plan.
        condition: of the regime.
        seed: of what is left out, of the split and of what is done to the pictures.
    """
    about = plan()["data"]["pictures"][dataset]
    images = _load(about["files"], folder)
    y, y_test = (binarize(x, about["positive"]) for x in (images.y_train, images.y_test))
    kept = thin(1 - y, plan()["removed"], seed)
    if "wrong" in condition:
        y[kept] = mislabel(y[kept], wrong_shares(y[kept], condition), seed)
    train, valid = (kept[rows] for rows in split(y[kept], plan()["valid"], seed))
    parts = [(images.x_train[rows], y[rows]) for rows in (train, valid)]
    parts.append((images.x_test, y_test))
    random = np.random.RandomState((seed, 2))
    problem = []
    for (x, labels), sources in zip(parts, _sources(condition), strict=True):
        group = None
        if sources is not None:
            group = draw_sources(labels, sources, random)
            x = _lit(x, group)
        problem.append(_part(x, labels, group))
    return Problem(*problem)


def _part(x: NDArray[np.uint8], y: Labels, group: Labels | None) -> Part:
    pixels = torch.from_numpy(np.array(x)).permute(0, 3, 1, 2)
    groups = None if group is None else torch.from_numpy(group)
    return Part(pixels, torch.from_numpy(y).float(), group=groups)


@lru_cache(maxsize=1)
def _load(files: str, folder: Path) -> datasets.ImageData:
    return datasets.load(files, folder)


# ---- Sources that differ in prevalence, and in their light ---------------------------------------


def _sources(condition: Mapping[str, Any]) -> tuple[NDArray[np.int64] | None, ...]:
    """Those of the pictures to train, validate and test with."""
    if "unseen" not in condition:
        return None, None, None
    trained, rest = np.split(np.arange(SOURCES), 2)
    return (trained, *np.split(rest, 2)) if condition["unseen"] else (trained,) * 3


def draw_sources(y: Labels, sources: NDArray[np.int64], random: np.random.RandomState) -> Labels:
    """A source for each picture: positives are likelier at the last ones, negatives at others."""
    tilt = np.exp(np.linspace(-SPREAD, SPREAD, len(sources)) / 2)
    group = np.empty(len(y), np.int64)
    for value, weight in ((1, tilt), (0, 1 / tilt)):
        rows = np.flatnonzero(y == value)
        group[rows] = random.choice(sources, len(rows), p=weight / weight.sum())
    return group


def _lit(x: NDArray[np.uint8], group: Labels) -> NDArray[np.uint8]:
    """The pictures in the light of their sources: a factor for each colour."""
    light = np.random.RandomState(0).uniform(0.6, 1.0, size=(SOURCES, 3)).astype(np.float32)
    return (x * light[group][:, None, None]).astype(np.uint8)


# ---- Training ------------------------------------------------------------------------------------


def fit_arguments(
    problem: Problem,
    run: Run,
    about: Mapping[str, Any],
    line: Mapping[str, Any],
    metric: str,
    device: str,
) -> dict[str, Any]:
    """Those of :func:`aucmax.fit`: SGD with momentum, alike for every line but for the loss."""
    mean, std = moments(problem.train.x)
    generator = torch.Generator().manual_seed(run.seed)
    positives = run.options.get("positives", "natural")
    return {
        "model": resnet20(mean=mean, std=std, generator=generator),
        "train": problem.train.for_fit,
        "valid": problem.valid.for_fit,
        "method": "sgd",
        "objective": line["objective"],
        "loss_options": loss_options(line),
        "steps": about["steps"],
        "lr": run.options["lr"],
        "optimizer_options": {
            "momentum": MOMENTUM,
            "weight_decay": run.options.get("decay", DECAY),
        },
        "metric": metric,
        "batch_size": BATCH,
        "positives": None if positives == "natural" else positives,
        "augment": CropAndFlip(),
        "eval_every": max(1, about["steps"] // EVALUATIONS),
        "seed": run.seed,
        "amp": _amp(device),
    }


def picture_scores(model: nn.Module, part: Part, device: str) -> Tensor:
    """Of a model in evaluation mode, in the precision that fit judged it in."""
    lower = torch.autocast("cuda", torch.bfloat16, enabled=_amp(device) == "bf16")
    with torch.no_grad(), lower:
        batches = torch.split(part.x, SCORED)
        return torch.cat([model(x.to(device)).reshape(-1).float() for x in batches]).cpu()


def _amp(device: str) -> str | None:
    return "bf16" if device.startswith("cuda") else None
