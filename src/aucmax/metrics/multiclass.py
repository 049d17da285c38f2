"""Hand and Till's M, the AUC of more than two classes."""

from __future__ import annotations

import math

import numpy as np

from aucmax.metrics.rows import (
    ORDER,
    Floats,
    Rows,
    Values,
    drop_weightless,
    read_array,
    read_column,
    read_groups,
    read_weight,
    twice_below,
    warn_undefined,
)


def hand_till(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""Return Hand and Till's M (2001), the AUC of c classes, whatever their frequencies.

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
    rows = read_classes(scores, target, weight)
    return mean_of_pairs(rows)[0] if has_every_class(rows) else math.nan


def read_classes(
    scores: Values,
    target: Values,
    weight: Values | None = None,
    cluster: Values | None = None,
    *,
    name: str = "scores",
) -> Rows:
    """Check rows of several classes, and drop those of weight zero.

    Args:
        scores: (N, c), finite, c at least 2.
        target: Classes 0 to c - 1.
        weight: Finite, at least 0, some above.
        cluster: The cluster that each row was drawn with.
        name: What errors call the scores.
    """
    table = read_array(scores, name)
    if table.ndim != 2 or table.shape[1] < 2 or not len(table):
        hint = f": {ORDER}" if table.ndim == 1 and np.ndim(target) == 2 else ""
        raise ValueError(f"{name} must have shape (N, c) with c >= 2, found {table.shape}{hint}")
    classes, count = read_column(target, "target", len(table)), table.shape[1]
    if wrong := set(np.unique(classes).tolist()) - set(range(count)):
        raise ValueError(
            f"target must hold the classes 0 to {count - 1} only, found {sorted(wrong)[:5]}"
        )
    w = read_weight(weight, len(table))
    clusters = read_groups(cluster, "groups", table)
    return drop_weightless(Rows(table, classes.astype(np.int64), w, cluster=clusters))


def has_every_class(rows: Rows) -> bool:
    """Return whether every class has rows; warn if not."""
    absent = set(range(rows.scores.shape[1])) - set(rows.label.tolist())
    if absent:
        warn_undefined(f"target lacks class {sorted(absent)}")
    return not absent


def mean_of_pairs(rows: Rows, placed: bool = False) -> tuple[float, Floats]:
    """Return M and each row's placements in all pairs, added up as M adds up the AUCs.

    For each column the rows of its class are held against all others at once.

    Args:
        rows: Of every class.
        placed: Whether placements are asked for; else they are zeros.
    """
    count = rows.scores.shape[1]
    pairs = count * (count - 1)
    total, sums, w = 0.0, np.zeros(len(rows.label)), rows.relative_weight()
    mass = np.bincount(rows.label, w)
    for k in range(count):
        column, order = rows.scores[:, k], np.argsort(rows.scores[:, k])
        of_class = rows.label[order] == k
        one, rest = order[of_class], order[~of_class]
        below, whole = twice_below(
            column[rest], column[one], None if rows.weight is None else w[one]
        )
        above = 2 * whole - below  # twice the positives, k's rows, above each of the others
        won = np.bincount(rows.label[rest], w[rest] * above, count)
        total += math.fsum(won / (2 * whole * mass))
        if placed:
            share = w[rest] / mass[rows.label[rest]]
            sums[one] += twice_below(column[one], column[rest], share)[0] / (2 * pairs)
            sums[rest] += above / (2 * whole * pairs)
    return min(1.0, total / pairs), sums
