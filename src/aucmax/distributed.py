"""What the ranks of a process group tell each other; in one process every function is a no-op."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Number of processes that train together, 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number among them, 0 without a process group."""
    return dist.get_rank() if world_size() > 1 else 0


def is_first() -> bool:
    """Whether this process is the one that speaks: before its group is joined, and after, too."""
    return int(os.environ.get("RANK", "0")) == 0 if world_size() == 1 else rank() == 0


def sendable(x: Tensor) -> Tensor:
    """``x`` where the process group can send it from: NCCL alone sends no host memory."""
    return x if "cpu:" in dist.get_backend_config() else x.cuda()


def sum_over_ranks(x: Tensor) -> Tensor:
    """The sum of every rank's ``x``; ``x`` itself in one process."""
    if world_size() == 1:
        return x
    total = x.clone()
    dist.all_reduce(total)
    return total


def sum_with_gradient(x: Tensor) -> Tensor:
    """The same, differentiable: every rank's gradient reaches every rank's ``x``."""
    if world_size() == 1:
        return x
    from torch.distributed.nn.functional import all_reduce

    total: Tensor = all_reduce(x)  # type: ignore[no-untyped-call]
    return total


def concat_over_ranks(x: Tensor, counts: list[int] | None = None) -> Tensor:
    """Every rank's ``x``, joined along the first dimension in rank order.

    Ranks may hold different numbers of rows, ``counts`` if they are known; the other dimensions and
    the dtype must agree.
    """
    if world_size() == 1:
        return x
    counts = row_counts(x) if counts is None else counts
    padded = x.new_zeros((max(counts), *x.shape[1:]))
    padded[: x.shape[0]] = x
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])


def row_counts(x: Tensor) -> list[int]:
    """How many rows each rank's ``x`` has."""
    if world_size() == 1:
        return [len(x)]
    rows = torch.tensor([x.shape[0]], device=x.device)
    sizes = [torch.empty_like(rows) for _ in range(world_size())]
    dist.all_gather(sizes, rows)
    return [int(size) for size in sizes]


def total(number: int) -> int:
    """The sum of every rank's number."""
    if world_size() == 1:
        return number
    return int(sum_over_ranks(sendable(torch.tensor(int(number)))))


def gather_objects(value: Any) -> list[Any]:
    """Every rank's ``value``, in rank order: small plain objects, not tensors."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def broadcast_object(value: Any) -> Any:
    """Rank 0's ``value``."""
    if world_size() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def average_buffers(module: torch.nn.Module) -> None:
    """Give every rank the mean of the ranks' floating point buffers, as batch norm has them."""
    if world_size() > 1:
        average_over_ranks(x for x in module.buffers() if x.is_floating_point())


def average_over_ranks(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by the mean of the ranks'; one message for all of a kind."""

    def average(x: Tensor) -> None:
        dist.all_reduce(x)
        x.div_(world_size())

    _in_few_messages(tensors, average)


def broadcast_tensors(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by the first rank's; one message for all of a kind."""
    _in_few_messages(tensors, lambda x: dist.broadcast(x, 0))


@torch.no_grad()
def _in_few_messages(tensors: Iterable[Tensor], exchange: Callable[[Tensor], object]) -> None:
    """Exchange the tensors of each dtype and device joined, in the order of the first of each."""
    kinds: dict[Any, list[Tensor]] = {}
    for x in tensors:
        kinds.setdefault((x.dtype, x.device), []).append(x)
    for alike in kinds.values():
        joined = torch.cat([x.reshape(-1) for x in alike])
        exchange(joined)
        parts = torch.split(joined, [x.numel() for x in alike])
        torch._foreach_copy_(alike, [part.view_as(x) for part, x in zip(parts, alike, strict=True)])


_JOINED = itertools.count()
"""Groups that this process has joined; all processes join them in the same order."""
_MEETING: dict[tuple[str, ...], Any] = {}
"""Where the processes meet, for as long as this one lives: the first may be the host of it."""


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the other processes that torchrun started, if it did and nobody has joined yet."""
    launched = dist.is_available() and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if not launched or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    place = attempt, *(os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    if place not in _MEETING:
        _MEETING[place] = next(rendezvous("env://"))
    store, rank, size = _MEETING[place]
    # A group must not find the addresses of the one before: of these processes, or of those that
    # torchrun has started again since.
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore(f"aucmax {attempt} {next(_JOINED)}", store),
        rank=rank,
        world_size=size,
    )
    try:
        yield
    finally:
        gc.collect()  # what still holds the group, or its threads would outlive it
        dist.destroy_process_group()
