"""Data, models and parameter shapes that several benchmarks time, without aucmax."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn


def resnet20_shapes() -> list[tuple[int, ...]]:
    """Parameter shapes of the paper's ResNet-20 with one output: 59 tensors, 0.27 M numbers."""
    shapes: list[tuple[int, ...]] = [(16, 3, 3, 3), (16,), (16,)]
    inputs = 16
    for outputs in (16, 32, 64):
        for _ in range(3):
            shapes += [(outputs, inputs, 3, 3), (outputs,), (outputs,)]
            shapes += [(outputs, outputs, 3, 3), (outputs,), (outputs,)]
            inputs = outputs
    return [*shapes, (1, 64), (1,)]


def resnet50_shapes() -> list[tuple[int, ...]]:
    """Parameter shapes of ResNet-50 with 1,000 outputs: 161 tensors, 25.6 M numbers."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for k in range(blocks):
            layers = [(width, inputs, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            layers += [(4 * width, inputs, 1, 1)] if k == 0 else []
            for layer in layers:
                shapes += [layer, (layer[0],), (layer[0],)]
            inputs = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def parameters(shapes: list[tuple[int, ...]], device: torch.device | str = "cpu") -> list[Tensor]:
    """Parameters with gradients, as after a backward pass."""
    generator = torch.Generator(device).manual_seed(0)
    made = [
        torch.randn(shape, generator=generator, device=device).requires_grad_() for shape in shapes
    ]
    for p in made:
        p.grad = torch.randn(p.shape, generator=generator, device=device) * 1e-3
    return made


def batch(n: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Scores that want a gradient, and labels of which about a tenth are positive."""
    generator = torch.Generator().manual_seed(n)
    scores = torch.randn(n, generator=generator).to(device).requires_grad_()
    return scores, (torch.rand(n, generator=generator) < 0.1).float().to(device)


def forward_backward(loss: nn.Module, scores: Tensor, target: Tensor) -> Callable[[], None]:
    """One training step's work on the loss, checks on."""
    learned = [scores, *loss.parameters()]

    def run() -> None:
        for x in learned:
            x.grad = None
        loss(scores, target).backward()

    return run


class Block(nn.Module):
    """Two convolutions and a shortcut that pads with zeros (He et al., 2016, option A)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = 1 if inputs == outputs else 2
        self.first = nn.Conv2d(inputs, outputs, 3, self.stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.extra = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        h = self.first_norm(self.first(x)).relu()
        h = self.second_norm(self.second(h))
        if self.extra:
            x = nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.extra))
        return (h + x).relu()


def resnet20() -> nn.Module:
    """The paper's ResNet-20 with one output."""
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [Block(a, b) for a, b in pairwise(widths)]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1)]
    return nn.Sequential(*stem, *blocks, *head)


MLP_ROWS = 1 << 17


def resnet20_task(device: str, rows: int = 2048) -> tuple[nn.Module, Tensor, Tensor]:
    """A ResNet-20 and random images of CIFAR's shape, a tenth of them positive."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, 32, 32, generator=generator)
    y = (torch.rand(rows, generator=generator) < 0.1).float()
    return resnet20().to(device), x.to(device), y.to(device)


def mlp_task(device: str, rows: int = MLP_ROWS) -> tuple[nn.Module, Tensor, Tensor]:
    """A small network and a table of 32 columns, a tenth of the rows positive."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 32, generator=generator)
    y = (torch.rand(rows, generator=generator) < 0.1).float()
    layers = [nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)]
    return nn.Sequential(*layers).to(device), x.to(device), y.to(device)
