"""A plain network for tables and small images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from aucmax import checks
from aucmax.models.random_weights import leaving_random_numbers
from aucmax.models.standardize import Standardize


def mlp(
    inputs: int,
    hidden: Sequence[int] = (128, 128),
    outputs: int = 1,
    *,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Linear layers with ReLU between them, on rows or on images laid out as rows.

    Args:
        inputs: numbers per row.
        hidden: widths of the hidden layers.
        outputs: scores per row.
        mean: subtracted from the inputs first, see :class:`Standardize`.
        std: the inputs are divided by it.
        generator: of the initial weights; None takes torch's own.

    Example:
        >>> import torch
        >>> from aucmax.models import mlp
        >>> mlp(64, hidden=(32,))(torch.zeros(5, 1, 8, 8)).shape
        torch.Size([5, 1])
    """
    widths = [checks.count("inputs", inputs), *(checks.count("hidden", n) for n in hidden)]
    outputs = checks.count("outputs", outputs)
    layers: list[nn.Module] = [Standardize(mean, std), nn.Flatten()]
    with leaving_random_numbers(generator):
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        layers.append(nn.Linear(widths[-1], outputs))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            # The last layer begins small: a sigmoid of large scores has no slope.
            gain = 5**0.5 if layer is layers[-1] else 0.0
            nn.init.kaiming_uniform_(layer.weight, a=gain, generator=generator)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)
