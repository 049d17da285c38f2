"""The steps of PPD-SG and PPD-AdaGrad on all tensors at once, in one pass over memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from aucmax.kernels.packed import (
    BLOCK,
    GROUP,
    TYPES,
    WARPS,
    Constant,
    Table,
    address,
    column,
    own_block,
    place,
    read,
    write,
)


class Kernel(NamedTuple):
    """A step, and the names of what its table holds."""

    function: Any
    columns: tuple[str, ...]
    factors: tuple[str, ...]

    def launch(self, table: Table, p: torch.dtype, g: torch.dtype, state: torch.dtype) -> None:
        """Take the step on tensors, gradients and state of these types."""
        kinds = [TYPES[kind] for kind in (p, g, state)]
        self.function[(table.blocks,)](
            table.rows, table.factors, table.owner, *kinds, table.aligned, BLOCK, num_warps=WARPS
        )


SHARED = ("param", "grad", "reference", "drift")
"""Columns of both; the dual has neither reference nor drift."""

PARAM, GRAD, REFERENCE, DRIFT = (place(SHARED, name) for name in SHARED)


@triton.jit
def clamp(x, low, high):
    """Within the bounds; NaN stays NaN."""
    x = tl.where(x < low, low, x)
    return tl.where(x > high, high, x)


# --- PPD-SG ---------------------------------------------------------------------------------------

SG_COLUMNS = (*SHARED, "momentum_buffer")
SG_FACTORS = ("lr", "pull", "weight_decay", "momentum", "sign", "low", "high")

SG_WIDTH, SG_NUMBERS = Constant(len(SG_COLUMNS)), Constant(len(SG_FACTORS))
MOMENTUM_BUFFER = place(SG_COLUMNS, "momentum_buffer")
SG_LR, SG_PULL, SG_DECAY, SG_MOMENTUM, SG_SIGN, SG_LOW, SG_HIGH = (
    place(SG_FACTORS, name) for name in SG_FACTORS
)


@triton.jit
def _ppd_sg(
    rows, factors, owner, P: tl.constexpr, G: tl.constexpr, S: tl.constexpr,
    ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, start, left = own_block(rows, owner, SG_WIDTH, BLOCK)
    if left >= BLOCK:
        _ppd_sg_block(row, factors, start, left, P, G, S, ALIGNED, False, BLOCK)
    else:
        _ppd_sg_block(row, factors, start, left, P, G, S, ALIGNED, True, BLOCK)


@triton.jit
def _ppd_sg_block(
    row, factors, start, left, P: tl.constexpr, G: tl.constexpr, S: tl.constexpr,
    ALIGNED: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    primal, heavy = address(row, REFERENCE) != 0, address(row, MOMENTUM_BUFFER) != 0
    p_at = column(row, PARAM, start, P, ALIGNED)
    reference_at = column(row, REFERENCE, start, S, ALIGNED)
    drift_at = column(row, DRIFT, start, S, ALIGNED)
    buffer_at = column(row, MOMENTUM_BUFFER, start, S, ALIGNED)
    p = read(p_at, left, MASKED, BLOCK).to(S)
    d = read(column(row, GRAD, start, G, ALIGNED), left, MASKED, BLOCK).to(S)
    reference, drift, buffer = p, p, p
    if primal:
        reference = read(reference_at, left, MASKED, BLOCK)
        drift = read(drift_at, left, MASKED, BLOCK)
    if heavy:
        buffer = read(buffer_at, left, MASKED, BLOCK)

    f = factors + tl.load(row + GROUP) * SG_NUMBERS
    lr, pull = tl.load(f + SG_LR).to(S), tl.load(f + SG_PULL).to(S)
    decay, momentum = tl.load(f + SG_DECAY).to(S), tl.load(f + SG_MOMENTUM).to(S)
    sign = tl.load(f + SG_SIGN).to(S)
    low, high = tl.load(f + SG_LOW).to(S), tl.load(f + SG_HIGH).to(S)
    d = d * sign + (p - reference) * pull + p * decay  # Alg. 2, lines 6 and 7: the direction
    if heavy:
        d += buffer * momentum
        write(buffer_at, d, left, MASKED, BLOCK)
    p = clamp(p - lr * d, low, high)  # lines 6 and 7: the step
    write(p_at, p.to(P), left, MASKED, BLOCK)
    if primal:
        write(drift_at, drift + (p - reference), left, MASKED, BLOCK)  # line 10


PPD_SG = Kernel(_ppd_sg, SG_COLUMNS, SG_FACTORS)


# --- PPD-AdaGrad ----------------------------------------------------------------------------------

ADAGRAD_COLUMNS = (*SHARED, "grad_sum", "square_sum", "centre")
ADAGRAD_FACTORS = ("lr", "pull", "delta", "sign", "low", "high")

ADAGRAD_WIDTH = Constant(len(ADAGRAD_COLUMNS))
ADAGRAD_NUMBERS = Constant(len(ADAGRAD_FACTORS))
GRAD_SUM = place(ADAGRAD_COLUMNS, "grad_sum")
SQUARE_SUM = place(ADAGRAD_COLUMNS, "square_sum")
CENTRE = place(ADAGRAD_COLUMNS, "centre")
ADAGRAD_LR, ADAGRAD_PULL, ADAGRAD_DELTA, ADAGRAD_SIGN, ADAGRAD_LOW, ADAGRAD_HIGH = (
    place(ADAGRAD_FACTORS, name) for name in ADAGRAD_FACTORS
)


@triton.jit
def _ppd_adagrad(
    rows, factors, owner, P: tl.constexpr, G: tl.constexpr, S: tl.constexpr,
    ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, start, left = own_block(rows, owner, ADAGRAD_WIDTH, BLOCK)
    if left >= BLOCK:
        _ppd_adagrad_block(row, factors, start, left, P, G, S, ALIGNED, False, BLOCK)
    else:
        _ppd_adagrad_block(row, factors, start, left, P, G, S, ALIGNED, True, BLOCK)


@triton.jit
def _ppd_adagrad_block(
    row, factors, start, left, P: tl.constexpr, G: tl.constexpr, S: tl.constexpr,
    ALIGNED: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    primal = address(row, REFERENCE) != 0
    moved = address(row, CENTRE) != 0
    p_at = column(row, PARAM, start, P, ALIGNED)
    drift_at = column(row, DRIFT, start, S, ALIGNED)
    sum_at = column(row, GRAD_SUM, start, S, ALIGNED)
    square_at = column(row, SQUARE_SUM, start, S, ALIGNED)
    p = read(p_at, left, MASKED, BLOCK).to(S)
    d = read(column(row, GRAD, start, G, ALIGNED), left, MASKED, BLOCK).to(S)
    total = read(sum_at, left, MASKED, BLOCK)
    squares = read(square_at, left, MASKED, BLOCK)
    reference, drift = p, p
    if primal:
        reference = read(column(row, REFERENCE, start, S, ALIGNED), left, MASKED, BLOCK)
        drift = read(drift_at, left, MASKED, BLOCK)
    centre = reference
    if moved:  # the dual, or a stage that began away from its reference
        centre = read(column(row, CENTRE, start, S, ALIGNED), left, MASKED, BLOCK)

    f = factors + tl.load(row + GROUP) * ADAGRAD_NUMBERS
    lr, pull = tl.load(f + ADAGRAD_LR).to(S), tl.load(f + ADAGRAD_PULL).to(S)
    delta, sign = tl.load(f + ADAGRAD_DELTA).to(S), tl.load(f + ADAGRAD_SIGN).to(S)
    low, high = tl.load(f + ADAGRAD_LOW).to(S), tl.load(f + ADAGRAD_HIGH).to(S)
    d = d * sign + (p - reference) * pull  # Alg. 3, line 3
    total += d
    squares += d * d
    p = clamp(centre - lr * total / (tl.sqrt(squares) + delta), low, high)  # lines 4 and 5
    write(sum_at, total, left, MASKED, BLOCK)
    write(square_at, squares, left, MASKED, BLOCK)
    write(p_at, p.to(P), left, MASKED, BLOCK)
    if primal:
        write(drift_at, drift + (p - centre), left, MASKED, BLOCK)  # Alg. 2, line 10


PPD_ADAGRAD = Kernel(_ppd_adagrad, ADAGRAD_COLUMNS, ADAGRAD_FACTORS)
