r"""Confidence intervals of metrics and paired tests of two models: one method for every metric.

A metric of rows depends on the shares that the rows have of their class. Its derivative by the
share of a row is the row's *influence*; for the AUC these are DeLong's placements. The variance of
the metric is that of the mean influence in each class, added up over the classes (the infinitesimal
jackknife); where clusters of rows were drawn, Obuchowski's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from aucmax import checks
from aucmax.metrics.curve import (
    ROUNDING,
    area_within,
    mean_precision,
    room_at_top,
    trace,
)
from aucmax.metrics.grouped import GroupAUCs, auc_by_group
from aucmax.metrics.multiclass import has_every_class, mean_of_pairs, read_classes
from aucmax.metrics.named import read_name
from aucmax.metrics.rows import (
    Array,
    Floats,
    Rows,
    Values,
    has_both_classes,
    rank,
    read_rows,
    twice_below,
    warn_caller,
)

EXACT = 1e-12
"""A share or a difference below this is zero but for rounding."""


class ConfidenceInterval(NamedTuple):
    """The value of a metric, its confidence interval and its standard error.

    Example:
        >>> from aucmax import metrics
        >>> found = metrics.interval([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        >>> found.value == found.auc, found.low < found.value < found.high, found.level
        (True, True, 0.95)
    """

    value: float
    low: float
    high: float
    standard_error: float
    level: float

    @property
    def auc(self) -> float:
        """The value, of an AUC."""
        return self.value


class PairedTest(NamedTuple):
    """Two models' values, their difference a - b, and how surprising it is if the truth is zero.

    Example:
        >>> from aucmax import metrics
        >>> y = [0, 0, 0, 1, 1, 1]
        >>> found = metrics.compare([1, 2, 4, 3, 5, 6], [2, 1, 5, 4, 3, 6], y)
        >>> round(found.auc_a, 2), round(found.auc_b, 2), round(found.difference, 2)
        (0.89, 0.78, 0.11)
    """

    value_a: float
    value_b: float
    difference: float
    standard_error: float
    z: float
    p_value: float

    @property
    def auc_a(self) -> float:
        """The value of the first, of AUCs."""
        return self.value_a

    @property
    def auc_b(self) -> float:
        """The value of the second, of AUCs."""
        return self.value_b


def interval(
    scores: Values,
    target: Values,
    metric: str = "roc_auc",
    *,
    level: float = 0.95,
    weight: Values | None = None,
    groups: Values | None = None,
    rank_within: Values | None = None,
) -> ConfidenceInterval:
    r"""Return the value of a metric with its standard error and a confidence interval.

    Of the AUC, a positive's *placement* :math:`p_i` is the share of negatives below it, a
    negative's :math:`q_j` the share of positives above it. Both have the mean :math:`\hat\theta`,
    the AUC, and DeLong's variance is :math:`V = S_p^2 / n_+ + S_q^2 / n_-` with their sample
    variances. Of another metric the derivatives by the rows' shares of their class take the place
    of p and q:

    - partial AUC (He and Escobar, 2008): with :math:`\beta` for ``max_fpr`` and t for the score
      there, :math:`p_i = (\beta - P(s \ge s_i \mid y = 0))_+` and
      :math:`q_j = \mathbb{1}[s_j \ge t] (P(s > s_j \mid y = 1) - P(s > t \mid y = 1))`, ties
      counting half; a two-way area likewise. Where its curve may not reach the range at all, the
      interval begins at :math:`A - z \sqrt V` if that is lower.
    - average precision: a negative lowers the precision of all positives below it; a positive adds
      its own, and raises that of those below.
    - true positive rate at the false one f: the threshold depends on the negatives, which add
      :math:`r^2 f (1 - f) / n_-`, with r for the slope of the curve between the points one standard
      error of f to the left and to the right.
    - precision of the first rows: a row that comes in pushes out another, which is positive with
      the precision between the places one standard error above and below the last.
    - Hand and Till's M, a mean of AUCs: a row's placements in all of them are added up.
    - AUC within groups: of the groups that have both classes, with the share :math:`u_g` of all
      pairs each (1 / G with "grouped_auc@mean"), :math:`V = \frac{G}{G - 1} \sum_g u_g^2
      (\mathrm{AUC}_g - \hat\theta)^2`.

    Both kinds of precision are for rows with the same share of positives.

    :math:`V` tends to be too small if a class has few rows, down to zero if they are placed alike.
    What holds for any data is Hoeffding's bound: the AUC is a mean over all ways to form
    :math:`k = \min(n_+, n_-)` disjoint pairs, so its variance is :math:`\theta (1 - \theta) / k` at
    most. With B for that at :math:`\hat\theta`, V has the weight of k rows here and B that of one:

    .. math::
        \operatorname{logit}\hat\theta \pm z_{(1 + \mathrm{level})/2}
        \frac{\sigma}{\hat\theta (1 - \hat\theta)}, \qquad \sigma^2 = \frac{k V + B}{k + 1}.

    At :math:`\hat\theta = 1` all of the k disjoint pairs are won, which has probability
    :math:`\theta^k` at most. The interval is then :math:`[(\tfrac{1 - \mathrm{level}}{2})^{1/k},
    1]`, Clopper and Pearson's for k wins out of k (mirrored at 0). So the width is never zero. The
    standard error is :math:`\sqrt V`, or :math:`\sqrt B` if a class has one row. Of other metrics,
    :math:`\theta` is the value over the largest it can be, and k as many rows or groups as it rests
    on: :math:`\min((1 - \alpha) n_+, \beta n_-)` for a partial AUC, :math:`n_+` for average
    precision and the true positive rate, the smaller of both the places and :math:`n_+` for
    precision, the rows of the smallest class for M.

    With weights all are weighted means; a row has the share :math:`u_i = w_i / \sum w` of its
    class, :math:`S_p^2 / n_+` becomes
    :math:`\frac{n_+}{n_+ - 1} \sum u_i^2 (p_i - \bar p)^2`, and for the numbers of rows stand
    their effective ones, :math:`1 / \sum u_i^2` (Kish).

    If ``groups`` of rows were drawn, such as the pictures of patients, rows of one are alike, and
    the interval without ``groups`` is too narrow. With them V is Obuchowski's (1997): with
    :math:`D_{gk} = \sum_i u_i (p_i - \bar p_k)` over group g's rows of class k,

    .. math::
        V = \sum_k \frac{G_k}{G_k - 1} \sum_g D_{gk}^2
            + \frac{G}{G - 1} \sum_{k \ne l} \sum_g D_{gk} D_{gl},

    G being the number of groups, and :math:`G_k` that of those which have rows of class k. The
    :math:`u_i` of k are then a group's, and of the range of a partial AUC and of the first rows
    those groups count that have rows there. Groups of one row each change nothing.

    Args:
        scores: Raw scores, (N,) or (N, 1); for Hand and Till's M (N, c) after the link.
        target: Labels 0 and 1, one per score; for M classes 0 to c - 1.
        metric: "roc_auc", "average_precision", "partial_auc@0.1" (the largest false positive rate;
            "partial_auc@0.1,0.5" with the smallest true one), "tpr_at_fpr@0.01",
            "precision_at@0.05" (a share of the rows), "precision_at@k=100", "grouped_auc" or
            "hand_till".
        level: Of confidence, in (0, 1).
        weight: Finite weights of at least 0, one per row.
        groups: The group of each row, if groups were drawn: they count as one. Rows of all groups
            are compared.
        rank_within: A group for each row; only rows of the same one are compared ("roc_auc" is then
            :func:`grouped_auc`). These groups are what was drawn, unless ``groups`` says more.

    Example:
        >>> from aucmax.metrics import interval
        >>> scores, target = [0.1, 0.4, 0.35, 0.8, 0.9], [0, 0, 1, 1, 1]
        >>> auc = interval(scores, target)
        >>> print(f"{auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}]")
        0.833 [0.136, 0.994]
        >>> top = interval(scores, target, "precision_at@k=2", level=0.9)
        >>> print(f"{top.value:.3f} [{top.low:.3f}, {top.high:.3f}]")
        1.000 [0.224, 1.000]
        >>> patients = interval(scores, target, groups=["Ann", "Ben", "Cem", "Dora", "Dora"])
        >>> print(f"{patients.value:.3f} [{patients.low:.3f}, {patients.high:.3f}]")
        0.833 [0.090, 0.996]
    """
    return confidence_interval(
        scores, target, metric, level, weight, groups, rank_within, warn=True
    )


def compare(
    a: Values,
    b: Values,
    target: Values,
    metric: str = "roc_auc",
    *,
    weight: Values | None = None,
    groups: Values | None = None,
    rank_within: Values | None = None,
) -> PairedTest:
    r"""Test whether two models that score the same rows have the same value of a metric.

    With influences as in :func:`interval` (for the AUC this is the test of DeLong et al., 1988),
    the variance of the difference is that of the rows' differences, that is,
    :math:`V_a + V_b - 2 C_{ab}`; :math:`z` is the difference over its root and the p-value is
    two-sided. If this variance is zero although the values differ, or a class has one row, the
    largest value that it can have while the truth is zero, :math:`1 / k`, takes its place. Equal
    values have z = 0 and p = 1. With five groups drawn the p-value is too small (a test at 5 %
    errs in 5 to 15 % of samples), with fifteen about right.

    Args:
        a: Scores of one model, as in :func:`interval`.
        b: Scores of the other, row by row.
        target: Labels, one per score.
        metric: As in :func:`interval`.
        weight: Finite weights of at least 0, one per row.
        groups: The group of each row, if groups were drawn.
        rank_within: A group for each row; only rows of the same one are compared.

    Example:
        >>> from aucmax.metrics import compare
        >>> test = compare([0.1, 0.4, 0.35, 0.8], [0.1, 0.2, 0.35, 0.8], [0, 0, 1, 1])
        >>> print(f"{test.difference:.2f}, p = {test.p_value:.2f}")
        -0.25, p = 0.48
    """
    estimates = _estimates({"a": a, "b": b}, target, metric, weight, groups, rank_within, warn=True)
    if estimates is None:
        return PairedTest(*[math.nan] * 6)
    first, second = estimates
    variance = first.design.variance(first.influence - second.influence)
    difference, error = first.value - second.value, math.sqrt(variance or 0.0)
    if abs(difference) < EXACT * first.largest:
        return PairedTest(first.value, second.value, 0.0, error, z=0.0, p_value=1.0)
    error = error or first.largest * math.sqrt(1 / first.k)
    z = difference / error
    p_value = math.erfc(abs(z) / math.sqrt(2))
    return PairedTest(first.value, second.value, difference, error, z, p_value)


def confidence_interval(
    scores: Values,
    target: Values,
    metric: str = "roc_auc",
    level: float = 0.95,
    weight: Values | None = None,
    groups: Values | None = None,
    rank_within: Values | None = None,
    *,
    warn: bool = False,
) -> ConfidenceInterval:
    """Return what :func:`interval` does, without its warning of groups that hold both labels."""
    level = checks.number("level", level, "a number strictly between 0 and 1", lambda x: 0 < x < 1)
    estimates = _estimates(
        {"scores": scores}, target, metric, weight, groups, rank_within, warn=warn
    )
    if estimates is None:
        return ConfidenceInterval(math.nan, math.nan, math.nan, math.nan, level)
    value, influence, design, k, largest, from_zero = estimates[0]
    variance, tail, share = design.variance(influence), (1 - level) / 2, value / largest
    if abs(share - round(share)) < EXACT:  # sums of a perfect ranking may end beside 1
        share = float(round(share))
        value = share * largest
    bound = share * (1 - share) / k
    relative = bound if variance is None else variance / largest**2
    error = largest * math.sqrt(relative)
    if share in (0, 1):
        edge = tail ** (1 / k)
        low, high = (edge, 1.0) if share else (0.0, 1 - edge)
        return ConfidenceInterval(value, low * largest, high * largest, error, level)
    centre, sigma = math.log(share / (1 - share)), math.sqrt((k * relative + bound) / (k + 1))
    normal = -NormalDist().inv_cdf(tail)
    half = normal * sigma / (share * (1 - share))
    low, high = (largest * (1 + math.tanh((centre + side) / 2)) / 2 for side in (-half, half))
    if from_zero:
        low = min(low, max(0.0, value - normal * error))
    return ConfidenceInterval(value, min(low, value), max(high, value), error, level)


class Design:
    """How rows were drawn, each or in clusters, from each class.

    Args:
        label: Numbers of the classes, from 0, (N,); each has rows.
        weight: (N,); None counts rows alike.
        cluster: Numbers of the clusters; None takes each row as drawn.

    Attributes:
        effective: How many rows or clusters of one weight would tell as much of each class (Kish).
        effective_rows: How many rows would, if they had been drawn each.
    """

    def __init__(self, label: Array, weight: Floats | None, cluster: Array | None = None) -> None:
        self.label = self.cell_label = np.asarray(label, dtype=np.int64)
        self.cell: Array = None
        self.cluster: Array = None
        self.units = total = square = np.bincount(self.label)
        self.weight: Floats = np.ones(len(self.label)) if weight is None else weight
        if weight is not None:
            total, square = (np.bincount(self.label, w) for w in (weight, weight**2))
        self.share = self.weight / total[self.label]
        self.effective = self.effective_rows = total**2 / square
        if cluster is not None:  # a cell: the rows of one class in a cluster
            self.cluster = np.unique(cluster, return_inverse=True)[1]
            classes = len(total)
            cells, self.cell = np.unique(self.cluster * classes + self.label, return_inverse=True)
            self.cell_label = cells % classes
            self.units = np.bincount(self.cell_label)
            mass = np.bincount(self.cell, self.weight)
            self.effective = total**2 / np.bincount(self.cell_label, mass**2)

    def variance(self, values: Floats) -> float | None:
        """Return the variance of the classes' means, added up; None if a class has one unit.

        Equal values give zero, without rounding.
        """
        if self.units.min() == 1:
            return None
        parts, within = self._deviations(values)
        factors = self.units / (self.units - 1)
        if self.cluster is None:
            return math.fsum(factors * within)
        count = int(self.cluster.max()) + 1
        factor = count / (count - 1)
        across = np.square(np.bincount(self.cluster, parts)).sum()
        return float((factors - factor) @ within + factor * across)

    def errors(self, values: Floats) -> Floats:
        """Return the standard error of each class's mean; one unit has none."""
        within = self._deviations(values)[1]
        factors = self.units / np.maximum(1, self.units - 1)
        errors: Floats = np.sqrt(np.where(self.units > 1, factors * within, 0.0))
        return errors

    def clusters_per_row(self, part: Floats) -> float:
        """Return how many clusters tell as much as one of these rows, each counting by its part."""
        mass = self.weight * part
        sums = mass if self.cluster is None else np.bincount(self.cluster, mass)
        return float(mass @ mass / (sums @ sums))

    def _deviations(self, values: Floats) -> tuple[Array, Array]:
        """Return what each row adds to its class's mean, and each class's sum of squares."""
        any_row = np.empty(len(self.units), dtype=np.int64)
        any_row[self.label] = np.arange(len(self.label))
        values = values - values[any_row][self.label]
        means = np.bincount(self.label, self.share * values)
        parts = self.share * (values - means[self.label])
        cells = parts if self.cell is None else np.bincount(self.cell, parts)
        return parts, np.bincount(self.cell_label, cells**2)


class Estimate(NamedTuple):
    """A metric's value, and what its standard error is made of.

    Attributes:
        value: From 0 to ``largest``.
        influence: Of each row or group that was drawn.
        design: How these were drawn.
        k: As many of the rarer kind the value rests on.
        largest: That the value can be.
        from_zero: Whether the interval may have to begin at zero.
    """

    value: float
    influence: Floats
    design: Design
    k: float
    largest: float = 1.0
    from_zero: bool = False


def _roc_auc(rows: Rows, design: Design) -> Estimate:
    positive, negative = np.flatnonzero(rows.label), np.flatnonzero(~rows.label)
    positive = positive[np.argsort(rows.scores[positive])]
    negative = negative[np.argsort(rows.scores[negative])]
    x, y = rows.scores[positive], rows.scores[negative]
    weight = rows.relative_weight()
    w, v = (None if rows.weight is None else weight[side] for side in (positive, negative))
    wins, negatives = twice_below(x, y, v)
    losses, positives = twice_below(y, x, w)
    placed = np.empty(len(rows.label))
    placed[positive] = wins / (2 * negatives)
    placed[negative] = (2 * positives - losses) / (2 * positives)
    if w is None:  # in integers, exact
        value = int(wins.sum()) / (2 * positives * negatives)
    else:
        value = min(1.0, float(np.average(placed[rows.label], weights=weight[rows.label])))
    return Estimate(value, placed, design, design.effective.min())


def _hand_till(rows: Rows, design: Design) -> Estimate:
    return Estimate(*mean_of_pairs(rows, placed=True), design, design.effective.min())


def _partial_auc(
    rows: Rows, design: Design, max_fpr: float = 1.0, min_tpr: float = 0.0
) -> Estimate:
    value, influence = _by_derivative(
        rows, lambda w: area_within(trace(rows, weight=w), max_fpr, min_tpr)
    )
    inside = max_fpr * design.effective_rows[0]
    if design.cluster is not None:
        ranking = rank(rows.scores)
        alarms = np.append(0.0, trace(rows, ranking).alarms.numpy())
        flagged = _rows_of_runs(ranking, alarms[:-1] < max_fpr * alarms[-1])
        inside *= design.clusters_per_row(np.where(rows.label, 0.0, flagged))
    largest, k = max_fpr * (1 - min_tpr), min(design.effective[1] * (1 - min_tpr), inside)
    value = min(value, largest)
    return Estimate(value, influence, design, k, largest, from_zero=min_tpr > 0 and value > 0)


def _average_precision(rows: Rows, design: Design) -> Estimate:
    value, influence = _by_derivative(rows, lambda w: mean_precision(trace(rows, weight=w)))
    return Estimate(min(1.0, value), influence, design, design.effective[1])


def _tpr_at_fpr(rows: Rows, design: Design, fpr: float) -> Estimate:
    """A negative above the threshold moves it: by the slope of the curve there."""
    ranking = rank(rows.scores)
    hits, alarms = (sums.numpy().astype(np.float64) for sums in trace(rows, ranking))
    within = alarms <= fpr * (1 + ROUNDING) * alarms[-1]
    flagged = _rows_of_runs(ranking, within)
    negatives, positives = design.effective
    step = max(design.errors(flagged)[0], 1 / negatives)
    ends = max(0.0, fpr - step), min(1.0, fpr + step)
    corners = np.append(np.diff(alarms) > 0, True)  # a line by the steps' upper ends
    low, high = np.interp(ends, alarms[corners] / alarms[-1], hits[corners] / hits[-1])
    slope = (high - low) / (ends[1] - ends[0])
    value = float((hits * within).max() / hits[-1])
    return Estimate(value, np.where(rows.label, 1.0, -slope) * flagged, design, positives)


def _precision_at(
    rows: Rows, design: Design, k: int | None = None, share: float | None = None
) -> Estimate | None:
    """A row at the top pushes out another: positive with the precision about the last place."""
    ranking = rank(rows.scores)
    curve = trace(rows, ranking)
    room = room_at_top(rows, curve, k, share)
    if room is None:
        return None
    hits, taken = (np.append(0.0, x.numpy()) for x in (curve.hits, curve.hits + curve.alarms))
    flagged = _rows_of_runs(ranking, ((room - taken[:-1]) / np.diff(taken)).clip(0, 1))
    mass = float(taken[-1] - hits[-1]), float(hits[-1])  # of negatives and positives
    step = max(1.0, math.hypot(*(mass * design.errors(flagged))))
    ends = max(0.0, room - step), min(taken[-1], room + step)
    below, above = np.interp(ends, taken, hits)
    local = (above - below) / (ends[1] - ends[0])
    influence = np.where(rows.label, (1 - local) * mass[1], -local * mass[0]) * flagged / room
    largest = min(1.0, mass[1] / room)
    places = room / sum(mass) * design.effective_rows.sum() * design.clusters_per_row(flagged)
    value = min(largest, float(np.interp(room, taken, hits)) / room)
    return Estimate(value, influence, design, min(design.effective[1], places), largest)


def _grouped_auc(rows: Rows, design: Design, mean: bool = False) -> Estimate | None:
    """What was drawn is groups, clusters of whole groups, or clusters of rows across groups."""
    groups = auc_by_group(rows)
    if groups is None:
        return None
    value = min(1.0, float(groups.mean(mean)))
    cluster = None
    if design.cluster is not None:
        numbers, first, group = np.unique(
            np.asarray(rows.group), return_index=True, return_inverse=True
        )
        cluster = design.cluster[first]
        if (design.cluster != cluster[group]).any():  # some group is of several clusters
            influence = _by_derivative(
                rows, lambda w: cast(GroupAUCs, auc_by_group(rows, w)).mean(mean)
            )[1]
            return Estimate(value, influence, design, design.effective.min())
        cluster = cluster[np.searchsorted(numbers, groups.group.numpy())]
    auc, pairs = groups.auc.numpy(), groups.pairs.numpy()
    weight = np.ones(len(pairs)) if mean else pairs / pairs.sum()
    design = Design(np.zeros(len(pairs)), weight, cluster)
    return Estimate(value, auc, design, design.effective[0])


ESTIMATES: Mapping[str, Callable[..., Estimate | None]] = {
    "roc_auc": _roc_auc,
    "average_precision": _average_precision,
    "partial_auc": _partial_auc,
    "tpr_at_fpr": _tpr_at_fpr,
    "precision_at": _precision_at,
    "grouped_auc": _grouped_auc,
    "hand_till": _hand_till,
}
"""Each metric with its influences, of checked rows and how they were drawn."""


def _estimates(
    scores: Mapping[str, Values],
    target: Values,
    metric: str,
    weight: Values | None,
    groups: Values | None,
    rank_within: Values | None,
    *,
    warn: bool,
) -> list[Estimate] | None:
    """Read each model's rows and estimate the metric; None, with a warning, where it is undefined.

    Args:
        scores: Of each model, by the name that errors call them.
        target: As in :func:`interval`, like all others.
        metric: Its name.
        weight: Of the rows.
        groups: The clusters.
        rank_within: The groups to rank within.
        warn: Whether clusters that hold both labels are warned of.
    """
    name, options = read_name(metric)
    if rank_within is not None and name == "roc_auc":
        name = "grouped_auc"
    if (rank_within is not None) != (name == "grouped_auc"):
        given = "no groups" if rank_within is None else "groups"
        raise ValueError(
            'rank_within must be given for the metric "grouped_auc", and for no other but '
            f'"roc_auc", found {given} for {metric!r}'
        )
    if name == "hand_till":
        models = [read_classes(x, target, weight, groups, name=k) for k, x in scores.items()]
        columns = [rows.scores.shape[1] for rows in models]
        if columns[0] != columns[-1]:
            raise ValueError(f"b must have the {columns[0]} columns of a, found {columns[-1]}")
        if not has_every_class(models[0]):
            return None
    else:
        models = [
            read_rows(
                x, target, weight, rank_within, groups, name=k, group_name="rank_within"
            ).on_host()
            for k, x in scores.items()
        ]
        if not has_both_classes(models[0]):
            return None
        if warn and rank_within is None:
            _warn_of_mixed_clusters(models[0])
    label, cluster = models[0].label, models[0].cluster
    weights = None if models[0].weight is None else models[0].relative_weight()
    design = Design(label, weights, cluster)
    estimates = []
    for rows in models:
        estimate = ESTIMATES[name](rows, design, **options)
        if estimate is None:
            return None
        estimates.append(estimate._replace(k=max(1.0, float(estimate.k))))
    return estimates


def _warn_of_mixed_clusters(rows: Rows) -> None:
    """Warn if most clusters hold both labels, as the groups of 0.2 that rows were ranked within."""
    if rows.cluster is None:
        return
    clusters, number = np.unique(rows.cluster, return_inverse=True)
    count, positives = np.bincount(number), np.bincount(number, rows.label)
    mixed = int(((positives > 0) & (positives < count)).sum())
    if 2 * mixed > len(clusters):
        warn_caller(
            f"groups are clusters of rows that count as one, and {mixed} of {len(clusters)} hold "
            "both labels: to compare rows only within their group, pass rank_within"
        )


def _by_derivative(rows: Rows, metric: Callable[[Tensor], Tensor]) -> tuple[float, Floats]:
    """Return a metric that is smooth in the rows' weights, and the rows' influences."""
    with torch.inference_mode(False), torch.enable_grad():  # a caller may have switched it off
        w = torch.from_numpy(rows.relative_weight()).requires_grad_()
        value = metric(w)
        (slope,) = torch.autograd.grad(value, w)
    label = rows.label.astype(np.int64)
    mass = np.bincount(label, rows.relative_weight())
    return float(value.detach()), slope.numpy() * mass[label]


def _rows_of_runs(ranking: tuple[Tensor, Tensor], values: Floats) -> Floats:
    """Return the value of each row, of which those of equal score have one."""
    order, last = (x.numpy() for x in ranking)
    of_rows = np.empty(len(order))
    of_rows[order] = np.repeat(values, np.diff(last, prepend=-1))
    return of_rows
