"""What is timed, without aucmax, so that peers can be timed on the same."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


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


SHAPES: dict[str, list[tuple[int, ...]]] = {
    "ResNet-20": resnet20_shapes(),
    "MLP 512": [(512, 512), (512,), (512, 512), (512,), (1, 512), (1,)],
    "one tensor of 25 M": [(25_000_000,)],
}


def parameters(shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """Parameters with gradients, as after a backward pass."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    for p in made:
        p.grad = torch.randn(p.shape, generator=generator) * 1e-3
    return made


def batch(n: int) -> tuple[Tensor, Tensor]:
    """Scores that want a gradient, and labels of which about a tenth are positive."""
    generator = torch.Generator().manual_seed(n)
    scores = torch.randn(n, generator=generator).requires_grad_()
    return scores, (torch.rand(n, generator=generator) < 0.1).float()


def forward_backward(
    loss: Callable[[Tensor, Tensor], Tensor], scores: Tensor, target: Tensor
) -> Callable[[], None]:
    """One training step's work on the loss, checks on."""

    def run() -> None:
        scores.grad = None
        loss(scores, target).backward()

    return run
