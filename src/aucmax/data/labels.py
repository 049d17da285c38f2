"""What the labels are: two classes, several classes or several labels, and how often each."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from aucmax import checks

TASKS = ("binary", "multiclass", "multilabel")


def as_tensor(name: str, values: Any) -> Tensor:
    """A tensor of an array, a data frame or a list; tensors as they are."""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, found dtype {array.dtype}")
    if not array.flags.writeable:
        array = array.copy()  # torch has no read-only tensors
    return torch.from_numpy(np.ascontiguousarray(array))


def known_labels(data: Any, labels: Any = None) -> Tensor | None:
    """The training labels, if they can be had without going through the data."""
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
    """The task that was asked for, or the one that the labels' shape and values suggest."""
    if checks.choice("task", task, ("auto", *TASKS)) != "auto":
        return task
    if labels is None:
        return "binary"
    if labels.ndim == 2:
        return "multilabel"
    whole = not labels.is_floating_point() and labels.dtype != torch.bool
    return "multiclass" if whole and len(labels) and int(labels.max()) > 1 else "binary"


def check(labels: Tensor, task: str) -> None:
    """Raise unless the labels fit the task and hold every class."""
    if len(labels) == 0:
        raise ValueError("train must have rows, found none")
    if task == "multiclass":
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
                f"train must hold every class from 0 on, at least two, found counts {counts}"
            )
    elif task == "binary":
        check_both_classes("train", labels)
    elif labels.ndim != 2:
        raise ValueError(f"multilabel targets must have shape (N, L), found {tuple(labels.shape)}")
    else:
        for j, column in enumerate(labels.T):
            check_both_classes(f"label {j} of train", column[~column.isnan()])


def warn_of_single_rows(name: str, labels: Tensor, task: str) -> None:
    """Warn if a class has one row, of which nothing general can be learned or told."""
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


def check_values(name: str, labels: Tensor) -> None:
    """Raise unless there are labels and all are 0 or 1."""
    if len(labels) == 0:
        raise ValueError(f"{name} must have rows, found none")
    try:
        checks.check_labels(labels.numpy(force=True))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def shares(labels: Tensor, weight: Tensor | None, task: str) -> float | list[float]:
    """The probability of a positive, or of each class, or of each label's positive."""
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


def check_both_classes(whose: str, labels: Tensor) -> None:
    """Raise unless they are 0 and 1, and there are some of each."""
    if labels.ndim != 1:
        raise ValueError(f"binary targets must have shape (N,), found {tuple(labels.shape)}")
    exact = labels.float() if labels.dtype == torch.bfloat16 else labels  # NumPy has no bfloat16
    ones = checks.check_labels(exact.numpy(force=True))
    if not 0 < ones < len(labels):
        raise ValueError(
            f"{whose} must hold both classes, found {ones} positives "
            f"and {len(labels) - ones} negatives"
        )
