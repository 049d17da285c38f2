"""Precision: of the rows at the top, and its mean over the recall gained."""

from __future__ import annotations

import math
from functools import partial
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from aucmax import checks
from aucmax.metrics._curve import ROUNDING, Curve, curve_of, read_curve
from aucmax.metrics._moves import (
    Moves,
    by_derivative,
    class_errors,
    effective_by_class,
    interval_of,
    paired_test_of,
    rows_above,
)
from aucmax.metrics._rows import Rows, Values, warn_nan
from aucmax.metrics.uncertainty import ConfidenceInterval, PairedTest


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


def average_precision_interval(
    scores: Values, target: Values, level: float = 0.95, weight: Values | None = None
) -> ConfidenceInterval:
    r"""Average precision with its standard error and a confidence interval (``level`` in (0, 1)).

    A row *moves* it by the derivative by the row's share of its class: a negative lowers the
    precision of all positives below it; a positive adds its own precision, and raises that of
    those below. Of these moves p and q, :math:`V = S_p^2 / n_+ + S_q^2 / n_-` as for DeLong's
    placements. The interval is that of :func:`roc_auc_interval` with :math:`k = n_+`. It is for
    rows with the same share of positives, on which average precision depends. Arguments as in
    :func:`average_precision`.

    Example:
        >>> from aucmax.metrics import average_precision_interval
        >>> scores, target = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2], [0, 0, 1, 1, 1, 0]
        >>> value, low, high, *_ = average_precision_interval(scores, target)
        >>> print(f"{value:.3f} [{low:.3f}, {high:.3f}]")
        0.917 [0.334, 0.996]
    """
    return interval_of(_mean_with_moves, scores, target, level, weight)


def average_precision_test(
    scores_a: Values, scores_b: Values, target: Values, weight: Values | None = None
) -> PairedTest:
    """Tests whether two models that score the same rows have the same average precision.

    As :func:`delong_test`, with the moves of :func:`average_precision_interval` for placements.

    Example:
        >>> from aucmax.metrics import average_precision_test
        >>> a, b = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2], [0.1, 0.2, 0.35, 0.8, 0.3, 0.5]
        >>> test = average_precision_test(a, b, [0, 0, 1, 1, 1, 0])
        >>> print(f"{test.difference:.2f}, p = {test.p_value:.2f}")
        0.11, p = 0.59
    """
    return paired_test_of(_mean_with_moves, scores_a, scores_b, target, weight)


def precision_at_interval(
    scores: Values,
    target: Values,
    share: float,
    level: float = 0.95,
    weight: Values | None = None,
) -> ConfidenceInterval:
    r"""The precision of the first rows with its standard error and a confidence interval.

    Of c rows at the top, H are positive. A row that comes in pushes out another, which is positive
    with a probability :math:`\rho`, the precision at the c-th place itself. So with the rates of
    the rows taken among positives and negatives,

    .. math::
        c^2 V = (1 - \rho)^2 n_+ \mathrm{TPR} (1 - \mathrm{TPR}) +
                \rho^2 n_- \mathrm{FPR} (1 - \mathrm{FPR}),

    where :math:`\rho` is the share of positives between the places one standard error above and
    below. The interval is that of :func:`roc_auc_interval` for :math:`H / k`, with k the smaller of
    c and :math:`n_+`, which is the most that H can be. It is for rows with the same share of
    positives. Arguments as in :func:`precision_at`, and ``level`` in (0, 1).

    Example:
        >>> from aucmax.metrics import precision_at_interval
        >>> scores, target = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2], [0, 0, 1, 1, 1, 0]
        >>> value, low, high, *_ = precision_at_interval(scores, target, 0.5)
        >>> print(f"{value:.3f} [{low:.3f}, {high:.3f}]")
        0.667 [0.187, 0.946]
    """
    check_share(share)
    metric = partial(_precision_with_moves, share=share)
    return interval_of(metric, scores, target, level, weight)


def precision_at_test(
    scores_a: Values,
    scores_b: Values,
    target: Values,
    share: float,
    weight: Values | None = None,
) -> PairedTest:
    """Tests whether the first rows of two models have the same precision.

    As :func:`delong_test`, with the variance of :func:`precision_at_interval`.

    Example:
        >>> from aucmax.metrics import precision_at_test
        >>> a, b = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2], [0.1, 0.2, 0.35, 0.8, 0.3, 0.5]
        >>> test = precision_at_test(a, b, [0, 0, 1, 1, 1, 0], 2)
        >>> print(f"{test.difference:.2f}, p = {test.p_value:.2f}")
        0.50, p = 0.20
    """
    check_share(share)
    metric = partial(_precision_with_moves, share=share)
    return paired_test_of(metric, scores_a, scores_b, target, weight)


def check_share(share: float) -> None:
    """Raise unless it is a number of rows, an integer, or a share of them."""
    is_count = isinstance(share, Integral)
    allowed = "an integer of at least 1, or a share above 0 and at most 1"
    checks.number("share", share, allowed, lambda x: x >= 1 if is_count else 0 < x <= 1)


def rows_within(curve: Curve, share: float) -> float | None:
    """How much weight is at the top; None, and a warning, if there is not so much."""
    total = float(curve.hits[-1] + curve.alarms[-1])
    if not isinstance(share, Integral):
        return float(share) * total
    if share > total * curve.unit * (1 + ROUNDING):
        warn_nan(f"share is {share} rows of {total * curve.unit:g}")
        return None
    return min(total, float(share) / curve.unit)


def mean_precision(curve: Curve) -> Tensor:
    """Average precision."""
    hits, alarms, _ = curve
    return hits.diff(prepend=hits.new_zeros(1)) @ (hits / (hits + alarms)) / hits[-1]


def _mean_with_moves(rows: Rows) -> Moves:
    value, moves = by_derivative(rows, mean_precision)
    return Moves(value, moves, effective_by_class(rows)[0])


def _precision_with_moves(rows: Rows, share: float) -> Moves | None:
    curve = curve_of(rows)
    room = rows_within(curve, share)
    if room is None:
        return None
    hits, taken = (np.append(0, x) for x in (curve.hits, curve.hits + curve.alarms))
    flagged = rows_above(rows, ((room - taken[:-1]) / np.diff(taken)).clip(0, 1))
    mass = float(hits[-1]), float(taken[-1] - hits[-1])
    errors = class_errors(flagged, rows)
    step = max(1.0, math.hypot(mass[0] * errors[0], mass[1] * errors[1]))
    ends = max(0.0, room - step), min(taken[-1], room + step)
    below, above = np.interp(ends, taken, hits)
    local = (above - below) / (ends[1] - ends[0])
    moves = np.where(rows.positive, (1 - local) * mass[0], -local * mass[1]) * flagged / room
    largest = min(1.0, mass[0] / room)
    positives, negatives = effective_by_class(rows)
    k = min(positives, room / sum(mass) * (positives + negatives))
    return Moves(min(largest, float(np.interp(room, taken, hits)) / room), moves, k, largest)
