"""The part of the ROC curve that counts: its area up to a false positive rate, and a point."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from aucmax import checks
from aucmax.metrics._curve import ROUNDING, Curve, read_curve
from aucmax.metrics._moves import (
    Moves,
    by_derivative,
    class_errors,
    effective_by_class,
    interval_of,
    paired_test_of,
    rows_above,
)
from aucmax.metrics._rows import Rows, Values
from aucmax.metrics.uncertainty import ConfidenceInterval, PairedTest, quantile


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


def partial_auc_interval(
    scores: Values,
    target: Values,
    max_fpr: float = 1.0,
    min_tpr: float = 0.0,
    level: float = 0.95,
    weight: Values | None = None,
) -> ConfidenceInterval:
    r"""The partial AUC with its standard error and a confidence interval (``level`` in (0, 1)).

    The variance is DeLong's, restricted to the range (He and Escobar, 2008). A positive moves the
    area A by its *placement* in the range. A negative inside it moves A by the part of the
    positives above it, less that at the bound, for it pushes another one out. One-way, with
    :math:`t` for the score at :math:`\beta` and a tie counting half:

    .. math::
        p_i = \bigl(\beta - P(s \ge s_i \mid y = 0)\bigr)_+, \qquad
        q_j = \mathbb{1}[s_j \ge t] \bigl(P(s > s_j \mid y = 1) - P(s > t \mid y = 1)\bigr).

    They are the derivatives of A by the rows' shares of their class, which is how they are
    computed for two-way areas and weights too. :math:`V = S_p^2 / n_+ + S_q^2 / n_-`, and the
    interval is that of :func:`roc_auc_interval` for :math:`A / (\beta (1 - \alpha))`, with
    :math:`k = \min((1 - \alpha) n_+, \beta n_-)`. Two-way, where the curve may not reach the
    range at all, it begins at :math:`A - z \sqrt V` if that is lower. Arguments as in
    :func:`partial_auc`.

    Example:
        >>> from aucmax.metrics import partial_auc_interval
        >>> scores, target = [0.1, 0.4, 0.35, 0.8, 0.9], [0, 0, 1, 1, 1]
        >>> value, low, high, *_ = partial_auc_interval(scores, target, max_fpr=0.5)
        >>> print(f"{value:.3f} [{low:.3f}, {high:.3f}]")
        0.333 [0.015, 0.496]
    """
    max_fpr, min_tpr = check_range(max_fpr, min_tpr)
    metric = partial(_area_with_moves, max_fpr=max_fpr, min_tpr=min_tpr)
    found = interval_of(metric, scores, target, level, weight)
    if min_tpr and found.value:
        low = found.value - quantile(level) * found.standard_error
        found = found._replace(low=min(found.low, max(0.0, low)))
    return found


def partial_auc_test(
    scores_a: Values,
    scores_b: Values,
    target: Values,
    max_fpr: float = 1.0,
    min_tpr: float = 0.0,
    weight: Values | None = None,
) -> PairedTest:
    """Tests whether two models that score the same rows have the same partial AUC.

    As :func:`delong_test`, with what :func:`partial_auc_interval` has for placements.

    Example:
        >>> from aucmax.metrics import partial_auc_test
        >>> a, b = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2], [0.1, 0.2, 0.35, 0.8, 0.3, 0.5]
        >>> test = partial_auc_test(a, b, [0, 0, 1, 1, 1, 0], max_fpr=0.4)
        >>> print(f"{test.difference:.2f}, p = {test.p_value:.2f}")
        0.11, p = 0.72
    """
    max_fpr, min_tpr = check_range(max_fpr, min_tpr)
    metric = partial(_area_with_moves, max_fpr=max_fpr, min_tpr=min_tpr)
    return paired_test_of(metric, scores_a, scores_b, target, weight)


def tpr_at_fpr_interval(
    scores: Values,
    target: Values,
    fpr: float,
    level: float = 0.95,
    weight: Values | None = None,
) -> ConfidenceInterval:
    r"""The true positive rate at a false one, with its standard error and a confidence interval.

    The threshold t depends on the negatives, so both classes add to the variance, with r for the
    slope of the ROC curve at ``fpr`` = f:

    .. math::
        V = \frac{\mathrm{TPR} (1 - \mathrm{TPR})}{n_+ - 1} + r^2 \frac{f (1 - f)}{n_- - 1}.

    The slope is that between the points one standard error of f to the left and to the right. The
    interval is that of :func:`roc_auc_interval` with :math:`k = n_+`. Arguments as in
    :func:`tpr_at_fpr`, and ``level`` in (0, 1).

    Example:
        >>> from aucmax.metrics import tpr_at_fpr_interval
        >>> scores, target = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2], [0, 0, 1, 1, 1, 0]
        >>> value, low, high, *_ = tpr_at_fpr_interval(scores, target, 0.1)
        >>> print(f"{value:.3f} [{low:.3f}, {high:.3f}]")
        0.667 [0.107, 0.971]
    """
    metric = partial(_tpr_with_moves, fpr=check_fpr(fpr))
    return interval_of(metric, scores, target, level, weight)


def tpr_at_fpr_test(
    scores_a: Values,
    scores_b: Values,
    target: Values,
    fpr: float,
    weight: Values | None = None,
) -> PairedTest:
    """Tests whether two models find as much at the same false positive rate.

    As :func:`delong_test`, with the variance of :func:`tpr_at_fpr_interval`.

    Example:
        >>> from aucmax.metrics import tpr_at_fpr_test
        >>> a, b = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2], [0.1, 0.2, 0.35, 0.8, 0.3, 0.5]
        >>> test = tpr_at_fpr_test(a, b, [0, 0, 1, 1, 1, 0], 0.1)
        >>> print(f"{test.difference:.2f}, p = {test.p_value:.2f}")
        0.33, p = 0.32
    """
    metric = partial(_tpr_with_moves, fpr=check_fpr(fpr))
    return paired_test_of(metric, scores_a, scores_b, target, weight)


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
    # Of both ends of a line the smaller is taken, so that a point at the very bound has one
    # derivative: that of clamp is another from torch 2.15 on. Lines that go straight up have no
    # width, those along no rise: no 0 / 0.
    inside = fpr.where(fpr <= max_fpr, max_fpr).diff()
    low = tpr[:-1] - min_tpr
    high = low + rise * inside / width.where(width > 0, 1.0)
    high = high.where(high >= 0, 0.0)
    above = (high / (high - low).where(low < 0, 1.0)).where(low < 0, 1.0)  # of the line's width
    return (inside * above * (low.where(low >= 0, 0.0) + high)).sum() / 2


def _area_with_moves(rows: Rows, max_fpr: float, min_tpr: float) -> Moves:
    value, moves = by_derivative(rows, lambda curve: area_within(curve, max_fpr, min_tpr))
    positives, negatives = effective_by_class(rows)
    largest = max_fpr * (1 - min_tpr)
    k = min(positives * (1 - min_tpr), negatives * max_fpr)
    return Moves(min(value, largest), moves, k, largest)


def _tpr_with_moves(rows: Rows, fpr: float) -> Moves:
    hits, alarms, _ = rows.counts_above()
    within = alarms <= fpr * (1 + ROUNDING) * alarms[-1]
    flagged = rows_above(rows, within.astype(np.float64))
    positives, negatives = effective_by_class(rows)
    step = max(class_errors(flagged, rows)[1], 1 / negatives)
    ends = max(0.0, fpr - step), min(1.0, fpr + step)
    corners = np.append(np.diff(alarms) > 0, True)  # a line by the steps' upper ends
    low, high = np.interp(ends, alarms[corners] / alarms[-1], hits[corners] / hits[-1])
    slope = (high - low) / (ends[1] - ends[0])
    value = float((hits * within).max() / hits[-1])
    return Moves(value, np.where(rows.positive, 1.0, -slope) * flagged, positives)
