"""The binary saddle objective in one reduction, and its gradients in one pass.

With ``d`` each score's distance to its class's aim (:func:`aucmax.loss._cpu.saddle_on_cpu` has
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

HEAD = 8
"""Numbers in front of the gradients: both k, both aims, the gradients in a, b, alpha, the dual."""


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
    """The value, and what :func:`backward` needs: of a small batch the gradients themselves.

    The prior is p and p (1 - p), or the counts of a :class:`aucmax.StreamingPrior`, to which the
    batch's labels are added with ``counts``.
    """
    x, n = batch.scores, len(batch.scores)
    small = n <= SMALL
    saved = torch.empty(HEAD + n if small else HEAD, dtype=torch.float32, device=x.device)
    value = torch.empty((), dtype=torch.float32, device=x.device)
    known, weighted = isinstance(batch.prior[0], float), batch.weight is not None
    prior = (*batch.prior, 0.0) if known else batch.prior
    rows = x, batch.labels, batch.weight if weighted else x, a, b, alpha
    flags = weighted, batch.link == "sigmoid"
    ending = *prior, value, saved, n, batch.margin, batch.normalize, known, counts
    if small:
        _alone[(1,)](*rows, *ending, *flags, max(16, triton.next_power_of_2(n)))
        return value, saved
    programs = min(PROGRAMS, triton.cdiv(n, BLOCK))
    sums = x.new_empty((programs, 8), dtype=torch.float64)
    _sums[(programs,)](*rows, sums, n, batch.margin, *flags, BLOCK)
    _finish[(1,)](sums, programs, *rows[3:], *ending, weighted, triton.next_power_of_2(programs))
    return value, saved


def backward(grad: Tensor, saved: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients in scores, a, b and alpha."""
    x, n = batch.scores, len(batch.scores)
    scaled = saved[4:] * grad
    if len(saved) > HEAD:
        in_scores = scaled[HEAD - 4 :].to(x.dtype)
    else:
        in_scores, weighted = torch.empty_like(x), batch.weight is not None
        _gradients[(triton.cdiv(n, BLOCK),)](
            x, batch.labels, batch.weight if weighted else x, grad, saved, in_scores, n,
            weighted, batch.link == "sigmoid", BLOCK,
        )  # fmt: skip
    return in_scores, scaled[0:1], scaled[1:2], scaled[2:3]


def coefficients(saved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From what :func:`forward` saved: k of the positives, k of the negatives, the dual's."""
    return saved[0], saved[1], saved[7]


@triton.jit
def _linked(x, SIGMOID: tl.constexpr):
    if SIGMOID:
        e = tl.exp(-tl.abs(x))
        x = tl.where(x >= 0, 1.0, e) / (1.0 + e)
    return x


@triton.jit
def _distances(
    scores, labels, weight, a_at, b_at, alpha_at, i, n, margin,
    WEIGHTED: tl.constexpr, SIGMOID: tl.constexpr,
):  # fmt: skip
    """Of each row the weight, the label, the linked score, and its distance to its class's aim."""
    inside = i < n
    x = tl.load(scores + i, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(labels + i, mask=inside, other=0).to(tl.float32)
    w = tl.where(inside, 1.0, 0.0)
    if WEIGHTED:
        w = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    h = _linked(x, SIGMOID)
    a, b = tl.load(a_at).to(tl.float32), tl.load(b_at).to(tl.float32)
    reach = margin + tl.load(alpha_at).to(tl.float32)
    return w, y, h, h - tl.where(y > 0.5, a + reach, b - reach)


@triton.jit
def _moments(w, y, d):
    """Weights, distances and their squares, summed over each class, and squared weights."""
    up, down = w * y, w * (1.0 - y)
    return _row8(
        tl.sum(up), tl.sum(down), tl.sum(up * d), tl.sum(down * d), tl.sum(up * d * d),
        tl.sum(down * d * d), tl.sum(w * w),
    )  # fmt: skip


@triton.jit
def _alone(
    scores, labels, weight, a_at, b_at, alpha_at, first, second, third, value, saved, n, margin,
    NORMALIZE: tl.constexpr, KNOWN: tl.constexpr, COUNTS: tl.constexpr,
    WEIGHTED: tl.constexpr, SIGMOID: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All of a small batch: the value and every gradient."""
    i = tl.arange(0, BLOCK)
    w, y, h, d = _distances(
        scores, labels, weight, a_at, b_at, alpha_at, i, n, margin, WEIGHTED, SIGMOID
    )
    k_up, k_down = _conclude(
        _moments(w, y, d), a_at, b_at, alpha_at, first, second, third, value, saved, n, margin,
        NORMALIZE, KNOWN, COUNTS, WEIGHTED,
    )  # fmt: skip
    g = w * d * tl.where(y > 0.5, k_up.to(tl.float32), k_down.to(tl.float32))
    if SIGMOID:
        g *= h * (1.0 - h)
    tl.store(saved + 8 + i, g, mask=i < n)


@triton.jit
def _sums(
    scores, labels, weight, a_at, b_at, alpha_at, sums, n, margin,
    WEIGHTED: tl.constexpr, SIGMOID: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The moments of the blocks that this program takes: as far apart as there are programs."""
    total = tl.zeros((8,), tl.float64)
    start = tl.program_id(0) * BLOCK
    while start < n:
        i = start + tl.arange(0, BLOCK)
        w, y, _, d = _distances(
            scores, labels, weight, a_at, b_at, alpha_at, i, n, margin, WEIGHTED, SIGMOID
        )
        total += _moments(w, y, d)
        start += tl.num_programs(0) * BLOCK
    tl.store(sums + tl.program_id(0) * 8 + tl.arange(0, 8), total)


@triton.jit
def _row8(a, b, c, d, e, f, g):
    """Seven numbers and a zero as a row."""
    k = tl.arange(0, 8)
    row = tl.where(k == 0, a, 0.0) + tl.where(k == 1, b, 0.0) + tl.where(k == 2, c, 0.0)
    row += tl.where(k == 3, d, 0.0) + tl.where(k == 4, e, 0.0) + tl.where(k == 5, f, 0.0)
    return (row + tl.where(k == 6, g, 0.0)).to(tl.float64)


@triton.jit
def _finish(
    sums, programs, a_at, b_at, alpha_at, first, second, third, value, saved, n, margin,
    NORMALIZE: tl.constexpr, KNOWN: tl.constexpr, COUNTS: tl.constexpr, WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """The value from the sums of all programs."""
    k = tl.arange(0, ROWS)[:, None]
    table = tl.load(sums + k * 8 + tl.arange(0, 8)[None, :], mask=k < programs, other=0.0)
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
    return k_up, k_down


@triton.jit
def _entry(row, k: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, 8) == k, row, 0.0))


@triton.jit
def _gradients(
    scores, labels, weight, grad, saved, in_scores, n,
    WEIGHTED: tl.constexpr, SIGMOID: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``grad`` times k d and the link's slope."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    h = _linked(tl.load(scores + i, mask=inside, other=0.0).to(tl.float32), SIGMOID)
    positive = tl.load(labels + i, mask=inside, other=0).to(tl.float32) > 0.5
    d = h - tl.where(positive, tl.load(saved + 2), tl.load(saved + 3))
    g = tl.load(grad).to(tl.float32) * d * tl.where(positive, tl.load(saved), tl.load(saved + 1))
    if WEIGHTED:
        g *= tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    if SIGMOID:
        g *= h * (1.0 - h)
    tl.store(in_scores + i, g.to(in_scores.dtype.element_ty), mask=inside)
