"""Some of the rows: whole groups, or a sample that is fair to rare classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax.data.labels import has_pairs
from aucmax.tables.scoring import Rows


class Sample(NamedTuple):
    """Some of the rows.

    Attributes:
        rows: weighted so that classes have the shares that they had.
        places: of these among those that they are from.
    """

    rows: Rows
    places: NDArray[np.int64]


def representative(rows: Rows, most: int, seed: int) -> Sample:
    """About so many rows at most: of whole groups if they have some, else fair to rare classes."""
    if len(rows) <= most:
        return Sample(rows, np.arange(len(rows)))
    random = np.random.default_rng(seed)
    if rows.group is not None:
        places = some_groups(rows.classes, rows.group, most, random)
        return Sample(rows.select(places), places)
    places = np.sort(fair_sample(rows.classes, most, random))
    chosen = rows.select(places)
    each_is = (
        np.bincount(rows.classes)[chosen.classes] / np.bincount(chosen.classes)[chosen.classes]
    )
    weight = each_is * (1.0 if chosen.weight is None else chosen.weight)
    return Sample(Rows(*chosen[:3], weight.astype(np.float32)), places)


def some_groups(
    classes: NDArray[np.int64],
    group: NDArray[np.int64],
    most: int,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """The rows of whole groups that have several classes, about so many, of one group at least."""
    order = random.permutation(np.flatnonzero(has_pairs(group, classes)))
    sizes = np.bincount(group, minlength=int(order.max()) + 1)[order]
    taken = order[: max(1, int(np.searchsorted(sizes.cumsum(), most, "right")))]
    return np.flatnonzero(np.isin(group, taken))


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
