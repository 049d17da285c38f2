"""Sums over pairs where nothing may be waited for: on a GPU, captured in a graph, traced.

Pairs in tiles are the fastest up to a few thousand rows, whatever the surrogate. Beyond, one sort
and running sums serve the hinges and the square, as :mod:`aucmax.loss.pairs` has the algebra; the
others stay with tiles, of rows in an order in which those of a group and a class lie together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aucmax import checks, kernels
from aucmax.loss.surrogates import DEGREES, Surrogate, value_and_slope

TILES = 8192
"""Up to so many rows all pairs cost less than a sort, on an H200."""

BLOCK = 1 << 22
"""Pairs at a time where there are no kernels."""


def pair_sums(
    scores: Tensor, positive: Tensor, negative: Tensor, group: Tensor | None, surrogate: Surrogate
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`aucmax.loss.pairs.pair_sums`, in the precision of the scores or better."""
    tiled = kernels.usable_on(scores) and not checks.tracing()
    if surrogate.name in DEGREES and not (tiled and scores.shape[1] <= TILES):
        return _by_running_sums(scores, positive, negative, group, surrogate)
    if not tiled:
        return _by_blocks(scores, positive, negative, group, surrogate)
    from aucmax.kernels import pairs

    options = surrogate.name, surrogate.margin, surrogate.scale, surrogate.q
    rows = scores, positive, negative
    if scores.shape[1] <= TILES:
        return pairs.pair_sums(*rows, group, options)
    key = (positive > 0).to(torch.uint8 if group is None else torch.int64)
    if group is not None:
        key += 2 * group
    key, order = key.sort(stable=True)
    low, high = (torch.searchsorted(key, key ^ 1, right=right) for right in (False, True))
    scores, positive, negative = (x.gather(1, order) for x in rows)
    group = None if group is None else group[order]
    sums, mass, slope = pairs.pair_sums(
        scores, positive, negative, group, options, pairs.Ranges(low, high)
    )
    return sums, mass, torch.empty_like(slope).scatter(1, order, slope)


class PairMean(torch.autograd.Function):
    """The mean over the pairs of one column, straight from what a loss is given."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None,
        group: Tensor | None,
        surrogate: tuple[str, float, float, float],
    ) -> Tensor:
        """One launch for few rows; the gradient comes along."""
        from aucmax.kernels import pairs

        value, gradient = pairs.pair_mean(scores, target, weight, group, surrogate)
        ctx.save_for_backward(gradient)
        ctx.dtype = scores.dtype
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        """In the scores."""
        (gradient,) = ctx.saved_tensors
        return (gradient * grad).to(ctx.dtype), None, None, None, None


def _by_running_sums(
    scores: Tensor, positive: Tensor, negative: Tensor, group: Tensor | None, surrogate: Surrogate
) -> tuple[Tensor, Tensor, Tensor]:
    columns, n = scores.shape
    exact, up = scores.double(), positive > 0
    v = (
        surrogate.scale * (exact - exact.mean(1, keepdim=True).round())
        - surrogate.margin * up.double()
    )
    if surrogate.name == "square":  # all pairs count, as if every negative came later
        order = up.logical_not().sort(stable=True).indices
    else:  # at a tie the negative comes first: the pair has no slope
        order = torch.where(up, v.nextafter(v.new_full((), torch.inf)), v).sort().indices
    # One row of numbers holds the columns and their groups in turn; a row is compared with those
    # from first to last.
    first = torch.arange(0, columns * n, n, device=scores.device)[:, None]
    last = first + n - 1
    if group is not None:
        ranked, by_group = group[order].sort(stable=True)
        order = order.gather(1, by_group)
        start, first = first, first + torch.searchsorted(ranked, ranked)
        last = start + torch.searchsorted(ranked, ranked, right=True) - 1
    x, p, q = (y.gather(1, order) for y in (v, positive.double(), negative.double()))

    def running(w: Tensor) -> tuple[Tensor, Tensor]:
        """What rows up to each add up to in its group, and what those behind it do."""
        total = w.reshape(-1).cumsum(0)
        upto = total.view_as(w)
        return upto - (total - w.reshape(-1))[first], total[last] - upto

    (p_before, p_behind), (_, q_behind) = running(p), running(q)
    if DEGREES[surrogate.name] == 1:
        slope = q * p_before - p * q_behind
    else:
        (px_before, _), (_, qx_behind) = running(p * x), running(q * x)
        slope = 2.0 * (q * (p_before * x - px_before) + p * (q_behind * x - qx_behind))
    sums = (slope * x).sum(1) / DEGREES[surrogate.name]
    mass = (q * (p_before + p_behind)).sum(1)
    gradient = torch.empty_like(slope).scatter(1, order, surrogate.scale * slope)
    kind = scores.dtype
    return sums.to(kind), mass.to(kind), gradient.to(kind)


def _by_blocks(
    scores: Tensor, positive: Tensor, negative: Tensor, group: Tensor | None, surrogate: Surrogate
) -> tuple[Tensor, Tensor, Tensor]:
    columns, n = scores.shape
    sums, mass = (scores.new_zeros(columns, dtype=torch.float64) for _ in range(2))
    gradient = torch.zeros_like(scores)
    rows = max(1, BLOCK // (columns * n))
    for k in range(0, n, rows):
        i = slice(k, k + rows)
        w = positive[:, i, None] * negative[:, None, :]
        if group is not None:
            w = w * (group[i, None] == group)
        z = surrogate.scale * (scores[:, i, None] - scores[:, None, :])
        phi, slope = value_and_slope(z, surrogate)
        slope = surrogate.scale * w * slope
        sums += (w * phi).sum((1, 2), dtype=torch.float64)
        mass += w.sum((1, 2), dtype=torch.float64)
        gradient[:, i] += slope.sum(2)
        gradient -= slope.sum(1)
    return sums.to(scores.dtype), mass.to(scores.dtype), gradient
