"""Numbers with their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.metrics.uncertainty import confidence_interval

Floats = NDArray[np.float64]
FEWEST = 10
"""Rows of every class, or groups with both, below which models are not compared: what differs may
well be chance."""
NARROW = 0.05
"""Half the width of an interval that is narrow enough to choose a model by."""


@dataclass(frozen=True)
class Interval:
    """A number with its confidence interval."""

    value: float
    low: float
    high: float
    level: float = 0.95

    @classmethod
    def of_auc(
        cls,
        scores: Floats,
        classes: NDArray[np.int64],
        level: float = 0.95,
        weight: Floats | None = None,
        group: NDArray[np.int64] | None = None,
    ) -> Interval:
        """The AUC with DeLong's interval; of several classes, Hand and Till's.

        With ``group``, whole groups are taken as drawn, not rows.
        """
        metric = "roc_auc" if scores.ndim == 1 else "hand_till"
        auc = confidence_interval(scores, classes, metric, level, weight, group)
        return cls(auc.auc, auc.low, auc.high, level)

    @classmethod
    def of_grouped_auc(
        cls,
        scores: Floats,
        classes: NDArray[np.int64],
        group: NDArray[np.int64],
        level: float = 0.95,
        weight: Floats | None = None,
    ) -> Interval:
        """The AUC of pairs within groups, two classes; groups, not rows, are taken as drawn."""
        found = metrics.interval(scores, classes, level=level, weight=weight, rank_within=group)
        return cls(found.value, found.low, found.high, level)


def difference(one: Interval, other: Interval) -> Interval:
    """Of two numbers from different rows, with the interval that theirs give (Newcombe, 1998)."""
    value = one.value - other.value
    low = value - math.hypot(one.value - one.low, other.high - other.value)
    high = value + math.hypot(one.high - one.value, other.value - other.low)
    return Interval(value, low, high, one.level)


def wilson(hits: Floats, rows: float | Floats, level: float) -> tuple[Floats, Floats]:
    """Wilson's interval of a share; it stays in [0, 1] and is no point at its ends."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    rate = hits / rows
    middle = rate + z * z / (2 * rows)
    half = z * np.sqrt(rate * (1 - rate) / rows + z * z / (4 * rows * rows))
    low, high = ((middle + side) / (1 + z * z / rows) for side in (-half, half))
    return np.where(hits == 0, 0.0, low.clip(0, 1)), np.where(hits == rows, 1.0, high.clip(0, 1))


def effective_rows(weight: Floats) -> float:
    """Return how many rows of one weight would tell as much (Kish)."""
    return float(weight.sum() ** 2 / (weight @ weight))


def are_enough(counts: Sequence[int]) -> bool:
    """Whether rows with so many of each class can tell models apart."""
    return min(counts) >= FEWEST


def rows_needed(auc: Interval, counts: Sequence[int], half_width: float = NARROW) -> int:
    r"""About how many rows of the smallest class make an AUC's interval so narrow, to two digits.

    With as many rows of the next larger class for each as there are now. By Hanley and McNeil's
    variance (1982) for m positives and n negatives,

    .. math::
        m n V = A (1 - A) + (m - 1) \Bigl(\frac{A}{2 - A} - A^2\Bigr)
            + (n - 1) \Bigl(\frac{2 A^2}{1 + A} - A^2\Bigr),

    either class being the positive one, whichever asks for more. A is the middle of the interval:
    few rows that are all ranked right would ask for none.

    Args:
        auc: of rows that are too few.
        counts: of the classes among them.
        half_width: of the interval that is wanted.
    """
    smallest, next_larger, *_ = sorted(counts)
    ratio, middle = next_larger / smallest, (auc.low + auc.high) / 2
    variance = (half_width / NormalDist().inv_cdf((1 + auc.level) / 2)) ** 2
    needed = 0.0
    for a in (middle, 1 - middle):
        of_positives, of_negatives = a / (2 - a) - a * a, 2 * a * a / (1 + a) - a * a
        # V = variance is a quadratic equation in m, with n = ratio m.
        first, second = ratio * variance, of_positives + ratio * of_negatives
        rest = a * (1 - a) - of_positives - of_negatives
        needed = max(needed, (second + math.sqrt(second**2 + 4 * first * rest)) / (2 * first))
    unit = int(10 ** max(0, math.floor(math.log10(needed)) - 1))
    return math.ceil(needed / unit) * unit
