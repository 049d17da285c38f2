"""The binary saddle objective in one reduction, and its gradients in one pass.

With ``d`` each score's distance to its class's aim (:func:`aucmax.loss.objective.host_saddle` has
the algebra), six sums tell the value and the gradients in a, b and alpha; the gradient in a score
is linear in its ``d``. Sums are of single precision within a block, of double beyond it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

SMALL, BLOCK, PROGRAMS = 4096, 1024, 1024
"""Up to ``SMALL`` scores one program does it all; more are cut into blocks for several."""


class Batch(NamedTuple):
    """Flat scores, labels and weights, and what the objective takes beside them."""

    scores: Tensor
    labels: Tensor
    weight: Tensor | None
    prior: tuple[float, float] | tuple[Tensor, Tensor, Tensor]
    margin: float
    normalize: bool
    link: str


def forward(a: Tensor, b: Tensor, alpha: Tensor, batch: Batch, counts: bool) -> tuple[Tensor, ...]:
    """The value, and what :func:`backward` needs.

    The prior is p and p (1 - p), or the counts of a :class:`aucmax.StreamingPrior`, to which the
    batch's labels are added with ``counts``.
    """
    x, n = batch.scores, len(batch.scores)
    value, saved = x.new_empty((), dtype=torch.float32), x.new_empty(8, dtype=torch.float32)
    known = isinstance(batch.prior[0], float)
    prior = (*batch.prior, 0.0) if known else batch.prior
    programs = 1 if n <= SMALL else min(PROGRAMS, triton.cdiv(n, BLOCK))
    size = triton.next_power_of_2(n) if programs == 1 else BLOCK
    partials = value if programs == 1 else x.new_empty((programs, 8), dtype=torch.float64)
    numbers = batch.margin, batch.normalize, known, counts
    weight = x if batch.weight is None else batch.weight
    _sums[(programs,)](
        x, batch.labels, weight, a, b, alpha, *prior, partials, value, saved, n,
        *numbers, batch.weight is not None, batch.link == "sigmoid", programs == 1, max(size, 16),
        num_warps=4,
    )  # fmt: skip
    if programs > 1:
        _finish[(1,)](
            partials, a, b, alpha, *prior, value, saved, n, programs, *numbers,
            batch.weight is not None, triton.next_power_of_2(programs), num_warps=4,
        )  # fmt: skip
    return value, saved


def backward(grad: Tensor, saved: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients in scores, a, b and alpha."""
    n = len(batch.scores)
    in_scores = torch.empty_like(batch.scores)
    in_a, in_b, in_alpha = (saved.new_empty(1) for _ in range(3))
    weight = batch.scores if batch.weight is None else batch.weight
    size = min(BLOCK, max(16, triton.next_power_of_2(n)))
    _gradients[(triton.cdiv(n, size),)](
        batch.scores, batch.labels, weight, grad, saved, in_scores, in_a, in_b, in_alpha, n,
        batch.weight is not None, batch.link == "sigmoid", size, num_warps=4,
    )  # fmt: skip
    return in_scores, in_a, in_b, in_alpha


@triton.jit
def _linked(x, SIGMOID: tl.constexpr):
    if SIGMOID:
        e = tl.exp(-tl.abs(x))
        x = tl.where(x >= 0, 1.0, e) / (1.0 + e)
    return x


@triton.jit
def _sums(
    scores, labels, weight, a_at, b_at, alpha_at,
    first, second, third, partials, value, saved, n,
    margin, NORMALIZE: tl.constexpr, KNOWN: tl.constexpr, COUNTS: tl.constexpr,
    WEIGHTED: tl.constexpr, SIGMOID: tl.constexpr, ALONE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Weights, distances and their squares, summed over each class."""
    a, b, alpha = (
        tl.load(a_at).to(tl.float32),
        tl.load(b_at).to(tl.float32),
        tl.load(alpha_at).to(tl.float32),
    )
    aim_positive, aim_negative = a + (margin + alpha), b - (margin + alpha)
    places = tl.arange(0, BLOCK)
    sums = tl.zeros((8,), tl.float64)
    start = tl.program_id(0) * BLOCK
    while start < n:
        i = start + places
        inside = i < n
        x = tl.load(scores + i, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(labels + i, mask=inside, other=0).to(tl.float32)
        w = tl.where(inside, 1.0, 0.0).to(tl.float32)
        if WEIGHTED:
            w = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
        h = _linked(x, SIGMOID)
        up, down = w * y, w * (1.0 - y)
        d = h - tl.where(y > 0.5, aim_positive, aim_negative)
        sums += _row8(
            tl.sum(up), tl.sum(down), tl.sum(up * d), tl.sum(down * d), tl.sum(up * d * d),
            tl.sum(down * d * d), tl.sum(w * w),
        )  # fmt: skip
        start += tl.num_programs(0) * BLOCK
    if ALONE:
        _conclude(
            sums, a_at, b_at, alpha_at, first, second, third, value, saved, n, margin,
            NORMALIZE, KNOWN, COUNTS, WEIGHTED,
        )  # fmt: skip
    else:
        tl.store(partials + tl.program_id(0) * 8 + tl.arange(0, 8), sums)


@triton.jit
def _row8(a, b, c, d, e, f, g):
    """Seven numbers and a zero as a row."""
    k = tl.arange(0, 8)
    row = tl.where(k == 0, a, 0.0) + tl.where(k == 1, b, 0.0) + tl.where(k == 2, c, 0.0)
    row += tl.where(k == 3, d, 0.0) + tl.where(k == 4, e, 0.0) + tl.where(k == 5, f, 0.0)
    return (row + tl.where(k == 6, g, 0.0)).to(tl.float64)


@triton.jit
def _finish(
    partials, a_at, b_at, alpha_at, first, second, third,
    value, saved, n, programs, margin, NORMALIZE: tl.constexpr,
    KNOWN: tl.constexpr, COUNTS: tl.constexpr, WEIGHTED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The sums of all programs."""
    k = tl.arange(0, ROWS)[:, None]
    table = tl.load(partials + k * 8 + tl.arange(0, 8)[None, :], mask=k < programs, other=0.0)
    _conclude(
        tl.sum(table, 0), a_at, b_at, alpha_at, first, second, third, value, saved, n, margin,
        NORMALIZE, KNOWN, COUNTS, WEIGHTED,
    )  # fmt: skip


@triton.jit
def _conclude(
    sums, a_at, b_at, alpha_at, first, second, third,
    value, saved, n, margin, NORMALIZE: tl.constexpr,
    KNOWN: tl.constexpr, COUNTS: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Value and gradients from the sums, in double precision."""
    a, b = tl.load(a_at).to(tl.float64), tl.load(b_at).to(tl.float64)
    alpha = tl.load(alpha_at).to(tl.float64)
    mass_up, mass_down = _entry(sums, 0), _entry(sums, 1)
    if KNOWN:
        p, spread = tl.full((), first, tl.float64), tl.full((), second, tl.float64)
    else:
        ones, zeros, squares = tl.load(first), tl.load(second), tl.load(third)
        p = ones / (ones + zeros)
        spread = ones * zeros / ((ones + zeros) * (ones + zeros) - squares)
        if COUNTS:
            tl.store(first, ones + mass_up)
            tl.store(second, zeros + mass_down)
            tl.store(third, squares + _entry(sums, 6))
    scale, constant = tl.full((), 1.0, tl.float64), 0.0
    if NORMALIZE:
        scale, constant = spread, margin * margin
    total = tl.full((), n, tl.float64)
    if WEIGHTED:
        total = tl.maximum(mass_up + mass_down, 1e-38)
    k_up, k_down = 2.0 * (1.0 - p) / scale / total, 2.0 * p / scale / total
    dual, reach = spread / scale, margin + alpha
    aim_up, aim_down = a + reach, b - reach
    mass_up, mass_down = k_up * mass_up, k_down * mass_down
    sum_up, sum_down = k_up * _entry(sums, 2), k_down * _entry(sums, 3)
    data = k_up * _entry(sums, 4) + k_down * _entry(sums, 5)
    data += reach * (mass_down * (aim_down + b) - mass_up * (aim_up + a))
    tl.store(value, 0.5 * data + constant - dual * alpha * alpha)
    tl.store(saved + 0, k_up)
    tl.store(saved + 1, k_down)
    tl.store(saved + 2, aim_up)
    tl.store(saved + 3, aim_down)
    tl.store(saved + 4, -(sum_up + mass_up * reach))
    tl.store(saved + 5, -(sum_down - mass_down * reach))
    in_alpha = sum_down + mass_down * aim_down - (sum_up + mass_up * aim_up)
    tl.store(saved + 6, in_alpha - 2.0 * dual * alpha)
    tl.store(saved + 7, dual)


@triton.jit
def _entry(row, k: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, 8) == k, row, 0.0))


@triton.jit
def _gradients(
    scores, labels, weight, grad, saved, in_scores, in_a,
    in_b, in_alpha, n, WEIGHTED: tl.constexpr, SIGMOID: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """``grad`` times k d and the link's slope, and times the three that the sums gave."""
    factor = tl.load(grad).to(tl.float32)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    h = _linked(tl.load(scores + i, mask=inside, other=0.0).to(tl.float32), SIGMOID)
    positive = tl.load(labels + i, mask=inside, other=0).to(tl.float32) > 0.5
    d = h - tl.where(positive, tl.load(saved + 2), tl.load(saved + 3))
    g = factor * tl.where(positive, tl.load(saved), tl.load(saved + 1)) * d
    if WEIGHTED:
        g *= tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    if SIGMOID:
        g *= h * (1.0 - h)
    tl.store(in_scores + i, g.to(in_scores.dtype.element_ty), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(in_a, factor * tl.load(saved + 4))
        tl.store(in_b, factor * tl.load(saved + 5))
        tl.store(in_alpha, factor * tl.load(saved + 6))
