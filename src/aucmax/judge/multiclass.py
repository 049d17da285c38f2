"""What can be computed from scored test rows of several classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.checks import check_finite
from aucmax.judge.binary import BinaryRows, Floats


@dataclass(frozen=True, eq=False)
class MulticlassRows:
    """Test rows of several classes.

    Attributes:
        probability: of each class, (rows, classes).
        classes: the true ones.
        level: of all intervals.
        labels: of the classes.
    """

    probability: Floats
    classes: NDArray[np.int64]
    level: float
    labels: Sequence[str]

    def __post_init__(self) -> None:
        p, y, count = self.probability, self.classes, len(self.labels)
        if len(set(self.labels)) < count:
            raise ValueError(f"labels must be a list without repeats, found {list(self.labels)!r}")
        if y.ndim != 1 or p.shape != (len(y), count):
            raise ValueError(
                f"probability must have a line per row and a column per label, found {p.shape} for "
                f"{y.shape} classes and {count} labels"
            )
        check_finite("probability", p)
        if p.min() < 0 or not np.allclose(p.sum(axis=1), 1, atol=1e-6):
            raise ValueError(
                "probability must add up to 1 in every row, found other sums or less than 0"
            )
        if (there := np.unique(y).tolist()) != list(range(count)):
            raise ValueError(f"classes must hold 0 to {count - 1}, found {there[:9]}")

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The class with the largest probability."""
        return np.asarray(self.probability.argmax(axis=1))

    @cached_property
    def confusion(self) -> NDArray[np.int64]:
        """How many rows of each class, by line, get which label, by column."""
        count = len(self.labels)
        pairs = np.bincount(self.classes * count + self.predicted, minlength=count * count)
        return pairs.reshape(count, count)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many rows have each label."""
        return tuple(self.confusion.sum(axis=1).tolist())

    def one_against_rest(self, k: int) -> BinaryRows:
        """The rows with class k as the positive one."""
        yes = self.labels[k]
        return BinaryRows(self.probability[:, k], self.classes == k, 0.5, self.level, "other", yes)

    def right_or_wrong(self) -> BinaryRows:
        """The probability of the predicted label, and whether it is the true one."""
        right = self.predicted == self.classes
        return BinaryRows(self.probability.max(axis=1), right, 0.5, self.level, "wrong", "right")


class ClassResult(NamedTuple):
    """How well a class is told from all others; ``place`` is its own among them."""

    place: int
    label: str
    rows: int
    auc: float
    low: float
    high: float
    precision: float | None
    recall: float


def class_results(rows: MulticlassRows) -> list[ClassResult]:
    """Each class against the rest, with DeLong's interval."""
    results = []
    for k, label in enumerate(rows.labels):
        auc = metrics.roc_auc_interval(rows.probability[:, k], rows.classes == k, rows.level)
        hits, said, true = rows.confusion[k, k], rows.confusion[:, k].sum(), rows.confusion[k].sum()
        precision = float(hits / said) if said else None
        results.append(ClassResult(k, label, int(true), *auc[:3], precision, float(hits / true)))
    return results


def mistakes(rows: MulticlassRows, most: int) -> list[tuple[str, str, int, int]]:
    """The most frequent ones: truth, what was said, how often, and of how many rows."""
    wrong = rows.confusion * (1 - np.eye(len(rows.labels), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [divmod(int(place), len(rows.labels)) for place in order]
    return [
        (rows.labels[i], rows.labels[j], int(wrong[i, j]), rows.counts[i])
        for i, j in pairs
        if wrong[i, j]
    ]
