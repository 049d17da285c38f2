"""From a run to what :func:`aucmax.fit` is called with: rows, network and arguments."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aucmax import stages
from aucmax.data.augment import CropAndFlip
from aucmax.models import mlp, resnet20
from aucmax.models.standardize import moments
from aucmax.paper.datasets import ImageData
from aucmax.paper.libauc import with_libauc
from aucmax.paper.prepare import binarize, halves, mislabel, random_halves, split, thin
from aucmax.paper.settings import Run


class Parts(NamedTuple):
    """The rows of a run: images (N, C, H, W) of bytes, channels-last, and labels 0 and 1.

    If nothing is held out, there are none to validate with.
    """

    train: tuple[Tensor, Tensor]
    valid: tuple[Tensor, Tensor] | None
    test: tuple[Tensor, Tensor]

    def counts(self) -> dict[str, list[int]]:
        """Positives and negatives of each part."""
        return {
            name: [int(part[1].sum()), int(len(part[1]) - part[1].sum())]
            for name, part in self._asdict().items()
            if part is not None
        }


def make_parts(run: Run, images: ImageData) -> Parts:
    """Partition, thin and split, all by the run's seed; the test set stays as it is."""
    count, o = len(images.classes), run.options
    positive = halves(count) if run.partition == "halves" else random_halves(count, run.seed)
    y_train, y_test = binarize(images.y_train, positive), binarize(images.y_test, positive)
    train, valid = _rows(y_train, run)
    if "wrong" in o:
        used = np.union1d(train, valid)
        y_train[used] = mislabel(y_train[used], o["wrong"], run.seed)
    return Parts(
        _tensors(images.x_train[train], y_train[train]),
        _tensors(images.x_train[valid], y_train[valid]) if len(valid) else None,
        _tensors(images.x_test, y_test),
    )


def _rows(y: NDArray[np.int64], run: Run) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which are trained on and which validate: set apart before or after thinning, or not."""
    size, when = run.options["valid"], run.options["hold_out"]
    if when == "before":
        train, valid = split(y, size, run.seed)
        return train[thin(y[train], run.removed, run.seed)], valid
    kept = thin(y, run.removed, run.seed)
    if when == "none":
        return kept, kept[:0]
    train, valid = (kept[rows] for rows in split(y[kept], size, run.seed))
    return train, valid


def _tensors(x: NDArray[np.uint8], y: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(np.array(x)).permute(0, 3, 1, 2), torch.from_numpy(y).float()


def make_model(run: Run, images: Tensor) -> nn.Module:
    """The run's network, standardizing by the training images' own mean and deviation."""
    mean, std = moments(images)
    generator = torch.Generator().manual_seed(run.seed)
    if run.options["model"] == "mlp":
        return mlp(images[0].numel(), mean=mean, std=std, generator=generator)
    return resnet20(channels=images.shape[1], mean=mean, std=std, generator=generator)


def fit_arguments(run: Run, model: nn.Module, device: str) -> dict[str, Any]:
    """How fit is to train the model; of LibAUC's line, with its loss and optimizer."""
    arguments = {**fit_options(run), "amp": "bf16" if device.startswith("cuda") else None}
    is_libauc = run.options["method"] == "libauc"
    return with_libauc(arguments, model, device) if is_libauc else arguments


def fit_options(run: Run) -> dict[str, Any]:
    """The arguments of :func:`aucmax.fit` that the run's options stand for."""
    o, method = run.options, run.method_settings
    pretrain = min(o["pretrain"], o["steps"] // 4) if o.get("pretrained") else 0
    steps = o["steps"] - pretrain
    own = {name: float(o[name]) for name in method.optimizer if name in o}
    return {
        "method": o["method"],
        "steps": steps,
        "batch_size": o["batch_size"],
        "eval_every": o["eval_every"],
        "save_every": 5 * o["eval_every"],
        "probe": o["probe"],
        "seed": run.seed,
        "restart": o.get("restart"),
        "optimizer_options": {**own, **method.fixed},
        "loss_options": {key: o[key] for key in method.loss},
        "pretrain": pretrain,
        "positives": o.get("positives"),
        "augment": CropAndFlip() if o.get("augment") and o["model"] == "resnet20" else None,
        **({"stages": _stages(run, steps)} if "first_stage" in o else {"lr": o["lr"]}),
    }


def _stages(run: Run, steps: int) -> list[stages.Stage]:
    """So many stages as the steps need."""
    o, rule = run.options, run.method_settings.stages or stages.geometric
    wanted = o["first_stage"]
    first = int(wanted) if wanted >= 1 else math.ceil(wanted * steps)
    growth = {"factor": o["factor"]} if rule is stages.geometric else {}
    count = 1
    while sum(s.steps or 0 for s in rule(o["lr"], first, stages=count, **growth)) < steps:
        count += 1
    return rule(o["lr"], first, stages=count, **growth)
