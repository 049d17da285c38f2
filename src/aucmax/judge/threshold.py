"""From which probability on a row is flagged, and what becomes of the rows then."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics

COST_RATIOS = (1, 5, 20)
"""How many false alarms a missed positive may cost."""
FLAGGED = (0.25, 0.5, 1, 1.5, 2, 4, 8)
"""Rows flagged, as multiples of the positives, at which a threshold is shown."""
NAMES = ("balanced", "proba")
"""Thresholds of the best balanced accuracy, and of one half."""
RULES: dict[str, Callable[[float], bool]] = {
    "value": lambda x: 0 < x < 1,
    "cost": lambda x: 0 < x < math.inf,
    "recall": lambda x: 0 < x <= 1,
    "precision": lambda x: 0 < x <= 1,
}
"""Thresholds that are told by a number, and which numbers may be."""
ROUNDING = 1e-9
NEAR = 0.1  # a threshold whose share of flagged rows differs by less than this part is not shown


class Counts(NamedTuple):
    """What becomes of the rows if those from a threshold on are flagged; with weights, by weight.

    Attributes:
        hits: positives that are flagged.
        false_alarms: negatives that are flagged.
        missed: positives that are not.
        left_alone: negatives that are not.
    """

    hits: float
    false_alarms: float
    missed: float
    left_alone: float

    @property
    def rows(self) -> float:
        """All of them."""
        return sum(self)

    @property
    def flagged(self) -> float:
        """The share of all rows that is flagged."""
        return (self.hits + self.false_alarms) / self.rows

    @property
    def precision(self) -> float | None:
        """The share of positives among the flagged; None if there are none."""
        flagged = self.hits + self.false_alarms
        return self.hits / flagged if flagged else None

    @property
    def recall(self) -> float:
        """The share of the positives that is flagged."""
        return self.hits / (self.hits + self.missed)

    @property
    def specificity(self) -> float:
        """The share of the negatives that is left alone."""
        return self.left_alone / (self.left_alone + self.false_alarms)

    def cost(self, ratio: float) -> float:
        """Per 1,000 rows, in false alarms, if a missed positive costs ``ratio`` of them."""
        return 1000 * (self.false_alarms + ratio * self.missed) / self.rows


class Rule(NamedTuple):
    """How a threshold is chosen: what is asked for, and how much of it."""

    kind: str
    value: float = math.nan

    @classmethod
    def read(cls, threshold: object) -> Rule:
        """The rule that a user means by a number, a name or a text such as ``recall=0.9``.

        Example:
            >>> Rule.read("recall=0.9"), Rule.read(0.3), str(Rule.read("cost=5"))
            (Rule(kind='recall', value=0.9), Rule(kind='value', value=0.3), 'cost=5')
        """
        text = str(threshold).replace(" ", "")
        kind, _, value = text.rpartition("=")
        with suppress(ValueError, KeyError):
            if not isinstance(threshold, bool) and RULES[kind or "value"](float(value)):
                return cls(kind or "value", float(value))
        if text in NAMES:
            return cls(text)
        raise ValueError(
            f"threshold must be {', '.join(map(repr, NAMES))}, a probability between 0 and 1, "
            f"'cost=R' with R > 0, 'recall=S' or 'precision=S' with a share S, found {threshold!r}"
        )

    def __str__(self) -> str:
        if self.kind in NAMES:
            return self.kind
        return f"{'' if self.kind == 'value' else self.kind + '='}{self.value:g}"

    @property
    def needs_rows(self) -> bool:
        """Whether rows with a known outcome decide."""
        return self.kind in ("balanced", "recall", "precision")

    def threshold(
        self,
        probability: NDArray[np.float64],
        classes: NDArray[np.int64],
        weight: NDArray[Any] | None = None,
    ) -> float:
        """The probability from which on the second class is predicted.

        Args:
            probability: of rows whose outcome is known.
            classes: of those rows.
            weight: of those rows.
        """
        if self.kind == "value":
            return self.value
        if self.kind == "cost":
            return 1 / (1 + self.value)  # expected costs are least there if probabilities are right
        if self.kind == "proba" or len(np.unique(classes)) < 2:
            return 0.5
        curve = metrics.roc_curve(probability, classes, weight)
        share = float(np.average(classes == 1, weights=weight))
        if self.kind == "balanced":
            chosen = int(np.argmax(curve.tpr - curve.fpr))
        elif self.kind == "recall":
            chosen = int(np.argmax(curve.tpr >= self.value - ROUNDING))  # the first: flags least
        else:
            hits = share * curve.tpr[1:]
            precision = hits / (hits + (1 - share) * curve.fpr[1:])
            best = float(precision.max())
            if best < self.value - ROUNDING:
                warnings.warn(
                    f"precision {self.value:g} is not reached on the {len(classes):,} rows that "
                    f"choose the threshold: the best there is {best:.3g}, and is taken",
                    UserWarning, stacklevel=2,
                )  # fmt: skip
            wanted = min(self.value, best) - ROUNDING
            chosen = 1 + int(np.flatnonzero(precision >= wanted)[-1])  # the last: finds most
        cut = min(float(curve.thresholds[chosen]), float(probability.max()))
        below = probability[probability < cut]
        # Between two scores, so that rounding in another process changes no prediction.
        return (cut + (float(below.max()) if len(below) else 0.0)) / 2


def thresholds_to_show(
    probability: NDArray[np.float64], positive: NDArray[np.bool_], own: float
) -> list[float]:
    """Some that differ in what they flag, the highest first, the model's own among them.

    Those at which the expected costs are least if the probabilities are right, 1 / (1 + ratio),
    and those that flag as many rows as there are positives, or a multiple. The two that flag
    nothing and everything are left out.
    """

    def share_flagged(threshold: float) -> float:
        return float((probability >= threshold).mean())

    ranked = np.sort(probability)[::-1]
    places = [round(times * positive.sum()) - 1 for times in FLAGGED]
    wanted = [1 / (1 + ratio) for ratio in COST_RATIOS]
    wanted += [float(ranked[max(0, place)]) for place in places if place < len(ranked)]
    shown = {own: share_flagged(own)}
    for threshold in map(two_digits, wanted):
        flagged = share_flagged(threshold)
        near = any(abs(flagged - other) <= NEAR * other for other in shown.values())
        if 0 < flagged < 1 and not near:
            shown[threshold] = flagged
    return sorted(shown, reverse=True)


def two_digits(probability: float) -> float:
    """Rounded to two digits, those of the distance to 1 if that is nearer."""
    edge = min(probability, 1 - probability)
    return round(probability, 1 - math.floor(math.log10(edge))) if edge > 0 else probability
