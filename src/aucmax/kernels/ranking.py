r"""The AUC from sorted scores in two passes, ties and all.

Rows of equal score form a run. With :math:`P` and :math:`N` rows of each class, and :math:`P_i` and
:math:`N_i` the positives and negatives before the run that row i is in, twice the pairs won are

.. math:: P N + \sum_{i: y_i = 1} N_i - \sum_{i: y_i = 0} P_i,

so a row needs to know only where its run begins, and how many positives come before.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
WARPS = 16


def twice_won(x: Tensor, target: Tensor) -> tuple[int, int, bool]:
    """Twice the pairs won, the positives, and whether all scores are finite and all labels 0 or 1.

    There must be fewer than two billion rows.
    """
    n, blocks = len(x), triton.cdiv(len(x), BLOCK)
    ranked, order = x.sort()  # first: while it is sorted the host can prepare the rest
    target = target.contiguous()
    positive, hits = (torch.empty_like(target, dtype=torch.uint8) for _ in range(2))
    totals = torch.zeros(3, dtype=torch.int64, device=x.device)
    counts = torch.empty(blocks, dtype=torch.int32, device=x.device)
    _classify[(blocks,)](target, positive, totals, n, BLOCK, num_warps=WARPS)
    _count[(blocks,)](order, positive, hits, counts, n, BLOCK, num_warps=WARPS)
    up_to = counts.cumsum(0, dtype=torch.int32)
    _sum[(blocks,)](ranked, hits, counts, up_to, totals, n, BLOCK, num_warps=WARPS)
    positives, wrong, gain = totals.tolist()
    return positives * (n - positives) + gain, positives, not wrong


@triton.jit
def _classify(target, positive, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(target + i, mask=i < n, other=0)
    one = (y == 1).to(tl.int32)
    tl.store(positive + i, one.to(tl.uint8), mask=i < n)
    tl.atomic_add(counts, tl.sum(one).to(tl.int64))
    wrong = tl.sum((y != 0).to(tl.int32)) - tl.sum(one)
    if wrong > 0:
        tl.atomic_add(counts + 1, wrong.to(tl.int64))


@triton.jit
def _count(order, positive, hits, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(order + i, mask=i < n, other=0)
    hit = tl.load(positive + row, mask=i < n, other=0)
    tl.store(hits + i, hit, mask=i < n)
    tl.store(counts + tl.program_id(0), tl.sum(hit.to(tl.int32)))


@triton.jit
def _sum(ranked, hits, counts, up_to, totals, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    start = block * BLOCK
    i = start + tl.arange(0, BLOCK)
    x = tl.load(ranked + i, mask=i < n, other=0.0)
    left = tl.load(ranked + i - 1, mask=(i > 0) & (i < n), other=0.0)
    hit = tl.load(hits + i, mask=i < n, other=0).to(tl.int32)
    ahead = tl.load(up_to + block) - tl.load(counts + block) + tl.cumsum(hit) - hit
    # Both only grow, so the largest pair so far is that of the latest run's beginning.
    first = (i == 0) | (x != left)
    pair = tl.where(first, (i.to(tl.int64) << 32) | ahead, 0)
    pair = tl.associative_scan(pair, 0, _larger)
    begin, positives = (pair >> 32).to(tl.int32), pair.to(tl.int32)
    if start > 0:
        if tl.load(ranked + start) == tl.load(ranked + start - 1):
            run = _beginning(ranked, start)
            inside = begin < start  # this block has not begun a run yet
            begin = tl.where(inside, run, begin)
            passed = _positives_before(hits, counts, up_to, run, BLOCK)
            positives = tl.where(inside, passed, positives)
    gain = tl.where(hit == 1, begin - positives, -positives)
    tl.atomic_add(totals + 2, tl.sum(tl.where(i < n, gain, 0).to(tl.int64)))
    if block == 0:
        low, high = tl.load(ranked), tl.load(ranked + n - 1)  # NaN is last
        if (low == float("-inf")) | (high == float("inf")) | (high != high):
            tl.atomic_add(totals + 1, 1)


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _beginning(ranked, start):
    """Where the run that reaches over a block's start begins."""
    value = tl.load(ranked + start)
    low, high = start * 0, start
    while low < high:
        middle = (low + high) // 2
        below = tl.load(ranked + middle) < value
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
    return low


@triton.jit
def _positives_before(hits, counts, up_to, row, BLOCK: tl.constexpr):
    block = row // BLOCK
    i = block * BLOCK + tl.arange(0, BLOCK)
    here = tl.sum(tl.load(hits + i, mask=i < row, other=0).to(tl.int32))
    return tl.load(up_to + block) - tl.load(counts + block) + here
