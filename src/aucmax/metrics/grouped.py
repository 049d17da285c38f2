"""The AUC within groups: only rows of one group are compared."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aucmax.metrics import _gpu
from aucmax.metrics._rows import Values, has_both_classes, read_rows, warn_nan
from aucmax.row_groups import number_groups


class GroupAUCs(NamedTuple):
    """Of the groups with both classes, (G,) each, in float64."""

    auc: Tensor
    pairs: Tensor  # their number or weight, relative to any


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
    return float(groups.auc.mean() if mean else groups.auc @ (groups.pairs / groups.pairs.sum()))


def auc_by_group(
    scores: Values, target: Values, group: Values, weight: Values | None = None
) -> GroupAUCs | None:
    """Those of the rows, checked; None, and a warning, if no group has both classes."""
    tensors, found = _gpu.tensors_on_gpu(scores, target, weight), None
    if tensors is not None and isinstance(group, Tensor) and group.is_cuda:
        found = of_tensors(*tensors, group)
    found = found or _on_cpu(scores, target, group, weight)
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
    scores: Values, target: Values, group: Values, weight: Values | None
) -> GroupAUCs | None:
    """None, and a warning, if a class is missing."""
    x, positive, w, number = read_rows(scores, target, weight, group=group)
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
    largest = torch.ones(int(group[-1]) + 1, dtype=torch.float64, device=group.device)
    if weight is None:
        w = torch.ones_like(group)
    else:  # relative to the group's largest: a group of small weights is as exact as another
        largest = largest.scatter_reduce(0, group, weight, "amax", include_self=False)
        w = weight / largest.where(largest > 0, 1.0)[group]
    last = torch.cat([changes | another, ~first])
    up, down = (torch.where(side, w, 0).cumsum(0)[last] for side in (positive, ~positive))
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
    return GroupAUCs(auc, (pairs * largest**2)[both])
