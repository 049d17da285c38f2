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

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softmax": lambda scores: scores.softmax(-1),
    "identity": lambda scores: scores,
}


class Terms(NamedTuple):
    """What multiplies each part of F: a float each, or tensors where p is estimated on a device.

    Example:
        >>> from aucmax.loss.objective import saddle_terms
        >>> saddle_terms(0.5, 0.25, margin=1.0, normalize=True).constant
        1.0
    """

    positive: Any
    negative: Any
    dual: Any
    constant: float


def saddle_terms(p: Any, p_one_minus_p: Any, margin: float, normalize: bool) -> Terms:
    r"""Coefficients of F, or of :math:`m^2 + F / (p(1-p))` with ``normalize``.

    Args:
        p: the probability of a positive, a number or a tensor.
        p_one_minus_p: that of p (1 - p), which may be estimated on its own.
        margin: by how much positives should outrank negatives.
        normalize: whether to divide by p (1 - p).

    Example:
        >>> from aucmax.loss.objective import saddle_terms
        >>> saddle_terms(0.25, 0.1875, margin=1.0, normalize=False)
        Terms(positive=0.75, negative=0.25, dual=0.1875, constant=0.0)
    """
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

    Example:
        >>> import torch
        >>> from aucmax.loss.objective import saddle_objective, saddle_terms
        >>> h, target = torch.tensor([0.75, 0.25]), torch.tensor([1.0, 0.0])
        >>> a, b, alpha = torch.tensor([0.75, 0.25, -0.5])  # the best: means and their distance
        >>> terms = saddle_terms(0.5, 0.25, margin=1.0, normalize=True)
        >>> saddle_objective(h, target, a, b, alpha, terms).item()  # (1 - 0.75 + 0.25)^2
        0.25
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

    Example:
        >>> import torch
        >>> from aucmax.loss.objective import multiclass_objective
        >>> h, target, zeros = torch.eye(2), torch.tensor([0, 1]), torch.zeros(2, 2)
        >>> pairs = multiclass_objective(h, target, zeros, zeros, zeros, torch.tensor([0.5, 0.5]))
        >>> pairs[0, 1].item(), pairs[1, 0].item()  # 1 + 4 (0.5 - 1) / 2
        (0.0, 0.0)
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
