"""What can be computed from scored test rows of several classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax.judge.binary import BinaryRows
from aucmax.judge.interval import Floats, Interval


@dataclass(frozen=True, eq=False)
class MulticlassRows:
    """Test rows of several classes.

    Attributes:
        probability: of each class, (rows, classes).
        classes: the true ones.
        level: of all intervals.
        labels: of the classes.
        weight: of the rows, one on average; None if all are alike. What is a share or a rate is by
            weight, ``counts`` are of rows.
    """

    probability: Floats
    classes: NDArray[np.int64]
    level: float
    labels: Sequence[str]
    weight: Floats | None = None

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """The class with the largest probability."""
        return np.asarray(self.probability.argmax(axis=1))

    @cached_property
    def confusion(self) -> NDArray[Any]:
        """How many rows of each class, by line, get which label, by column; or their weight."""
        count = len(self.labels)
        places = self.classes * count + self.predicted
        pairs = np.bincount(places, self.weight, minlength=count * count)
        return pairs.reshape(count, count)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many rows have each label."""
        return tuple(np.bincount(self.classes, minlength=len(self.labels)).tolist())

    def one_against_rest(self, k: int) -> BinaryRows:
        """The rows with class k as the positive one."""
        about = 0.5, self.level, "other", self.labels[k], self.weight
        return BinaryRows(self.probability[:, k], self.classes == k, *about)

    def right_or_wrong(self) -> BinaryRows:
        """The probability of the predicted label, and whether it is the true one."""
        right = self.predicted == self.classes
        about = 0.5, self.level, "wrong", "right", self.weight
        return BinaryRows(self.probability.max(axis=1), right, *about)


class ClassResult(NamedTuple):
    """How well a class is told from all others, with DeLong's interval of the AUC."""

    auc: Interval
    precision: float | None
    recall: float


def class_results(rows: MulticlassRows) -> list[ClassResult]:
    """Each class against the rest."""
    results = []
    for k, count in enumerate(rows.confusion.sum(axis=1).tolist()):
        about = rows.classes == k, rows.level, rows.weight
        auc = Interval.of_auc(rows.probability[:, k], *about)
        hits, predicted = float(rows.confusion[k, k]), float(rows.confusion[:, k].sum())
        results.append(ClassResult(auc, hits / predicted if predicted else None, hits / count))
    return results


def mistakes(rows: MulticlassRows, most: int) -> list[tuple[str, str, int, int]]:
    """The most frequent ones: truth, what was said, how often, and of how many rows."""
    confusion = np.rint(rows.confusion).astype(np.int64)
    wrong = confusion * (1 - np.eye(len(rows.labels), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [divmod(int(place), len(rows.labels)) for place in order]
    return [
        (rows.labels[i], rows.labels[j], int(wrong[i, j]), int(confusion[i].sum()))
        for i, j in pairs
        if wrong[i, j]
    ]
