"""The AUC loss for more than two classes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from aucmax import checks
from aucmax.loss._inputs import as_shares, check_classes, check_table, check_tensors
from aucmax.loss.base import SaddleLoss
from aucmax.loss.objective import multiclass_objective


class MulticlassAUCLoss(SaddleLoss):
    r"""The objective of every ordered pair of classes, averaged (Section 4.3 of the paper).

    Score i should rank class i above every other class j:
    :math:`\frac{1}{c(c-1)} \sum_{i \ne j} F_{ij}`, whose metric is Hand and Till's M of the
    linked scores, ``hand_till(scores.double().softmax(-1), target)``. The saddle variables are c
    by c matrices; the diagonals are not used.

    Args:
        priors: class probabilities in the batches, c numbers in (0, 1) that sum to one.
        margin: as for :class:`AUCLoss`.
        link: "softmax", as in the paper, or "identity".
        normalize: divide each pair's part by :math:`p_i p_j`.
        pairs: average over this many pairs drawn per call instead of all c(c-1); unbiased.
        generator: where the pairs are drawn from; None is torch's default generator. Its state is
            not part of the loss's, and ``torch.compile(fullgraph=True)`` does not take one.
        alpha_min: as for :class:`AUCLoss`.
        debug: check values on accelerators too.

    Shape:
        scores (N, c), raw; target (N,), integers 0 to c - 1; weight (N,).

    Example:
        >>> import torch, aucmax
        >>> loss = aucmax.MulticlassAUCLoss(priors=[0.7, 0.2, 0.1])
        >>> loss(torch.randn(4, 3), torch.tensor([0, 0, 1, 2])).shape
        torch.Size([])
    """

    priors: Tensor

    def __init__(
        self,
        priors: Sequence[float] | Tensor,
        *,
        margin: float = 1.0,
        link: str = "softmax",
        normalize: bool = True,
        pairs: int | None = None,
        generator: torch.Generator | None = None,
        alpha_min: float | None = None,
        debug: bool = False,
    ) -> None:
        shares = as_shares(priors)
        c = len(shares)
        if c < 2 or abs(math.fsum(shares) - 1.0) > 1e-3:
            raise ValueError(
                f"priors must be two or more class probabilities that sum to 1, "
                f"found {c} that sum to {math.fsum(shares):g}"
            )
        if pairs is not None and not (isinstance(pairs, int) and 1 <= pairs <= c * (c - 1)):
            raise ValueError(
                f"pairs must be None or an integer from 1 to c(c-1) = {c * (c - 1)}, "
                f"found {pairs!r}"
            )
        super().__init__((c, c), ("softmax", "identity"), margin, link, normalize, alpha_min, debug)
        self.pairs, self.generator = pairs, generator
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
        """The mean over the class pairs; differentiable in scores, a, b and alpha."""
        self._refuse(group)
        self._project_dual()
        h, classes, weight = self._prepare(scores, target, weight)
        p = self.priors.to(h.dtype)
        each = multiclass_objective(
            h, classes, self.a, self.b, self.alpha, p, self.margin, self.normalize, weight
        )
        c = len(self.priors)
        if self.pairs is None:
            diagonal = torch.eye(c, dtype=torch.bool, device=each.device)
            return each.masked_fill(diagonal, 0.0).sum() / (c * (c - 1))
        i, j = self._draw_pairs(each.device)
        return each[i, j].mean()

    def _draw_pairs(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Distinct ordered pairs (i, j), i != j, uniformly at random."""
        c = len(self.priors)
        where = device if self.generator is None else self.generator.device
        drawn = torch.randperm(c * (c - 1), generator=self.generator, device=where)[: self.pairs]
        i, j = drawn // (c - 1), drawn % (c - 1)
        return i.to(device), (j + (j >= i)).to(device)  # j skips i

    def _prepare(
        self, scores: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        check_tensors(scores, target)
        check_table(scores, len(self.priors))
        check_classes(scores, target, weight, self._may_look(scores))
        h = self._linked(scores)
        return h, target.long(), None if weight is None else weight.detach().to(h.dtype)

    def _class_means(
        self, scores: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        h, classes, weight = self._prepare(scores.detach(), target, weight)
        w = torch.ones_like(h[:, 0]) if weight is None else weight
        mass = torch.zeros_like(h[0]).index_add(0, classes, w)
        if bool((mass == 0).any()):
            absent = (mass == 0).nonzero().flatten().tolist()
            raise checks.MissingClassError(
                f"target must hold every class, found no example of {absent}: draw more"
            )
        means = torch.zeros_like(self.a, dtype=h.dtype).index_add(0, classes, w[:, None] * h)
        means = means / mass[:, None]  # entry (k, i): class k, score i
        return means.diagonal()[:, None].expand_as(means), means.T

    def extra_repr(self) -> str:
        """Show the options."""
        pairs = "" if self.pairs is None else f"pairs={self.pairs}, "
        return f"classes={len(self.priors)}, {pairs}{super().extra_repr()}"
