"""Whether any gradient is NaN or infinite, noted on the device without waiting for it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from aucmax.kernels.packed import (
    BLOCK,
    GROUP,
    TYPES,
    WARPS,
    Constant,
    Table,
    column,
    own_block,
    place,
    read,
)

COLUMNS = ("grad",)
GRAD = place(COLUMNS, "grad")
WIDTH = Constant(len(COLUMNS))


def note(table: Table, kind: torch.dtype, loss: Tensor, steps: Tensor, since: Tensor) -> None:
    """Write the step's number where something first is not finite.

    Args:
        table: of the gradients; a tensor's group is its entry in ``since``.
        kind: the gradients' type.
        loss: a number of double precision that must be finite too.
        steps: how many there have been.
        since: a step for each gradient, and last one for the loss; while all is well, a number
            beyond all steps.
    """
    _note[(table.blocks,)](
        table.rows, table.owner, loss, steps, since, since.numel() - 1, TYPES[kind], table.aligned,
        BLOCK, num_warps=WARPS,
    )  # fmt: skip


@triton.jit
def _note(
    rows, owner, loss, steps, since, last,
    G: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, start, left = own_block(rows, owner, WIDTH, BLOCK)
    g = column(row, GRAD, start, G, ALIGNED)
    if left >= BLOCK:
        x = read(g, left, False, BLOCK)
    else:
        x = read(g, left, True, BLOCK)
    if tl.sum(_bad(x)) > 0:
        tl.atomic_min(since + tl.load(row + GROUP), tl.load(steps))
    if tl.program_id(0) == 0:
        if _bad(tl.load(loss)) > 0:
            tl.atomic_min(since + last, tl.load(steps))


@triton.jit
def _bad(x):
    """One where it is not finite."""
    return ((tl.abs(x) == float("inf")) | (x != x)).to(tl.int32)
