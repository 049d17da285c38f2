"""Which weights are best so far: both iterates, judged by their validation AUC."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from aucmax import distributed
from aucmax.data.sources import Batch, Place, evaluation_batches
from aucmax.optim import averaged
from aucmax.optim.averaged import batch_norms
from aucmax.optim.staged import local
from aucmax.train._evaluate import Scored, auc, score
from aucmax.train._methods import Phase
from aucmax.train._options import Options
from aucmax.train._step import autocast

ITERATES = ("last", "average")
Probe: TypeAlias = Callable[[], Iterator[Batch]] | None
"""Gives some training batches, as often as it is asked; None if there are none."""


@dataclass
class Best:
    """The best weights so far, with where they come from."""

    weights: dict[str, Tensor]
    auc: float = math.nan
    step: int = 0
    iterate: str = "last"

    @property
    def name(self) -> str:
        """Of its checkpoint."""
        return f"best-{self.step:010d}"


class Judge:
    """Evaluates the last iterate and the average, and keeps the weights of the better ones.

    Args:
        model: the one that is trained.
        data: "valid", which decides, and "test", which is only looked at; None where there is none.
        place: where the model is.
        options: those of the run.
    """

    def __init__(
        self, model: nn.Module, data: dict[str, Any], place: Place, options: Options
    ) -> None:
        self.model, self.place, self.options = model, place, options
        self.data = {
            name: place.put(rows) if isinstance(rows, Batch) else rows
            for name, rows in data.items()
            if rows is not None
        }
        self.warned: set[str] = set()
        self.has_norms = bool(batch_norms(model))
        self.best = Best(self._weights())

    def evaluate(
        self, phase: Phase, step: int, probe: Probe, end_stage: bool = False
    ) -> dict[str, float]:
        """AUC of both iterates on training, validation and test data.

        ``end_stage`` ends the stage between them: PGA draws its average from the stages ended.
        Without a probe, for the data has come to an end, an average whose batch-norm statistics
        cannot be estimated is left out.
        """
        kinds = dict.fromkeys(["train", "valid", *self.data])
        found = {f"{kind}_auc_{iterate}": math.nan for iterate in ITERATES for kind in kinds}
        self._judge("last", phase, step, probe, found)
        if end_stage:
            phase.average.end_stage(restart="average")
        if probe is not None or not self.has_norms:
            with self.at_average(phase, probe):
                self._judge("average", phase, step, probe, found)
        return found

    @contextmanager
    def at_average(self, phase: Phase, probe: Probe) -> Iterator[None]:
        """The average in place of the last iterate, batch norm estimated at it."""
        inputs = (batch.x for batch in probe()) if self.has_norms and probe else None
        with autocast(self.options), averaged(self.model, phase.average, inputs):
            distributed.average_buffers(self.model)
            yield

    def score(self, batches: Iterator[Batch]) -> Scored:
        """Scores of all ranks' rows."""
        with autocast(self.options):
            return score(self.model, batches)

    def _judge(
        self, iterate: str, phase: Phase, step: int, probe: Probe, found: dict[str, float]
    ) -> None:
        if self.options.probe and probe is not None:
            scored = self.score(probe())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a probe may lack a class
                found[f"train_auc_{iterate}"] = auc(scored, self.place.task)
        for kind in self.data:
            found[f"{kind}_auc_{iterate}"] = self._auc(kind)
        self._consider(iterate, phase, step, found[f"valid_auc_{iterate}"])

    def _auc(self, kind: str) -> float:
        """The AUC of one kind of data; what there is to say of that data is said once."""
        size = max(256, 4 * self.options.batch_size)  # less than training needs with its gradients
        rows = evaluation_batches(self.data[kind], self.place, size, self.options.workers)
        scored = self.score(rows)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = auc(scored, self.place.task)
        if caught and kind not in self.warned:
            self.warned.add(kind)
            name = "validation" if kind == "valid" else kind
            text = str(caught[0].message).replace("the result", f"the {name} AUC", 1)
            warnings.warn(text, UserWarning, stacklevel=2)
        return value

    def _consider(self, iterate: str, phase: Phase, step: int, value: float) -> None:
        if math.isnan(value) and math.isnan(self.best.auc):
            better = iterate == phase.returns and is_finite(self.model.state_dict().values())
        else:
            better = value > (-math.inf if math.isnan(self.best.auc) else self.best.auc)
        if better:
            self.best = Best(self._weights(), value, step, iterate)

    @torch.no_grad()
    def _weights(self) -> dict[str, Tensor]:
        return {name: x.clone() for name, x in self.model.state_dict().items()}


def is_finite(tensors: Iterable[Any]) -> bool:
    """Whether all real numbers in them are finite; of sharded ones, this rank's."""
    reals = [local(x) for x in tensors if isinstance(x, Tensor) and x.is_floating_point()]
    return all(bool(x.isfinite().all()) for x in reals)
