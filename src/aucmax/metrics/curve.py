"""The ROC curve, its area, whole and in part, and what a threshold finds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aucmax import checks
from aucmax.metrics.rows import (
    SIDES,
    Floats,
    Rows,
    Values,
    has_both_classes,
    rank,
    read_rows,
    warn_undefined,
)

ROUNDING = 1e-12
"""Relative: sums of weights that exceed a bound by less do not exceed it."""


class Curve(NamedTuple):
    """The weight of positives and of negatives at or above each distinct score, highest first.

    Without weights they are numbers of rows, int64; else float64, relative to the largest weight.
    """

    hits: Tensor
    alarms: Tensor


class ROCCurve(NamedTuple):
    """The points of a ROC curve, from (0, 0) at an infinite threshold to (1, 1).

    Example:
        >>> from aucmax import metrics
        >>> curve = metrics.roc_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        >>> isinstance(curve, metrics.ROCCurve), curve.tpr.tolist()
        (True, [0.0, 0.5, 0.5, 1.0, 1.0])
    """

    fpr: Floats
    tpr: Floats
    thresholds: Floats


def roc_auc(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""Return the probability that a random positive scores above a random negative.

    .. math::
        \mathrm{AUC} = \frac{1}{n_+ n_-} \sum_{i: y_i = 1} \sum_{j: y_j = 0}
            \Bigl(\mathbb{1}[s_i > s_j] + \tfrac12 \mathbb{1}[s_i = s_j]\Bigr),

    each pair multiplied by :math:`w_i w_j` if weights are given. On a CPU each class is sorted and
    one is looked up in the other; on an accelerator, if all arguments are there, all scores are
    sorted once: :math:`O(n \log n)` both, and exact, for pairs are counted in integers.

    Args:
        scores: Raw scores, (N,) or (N, 1).
        target: Labels 0 and 1, one per score.
        weight: Finite weights of at least 0, one per score.

    Example:
        >>> from aucmax.metrics import roc_auc
        >>> roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        0.75
    """
    rows = read_rows(scores, target, weight)
    if not has_both_classes(rows):
        return math.nan
    if rows.weight is None and not isinstance(rows.scores, Tensor):
        positives, negatives = (
            np.sort(rows.scores[np.flatnonzero(side)]) for side in (rows.label, ~rows.label)
        )
        pairs = len(positives) * len(negatives)
        few, many = sorted((positives, negatives), key=len)
        twice = sum(int(np.searchsorted(many, few, side=side).sum()) for side in SIDES)
        return (twice if few is positives else 2 * pairs - twice) / (2 * pairs)
    hits, alarms = trace(rows)
    steps = (alarms[1:] - alarms[:-1]) * (hits[1:] + hits[:-1])
    won, up, down = torch.stack([steps.sum() + alarms[0] * hits[0], hits[-1], alarms[-1]]).tolist()
    return float(min(1.0, won / (2 * up * down)))


def roc_curve(scores: Values, target: Values, weight: Values | None = None) -> ROCCurve:
    r"""Return the true positive rate against the false positive rate.

    These are :math:`P(s \ge t \mid y = 1)` and :math:`P(s \ge t \mid y = 0)` for the threshold t at
    infinity and at each distinct score, the highest first; ``nan`` if the class is absent.
    Arguments as in :func:`roc_auc`, which is the area under the curve.

    Example:
        >>> from aucmax.metrics import roc_curve
        >>> print(*roc_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]))
        [0.  0.  0.5 0.5 1. ] [0.  0.5 0.5 1.  1. ] [ inf 0.8  0.4  0.35 0.1 ]
    """
    rows = read_rows(scores, target, weight).on_host()
    has_both_classes(rows)
    order, last = rank(rows.scores)
    curve = trace(rows, (order, last))
    tpr, fpr = (np.append(0, sums) / (float(sums[-1]) or math.nan) for sums in curve)
    thresholds = rows.scores[order[last].numpy()].astype(np.float64)
    return ROCCurve(fpr, tpr, np.append(math.inf, thresholds))


def partial_auc(
    scores: Values,
    target: Values,
    weight: Values | None = None,
    *,
    max_fpr: float = 1.0,
    min_tpr: float = 0.0,
    standardized: bool = False,
) -> float:
    r"""Return the area under the ROC curve up to a false positive rate :math:`\beta`.

    .. math::
        \int_0^\beta \bigl(\mathrm{ROC}(u) - \alpha\bigr)_+ \, du, \qquad
        \beta = \text{max_fpr}, \quad \alpha = \text{min_tpr},

    from 0 to :math:`\beta (1 - \alpha)`. One-way (:math:`\alpha = 0`), divided by :math:`\beta`, it
    is the probability that a random positive scores above a random one of the highest
    :math:`\beta` of the negatives. The points of the curve are joined by lines, so a tied pair
    counts one half and a row at the bound in part.

    Args:
        scores: Raw scores, (N,) or (N, 1).
        target: Labels 0 and 1, one per score.
        weight: Finite weights of at least 0, one per score.
        max_fpr: The largest false positive rate that counts, above 0 and at most 1.
        min_tpr: The smallest true positive rate that counts, at least 0 and below 1.
        standardized: As McClish (1989), and scikit-learn: with A for the area, M for the largest
            it can be and C for that of guessing, :math:`\tfrac12 (1 + \frac{A - C}{M - C})`, so
            that guessing has one half and the best 1. :math:`M = \beta (1 - \alpha)`, and
            :math:`C = (\beta - \alpha)_+^2 / 2` is the area under the diagonal in the same range.

    Example:
        >>> from aucmax.metrics import partial_auc
        >>> scores, target = [0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]
        >>> partial_auc(scores, target, max_fpr=0.5)
        0.25
        >>> partial_auc(scores, target, max_fpr=0.5, standardized=True)
        0.6666666666666666
    """
    max_fpr, min_tpr = check_range(max_fpr, min_tpr)
    rows = read_rows(scores, target, weight)
    if not has_both_classes(rows):
        return math.nan
    largest = max_fpr * (1 - min_tpr)
    area = min(largest, float(area_within(trace(rows), max_fpr, min_tpr)))
    if not standardized:
        return area
    guessing = max(0.0, max_fpr - min_tpr) ** 2 / 2
    return (1 + (area - guessing) / (largest - guessing)) / 2


def tpr_at_fpr(
    scores: Values, target: Values, weight: Values | None = None, *, fpr: float
) -> float:
    r"""Return the largest true positive rate of a threshold with at most so many false alarms.

    .. math::
        \max_t \; P(s \ge t \mid y = 1) \quad \text{with} \quad P(s \ge t \mid y = 0) \le
        \text{fpr}.

    A threshold that exists reaches it: nothing is interpolated, and rows of equal scores are
    flagged together. ``fpr`` is from 0 to 1; other arguments as in :func:`roc_auc`.

    Example:
        >>> from aucmax.metrics import tpr_at_fpr
        >>> tpr_at_fpr([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], fpr=0.1)
        0.5
    """
    fpr = check_fpr(fpr)
    rows = read_rows(scores, target, weight)
    if not has_both_classes(rows):
        return math.nan
    hits, alarms = trace(rows)
    within = alarms <= fpr * (1 + ROUNDING) * alarms[-1]
    return float((hits * within).max() / hits[-1].double())


def average_precision(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""Return the mean of precision over the recall gained, :math:`\sum_k (R_k - R_{k-1}) P_k`.

    Precision :math:`P_k` and recall :math:`R_k` are those of the rows at or above the k-th highest
    distinct score. Scores at random get the share of positives. Arguments as in :func:`roc_auc`.

    Example:
        >>> from aucmax.metrics import average_precision
        >>> round(average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
        0.8333
    """
    rows = read_rows(scores, target, weight)
    return min(1.0, float(mean_precision(trace(rows)))) if has_both_classes(rows) else math.nan


def precision_at(
    scores: Values,
    target: Values,
    weight: Values | None = None,
    *,
    k: int | None = None,
    share: float | None = None,
) -> float:
    r"""Return the share of positives among the rows with the highest scores.

    Of rows that are tied at the last place so much is taken as there is room for, each in the same
    part: the mean over all orders that they can be given. With weights, rows count as often as
    these say. More rows than there are give ``nan``, with a warning.

    Args:
        scores: Raw scores, (N,) or (N, 1).
        target: Labels 0 and 1, one per score.
        weight: Finite weights of at least 0, one per score.
        k: How many rows are taken, at least 1; either this or ``share``.
        share: Which share of all rows is taken, above 0 and at most 1.

    Example:
        >>> from aucmax.metrics import precision_at
        >>> scores, target = [0.1, 0.4, 0.35, 0.8, 0.2, 0.3], [0, 0, 1, 1, 0, 0]
        >>> precision_at(scores, target, share=0.5), precision_at(scores, target, k=1)
        (0.6666666666666666, 1.0)
    """
    check_top(k, share)
    rows = read_rows(scores, target, weight)
    if not has_both_classes(rows):
        return math.nan
    curve = trace(rows)
    room = room_at_top(rows, curve, k, share)
    if room is None:
        return math.nan
    start = curve.hits.new_zeros(1)
    hits, taken = (torch.cat([start, x]) for x in (curve.hits, curve.hits + curve.alarms))
    last = min(int((taken < room).sum()), len(taken) - 1)  # the tied rows at the last place
    (below, above), (first, end) = (x[last - 1 : last + 1].tolist() for x in (hits, taken))
    return float(min(1.0, (below + (room - first) / (end - first) * (above - below)) / room))


def trace(
    rows: Rows, ranking: tuple[Tensor, Tensor] | None = None, weight: Tensor | None = None
) -> Curve:
    """Return the curve of rows; ``weight`` takes the place of theirs, for derivatives."""
    order, last = ranking or rank(rows.scores)
    positive = torch.as_tensor(rows.label)[order]
    if weight is None and rows.weight is None:
        count = torch.int32 if len(order) < 2**31 else torch.int64  # half the memory to write
        hits = positive.cumsum(0, dtype=count)[last].long()
        return Curve(hits, last + 1 - hits)
    w = torch.as_tensor(rows.relative_weight() if weight is None else weight)[order]
    hits, alarms = (torch.where(side, w, 0.0).cumsum(0)[last] for side in (positive, ~positive))
    return Curve(hits, alarms)


def area_within(curve: Curve, max_fpr: float, min_tpr: float) -> Tensor:
    """Return the area under the lines that join the points, each cut at both rates."""
    start = torch.zeros(1, dtype=torch.float64, device=curve.hits.device)
    tpr, fpr = (torch.cat([start, sums / sums[-1].double()]) for sums in curve)
    width, rise = fpr.diff(), tpr.diff()
    # Of both ends of a line the smaller is taken, so that a point at the very bound has one
    # derivative: that of clamp is another from torch 2.15 on. Lines that go straight up have no
    # width, those along no rise: no 0 / 0.
    inside = fpr.where(fpr <= max_fpr, max_fpr).diff()
    low = tpr[:-1] - min_tpr
    high = low + rise * inside / width.where(width > 0, 1.0)
    high = high.where(high >= 0, 0.0)
    above = (high / (high - low).where(low < 0, 1.0)).where(low < 0, 1.0)  # of the line's width
    return (inside * above * (low.where(low >= 0, 0.0) + high)).sum() / 2


def mean_precision(curve: Curve) -> Tensor:
    """Return average precision."""
    hits, alarms = (sums.double() for sums in curve)
    return hits.diff(prepend=hits.new_zeros(1)) @ (hits / (hits + alarms)) / hits[-1]


def room_at_top(rows: Rows, curve: Curve, k: int | None, share: float | None) -> float | None:
    """Return the weight of the rows at the top; None, with a warning, if there is less in all.

    It is relative to the largest weight, as the curve is.
    """
    total = float(curve.hits[-1] + curve.alarms[-1])
    if k is None:
        return float(share or 0.0) * total
    unit = 1.0 if rows.weight is None else float(rows.weight.max())
    if k > total * unit * (1 + ROUNDING):
        warn_undefined(f"k is {k} rows of {total * unit:g}")
        return None
    return min(total, k / unit)


def check_range(max_fpr: float = 1.0, min_tpr: float = 0.0) -> tuple[float, float]:
    """Return both rates if a partial AUC can lie between them."""
    max_fpr = checks.number(
        "max_fpr", max_fpr, "a number above 0 and at most 1", lambda x: 0 < x <= 1
    )
    allowed = "a number of at least 0 and below 1"
    return max_fpr, checks.number("min_tpr", min_tpr, allowed, lambda x: 0 <= x < 1)


def check_fpr(fpr: float) -> float:
    """Return the rate if it is one."""
    return checks.number("fpr", fpr, "a number from 0 to 1", lambda x: 0 <= x <= 1)


def check_top(k: int | None = None, share: float | None = None) -> None:
    """Raise unless either a number of rows or a share of them is given."""
    if (k is None) == (share is None):
        given = "neither" if k is None else f"k={k!r} and share={share!r}"
        raise ValueError(f"precision_at must have either k, in rows, or share, found {given}")
    if k is not None:
        checks.count("k", k)
    if share is not None:
        checks.number("share", share, "a number above 0 and at most 1", lambda x: 0 < x <= 1)
