"""Labels of data: which task they are for, checks of their values, and counts per class."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from aucmax import checks

TASKS = ("binary", "multiclass", "multilabel")


def as_tensor(name: str, values: Any) -> Tensor:
    """Return an array, data frame or list of numbers as a tensor, and a tensor without gradient."""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, found dtype {array.dtype}")
    if not array.flags.writeable:
        array = array.copy()  # torch has no read-only tensors
    return torch.from_numpy(np.ascontiguousarray(array))


def known_labels(data: Any, labels: Any = None) -> Tensor | None:
    """Return the labels of all rows, or None if only a pass through the data would tell.

    They are ``labels`` if given, else those of ``(x, y)`` arrays or a TensorDataset, else the
    attribute ``targets`` or ``labels`` of a Dataset.
    """
    if labels is None:
        parts = data.tensors if isinstance(data, TensorDataset) else data
        if isinstance(parts, tuple) and len(parts) > 1:
            labels = parts[1]
        elif isinstance(data, Dataset):
            labels = getattr(data, "targets", None)
            labels = getattr(data, "labels", None) if labels is None else labels
    if labels is None:
        return None
    y = as_tensor("labels", labels)
    return y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y


def find_task(task: str, labels: Tensor | None) -> str:
    """Return ``task``, or for "auto" the task that shape, dtype and values of labels suggest."""
    if checks.choice("task", task, ("auto", *TASKS)) != "auto":
        return task
    if labels is None:
        return "binary"
    if labels.ndim == 2:
        return "multilabel"
    whole = not labels.is_floating_point() and labels.dtype != torch.bool
    return "multiclass" if whole and len(labels) and int(labels.max()) > 1 else "binary"


def check_labels(name: str, labels: Tensor, task: str, *, complete: bool = True) -> None:
    """Raise unless labels fit a task: the one check of the labels of whole data.

    Args:
        name: The argument that holds them, for messages.
        labels: Binary (N,) of 0 and 1, multiclass (N,) of integers, or multilabel (N, L) of 0, 1
            and NaN for missing ones.
        task: "binary", "multiclass" or "multilabel".
        complete: Whether each class must occur, as in training data.
    """
    if len(labels) == 0:
        raise ValueError(f"{name} must have rows, found none")
    if task == "multiclass":
        if complete:
            _check_classes(name, labels)
        return
    if labels.ndim != (2 if task == "multilabel" else 1):
        shape = "(N, L)" if task == "multilabel" else "(N,)"
        raise ValueError(f"{task} targets must have shape {shape}, found {tuple(labels.shape)}")
    columns = {name: labels}
    if task == "multilabel":
        columns = {f"label {j} of {name}": y[~y.isnan()] for j, y in enumerate(labels.T)}
    for column, y in columns.items():
        exact = y.float() if y.dtype == torch.bfloat16 else y  # NumPy has no bfloat16
        try:
            ones = checks.check_labels(exact.numpy(force=True))
        except ValueError as error:
            raise ValueError(f"{column}: {error}") from None
        if complete and not 0 < ones < len(y):
            raise ValueError(
                f"{column} must hold both classes, found {ones} positives "
                f"and {len(y) - ones} negatives"
            )


def _check_classes(name: str, labels: Tensor) -> None:
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(
            f"multiclass targets must be integers of shape (N,), "
            f"found {labels.dtype} of shape {tuple(labels.shape)}"
        )
    if int(labels.min()) < 0:
        raise ValueError(f"multiclass targets must be 0 or more, found {int(labels.min())}")
    counts = torch.bincount(labels.cpu().long()).tolist()
    if len(counts) < 2 or 0 in counts:
        raise ValueError(
            f"{name} must hold every class from 0 on, at least two, found counts {counts}"
        )


def warn_of_single_rows(name: str, labels: Tensor, task: str) -> None:
    """Warn if a class has a single row, which supports no general statement."""
    if task == "multilabel":
        return
    counts = torch.bincount(labels.reshape(-1).cpu().long()).tolist()
    if 1 in counts:
        warnings.warn(
            f"{name} has one row of class {counts.index(1)} among {sum(counts):,}: what is learned "
            f"from it, or measured by it, is mostly chance",
            UserWarning,
            stacklevel=2,
        )


def shares(labels: Tensor, weight: Tensor | None, task: str) -> float | list[float]:
    """Return the share of positives, or that of each class, or of each label's positives.

    Weights, (N,) or for several labels also (N, L), count rows by their weight.
    """
    if task == "binary" and weight is None:
        return float(labels.sum(dtype=torch.float64)) / len(labels)
    w = torch.ones(len(labels), dtype=torch.float64) if weight is None else weight.double().cpu()
    y = labels.cpu()
    if task == "multiclass":
        mass = torch.zeros(int(y.max()) + 1, dtype=torch.float64).index_add(0, y.long(), w)
        return list((mass / mass.sum()).tolist())
    if task == "binary":
        return float((w * y.double()).sum() / w.sum())
    known = (w if w.ndim == 2 else w[:, None]) * ~y.isnan()
    return list(((known * y.double().nan_to_num()).sum(0) / known.sum(0)).tolist())


def count_classes(
    group: Tensor, labels: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Count the positives and the negatives of each group, or sum their weights.

    Args:
        group: Group numbers from :func:`number_groups`, shape (N,).
        labels: 0 or 1, shape (N,).
        weight: Weights of the rows, shape (N,).

    Returns:
        Two tensors of shape (G,), float64, on the CPU.

    Raises:
        ValueError: If no group has both classes, or shapes or labels are wrong.

    Example:
        >>> import torch
        >>> from aucmax.data import count_classes
        >>> group, labels = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([1, 0, 0, 1, 0])
        >>> count_classes(group, labels)
        (tensor([1., 1.], dtype=torch.float64), tensor([1., 2.], dtype=torch.float64))
    """
    for name, x in (("group", group), ("labels", labels)):
        if not isinstance(x, Tensor):
            hint = ": number_groups makes one" if name == "group" else ""
            raise ValueError(f"{name} must be a tensor, found {type(x).__name__}{hint}")
    if labels.ndim != 1 or group.shape != labels.shape:
        raise ValueError(
            f"group must have a value for each label of shape (N,), found {tuple(group.shape)} "
            f"and labels of {tuple(labels.shape)}"
        )
    check_labels("labels", labels, "binary", complete=False)
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


def has_pairs(group: NDArray[np.int64], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each group whether two of its rows differ in a label, so that they are a pair.

    Args:
        group: Group numbers from :func:`number_groups`, shape (N,).
        labels: Classes (N,), or several labels (N, L) with NaN for missing ones.
    """
    table = np.asarray(labels, np.float64).reshape(len(group), -1)
    columns = table.shape[1]
    cell = (group[:, None] * columns + np.arange(columns)).ravel()
    low = np.full((group.max() + 1) * columns, np.inf)
    high = -low
    np.minimum.at(low, cell, np.where(np.isnan(table), np.inf, table).ravel())
    np.maximum.at(high, cell, np.where(np.isnan(table), -np.inf, table).ravel())
    return np.asarray((low < high).reshape(-1, columns).any(axis=1))
