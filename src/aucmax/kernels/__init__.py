"""Triton kernels; imported only where Triton is and a GPU asks for them."""

from __future__ import annotations

import functools
import importlib.util

from torch import Tensor

ON_THE_CPU = False
"""Whether kernels take tensors on the CPU too, by Triton's interpreter: for tests alone."""


def take(x: Tensor) -> bool:
    """Whether the kernels can work on a tensor where it is."""
    return (x.is_cuda or (ON_THE_CPU and x.is_cpu)) and _has_triton()


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
