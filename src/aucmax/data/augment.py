"""Random changes of training images, made on the device they are on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aucmax import checks, kernels


class CropAndFlip:
    """Shifts every image by up to ``padding`` pixels, and mirrors every second one.

    An image is padded with zeros, and a window of its old size is cut out at random, as is usual
    for CIFAR. Each image of a batch gets its own window. It is one gather on the device, without a
    loop and without waiting, so a CUDA graph can hold it; random numbers are torch's own. Given
    ``rows``, a batch's images are found, cut and mirrored in that one gather.

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
        self.padding = checks.count("padding", padding, least=0)
        self.flip = bool(flip)

    def __call__(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        """Images (N, C, H, W) of any dtype, or some rows of them; they come back channels-last."""
        if images.ndim != 4:
            raise ValueError(f"images must have shape (N, C, H, W), found {tuple(images.shape)}")
        if not (checks.tracing() or images.requires_grad) and kernels.usable_on(images):
            from aucmax.kernels.crop import crop

            rows = torch.arange(len(images), device=images.device) if rows is None else rows
            windows = self._windows(len(rows), images.device)
            return crop(images, rows, windows, self.padding, self.flip)
        images = images if rows is None else images.index_select(0, rows)
        n, _, height, width = images.shape
        device, shifts = images.device, 2 * self.padding + 1
        padded = nn.functional.pad(images, (self.padding,) * 4).permute(0, 2, 3, 1)
        lines = torch.arange(height, device=device)[:, None]
        columns = torch.arange(width, device=device)[None, :].expand(n, 1, width)
        window = self._windows(n, device)[:, None, None]
        if self.flip:
            columns = torch.where(window % 2 == 1, columns.flip(2), columns)
            window = window // 2
        which = torch.arange(n, device=device)[:, None, None]
        lines, columns = lines + window // shifts, columns + window % shifts
        return padded[which, lines, columns].permute(0, 3, 1, 2)

    def _windows(self, n: int, device: torch.device) -> Tensor:
        """One of all windows for each image, times two and mirrored or not if it may be."""
        count = (2 * self.padding + 1) ** 2 * (2 if self.flip else 1)
        return torch.randint(count, (n,), device=device)

    def __repr__(self) -> str:
        return f"CropAndFlip(padding={self.padding}, flip={self.flip})"
