"""Ranking by one sort of tensors, where they are: what the metrics do on a GPU.

Equal scores form a run. After the sort two cumulative sums, read off at the ends of the runs, tell
everything: the positives and the negatives up to there. What is wrong with the rows is not said
here: there is no result then, and the CPU's way, which looks again, says it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from aucmax import kernels
from aucmax.metrics._pairs import Placements
from aucmax.metrics._rows import Values, widen


class Runs(NamedTuple):
    """Runs of equal scores, lowest first."""

    positive: Tensor  # which rows are, in their own order
    order: Tensor  # the rows by their scores
    ends: Tensor  # the last row of each run, in that order
    positives: Tensor  # the weight, or number, of positives up to there
    negatives: Tensor  # that of negatives


def tensors_on_gpu(
    scores: Values, target: Values, weight: Values | None = None
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Tensors of shape (N,), if all that is given is on a GPU and fits together."""
    given = [scores, target] if weight is None else [scores, target, weight]
    if not all(isinstance(v, Tensor) and v.is_cuda and v.numel() for v in given):
        return None
    tensors = [widen(v) for v in given if isinstance(v, Tensor)]
    x, y, *w = (v[:, 0] if v.shape[1:] == (1,) else v for v in tensors)
    if x.ndim != 1 or not x.is_floating_point() or any(v.shape != x.shape for v in (y, *w)):
        return None
    return x, y, w[0] if w else None


def roc_auc(x: Tensor, target: Tensor, weight: Tensor | None = None) -> float:
    """The AUC of tensors (N,); nan if a class is missing or something is wrong with them.

    Without weights twice the pairs won are an integer, and counted as such.
    """
    if weight is None and kernels.usable_on(x) and len(x) < 2**31:
        from aucmax.kernels import ranking

        twice, positives, good = ranking.twice_won(x, target)
        pairs = positives * (len(x) - positives)
        return twice / (2 * pairs) if good and pairs else math.nan
    runs = _find_runs(x, target, weight)
    if runs is None:
        return math.nan
    up, down = runs.positives, runs.negatives
    twice_won = up[0] * down[0] + (up.diff() * (down[1:] + down[:-1])).sum()
    won, mass_up, mass_down = torch.stack([twice_won, up[-1], down[-1]]).tolist()
    mass = mass_up * mass_down
    return min(1.0, won / (2 * mass)) if mass else math.nan


def placements(x: Tensor, target: Tensor) -> Placements | None:
    """Those of tensors (N,); None if a class is missing or something is wrong with them."""
    runs = _find_runs(x, target)
    if runs is None:
        return None
    up, down = runs.positives, runs.negatives
    below = down + torch.cat([down.new_zeros(1), down[:-1]])
    above = 2 * up[-1] - up - torch.cat([up.new_zeros(1), up[:-1]])
    sizes = runs.ends.diff(prepend=runs.ends.new_full((1,), -1))
    run = torch.empty_like(runs.order)
    run[runs.order] = torch.arange(len(sizes), device=run.device).repeat_interleave(sizes)
    wins, losses = below[run[runs.positive]], above[run[~runs.positive]]
    pairs = len(wins) * len(losses)
    return Placements(int(wins.sum()) / (2 * pairs), wins, losses) if pairs else None


def counts_above(
    x: Tensor, target: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """As those of rows on the CPU; None if a class is missing or something is wrong with them."""
    runs = _find_runs(-x, target, weight)
    if runs is None or not all(torch.stack([runs.positives[-1], runs.negatives[-1]]).tolist()):
        return None
    return runs.positives.double(), runs.negatives.double()


def are_right(target: Tensor, weight: Tensor | None) -> bool:
    """Whether labels are 0 and 1, and weights finite, none negative, and some positive."""
    if bool(((target != 0) & (target != 1)).any()):
        return False
    if weight is None:
        return True
    return bool(weight.isfinite().all() & (weight >= 0).all() & weight.any())


def _find_runs(x: Tensor, target: Tensor, weight: Tensor | None = None) -> Runs | None:
    """The runs of the rows that have a weight; None if a value is wrong."""
    if not are_right(target, weight):
        return None
    positive = target == 1
    if weight is not None and not bool(weight.all()):
        rows = weight.nonzero().flatten()
        x, positive, weight = x[rows], positive[rows], weight[rows]
    ranked, order = x.sort()
    if not bool(torch.stack([ranked[0], ranked[-1]]).isfinite().all()):  # NaN is last
        return None
    changes = (ranked[1:] != ranked[:-1]).nonzero().flatten()
    ends = torch.cat([changes, changes.new_full((1,), len(x) - 1)])
    hit = positive[order]
    if weight is None:
        positives = hit.cumsum(0, dtype=torch.int32)[ends].long()
        return Runs(positive, order, ends, positives, ends + 1 - positives)
    w = (weight.double() / weight.max())[order]
    up, down = (torch.where(side, w, 0.0).cumsum(0)[ends] for side in (hit, ~hit))
    return Runs(positive, order, ends, up, down)
