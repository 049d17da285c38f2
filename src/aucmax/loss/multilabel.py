"""The AUC loss for several binary labels at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aucmax.loss._inputs import (
    as_shares,
    check_table,
    check_tensors,
    known_labels,
    means_of_classes,
)
from aucmax.loss.base import SaddleLoss
from aucmax.loss.objective import saddle_objective, saddle_terms


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
        debug: check values on accelerators too.

    Shape:
        scores (N, L), raw; target (N, L), 0 or 1, NaN where missing; weight (N,) or (N, L).

    Example:
        >>> import torch, aucmax
        >>> loss = aucmax.MultilabelAUCLoss(priors=[0.5, 0.1])
        >>> target = torch.tensor([[1.0, 0.0], [0.0, float("nan")], [0.0, 1.0]])
        >>> loss(torch.zeros(3, 2), target).shape
        torch.Size([])
    """

    priors: Tensor

    def __init__(
        self,
        priors: Sequence[float] | Tensor,
        *,
        margin: float = 1.0,
        link: str = "sigmoid",
        normalize: bool = True,
        alpha_min: float | None = None,
        debug: bool = False,
    ) -> None:
        shares = as_shares(priors)
        super().__init__(
            (len(shares),), ("sigmoid", "identity"), margin, link, normalize, alpha_min, debug
        )
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
        """The mean of the labels' objectives; differentiable in scores, a, b and alpha."""
        self._refuse(group)
        self._project_dual()
        h, labels, known = self._prepare(scores, target, weight)
        p = self.priors.to(h.dtype)
        terms = saddle_terms(p, p * (1.0 - p), self.margin, self.normalize)
        each = saddle_objective(h, labels, self.a, self.b, self.alpha, terms, self.margin, known)
        return each.where(known.sum(0) > 0, 0.0).mean()

    def _prepare(
        self, scores: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Linked scores, labels with 0 where missing, and weights with 0 where missing."""
        check_tensors(scores, target)
        check_table(scores, len(self.priors))
        labels, known = known_labels(scores, target, weight, self._may_look(scores))
        return self._linked(scores), labels, known

    def _class_means(
        self, scores: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        h, labels, known = self._prepare(scores.detach(), target, weight)
        return means_of_classes(h, labels, known, "examples of each label")

    def extra_repr(self) -> str:
        """Show the options."""
        return f"labels={len(self.priors)}, {super().extra_repr()}"
