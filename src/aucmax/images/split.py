"""Pictures kept apart: a share of every class, and never a part of what belongs together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from aucmax import row_groups

Rows = NDArray[np.int64]


def join(*sets: Sequence[object] | Rows | None) -> Rows:
    """Numbers of what belongs together by any of the sets: equal values are one.

    Example:
        >>> join(["a", "a", "b", "c"], [1, 2, 2, 3]).tolist()
        [0, 0, 0, 1]
    """
    known = [row_groups.number_groups(x).numpy() for x in sets if x is not None]
    count = len(known[0])
    first = np.arange(count)
    edges = [(first, count * (k + 1) + numbers) for k, numbers in enumerate(known)]
    rows, columns = (np.concatenate(side) for side in zip(*edges, strict=True))
    size = count * (len(known) + 1)
    graph = sparse.coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(size, size))
    return row_groups.number_groups(csgraph.connected_components(graph, False)[1][:count]).numpy()


def kinds(classes: NDArray[Any], labels: Sequence[str]) -> tuple[Rows, list[str]]:
    """Which kinds each row is of, 0 or 1, and their names.

    They are the classes; of several labels (N, L), which may be NaN, the values of each.

    Example:
        >>> kinds(np.array([[1, np.nan]]), ["edema", "nodule"])[1]
        ['edema = 1', 'nodule = 1', 'edema = 0', 'nodule = 0']
    """
    if classes.ndim == 1:
        return np.eye(len(labels), dtype=np.int64)[classes], [*labels]
    has = np.concatenate([classes == 1, classes == 0], axis=1).astype(np.int64)
    return has, [f"{label} = {value}" for value in (1, 0) for label in labels]


def keep_apart(
    has: Rows, together: Rows, share: float, seed: int, labels: Sequence[str]
) -> tuple[Rows, Rows]:
    """Rows to use and rows to keep apart, about that share of every class.

    The rarest class chooses first: of the sets that have it, at random, as many as bring its rows
    nearest to the share; then the next among the sets that are left.

    Args:
        has: which classes each row has, 0 or 1; it may have several.
        together: the number of each row's set, which is never cut.
        share: to keep apart.
        seed: of the choice.
        labels: of the classes, for errors.

    Raises:
        ValueError: if a class has too few sets to be on both sides.
    """
    random = np.random.default_rng(seed)
    counts = np.zeros((int(together.max()) + 1, len(labels)), np.int64)
    np.add.at(counts, together, has)
    wanted, free = share * counts.sum(axis=0), np.ones(len(counts), bool)
    apart = np.zeros(len(counts), bool)
    for label in np.argsort(counts.sum(axis=0), kind="stable"):
        own = random.permutation(np.flatnonzero(free & (counts[:, label] > 0)))
        free[own] = False
        missing = wanted[label] - counts[apart, label].sum()
        sizes = counts[own, label].cumsum()
        taken = int(np.abs(np.append(0, sizes) - missing).argmin())
        if not counts[apart, label].any():
            taken = min(max(taken, 1), len(own) - 1)
        apart[own[:taken]] = True
        if min(counts[apart, label].sum(), counts[~apart, label].sum()) == 0:
            sets = int((counts[:, label] > 0).sum())
            raise ValueError(
                f"every label must have pictures to train on and others to keep apart, found "
                f"{counts[:, label].sum()} of {labels[label]!r}; copies of a picture and pictures "
                f"of a group count once: {sets}"
            )
    held = apart[together]
    return np.flatnonzero(~held), np.flatnonzero(held)
