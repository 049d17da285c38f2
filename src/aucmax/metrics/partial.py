"""The part of the ROC curve that counts: its area up to a false positive rate, and a point."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from aucmax import checks
from aucmax.metrics._curve import ROUNDING, Curve, read_curve
from aucmax.metrics._rows import Values


def partial_auc(
    scores: Values,
    target: Values,
    max_fpr: float = 1.0,
    min_tpr: float = 0.0,
    weight: Values | None = None,
    standardized: bool = False,
) -> float:
    r"""The area under the ROC curve up to a false positive rate :math:`\beta`, above a true one.

    .. math::
        \int_0^\beta \bigl(\mathrm{ROC}(u) - \alpha\bigr)_+ \, du, \qquad
        \beta = \text{max_fpr}, \quad \alpha = \text{min_tpr},

    from 0 to :math:`\beta (1 - \alpha)`. One-way (:math:`\alpha = 0`), divided by :math:`\beta`, it
    is the probability that a random positive scores above a random one of the highest
    :math:`\beta` of the negatives. The points of the curve are joined by lines, so a tied pair
    counts one half and a row at the bound in part. :math:`O(n \log n)`, on the GPU if all
    arguments are there.

    Args:
        scores: Raw scores, (N,) or (N, 1).
        target: Labels 0 and 1, one per score.
        max_fpr: The largest false positive rate that counts, above 0 and at most 1.
        min_tpr: The smallest true positive rate that counts, at least 0 and below 1.
        weight: Finite weights of at least 0, one per score.
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
    curve = read_curve(scores, target, weight)
    if curve is None:
        return math.nan
    largest = max_fpr * (1 - min_tpr)
    area = min(largest, float(area_within(curve, max_fpr, min_tpr)))
    if not standardized:
        return area
    guessing = max(0.0, max_fpr - min_tpr) ** 2 / 2
    return (1 + (area - guessing) / (largest - guessing)) / 2


def tpr_at_fpr(scores: Values, target: Values, fpr: float, weight: Values | None = None) -> float:
    r"""The largest true positive rate of a threshold whose false positive rate is at most ``fpr``.

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
    curve = read_curve(scores, target, weight)
    if curve is None:
        return math.nan
    hits, alarms, _ = curve
    within = alarms <= fpr * (1 + ROUNDING) * alarms[-1]
    return float((hits * within).max() / hits[-1])


def check_range(max_fpr: float, min_tpr: float = 0.0) -> tuple[float, float]:
    """Return both rates if they are some."""
    max_fpr = checks.number(
        "max_fpr", max_fpr, "a number above 0 and at most 1", lambda x: 0 < x <= 1
    )
    allowed = "a number of at least 0 and below 1"
    return max_fpr, checks.number("min_tpr", min_tpr, allowed, lambda x: 0 <= x < 1)


def check_fpr(fpr: float) -> float:
    """Return the rate if it is one."""
    return checks.number("fpr", fpr, "a number from 0 to 1", lambda x: 0 <= x <= 1)


def area_within(curve: Curve, max_fpr: float, min_tpr: float) -> Tensor:
    """The area under the lines that join the points, each cut at both rates."""
    start = curve.hits.new_zeros(1)
    tpr, fpr = (torch.cat([start, sums / sums[-1]]) for sums in (curve.hits, curve.alarms))
    width, rise = fpr.diff(), tpr.diff()
    # Lines that go straight up have no width, and those along have no rise: no 0 / 0.
    inside = ((max_fpr - fpr[:-1]) / width.where(width > 0, 1.0)).clamp(0, 1)
    low = tpr[:-1] - min_tpr
    high = (low + inside * rise).clamp(min=0)
    above = (high / (high - low).where(low < 0, 1.0)).where(low < 0, 1.0)  # of the line's width
    return (width * inside * above * (low.clamp(min=0) + high)).sum() / 2
