"""How sure an AUC is, and whether two differ, by DeLong's variance."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from aucmax.metrics import _gpu
from aucmax.metrics._pairs import Placements, placements, placements_by_weight
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
    variance_by_group,
    variance_of_mean,
)


def roc_auc_interval(
    scores: Values,
    target: Values,
    level: float = 0.95,
    weight: Values | None = None,
    group: Values | None = None,
) -> ConfidenceInterval:
    r"""The AUC with DeLong's standard error and a confidence interval (``level`` in (0, 1)).

    A positive's *placement* :math:`p_i` is the share of negatives below it, a negative's
    :math:`q_j` the share of positives above it. Both have the mean :math:`\hat\theta`, the AUC, and
    DeLong's variance is :math:`V = S_p^2 / n_+ + S_q^2 / n_-` with their sample variances.

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
    standard error is :math:`\sqrt V`, or :math:`\sqrt B` if a class has one row.

    With weights both are weighted means; a row has the share :math:`u_i = w_i / \sum w` of its
    class, :math:`S_p^2 / n_+` becomes
    :math:`\frac{n_+}{n_+ - 1} \sum u_i^2 (p_i - \hat\theta)^2`, and k is the smaller of the
    classes' effective sizes :math:`1 / \sum u_i^2` (Kish).

    If groups of rows were drawn, such as the pictures of patients, rows of one are alike, and the
    interval without ``group`` is too narrow. With it, V is Obuchowski's (1997) for clustered data:
    what a group's rows have beyond the mean is added up before it is squared, of both classes
    together. The u_i of k are then a group's. Rows of all groups are compared; see
    :func:`grouped_auc_interval` for those of the same alone. Groups of one row change nothing.

    Example:
        >>> from aucmax.metrics import roc_auc_interval
        >>> auc, low, high, *_ = roc_auc_interval([0.1, 0.4, 0.35, 0.8, 0.9], [0, 0, 1, 1, 1])
        >>> print(f"{auc:.3f} [{low:.3f}, {high:.3f}]")
        0.833 [0.136, 0.994]
    """
    level = check_level(level)
    if group is not None:
        rows = read_rows(scores, target, weight, group=group)
        if not has_both_classes(rows.positive):
            return no_interval(level)
        auc, placed, by_class = _placements_of(rows)
        groups = [rows.group[side] for side in (rows.positive, ~rows.positive)]
        return interval(auc, *variance_by_group(placed, by_class, groups), level)
    models, weights = _placements_by_model(target, weight, scores=scores)
    if not models:
        return no_interval(level)
    auc, wins, losses = models[0]
    return interval(auc, *_variance(wins, losses, weights), level)


def delong_test(
    scores_a: Values, scores_b: Values, target: Values, weight: Values | None = None
) -> PairedTest:
    r"""Tests whether two models that score the same rows have the same AUC (DeLong et al., 1988).

    With placements as in :func:`roc_auc_interval`, the variance of the difference of the AUCs is
    :math:`S_{p^a - p^b}^2 / n_+ + S_{q^a - q^b}^2 / n_-`, that is, :math:`V_a + V_b - 2 C_{ab}`;
    :math:`z` is the difference over its root and the p-value is two-sided. If this variance is zero
    although the AUCs differ, or a class has one row, the largest value that it can have while the
    truth is zero, :math:`1 / \min(n_+, n_-)`, takes its place. Equal AUCs have z = 0 and p = 1.
    Arguments as in :func:`roc_auc`, with the scores of two models, row by row; weights count as in
    :func:`roc_auc_interval`.

    Example:
        >>> from aucmax.metrics import delong_test
        >>> test = delong_test([0.1, 0.4, 0.35, 0.8], [0.1, 0.2, 0.35, 0.8], [0, 0, 1, 1])
        >>> print(f"{test.difference:.2f}, p = {test.p_value:.2f}")
        -0.25, p = 0.48
    """
    models, weights = _placements_by_model(target, weight, scores_a=scores_a, scores_b=scores_b)
    if not models:
        return NO_TEST
    a, b = models
    return comparison(a.auc, b.auc, *_variance(a.wins - b.wins, a.losses - b.losses, weights))


def _placements_by_model(
    target: Values, weight: Values | None, **scores: Values
) -> tuple[list[Placements], tuple[Floats, Floats] | None]:
    """The placements in each model's scores, and the weights of positives and negatives.

    None, and a warning, if a class is missing.
    """
    if weight is None:
        tensors = [_gpu.tensors_on_gpu(values, target) for values in scores.values()]
        on_gpu = [None if given is None else _gpu.placements(*given[:2]) for given in tensors]
        models = [each for each in on_gpu if each is not None]
        if len(models) == len(scores):
            return models, None
    rows = [read_rows(values, target, weight, name) for name, values in scores.items()]
    if not has_both_classes(rows[0].positive):
        return [], None
    if (w := rows[0].weight) is None:
        return [placements(*each.by_class()) for each in rows], None
    w = w / w.max()  # squares of large ones would overflow
    weights = w[rows[0].positive], w[~rows[0].positive]
    return [placements_by_weight(*each.by_class(), weights) for each in rows], weights


def _placements_of(rows: Rows) -> tuple[float, list[Floats], tuple[Floats, Floats] | None]:
    """The AUC, and of positives and negatives the placements, as shares, and the weights."""
    if rows.weight is None:
        auc, wins, losses = placements(*rows.by_class())
        return auc, [wins / (2 * len(losses)), losses / (2 * len(wins))], None
    w = rows.weight / rows.weight.max()
    weights = w[rows.positive], w[~rows.positive]
    auc, wins, losses = placements_by_weight(*rows.by_class(), weights)
    return auc, [wins, losses], weights


def _variance(
    wins: Array, losses: Array, weights: tuple[Floats, Floats] | None
) -> tuple[float | None, float]:
    """DeLong's, None if a class has one row, and how many rows the smaller class has.

    Equal placements give zero, without rounding.
    """
    m, n = len(wins), len(losses)
    if weights is not None:
        k = min(map(effective_rows, weights))
        if min(m, n) == 1:
            return None, k
        return math.fsum(map(variance_of_mean, (wins, losses), weights)), k
    if min(m, n) == 1:
        return None, 1
    s_wins, s_losses = (
        float(x.double().var() if isinstance(x, Tensor) else np.var(x, ddof=1))
        for x in (wins - wins[0], losses - losses[0])
    )
    return s_wins / (4 * n * n * m) + s_losses / (4 * m * m * n), min(m, n)
