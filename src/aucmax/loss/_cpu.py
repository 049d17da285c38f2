"""The binary objective on the CPU: value and gradients in one go, by NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aucmax.loss.objective import LINKS, Terms, differentiable_gradients

BLOCK = 1 << 16
"""Rows that are worked on at a time: arrays of them fit the cache."""


class Batch(NamedTuple):
    """One checked batch on the CPU, flat and in the dtype of the computation, with its sums."""

    scores: Tensor
    labels: Tensor
    weight: Tensor | None
    positives: float
    total: float
    terms: Terms
    margin: float
    link: str


@np.errstate(over="ignore", invalid="ignore")  # infinity is an answer, and the caller looks
def saddle_on_cpu(a: Tensor, b: Tensor, alpha: Tensor, batch: Batch) -> tuple[float, list[Tensor]]:
    """The binary objective on the CPU: its value and its gradients in scores, a, b and alpha.

    Completing the squares, the positives' part of F is ``(h - (a + reach))^2`` and the negatives'
    ``(h - (b - reach))^2`` up to constants, with ``reach = margin + alpha``. So with ``d`` each
    score's distance to its class's aim and ``k`` its coefficient, ``g = 2 k d`` is the gradient in
    h, ``g . d / 2`` the data's part of the value, and two sums of ``g`` give the gradients in a, b
    and alpha. Scalars are Python floats, double precision whatever the scores' dtype; arrays are
    NumPy's, which on a batch of a few hundred start faster than torch's operations.
    """
    centre_a, centre_b, dual = a.item(), b.item(), alpha.item()
    reach = batch.margin + dual
    aim_positive, aim_negative = centre_a + reach, centre_b - reach
    k_positive = 2.0 * batch.terms.positive / batch.total
    k_negative = 2.0 * batch.terms.negative / batch.total

    aims, ks = (aim_positive, aim_negative), (k_positive, k_negative)
    g, spread, sum_positive, total = _in_blocks(batch, aims, ks)
    sum_negative = total - sum_positive
    mass_positive = k_positive * batch.positives
    mass_negative = k_negative * (batch.total - batch.positives)
    value = 0.5 * (
        spread
        - mass_positive * reach * (aim_positive + centre_a)
        + mass_negative * reach * (aim_negative + centre_b)
    )
    value += batch.terms.constant - batch.terms.dual * dual * dual
    # Sums of k (h - a), k (h - b) and k h over a class, from those of k d.
    grad_a = -(sum_positive + mass_positive * reach)
    grad_b = -(sum_negative - mass_negative * reach)
    grad_alpha = sum_negative + mass_negative * aim_negative
    grad_alpha -= sum_positive + mass_positive * aim_positive + 2.0 * batch.terms.dual * dual

    small = [torch.full_like(a, x) for x in (grad_a, grad_b, grad_alpha)]
    return value, [torch.from_numpy(g), *small]


Pair = tuple[float, float]  # of the positives and of the negatives


def _in_blocks(batch: Batch, aims: Pair, ks: Pair) -> tuple[Any, float, float, float]:
    """The gradient in the scores, and the sums of ``g d``, of the positives' ``g`` and of all.

    A long batch is worked on in parts that stay in the cache: in one piece every operation would
    go through main memory, and its arrays would be new pages each time.
    """
    rows, labels = len(batch.scores), batch.labels.numpy()
    weight = None if batch.weight is None else batch.weight.numpy()
    if rows <= BLOCK:
        return _one_block(batch.scores, labels, weight, aims, ks, batch.link)
    gradient, spread, positive, total = np.empty_like(labels), 0.0, 0.0, 0.0
    for first in range(0, rows, BLOCK):
        part = slice(first, first + BLOCK)
        w, out = None if weight is None else weight[part], gradient[part]
        _, *sums = _one_block(batch.scores[part], labels[part], w, aims, ks, batch.link, out)
        spread, positive, total = spread + sums[0], positive + sums[1], total + sums[2]
    return gradient, spread, positive, total


def _one_block(
    scores: Tensor, labels: Any, weight: Any, aims: Pair, ks: Pair, link: str, out: Any = None
) -> tuple[Any, float, float, float]:
    """The same of one part, its gradient written to ``out`` if that is given."""
    h = LINKS[link](scores).numpy()
    d = labels * (aims[1] - aims[0])
    d += h
    d -= aims[1]
    g = np.multiply(labels, ks[0] - ks[1], out)
    g += ks[1]
    g *= d
    if weight is not None:
        g *= weight
    sums = float(g.dot(d)), float(g.dot(labels)), float(g.sum())
    if link == "sigmoid":
        g *= h
        g *= 1.0 - h
    return g, *sums


class SaddleOnCPU(torch.autograd.Function):
    """:func:`saddle_on_cpu` as a differentiable function: the gradients come with the value."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, a: Tensor, b: Tensor, alpha: Tensor, batch: Batch
    ) -> Tensor:
        """Value of the batch; its gradients are kept for :meth:`backward`."""
        value, ctx.gradients = saddle_on_cpu(a, b, alpha, batch)
        ctx.save_for_backward(scores, a, b, alpha)
        ctx.batch, ctx.column = batch, scores.ndim == 2
        return batch.scores.new_full((), value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients computed with the value, times ``grad``; handed out once, so not copied."""
        if torch.is_grad_enabled():  # create_graph=True: the gradient itself is differentiated
            batch: Batch = ctx.batch
            given = (batch.labels, batch.weight, batch.terms, batch.margin, batch.link)
            return (*differentiable_gradients(ctx.saved_tensors, grad, *given), None)
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second backward, after retain_graph=True
            _, a, b, alpha = ctx.saved_tensors
            _, gradients = saddle_on_cpu(a, b, alpha, ctx.batch)
        factor = grad.item()
        if factor != 1.0:
            for g in gradients:
                g.mul_(factor)
        in_scores, *rest = gradients
        return (in_scores[:, None] if ctx.column else in_scores, *rest, None)
