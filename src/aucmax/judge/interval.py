"""Numbers with their confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A number with its confidence interval."""

    value: float
    low: float
    high: float
    level: float = 0.95

    @classmethod
    def of_auc(cls, scores: Floats, classes: NDArray[np.int64], level: float = 0.95) -> Interval:
        """The AUC with DeLong's interval; of several classes, Hand and Till's."""
        of_rows = metrics.roc_auc_interval if scores.ndim == 1 else metrics.hand_till_interval
        auc = of_rows(scores, classes, level)
        return cls(auc.auc, auc.low, auc.high, level)


def wilson(hits: Floats, rows: int | Floats, level: float) -> tuple[Floats, Floats]:
    """Wilson's interval of a share; it stays in [0, 1] and is no point at its ends."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    rate = hits / rows
    middle = rate + z * z / (2 * rows)
    half = z * np.sqrt(rate * (1 - rate) / rows + z * z / (4 * rows * rows))
    low, high = ((middle + side) / (1 + z * z / rows) for side in (-half, half))
    return np.where(hits == 0, 0.0, low.clip(0, 1)), np.where(hits == rows, 1.0, high.clip(0, 1))
