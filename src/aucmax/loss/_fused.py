"""The binary objective on a GPU: one kernel for the value, one for the gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aucmax.kernels import saddle
from aucmax.loss.objective import LINKS, Terms, saddle_objective


class FusedSaddle(torch.autograd.Function):
    """:mod:`aucmax.kernels.saddle` as a differentiable function; it never waits for the device."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        a: Tensor,
        b: Tensor,
        alpha: Tensor,
        batch: saddle.Batch,
        counts: bool,
    ) -> Tensor:
        """The value of the batch; with ``counts`` its labels are added to the running prior."""
        value, saved = saddle.forward(a, b, alpha, batch, counts)
        ctx.save_for_backward(scores, a, b, alpha, saved)
        ctx.batch = batch
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients in scores, a, b and alpha."""
        scores, a, _, _, saved = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient itself is differentiated
            return (*_differentiable_gradients(ctx, grad), None, None)
        in_scores, *rest = saddle.backward(grad, saved, ctx.batch)
        small = (x if x.dtype == a.dtype else x.to(a.dtype) for x in rest)
        return (in_scores.reshape(scores.shape), *small, None, None)


def _differentiable_gradients(ctx: Any, grad: Tensor) -> list[Tensor | None]:
    """The gradients as a graph of their own, for second derivatives."""
    *inputs, saved = ctx.saved_tensors
    batch: saddle.Batch = ctx.batch
    scores, *centres = inputs
    h = LINKS[batch.link](scores.reshape(-1).to(saved.dtype))
    labels = batch.labels.to(h.dtype)
    weight = None if batch.weight is None else batch.weight.to(h.dtype)
    half = 0.5 * (len(h) if weight is None else weight.sum())
    terms = Terms(half * saved[0], half * saved[1], saved[7], 0.0)
    a, b, alpha = (x.reshape(()).to(h.dtype) for x in centres)
    value = saddle_objective(h, labels, a, b, alpha, terms, batch.margin, weight)
    wanted = [x for x in inputs if x.requires_grad]
    found = iter(torch.autograd.grad(value, wanted, grad, create_graph=True))
    return [next(found) if x.requires_grad else None for x in inputs]
