"""Groups of rows (patients, sites, sessions, queries): pairs count within one only."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aucmax.data.labels import check_values
from aucmax.row_groups import number_groups

__all__ = ["are_compared", "count_classes", "number_groups"]


def count_classes(
    group: Tensor, labels: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The number of positives and of negatives in each group, or the sums of their weights.

    Args:
        group: numbers of :func:`number_groups`, shape (N,).
        labels: 0 or 1, shape (N,).
        weight: of the rows, shape (N,).

    Returns:
        Two tensors of shape (G,), float64, on the CPU.

    Raises:
        ValueError: if no group has both classes, or what is given does not fit.

    Example:
        >>> import torch
        >>> from aucmax.data import count_classes
        >>> group, labels = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([1, 0, 0, 1, 0])
        >>> count_classes(group, labels)
        (tensor([1., 1.], dtype=torch.float64), tensor([1., 2.], dtype=torch.float64))
    """
    if labels.ndim != 1 or group.shape != labels.shape:
        raise ValueError(
            f"group must have a value for each label of shape (N,), found {tuple(group.shape)} "
            f"and labels of {tuple(labels.shape)}"
        )
    check_values("labels", labels)
    group, y = group.cpu(), labels.cpu().double()
    w = torch.ones_like(y) if weight is None else weight.cpu().double()
    zeros = torch.zeros(int(group.max()) + 1, dtype=torch.float64)
    positives = zeros.index_add(0, group, w * y)
    negatives = zeros.index_add(0, group, w * (1.0 - y))
    if not bool((positives * negatives).any()):
        raise ValueError(
            f"a group must hold both classes, found none among {len(zeros)} groups: "
            f"{int((positives > 0).sum())} with positives alone, "
            f"{int((negatives > 0).sum())} with negatives alone"
        )
    return positives, negatives


def are_compared(group: NDArray[np.int64], classes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each group, by its number, has rows of two classes or more: pairs to compare."""
    low, high = np.full(group.max() + 1, classes.max()), np.zeros(group.max() + 1, np.int64)
    np.minimum.at(low, group, classes)
    np.maximum.at(high, group, classes)
    return np.asarray(low < high)
