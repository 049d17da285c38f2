"""One run of the study on pictures: a ResNet-20, wrong labels or sources that differ in light."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import aucmax
from aucmax.data.augment import CropAndFlip
from experiments.data import load
from experiments.plan import Run
from experiments.prepare import binarize, mislabel, split, thin
from experiments.train_image import make_model
from experiments.train_table import (
    LOSS_OPTIONS,
    Labels,
    Part,
    Parts,
    Settings,
    judge,
    wrong_shares,
)

BATCH, MOMENTUM, EVALUATIONS, SCORED = 128, 0.9, 10, 1000
SOURCES = 16
"""Half are trained on; if unseen ones are tested, a quarter each validates and tests."""
SPREAD = 2.0
"""Of the log-odds of a label over sources, from the first to the last."""


def train(run: Run, data: Path, device: str, folder: Path) -> dict[str, Any]:
    """Train with SGD, and return the metrics of validation and test pictures.

    Args:
        run: of the kind "picture".
        data: folder of the data sets.
        device: such as "cpu" or "cuda".
        folder: of the run's checkpoints; a run that has some resumes.
    """
    settings = run.settings
    parts = make_parts(settings, data)
    amp = "bf16" if device.startswith("cuda") else None
    precision = {"model": "resnet20", "precision": amp or "fp32"}
    model = make_model({**settings, **precision}, parts.train.x, device)
    positives = settings.get("positives", "natural")
    try:
        aucmax.fit(
            model,
            parts.train.for_fit,
            parts.valid.for_fit,
            method="sgd",
            objective=settings["objective"],
            loss_options={name: settings[name] for name in LOSS_OPTIONS if name in settings},
            steps=settings["steps"],
            lr=settings["lr"],
            optimizer_options={"momentum": MOMENTUM, "weight_decay": settings["decay"]},
            metric=settings["metric"],
            batch_size=BATCH,
            positives=None if positives == "natural" else positives,
            augment=CropAndFlip(),
            eval_every=max(1, settings["steps"] // EVALUATIONS),
            seed=settings["seed"],
            amp=amp,
            device=device,
            out=folder / "fit",
            progress=False,
        )
    except aucmax.DivergedError as error:
        nothing = torch.full((1,), math.nan)
        return {**judge(settings, parts, nothing, nothing), "error": str(error)}

    def scores(part: Part) -> Tensor:
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=amp is not None):
            batches = torch.split(part.x, SCORED)
            return torch.cat([model(x.to(device)).reshape(-1).float() for x in batches]).cpu()

    model.eval()
    return judge(settings, parts, scores(parts.valid), scores(parts.test))


def make_parts(settings: Settings, data: Path) -> Parts:
    """Remove most positives, mislabel, split, and give pictures sources; test labels stay right."""
    images, seed = load(settings["files"], data), settings["seed"]
    y, y_test = (binarize(x, settings["classes"]) for x in (images.y_train, images.y_test))
    kept = thin(1 - y, settings["removed"], seed)
    if "wrong" in settings:
        y[kept] = mislabel(y[kept], wrong_shares(y[kept], settings), seed)
    rows, valid = (kept[part] for part in split(y[kept], settings["valid"], seed))
    parts = [(images.x_train[rows], y[rows]), (images.x_train[valid], y[valid])]
    parts.append((images.x_test, y_test))
    if "unseen" not in settings:
        return Parts(*(picture_part(x, labels) for x, labels in parts))
    random = np.random.RandomState((seed, 2))
    first, rest = np.split(np.arange(SOURCES), 2)
    sources = (first, *np.split(rest, 2)) if settings["unseen"] else (first,) * 3
    light = np.random.RandomState(0).uniform(0.6, 1.0, size=(SOURCES, 3)).astype(np.float32)
    lit = []
    for (x, labels), own in zip(parts, sources, strict=True):
        group = draw_sources(labels, own, random)
        x = (x * light[group][:, None, None]).astype(np.uint8)
        lit.append(picture_part(x, labels, torch.from_numpy(group)))
    return Parts(*lit)


def picture_part(x: NDArray[np.uint8], y: Labels, group: Tensor | None = None) -> Part:
    """Return pictures (N, H, W, C) of bytes as a part."""
    pixels = torch.from_numpy(np.array(x)).permute(0, 3, 1, 2)
    return Part(pixels, torch.from_numpy(y).float(), group)


def draw_sources(y: Labels, sources: Labels, random: np.random.RandomState) -> Labels:
    """Draw a source per picture: positives are likelier in the last ones, negatives in the first."""
    tilt = np.exp(np.linspace(-SPREAD, SPREAD, len(sources)) / 2)
    group = np.empty(len(y), np.int64)
    for value, weight in ((1, tilt), (0, 1 / tilt)):
        rows = np.flatnonzero(y == value)
        group[rows] = random.choice(sources, len(rows), p=weight / weight.sum())
    return group
