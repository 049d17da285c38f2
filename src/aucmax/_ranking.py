"""Ranking by one sort of tensors, where they are: what :mod:`aucmax.metrics` does on a GPU.

Equal scores form a run. After the sort two cumulative sums, read off at the ends of the runs, tell
everything: the positives and the negatives up to there.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Runs(NamedTuple):
    """The rows by their scores, lowest first, and of each run its end and what is up to there."""

    order: Tensor
    ends: Tensor
    positives: Tensor
    negatives: Tensor


def find_runs(x: Tensor, positive: Tensor, weight: Tensor | None = None) -> Runs | None:
    """The runs of the scores, in weights if there are any; None if a score is not finite."""
    ranked, order = x.sort()
    if not bool(ranked[[0, -1]].isfinite().all()):  # infinities are first or last, NaN is last
        return None
    changes = (ranked[1:] != ranked[:-1]).nonzero().flatten()
    ends = torch.cat([changes, changes.new_full((1,), len(x) - 1)])
    hit = positive[order]
    if weight is None:
        positives = hit.cumsum(0, dtype=torch.int32)[ends].long()
        return Runs(order, ends, positives, ends + 1 - positives)
    w = (weight.double() / weight.max())[order]
    return Runs(order, ends, *(torch.where(side, w, 0.0).cumsum(0)[ends] for side in (hit, ~hit)))


def auc(runs: Runs) -> float:
    """The share of pairs won; without weights twice their number is an integer, counted as such."""
    up, down = runs.positives, runs.negatives
    twice = up[0] * down[0] + (up.diff() * (down[1:] + down[:-1])).sum()
    won, positives, negatives = torch.stack([twice, up[-1], down[-1]]).tolist()
    return min(1.0, float(won / (2 * positives * negatives)))


def placements(runs: Runs, positive: Tensor) -> tuple[float, Tensor, Tensor]:
    """The AUC, twice the negatives below each positive, twice the positives above each negative."""
    up, down = runs.positives, runs.negatives
    below = down + torch.cat([down.new_zeros(1), down[:-1]])
    above = 2 * up[-1] - up - torch.cat([up.new_zeros(1), up[:-1]])
    sizes = runs.ends.diff(prepend=runs.ends.new_full((1,), -1))
    run = torch.empty_like(runs.order)
    run[runs.order] = torch.arange(len(sizes), device=run.device).repeat_interleave(sizes)
    return auc(runs), below[run[positive]], above[run[~positive]]
