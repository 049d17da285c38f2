"""Groups of rows, whatever holds them, as numbers: equal values are one group, none is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def number_groups(values: Any, name: str = "group", rows: int | None = None) -> Tensor:
    """Groups as whole numbers from 0 on, without gaps: equal values have equal numbers.

    Args:
        values: one per row, shape (N,) or (N, 1): numbers, texts, dates or other hashable objects
            in a tensor, an array, a column of a data frame or a list. None may be missing: NaN,
            None or an empty text.
        name: what errors call them.
        rows: how many there must be, where that is known.

    Returns:
        int64, on the device of ``values``; in the order of the values, if they have one.

    Example:
        >>> from aucmax.data import number_groups
        >>> number_groups(["ward 7", "ward 2", "ward 7"])
        tensor([1, 0, 1])
    """
    if isinstance(values, Tensor):
        array: Any = values.detach()
    else:  # of a list NumPy would make texts: None and "None" would be equal
        array = np.asarray(values, object if isinstance(values, list | tuple) else None)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array.reshape(-1)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name} must have shape (N,), N >= 1, found {tuple(array.shape)}")
    if rows is not None and len(array) != rows:
        raise ValueError(f"{name} must have a value for each of {rows} rows, found {len(array)}")
    if isinstance(array, Tensor):
        _check_known(name, array)
        numbers: Tensor = torch.unique(array, return_inverse=True)[1]
        return numbers
    if array.dtype.kind in "biufmM":
        _check_known(name, array)
        return torch.from_numpy(np.unique(array, return_inverse=True)[1].astype(np.int64))
    objects = array.tolist()
    missing = sum(map(_is_missing, objects))
    if missing:
        raise _missing(name, missing, len(objects))
    try:
        known = dict.fromkeys(objects)
    except TypeError as error:
        raise ValueError(f"{name} must hold hashable values, found an {error}") from None
    try:
        in_order = sorted(known)
    except TypeError:  # of several kinds: as they come
        in_order = list(known)
    number_of = {value: number for number, value in enumerate(in_order)}
    return torch.tensor([number_of[value] for value in objects])


def _check_known(name: str, array: Any) -> None:
    """Raise if there are missing values among numbers or dates."""
    missing = int((array != array).sum())
    if missing:
        raise _missing(name, missing, len(array))


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value) or value == ""
    except TypeError:  # pandas' NA is neither equal to itself nor not
        return True


def _missing(name: str, missing: int, rows: int) -> ValueError:
    return ValueError(
        f"{name} must have no missing values (NaN, None or an empty text), found {missing} among "
        f"{rows}: leave those rows out, or give each a group of its own"
    )
