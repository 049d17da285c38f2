"""Which rows: those to keep apart, and a sample that is fair to rare classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax.tables.encoder import Encoded

DISTINCT = 0.5
"""The share of rows that differ from which on repeats are kept together."""
FEWEST = 4
"""Rows, not repeats, of a class below which nothing is kept back: a share of them says nothing."""


def hold_out(
    encoded: Encoded,
    classes: NDArray[np.int64],
    weight: NDArray[Any] | None,
    share: float,
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and rows to validate on: of each class the share, repeats together.

    Rows that are alike in every column would be known before they are judged, so all of them are
    on one side; but where most rows are repeats, as in a table of a few categories, new rows will
    be repeats too, and rows are taken one by one. Without enough rows of a class, nothing is held
    out.

    Args:
        encoded: the table.
        classes: each row's class.
        weight: rows that weigh nothing are on neither side.
        share: of the rows to hold out.
        seed: of the choice.
    """
    rows = np.arange(len(classes)) if weight is None else np.flatnonzero(weight)
    columns = [np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1) for x in encoded]
    content = np.ascontiguousarray(np.concatenate(columns, axis=1))
    keys = content.view(np.dtype((np.void, content.shape[1]))).reshape(-1)  # alike if rows are
    classes = classes[rows]
    _, first, group = np.unique(keys[rows], return_index=True, return_inverse=True)
    if len(first) < DISTINCT * len(rows):
        first, group = np.arange(len(rows)), np.arange(len(rows))
    of_group = classes[first]  # a repeat with another label goes where the first one goes
    counts = np.bincount(of_group, minlength=int(classes.max()) + 1)
    if share == 0 or counts.min() < FEWEST:
        return rows, rows[:0]
    random, chosen = np.random.default_rng(seed), np.zeros(len(first), bool)
    for number, count in enumerate(counts):
        members = random.permutation(np.flatnonzero(of_group == number))
        chosen[members[: max(1, round(share * count))]] = True
    held = chosen[group]
    if any(len(np.unique(classes[part])) < len(counts) for part in (~held, held)):
        return rows, rows[:0]
    return rows[~held], rows[held]


def fair_sample(
    classes: NDArray[np.int64], most: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Some rows, as many of each class as of any other, or all if they are fewer."""
    counts = np.bincount(classes)
    wanted, left = np.zeros_like(counts), most
    for done, k in enumerate(np.argsort(counts, kind="stable")):
        wanted[k] = min(counts[k], left // (len(counts) - done))
        left -= wanted[k]
    shuffled = (random.permutation(np.flatnonzero(classes == k)) for k in range(len(counts))[::-1])
    return np.concatenate([rows[:n] for rows, n in zip(shuffled, wanted[::-1], strict=True)])
