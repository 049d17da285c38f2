"""Logistic regression on numbers and on each category of the codes."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from aucmax.judge.peers import one_hot
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble.base import CrossFitted, Scores, Setting
from aucmax.tables.ensemble.cross_fit import Refitted, Savable, all_used, cross_fit
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows

STRENGTHS = (0.01, 0.1, 1.0)
"""Of the loss against the penalty, scikit-learn's C; the best out of fold is taken."""


@dataclass(frozen=True, eq=False)
class Linear:
    """A weighted sum of numbers, plus a term for each code.

    Attributes:
        weight: (numeric columns, outputs).
        terms: (codes of all columns, outputs).
        starts: (columns of codes,) where the terms of each begin.
        offset: (outputs,).
    """

    weight: NDArray[np.float64]
    terms: NDArray[np.float64]
    starts: NDArray[np.int64]
    offset: NDArray[np.float64]

    def score(self, rows: Encoded) -> Scores:
        """The sums (N, outputs)."""
        scores = rows.numeric.astype(np.float64) @ self.weight + self.offset
        for start, codes in zip(self.starts, rows.categorical.T, strict=True):
            scores += self.terms[start + codes]
        return scores

    def to_plain(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The arrays."""
        return {}, dict(vars(self))

    @classmethod
    def from_plain(cls, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """What :meth:`to_plain` was called on."""
        return cls(**arrays)

    def as_module(self) -> nn.Module:
        """The same from (numeric, codes)."""
        return _Sum(self)


class _Sum(nn.Module):
    weight: Tensor
    terms: Tensor
    starts: Tensor
    offset: Tensor

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        for name, x in vars(linear).items():
            self.register_buffer(name, torch.from_numpy(x))

    def forward(self, columns: tuple[Tensor, Tensor]) -> Tensor:
        """Scores (N, outputs)."""
        numeric, codes = columns
        scores = self.offset
        if len(self.weight):
            scores = scores + numeric.double() @ self.weight
        if len(self.starts):
            scores = scores + self.terms[codes + self.starts].sum(1)
        return scores


class Logistic(Refitted):
    """Logistic regression."""

    kind: ClassVar[str] = "logistic"
    fit_type: ClassVar[type[Savable]] = Linear


def fit_logistic(rows: Rows, folds: Folds, setting: Setting) -> CrossFitted:
    """Fit it to each fold, with the penalty that serves the held-out rows, and to all rows.

    The penalty is chosen by likelihood, which is steadier with few rows than a ranking, and leaves
    the ranking to be judged.

    Raises:
        LeftOutError: if there is too little time.
    """
    began = time.monotonic()
    trials = [
        (strength, *cross_fit(partial(_fit, setting, strength), rows, folds, setting))
        for strength in STRENGTHS
    ]
    strength, fits, scores = min(trials, key=lambda trial: _loss(trial[2], rows, folds))
    whole = fits[0] if folds.count == 1 else _fit(setting, strength, all_used(rows, folds))
    return CrossFitted(Logistic("logistic", whole, fits), scores, time.monotonic() - began)


def _loss(scores: Scores, rows: Rows, folds: Folds) -> float:
    """The mean cross-entropy of rows that were judged; of none, zero."""
    judged = folds.judged
    if not len(judged):
        return 0.0
    logits, classes = torch.from_numpy(scores[judged]), rows.classes[judged]
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    losses = nn.functional.cross_entropy(logits, torch.from_numpy(classes), reduction="none")
    weight = None if rows.weight is None else rows.weight[judged]
    return float(np.average(losses.numpy(), weights=weight))


def _fit(setting: Setting, strength: float, rows: Rows) -> Linear:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    columns = one_hot(*rows.encoded, setting.cardinalities)
    weight = None if rows.weight is None else rows.weight / rows.weight.mean()
    model = LogisticRegression(C=strength, max_iter=200)
    with threadpool_limits(torch.get_num_threads()), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # near enough for a ranking
        model.fit(columns, rows.classes, sample_weight=weight)
    weights = np.ascontiguousarray(model.coef_.T.astype(np.float64))
    numeric = rows.numeric.shape[1]
    starts = np.cumsum([0, *setting.cardinalities], dtype=np.int64)[:-1]
    offset = model.intercept_.astype(np.float64)
    return Linear(weights[:numeric], weights[numeric:], starts, offset)
