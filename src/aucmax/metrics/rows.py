"""Scores, labels, weights and groups as the metrics read them: checked once, on any device."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aucmax.checks import check_finite, check_labels, check_weights
from aucmax.row_groups import number_groups

Values: TypeAlias = Tensor | npt.ArrayLike
Array: TypeAlias = Any  # a NumPy array, or a tensor on an accelerator
Floats: TypeAlias = npt.NDArray[np.float64]

SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
"""Values looked up on both sides of ties: the mean of the two places counts a tie one half."""
HOSTS = ("cpu", "mps")
"""Devices whose rows NumPy sorts; MPS has no float64."""
ORDER = "the order is (scores, target), that of other libraries (y_true, y_score)"


class Rows(NamedTuple):
    """Checked rows of weight above zero: NumPy arrays, or tensors if they are on an accelerator.

    Attributes:
        scores: (N,), in the precision they came in; (N, c) for several classes.
        label: Whether a row is positive, bool (N,); for several classes their numbers.
        weight: Float64 (N,); None counts rows alike.
        group: The number of the group that each row is ranked within; None without groups.
        cluster: The number of the cluster that each row was drawn with; None without clusters.
    """

    scores: Array
    label: Array
    weight: Array | None = None
    group: Array | None = None
    cluster: Array | None = None

    def relative_weight(self) -> Array:
        """Return the weights over the largest, ones without weights."""
        if self.weight is not None:
            return self.weight / self.weight.max()
        if isinstance(self.scores, Tensor):
            return torch.ones_like(self.scores, dtype=torch.float64)
        return np.ones(len(self.scores))

    def on_host(self) -> Rows:
        """Return the same rows as NumPy arrays."""
        return Rows(*(x.numpy(force=True) if isinstance(x, Tensor) else x for x in self))


def read_rows(
    scores: Values,
    target: Values,
    weight: Values | None = None,
    group: Values | None = None,
    cluster: Values | None = None,
    *,
    name: str = "scores",
    group_name: str = "group",
) -> Rows:
    """Check rows of two classes, and drop those of weight zero.

    Rows stay on an accelerator if scores, labels and weights all are there. What is wrong with them
    is found by one read of the device; the check on the host then raises as it does for others.

    Args:
        scores: (N,) or (N, 1), finite.
        target: Labels 0 and 1.
        weight: Finite, at least 0, some above.
        group: The group that each row is ranked within.
        cluster: The cluster that each row was drawn with, ``groups`` in errors.
        name: What errors call the scores.
        group_name: What errors call the groups.
    """
    rows = _read_on_accelerator(scores, target, weight)
    if rows is None:
        x = read_column(scores, name, target=target)
        y = read_column(target, "target", len(x))
        _check_binary(y, x, name)
        rows = Rows(x, y == 1, read_weight(weight, len(x)))
    return drop_weightless(
        rows._replace(
            group=read_groups(group, group_name, rows.scores),
            cluster=read_groups(cluster, "groups", rows.scores),
        )
    )


def read_groups(groups: Values | None, name: str, scores: Array) -> Array | None:
    """Number the groups of the rows of scores, where these are."""
    if groups is None:
        return None
    number = number_groups(groups, name, len(scores))
    on_device = isinstance(scores, Tensor)
    return number.to(scores.device) if on_device else number.numpy(force=True)


def drop_weightless(rows: Rows) -> Rows:
    """Drop the rows of weight zero."""
    if rows.weight is None or not len(rows.weight) or bool((kept := rows.weight > 0).all()):
        return rows
    return Rows(*(None if x is None else x[kept] for x in rows))


def _read_on_accelerator(scores: Values, target: Values, weight: Values | None) -> Rows | None:
    """Read tensors of an accelerator; None if the host is to read, or to say what is wrong."""
    tensors = [x.detach() for x in (scores, target, weight) if isinstance(x, Tensor)]
    if len(tensors) != 2 + (weight is not None) or tensors[0].device.type in HOSTS:
        return None
    columns = [x[:, 0] if x.shape[1:] == (1,) else x for x in tensors]
    x, y = columns[:2]
    if x.ndim != 1 or not len(x) or not x.is_floating_point():
        return None
    if any(c.shape != x.shape or c.device != x.device or c.is_complex() for c in columns):
        return None
    positive, w = y == 1, columns[2].double() if weight is not None else None
    good = torch.stack(x.aminmax()).isfinite().all() & (positive | (y == 0)).all()  # with NaN, NaN
    if w is not None:
        good &= (w.isfinite() & (w >= 0)).all() & w.any()
    return Rows(x, positive, w) if bool(good) else None


def _check_binary(target: Array, scores: Array, name: str) -> None:
    """Raise unless labels are 0 and 1; name swapped arguments where the labels show it."""
    try:
        check_labels(target)
    except ValueError as error:
        if len(scores) and np.isin(scores, (0, 1)).all():
            raise ValueError(f"{error}, and {name} hold 0 and 1 only: {ORDER}") from None
        if name != "scores":
            raise ValueError(f"{error}; the order is (a, b, target)") from None
        raise


def read_column(
    values: Values, name: str, rows: int | None = None, *, target: Values | None = None
) -> Array:
    """Read an array (N,), of ``rows`` rows if told; ``target`` are the labels of scores."""
    array = read_array(values, name)
    array = array[:, 0] if array.shape[1:] == (1,) else array
    if array.ndim != 1:
        hint = ""
        if name == "weight":
            hint = "; options such as max_fpr, fpr, share, k and mean are keywords"
        elif target is not None and array.ndim == 2 and np.ndim(target) == 1:
            hint = "; several classes have metrics.hand_till"
            if array.shape[1] == 2:
                hint = "; the scores of the positives are column 1, [:, 1]"
        raise ValueError(f"{name} must have shape (N,) or (N, 1), found {tuple(array.shape)}{hint}")
    if rows not in (None, len(array)):
        raise ValueError(f"{name} must have one row per score, found {len(array)} for {rows}")
    return array


def read_weight(weight: Values | None, rows: int) -> Floats | None:
    """Read the weights of so many rows, in float64."""
    if weight is None:
        return None
    w: Floats = read_column(weight, "weight", rows).astype(np.float64)
    if rows:
        check_weights(w)
    return w


def read_array(values: Values, name: str) -> Array:
    """Read an array of finite real numbers, in the precision they came in.

    NumPy lacks bfloat16; float32 holds every type this small exactly.
    """
    if isinstance(values, Tensor):
        values = values.detach()
        values = (values.float() if values.itemsize < 4 else values).numpy(force=True)
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, found dtype {array.dtype}")
    check_finite(name, array)
    return array


def has_both_classes(rows: Rows) -> bool:
    """Return whether both classes have rows; warn if not, and raise without any row."""
    count, positives = len(rows.label), int(rows.label.sum())
    if not count:
        raise ValueError("scores must have at least one row, found none")
    if positives not in (0, count):
        return True
    warn_undefined(f"target has {positives} positives and {count - positives} negatives")
    return False


def warn_undefined(reason: str) -> None:
    """Warn that the result is nan."""
    warn_caller(f"the result is nan: {reason}")


def warn_caller(message: str) -> None:
    """Warn at the line that called into this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("aucmax.metrics"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def rank(scores: Array) -> tuple[Tensor, Tensor]:
    """Return the rows from the highest score down, and where in them each distinct score ends."""
    if isinstance(scores, Tensor):
        ranked, order = scores.sort(descending=True)
        ends = torch.ones_like(order, dtype=torch.bool)
        torch.ne(ranked[1:], ranked[:-1], out=ends[:-1])
        return order, ends.nonzero().flatten()
    down = np.argsort(scores)[::-1].copy()
    ranked = scores[down]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    return torch.from_numpy(down), torch.from_numpy(last)


def twice_below(x: Array, others: Array, weight: Array | None = None) -> tuple[Array, Any]:
    """Count ``others`` below each ``x``, twice: those below and those not above.

    Both are sorted NumPy arrays, so that values are looked up in neighbouring memory.

    Args:
        x: Scores.
        others: Scores that they are held against.
        weight: Of ``others``; None counts in integers.

    Returns:
        The counts, or sums of weight, and that of all ``others``, once.
    """
    below, not_above = (np.searchsorted(others, x, side=side) for side in SIDES)
    if weight is None:
        return below + not_above, len(others)
    sums = np.append(0.0, np.cumsum(weight))
    return sums[below] + sums[not_above], sums[-1]
