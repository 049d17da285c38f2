"""The AUC within groups: only rows of one group are compared."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aucmax.metrics import _gpu
from aucmax.metrics._rows import Floats, Values, has_both_classes, read_rows, warn_nan
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
from aucmax.row_groups import number_groups


class GroupAUCs(NamedTuple):
    """Of the groups with both classes, (G,) each, in float64."""

    auc: Tensor
    pairs: Tensor  # their number or weight, relative to any

    def shares(self, mean: bool) -> Floats:
        """What each group counts, by its pairs, or all alike."""
        pairs = torch.ones_like(self.pairs) if mean else self.pairs
        shares: Floats = (pairs / pairs.sum()).numpy(force=True)
        return shares


def grouped_auc(
    scores: Values,
    target: Values,
    group: Values,
    weight: Values | None = None,
    mean: bool = False,
) -> float:
    r"""The share of right pairs among all pairs of a positive and a negative of the same group.

    .. math::
        \frac{\sum_g n_g^+ n_g^- \mathrm{AUC}_g}{\sum_g n_g^+ n_g^-},

    each pair multiplied by :math:`w_i w_j` if weights are given. Groups with one class have no
    pairs and do not count; ``nan``, with a warning, if there is no other. One sort:
    :math:`O(n \log n)`, whatever the number of groups; on the GPU if all arguments are there.

    Args:
        scores: Raw scores, (N,) or (N, 1).
        target: Labels 0 and 1, one per score.
        group: The group of each row: numbers, texts or other values, none missing, as
            :func:`aucmax.data.number_groups` takes them.
        weight: Finite weights of at least 0, one per score.
        mean: Give the mean of :math:`\mathrm{AUC}_g` instead, in which groups count alike.

    Example:
        >>> from aucmax.metrics import grouped_auc
        >>> scores, target = [0.1, 0.4, 0.35, 0.8, 0.9], [0, 1, 0, 0, 1]
        >>> grouped_auc(scores, target, ["a", "a", "b", "b", "b"])
        1.0
    """
    groups = auc_by_group(scores, target, group, weight)
    if groups is None:
        return math.nan
    return min(1.0, float(groups.auc.numpy(force=True) @ groups.shares(mean)))


def grouped_auc_interval(
    scores: Values,
    target: Values,
    group: Values,
    level: float = 0.95,
    weight: Values | None = None,
    mean: bool = False,
) -> ConfidenceInterval:
    r"""The AUC within groups with its standard error and a confidence interval.

    Rows of one group are alike in ways that others are not, so it is groups that were drawn, not
    rows. With :math:`u_g` for the share of all pairs that group g has (1 / G if ``mean``), the
    variance is that of a ratio of sums over G groups,

    .. math::
        V = \frac{G}{G - 1} \sum_g u_g^2 (\mathrm{AUC}_g - \hat\theta)^2.

    The interval is that of :func:`roc_auc_interval` with :math:`k = 1 / \sum u_g^2`, the effective
    number of groups (Kish): a single group says next to nothing of others. Arguments as in
    :func:`grouped_auc`, and ``level`` in (0, 1).

    Example:
        >>> from aucmax.metrics import grouped_auc_interval
        >>> scores = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2, 0.3, 0.7]
        >>> target, group = [0, 1, 0, 1, 0, 0, 1, 1], [1, 1, 2, 2, 2, 3, 3, 3]
        >>> value, low, high, *_ = grouped_auc_interval(scores, target, group)
        >>> print(f"{value:.3f} [{low:.3f}, {high:.3f}]")
        0.800 [0.257, 0.979]
    """
    level = check_level(level)
    groups = auc_by_group(scores, target, group, weight)
    if groups is None:
        return no_interval(level)
    auc, shares = groups.auc.numpy(force=True), groups.shares(mean)
    return interval(min(1.0, float(auc @ shares)), *_variance(auc, shares), level)


def grouped_auc_test(
    scores_a: Values,
    scores_b: Values,
    target: Values,
    group: Values,
    weight: Values | None = None,
    mean: bool = False,
) -> PairedTest:
    """Tests whether two models that score the same rows have the same AUC within groups.

    As :func:`delong_test`, with the variance of :func:`grouped_auc_interval` for the differences
    of the groups' AUCs.

    Example:
        >>> from aucmax.metrics import grouped_auc_test
        >>> a, b = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2], [0.4, 0.1, 0.35, 0.8, 0.3, 0.5]
        >>> test = grouped_auc_test(a, b, [0, 1, 0, 1, 1, 0], [1, 1, 2, 2, 3, 3])
        >>> print(f"{test.difference:.2f}, p = {test.p_value:.2f}")
        0.67, p = 0.05
    """
    a = auc_by_group(scores_a, target, group, weight, "scores_a")
    b = None if a is None else auc_by_group(scores_b, target, group, weight, "scores_b")
    if a is None or b is None:
        return NO_TEST
    auc_a, auc_b = a.auc.numpy(force=True), b.auc.numpy(force=True)
    shares = a.shares(mean)
    value_a, value_b = (min(1.0, float(auc @ shares)) for auc in (auc_a, auc_b))
    return comparison(value_a, value_b, *_variance(auc_a - auc_b, shares))


def _variance(values: Floats, shares: Floats) -> tuple[float | None, float]:
    """Of a mean over groups, None of a single one, and the effective number of groups."""
    variance = variance_of_mean(values, shares) if len(values) > 1 else None
    return variance, effective_rows(shares)


def auc_by_group(
    scores: Values,
    target: Values,
    group: Values,
    weight: Values | None = None,
    name: str = "scores",
) -> GroupAUCs | None:
    """Those of the rows, checked; None, and a warning, if no group has both classes."""
    tensors, found = _gpu.tensors_on_gpu(scores, target, weight), None
    if tensors is not None and isinstance(group, Tensor) and group.is_cuda:
        found = of_tensors(*tensors, group)
    found = found or _on_cpu(scores, target, group, weight, name)
    if found is not None and not len(found.auc):
        warn_nan("no group has both positives and negatives")
        return None
    return found


def of_tensors(x: Tensor, target: Tensor, weight: Tensor | None, group: Tensor) -> GroupAUCs | None:
    """Those of tensors (N,), where they are; None if something is wrong with them."""
    if not _gpu.are_right(target, weight) or not bool(x.isfinite().all()):
        return None
    group = number_groups(group, rows=len(x))
    order = x.argsort()
    order = order[group[order].argsort(stable=True)]
    ranked = x[order]
    weight = None if weight is None else weight[order].double() / weight.max()
    return _compare(ranked[1:] != ranked[:-1], (target == 1)[order], group[order], weight)


def _on_cpu(
    scores: Values, target: Values, group: Values, weight: Values | None, name: str
) -> GroupAUCs | None:
    """None, and a warning, if a class is missing."""
    x, positive, w, number = read_rows(scores, target, weight, name, group)
    if not has_both_classes(positive):
        return None
    order = np.lexsort([x, number])
    ranked = x[order]
    return _compare(
        torch.from_numpy(ranked[1:] != ranked[:-1]),
        torch.from_numpy(positive[order]),
        torch.from_numpy(number[order]),
        None if w is None else torch.from_numpy(w[order] / w.max()),
    )


def _compare(changes: Tensor, positive: Tensor, group: Tensor, weight: Tensor | None) -> GroupAUCs:
    """Of rows by group, and by score within one.

    Args:
        changes: whether a row's score differs from the one before, (N - 1,).
        positive: which rows are.
        group: of each row.
        weight: in float64; None counts rows, in integers.
    """
    first, another = changes.new_zeros(1), group[1:] != group[:-1]
    group = torch.cat([first, another]).cumsum(0)
    unit = torch.ones(int(group[-1]) + 1, dtype=torch.float64, device=group.device)
    last, sums = torch.cat([changes | another, ~first]), []
    for side in (positive, ~positive):
        if weight is None:
            w = side.long()
        else:  # over the largest of group and class: sums of small weights are as exact as others
            w = torch.where(side, weight, 0.0)
            largest = torch.zeros_like(unit).scatter_reduce(0, group, w, "amax")
            largest = largest.where(largest > 0, 1.0)
            unit, w = unit * largest, w / largest[group]
        sums.append(w.cumsum(0)[last])
    up, down = sums
    of_run, start = group[last], up.new_zeros(1)
    ends = torch.cat([of_run[1:] != of_run[:-1], ~first])
    before = torch.cat([start, down[ends]])[:-1]  # the negatives of earlier groups
    twice_below = down + torch.cat([start, down[:-1]]) - 2 * before[of_run]
    won = up.diff(prepend=start) * twice_below
    twice_won = torch.zeros_like(before).index_add(0, of_run, won)
    positives, negatives = (x[ends].diff(prepend=start).double() for x in (up, down))
    pairs = positives * negatives
    both = pairs > 0
    auc = (twice_won / (2 * pairs))[both].clamp(max=1.0)
    return GroupAUCs(auc, (pairs * unit)[both])
