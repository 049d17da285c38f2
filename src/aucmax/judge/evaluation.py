"""What the page of a classifier shows, as numbers: all of it is computed from its test rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.checks import check_finite, check_labels, number

Floats = NDArray[np.float64]
COST_RATIOS = (1, 5, 20)
"""How many false alarms a missed positive may cost."""
FLAGGED = (0.25, 0.5, 1, 1.5, 2, 4, 8)
"""Rows flagged, as multiples of the positives, at which a threshold is shown."""
NEAR = 0.1  # a threshold whose share of flagged rows differs by less than this part is not shown
MOST_GROUPS, LEAST_ROWS = 10, 20  # of a calibration curve; rows in each of its groups
FINEST = 400  # cells of a curve's axis in which one point is kept
NEEDED = (
    "target",
    "labels",
    "rows",
    "positives",
    "probability",
    "classes",
    "auc",
    "peers",
    "history",
    "threshold",
    "importance",
    "columns",
    "notes",
    "seconds",
    "command",
    "made",
)


@dataclass(frozen=True)
class Held:
    """Held-out rows: the positive label's probability and the truth.

    Attributes:
        probability: of the positive label.
        positive: whether a row has it.
        threshold: the probability from which a row is flagged.
        level: of all intervals.
        no: the negative label.
        yes: the positive label.
    """

    probability: Floats
    positive: NDArray[np.bool_]
    threshold: float
    level: float
    no: str
    yes: str

    @property
    def base_rate(self) -> float:
        """The share of positives."""
        return float(self.positive.mean())


class Counts(NamedTuple):
    """What becomes of the rows if those from a threshold on are flagged."""

    found: int
    alarms: int
    missed: int
    left: int

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(self)

    @property
    def flagged(self) -> float:
        """The share of all rows that is flagged."""
        return (self.found + self.alarms) / self.rows

    @property
    def precision(self) -> float | None:
        """The share of positives among the flagged; None if there are none."""
        flagged = self.found + self.alarms
        return self.found / flagged if flagged else None

    @property
    def recall(self) -> float:
        """The share of the positives that is flagged."""
        return self.found / (self.found + self.missed)

    @property
    def specificity(self) -> float:
        """The share of the negatives that is left alone."""
        return self.left / (self.left + self.alarms)

    def cost(self, ratio: float) -> float:
        """Per 1,000 rows, in false alarms, if a missed positive costs ``ratio`` of them."""
        return 1000 * (self.alarms + ratio * self.missed) / self.rows


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


class Point(NamedTuple):
    """An evaluation during training."""

    step: float
    auc: float
    iterate: str


def held(evaluation: Mapping[str, Any]) -> Held:
    """The test rows of an evaluation; what cannot be right is refused."""
    check_names(evaluation, NEEDED)
    labels = evaluation["labels"]
    if isinstance(labels, str) or len(labels) != 2:
        raise ValueError(f"labels must be the negative and the positive one, found {labels!r}")
    p, positive = _test_rows(evaluation)
    level = checked_level(evaluation["auc"])
    threshold = _probability("threshold", evaluation["threshold"])
    return Held(p, positive, threshold, level, *map(str, labels))


def check_names(evaluation: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Refuse an evaluation that lacks something."""
    if missing := [name for name in needed if name not in evaluation]:
        raise ValueError(f"evaluation must hold {', '.join(needed)}, found no {', '.join(missing)}")


def checked_level(auc: Mapping[str, Any]) -> float:
    """The level of the interval of an AUC, if all its numbers can be right."""
    for name in ("value", "low", "high"):
        _probability(f"auc[{name!r}]", auc[name])
    inside = "a number strictly between 0 and 1"
    return number("auc['level']", auc["level"], inside, lambda x: 0 < x < 1)


def _test_rows(evaluation: Mapping[str, Any]) -> tuple[Floats, NDArray[np.bool_]]:
    """Their probabilities, and which are positive."""
    p = np.asarray(evaluation["probability"], np.float64)
    y = np.asarray(evaluation["classes"])
    if p.ndim != 1 or p.shape != y.shape:
        raise ValueError(
            f"probability and classes must have one number per row, found {p.shape} and {y.shape}"
        )
    check_finite("probability", p)
    _check_counts(evaluation, len(y), check_labels(y))
    if not 0 <= p.min() <= p.max() <= 1:
        raise ValueError(f"probability must be from 0 to 1, found {p.min():g} to {p.max():g}")
    return p, y == 1


def _probability(name: str, value: object) -> float:
    return number(name, value, "a number from 0 to 1", lambda x: 0 <= x <= 1)


def _check_counts(evaluation: Mapping[str, Any], rows: int, positives: int) -> None:
    """Both classes are there, and as often as is said."""
    if positives in (0, rows):
        raise ValueError(
            f"classes must hold both 0 and 1, found {positives} positives of {rows} rows"
        )
    for name, found in (("rows", rows), ("positives", positives)):
        if evaluation[name]["test"] != found:
            raise ValueError(
                f"{name}['test'] must be that of classes, {found}, found {evaluation[name]['test']}"
            )


def known(value: Any) -> float | None:
    """A number, or None for one that is not there, not a number or infinite."""
    return float(value) if value is not None and math.isfinite(value) else None


def counts_at(rows: Held, threshold: float) -> Counts:
    """The confusion matrix if rows with this probability and above are flagged."""
    flagged = rows.probability >= threshold
    found, alarms = int((flagged & rows.positive).sum()), int((flagged & ~rows.positive).sum())
    positives = int(rows.positive.sum())
    return Counts(found, alarms, positives - found, len(flagged) - positives - alarms)


def wilson(hits: Floats, rows: int | Floats, level: float) -> tuple[Floats, Floats]:
    """Wilson's interval of a share; it stays in [0, 1] and is no point at its ends."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    rate = hits / rows
    middle = rate + z * z / (2 * rows)
    half = z * np.sqrt(rate * (1 - rate) / rows + z * z / (4 * rows * rows))
    low, high = ((middle + side) / (1 + z * z / rows) for side in (-half, half))
    return np.where(hits == 0, 0.0, low.clip(0, 1)), np.where(hits == rows, 1.0, high.clip(0, 1))


def curves(rows: Held) -> Curves:
    """Both curves, from the highest threshold to the lowest.

    The ROC's band: at each threshold, both rates have an interval of the level's root, so that
    the rectangle of both holds the true point at this threshold with the level. The band is what
    all rectangles cover.
    """
    fpr, tpr, _ = metrics.roc_curve(rows.probability, rows.positive)
    positives = int(rows.positive.sum())
    negatives = len(rows.positive) - positives
    hits, alarms = np.rint(tpr * positives), np.rint(fpr * negatives)
    precision = hits[1:] / (hits[1:] + alarms[1:])
    precision = np.append(precision[0], precision)
    kept = _kept(fpr, tpr) | _kept(tpr, precision)
    level = math.sqrt(rows.level)
    bands = *wilson(alarms, negatives, level), *wilson(hits, positives, level)
    return Curves(*(x[kept] for x in (fpr, tpr, *bands, tpr, precision)))


def _kept(x: Floats, y: Floats) -> NDArray[np.bool_]:
    """Points to draw: the first in each cell of a fine grid, the one before it, and the last."""
    cells = np.rint(FINEST * np.stack([x, y]))
    first = np.append(True, (cells[:, 1:] != cells[:, :-1]).any(axis=0))
    kept: NDArray[np.bool_] = first | np.append(first[1:], True)
    return kept


def groups(rows: Held) -> list[Group]:
    """A calibration curve: groups of about as many rows each, in which equal ones stay together."""
    order = np.argsort(rows.probability, kind="stable")
    p, y = rows.probability[order], rows.positive[order]
    wanted = min(MOST_GROUPS, max(1, len(p) // LEAST_ROWS))
    cuts = np.arange(1, wanted) * len(p) // wanted
    starts, ends = (np.searchsorted(p, p[cuts], side) for side in ("left", "right"))
    cuts = np.where(cuts - starts <= ends - cuts, starts, ends)  # the nearer end of a run of equals
    edges = np.unique([0, *cuts, len(p)])
    return [_group(p[start:end], y[start:end], rows.level) for start, end in pairwise(edges)]


def _group(p: Floats, y: NDArray[np.bool_], level: float) -> Group:
    positives, rows = int(y.sum()), len(p)
    low, high = wilson(np.array(float(positives)), rows, level)
    return Group(float(p.mean()), positives / rows, float(low), float(high), rows, positives)


def thresholds(rows: Held) -> list[float]:
    """Some that differ in what they flag, the highest first, the model's own among them.

    Those at which the expected costs are least if the probabilities are right, 1 / (1 + ratio),
    and those that flag so many rows as there are positives, or a multiple. The two that flag
    nothing and everything are left out.
    """
    ranked = np.sort(rows.probability)[::-1]
    places = [round(times * rows.base_rate * len(ranked)) - 1 for times in FLAGGED]
    wanted = [1 / (1 + ratio) for ratio in COST_RATIOS]
    wanted += [float(ranked[max(0, place)]) for place in places if place < len(ranked)]
    found = {rows.threshold: counts_at(rows, rows.threshold).flagged}
    for threshold in map(tidy, wanted):
        flagged = counts_at(rows, threshold).flagged
        near = any(abs(flagged - other) <= NEAR * other for other in found.values())
        if 0 < flagged < 1 and not near:
            found[threshold] = flagged
    return sorted(found, reverse=True)


def tidy(probability: float) -> float:
    """Rounded to two digits, those of the distance to 1 if that is nearer."""
    edge = min(probability, 1 - probability)
    return round(probability, 1 - math.floor(math.log10(edge))) if edge > 0 else probability


def evaluations(history: Sequence[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """The validation AUCs of each iterate that has some."""
    found: dict[str, list[Point]] = {}
    for record in history:
        for iterate in ("last", "average"):
            auc = known(record.get(f"valid_auc_{iterate}"))
            if auc is not None:
                found.setdefault(iterate, []).append(Point(record["step"], auc, iterate))
    return found


def chosen(points: Mapping[str, Sequence[Point]]) -> Point | None:
    """The best of all, the first of equals: training keeps its weights."""
    every = [point for line in points.values() for point in line]
    order = {"last": 0, "average": 1}
    return min(every, key=lambda x: (-x.auc, x.step, order[x.iterate]), default=None)
