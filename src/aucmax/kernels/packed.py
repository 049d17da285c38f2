"""Lists of tensors as one table on the device: a kernel works on all of them in one launch.

A row of the table is a tensor: how many elements it has, its first block, the group whose factors
are its own, then the addresses of its columns (0 where it has no such column). The elements are cut
into blocks, a program works on one, and ``owner`` says whose it is. Columns and factors are found
by name: a kernel takes their places from the tuples of names that the table is built from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048
WARPS = 4
TYPES = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}
HEADER = ("size", "first block", "group")


class Constant(tl.constexpr):  # type: ignore[misc]
    """A number that kernels read, quick to compare: each launch sees that none has changed."""

    def __ne__(self, other: object) -> bool:
        return bool(self.value != getattr(other, "value", other))


def place(names: Sequence[str], name: str) -> Constant:
    """The place of a column or a factor among those of a kernel, as kernels read it."""
    return Constant(names.index(name))


SIZE, FIRST_BLOCK, GROUP = (place(HEADER, name) for name in HEADER)
ADDRESSES = Constant(len(HEADER))  # where they begin in a row


class Table(NamedTuple):
    """What a kernel is given: everything is on the device but the number of blocks."""

    rows: Tensor
    factors: Tensor
    owner: Tensor
    blocks: int
    aligned: bool


class Packed:
    """The table of some tensors, sent again when it has changed.

    Args:
        tensors: whose sizes and device the table is for.
        columns: the names of the kernel's columns, in its order.
        addresses: of each tensor, by column; 0 in the columns that are not there.
        groups: the number of each tensor's group.
        factors: the names of the kernel's factors, in its order.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        columns: Sequence[str],
        addresses: Mapping[str, Sequence[int]],
        groups: Sequence[int],
        factors: Sequence[str] = (),
    ) -> None:
        sizes = np.array([x.numel() for x in tensors], dtype=np.int64)
        blocks = -(-sizes // BLOCK)
        owner = np.repeat(np.arange(len(sizes), dtype=np.int32), blocks)
        self.device, self.blocks, self.factors = tensors[0].device, len(owner), factors
        self.gradients = len(HEADER) + columns.index("grad")
        nowhere = [0] * len(sizes)
        places = [addresses.get(name, nowhere) for name in columns]
        self.rows = np.column_stack([sizes, np.cumsum(blocks) - blocks, groups, *places])
        self.captured: list[Tensor] = []
        self.owner = self._send(torch.from_numpy(owner))
        self.sent: Any = None
        self.current: Table | None = None
        self.spare: Tensor | None = None

    def table(self, places: list[int], factors: Sequence[Mapping[str, float]] = ()) -> Table:
        """The table with these addresses of the gradients, and these factors of each group.

        While a graph is captured it is written to pinned memory, which the graph reads at every
        replay: that must have been there before, and stays as it is.
        """
        capturing = self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if self.current is None or capturing or self.sent != (places, factors):
            self.rows[:, self.gradients] = places
            numbers = np.array([row[name] for row in factors for name in self.factors], np.float64)
            content = torch.from_numpy(np.concatenate([numbers.view(np.int64), self.rows.ravel()]))
            if capturing and self.spare is not None:
                content, self.spare = self.spare.copy_(content), None
            elif self.device.type == "cuda" and self.spare is None:
                self.spare = torch.empty_like(content, pin_memory=True)
            on_device, n = self._send(content), len(numbers)
            aligned = not bool((self.rows[:, len(HEADER) :] % 16).any())
            kept = on_device[:n].view(torch.float64)
            self.current = Table(on_device[n:], kept, self.owner, self.blocks, aligned)
            self.sent = None if capturing else (places, factors)
        return self.current

    def _send(self, x: Tensor) -> Tensor:
        """On the device, without waiting; where that is this machine's own, as it is."""
        if self.device.type != "cuda":
            return x
        pinned = x if x.is_pinned() else x.pin_memory()
        if torch.cuda.is_current_stream_capturing():
            self.captured.append(pinned)  # the graph reads it at every replay
        return pinned.to(self.device, non_blocking=True)


@triton.jit
def own_block(rows, owner, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The row of the tensor that this program works on, where its block starts, what is left."""
    block = tl.program_id(0)
    row = rows + tl.load(owner + block) * (ADDRESSES + WIDTH)
    start = (block - tl.load(row + FIRST_BLOCK)) * BLOCK
    return row, start, tl.load(row + SIZE) - start


@triton.jit
def address(row, COLUMN: tl.constexpr):
    """What the row has in a column: where the tensor begins, 0 if there is none."""
    return tl.load(row + ADDRESSES + COLUMN)


@triton.jit
def column(row, COLUMN: tl.constexpr, start, kind: tl.constexpr, ALIGNED: tl.constexpr):
    """Where the block begins in a column of the row."""
    pointer = address(row, COLUMN).to(tl.pointer_type(kind))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer + start


@triton.jit
def read(pointer, left, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """The block's elements; beyond the tensor's end, zeros."""
    places = tl.arange(0, BLOCK)
    if MASKED:
        return tl.load(pointer + places, mask=places < left, other=0.0)
    return tl.load(pointer + places)


@triton.jit
def write(pointer, x, left, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """Put the block's elements back."""
    places = tl.arange(0, BLOCK)
    if MASKED:
        tl.store(pointer + places, x, mask=places < left)
    else:
        tl.store(pointer + places, x)
