"""Random changes of training images, made on the device they are on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aucmax import _checks


class CropAndFlip:
    """Shifts every image by up to ``padding`` pixels, and mirrors every second one.

    An image is padded with zeros, and a window of its old size is cut out at random, as is usual
    for CIFAR. Each image of a batch gets its own window. It is one gather on the device, without a
    loop and without waiting, so a CUDA graph can hold it; random numbers are torch's own.

    Args:
        padding: pixels on every side.
        flip: also mirror left and right, with probability 1/2.

    Example:
        >>> import torch
        >>> from aucmax.data.augment import CropAndFlip
        >>> images = torch.rand(8, 3, 32, 32)
        >>> CropAndFlip(padding=4)(images).shape
        torch.Size([8, 3, 32, 32])
    """

    def __init__(self, padding: int = 4, flip: bool = True) -> None:
        self.padding = _checks.count("padding", padding, least=0)
        self.flip = bool(flip)

    def __call__(self, images: Tensor) -> Tensor:
        """Images (N, C, H, W) of any dtype; they come back channels-last."""
        if images.ndim != 4:
            raise ValueError(f"images must have shape (N, C, H, W), found {tuple(images.shape)}")
        n, _, height, width = images.shape
        device, shifts = images.device, 2 * self.padding + 1
        padded = nn.functional.pad(images, (self.padding,) * 4).permute(0, 2, 3, 1)
        rows = torch.arange(height, device=device)[:, None]
        columns = torch.arange(width, device=device)[None, :].expand(n, 1, width)
        if self.flip:
            mirrored = torch.randint(2, (n, 1, 1), device=device, dtype=torch.bool)
            columns = torch.where(mirrored, columns.flip(2), columns)
        top, left = torch.randint(shifts, (2, n, 1, 1), device=device)
        which = torch.arange(n, device=device)[:, None, None]
        return padded[which, rows + top, columns + left].permute(0, 3, 1, 2)

    def __repr__(self) -> str:
        return f"CropAndFlip(padding={self.padding}, flip={self.flip})"
