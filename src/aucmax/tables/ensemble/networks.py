"""Networks of a table: one for each fold, trained in step, as one model."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aucmax import checks
from aucmax.models.side_by_side import SideBySide
from aucmax.stages import Stage
from aucmax.tables import network
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble.base import CrossFitted, LeftOutError, Scores, Setting, TableModel
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows, score_rows
from aucmax.tables.split import fair_sample
from aucmax.train import Candidate, FitResult, fit
from aucmax.train.objectives import OBJECTIVES, names_of, parts_of

LEARNING_RATE = 2e-3
EVALUATIONS, LEAST_EVALUATIONS, LEAST_STEPS = 60, 30, 20
"""The most evaluations that a training of ``max_steps`` has, the fewest, and the steps between them
at least; once a round if in between. Small tables would stop too soon otherwise."""
SAVED_AFTER = 4
"""Evaluations between two checkpoints: for small networks saving takes as long as some steps."""
MOST_JUDGED = 10_000
"""Rows that the networks of folds are stopped by: more would take longer, and say no more."""


@dataclass(frozen=True)
class Recipe:
    """How networks are made and trained: options of the classifier, which describes them."""

    objective: str | Sequence[str]
    loss_options: Mapping[str, Any] | None
    method: str
    backbone: str | Callable[..., Any]
    hidden: int | Sequence[int] | None
    members: int
    width: int
    blocks: int
    dropout: float
    lr: float | None
    weight_decay: float
    batch_size: int
    max_steps: int
    max_epochs: int
    patience: int
    balanced: bool
    metric: str | Callable[..., float] | None

    @property
    def factory(self) -> Callable[..., Any] | None:
        """The caller's own function that makes a network."""
        return self.backbone if callable(self.backbone) else None

    def describe(self, numeric: Tensor, cardinalities: list[int], outputs: int) -> dict[str, Any]:
        """The network's shape, as plain JSON."""
        sizes = {name: getattr(self, name) for name in ("members", "width", "blocks", "dropout")}
        return network.describe(numeric, cardinalities, outputs, self.hidden, sizes)

    def arguments(self, rows: int, outputs: int, networks: int, judged: bool) -> dict[str, Any]:
        """Of :func:`aucmax.fit`, for a table of so many rows to train on."""
        binary, adamw = outputs == 1, self.method == "adamw"
        batch = min(self.batch_size, max(2, rows // 4))
        per_epoch = max(1, rows // batch)
        steps = min(self.max_steps, self.max_epochs * per_epoch)
        least = max(LEAST_STEPS, steps // EVALUATIONS)
        evaluated = min(steps, max(least, min(per_epoch, steps // LEAST_EVALUATIONS)))
        if networks > 1:  # of which each learns from all rows but those of one fold
            batch = min(rows, round(batch * networks / (networks - 1)))
        return {
            "steps": steps,
            "batch_size": batch,
            "probe": 2,
            "eval_every": evaluated,
            "save_every": SAVED_AFTER * evaluated,
            "patience": self.patience if judged else None,
            "clip_norm": 1 / math.sqrt(networks),
            "positives": 0.5 if binary and self.balanced else None,
            **self.method_arguments(outputs),
            **({"stages": [Stage(1, self.step_size, steps, 0)]} if adamw else {"lr": self.lr}),
        }

    @property
    def step_size(self) -> float:
        """Of AdamW."""
        return LEARNING_RATE if self.lr is None else checks.positive("lr", self.lr)

    def method_arguments(self, outputs: int) -> dict[str, Any]:
        """The arguments of fit that depend on the options and the number of classes alone."""
        has_decay = self.method in ("adamw", "sgd")
        return {
            "method": self.method,
            "objective": self.objective,
            "metric": self.metric,
            "task": "binary" if outputs == 1 else "multiclass",
            "loss_options": self.options_of_loss(outputs),
            "optimizer_options": {"weight_decay": self.weight_decay} if has_decay else {},
        }

    def options_of_loss(self, outputs: int) -> dict[str, Any]:
        """The options of the objective's loss, as :func:`aucmax.fit` takes them.

        AdamW trains best on the raw scores of two classes, unless ``loss_options`` say otherwise.
        """
        options = dict(self.loss_options or {})
        if outputs == 1 and self.method == "adamw":
            parts = {part for name in names_of(self.objective) for part, _ in parts_of(name)}
            for part in parts or OBJECTIVES:
                own = options.get(part, {})
                if OBJECTIVES[part].has_link and isinstance(own, Mapping):  # else fit refuses it
                    options[part] = {"link": "identity", **own}
        return options


class Networks(TableModel):
    """The networks of all folds; new rows get the mean of their scores.

    Attributes:
        networks: one for each fold.
        shape: that all of them have, as plain JSON.
        device: where they score.
    """

    kind = "networks"

    def __init__(
        self, name: str, networks: list[nn.Module], shape: dict[str, Any], device: torch.device
    ) -> None:
        self.name, self.networks, self.shape, self.device = name, networks, shape, device

    def score(self, rows: Encoded, fold: int | None = None) -> Scores:
        chosen = self.networks if fold is None else [self.networks[fold]]
        encoded = Rows.of(rows, np.zeros(len(rows.numeric), np.int64), None)
        total = sum(score_rows(each, encoded, self.device) for each in chosen)
        return np.asarray(total / len(chosen), np.float64)

    def to_plain(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = {
            f"{k}.{name}": value.detach().cpu().numpy()
            for k, each in enumerate(self.networks)
            for name, value in each.state_dict().items()
        }
        return {"name": self.name, "shape": self.shape, "networks": len(self.networks)}, arrays

    @classmethod
    def from_plain(
        cls,
        about: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        factory: network.Factory | None = None,
    ) -> Self:
        networks = []
        for k in range(about["networks"]):
            each = network.build(about["shape"], factory).eval()
            own = {name.removeprefix(f"{k}."): x for name, x in arrays.items() if name.startswith(f"{k}.")}
            each.load_state_dict({name: torch.from_numpy(x) for name, x in own.items()})
            networks.append(each)
        return cls(about["name"], networks, about["shape"], torch.device("cpu"))

    def as_module(self) -> nn.Module:
        raise NotImplementedError


def fit_networks(
    rows: Rows, folds: Folds, setting: Setting, recipe: Recipe, name: str
) -> tuple[CrossFitted, FitResult]:
    """Train a network for each fold, all in step; they stop when their scores out of fold do best."""
    began = time.monotonic()
    shape = recipe.describe(rows.numeric, setting.cardinalities, setting.outputs)
    generator = torch.Generator().manual_seed(setting.seed)
    networks = [network.build(shape, recipe.factory, generator) for _ in range(folds.count)]
    judged = folds.judged
    several = folds.count > 1
    if several:
        model: nn.Module = SideBySide(networks)
        chosen = judged
        if len(judged) > MOST_JUDGED:
            random = np.random.default_rng(setting.seed)
            chosen = np.sort(random.permutation(judged)[:MOST_JUDGED])
        used = np.flatnonzero(folds.used.any(axis=1))
        train = _with_mask(rows.select(used), folds.used[used])
        valid = _with_mask(rows.select(chosen), folds.held[chosen])
    else:
        model = networks[0]
        used = np.flatnonzero(folds.used[:, 0])
        train, valid = rows.select(used).for_fit(), rows.select(judged).for_fit()
    arguments = recipe.arguments(len(used), setting.outputs, folds.count, len(judged) > 0)
    left = setting.deadline - began
    with warnings.catch_warnings():  # of rows that the folds, not the user, held out
        warnings.filterwarnings("ignore", "valid has one row of class")
        result = fit(
            model, train, valid if len(judged) else None, seed=setting.seed, out=setting.work,
            time_limit=None if math.isinf(left) else left, device=setting.device,
            progress=setting.progress, **arguments,
        )  # fmt: skip
    if isinstance(model, SideBySide):
        networks = model.networks()
    fitted = Networks(name, networks, shape, setting.device)
    scores = np.zeros((len(rows), setting.outputs))
    for k in range(folds.count):
        held = np.flatnonzero(folds.held[:, k])
        if len(held):
            scores[held] += score_rows(networks[k], rows.select(held), setting.device)
    with np.errstate(invalid="ignore"):  # NaN for rows that nothing is judged by
        scores /= folds.held.sum(axis=1, keepdims=True)
    return CrossFitted(fitted, scores, time.monotonic() - began), result


def _with_mask(rows: Rows, mask: NDArray[np.bool_]) -> tuple[Any, ...]:
    """As fit takes them, with which networks each row concerns."""
    inputs, *rest = rows.for_fit()
    return (*inputs, torch.from_numpy(mask)), *rest
