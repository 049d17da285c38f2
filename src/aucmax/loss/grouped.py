"""The AUC loss for ranking within groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aucmax import checks
from aucmax.loss._inputs import (
    check_binary_shapes,
    check_binary_values,
    check_row_numbers,
    flatten,
)
from aucmax.loss.base import SaddleLoss


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
    and alpha have an entry for every group unless they are ``sparse``.

    Args:
        positives: the number of positives in each group of the data that batches are drawn from,
            or the sum of their weights, G numbers; :func:`aucmax.data.count_classes` counts.
        negatives: that of the negatives.
        prior: the share of positives, by weight, in batches that have another than the data, in
            (0, 1); the classes are weighed back to the data's share.
        margin: m, by how much positives should outrank negatives of their group.
        link: "sigmoid", h in [0, 1], or "identity", the raw scores.
        alpha_min: as for :class:`AUCLoss`.
        sparse: give a, b and alpha sparse gradients, of the groups in the batch alone. For
            :class:`PPDSG` without momentum, which then touches no other group in a step (its
            ``catch_up`` does, before you read a and b), and for torch's SGD and Adagrad. Slower
            than dense ones below some 100,000 groups.
        debug: check values on accelerators too, at the price of a synchronization per call.

    Shape:
        scores (N,) or (N, 1), raw; target (N,) or the shape of scores, 0 or 1; weight, optional,
        likewise; group (N,), integers from 0 to G - 1. Returns a scalar, in float32 or better.

    Example:
        >>> import torch, aucmax
        >>> group, y = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([1, 0, 0, 1, 1, 0])
        >>> loss = aucmax.GroupedAUCLoss(positives=[1, 2], negatives=[2, 1])
        >>> model, x = torch.nn.Linear(5, 1), torch.randn(6, 5)
        >>> optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.1)
        >>> loss(model(x), y, group=group).backward()
        >>> optimizer.step()
    """

    terms: Tensor

    def __init__(
        self,
        positives: Tensor | list[float],
        negatives: Tensor | list[float],
        *,
        prior: float | None = None,
        margin: float = 1.0,
        link: str = "sigmoid",
        alpha_min: float | None = None,
        sparse: bool = False,
        debug: bool = False,
    ) -> None:
        counts = _counts(positives, negatives)
        groups = counts.shape[1]
        super().__init__((groups,), ("sigmoid", "identity"), margin, link, True, alpha_min, debug)
        self.sparse = bool(sparse)
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
        """The objective of one batch; differentiable in scores, a, b and alpha."""
        h, labels, w, group = self._prepare(scores, target, weight, group)
        a, b, alpha = self._variables(group, h.dtype)
        positive, negative = self.terms[:, group].to(h.dtype)
        positive, negative = w * labels * positive, w * (1.0 - labels) * negative
        reach = 2.0 * (self.margin + alpha) * h
        each = positive * ((h - a).square() - reach) + negative * ((h - b).square() + reach)
        each = each - 0.5 * (positive + negative) * alpha.square()
        value: Tensor = self.margin**2 + each.sum() / w.sum()
        return value

    def _prepare(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Linked scores, labels, weights and groups, flat and checked."""
        check_binary_shapes(scores, target, weight)
        if group is None:
            raise ValueError("group must be given: (N,) integers, found None")
        check_row_numbers("group", group, len(scores))
        h = self._linked(scores).reshape(-1)
        labels = flatten(target, h.dtype)
        w = torch.ones_like(labels) if weight is None else flatten(weight, h.dtype)
        if self._may_look(scores):
            check_binary_values(flatten(scores, h.dtype), labels, w)
            low, high = (int(x) for x in group.long().aminmax())
            if low < 0 or high >= len(self.a):
                raise ValueError(
                    f"group must hold numbers from 0 to {len(self.a) - 1}, found {low} to {high}"
                )
        return h, labels, w, group.long()

    def _variables(self, group: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """a, b and alpha of each row."""
        if not self.sparse:
            self._project_dual()
            # Not index_select: on CUDA the gradient of indexing is summed in a fixed order.
            a, b, alpha = (p[group].to(dtype) for p in (self.a, self.b, self.alpha))
            return a, b, alpha
        rows, place = torch.unique(group, return_inverse=True)
        self._catch_up(rows)
        if self.alpha_min is not None:
            least = self.alpha.data[rows].clamp_(min=self.alpha_min)
            self.alpha.data.index_copy_(0, rows, least)
        a, b, alpha = (
            torch.gather(p, 0, rows, sparse_grad=True)[place].to(dtype)
            for p in (self.a, self.b, self.alpha)
        )
        return a, b, alpha

    def _catch_up(self, rows: Tensor | None = None) -> None:
        """Let an optimizer that leaves rows without a gradient for later make up for some or all.

        Such a one hangs what does so on the parameter.
        """
        for p in (self.a, self.b, self.alpha):
            catch_up = getattr(p, "catch_up", None)
            if catch_up is not None:
                catch_up(rows)

    @torch.no_grad()
    def reset_dual(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        group: Tensor | None = None,
    ) -> None:
        r"""Set alpha to its optimum for these scores, in each group that has both classes here.

        .. math:: \alpha_g = E_g[h \mid y = 0] - E_g[h \mid y = 1]

        Other groups keep theirs, but one that has never been set takes the mean of these, weighed
        by their pairs.

        Raises:
            ValueError: if no group has both classes.
        """
        positive, negative, pairs = self._class_means_of_groups(scores, target, weight, group)
        _set(self.alpha, negative - positive, pairs)
        self._project_dual()

    @torch.no_grad()
    def reset_primal(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        group: Tensor | None = None,
    ) -> None:
        r"""Set a and b to the means of :math:`h` over a group's positives and negatives.

        In which groups, as for :meth:`reset_dual`.
        """
        positive, negative, pairs = self._class_means_of_groups(scores, target, weight, group)
        _set(self.a, positive, pairs)
        _set(self.b, negative, pairs)

    def _class_means_of_groups(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Means of h over each group's positives and negatives, and the weight of its pairs."""
        h, labels, w, group = self._prepare(scores.detach(), target, weight, group)
        self._catch_up()

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
        means = [
            sums(part * h) / mass.clamp_min(tiny)
            for part, mass in ((positive, positives), (negative, negatives))
        ]
        return means[0], means[1], pairs

    def extra_repr(self) -> str:
        """Show the options."""
        text = f"groups={len(self.a)}, {super().extra_repr()}"
        text = text if self.prior is None else f"{text}, prior={self.prior:g}"
        return f"{text}, sparse=True" if self.sparse else text


def _counts(positives: Any, negatives: Any) -> Tensor:
    """Both in two rows, in double precision, or an error that says what is wrong."""
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


def _set(p: Tensor, values: Tensor, pairs: Tensor) -> None:
    """Give a parameter its values where there are pairs, and their mean where it is unset."""
    mean = (values * pairs).sum() / pairs.sum()
    p.copy_(values.where(pairs > 0, mean.where(p == 0, p)))
