r"""Sums over pairs of a positive and a negative in tiles, for any surrogate, with their gradient.

A program has a block of rows and goes through the others: for row i, with p and n its weight as a
positive or as a negative (one of them is zero),

.. math:: g_i = p_i c \sum_j n_j \phi'(c (s_i - s_j)) - n_i c \sum_j p_j \phi'(c (s_j - s_i)).

Every pair is met twice, once from either side, so no program waits for another and none adds to
what another writes: runs repeat bit for bit. Within a tile sums are of single precision if the
scores are, beyond it of double.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from aucmax.kernels.packed import TYPES, Constant

ALONE = 128
"""Up to so many rows one program does it all, in one launch."""

TOGETHER = Constant(16)
"""As many tiles are added up in the precision of the scores, more in double."""


class Shape(NamedTuple):
    """Of the tiles: a program's own rows, others at a time, warps."""

    rows: int
    others: int
    warps: int


def shape(n: int) -> Shape:
    """Those that were the fastest on an H200.

    A thread has one of the others at a time, and several rows to compare it with.
    """
    return Shape(max(16, triton.next_power_of_2(n)), 16, 8) if n <= ALONE else Shape(8, 128, 4)


Surrogate = tuple[str, float, float, float]
"""What a pair costs: name, margin, scale and q of :class:`aucmax.loss.surrogates.Surrogate`."""


class Ranges(NamedTuple):
    """For each row where the rows lie that it may be compared with: from, and up to before."""

    low: Tensor
    high: Tensor


def pair_sums(
    scores: Tensor,
    positive: Tensor,
    negative: Tensor,
    group: Tensor | None,
    surrogate: Surrogate,
    ranges: Ranges | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over pairs (L,), the pairs' mass (L,), and the sums' gradient (L, n).

    Args:
        scores: (L, n), single or double precision.
        positive: (L, n), weights of rows as positives, zero for all others; the scores' dtype.
        negative: likewise; no row has both.
        group: (n,), or (L, n) for each column its own; only pairs within one count.
        surrogate: what a pair costs.
        ranges: (L, n) each, where rows are ordered so that this saves work.
    """
    columns, n = scores.shape
    given = [x.contiguous() for x in (scores, positive, negative)]
    rows, others, warps = shape(n)
    programs = triton.cdiv(n, rows)
    partial = scores.new_empty((columns, programs, 2), dtype=torch.float64)
    gradient = torch.empty_like(given[0])
    group = None if group is None else group.contiguous()
    low, high = (None, None) if ranges is None else ranges
    _tiles[(programs, columns)](
        *given, group, low, high, partial, gradient, None, n, *surrogate,
        LABELLED=False, GROUPED=0 if group is None else group.ndim, EXACT=TYPES[scores.dtype],
        ROWS=rows, OTHERS=others, num_warps=warps,
    )  # fmt: skip
    whole = partial[:, 0] if programs == 1 else partial.sum(1)
    sums, mass = whole.to(scores.dtype).unbind(1)
    return sums, mass, gradient


def pair_mean(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    group: Tensor | None,
    surrogate: Surrogate,
) -> tuple[Tensor, Tensor]:
    """The mean over the pairs of one column and its gradient, zero if there is no pair.

    Args:
        scores: (n,), any precision.
        labels: (n,), 0 or 1 of any dtype; rows with NaN have no part.
        weight: (n,) of any dtype, or None.
        group: (n,), or None; only pairs within one count.
        surrogate: what a pair costs.
    """
    n = len(scores)
    kind = torch.float64 if scores.dtype == torch.float64 else torch.float32
    rows, others, warps = shape(n)
    programs = triton.cdiv(n, rows)
    value = scores.new_empty((), dtype=kind)
    gradient = torch.empty_like(scores, dtype=kind)
    partial = None if programs == 1 else scores.new_empty((programs, 2), dtype=torch.float64)
    _tiles[(programs, 1)](
        scores, labels, weight, group, None, None, partial, gradient, value, n, *surrogate,
        LABELLED=True, GROUPED=0 if group is None else 1, EXACT=TYPES[kind],
        ROWS=rows, OTHERS=others, num_warps=warps,
    )  # fmt: skip
    if partial is not None:
        block = 1024
        slots = triton.next_power_of_2(programs)
        _finish[(triton.cdiv(n, block),)](partial, gradient, value, programs, n, slots, block)
    return value, gradient


@triton.jit
def _tiles(
    scores, first, second, group, low, high, partial, gradient, value, n,
    NAME: tl.constexpr, MARGIN: tl.constexpr, SCALE: tl.constexpr, Q: tl.constexpr,
    LABELLED: tl.constexpr, GROUPED: tl.constexpr, EXACT: tl.constexpr,
    ROWS: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    """A block of rows against all others; alone in its column, it writes the mean at once."""
    start = tl.program_id(1).to(tl.int64) * n
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = i < n
    x = tl.load(scores + start + i, mask=inside, other=0.0).to(EXACT)
    up, down = _weights(first, second, start + i, inside, LABELLED, EXACT)
    positive = up > 0
    direction = tl.where(positive, 1.0, -1.0).to(EXACT) * SCALE
    own = i
    if GROUPED > 0:
        group += start if GROUPED == 2 else 0
        own = tl.load(group + i, mask=inside, other=0)
    begin, end = 0, n
    if low is not None:
        begin = tl.min(tl.load(low + start + i, mask=inside, other=n)).to(tl.int32)
        end = tl.max(tl.load(high + start + i, mask=inside, other=0)).to(tl.int32)
    total = tl.zeros((ROWS,), tl.float64)
    slope = tl.zeros((ROWS,), tl.float64)
    mass = tl.zeros((ROWS,), tl.float64)
    for few in range(begin, end, TOGETHER * OTHERS):
        # Entries of tiles are added up one by one before any is added to another.
        total_here = tl.zeros((ROWS, OTHERS), EXACT)
        slope_here = tl.zeros((ROWS, OTHERS), EXACT)
        mass_here = tl.zeros((ROWS, OTHERS), EXACT)
        for k in range(few, tl.minimum(few + TOGETHER * OTHERS, end), OTHERS):
            j = k + tl.arange(0, OTHERS)
            there = j < end
            other = tl.load(scores + start + j, mask=there, other=0.0).to(EXACT)
            other_up, other_down = _weights(first, second, start + j, there, LABELLED, EXACT)
            w = tl.where(positive[:, None], other_down[None, :], other_up[None, :])
            if GROUPED > 0:
                theirs = tl.load(group + j, mask=there, other=0)
                w = tl.where(own[:, None] == theirs[None, :], w, 0.0)
            z = (x[:, None] - other[None, :]) * direction[:, None]
            phi, by_z = _surrogate(z, NAME, MARGIN, Q)
            total_here += w * phi
            slope_here += w * by_z
            mass_here += w
        total += tl.sum(total_here, 1).to(tl.float64)
        slope += tl.sum(slope_here, 1).to(tl.float64)
        mass += tl.sum(mass_here, 1).to(tl.float64)
    slope *= ((up + down) * direction).to(tl.float64)
    whole, pairs = tl.sum(total * up.to(tl.float64)), tl.sum(mass * up.to(tl.float64))
    if partial is None:
        some = tl.where(pairs > 0, pairs, 1.0)
        tl.store(value, (whole / some).to(EXACT))
        slope /= some
    else:
        place = partial + 2 * (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0))
        tl.store(place, whole)
        tl.store(place + 1, pairs)
    tl.store(gradient + start + i, slope.to(EXACT), mask=inside)


@triton.jit
def _weights(first, second, i, inside, LABELLED: tl.constexpr, EXACT: tl.constexpr):
    """Of rows as positives and as negatives: as they lie there, or from labels and weights."""
    if not LABELLED:
        up = tl.load(first + i, mask=inside, other=0.0)
        down = tl.load(second + i, mask=inside, other=0.0)
    else:
        y = tl.load(first + i, mask=inside, other=0).to(tl.float32)
        w = tl.where(inside, 1.0, 0.0).to(EXACT)
        if second is not None:
            w = tl.load(second + i, mask=inside, other=0).to(EXACT)
        up, down = tl.where(y > 0.5, w, 0.0), tl.where(y <= 0.5, w, 0.0)
    return up, down


@triton.jit
def _surrogate(z, NAME: tl.constexpr, MARGIN: tl.constexpr, Q: tl.constexpr):
    """phi(z) and its slope: :mod:`aucmax.loss.surrogates`."""
    if NAME == "squared_hinge":
        short = tl.maximum(MARGIN - z, 0.0)
        phi, slope = short * short, -2.0 * short
    elif NAME == "hinge":
        short = tl.maximum(MARGIN - z, 0.0)
        phi, slope = short, tl.where(short > 0.0, -1.0, 0.0).to(z.dtype)
    elif NAME == "square":
        short = MARGIN - z
        phi, slope = short * short, -2.0 * short
    else:
        small = tl.exp(-tl.abs(z))
        above, below = tl.where(z >= 0, 1.0, small), tl.where(z >= 0, small, 1.0)
        up, down = above / (1.0 + small), below / (1.0 + small)
        if NAME == "sigmoid":
            phi, slope = down, -up * down
        else:
            fall = tl.log(1.0 + small) - tl.minimum(z, 0.0)  # - log sigma(z)
            if NAME == "logistic":
                phi, slope = fall, -down
            else:
                power = tl.exp(-Q * fall)
                phi, slope = (1.0 - power) / Q, -power * down
    return phi, slope


@triton.jit
def _finish(partial, gradient, value, programs, n, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean from what the programs have; each block of the gradient is divided as well."""
    k = tl.arange(0, SLOTS)
    whole = tl.sum(tl.load(partial + 2 * k, mask=k < programs, other=0.0))
    pairs = tl.sum(tl.load(partial + 2 * k + 1, mask=k < programs, other=0.0))
    some = tl.where(pairs > 0, pairs, 1.0)
    if tl.program_id(0) == 0:
        tl.store(value, (whole / some).to(value.dtype.element_ty))
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gradient + i, mask=i < n, other=0.0).to(tl.float64) / some
    tl.store(gradient + i, g.to(gradient.dtype.element_ty), mask=i < n)
