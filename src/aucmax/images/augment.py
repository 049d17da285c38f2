"""Random changes of training images, computed in batches on the device of the images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from aucmax import checks
from aucmax.data.batches import apply_augment


class CropAndFlip:
    """Crop each image at random after zero padding, and mirror half of the images.

    Each image of a batch gets its own window of the padded image, of the size of the image, as is
    usual for CIFAR. The windows are cut by one gather without a loop or a device sync, so a CUDA
    graph can capture it. Random numbers come from torch's global generator.

    Args:
        padding: Pixels of zeros added on each side.
        flip: Also mirror left and right, with probability 1/2.

    Example:
        >>> import torch
        >>> from aucmax.images.augment import CropAndFlip
        >>> images = torch.rand(8, 3, 32, 32)
        >>> CropAndFlip(padding=4)(images).shape
        torch.Size([8, 3, 32, 32])
    """

    def __init__(self, padding: int = 4, flip: bool = True) -> None:
        self.padding = checks.count("padding", padding, least=0)
        self.flip = bool(flip)

    def __call__(self, images: Tensor) -> Tensor:
        """Return windows of images (N, C, H, W) of any dtype, channels-last in memory."""
        if images.ndim != 4:
            raise ValueError(f"images must have shape (N, C, H, W), found {tuple(images.shape)}")
        n, _, height, width = images.shape
        device, shifts = images.device, 2 * self.padding + 1
        padded = nn.functional.pad(images, (self.padding,) * 4).permute(0, 2, 3, 1)
        count = shifts**2 * (2 if self.flip else 1)
        window = torch.randint(count, (n,), device=device)[:, None, None]
        rows = torch.arange(height, device=device)[:, None]
        columns = torch.arange(width, device=device)[None, :].expand(n, 1, width)
        if self.flip:
            columns = torch.where(window % 2 == 1, columns.flip(2), columns)
            window = window // 2
        image = torch.arange(n, device=device)[:, None, None]
        cut = padded[image, rows + window // shifts, columns + window % shifts]
        return cut.permute(0, 3, 1, 2)

    def __repr__(self) -> str:
        return f"CropAndFlip(padding={self.padding}, flip={self.flip})"


class ColorJitter:
    r"""Change the brightness, contrast and saturation of each image at random.

    The three changes follow each other, each clipped to the range of pixel values. Their factors
    :math:`f` are drawn for each image from :math:`[1 - s, 1 + s]`:

    .. math::
        x \mapsto f_1 x, \qquad
        x \mapsto \bar g + f_2 (x - \bar g), \qquad
        x \mapsto g + f_3 (x - g),

    where :math:`g = 0.299 r + 0.587 g + 0.114 b` is the gray level of a pixel and
    :math:`\bar g` its mean over the image.

    Args:
        strength: s, from 0 to 1; 0.4 is usual for photos.

    Example:
        >>> import torch
        >>> from aucmax.images.augment import ColorJitter
        >>> images = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
        >>> ColorJitter(0.4)(images).dtype
        torch.uint8
    """

    def __init__(self, strength: float = 0.4) -> None:
        allowed = "a number from 0 to 1"
        self.strength = checks.number("strength", strength, allowed, lambda x: 0 <= x <= 1)
        self._is_checked = False

    def __call__(self, images: Tensor) -> Tensor:
        """Return changed images (N, 3, H, W): bytes, or real numbers from 0 to 1."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"images must have shape (N, 3, H, W), found {tuple(images.shape)}")
        top = 1.0 if images.is_floating_point() else 255.0
        if images.is_floating_point() and images.numel() and not self._is_checked:
            self._check_range(images)
        factors = torch.rand(3, len(images), 1, 1, 1, device=images.device)
        bright, contrast, color = (1 + self.strength * (2 * factors - 1)).unbind(0)
        x = (images * bright).clamp(max=top)
        mean = _gray(x).mean(dim=(2, 3), keepdim=True)
        x = (mean + contrast * (x - mean)).clamp(0.0, top)
        gray = _gray(x)
        x = (gray + color * (x - gray)).clamp(0.0, top)
        return _to_dtype_of(images, x)

    def _check_range(self, images: Tensor) -> None:
        """Check pixel values once, at the first batch whose values the host may read."""
        if not checks.synchronizable():
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
    r"""Blend each image with another of its class: mixup for ranking.

    .. math:: x_i \mapsto \lambda_i x_i + (1 - \lambda_i) x_{j(i)}, \qquad
        \lambda_i \sim \mathrm{Beta}(a, a), \quad y_{j(i)} = y_i,

    where j permutes the rows of each class at random. Mixup across classes needs labels between 0
    and 1, which a ranking objective cannot use. Within a class the labels stay as they are, and so
    do the pairs. Row i keeps its weight.

    Args:
        concentration: a, above 0; 0.2 leaves most images nearly unchanged, 1 blends uniformly.

    Attributes:
        takes_labels: True; :func:`aucmax.fit` then passes the labels, too.

    Example:
        >>> import torch
        >>> from aucmax.images.augment import MixWithinClass
        >>> images, labels = torch.rand(4, 3, 8, 8), torch.tensor([0.0, 1.0, 0.0, 1.0])
        >>> MixWithinClass(0.2)(images, labels).shape
        torch.Size([4, 3, 8, 8])
    """

    takes_labels = True

    def __init__(self, concentration: float = 0.2) -> None:
        self.concentration = checks.positive("concentration", concentration)

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return blends of images (N, ...) with N labels."""
        if labels.shape != images.shape[:1]:
            raise ValueError(
                f"labels must be one for each of {len(images)} images, found shape "
                f"{tuple(labels.shape)}: images of several labels have no class to blend within"
            )
        share = _beta(self.concentration, len(images), images.device)
        share = share.reshape(-1, *(1,) * (images.ndim - 1))
        x = images.to(share.dtype)
        return _to_dtype_of(images, share * x + (1 - share) * x[_partners(labels)])

    def __repr__(self) -> str:
        return f"MixWithinClass(concentration={self.concentration})"


class Chain:
    """Apply several augmentations in turn.

    Args:
        parts: The augmentations. Each is called with the images, and also with the labels if its
            attribute ``takes_labels`` is True.

    Attributes:
        takes_labels: True.

    Example:
        >>> from aucmax.images.augment import Chain, ColorJitter, CropAndFlip
        >>> Chain(CropAndFlip(padding=4), ColorJitter(0.4))
        Chain(CropAndFlip(padding=4, flip=True), ColorJitter(strength=0.4))
    """

    takes_labels = True

    def __init__(self, *parts: Callable[..., Any]) -> None:
        if not parts:
            raise ValueError("parts must be at least one augmentation, found none")
        self.parts = parts

    def __call__(self, images: Any, labels: Tensor) -> Any:
        """Return the images after all parts."""
        for part in self.parts:
            images = apply_augment(part, images, labels)
        return images

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.parts))})"


def _gray(images: Tensor) -> Tensor:
    red, green, blue = images[:, 0:1], images[:, 1:2], images[:, 2:3]
    return 0.299 * red + 0.587 * green + 0.114 * blue  # plain numbers: nothing to copy to a device


def _to_dtype_of(images: Tensor, changed: Tensor) -> Tensor:
    """Return changed images in the dtype of the given ones, rounded for bytes."""
    return (changed if images.is_floating_point() else changed.round()).to(images.dtype)


def _partners(labels: Tensor) -> Tensor:
    """Return a random permutation of the rows within each class."""
    whole = labels.double()  # class numbers, which differ by 1 or more
    in_order, shuffled = whole.argsort(stable=True), (whole + torch.rand_like(whole)).argsort()
    return torch.empty_like(in_order).scatter_(0, in_order, shuffled)


def _beta(a: float, count: int, device: torch.device) -> Tensor:
    """Draw from Beta(a, a) as X / (X + Y) with X and Y from Gamma(a), without NaN for small a."""
    concentrations = torch.full((2, count), a, dtype=torch.float64, device=device)
    first, second = torch._standard_gamma(concentrations).unbind(0)
    return (first / (first + second).clamp(min=torch.finfo(first.dtype).tiny)).float()
