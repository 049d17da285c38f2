"""What can be computed from scored test rows of two classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.judge.interval import Floats, effective_rows, wilson
from aucmax.judge.threshold import Counts

MOST_GROUPS, LEAST_ROWS = 10, 20  # of a calibration curve; rows in each of its groups
FINEST = 400  # cells of a curve's axis in which one point is kept


@dataclass(frozen=True, eq=False)
class BinaryRows:
    """Test rows of two classes: the positive label's probability and the truth.

    Attributes:
        probability: of the positive label.
        positive: whether a row has it.
        threshold: the probability from which a row is flagged.
        level: of all intervals.
        no: the negative label.
        yes: the positive label.
        weight: of the rows, one on average; None if all are alike. What is a share, a rate or a
            cost is by weight, ``counts`` are of rows.
    """

    probability: Floats
    positive: NDArray[np.bool_]
    threshold: float
    level: float
    no: str
    yes: str
    weight: Floats | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """How many rows have each label."""
        positives = int(self.positive.sum())
        return len(self.positive) - positives, positives

    @property
    def base_rate(self) -> float:
        """The share of positives."""
        return float(np.average(self.positive, weights=self.weight))

    @property
    def average_precision(self) -> float:
        """The area below the precision-recall curve."""
        return metrics.average_precision(self.probability, self.positive, self.weight)

    @property
    def at_threshold(self) -> Counts:
        """What becomes of the rows at the model's own threshold."""
        return self.counts_at(self.threshold)

    def counts_at(self, threshold: float) -> Counts:
        """What becomes of the rows if those from this probability on are flagged."""
        flagged = self.probability >= threshold
        kinds = 2 * ~flagged + ~self.positive  # in the order of Counts
        return Counts(*np.bincount(kinds, self.weight, minlength=4).tolist())


class Curves(NamedTuple):
    """ROC and precision-recall curve with the corners of the ROC's band, few enough to draw."""

    fpr: Floats
    tpr: Floats
    fpr_low: Floats
    fpr_high: Floats
    tpr_low: Floats
    tpr_high: Floats
    recall: Floats
    precision: Floats


class Group(NamedTuple):
    """Rows with neighbouring probabilities: their mean, and how many are positive."""

    predicted: float
    observed: float
    low: float
    high: float
    rows: int
    positives: int

    @property
    def agrees(self) -> bool:
        """Whether the mean probability lies in the interval of the observed share."""
        return self.low <= self.predicted <= self.high


def curves(rows: BinaryRows) -> Curves:
    """Both curves, from the highest threshold to the lowest.

    The ROC's band: at each threshold, both rates have an interval of the level's root, so that
    the rectangle of both holds the true point at this threshold with the level. The band is what
    all rectangles cover.
    """
    fpr, tpr, _ = metrics.roc_curve(rows.probability, rows.positive, rows.weight)
    share = rows.base_rate
    precision = share * tpr[1:] / (share * tpr[1:] + (1 - share) * fpr[1:])
    precision = np.append(precision[0], precision)
    drawn = _points_to_draw(fpr, tpr) | _points_to_draw(tpr, precision)
    level = math.sqrt(rows.level)
    w = np.ones(len(rows.positive)) if rows.weight is None else rows.weight
    negatives, positives = effective_rows(w[~rows.positive]), effective_rows(w[rows.positive])
    bands = *wilson(fpr * negatives, negatives, level), *wilson(tpr * positives, positives, level)
    return Curves(*(x[drawn] for x in (fpr, tpr, *bands, tpr, precision)))


def _points_to_draw(x: Floats, y: Floats) -> NDArray[np.bool_]:
    """The first point in each cell of a fine grid, the one before it, and the last of all."""
    cells = np.rint(FINEST * np.stack([x, y]))
    first = np.append(True, (cells[:, 1:] != cells[:, :-1]).any(axis=0))
    return np.asarray(first | np.append(first[1:], True))


def calibration_groups(rows: BinaryRows) -> list[Group]:
    """A calibration curve: groups of about as many rows each, in which equal ones stay together."""
    order = np.argsort(rows.probability, kind="stable")
    p, y = rows.probability[order], rows.positive[order]
    w = np.ones(len(p)) if rows.weight is None else rows.weight[order]
    wanted = min(MOST_GROUPS, max(1, len(p) // LEAST_ROWS))
    cuts = np.arange(1, wanted) * len(p) // wanted
    starts, ends = (np.searchsorted(p, p[cuts], side) for side in ("left", "right"))
    cuts = np.where(cuts - starts <= ends - cuts, starts, ends)  # the nearer end of a run of equals
    groups = []
    for start, end in pairwise(np.unique([0, *cuts, len(p)]).tolist()):
        some = slice(start, end)
        predicted, observed = (float(np.average(x[some], weights=w[some])) for x in (p, y))
        tell_as = effective_rows(w[some])
        low, high = wilson(np.array(observed * tell_as), tell_as, rows.level)
        counts = end - start, int(y[some].sum())
        groups.append(Group(predicted, observed, float(low), float(high), *counts))
    return groups
