"""The AUC losses for more than two classes, and for several labels at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from aucmax import checks
from aucmax.loss.base import (
    NO_DEBUG,
    as_shares,
    check_class_shapes,
    check_table,
    check_tensors,
    computable,
    known_labels,
    means_of_classes,
)
from aucmax.loss.saddle import LINKS, ClassSums, SaddleLoss, coefficients, row_sums, saddle


class MulticlassAUCLoss(SaddleLoss):
    r"""The objective of every ordered pair of classes, averaged (Section 4.3 of the paper).

    Score i should rank class i above every other class j:
    :math:`\frac{1}{c(c-1)} \sum_{i \ne j} F_{ij}`, whose metric is Hand and Till's M of the
    linked scores, ``hand_till(scores.double().softmax(-1), target)``. The saddle variables are c
    by c matrices; the diagonals are not used. All pairs come from the classes' shares and their
    first and second moments of h, so the cost is O(N c + c^2).

    Args:
        priors: class probabilities in the batches, c numbers in (0, 1) that sum to one.
        margin: as for :class:`AUCLoss`.
        link: "softmax", as in the paper, or "identity".
        normalize: divide each pair's part by :math:`p_i p_j`.
        alpha_min: as for :class:`AUCLoss`.
        guard: as for :class:`AUCLoss`, with the softmax link.

    Shape:
        scores (N, c), raw; target (N,), integers 0 to c - 1; weight (N,). Returns a scalar.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(5, 3)
        >>> loss = aucmax.MulticlassAUCLoss(priors=[0.5, 0.25, 0.25])
        >>> x, y = torch.randn(8, 5), torch.tensor([0, 0, 1, 2, 0, 0, 1, 2])
        >>> loss.begin(model(x), y)
        >>> optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.1)
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
    """

    priors: Tensor

    @checks.without(debug=NO_DEBUG)
    def __init__(
        self,
        priors: Sequence[float] | Tensor,
        *,
        margin: float = 1.0,
        link: str = "softmax",
        normalize: bool = True,
        alpha_min: float | None = None,
        guard: bool = True,
    ) -> None:
        shares = as_shares(priors)
        c = len(shares)
        if c < 2 or abs(math.fsum(shares) - 1.0) > 1e-3:
            raise ValueError(
                f"priors must be two or more class probabilities that sum to 1, "
                f"found {c} that sum to {math.fsum(shares):g}"
            )
        super().__init__((c, c), ("softmax", "identity"), margin, link, normalize, alpha_min, guard)
        self.register_buffer("priors", torch.tensor(shares, dtype=torch.float64))

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """Return the mean over the pairs of classes; differentiable in scores, a, b and alpha."""
        if group is not None:
            self._refuse_groups()
        self._check_shapes(scores, target, weight)
        dtype = computable(scores.dtype)
        weight = None if weight is None else weight.detach().to(dtype)
        c = len(self.priors)
        self.check_values(scores.detach().to(dtype), target, weight, classes=c)
        left, a, b, alpha = self._variables(dtype)
        p = self.priors.to(dtype)
        dual = torch.outer(p, p)
        scale = dual if self.normalize else torch.ones_like(dual)
        positive, negative = 2.0 * p[None, :] / scale, 2.0 * p[:, None] / scale
        h = LINKS[self.link](scores.to(dtype))
        sums = _sums_of_pairs(h, target.long(), weight, a, b, positive, negative)
        each, *gradients = saddle(sums, a, b, alpha, dual / scale, self.margin)
        diagonal = torch.eye(c, dtype=torch.bool, device=each.device)
        if left is not None:
            self._watch.see(self, left, alpha, a + b, gradients[2].masked_fill(diagonal, 0.0))
        mean: Tensor = each.masked_fill(diagonal, 0.0).sum() / (c * (c - 1))
        return mean + self.margin**2 if self.normalize else mean

    def _check_shapes(self, scores: Tensor, target: Tensor, weight: Tensor | None) -> None:
        check_tensors(scores, target)
        check_table(scores, len(self.priors))
        check_class_shapes(scores, target, weight)

    def _optimum(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        self._check_shapes(scores, target, weight)
        exact = scores.detach().to(computable(scores.dtype))
        self.look(exact, target, weight, classes=len(self.priors))
        h, classes = LINKS[self.link](exact), target.long()
        w = torch.ones_like(h[:, 0]) if weight is None else weight.detach().to(h.dtype)
        mass = torch.zeros_like(h[0]).index_add(0, classes, w)
        if bool((mass == 0).any()):
            absent = (mass == 0).nonzero().flatten().tolist()
            raise checks.MissingClassError(
                f"target must hold every class, found no example of {absent}: draw more"
            )
        means = torch.zeros_like(self.a, dtype=h.dtype).index_add(0, classes, w[:, None] * h)
        means = means / mass[:, None]  # entry (k, i): class k, score i
        positive, negative = means.diagonal()[:, None].expand_as(means), means.T
        return positive, negative, negative - positive

    def extra_repr(self) -> str:
        """Show the options."""
        return f"classes={len(self.priors)}, {super().extra_repr()}"


def _sums_of_pairs(
    h: Tensor,
    classes: Tensor,
    weight: Tensor | None,
    a: Tensor,
    b: Tensor,
    positive: Tensor,
    negative: Tensor,
) -> ClassSums:
    """Return the sums of every ordered pair of classes (i, j), of which class i is the positive.

    Args:
        h: linked scores, (N, c).
        classes: (N,).
        weight: (N,), or None.
        a: the positives' centres, (c, c).
        b: the negatives'.
        positive: what a positive counts, over its weight's share, (c, c).
        negative: what a negative counts.
    """
    w = torch.ones_like(h[:, 0]) if weight is None else weight
    total = w.sum().clamp_min(torch.finfo(h.dtype).tiny)
    zeros = torch.zeros_like(a)
    # Moments about each column's mean: raw scores far from zero would cancel.
    pivot = h.detach().mean(0)
    h, a, b = h - pivot, a - pivot[:, None], b - pivot[:, None]
    share = zeros[0].index_add(0, classes, w) / total  # counts first: their sum is exact
    first = zeros.index_add(0, classes, w[:, None] * h) / total  # entry (k, i): class k, score i
    second = zeros.index_add(0, classes, w[:, None] * h.square()) / total

    def about(centre: Tensor, mass: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        return first - centre * mass, second - 2.0 * centre * first + centre.square() * mass

    own, others = share[:, None], share[None, :]
    first_pos, second_pos = about(a, own, first.diagonal()[:, None], second.diagonal()[:, None])
    first_neg, second_neg = about(b, others, first.T, second.T)
    return ClassSums(
        positive * own,
        negative * others,
        positive * first_pos,
        negative * first_neg,
        positive * second_pos + negative * second_neg,
    )


class MultilabelAUCLoss(SaddleLoss):
    """One binary objective per label, averaged over the labels; missing labels are masked.

    Each label's part is exactly :class:`AUCLoss` on the rows where that label is known; a label
    that no row of the batch knows adds nothing.

    Args:
        priors: the share of positives of each label in the batches, L numbers in (0, 1).
        margin: as for :class:`AUCLoss`.
        link: "sigmoid" or "identity".
        normalize: as for :class:`AUCLoss`.
        alpha_min: as for :class:`AUCLoss`.
        guard: as for :class:`AUCLoss`.

    Shape:
        scores (N, L), raw; target (N, L), 0 or 1, NaN where missing; weight (N,) or (N, L). Returns
        a scalar.

    Example:
        >>> import torch, aucmax
        >>> loss = aucmax.MultilabelAUCLoss(priors=[0.5, 0.1])
        >>> target = torch.tensor([[1.0, 0.0], [0.0, float("nan")], [0.0, 1.0]])
        >>> loss(torch.zeros(3, 2), target).shape
        torch.Size([])
    """

    priors: Tensor

    @checks.without(debug=NO_DEBUG)
    def __init__(
        self,
        priors: Sequence[float] | Tensor,
        *,
        margin: float = 1.0,
        link: str = "sigmoid",
        normalize: bool = True,
        alpha_min: float | None = None,
        guard: bool = True,
    ) -> None:
        shares = as_shares(priors)
        links = "sigmoid", "identity"
        super().__init__((len(shares),), links, margin, link, normalize, alpha_min, guard)
        self.register_buffer("priors", torch.tensor(shares, dtype=torch.float64))

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """Return the mean of the labels' objectives; differentiable in scores, a, b and alpha."""
        if group is not None:
            self._refuse_groups()
        labels, known, given = self._prepare(scores, target, weight)
        self.check_values(scores.detach().to(labels.dtype), labels, given)
        left, a, b, alpha = self._variables(labels.dtype)
        p = self.priors.to(labels.dtype)
        terms = coefficients(p, p * (1.0 - p), self.margin, self.normalize)
        total = known.sum(0)
        k = known * (labels * (terms.positive - terms.negative) + terms.negative)
        k = k / total.clamp_min(torch.finfo(k.dtype).tiny)
        h = LINKS[self.link](scores.to(labels.dtype))
        sums = ClassSums(*(x.sum(0) for x in row_sums(h, labels, k, a, b)))
        each, *gradients = saddle(sums, a, b, alpha, terms.dual, self.margin)
        if left is not None:
            self._watch.see(self, left, alpha, a + b, gradients[2].where(total > 0, 0.0))
        return (each + terms.constant).where(total > 0, 0.0).mean()  # type: ignore[no-any-return]

    def _prepare(
        self, scores: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return labels, weights with 0 where a label is missing, and the weights as given."""
        check_tensors(scores, target)
        check_table(scores, len(self.priors))
        labels, known = known_labels(scores, target, weight)
        return labels, known, None if weight is None else weight.detach().to(labels.dtype)

    def _optimum(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        labels, known, given = self._prepare(scores, target, weight)
        exact = scores.detach().to(labels.dtype)
        self.look(exact, labels, given)
        h = LINKS[self.link](exact)
        positive, negative = means_of_classes(h, labels, known, "examples of each label")
        return positive, negative, negative - positive

    def extra_repr(self) -> str:
        """Show the options."""
        return f"labels={len(self.priors)}, {super().extra_repr()}"
