"""Second derivatives of the binary objective, which is else computed without a graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aucmax.loss.objective import LINKS, Terms, saddle_objective


def differentiable_gradients(
    inputs: Sequence[Tensor],
    grad: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    terms: Terms,
    margin: float,
    link: str,
) -> list[Tensor | None]:
    """The gradients of the binary objective as a graph of their own, for second derivatives.

    ``inputs`` are scores, a, b and alpha; labels and weights are flat, in the dtype to compute in.
    """
    scores, *centres = inputs
    h = LINKS[link](scores.reshape(-1).to(labels.dtype))
    a, b, alpha = (x.reshape(()).to(h.dtype) for x in centres)
    value = saddle_objective(h, labels, a, b, alpha, terms, margin, weight)
    needed = [x for x in inputs if x.requires_grad]
    gradients = iter(torch.autograd.grad(value, needed, grad, create_graph=True))
    return [next(gradients) if x.requires_grad else None for x in inputs]
