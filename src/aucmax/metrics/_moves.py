"""By how much each row moves a metric, of which intervals and paired tests are made.

A metric of the rows of two classes depends on the shares that its rows have of their class. Its
derivative by the share of a row, the row's *move*, plays the part of DeLong's placements: the
variance of the metric is that of the mean of the moves in each class, added up over both (the
infinitesimal jackknife, or the delta method).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from aucmax.metrics._curve import Curve
from aucmax.metrics._rows import Array, Floats, Rows, Values, has_both_classes, read_rows
from aucmax.metrics.uncertainty import (
    NO_TEST,
    ConfidenceInterval,
    PairedTest,
    check_level,
    comparison,
    effective_rows,
    interval,
    no_interval,
    variance_of_mean,
)


class Moves(NamedTuple):
    """A metric's value, and what its standard error is made of."""

    value: float
    of_rows: Floats  # in their own order
    k: float  # as many rows of the rarer kind the value rests on
    largest: float = 1.0  # that the value can be


Linearized: TypeAlias = Callable[[Rows], Moves | None]
"""A metric with its moves; None, and a warning, where it is not defined."""


def interval_of(
    metric: Linearized, scores: Values, target: Values, level: float, weight: Values | None
) -> ConfidenceInterval:
    """The value of a metric with its interval."""
    level = check_level(level)
    rows = read_rows(scores, target, weight)
    if not has_both_classes(rows.positive) or (found := metric(rows)) is None:
        return no_interval(level)
    variance = _variance(found.of_rows, rows)
    return interval(found.value, variance, max(1.0, found.k), level, found.largest)


def paired_test_of(
    metric: Linearized, scores_a: Values, scores_b: Values, target: Values, weight: Values | None
) -> PairedTest:
    """The values of two models that score the same rows, and whether they differ."""
    rows_a = read_rows(scores_a, target, weight, "scores_a")
    rows_b = read_rows(scores_b, target, weight, "scores_b")
    if not has_both_classes(rows_a.positive) or (a := metric(rows_a)) is None:
        return NO_TEST
    b = metric(rows_b)
    assert b is not None  # what one model's rows lack the other's do
    variance = _variance(a.of_rows - b.of_rows, rows_a)
    return comparison(a.value, b.value, variance, max(1.0, a.k), a.largest)


def by_derivative(rows: Rows, metric: Callable[[Curve], Tensor]) -> tuple[float, Floats]:
    """The value of a metric that is smooth in the rows' weights, and their moves."""
    order, last = rows.ranked()
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
    ):  # whoever scored may have switched it off
        w = torch.from_numpy(relative_weight(rows)[order]).requires_grad_()
        positive, ends = torch.from_numpy(rows.positive[order]), torch.from_numpy(last)
        hits, alarms = (torch.where(side, w, 0).cumsum(0)[ends] for side in (positive, ~positive))
        value = metric(Curve(hits, alarms, 1.0))
        (slope,) = torch.autograd.grad(value, w)
    moves = np.empty(len(order))
    moves[order] = (slope * torch.where(positive, hits[-1], alarms[-1])).detach().numpy()
    return float(value.detach()), moves


def rows_above(rows: Rows, share_of_run: Floats) -> Floats:
    """Which rows are flagged, each by the share that its run of equal scores is."""
    order, last = rows.ranked()
    flagged = np.empty(len(order))
    flagged[order] = np.repeat(share_of_run, np.diff(last, prepend=-1))
    return flagged


def relative_weight(rows: Rows) -> Floats:
    """The weights of the rows over the largest, ones if they count alike."""
    return np.ones(len(rows.scores)) if rows.weight is None else rows.weight / rows.weight.max()


def class_errors(values: Floats, rows: Rows) -> tuple[float, float]:
    """The standard errors of the values' means among positives and negatives; one row has none."""
    w = relative_weight(rows)
    return tuple(  # type: ignore[return-value]
        math.sqrt(variance_of_mean(values[side], w[side])) if side.sum() > 1 else 0.0
        for side in (rows.positive, ~rows.positive)
    )


def effective_by_class(rows: Rows) -> tuple[float, float]:
    """How many positives and negatives of one weight would tell as much."""
    w = relative_weight(rows)
    return effective_rows(w[rows.positive]), effective_rows(w[~rows.positive])


def _variance(moves: Array, rows: Rows) -> float | None:
    """None if a class has one row. Equal moves give zero."""
    positives = int(rows.positive.sum())
    if min(positives, len(moves) - positives) == 1:
        return None
    return math.fsum(error**2 for error in class_errors(moves, rows))
