"""Triton kernels; imported only where Triton is and a GPU asks for them."""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor

ON_THE_CPU = False
"""Whether kernels work on tensors on the CPU too, by Triton's interpreter: for tests alone."""


def usable_on(x: Tensor) -> bool:
    """Whether the kernels can work on a tensor where it is: on the current device, in plain memory.

    Triton launches on the current device's stream, whichever device the tensor is on.
    """
    if type(x) not in (Tensor, torch.nn.Parameter) or not _has_triton():
        return False
    return x.get_device() == torch.cuda.current_device() if x.is_cuda else ON_THE_CPU and x.is_cpu


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
