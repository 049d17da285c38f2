"""What training gives back, and how it fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from aucmax.train.metrics import ROC_AUC


class DivergedError(ArithmeticError):
    """The loss or a gradient is NaN or infinite; the model holds its last good weights."""

    steps_ago = 0
    among_fresh_samples = False
    bad_inputs = False


@dataclass(frozen=True)
class Candidate:
    """An objective that was tried, and how it did beside the chosen one.

    Attributes:
        objective: its name.
        score: the validation metric of its weights; nan if it diverged.
        behind: by how much that is less than the chosen one's.
        p_value: of a paired test whether the two differ; nan where there is none.
        chosen: whether it is the chosen one.
        failed: why there is no score, if there is none.
        seconds: that it was trained; nan if it diverged.
    """

    objective: str
    score: float
    behind: float
    p_value: float
    chosen: bool
    failed: str = ""
    seconds: float = math.nan

    @property
    def verdict(self) -> str:
        """What a paired test says of it beside the chosen one, for people to read."""
        if self.chosen:
            return "chosen"
        if self.failed:
            return "diverged"
        if math.isnan(self.p_value):
            return "no test"
        return "a difference" if self.p_value < 0.05 else "no difference seen"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, which has no nan."""
        return {
            name: None if isinstance(x, float) and math.isnan(x) else x
            for name, x in vars(self).items()
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Candidate:
        """What :meth:`to_dict` was given of."""
        known: dict[str, Any] = {k: math.nan if x is None else x for k, x in content.items()}
        return cls(**known)

    def __str__(self) -> str:
        if self.chosen:
            return f"objective {self.objective!r} is chosen: {self.score:.4f}"
        if self.failed:
            return f"objective {self.objective!r} diverged: {self.failed}"
        tested = not math.isnan(self.p_value)
        seen = f"{self.verdict}, p = {self.p_value:.2g}" if tested else self.verdict
        return f"objective {self.objective!r}: {self.score:.4f}, {self.behind:.4f} behind ({seen})"


@dataclass(frozen=True)
class FitResult:
    """What :func:`aucmax.fit` has made.

    Attributes:
        model: the model that was passed, with the chosen weights, in evaluation mode.
        loss: the loss it was trained with, with a, b and alpha of the end.
        score: value of the metric for the chosen weights on the validation data; nan if there was
            none to choose by.
        metric: the name of that metric.
        step: the step after which the weights were taken.
        iterate: "last" or "average": which of the two iterates they are.
        steps: how many steps were taken in all.
        reason: why training ended.
        history: a record per evaluation, as in ``history.jsonl``.
        out: the folder of the run, or None.
        objective: the name of the objective, None for a loss of the caller's own.
        candidates: what ``objective="auto"`` tried, the best first; the weights are chosen on the
            same rows, so scores and p-values flatter the chosen one a little.

    Example:
        >>> import torch, aucmax
        >>> x, y = torch.randn(64, 3), torch.tensor([1.0, 0.0] * 32)
        >>> result = aucmax.fit(torch.nn.Linear(3, 1), (x, y), (x, y), steps=4, progress=False)
        >>> result.steps, result.reason
        (4, 'all steps taken')
    """

    model: nn.Module = field(repr=False)
    loss: nn.Module = field(repr=False)
    score: float
    metric: str
    step: int
    iterate: str
    steps: int
    reason: str
    history: list[dict[str, Any]] = field(repr=False)
    out: Path | None = None
    objective: str | None = None
    candidates: tuple[Candidate, ...] = field(default=(), repr=False)

    @property
    def auc(self) -> float:
        """The validation AUC of the chosen weights; nan if another metric has chosen them."""
        return self.score if self.metric == ROC_AUC.name else math.nan
