"""The steps of PPD-SG and PPD-AdaGrad on all tensors at once, in one pass over memory."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from aucmax.kernels.packed import BLOCK, TYPES, WARPS, Table, column, read, write


def ppd_sg(table: Table, p: torch.dtype, g: torch.dtype, state: torch.dtype) -> None:
    """Columns: parameter, gradient, reference, drift, momentum.

    Factors: step size, 1/gamma, weight decay, momentum, and -1 for the dual, else 1. The dual has
    neither reference nor drift.
    """
    _launch(_ppd_sg, table, p, g, state)


def ppd_adagrad(table: Table, p: torch.dtype, g: torch.dtype, state: torch.dtype) -> None:
    """Columns: parameter, gradient, reference, drift, sum of gradients, of their squares, centre.

    Factors: step size, 1/gamma, delta, and -1 for the dual, else 1. The dual has neither reference
    nor drift.
    """
    _launch(_ppd_adagrad, table, p, g, state)


def _launch(kernel: Any, table: Table, *types: torch.dtype) -> None:
    kinds = [TYPES[kind] for kind in types]
    kernel[(table.blocks,)](
        table.rows, table.factors, table.owner, *kinds, table.aligned, BLOCK, num_warps=WARPS
    )


@triton.jit
def _ppd_sg(
    rows,
    factors,
    owner,
    P: tl.constexpr,
    G: tl.constexpr,
    S: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block = tl.program_id(0)
    row = rows + tl.load(owner + block) * 8
    start = (block - tl.load(row + 6)) * BLOCK
    left = tl.load(row + 5) - start
    if left >= BLOCK:
        _ppd_sg_block(row, factors, start, left, P, G, S, ALIGNED, False, BLOCK)
    else:
        _ppd_sg_block(row, factors, start, left, P, G, S, ALIGNED, True, BLOCK)


@triton.jit
def _ppd_sg_block(
    row,
    factors,
    start,
    left,
    P: tl.constexpr,
    G: tl.constexpr,
    S: tl.constexpr,
    ALIGNED: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    primal, heavy = tl.load(row + 2) != 0, tl.load(row + 4) != 0
    p_at = column(row, 0, start, P, ALIGNED)
    reference_at = column(row, 2, start, S, ALIGNED)
    drift_at = column(row, 3, start, S, ALIGNED)
    momentum_at = column(row, 4, start, S, ALIGNED)
    p = read(p_at, left, MASKED, BLOCK).to(S)
    d = read(column(row, 1, start, G, ALIGNED), left, MASKED, BLOCK).to(S)
    reference, drift, velocity = p, p, p
    if primal:
        reference = read(reference_at, left, MASKED, BLOCK)
        drift = read(drift_at, left, MASKED, BLOCK)
    if heavy:
        velocity = read(momentum_at, left, MASKED, BLOCK)

    f = factors + tl.load(row + 7) * 5
    lr, pull, decay = tl.load(f).to(S), tl.load(f + 1).to(S), tl.load(f + 2).to(S)
    momentum, sign = tl.load(f + 3).to(S), tl.load(f + 4).to(S)
    d = d * sign + (p - reference) * pull + p * decay  # Alg. 2, line 6
    if heavy:
        d += velocity * momentum
        write(momentum_at, d, left, MASKED, BLOCK)
    p -= lr * d
    write(p_at, p.to(P), left, MASKED, BLOCK)
    if primal:
        write(drift_at, drift + (p - reference), left, MASKED, BLOCK)  # line 10


@triton.jit
def _ppd_adagrad(
    rows,
    factors,
    owner,
    P: tl.constexpr,
    G: tl.constexpr,
    S: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block = tl.program_id(0)
    row = rows + tl.load(owner + block) * 10
    start = (block - tl.load(row + 8)) * BLOCK
    left = tl.load(row + 7) - start
    if left >= BLOCK:
        _ppd_adagrad_block(row, factors, start, left, P, G, S, ALIGNED, False, BLOCK)
    else:
        _ppd_adagrad_block(row, factors, start, left, P, G, S, ALIGNED, True, BLOCK)


@triton.jit
def _ppd_adagrad_block(
    row,
    factors,
    start,
    left,
    P: tl.constexpr,
    G: tl.constexpr,
    S: tl.constexpr,
    ALIGNED: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    primal, moved = tl.load(row + 2) != 0, tl.load(row + 2) != tl.load(row + 6)
    p_at = column(row, 0, start, P, ALIGNED)
    drift_at = column(row, 3, start, S, ALIGNED)
    sum_at, square_at = column(row, 4, start, S, ALIGNED), column(row, 5, start, S, ALIGNED)
    p = read(p_at, left, MASKED, BLOCK).to(S)
    d = read(column(row, 1, start, G, ALIGNED), left, MASKED, BLOCK).to(S)
    total = read(sum_at, left, MASKED, BLOCK)
    squares = read(square_at, left, MASKED, BLOCK)
    reference, drift = p, p
    if primal:
        reference = read(column(row, 2, start, S, ALIGNED), left, MASKED, BLOCK)
        drift = read(drift_at, left, MASKED, BLOCK)
    centre = reference
    if moved:  # the dual, or a stage that began away from its reference
        centre = read(column(row, 6, start, S, ALIGNED), left, MASKED, BLOCK)

    f = factors + tl.load(row + 9) * 4
    lr, pull = tl.load(f).to(S), tl.load(f + 1).to(S)
    delta, sign = tl.load(f + 2).to(S), tl.load(f + 3).to(S)
    d = d * sign + (p - reference) * pull
    total += d  # Alg. 3, line 3
    squares += d * d
    p = centre - lr * total / (tl.sqrt(squares) + delta)  # lines 4 and 5
    write(sum_at, total, left, MASKED, BLOCK)
    write(square_at, squares, left, MASKED, BLOCK)
    write(p_at, p.to(P), left, MASKED, BLOCK)
    if primal:
        write(drift_at, drift + (p - centre), left, MASKED, BLOCK)
