"""Tensors that are spread over ranks, written and read by all of them together.

The files are those of :mod:`torch.distributed.checkpoint`, a part of which is a pickle. They are a
run's own notes, not a model to pass on, and are read only after their SHA-256 has been checked.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from aucmax import disk
from aucmax.checks import is_sharded


def mesh_of(model: nn.Module) -> Any:
    """The mesh of a sharded model's parameters; None for a whole one."""
    return next((p.device_mesh for p in model.parameters() if is_sharded(p)), None)  # type: ignore[attr-defined]


def shard(model: nn.Module, device: torch.device) -> None:
    """Spread the model's parameters over the ranks, unless its owner has done so.

    Also those of the root are spread again after every forward pass: after one without a backward
    pass, as evaluation has it, the optimizer must find the shards it knows.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if mesh_of(model) is None:
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
    elif isinstance(model, FSDPModule):
        model.set_reshard_after_forward(True)


def write(folder: Path, tensors: dict[str, Tensor]) -> list[Path]:
    """Write every rank's shards into a folder, in one piece; returns its files."""
    from torch.distributed.checkpoint.state_dict_saver import save

    temporary = folder.with_name(folder.name + ".tmp")
    if dist.get_rank() == 0:
        shutil.rmtree(temporary, ignore_errors=True)
    dist.barrier()
    with warnings.catch_warnings(action="ignore"):  # those of torch's own making
        save(dict(tensors), checkpoint_id=temporary)
    if dist.get_rank() == 0:
        disk.replace_folder(folder, temporary)
    dist.barrier()
    return sorted(folder.iterdir())


def read(folder: Path, layout: dict[str, list[Any]], mesh: Any) -> dict[str, Tensor]:
    """Read tensors of the given shapes and dtypes, spread over the ranks of ``mesh``."""
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.tensor import Shard, empty

    tensors: dict[str, Any] = {
        name: empty(*shape, dtype=getattr(torch, dtype), device_mesh=mesh, placements=[Shard(0)])
        for name, (shape, dtype) in layout.items()
    }
    with warnings.catch_warnings(action="ignore"):
        load(tensors, checkpoint_id=folder)
    return tensors


def load_whole(model: nn.Module, weights: dict[str, Any]) -> None:
    """Give each rank its part of whole weights."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))
