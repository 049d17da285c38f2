"""Which rows: those to keep apart, and a sample that is fair to rare classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from aucmax.data.groups import are_compared
from aucmax.tables.encoder import Encoded

DISTINCT = 0.5
"""The share of rows that differ from which on repeats are kept together."""
FEWEST = 4
"""Rows, not repeats, of a class below which nothing is kept back: a share of them says nothing."""
ROUNDS = 3
"""How often a group may change sides to bring the shares of the classes nearer."""


def hold_out(
    encoded: Encoded,
    classes: NDArray[np.int64],
    weight: NDArray[Any] | None,
    share: float,
    seed: int,
    group: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and rows to validate on: of each class the share, repeats together.

    Rows that are alike in every column would be known before they are judged, so all of them are
    on one side; but where most rows are repeats, as in a table of a few categories, new rows will
    be repeats too, and rows are taken one by one. Without enough rows of a class, nothing is held
    out.

    All rows of a group are on one side too, and each side has a group with two classes. The share
    is then as near as whole groups come to it, of each class and of such groups. Groups that have
    repeats in common stay together, unless nothing could be held out then.

    Args:
        encoded: the table.
        classes: each row's class.
        weight: rows that weigh nothing are on neither side.
        share: of the rows to hold out.
        seed: of the choice.
        group: the number of each row's group.
    """
    rows = np.arange(len(classes)) if weight is None else np.flatnonzero(weight)
    columns = [np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1) for x in encoded]
    content = np.ascontiguousarray(np.concatenate(columns, axis=1))
    keys = content.view(np.dtype((np.void, content.shape[1]))).reshape(-1)  # alike if rows are
    classes = classes[rows]
    _, first, same = np.unique(keys[rows], return_index=True, return_inverse=True)
    if len(first) < DISTINCT * len(rows):
        first, same = np.arange(len(rows)), np.arange(len(rows))
    of_first = classes[first]  # a repeat with another label goes where the first one goes
    counts = np.bincount(of_first, minlength=int(classes.max()) + 1)
    if share == 0 or counts.min() < FEWEST:
        return rows, rows[:0]
    random, chosen = np.random.default_rng(seed), np.zeros(len(first), bool)
    if group is not None:
        held = _whole_groups(classes, group[rows], same, share, random)
        return rows[~held], rows[held]
    for number, count in enumerate(counts):
        members = random.permutation(np.flatnonzero(of_first == number))
        chosen[members[: max(1, round(share * count))]] = True
    held = chosen[same]
    if any(len(np.unique(classes[part])) < len(counts) for part in (~held, held)):
        return rows, rows[:0]
    return rows[~held], rows[held]


def _whole_groups(
    classes: NDArray[np.int64],
    group: NDArray[np.int64],
    same: NDArray[np.int64],
    share: float,
    random: np.random.Generator,
) -> NDArray[np.bool_]:
    """Which rows to hold out, by whole groups; none if that cannot be.

    Args:
        classes: each row's class.
        group: each row's group.
        same: a number that repeats of a row have in common.
        share: of the rows to hold out.
        random: decides between groups.
    """
    _, group = np.unique(group, return_inverse=True)
    compared, count = are_compared(group, classes), int(classes.max()) + 1

    def is_right(held: NDArray[np.bool_]) -> bool:
        sides = held, ~held
        has_all = all(len(np.unique(classes[side])) == count for side in sides)
        return has_all and all(compared[group[x]].any() for x in sides)

    for unit_of in (_joined(group, same), np.arange(len(compared))):
        content = np.zeros((unit_of.max() + 1, count + 1))  # a unit's rows by class, and groups
        np.add.at(content, (unit_of[group], classes), 1)
        content[:, -1] = np.bincount(unit_of, compared, len(content))
        shares = content / content.sum(axis=0).clip(min=1)
        order = random.permutation(len(shares))
        nearest_first = order[np.square(share - shares[order]).sum(axis=1).argsort()]
        enough = nearest_first[shares[nearest_first, -1] > 0][:1]  # if no choice has pairs
        for begin in (enough[:0], enough):
            held = _near(share, shares, order, begin)[unit_of[group]]
            held = held if held.mean() <= 0.5 else ~held  # half the rows at least remain
            if is_right(held):
                return held
    return np.zeros(len(group), bool)


def _joined(group: NDArray[np.int64], same: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each group, which those with repeats in common share."""
    groups, pairs = int(group.max()) + 1, (group, group.max() + 1 + same)
    size = groups + int(same.max()) + 1
    graph = sparse.coo_array((np.ones(len(group), bool), pairs), (size, size))
    _, number = csgraph.connected_components(graph, directed=False)
    return np.unique(number[:groups], return_inverse=True)[1]


def _near(
    share: float,
    shares: NDArray[np.float64],
    order: NDArray[np.int64],
    begin: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Units whose shares add up to about the share asked for.

    In that order, round after round, each is taken in or out if that brings the sums nearer; those
    to begin with stay.
    """
    chosen = np.zeros(len(shares), bool)
    chosen[begin] = True
    missing = share - shares[begin].sum(axis=0)
    squares = np.square(shares).sum(axis=1)
    for unit in order[~chosen[order]].tolist() * ROUNDS:
        change = -shares[unit] if chosen[unit] else shares[unit]
        if 2 * (missing @ change) > squares[unit]:
            chosen[unit] = not chosen[unit]
            missing = missing - change
    return chosen


def some_groups(
    classes: NDArray[np.int64],
    group: NDArray[np.int64],
    most: int,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """The rows of whole groups that have several classes, about so many, of one group at least."""
    order = random.permutation(np.flatnonzero(are_compared(group, classes)))
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
