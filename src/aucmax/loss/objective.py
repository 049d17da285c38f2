r"""The saddle objective of AUC maximization, as pure functions.

Labels are 0 and 1, :math:`p` is the probability of a positive **in the batches the loss sees**,
:math:`h` the score after the link, :math:`m` the margin. Proposition 1 of the paper turns the mean
over pairs of :math:`(m - h(x^+) + h(x^-))^2` into :math:`\min_{w,a,b} \max_\alpha E[F]` with

.. math::

    F = (1-p)(h-a)^2 \mathbb{I}_{y=1} + p(h-b)^2 \mathbb{I}_{y=0}
        + 2(m+\alpha)\bigl(p\,h\,\mathbb{I}_{y=0} - (1-p)\,h\,\mathbb{I}_{y=1}\bigr)
        - p(1-p)\alpha^2,

a sum over single examples: the cost is that of the batch, not of its pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softmax": lambda scores: scores.softmax(-1),
    "identity": lambda scores: scores,
}


BLOCK = 1 << 16
"""Rows that the loss works on at a time on the CPU: its arrays of them fit the cache."""


class Terms(NamedTuple):
    """What multiplies each part of F: a float each, or tensors where p is estimated on a device."""

    positive: Any
    negative: Any
    dual: Any
    constant: float


def saddle_terms(p: Any, p_one_minus_p: Any, margin: float, normalize: bool) -> Terms:
    r"""Coefficients of F, or of :math:`m^2 + F / (p(1-p))` with ``normalize``."""
    scale = p_one_minus_p if normalize else 1.0
    constant = margin * margin if normalize else 0.0
    return Terms((1.0 - p) / scale, p / scale, p_one_minus_p / scale, constant)


def saddle_objective(
    h: Tensor,
    target: Tensor,
    a: Tensor,
    b: Tensor,
    alpha: Tensor,
    terms: Terms,
    margin: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """The objective averaged over the first dimension, in differentiable tensor operations.

    Args:
        h: linked scores, shape (N, ...).
        target: 0 or 1 in h's dtype, same shape.
        a: the positives' centre, of a shape that broadcasts to h's trailing dimensions.
        b: the negatives' centre.
        alpha: the dual variable.
        terms: coefficients from :func:`saddle_terms`.
        margin: by how much positives should outrank negatives.
        weight: non-negative weights of h's shape.
    """
    reach = margin + alpha
    positive = target * terms.positive
    negative = (1.0 - target) * terms.negative
    each = positive * ((h - a).square() - 2.0 * reach * h)
    each = each + negative * ((h - b).square() + 2.0 * reach * h)
    if weight is None:
        mean = each.mean(0)
    else:  # a label without any weight adds nothing
        mean = (weight * each).sum(0) / weight.sum(0).clamp_min(torch.finfo(h.dtype).tiny)
    value: Tensor = mean - terms.dual * alpha.square() + terms.constant
    return value


def multiclass_objective(
    h: Tensor,
    target: Tensor,
    a: Tensor,
    b: Tensor,
    alpha: Tensor,
    priors: Tensor,
    margin: float = 1.0,
    normalize: bool = True,
    weight: Tensor | None = None,
) -> Tensor:
    r"""The objective of every ordered pair of classes: entry (i, j) is :math:`F_{ij}`.

    Score i should rank class i above class j. All pairs come from the classes' shares and their
    first and second moments of h, so the cost is O(N c + c^2). The diagonal means nothing.

    Args:
        h: linked scores, shape (N, c).
        target: class indices, shape (N,), int64.
        a: centres of the positive class of each pair, shape (c, c).
        b: centres of the negative class of each pair.
        alpha: dual variables.
        priors: class probabilities in the batches, shape (c,).
        margin: by how much class i should outrank class j in score i.
        normalize: return :math:`m^2 + F_{ij} / (p_i p_j)`.
        weight: non-negative weights, shape (N,).
    """
    w = torch.ones_like(h[:, 0]) if weight is None else weight
    total = float(len(h)) if weight is None else weight.sum()
    zeros = torch.zeros_like(a, dtype=h.dtype)
    # Moments about each column's mean: raw scores far from zero would cancel.
    pivot = h.detach().mean(0)
    h = h - pivot
    a, b = a - pivot[:, None], b - pivot[:, None]
    share = zeros[0].index_add(0, target, w) / total  # counts first: their sum is exact
    first = zeros.index_add(0, target, w[:, None] * h) / total  # entry (k, i): class k, score i
    second = zeros.index_add(0, target, w[:, None] * h.square()) / total

    pairs = torch.outer(priors, priors)
    scale = pairs if normalize else torch.ones_like(pairs)
    positive, negative = priors[None, :] / scale, priors[:, None] / scale
    mass_i, mass_j = positive * share[:, None], negative * share[None, :]
    mean_i, mean_j = positive * first.diagonal()[:, None], negative * first.T
    spread_i, spread_j = positive * second.diagonal()[:, None], negative * second.T
    rise = mean_j - mean_i + pivot[:, None] * (mass_j - mass_i)
    value = spread_i - 2.0 * a * mean_i + a.square() * mass_i
    value = value + spread_j - 2.0 * b * mean_j + b.square() * mass_j
    value = value + 2.0 * (margin + alpha) * rise - pairs / scale * alpha.square()
    return value + margin * margin if normalize else value


class HostBatch(NamedTuple):
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
def host_saddle(
    a: Tensor, b: Tensor, alpha: Tensor, batch: HostBatch
) -> tuple[float, list[Tensor]]:
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


def _in_blocks(batch: HostBatch, aims: Pair, ks: Pair) -> tuple[Any, float, float, float]:
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


class HostSaddle(torch.autograd.Function):
    """:func:`host_saddle` as a differentiable function: the gradients come with the value."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, a: Tensor, b: Tensor, alpha: Tensor, batch: HostBatch
    ) -> Tensor:
        """Value of the batch; its gradients are kept for :meth:`backward`."""
        value, ctx.gradients = host_saddle(a, b, alpha, batch)
        ctx.save_for_backward(scores, a, b, alpha)
        ctx.batch, ctx.column = batch, scores.ndim == 2
        return batch.scores.new_full((), value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients found with the value, times ``grad``; handed out once, so not copied."""
        if torch.is_grad_enabled():  # create_graph=True: the gradient itself is differentiated
            return (*_differentiable_gradients(ctx, grad), None)
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # a second backward, after retain_graph=True
            _, a, b, alpha = ctx.saved_tensors
            _, gradients = host_saddle(a, b, alpha, ctx.batch)
        factor = grad.item()
        if factor != 1.0:
            for g in gradients:
                g.mul_(factor)
        in_scores, *rest = gradients
        return (in_scores[:, None] if ctx.column else in_scores, *rest, None)


def _differentiable_gradients(ctx: Any, grad: Tensor) -> list[Tensor | None]:
    """The gradients of :class:`HostSaddle` as a graph of their own, for second derivatives."""
    batch, inputs = ctx.batch, ctx.saved_tensors
    scores, *centres = inputs
    h = LINKS[batch.link](scores.reshape(-1).to(batch.scores.dtype))
    a, b, alpha = (x.reshape(()).to(h.dtype) for x in centres)
    value = saddle_objective(h, batch.labels, a, b, alpha, batch.terms, batch.margin, batch.weight)
    wanted = [x for x in inputs if x.requires_grad]
    found = iter(torch.autograd.grad(value, wanted, grad, create_graph=True))
    return [next(found) if x.requires_grad else None for x in inputs]
