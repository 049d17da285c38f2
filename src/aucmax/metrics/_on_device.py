"""Ranking by one sort of tensors, where they are: what :mod:`aucmax.metrics` does on a GPU.

Equal scores form a run. After the sort two cumulative sums, read off at the ends of the runs, tell
everything: the positives and the negatives up to there.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from aucmax import kernels


class Found(NamedTuple):
    """An AUC, which is nan if a class is missing, and how many positives there are."""

    auc: float
    positives: int


class Runs(NamedTuple):
    """The rows by their scores, lowest first, and of each run its end and what is up to there."""

    order: Tensor
    ends: Tensor
    positives: Tensor
    negatives: Tensor


def roc_auc(x: Tensor, target: Tensor, weight: Tensor | None = None) -> Found | None:
    """The AUC of (N,) tensors; None if there is something wrong with them.

    Without weights twice the pairs won are an integer, and counted as such.
    """
    if weight is None and kernels.take(x) and len(x) < 2**31:
        from aucmax.kernels import ranking

        twice, positives, good = ranking.twice_won(x, target)
        pairs = positives * (len(x) - positives)
        return Found(twice / (2 * pairs) if pairs else torch.nan, positives) if good else None
    kept = _usable(x, target, weight)
    runs = None if kept is None else find_runs(*kept)
    if runs is None or kept is None:
        return None
    up, down = runs.positives, runs.negatives
    twice_won = up[0] * down[0] + (up.diff() * (down[1:] + down[:-1])).sum()
    won, mass_up, mass_down = torch.stack([twice_won, up[-1], down[-1]]).tolist()
    mass = mass_up * mass_down
    return Found(min(1.0, won / (2 * mass)) if mass else torch.nan, int(kept[1].sum()))


def placements(x: Tensor, target: Tensor) -> tuple[Found, Tensor, Tensor] | None:
    """Also twice the negatives below each positive, twice the positives above each negative."""
    kept = _usable(x, target)
    runs = None if kept is None else find_runs(*kept)
    if runs is None or kept is None:
        return None
    up, down, positive = runs.positives, runs.negatives, kept[1]
    below = down + torch.cat([down.new_zeros(1), down[:-1]])
    above = 2 * up[-1] - up - torch.cat([up.new_zeros(1), up[:-1]])
    sizes = runs.ends.diff(prepend=runs.ends.new_full((1,), -1))
    run = torch.empty_like(runs.order)
    run[runs.order] = torch.arange(len(sizes), device=run.device).repeat_interleave(sizes)
    wins, losses = below[run[positive]], above[run[~positive]]
    pairs = len(wins) * len(losses)
    return Found(int(wins.sum()) / (2 * pairs) if pairs else torch.nan, len(wins)), wins, losses


def find_runs(x: Tensor, positive: Tensor, weight: Tensor | None = None) -> Runs | None:
    """The runs of the scores, in weights if there are any; None if a score is not finite."""
    ranked, order = x.sort()
    if not bool(torch.stack([ranked[0], ranked[-1]]).isfinite().all()):  # NaN is last
        return None
    changes = (ranked[1:] != ranked[:-1]).nonzero().flatten()
    ends = torch.cat([changes, changes.new_full((1,), len(x) - 1)])
    hit = positive[order]
    if weight is None:
        positives = hit.cumsum(0, dtype=torch.int32)[ends].long()
        return Runs(order, ends, positives, ends + 1 - positives)
    w = (weight.double() / weight.max())[order]
    return Runs(order, ends, *(torch.where(side, w, 0.0).cumsum(0)[ends] for side in (hit, ~hit)))


def _usable(
    x: Tensor, target: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Scores, which are positive, and weights; without rows of weight zero, None if wrong."""
    positive = target == 1
    if bool((positive.count_nonzero() != target.count_nonzero()).item()):
        return None
    if weight is None:
        return x, positive, None
    least, finite = float(weight.min()), bool(weight.isfinite().all())
    if not finite or least < 0 or not bool(weight.any()):
        return None
    rows = weight.nonzero().flatten() if least == 0 else slice(None)
    return x[rows], positive[rows], weight[rows]
