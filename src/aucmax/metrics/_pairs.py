"""Pairs of a positive and a negative, counted on the CPU: twice as many as won, in integers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from aucmax.metrics._rows import Array


class Placements(NamedTuple):
    """The AUC, and how each row does against the other class, a tie counting half."""

    auc: float  # the share of pairs won
    wins: Array  # twice the negatives below each positive
    losses: Array  # twice the positives above each negative


def placements(positive: Array, negative: Array) -> Placements:
    """Those of the scores of two classes, in the rows' own order."""
    up, down = np.argsort(positive), np.argsort(negative)
    ups, downs = positive[up], negative[down]
    wins, losses = np.empty_like(up), np.empty_like(down)
    wins[up] = _twice_below(ups, downs)  # sorted values are looked up in neighbouring memory
    losses[down] = 2 * len(ups) - _twice_below(downs, ups)
    return Placements(int(wins.sum()) / (2 * len(ups) * len(downs)), wins, losses)


def placements_by_weight(
    positive: Array, negative: Array, weights: tuple[Array, Array]
) -> Placements:
    """The same with each pair counting the product of its rows' weights.

    Wins are the share of the negatives' weight below each positive, losses likewise.
    """
    wins = _weight_below(positive, negative, weights[1])
    losses = 1 - _weight_below(negative, positive, weights[0])
    return Placements(float(np.average(wins, weights=weights[0])), wins, losses)


def share_won(positive: Array, negative: Array) -> float:
    """The AUC alone, which takes less: the smaller class is sorted, the other mostly is not."""
    few, many = sorted((positive, negative), key=len)
    ranked, decided, pairs = np.sort(few), 0, len(few) * len(many)
    if many.dtype.char in "fd" and len(many) > max(5000, 4 * len(few)):  # else sorting is faster
        decided, many = screen(ranked, many)
    twice = decided + int(_twice_below(ranked, np.sort(many)).sum())
    return (twice if few is positive else 2 * pairs - twice) / (2 * pairs)


def screen(
    few: Array, many: Array, cells: int | None = None, block: int = 2**16
) -> tuple[int, Array]:
    """Decide most pairs without sorting ``many``, which is what takes the time.

    A grid over ``few`` (sorted) keeps the order between its cells, so a value in a cell without any
    of ``few`` needs no comparison. Returns twice the pairs won against these, and the other values.
    If a sample says that those are most, as with ties, nothing is decided. Values are looked up in
    blocks that stay in the cache.
    """
    cells = cells or 1 << min((16 * len(few)).bit_length(), 24)
    span = min(max(float(few[-1]) - float(few[0]), 1e-30), 1e38)
    scale = few.dtype.type(cells / span)

    def cell(x: Array) -> Array:
        with np.errstate(over="ignore"):
            place = (x - few[0]) * scale
        return np.clip(place, 0, cells - 1, out=place).astype(np.int32)

    own = cell(few)
    above = np.bincount(own, minlength=cells).astype(np.int32)
    np.subtract(len(few), np.cumsum(above, out=above), out=above)
    above[own] = -1  # a cell of few, where only a comparison tells
    if np.mean(above[cell(many[:: 1 + len(many) // 4096])] < 0) > 0.5:
        return 0, many
    decided, left = 0, []
    for start in range(0, len(many), block):
        part = many[start : start + block]
        won = above[cell(part)]
        left.append(part.compress(won < 0))
        decided += int(won.sum(dtype=np.int64)) + len(left[-1])  # without the -1 of those left
    return 2 * decided, np.concatenate(left)


def _twice_below(x: Array, others: Array) -> Array:
    """Twice the number of ``others`` (sorted) below each ``x``."""
    lookup = np.searchsorted
    return lookup(others, x, side="left") + lookup(others, x, side="right")


def _weight_below(x: Array, others: Array, weight: Array) -> Array:
    """The share of the weight of ``others`` that is below each ``x``, a tie counting half."""
    order = np.argsort(others)
    up_to = np.append(0.0, np.cumsum(weight[order]))
    places = (np.searchsorted(others[order], x, side=side) for side in ("left", "right"))
    return sum(up_to[place] for place in places) / (2 * up_to[-1])
