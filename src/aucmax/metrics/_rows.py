"""What the metrics are given: read, checked, and counted from the highest score down."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from aucmax.checks import check_finite, check_labels, check_weights
from aucmax.row_groups import number_groups

Values: TypeAlias = Tensor | npt.ArrayLike
Array: TypeAlias = Any  # a NumPy array, or a tensor on a GPU where the code reads the same
Floats: TypeAlias = npt.NDArray[np.float64]


class Rows(NamedTuple):
    """Scores, which of them are positive, weights above zero and groups if any; (N,) each."""

    scores: Array
    positive: Array
    weight: Array | None
    group: Array = None  # their numbers, from 0

    def by_class(self) -> tuple[Array, Array]:
        """The scores of the positives and of the negatives."""
        up, down = np.where(self.positive), np.where(~self.positive)  # faster than by a mask
        return self.scores[up], self.scores[down]

    def counts_above(self) -> tuple[Floats, Floats, Floats]:
        """The weight of positives and of negatives at or above each distinct score, and these.

        The highest score comes first; weights are relative to the largest.
        """
        order, last_of_ties = self.ranked()
        positive = self.positive[order]
        w = np.ones(len(order)) if self.weight is None else self.weight[order] / self.weight.max()
        positives, negatives = (
            np.cumsum(np.where(side, w, 0.0))[last_of_ties] for side in (positive, ~positive)
        )
        thresholds = self.scores[order[last_of_ties]]
        return positives, negatives, thresholds.astype(np.float64)

    def ranked(self) -> tuple[Array, Array]:
        """The rows from the highest score down, and where in them each distinct score ends."""
        order = np.argsort(self.scores)[::-1]
        ranked = self.scores[order]
        return order, np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))


def read_rows(
    scores: Values,
    target: Values,
    weight: Values | None = None,
    name: str = "scores",
    group: Values | None = None,
) -> Rows:
    """The rows, checked; those of weight zero are left out."""
    x = read_column(scores, name)
    y = read_column(target, "target", len(x))
    check_labels(y)
    groups = None if group is None else number_groups(group, rows=len(x)).numpy(force=True)
    if weight is None or not len(x):
        return Rows(x, y == 1, None, groups)
    w = read_column(weight, "weight", len(x)).astype(np.float64)
    check_weights(w)
    kept = w > 0
    return Rows(x[kept], y[kept] == 1, w[kept], None if groups is None else groups[kept])


def read_column(values: Values, name: str, rows: int | None = None) -> Array:
    """An array (N,), of that many rows if the number is given."""
    array = read_array(values, name)
    array = array[:, 0] if array.shape[1:] == (1,) else array
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (N,) or (N, 1), found {array.shape}")
    if rows not in (None, len(array)):
        raise ValueError(f"{name} must have one row per score, found {len(array)} for {rows}")
    return array


def read_array(values: Values, name: str) -> Array:
    """An array of finite real numbers, in the precision they came in."""
    array = np.asarray(widen(values).numpy(force=True) if isinstance(values, Tensor) else values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, found dtype {array.dtype}")
    check_finite(name, array)
    return array


def widen(x: Tensor) -> Tensor:
    """Without bfloat16, which NumPy lacks; float32 holds every type this small exactly."""
    return x.detach().float() if x.itemsize < 4 else x.detach()


def has_both_classes(positive: Array) -> bool:
    """Whether both classes have rows; warns if not, and without any row raises."""
    rows, positives = len(positive), int(np.count_nonzero(positive))
    if not rows:
        raise ValueError("scores must have at least one row, found none")
    if positives not in (0, rows):
        return True
    warn_nan(f"target has {positives} positives and {rows - positives} negatives")
    return False


def warn_nan(reason: str) -> None:
    """Warn that the result is nan, at the line that called into this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("aucmax.metrics"):
        frame, level = frame.f_back, level + 1
    warnings.warn(f"the result is nan: {reason}", UserWarning, stacklevel=level)
