"""Random changes of training images, made on the device they are on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


class ColorJitter:
    r"""Makes every image brighter or darker, its contrast and its colours stronger or weaker.

    In turn, each clipped to the values that an image may have, with factors :math:`f` of its own
    for each image, drawn from :math:`[1 - s, 1 + s]`:

    .. math::
        x \mapsto f_1 x, \qquad
        x \mapsto \bar g + f_2 (x - \bar g), \qquad
        x \mapsto g + f_3 (x - g),

    where :math:`g = 0.299 r + 0.587 g + 0.114 b` is the grey level of a pixel and
    :math:`\bar g` its mean over the image.

    Args:
        strength: s, from 0 to 1; 0.4 is usual for photos.

    Example:
        >>> import torch
        >>> from aucmax.data.augment import ColorJitter
        >>> images = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
        >>> ColorJitter(0.4)(images).dtype
        torch.uint8
    """

    def __init__(self, strength: float = 0.4) -> None:
        allowed = "a number from 0 to 1"
        self.strength = checks.number("strength", strength, allowed, lambda x: 0 <= x <= 1)
        self._is_checked = False

    def __call__(self, images: Tensor) -> Tensor:
        """Images (N, 3, H, W): bytes, or real numbers from 0 to 1."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"images must have shape (N, 3, H, W), found {tuple(images.shape)}")
        top = 1.0 if images.is_floating_point() else 255.0
        if images.is_floating_point() and not self._is_checked:
            self._check_range(images)
        factors = torch.rand(3, len(images), 1, 1, 1, device=images.device)
        bright, contrast, color = (1 + self.strength * (2 * factors - 1)).unbind(0)
        x = (images * bright).clamp(max=top)
        x = _blend(x, _grey(x).mean(dim=(2, 3), keepdim=True), contrast, top)
        return _as_before(_blend(x, _grey(x), color, top), images)

    def _check_range(self, images: Tensor) -> None:
        """Once, since a GPU is waited for, and not where it cannot be: in a graph."""
        captured = images.is_cuda and torch.cuda.is_current_stream_capturing()
        if captured or torch.compiler.is_compiling() or not images.numel():
            return
        low, high = (float(x) for x in images.aminmax())
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"images must be bytes, or real numbers from 0 to 1, found {low:g} to {high:g}: "
                f"standardize them in the network"
            )
        self._is_checked = True

    def __repr__(self) -> str:
        return f"ColorJitter(strength={self.strength})"


class MixWithinClass:
    r"""Mixup for ranking: every image is blended with another of its own class.

    .. math:: x_i \mapsto \lambda_i x_i + (1 - \lambda_i) x_{j(i)}, \qquad
        \lambda_i \sim \mathrm{Beta}(a, a), \quad y_{j(i)} = y_i,

    j being a random permutation of each class's rows. A pair of a positive and a negative has no
    label between 0 and 1 that a ranking objective could use, as mixup's usual blend of two classes
    would need; blends within a class leave the labels, and so the pairs, as they are. Weights stay
    those of row i.

    Args:
        concentration: a, above 0; 0.2 leaves most images nearly as they are, 1 blends evenly.

    Example:
        >>> import torch
        >>> from aucmax.data.augment import MixWithinClass
        >>> images, labels = torch.rand(4, 3, 8, 8), torch.tensor([0.0, 1.0, 0.0, 1.0])
        >>> MixWithinClass(0.2)(images, labels).shape
        torch.Size([4, 3, 8, 8])
    """

    takes_labels = True

    def __init__(self, concentration: float = 0.2) -> None:
        self.concentration = checks.positive("concentration", concentration)

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Images (N, ...) of the classes that N labels are."""
        if labels.shape != images.shape[:1]:
            raise ValueError(
                f"labels must be one for each of {len(images)} images, found shape "
                f"{tuple(labels.shape)}: images of several labels have no class to blend within"
            )
        share = _beta(self.concentration, len(images), images.device)
        share = share.reshape(-1, *(1,) * (images.ndim - 1))
        x = images.to(share.dtype)
        return _as_before(share * x + (1 - share) * x[_partners(labels)], images)

    def __repr__(self) -> str:
        return f"MixWithinClass(concentration={self.concentration})"


class Chain:
    """Several changes, one after the other.

    Args:
        parts: each is called with images; one whose ``takes_labels`` is True with labels, too.

    Example:
        >>> from aucmax.data.augment import Chain, ColorJitter, CropAndFlip
        >>> Chain(CropAndFlip(padding=4), ColorJitter(0.4))
        Chain(CropAndFlip(padding=4, flip=True), ColorJitter(strength=0.4))
    """

    takes_labels = True

    def __init__(self, *parts: Callable[..., Any]) -> None:
        if not parts:
            raise ValueError("parts must be at least one change, found none")
        self.parts = parts

    def __call__(self, images: Any, labels: Tensor) -> Any:
        """The images after all of them."""
        for part in self.parts:
            images = change(part, images, labels)
        return images

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.parts))})"


def change(augment: Callable[..., Any], inputs: Any, labels: Tensor) -> Any:
    """The inputs after an augmentation, which gets the labels if it takes them."""
    return augment(inputs, labels) if getattr(augment, "takes_labels", False) else augment(inputs)


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images[:, 0:1], images[:, 1:2], images[:, 2:3]
    return 0.299 * red + 0.587 * green + 0.114 * blue  # numbers alone: a graph copies none


def _blend(images: Tensor, towards: Tensor, factor: Tensor, top: float) -> Tensor:
    return (towards + factor * (images - towards)).clamp(0.0, top)


def _as_before(changed: Tensor, images: Tensor) -> Tensor:
    """In the images' dtype; bytes are rounded."""
    return (changed if images.is_floating_point() else changed.round()).to(images.dtype)


def _partners(labels: Tensor) -> Tensor:
    """Of every row another of its class, or itself: a random permutation of each class."""
    whole = labels.double()  # numbers of classes, so that less than 1 keeps them apart
    in_order, shuffled = whole.argsort(stable=True), (whole + torch.rand_like(whole)).argsort()
    return torch.empty_like(in_order).scatter_(0, in_order, shuffled)


def _beta(a: float, count: int, device: torch.device) -> Tensor:
    """Numbers of Beta(a, a), as shares of two of Gamma(a), which may be very small."""
    given = torch.full((2, count), a, dtype=torch.float64, device=device)
    first, second = torch._standard_gamma(given).unbind(0)
    return (first / (first + second).clamp(min=torch.finfo(first.dtype).tiny)).float()
