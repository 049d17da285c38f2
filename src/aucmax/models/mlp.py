"""A plain MLP, and the standardization of inputs as its first layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from aucmax import checks


class Standardize(nn.Module):
    r"""Subtract a mean and divide by a standard deviation, per channel or for all inputs.

    .. math:: x \mapsto (x - \mu_c) / \sigma_c

    As a layer it is saved with the model, so that training and use cannot differ, and images can
    stay bytes until they are on the device.

    Args:
        mean: Mean of each channel (dimension 1 of the inputs), or one number for all.
        std: Standard deviations, above zero, in the same form.

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
        """Return standardized inputs in the precision of the buffers."""
        x = x.to(self.mean.dtype)
        mean, scale = (
            value.reshape((-1,) + (1,) * (x.ndim - 2)) if value.ndim else value
            for value in (self.mean, self.scale)
        )
        return (x - mean) * scale

    def extra_repr(self) -> str:
        """Show mean and standard deviation, rounded."""
        mean, std = (
            [round(v, 6) for v in x.tolist()] if x.ndim else round(x.item(), 6)
            for x in (self.mean, 1 / self.scale)
        )
        return f"mean={mean}, std={std}"


def mlp(
    inputs: int,
    hidden: Sequence[int] = (128, 128),
    outputs: int = 1,
    *,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Make an MLP with ReLU on rows of numbers or on flattened images.

    Args:
        inputs: Numbers per row.
        hidden: Widths of the hidden layers.
        outputs: Scores per row.
        mean: Subtracted from the inputs first, see :class:`Standardize`.
        std: Divides the inputs.
        generator: Generator of the initial weights; None takes torch's own.

    Example:
        >>> import torch
        >>> from aucmax.models import mlp
        >>> mlp(64, hidden=(32,))(torch.zeros(5, 1, 8, 8)).shape
        torch.Size([5, 1])
    """
    widths = [checks.count("inputs", inputs), *(checks.count("hidden", n) for n in hidden)]
    outputs = checks.count("outputs", outputs)
    layers: list[nn.Module] = [Standardize(mean, std), nn.Flatten()]
    # Layers draw weights when they are made, which those of the generator replace.
    with torch.random.fork_rng([], enabled=generator is not None):
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        layers.append(nn.Linear(widths[-1], outputs))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            # The last layer begins small: the slope of a sigmoid vanishes at large scores.
            gain = 5**0.5 if layer is layers[-1] else 0.0
            nn.init.kaiming_uniform_(layer.weight, a=gain, generator=generator)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)
