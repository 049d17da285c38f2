"""ResNet-20 for images of 32 x 32 pixels (He et al., 2016, Section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from aucmax import checks
from aucmax.models.mlp import Standardize

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "elu": nn.ELU}
WIDTHS = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)  # of the stem and the nine blocks


class Block(nn.Module):
    """Two convolutions and a shortcut, a projection where the shape changes."""

    def __init__(self, inputs: int, outputs: int, activation: type[nn.Module]) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.body = nn.Sequential(
            _convolution(inputs, outputs, stride),
            nn.BatchNorm2d(outputs),
            activation(),
            _convolution(outputs, outputs),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outputs))
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block."""
        y: Tensor = self.activation(self.body(x) + self.shortcut(x))
        return y


class ResNet20(nn.Module):
    """Three groups of three blocks, 16, 32 and 64 channels wide; :func:`resnet20` makes one."""

    def __init__(
        self,
        activation: str = "relu",
        *,
        channels: int = 3,
        outputs: int = 1,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__()
        kind = ACTIVATIONS[checks.choice("activation", activation, tuple(ACTIVATIONS))]
        self.standardize = Standardize(mean, std)
        self.channels = checks.count("channels", channels)
        stem = _convolution(self.channels, WIDTHS[0])
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(WIDTHS[0]), kind())
        self.blocks = nn.Sequential(*(Block(a, b, kind) for a, b in pairwise(WIDTHS)))
        self.head = nn.Linear(WIDTHS[-1], checks.count("outputs", outputs))

    def forward(self, images: Tensor) -> Tensor:
        """Return raw scores (N, outputs) of images (N, channels, H, W), bytes or real numbers."""
        if images.ndim != 4 or images.shape[1] != self.channels:
            raise ValueError(
                f"images must have shape (N, {self.channels}, height, width), found "
                f"{tuple(images.shape)}; x.transpose(0, 3, 1, 2) puts channels first"
            )
        x = self.standardize(images).contiguous(memory_format=torch.channels_last)
        x = self.blocks(self.stem(x)).mean((2, 3))
        # Also under autocast: scores of eight bits would tie, and ties count one half.
        with torch.autocast(x.device.type, enabled=False):
            scores: Tensor = self.head(x.to(self.head.weight.dtype))
        return scores


@checks.without(fused="the fused layers are in experiments/resnet20")
def resnet20(
    activation: str = "relu",
    *,
    channels: int = 3,
    outputs: int = 1,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    generator: torch.Generator | None = None,
) -> ResNet20:
    """Make a ResNet-20 with projection shortcuts, of 272 thousand parameters.

    It takes images (N, channels, height, width) and computes channels-last. As in the work that
    introduced the network, initial weights are normal of variance 2 / fan-out (He et al., 2015).

    Args:
        activation: "relu", or "elu" as in the code of the paper's authors.
        channels: Channels of the images.
        outputs: Scores per image.
        mean: Subtracted from the pixels first, one number or one per channel.
        std: Divides the pixels.
        generator: Generator of the initial weights; None takes torch's own.

    Example:
        >>> import torch
        >>> from aucmax.models import resnet20
        >>> model = resnet20(mean=127.5, std=127.5)
        >>> sum(p.numel() for p in model.parameters())
        271889
        >>> model(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
        torch.Size([2, 1])
    """
    # Layers draw weights when they are made, which those of the generator replace.
    with torch.random.fork_rng([], enabled=generator is not None):
        model = ResNet20(activation, channels=channels, outputs=outputs, mean=mean, std=std)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", generator=generator)
        elif isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
            nn.init.zeros_(layer.bias)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
