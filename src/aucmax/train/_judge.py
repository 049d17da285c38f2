"""Which weights are best so far: both iterates, judged by their validation AUC."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aucmax import distributed
from aucmax.data.sources import Batch, Place, as_arrays, evaluation_batches
from aucmax.optim import averaged
from aucmax.train._evaluate import Scored, auc, score
from aucmax.train._methods import Phase
from aucmax.train._options import Options
from aucmax.train._step import autocast


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
    """Evaluates the last iterate and the average, and keeps the weights of the better ones."""

    def __init__(self, model: nn.Module, valid: Any, place: Place, options: Options) -> None:
        self.model, self.place, self.options = model, place, options
        arrays = None if valid is None else as_arrays("valid", valid)
        self.valid = valid if arrays is None else place.put(arrays)
        self.warned = False
        self.has_norms = any(getattr(m, "running_mean", None) is not None for m in model.modules())
        self.best = Best(self._weights())

    def evaluate(
        self, phase: Phase, step: int, probe: Callable[[], Iterator[Batch]]
    ) -> dict[str, float]:
        """Training and validation AUC of both iterates; ``probe`` gives training batches anew."""
        found = self._aucs("last", probe)
        self._consider("last", phase, step, found)
        with self.at_average(phase, probe):
            found |= self._aucs("average", probe)
            self._consider("average", phase, step, found)
        return found

    @contextmanager
    def at_average(self, phase: Phase, probe: Callable[[], Iterator[Batch]]) -> Iterator[None]:
        """The average in place of the last iterate, batch norm estimated at it."""
        inputs = (batch.x for batch in probe()) if self.has_norms else None
        with autocast(self.options), averaged(self.model, phase.average, inputs):
            distributed.average_buffers(self.model)
            yield

    def score(self, batches: Iterator[Batch]) -> Scored:
        """Scores of all ranks' rows."""
        with autocast(self.options):
            return score(self.model, batches)

    def _aucs(self, iterate: str, probe: Callable[[], Iterator[Batch]]) -> dict[str, float]:
        found = {f"train_auc_{iterate}": math.nan, f"valid_auc_{iterate}": math.nan}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if self.options.probe:
                found[f"train_auc_{iterate}"] = auc(self.score(probe()), self.place.task)
            caught.clear()  # a probe may lack a class
            if self.valid is not None:
                size = max(256, self.options.batch_size)
                rows = evaluation_batches(self.valid, self.place, size, self.options.workers)
                found[f"valid_auc_{iterate}"] = auc(self.score(rows), self.place.task)
        self._warn(caught)
        return found

    def _warn(self, caught: list[warnings.WarningMessage]) -> None:
        """What evaluation says of the validation data, once."""
        if caught and not self.warned:
            self.warned = True
            text = f"the validation AUC is nan or partial: {caught[0].message}"
            warnings.warn(text, UserWarning, stacklevel=2)

    def _consider(self, iterate: str, phase: Phase, step: int, found: dict[str, float]) -> None:
        value = found[f"valid_auc_{iterate}"]
        if math.isnan(value) and math.isnan(self.best.auc):
            better = iterate == phase.returns
        else:
            better = value > (-math.inf if math.isnan(self.best.auc) else self.best.auc)
        if better:
            self.best = Best(self._weights(), value, step, iterate)

    @torch.no_grad()
    def _weights(self) -> dict[str, Tensor]:
        state = self.model.state_dict()
        return {name: x.clone() for name, x in state.items() if isinstance(x, Tensor)}
