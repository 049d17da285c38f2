"""Precision: of the rows at the top, and its mean over the recall gained."""

from __future__ import annotations

import math
from numbers import Integral

import torch
from torch import Tensor

from aucmax import checks
from aucmax.metrics._curve import ROUNDING, Curve, read_curve
from aucmax.metrics._rows import Values, warn_nan


def average_precision(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""The mean of precision over the recall gained, :math:`\sum_k (R_k - R_{k-1}) P_k`.

    Precision :math:`P_k` and recall :math:`R_k` are those of the rows at or above the k-th highest
    distinct score. Scores at random get the share of positives. Arguments as in :func:`roc_auc`.

    Example:
        >>> from aucmax.metrics import average_precision
        >>> round(average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
        0.8333
    """
    curve = read_curve(scores, target, weight)
    return math.nan if curve is None else float(mean_precision(curve))


def precision_at(
    scores: Values, target: Values, share: float, weight: Values | None = None
) -> float:
    r"""The share of positives among the rows with the highest scores.

    If ``share`` is an integer, such as 100, so many rows are taken; else it is a share of all rows,
    above 0 and at most 1, such as 0.1 (1 is one row, 1.0 all of them). Of rows that are tied at the
    last place so much is taken as there is room for, each in the same part: the mean over all
    orders that they can be given. With weights, rows count as often as these say. More rows than
    there are give ``nan``, with a warning. Other arguments as in :func:`roc_auc`.

    Example:
        >>> from aucmax.metrics import precision_at
        >>> scores, target = [0.1, 0.4, 0.35, 0.8, 0.2, 0.3], [0, 0, 1, 1, 0, 0]
        >>> precision_at(scores, target, 0.5), precision_at(scores, target, 1)
        (0.6666666666666666, 1.0)
    """
    check_share(share)
    curve = read_curve(scores, target, weight)
    if curve is None:
        return math.nan
    room = rows_within(curve, share)
    if room is None:
        return math.nan
    start = curve.hits.new_zeros(1)
    hits, rows = (torch.cat([start, x]) for x in (curve.hits, curve.hits + curve.alarms))
    last = min(int((rows < room).sum()), len(rows) - 1)  # the tied rows at the last place
    (below, above), (first, end) = (x[last - 1 : last + 1].tolist() for x in (hits, rows))
    part = (room - first) / (end - first)
    return min(1.0, float(below + part * (above - below)) / room)


def check_share(share: float) -> None:
    """Raise unless it is a number of rows, an integer, or a share of them."""
    is_count = isinstance(share, Integral)
    allowed = "an integer of at least 1, or a share above 0 and at most 1"
    checks.number("share", share, allowed, lambda x: x >= 1 if is_count else 0 < x <= 1)


def rows_within(curve: Curve, share: float) -> float | None:
    """How much weight is at the top; None, and a warning, if there is not so much."""
    total = float(curve.hits[-1] + curve.alarms[-1])
    if not isinstance(share, Integral):
        return share * total
    if share > total * curve.unit * (1 + ROUNDING):
        warn_nan(f"share is {share} rows of {total * curve.unit:g}")
        return None
    return min(total, share / curve.unit)


def mean_precision(curve: Curve) -> Tensor:
    """Average precision."""
    hits, alarms, _ = curve
    return hits.diff(prepend=hits.new_zeros(1)) @ (hits / (hits + alarms)) / hits[-1]
