"""The binary objective on a GPU: one kernel for the value, one for the gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aucmax.kernels import saddle
from aucmax.loss.objective import Terms, differentiable_gradients


class SaddleOnGPU(torch.autograd.Function):
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
        *inputs, saved = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient itself is differentiated
            batch: saddle.Batch = ctx.batch
            labels = batch.labels.to(saved.dtype)
            weight = None if batch.weight is None else batch.weight.to(saved.dtype)
            half = 0.5 * (len(labels) if weight is None else weight.sum())
            k_positive, k_negative, dual = saddle.coefficients(saved)
            terms = Terms(half * k_positive, half * k_negative, dual, 0.0)
            given = (labels, weight, terms, batch.margin, batch.link)
            return (*differentiable_gradients(inputs, grad, *given), None, None)
        scores, a, *_ = inputs
        in_scores, *rest = saddle.backward(grad, saved, ctx.batch)
        small = (x if x.dtype == a.dtype else x.to(a.dtype) for x in rest)
        return (in_scores.reshape(scores.shape), *small, None, None)
