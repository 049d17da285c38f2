"""The AUC within groups: only rows of one group are compared."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aucmax.metrics.rows import Array, Rows, Values, has_both_classes, read_rows, warn_undefined


class GroupAUCs(NamedTuple):
    """The AUCs of the groups that have both classes, (G,) each.

    Attributes:
        auc: Float64.
        pairs: Their number or weight, in float64, relative to any.
        group: The numbers of these groups.
    """

    auc: Tensor
    pairs: Tensor
    group: Tensor

    def mean(self, mean: bool = False) -> Tensor:
        """Return the mean AUC, by pairs; with ``mean`` groups count alike."""
        return self.auc.mean() if mean else self.auc @ (self.pairs / self.pairs.sum())


def grouped_auc(
    scores: Values,
    target: Values,
    group: Values,
    weight: Values | None = None,
    *,
    mean: bool = False,
) -> float:
    r"""Return the share of right pairs among all pairs of rows of the same group.

    .. math::
        \frac{\sum_g n_g^+ n_g^- \mathrm{AUC}_g}{\sum_g n_g^+ n_g^-},

    each pair of a positive and a negative multiplied by :math:`w_i w_j` if weights are given.
    Groups with one class have no pairs and do not count; ``nan``, with a warning, if there is no
    other. One sort: :math:`O(n \log n)`, whatever the number of groups.

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
    rows = read_rows(scores, target, weight, group)
    groups = auc_by_group(rows) if has_both_classes(rows) else None
    return math.nan if groups is None else min(1.0, float(groups.mean(mean)))


def auc_by_group(rows: Rows, weight: Tensor | None = None) -> GroupAUCs | None:
    """Return the AUC of each group that has both classes; None, with a warning, without any.

    Rows are sorted by group, and by score within one. Equal scores of a group form a run. Sums of
    weight up to the ends of the runs, less those up to the group, count the pairs.

    Args:
        rows: With groups; weights over the largest of a group and class are summed, so that sums of
            small weights are as exact as others. Without weights rows are counted in integers.
        weight: Takes the place of theirs, for derivatives.
    """
    order, another, changes = _sort(rows.scores, rows.group)
    positive = torch.as_tensor(rows.label)[order]
    if weight is None and rows.weight is not None:
        weight = torch.as_tensor(rows.relative_weight())
    start = another.new_zeros(1)
    number = torch.cat([start, another]).cumsum(0)
    unit = torch.ones(int(number[-1]) + 1, dtype=torch.float64, device=number.device)
    last, sums = torch.cat([changes | another, ~start]), []
    for side in (positive, ~positive):
        if weight is None:
            w = side.long()
        else:
            w = torch.where(side, weight[order], 0.0)
            largest = torch.zeros_like(unit).scatter_reduce(0, number, w.detach(), "amax")
            largest = largest.where(largest > 0, 1.0)
            unit, w = unit * largest, w / largest[number]
        sums.append(w.cumsum(0)[last])
    up, down = sums
    of_run, zero = number[last], up.new_zeros(1)
    ends = torch.cat([of_run[1:] != of_run[:-1], ~start])
    before = torch.cat([zero, down[ends]])[:-1]  # the negatives of earlier groups
    twice_below = down + torch.cat([zero, down[:-1]]) - 2 * before[of_run]
    twice_won = torch.zeros_like(before).index_add(0, of_run, up.diff(prepend=zero) * twice_below)
    positives, negatives = (x[ends].diff(prepend=zero).double() for x in (up, down))
    pairs = positives * negatives
    both = pairs > 0
    if not bool(both.any()):
        warn_undefined("no group has both positives and negatives")
        return None
    auc = (twice_won / (2 * pairs))[both].clamp(max=1.0)
    group = torch.as_tensor(rows.group)[order][last][ends]
    return GroupAUCs(auc, (pairs * unit)[both], group[both])


def _sort(scores: Array, group: Array) -> tuple[Tensor, Tensor, Tensor]:
    """Sort by group and score; return the order, and where group and score differ from before."""
    order: Array
    if isinstance(scores, Tensor):
        order = scores.argsort()
        order = order[group[order].argsort(stable=True)]
    else:
        order = np.lexsort([scores, group])
    x, g = scores[order], group[order]
    changes = (g[1:] != g[:-1], x[1:] != x[:-1])
    return torch.as_tensor(order), torch.as_tensor(changes[0]), torch.as_tensor(changes[1])
