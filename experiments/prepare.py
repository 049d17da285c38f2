"""From classes to an imbalanced ranking problem: partition, thin, split, mislabel, drop repeats.

A seed gives the same rows on every machine and with every version of NumPy: ``RandomState``'s
numbers are frozen, those of ``default_rng`` are not.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def halves(classes: int) -> Rows:
    """Return the positive classes of the paper: the second half."""
    return np.arange(classes // 2, classes)


def random_halves(classes: int, seed: int) -> Rows:
    """Return the positive classes of Figure 3: a random half."""
    return np.sort(np.random.RandomState(seed).permutation(classes)[classes // 2 :])


def binarize(labels: Rows, positive: Rows) -> Rows:
    """Label the positive classes 1 and the others 0; both must occur."""
    y = np.isin(labels, positive).astype(np.int64)
    if not 0 < y.sum() < len(y):
        raise ValueError(f"positive must leave both classes, found {positive.tolist()}")
    return y


def thin(y: Rows, removed: float, seed: int) -> Rows:
    """Return the rows left, in order, when a fraction of the negatives is removed at random."""
    negatives = np.flatnonzero(y == 0)
    kept = round(len(negatives) * (1 - removed))
    if not 0 < kept <= len(negatives):
        raise ValueError(f"removed must be in [0, 1) and leave a negative, found {removed}")
    chosen = np.random.RandomState(seed).permutation(negatives)[:kept]
    return np.sort(np.concatenate([np.flatnonzero(y == 1), chosen]))


def split(y: Rows, size: float, seed: int) -> tuple[Rows, Rows]:
    """Split into training and validation rows, each class in its share.

    ``size`` is the number of validation rows, or below 1 their share.
    """
    size = round(size * len(y)) if size < 1 else round(size)
    share = size * int((y == 0).sum()) / len(y)
    negatives = min(max(1, round(share)), size - 1)
    random, parts = np.random.RandomState(seed), []
    for value, count in ((0, negatives), (1, size - negatives)):
        rows = np.flatnonzero(y == value)
        if not 0 < count < len(rows):
            raise ValueError(f"size must leave both classes on both sides, found {size}")
        parts.append(random.permutation(rows)[:count])
    valid = np.sort(np.concatenate(parts))
    return np.setdiff1d(np.arange(len(y)), valid), valid


def mislabel(y: Rows, wrong: tuple[float, float], seed: int) -> Rows:
    """Turn a share of the negatives and a share of the positives into the other class."""
    # Not the numbers that split the same rows, or the wrong labels would all be held out.
    random = np.random.RandomState((seed, 1))
    labels = y.copy()
    for value, share in enumerate(wrong):
        rows = np.flatnonzero(y == value)
        labels[random.permutation(rows)[: round(share * len(rows))]] = 1 - value
    return labels


def distinct(x_train: NDArray[Any], x_test: NDArray[Any]) -> tuple[Rows, Rows]:
    """Return the training and test rows left when exact repeats are dropped.

    Of rows that are alike the first in the test set stays, or else the first in the training set:
    nothing that is tested was trained on, and nothing counts twice.
    """
    seen: set[bytes] = set()
    kept = []
    for x in (x_test, x_train):
        rows = []
        for number, row in enumerate(np.ascontiguousarray(x)):
            key = hashlib.blake2b(row, digest_size=16).digest()
            if key not in seen:
                seen.add(key)
                rows.append(number)
        kept.append(np.array(rows, np.int64))
    return kept[1], kept[0]
