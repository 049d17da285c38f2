"""Buffers that keep their precision when a module is cast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn


class ExactBuffers(nn.Module):
    """A module whose own buffers follow ``.to(device)`` but stay in double precision.

    Counts do not fit in ``half()``, and a prior that went through single precision is another one.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        self._buffers.clear()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in exact.items():
            device = fn(torch.empty(0, device=buffer.device)).device
            if device.type == "mps":  # which has no float64
                self._buffers[name] = buffer.to(device, torch.float32)
            else:
                moved = fn(buffer)
                self._buffers[name] = moved if moved.dtype == buffer.dtype else buffer.to(device)
        return self
