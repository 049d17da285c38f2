"""From classes to an imbalanced ranking problem: partition, thin, split, mislabel, drop repeats.

Pure functions on arrays. A seed gives the same rows on every machine and with every version of
NumPy: they draw from ``RandomState``, whose numbers are frozen for ever, as ``default_rng``'s are
not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aucmax import checks

__all__ = ["binarize", "distinct", "halves", "mislabel", "random_halves", "split", "thin"]

Rows = NDArray[np.int64]


def halves(classes: int) -> Rows:
    """The positive classes of the paper: the second half.

    Example:
        >>> halves(10)
        array([5, 6, 7, 8, 9])
    """
    classes = checks.count("classes", classes, least=2)
    return np.arange(classes // 2, classes)


def random_halves(classes: int, seed: int = 0) -> Rows:
    """The positive classes of Figure 3: a random half.

    Example:
        >>> random_halves(10, seed=1)
        array([1, 3, 5, 7, 8])
    """
    classes = checks.count("classes", classes, least=2)
    return np.sort(_random(seed).permutation(classes)[classes // 2 :])


def binarize(labels: ArrayLike, positive: ArrayLike) -> NDArray[np.int64]:
    """1 where the label is one of ``positive``, else 0; both must occur.

    Example:
        >>> binarize([0, 1, 2, 3], positive=[2, 3])
        array([0, 0, 1, 1])
    """
    y = np.isin(np.asarray(labels), np.asarray(positive)).astype(np.int64)
    if not 0 < y.sum() < len(y):
        raise ValueError(
            f"positive must be some of the classes, not all or none, "
            f"found {np.asarray(positive).tolist()} for labels {np.unique(labels).tolist()}"
        )
    return y


def thin(y: ArrayLike, removed: float, seed: int = 0) -> Rows:
    """The rows left, in order, when a fraction of the negatives is removed at random.

    Example:
        >>> y = np.array([0] * 50 + [1] * 50)
        >>> rows = thin(y, removed=0.9)
        >>> len(rows), y[rows].mean().round(2)
        (55, np.float64(0.91))
    """
    y = _labels(y)
    removed = checks.number(
        "removed", removed, "a fraction from 0 up to but not 1", lambda x: 0 <= x < 1
    )
    negatives = np.flatnonzero(y == 0)
    kept = round(len(negatives) * (1 - removed))
    if kept == 0:
        raise ValueError(f"removed must leave a negative, found {removed} of {len(negatives)}")
    chosen = _random(seed).permutation(negatives)[:kept]
    return np.sort(np.concatenate([np.flatnonzero(y == 1), chosen]))


def split(y: ArrayLike, size: float, seed: int = 0) -> tuple[Rows, Rows]:
    """Training and validation rows, ``size`` of the latter, each class in its share.

    Below 1, ``size`` is a share of the rows.

    Example:
        >>> y = np.array([0] * 20 + [1] * 80)
        >>> train, valid = split(y, size=10)
        >>> len(train), y[valid].sum()
        (90, np.int64(8))
    """
    y = _labels(y)
    share = isinstance(size, float) and 0 < size < 1
    size = checks.count("size", round(size * len(y)) if share else size)
    shares = {value: size * int((y == value).sum()) / len(y) for value in (0, 1)}
    negatives = min(max(1, round(shares[0])), size - 1)
    wanted = {0: negatives, 1: size - negatives}
    random, parts = _random(seed), []
    for value, count in wanted.items():
        rows = np.flatnonzero(y == value)
        if not 0 < count < len(rows):
            raise ValueError(
                f"size must leave both classes on both sides, found {size} of {len(y)} rows "
                f"with {len(rows)} of label {value}"
            )
        parts.append(random.permutation(rows)[:count])
    valid = np.sort(np.concatenate(parts))
    return np.setdiff1d(np.arange(len(y)), valid), valid


def mislabel(y: ArrayLike, wrong: tuple[float, float], seed: int = 0) -> NDArray[np.int64]:
    """The labels with a share of the negatives and one of the positives turned into the other.

    Example:
        >>> mislabel([0, 0, 0, 0, 1, 1, 1, 1], wrong=(0.5, 0.25)).sum()
        np.int64(5)
    """
    y = _labels(y)
    # Other numbers than those that split the same rows, or the wrong ones would be held out.
    random = np.random.RandomState((checks.count("seed", seed, least=0), 1))
    labels = np.array(y, dtype=np.int64)
    for value, share in enumerate(wrong):
        checks.number("wrong", share, "a share from 0 up to but not 1", lambda x: 0 <= x < 1)
        rows = np.flatnonzero(y == value)
        labels[random.permutation(rows)[: round(share * len(rows))]] = 1 - value
    return labels


def distinct(x_train: NDArray[Any], x_test: NDArray[Any]) -> tuple[Rows, Rows]:
    """The training and test rows left when exact repeats are dropped.

    Of rows that are alike the first in the test set stays, or else the first in the training set:
    what is tested was never trained on, and nothing counts twice.

    Example:
        >>> train, test = distinct(np.array([[1], [2], [2], [3]]), np.array([[3], [4], [4]]))
        >>> train, test
        (array([0, 1]), array([0, 1]))
    """
    if (x_train.shape[1:], x_train.dtype) != (x_test.shape[1:], x_test.dtype):
        raise ValueError(
            f"x_train and x_test must have rows of one shape and dtype, found {x_train.shape[1:]} "
            f"of {x_train.dtype} and {x_test.shape[1:]} of {x_test.dtype}"
        )
    keys = np.concatenate([_keys(x_test), _keys(x_train)])
    first = np.sort(np.unique(keys, return_index=True)[1])
    return first[first >= len(x_test)] - len(x_test), first[first < len(x_test)]


def _keys(x: NDArray[Any]) -> NDArray[np.void]:
    """Each row's bytes as one value, which compares as a whole."""
    size = math.prod(x.shape[1:]) * x.dtype.itemsize
    flat = np.ascontiguousarray(x).view(np.uint8).reshape(len(x), size)
    return flat.view(np.dtype((np.void, size))).reshape(-1)


def _labels(y: ArrayLike) -> NDArray[Any]:
    y = np.asarray(y)
    if y.ndim != 1 or len(y) == 0:
        raise ValueError(f"labels must be a list that is not empty, found shape {y.shape}")
    checks.check_labels(y)
    return y


def _random(seed: int) -> np.random.RandomState:
    return np.random.RandomState(checks.count("seed", seed, least=0))
