"""The AUC loss for ranking within groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aucmax import checks
from aucmax.loss.base import (
    NO_DEBUG,
    check_binary_shapes,
    check_row_numbers,
    computable,
    flatten,
)
from aucmax.loss.saddle import LINKS, SaddleLoss, row_sums, saddle


class GroupedAUCLoss(SaddleLoss):
    r"""The square surrogate of the AUC within groups, as a saddle objective with a, b, alpha each.

    Only pairs of one group count (a patient's, a site's, a query's), so nothing is gained by a
    score that tells groups apart. With :math:`P_g` positives and :math:`N_g` negatives in group g
    of the training data, n rows in all, and g the group of row i,

    .. math::

        m^2 + \frac{n}{\sum_g P_g N_g} \cdot \frac{\sum_i w_i F_i}{\sum_i w_i}, \qquad
        F = \begin{cases}
            N_g \bigl((h - a_g)^2 - 2 (m + \alpha_g) h - \tfrac12 \alpha_g^2\bigr) & y = 1, \\
            P_g \bigl((h - b_g)^2 + 2 (m + \alpha_g) h - \tfrac12 \alpha_g^2\bigr) & y = 0.
        \end{cases}

    Over all rows, at the best a, b and alpha, that is the mean of :math:`(m - h(x^+) + h(x^-))^2`
    over all pairs within groups: a group weighs its share of pairs. Groups of one class have none,
    and their rows no gradient. With weights, P, N and n are sums of them.

    A group's a, b and alpha have gradients as small as its share of the pairs, so with many groups
    they follow the scores slowly: a larger ``saddle_lr`` of :func:`minmax_groups` helps. Where
    groups are so small that batches hold whole ones, a loss on pairs needs no such variables.

    It costs O(N) for a batch of N rows, whatever the number of groups, but that gradients of a, b
    and alpha have an entry for every group.

    Args:
        positives: the number of positives in each group of the data that batches are drawn from,
            or the sum of their weights, G numbers; :func:`aucmax.data.count_classes` counts.
        negatives: that of the negatives.
        prior: the share of positives, by weight, in batches that have another than the data, in
            (0, 1); the classes are weighed back to the data's share.
        margin: m, by how much positives should outrank negatives of their group.
        link: "sigmoid", h in [0, 1], or "identity", the raw scores.
        alpha_min: as for :class:`AUCLoss`.
        guard: as for :class:`AUCLoss`.

    Shape:
        scores (N,) or (N, 1), raw; target (N,) or the shape of scores, 0 or 1; weight, optional,
        likewise; group (N,), integers from 0 to G - 1. Returns a scalar, in float32 or better.

    Example:
        >>> import torch, aucmax
        >>> group, y = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([1, 0, 0, 1, 1, 0])
        >>> loss = aucmax.GroupedAUCLoss(positives=[1, 2], negatives=[2, 1])
        >>> model, x = torch.nn.Linear(5, 1), torch.randn(6, 5)
        >>> loss.begin(model(x), y, group=group)
        >>> optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.1)
        >>> loss(model(x), y, group=group).backward()
        >>> optimizer.step()
    """

    terms: Tensor

    @checks.without(debug=NO_DEBUG)
    def __init__(
        self,
        positives: Tensor | list[float],
        negatives: Tensor | list[float],
        *,
        prior: float | None = None,
        margin: float = 1.0,
        link: str = "sigmoid",
        alpha_min: float | None = None,
        guard: bool = True,
    ) -> None:
        counts = _counts(positives, negatives)
        groups = counts.shape[1]
        super().__init__((groups,), ("sigmoid", "identity"), margin, link, True, alpha_min, guard)
        self.prior = None if prior is None else checks.share("prior", prior)
        # What multiplies F: of a positive its group's negatives, and the other way round.
        terms = counts.flip(0) * (counts.sum() / counts.prod(0).sum())
        if self.prior is not None:
            batches = counts.new_tensor([self.prior, 1.0 - self.prior])
            terms = terms * (counts.sum(1) / counts.sum() / batches)[:, None]
        self.register_buffer("terms", terms * (counts > 0))

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """Return the objective of one batch; differentiable in scores, a, b and alpha."""
        s, labels, w, group = self._prepare(scores, target, weight, group)
        given = None if weight is None else w
        self.check_values(s.detach(), labels, given, group=(group, len(self.a)))
        left, *own = self._variables(s.dtype)
        # Not index_select: on CUDA the gradient of indexing is summed in a fixed order.
        a, b, alpha = (x[group] for x in own)
        positive, negative = self.terms[:, group].to(s.dtype)
        total = w.sum().clamp_min(torch.finfo(s.dtype).tiny)
        k = 2.0 * w * (labels * (positive - negative) + negative) / total
        sums = row_sums(LINKS[self.link](s), labels, k, a, b)
        # Each row has its part of the term in alpha: one half of what multiplies its F.
        each, *gradients = saddle(sums, a, b, alpha, 0.25 * k, self.margin)
        if left is not None:
            in_alpha = torch.zeros_like(own[2]).index_put((group,), gradients[2].detach(), True)
            self._watch.see(self, left, own[2], own[0] + own[1], in_alpha)
        value: Tensor = self.margin**2 + each.sum()
        return value

    def _prepare(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return scores, labels, weights and groups, flat and of the right shapes."""
        check_binary_shapes(scores, target, weight)
        if group is None:
            raise ValueError("group must be given: (N,) integers, found None")
        check_row_numbers("group", group, len(scores))
        s = scores.reshape(-1).to(computable(scores.dtype))
        labels = flatten(target, s.dtype)
        w = torch.ones_like(labels) if weight is None else flatten(weight, s.dtype)
        return s, labels, w, group.long()

    def _optimum(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best a, b and alpha of each group that has both classes here.

        Other groups keep theirs, but one that has never been set takes the mean of these, weighed
        by their pairs.
        """
        s, labels, w, group = self._prepare(scores.detach(), target, weight, group)
        self.look(s, labels, w, numbers={"group": (group, len(self.a))})
        h = LINKS[self.link](s)

        def sums(values: Tensor) -> Tensor:
            zeros = torch.zeros_like(self.a, dtype=torch.promote_types(h.dtype, torch.float32))
            return zeros.index_put_((group,), values, accumulate=True)  # in a fixed order

        positive, negative = w * labels, w * (1.0 - labels)
        positives, negatives = sums(positive), sums(negative)
        pairs = positives * negatives
        if not bool(pairs.any()):
            raise checks.MissingClassError(
                f"target must hold both classes in a group among the examples, found "
                f"{int((positives > 0).sum())} groups with positives and "
                f"{int((negatives > 0).sum())} with negatives, none with both: draw more"
            )
        tiny = torch.finfo(h.dtype).tiny
        a = sums(positive * h) / positives.clamp_min(tiny)
        b = sums(negative * h) / negatives.clamp_min(tiny)

        def filled(values: Tensor, old: Tensor) -> Tensor:
            mean = (values * pairs).sum() / pairs.sum()
            return values.where(pairs > 0, mean.where(old == 0, old))

        return filled(a, self.a), filled(b, self.b), filled(b - a, self.alpha)

    def extra_repr(self) -> str:
        """Show the options."""
        text = f"groups={len(self.a)}, {super().extra_repr()}"
        return text if self.prior is None else f"{text}, prior={self.prior:g}"


def _counts(positives: Any, negatives: Any) -> Tensor:
    """Return both in two rows, in double precision, or raise."""
    rows = [torch.as_tensor(x, dtype=torch.float64).detach().cpu() for x in (positives, negatives)]
    shapes = [tuple(x.shape) for x in rows]
    if shapes[0] != shapes[1] or len(shapes[0]) != 1 or shapes[0] == (0,):
        raise ValueError(
            f"positives and negatives must have a number for each group, found shapes "
            f"{shapes[0]} and {shapes[1]}"
        )
    counts = torch.stack(rows)
    if not bool((counts.isfinite() & (counts >= 0)).all()):
        raise ValueError(
            f"positives and negatives must be finite numbers >= 0, found values from "
            f"{counts.min():g} to {counts.max():g}"
        )
    if not bool(counts.prod(0).any()):
        raise ValueError(
            f"a group must have positives and negatives, found none with both among "
            f"{counts.shape[1]}"
        )
    return counts
