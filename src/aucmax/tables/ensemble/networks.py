"""Networks of a table: one for each fold, trained in step, as one model."""

from __future__ import annotations

import copy
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
from aucmax.models.tabular import Separate, SideBySide, Stacked
from aucmax.stages import Stage
from aucmax.tables import network
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble.base import (
    CrossFitted,
    LeftOutError,
    Scores,
    Setting,
    TableModel,
    arrays_of,
)
from aucmax.tables.folds import Folds, scores_out_of_fold
from aucmax.tables.samples import representative
from aucmax.tables.scoring import Rows, score_rows
from aucmax.train import FitResult, fit
from aucmax.train.objectives import OBJECTIVES, names_of, parts_of

LEARNING_RATE = 2e-3
EVALUATIONS, LEAST_EVALUATIONS, LEAST_STEPS = 60, 30, 20
"""The most evaluations that a training of ``max_steps`` has, the fewest, and the steps between them
at least; once a round if in between. Small tables would stop too soon otherwise."""
SAVED_AFTER = 4
"""Evaluations between two checkpoints: for small networks saving takes as long as some steps."""
CLIP_NORM = 1.0
MEMBERS, MEMBERS_OF_FOLDS = 8, 16
"""Of TabM: where there is one network, and of those of all folds together."""
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
    members: int | None
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

    def describe(
        self, numeric: Tensor, cardinalities: list[int], outputs: int, networks: int = 1
    ) -> dict[str, Any]:
        """The shape of each of so many networks, as plain JSON."""
        sizes = {name: getattr(self, name) for name in ("members", "width", "blocks", "dropout")}
        if self.members is None:
            many = max(2, MEMBERS_OF_FOLDS // networks)
            sizes["members"] = MEMBERS if networks == 1 else many
        return network.describe(numeric, cardinalities, outputs, self.hidden, sizes)

    def arguments(self, rows: int, outputs: int, folds: Folds) -> dict[str, Any]:
        """Of :func:`aucmax.fit`, for a table of so many rows to train on."""
        networks, judged = folds.count, len(folds.judged) > 0
        batch = min(self.batch_size, max(2, rows // (4 if networks == 1 else 3)))
        per_epoch = max(1, rows // batch)
        steps = min(self.max_steps, self.max_epochs * per_epoch)
        least = max(LEAST_STEPS, steps // EVALUATIONS)
        evaluated = min(steps, max(least, min(per_epoch, steps // LEAST_EVALUATIONS)))
        patience = self.patience
        if networks > 1:  # of which each learns from some of a batch's rows
            share = folds.used.sum() / (rows * networks)
            batch = min(rows, round(batch / share))
            patience = math.ceil(patience * 2 / 3)  # all rows say more than a share of them
        return {
            "steps": steps,
            "batch_size": batch,
            "probe": 2,
            "eval_every": evaluated,
            "save_every": SAVED_AFTER * evaluated,
            "patience": patience if judged else None,
            # A mean over networks has smaller gradients in each, and norms over all of them.
            "clip_norm": CLIP_NORM / math.sqrt(networks),
            "positives": 0.5 if outputs == 1 and self.balanced else None,
            **self.method_arguments(outputs, steps),
        }

    @property
    def step_size(self) -> float:
        """Of AdamW."""
        return LEARNING_RATE if self.lr is None else checks.positive("lr", self.lr)

    def method_arguments(self, outputs: int, steps: int) -> dict[str, Any]:
        """The arguments of fit that do not depend on the rows."""
        adamw, has_decay = self.method == "adamw", self.method in ("adamw", "sgd")
        return {
            "method": self.method,
            "objective": self.objective,
            "metric": self.metric,
            "task": "binary" if outputs == 1 else "multiclass",
            "loss_options": self.options_of_loss(outputs),
            "optimizer_options": {"weight_decay": self.weight_decay} if has_decay else {},
            **({"stages": [Stage(1, self.step_size, steps, 0)]} if adamw else {"lr": self.lr}),
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
        factory: the caller's own function that makes such a network.
    """

    kind = "networks"

    def __init__(
        self,
        name: str,
        networks: Sequence[nn.Module],
        shape: dict[str, Any],
        factory: network.Factory | None = None,
    ) -> None:
        self.name, self.networks, self.shape, self.factory = name, list(networks), shape, factory

    def score(self, rows: Encoded, fold: int | None = None) -> Scores:
        """The mean of the networks' raw scores, or those of one fold's network."""
        chosen = self.networks if fold is None else [self.networks[fold]]
        encoded = Rows.of(rows, np.zeros(len(rows.numeric), np.int64), None)
        scores = [score_rows(each, encoded, self.device) for each in chosen]
        return np.asarray(np.mean(scores, axis=0), np.float64)

    def to_plain(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The networks' shape, and the weights of each."""
        arrays = {
            f"{k}.{name}": value.detach().cpu().numpy()
            for k, each in enumerate(self.networks)
            for name, value in each.state_dict().items()
        }
        about = {
            "name": self.name,
            "networks": len(self.networks),
            "shape": self.shape,
            "own_backbone": self.factory is not None,
        }
        return about, arrays

    @classmethod
    def from_plain(
        cls,
        about: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        factory: network.Factory | None = None,
    ) -> Self:
        """The networks that :meth:`to_plain` was called on; ``factory`` if it was the caller's."""
        if about["own_backbone"] and factory is None:
            raise ValueError("backbone must be given: the model was trained with one of its own")
        networks = []
        for k in range(about["networks"]):
            each = network.build(about["shape"], factory).eval()
            own = {name: torch.from_numpy(x) for name, x in arrays_of(k, arrays).items()}
            try:
                each.load_state_dict(own)
            except RuntimeError as error:
                raise ValueError(f"the weights must fit the network: {error}") from None
            networks.append(each)
        return cls(about["name"], networks, about["shape"], factory)

    def as_module(self) -> nn.Module:
        """The mean of the networks' scores."""
        return _Mean([copy.deepcopy(each).cpu().double().eval() for each in self.networks])


class _Mean(nn.Module):
    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, columns: tuple[Tensor, Tensor]) -> Tensor:
        scores = [each(columns) for each in self.networks]
        flat = [x.flatten(1) if x.ndim > 1 else x[:, None] for x in scores]
        return torch.stack(flat).mean(0)


class NetworkFit:
    """A training that is ready to begin: a network for each fold, all in step.

    They stop when the metric of their scores out of fold, pooled, is best, so that one choice is
    made by all rows, not one by the few of each fold.

    Attributes:
        arguments: of :func:`aucmax.fit`, but for device, progress, folder and time limit.
    """

    def __init__(
        self, name: str, rows: Rows, folds: Folds, setting: Setting, recipe: Recipe
    ) -> None:
        self.name, self.recipe = name, recipe
        self.rows, self.folds, self.setting = rows, folds, setting
        outputs, count = setting.outputs, folds.count
        self.shape = recipe.describe(rows.numeric, setting.cardinalities, outputs, count)
        generator = torch.Generator().manual_seed(setting.seed)
        networks = [network.build(self.shape, recipe.factory, generator) for _ in range(count)]
        used, judged = np.flatnonzero(folds.used.any(axis=1)), folds.judged
        if count > 1:
            together = Stacked if recipe.factory is None else Separate
            self.model: nn.Module = together(networks)
            train = _concerning(rows.select(used), folds.used[used])
            some = representative(rows.select(judged), MOST_JUDGED, setting.seed)
            valid = _concerning(some.rows, folds.held[judged[some.places]])
        else:
            (self.model,) = networks
            train, valid = rows.select(used).for_fit(), rows.select(judged).for_fit()
        self.arguments = {
            "model": self.model,
            "train": train,
            "valid": valid if len(judged) else None,
            "seed": setting.seed,
            **recipe.arguments(len(used), outputs, folds),
        }

    def run(self) -> tuple[CrossFitted, FitResult]:
        """Train, going on from the work that is there."""
        setting, limit = self.setting, None
        if math.isfinite(setting.deadline):
            limit = setting.deadline - time.monotonic()
            if limit <= 0:
                raise LeftOutError("no time left")
            limit = max(0.01, round(limit, 2))  # it is said
        with warnings.catch_warnings():  # of rows that the folds, not the user, held out
            warnings.filterwarnings("ignore", "valid has one row of class")
            result = fit(
                **self.arguments, out=setting.work, time_limit=limit, device=setting.device,
                progress=setting.progress,
            )  # fmt: skip
        return self.end(result), result

    def end(self, result: FitResult) -> CrossFitted:
        """What came of the training: the networks, and their scores out of fold."""
        model, device = self.model, self.setting.device
        networks = model.networks() if isinstance(model, SideBySide) else [model]
        fitted = Networks(self.name, networks, self.shape, self.recipe.factory)
        fitted.device = device
        scores = scores_out_of_fold(
            self.folds.held,
            self.setting.outputs,
            lambda k, rows: score_rows(networks[k], self.rows.select(rows), device),
        )
        each_took = [x.seconds for x in result.candidates if not math.isnan(x.seconds)]
        seconds = math.fsum(each_took) or float(result.history[-1]["seconds"])
        return CrossFitted(fitted, scores, seconds)


def _concerning(rows: Rows, networks: NDArray[np.bool_]) -> tuple[Any, ...]:
    """Rows as fit takes them, each with the networks that it concerns."""
    inputs, *rest = rows.for_fit()
    return (*inputs, torch.from_numpy(networks)), *rest
