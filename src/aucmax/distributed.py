"""What the ranks of a process group tell each other; in one process every function is a no-op."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Number of processes that train together, 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_over_ranks(x: Tensor) -> Tensor:
    """The sum of every rank's ``x``; ``x`` itself in one process."""
    if world_size() == 1:
        return x
    total = x.clone()
    dist.all_reduce(total)
    return total


def concat_over_ranks(x: Tensor) -> Tensor:
    """Every rank's ``x``, joined along the first dimension in rank order.

    Ranks may hold different numbers of rows; the other dimensions and the dtype must agree.
    """
    if world_size() == 1:
        return x
    rows = torch.tensor([x.shape[0]], device=x.device)
    sizes = [torch.empty_like(rows) for _ in range(world_size())]
    dist.all_gather(sizes, rows)
    counts = [int(size) for size in sizes]
    padded = x.new_zeros((max(counts), *x.shape[1:]))
    padded[: x.shape[0]] = x
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])
