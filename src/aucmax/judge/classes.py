"""What the page of a classifier of several classes shows, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.checks import check_finite
from aucmax.judge import evaluation as numbers
from aucmax.judge.evaluation import Floats, Held

NEEDED = tuple(
    "counts" if name == "positives" else name for name in numbers.NEEDED if name != "threshold"
)


@dataclass(frozen=True)
class HeldClasses:
    """Held-out rows of several classes.

    Attributes:
        probability: of each class, (rows, classes).
        classes: the true ones.
        level: of all intervals.
        labels: of the classes.
    """

    probability: Floats
    classes: NDArray[np.int64]
    level: float
    labels: list[str]

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The class with the largest probability."""
        found: NDArray[np.int64] = self.probability.argmax(axis=1)
        return found

    @cached_property
    def confusion(self) -> NDArray[np.int64]:
        """How many rows of each class, by line, get which label, by column."""
        count = len(self.labels)
        pairs = np.bincount(self.classes * count + self.predicted, minlength=count * count)
        return pairs.reshape(count, count)

    def one_against_rest(self, k: int) -> Held:
        """The rows with class k as the positive one."""
        yes = self.labels[k]
        return Held(self.probability[:, k], self.classes == k, 0.5, self.level, "other", yes)

    def right_or_wrong(self) -> Held:
        """The probability of the predicted label, and whether it is the true one."""
        right = self.predicted == self.classes
        return Held(self.probability.max(axis=1), right, 0.5, self.level, "wrong", "right")


class OfClass(NamedTuple):
    """How well a class is told from all others; ``place`` is its own among them."""

    place: int
    label: str
    rows: int
    auc: float
    low: float
    high: float
    precision: float | None
    recall: float


def held_classes(evaluation: Mapping[str, Any]) -> HeldClasses:
    """The test rows of an evaluation; what cannot be right is refused."""
    numbers.check_names(evaluation, NEEDED)
    labels = evaluation["labels"]
    if isinstance(labels, str) or len(set(labels)) < len(labels):
        raise ValueError(f"labels must be a list without repeats, found {labels!r}")
    p = np.asarray(evaluation["probability"], np.float64)
    y = np.asarray(evaluation["classes"])
    if y.ndim != 1 or p.shape != (len(y), len(labels)):
        raise ValueError(
            f"probability must have a line per row and a column per label, found {p.shape} for "
            f"{y.shape} classes and {len(labels)} labels"
        )
    check_finite("probability", p)
    if p.min() < 0 or not np.allclose(p.sum(axis=1), 1, atol=1e-6):
        raise ValueError(
            "probability must add up to 1 in every row, found other sums or less than 0"
        )
    _check_counts(evaluation, y, len(labels))
    return HeldClasses(p, y, numbers.checked_level(evaluation["auc"]), list(map(str, labels)))


def _check_counts(evaluation: Mapping[str, Any], y: NDArray[Any], count: int) -> None:
    """Every class is there, and as often as is said."""
    if sorted(set(y.tolist())) != list(range(count)):
        raise ValueError(f"classes must hold 0 to {count - 1}, found {sorted(set(y.tolist()))[:9]}")
    found = np.bincount(y).tolist()
    for name, right in (("counts", found), ("rows", len(y))):
        if evaluation[name]["test"] != right:
            raise ValueError(
                f"{name}['test'] must be that of classes, {right}, found {evaluation[name]['test']}"
            )


def of_classes(rows: HeldClasses) -> list[OfClass]:
    """Each class against the rest, with DeLong's interval."""
    found = []
    for k, label in enumerate(rows.labels):
        auc = metrics.roc_auc_interval(rows.probability[:, k], rows.classes == k, rows.level)
        hits, said, true = rows.confusion[k, k], rows.confusion[:, k].sum(), rows.confusion[k].sum()
        precision = float(hits / said) if said else None
        found.append(OfClass(k, label, int(true), *auc[:3], precision, float(hits / true)))
    return found


def mistakes(rows: HeldClasses, most: int) -> list[tuple[str, str, int, int]]:
    """The most frequent ones: truth, what was said, how often, and of how many rows."""
    wrong = rows.confusion * (1 - np.eye(len(rows.labels), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [divmod(int(place), len(rows.labels)) for place in order]
    return [
        (rows.labels[i], rows.labels[j], int(wrong[i, j]), int(rows.confusion[i].sum()))
        for i, j in pairs
        if wrong[i, j]
    ]
