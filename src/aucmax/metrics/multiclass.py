"""Hand and Till's M, the AUC of more than two classes, with its interval and its test."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np

from aucmax.checks import check_weights
from aucmax.metrics._pairs import placements, placements_by_weight, share_won
from aucmax.metrics._rows import Array, Floats, Values, read_array, read_column, warn_nan
from aucmax.metrics.roc import roc_auc
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
from aucmax.row_groups import number_groups


def hand_till(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""Hand and Till's M (2001), the AUC of c classes, whatever their frequencies.

    .. math::
        M = \frac{1}{c (c - 1)} \sum_{i \ne j} \hat A(i \mid j),

    where :math:`\hat A(i \mid j)` is the AUC of column i with class i as positives, j as negatives.
    A column is compared between rows, so pass what the model ranks by: for a model trained with
    :class:`aucmax.MulticlassAUCLoss` and its softmax link, ``scores.double().softmax(-1)``.
    Softmax is not monotone in a column, and a constant added to a row of raw scores changes M.

    Args:
        scores: Scores after the link, (N, c), one column per class.
        target: Classes 0 to c - 1, one per row.
        weight: Finite weights of at least 0, one per row.

    Example:
        >>> from aucmax.metrics import hand_till
        >>> hand_till([[2, 1, 0], [1, 3, 0], [0, 1, 2], [0, 2, 1]], [0, 1, 2, 2])
        1.0
    """
    table, classes = _read_table(scores, target)
    parts = _by_class(table, classes)
    if not parts:
        return math.nan
    pairs = list(permutations(range(len(parts)), 2))
    if weight is None:
        aucs = [share_won(parts[i][:, i], parts[j][:, i]) for i, j in pairs]
    else:
        w, aucs = read_column(weight, "weight", len(table)), []
        for i, j in pairs:
            rows = (classes == i) | (classes == j)
            aucs.append(roc_auc(table[rows, i], classes[rows] == i, w[rows]))
    return math.fsum(aucs) / len(pairs)


def hand_till_interval(
    scores: Values,
    target: Values,
    level: float = 0.95,
    weight: Values | None = None,
    group: Values | None = None,
) -> ConfidenceInterval:
    r"""Hand and Till's M with its standard error and a confidence interval.

    DeLong's variance, carried over: M is a mean of AUCs, so a row's placements in all of them add
    up to one number. With :math:`S_k^2` for the sample variance of these in class k,
    :math:`V = \sum_k S_k^2 / n_k`. The interval is made of V as in :func:`roc_auc_interval`, with
    the rows of the smallest class for k: the bounds on an AUC's variance hold for their mean too.

    Args:
        scores: Scores after the link, (N, c), one column per class.
        target: Classes 0 to c - 1, one per row.
        level: In (0, 1).
        weight: Finite weights of at least 0, one per row.
        group: The group of each row, if groups of rows were drawn, as in :func:`roc_auc_interval`.

    Example:
        >>> from aucmax.metrics import hand_till_interval
        >>> scores = [[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.4, 0.5, 0.1], [0.2, 0.3, 0.5]]
        >>> m, low, high, *_ = hand_till_interval(scores * 5, [0, 1, 0, 2] * 5)
        >>> print(f"{m:.3f} [{low:.3f}, {high:.3f}]")
        1.000 [0.478, 1.000]
    """
    level = check_level(level)
    table, classes = _read_table(scores, target)
    there, weights = _weights_by_class(classes, table.shape[1], weight)
    parts = _by_class(table[there], classes[there])
    if not parts:
        return no_interval(level)
    m, placed = _placements_by_class(parts, weights)
    if group is None:
        return interval(m, *_variance(placed, weights), level)
    number = number_groups(group, rows=len(table)).numpy(force=True)[there]
    groups = [number[classes[there] == k] for k in range(len(parts))]
    return interval(m, *variance_by_group(placed, weights, groups), level)


def hand_till_test(
    scores_a: Values, scores_b: Values, target: Values, weight: Values | None = None
) -> PairedTest:
    """Tests whether two models that score the same rows have the same M.

    As :func:`delong_test`, with the variance of :func:`hand_till_interval`.

    Args:
        scores_a: Scores after the link, (N, c).
        scores_b: Those of another model, row by row.
        target: Classes 0 to c - 1, one per row.
        weight: Finite weights of at least 0, one per row.

    Example:
        >>> from aucmax.metrics import hand_till_test
        >>> a = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]] * 9
        >>> b = [[0.4, 0.3, 0.3], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]] * 9
        >>> test = hand_till_test(a, b, [0, 1, 2] * 9)
        >>> print(f"{test.difference:.3f}, p = {test.p_value:.2f}")
        0.083, p = 0.80
    """
    table_a, classes = _read_table(scores_a, target, "scores_a")
    table_b, _ = _read_table(scores_b, target, "scores_b")
    if table_a.shape[1] != table_b.shape[1]:
        raise ValueError(
            f"scores_b must have the {table_a.shape[1]} columns of scores_a, "
            f"found {table_b.shape[1]}"
        )
    there, weights = _weights_by_class(classes, table_a.shape[1], weight)
    parts = _by_class(table_a[there], classes[there])
    if not parts:
        return NO_TEST
    m_a, placed_a = _placements_by_class(parts, weights)
    m_b, placed_b = _placements_by_class(_by_class(table_b[there], classes[there]), weights)
    differences = [a - b for a, b in zip(placed_a, placed_b, strict=True)]
    return comparison(m_a, m_b, *_variance(differences, weights))


def _read_table(scores: Values, target: Values, name: str = "scores") -> tuple[Array, Array]:
    """Scores (N, c) and classes of the rows."""
    table = read_array(scores, name)
    if table.ndim != 2 or table.shape[1] < 2 or not len(table):
        raise ValueError(f"{name} must have shape (N, c) with c >= 2, found {table.shape}")
    classes, count = read_column(target, "target", len(table)), table.shape[1]
    if wrong := set(classes.tolist()) - set(range(count)):
        raise ValueError(
            f"target must hold the classes 0 to {count - 1} only, found {sorted(wrong)[:5]}"
        )
    return table, classes


def _by_class(table: Array, classes: Array) -> list[Array]:
    """The rows of each class; none at all, and a warning, if a class has none."""
    parts = [table[classes == k] for k in range(table.shape[1])]
    if absent := [k for k, part in enumerate(parts) if not len(part)]:
        warn_nan(f"target lacks class {absent}")
        return []
    return parts


def _weights_by_class(
    classes: Array, count: int, weight: Values | None
) -> tuple[Array, list[Floats] | None]:
    """The places of the rows that weigh something, and the weights of each class's."""
    if weight is None:
        return np.arange(len(classes)), None
    w = read_column(weight, "weight", len(classes)).astype(np.float64)
    check_weights(w)
    w, there = w / w.max(), np.flatnonzero(w > 0)
    return there, [w[there][classes[there] == k] for k in range(count)]


def _placements_by_class(
    parts: list[Array], weights: list[Floats] | None
) -> tuple[float, list[Floats]]:
    """M, and of each class's rows the placements in all pairs, added up as M adds up the AUCs."""
    pairs = list(permutations(range(len(parts)), 2))
    placed, aucs = [np.zeros(len(part)) for part in parts], []
    for i, j in pairs:
        scores = parts[i][:, i], parts[j][:, i]
        if weights is None:
            auc, wins, losses = placements(*scores)
            wins, losses = wins / (2 * len(parts[j])), losses / (2 * len(parts[i]))
        else:
            auc, wins, losses = placements_by_weight(*scores, (weights[i], weights[j]))
        placed[i] += wins / len(pairs)
        placed[j] += losses / len(pairs)
        aucs.append(auc)
    return math.fsum(aucs) / len(pairs), placed


def _variance(placed: list[Floats], weights: list[Floats] | None) -> tuple[float | None, float]:
    """Of the sum of the classes' means, and how many rows the smallest class has.

    None if a class has one row. Equal ones give zero.
    """
    k = min(map(len, placed) if weights is None else map(effective_rows, weights))
    if min(map(len, placed)) == 1:
        return None, k
    if weights is not None:
        return math.fsum(map(variance_of_mean, placed, weights)), k
    return math.fsum(float(np.var(part - part[0], ddof=1)) / len(part) for part in placed), k
