"""The first layer of a network: raw numbers become numbers of about mean 0 and deviation 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from aucmax import checks


class Standardize(nn.Module):
    r"""Subtracts a mean and divides by a deviation, of each channel or of all.

    .. math:: x \mapsto (x - \mu_c) / \sigma_c

    As a part of the model it is saved with it, so training and use cannot differ, and images can
    stay bytes until they are on the device.

    Args:
        mean: of each channel (dimension 1 of the inputs), or one number for all.
        std: their standard deviations, above zero.

    Example:
        >>> import torch
        >>> from aucmax.models import Standardize
        >>> pixels = torch.tensor([[0, 255]], dtype=torch.uint8)
        >>> Standardize(127.5, 127.5)(pixels)
        tensor([[-1.,  1.]])
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0):
        super().__init__()
        means, deviations = (torch.as_tensor(x, dtype=torch.float32) for x in (mean, std))
        for value in deviations.reshape(-1).tolist():
            checks.positive("std", value)
        for value in means.reshape(-1).tolist():
            checks.number("mean", value, "a finite number", math.isfinite)
        sizes = {x.numel() for x in (means, deviations) if x.ndim}
        if max(means.ndim, deviations.ndim) > 1 or len(sizes) > 1:
            shapes = [list(x.shape) if x.ndim > 1 else x.numel() for x in (means, deviations)]
            raise ValueError(
                f"mean and std must be numbers or lists of one length, "
                f"found {shapes[0]} and {shapes[1]} values"
            )
        self.register_buffer("mean", means)
        self.register_buffer("scale", 1 / deviations)

    def forward(self, x: Tensor) -> Tensor:
        """The inputs in the buffers' precision, standardized."""
        x = x.to(self.mean.dtype)
        mean, scale = (
            value.reshape((-1,) + (1,) * (x.ndim - 2)) if value.ndim else value
            for value in (self.mean, self.scale)
        )
        return (x - mean) * scale

    def extra_repr(self) -> str:
        """What tells one from another."""
        return f"mean={_numbers(self.mean)}, std={_numbers(1 / self.scale)}"


def _numbers(x: Tensor) -> Any:
    return [round(v, 6) for v in x.tolist()] if x.ndim else round(x.item(), 6)


def moments(images: Tensor) -> tuple[list[float], list[float]]:
    """Each channel's mean and deviation, from how often each of the 256 values occurs."""
    counts = torch.stack(
        [torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)]
    ).double()
    share, values = counts / counts.sum(1, keepdim=True), torch.arange(256, dtype=torch.float64)
    mean = share @ values
    return mean.tolist(), (share @ values**2 - mean**2).sqrt().tolist()
