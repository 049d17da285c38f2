"""The partial AUC as a saddle objective: only the hardest negatives count, and positives."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from aucmax import checks, distributed
from aucmax.loss.base import (
    NO_DEBUG,
    ExactState,
    check_binary_shapes,
    computable,
    flatten,
    means_of_classes,
)
from aucmax.loss.pairwise import as_rates
from aucmax.loss.saddle import LINKS, AUCLoss, ClassSums, Objective, row_sums, saddle


class PartialAUCLoss(AUCLoss):
    r"""The square surrogate of the partial AUC, the area where FPR and TPR are in a range.

    Let T be the top ``max_fpr`` share of the negatives by score and S the lowest ``1 - min_tpr``
    share of the positives, rows on a boundary in part. Then, with h the score after the link,

    .. math::

        m^2 + E_S[(h - a)^2 - 2 (m + \alpha) h] + E_T[(h - b)^2 + 2 (m + \alpha) h] - \alpha^2,

    minimized over a and b and maximized over :math:`\alpha`, is the pairwise risk over S x T: the
    mean of :math:`(m - h(x^+) + h(x^-))^2`. There are no pairs and nothing is kept per row: beside
    a, b and alpha there is one threshold for T and, two-way, one for S. They are running quantiles
    of the scores (:class:`RunningThreshold`), which follow the batches in training mode. No
    gradient goes through them: rows on a boundary have one score and so one loss, and may be
    exchanged.

    The link "centred" takes the sigmoid of a score minus the mean score of T, gradients included.
    A plain sigmoid of the scores themselves pushes positives up harder than T down, whose slopes
    are smaller there, until all are near one and nothing moves: large steps end so. Centred, the
    top of the negatives stays where the slope is, and a shift of all scores changes nothing.

    Means over S and T are those of the batch's own rows, however many the threshold lets in; a
    batch without any has no pair and counts nothing. A class of which all counts is estimated as
    by :class:`AUCLoss`, with the prior: with ``max_fpr=1, min_tpr=0, link="sigmoid"`` the two are
    one. The gradient is as noisy as if S and T were the whole batch: with a small ``max_fpr`` take
    larger batches and smaller steps, a third perhaps, or add cross-entropy.

    Begin from a model that ranks already, as ``pretrain=`` of :func:`aucmax.fit` makes one: while
    T scores above most positives, equal scores have the lower risk, and deep networks end there.

    ``reset_primal`` and ``reset_dual`` set the thresholds too, exactly, to those of the given rows.
    The cost is O(N), without sorting.

    Args:
        max_fpr: the largest false positive rate that counts, in (0, 1].
        min_tpr: the smallest true positive rate that counts, in [0, 1); 0 is the one-way partial
            AUC.
        prior: the share of positives **in the batches**, or None, as for :class:`AUCLoss`.
        margin: m, by how much the positives in S should outrank the negatives in T.
        link: "centred", "sigmoid" or "identity".
        alpha_min: as for :class:`AUCLoss`.
        guard: as for :class:`AUCLoss`, with the links "centred" and "sigmoid".

    Shape:
        As :class:`AUCLoss`.

    Example:
        >>> import torch, aucmax
        >>> loss = aucmax.PartialAUCLoss(max_fpr=0.5, link="identity")
        >>> scores, y = torch.tensor([0.5, 1.0, 0.0, -1.0, -2.0]), torch.tensor([1, 0, 0, 0, 0])
        >>> loss.reset_primal(scores, y)
        >>> loss.reset_dual(scores, y)
        >>> loss.a.item(), loss.b.item(), loss.alpha.item()  # means over S and T, their distance
        (0.5, 0.5, 0.0)
    """

    _links = ("centred", "sigmoid", "identity")

    @checks.without(debug=NO_DEBUG)
    def __init__(
        self,
        max_fpr: float = 0.1,
        min_tpr: float = 0.0,
        *,
        prior: float | None = None,
        margin: float = 1.0,
        link: str = "centred",
        alpha_min: float | None = None,
        guard: bool = True,
    ) -> None:
        super().__init__(prior, margin=margin, link=link, alpha_min=alpha_min, guard=guard)
        self.max_fpr, self.min_tpr = as_rates(max_fpr, min_tpr)
        self.hard_positives = RunningThreshold(1.0 - self.min_tpr)  # by their negative scores
        self.hard_negatives = RunningThreshold(self.max_fpr)

    def _evaluate(self, scores: Tensor, objective: Objective) -> Tensor:
        labels = objective.labels
        s = scores.to(labels.dtype).reshape(-1)
        w = torch.ones_like(labels) if objective.weight is None else objective.weight
        left, *own = self._variables(s.dtype)
        a, b, alpha = (x.reshape(()) for x in own)
        positives, negatives, dual, constant = objective.terms
        pairs = torch.ones_like(w[0])
        negative, total = w * (1.0 - labels), w.sum()
        if self.min_tpr > 0.0:
            hard = self.hard_positives(-s.detach(), w * labels, total)
            positives = 2.0 * hard.coefficients().to(labels.dtype)
            pairs = pairs * (hard.mass > 0.0)
        hard = self.hard_negatives(s.detach(), negative, total)
        if self.max_fpr < 1.0:
            negatives = 2.0 * hard.coefficients().to(labels.dtype)
        if self.max_fpr < 1.0 or self.link == "centred":
            pairs = pairs * (hard.mass > 0.0)
        h = self._linked_around(s, negative, hard, joined=self.training)
        k = w * (labels * positives + (1.0 - labels) * negatives) / objective.total
        sums = ClassSums(*(x.sum() for x in row_sums(h, labels, k, a, b)))
        value, *gradients = saddle(sums, a, b, alpha, dual, self.margin)
        if left is not None:
            self._watch.see(self, left, own[2], own[0] + own[1], (pairs * gradients[2]).reshape(1))
        loss: Tensor = pairs * (value + constant)
        return loss.to(s.dtype)

    def _linked_around(
        self, s: Tensor, negative: Tensor, hard: HardRows, joined: bool = False
    ) -> Tensor:
        """Return flat scores after the link; ``joined``: the centre is that of all ranks."""
        if self.link != "centred":
            return LINKS[self.link](s)
        own = (negative * hard.inside.to(s.dtype) * s).sum()
        total = distributed.sum_with_gradient(own) if joined else own
        return torch.sigmoid(s - total / hard.mass.where(hard.mass > 0.0, 1.0).to(s.dtype))

    def _optimum(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return means over S and T and their distance; the thresholds are set on the way."""
        check_binary_shapes(scores, target, weight)
        s = flatten(scores, computable(scores.dtype))
        labels = flatten(target, s.dtype)
        w = torch.ones_like(s) if weight is None else flatten(weight, s.dtype)
        self.look(s, labels, w)
        means_of_classes(s, labels, w, "examples")  # raises if a class is missing
        in_s = self.hard_positives.reset(-s, w * labels).inside
        hard = self.hard_negatives.reset(s, w * (1.0 - labels))
        h = self._linked_around(s, w * (1.0 - labels), hard)
        inside = torch.where(labels > 0, in_s, hard.inside).to(s.dtype)
        positive, negative = means_of_classes(h, labels, w * inside, "examples")
        return positive, negative, negative - positive

    def extra_repr(self) -> str:
        """Show the options."""
        shares = f"max_fpr={self.max_fpr:g}, min_tpr={self.min_tpr:g}"
        return f"{shares}, {super().extra_repr()}"


class HardRows(NamedTuple):
    """The rows of a batch in a share of their class.

    Attributes:
        inside: (N,), how much of each row is in it, from 0 to 1.
        mass: their weight, over all ranks.
        total: the weight of all rows of all classes, over all ranks.
    """

    inside: Tensor
    mass: Tensor
    total: Tensor

    def coefficients(self) -> Tensor:
        """Return the factors that make a mean over all rows one over these; zero without any."""
        return self.inside * (self.total / self.mass).where(self.mass > 0.0, 0.0)


class RunningThreshold(ExactState):
    r"""A running threshold that tells which rows of a class are in its top share.

    The threshold t moves with each batch by

    .. math:: r \cdot \frac{n}{n + n_0} \cdot d \cdot \frac{u - q}{\sqrt{q (1 - q)}},

    with q the share that is wanted, u that of the batch's n rows above t, and d a running mean of
    the rows' distances to t, which makes the step as wide as the scores are spread and widens it
    when they run off. It stands still where u is q on average, at the quantile. The root makes
    small shares move no more slowly than they must, :math:`n_0` a batch of few rows count less.
    The first rows begin it as if their scores were normal, so that no batch is sorted. Ranks add
    up their sums and so have one threshold.

    Args:
        share: q, in (0, 1]; of 1, every row is in it.

    Example:
        >>> import torch
        >>> from aucmax.loss.partial import RunningThreshold
        >>> highest = RunningThreshold(share=0.1)
        >>> scores = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
        >>> _ = highest(scores, mass=torch.ones(10_000), total=torch.tensor(10_000.0))
        >>> round(highest.threshold.item(), 1)  # a tenth of normal scores is above 1.28
        1.3
    """

    RATE, FEW_ROWS, MEMORY = 0.15, 16.0, 0.1  # r, n_0, and how fast d follows

    threshold: Tensor
    boundary: Tensor
    distance: Tensor

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.follows_batches = share, share < 1.0
        self.normal_quantile = NormalDist().inv_cdf(1.0 - share) if share < 1.0 else -math.inf
        unknown = math.nan if share < 1.0 else -math.inf
        self.register_buffer("threshold", torch.tensor(unknown, dtype=torch.float64))
        # The part of a row right on the threshold; as long as all scores are equal, the share.
        self.register_buffer("boundary", torch.tensor(share, dtype=torch.float64))
        self.register_buffer("distance", torch.tensor(0.0, dtype=torch.float64))

    @torch.no_grad()
    def forward(self, scores: Tensor, mass: Tensor, total: Tensor) -> HardRows:
        """Return the rows above the current threshold, then move it.

        Args:
            scores: (N,), those of rows of other classes among them.
            mass: (N,), the rows' weights, 0 for other classes.
            total: the weight of all rows, other classes' too.
        """
        dtype = self.threshold.dtype
        scores, mass = scores.to(dtype), mass.to(dtype)
        own = (mass * torch.stack([torch.ones_like(scores), scores, scores.square()])).sum(1)
        begun = ~self.threshold.isnan()
        inside, away = self._inside(scores, self.threshold.where(begun, self._first(own)[0]))
        rest = (mass * torch.stack([mass, inside, away.abs()])).sum(1)
        sums = torch.cat([own, rest, total.to(dtype)[None]])
        if self.training:
            sums = distributed.sum_over_ranks(sums)
            self._move(sums, begun)
        return HardRows(inside, sums[4], sums[6])

    def _inside(self, scores: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
        away = scores - threshold
        return (away > 0).to(away.dtype) + self.boundary * (away == 0), away

    def _first(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return the quantile and the deviation of a normal distribution of the same moments."""
        mean, square = sums[1] / sums[0], sums[2] / sums[0]
        deviation = (square - mean.square()).clamp_min(0.0).sqrt()
        return mean + self.normal_quantile * deviation, deviation

    def _move(self, sums: Tensor, begun: Tensor) -> None:
        """Move towards the quantile; ``sums`` are those of all ranks."""
        if self.share == 1.0:
            return
        total, _, _, squares, inside, distances, _ = sums
        # n / (n + n_0) with n = total^2 / squares, over the total; zero for a batch without rows.
        each = total / (total.square() + self.FEW_ROWS * squares).clamp_min(
            torch.finfo(total.dtype).tiny
        )
        step = self.RATE / math.sqrt(self.share * (1.0 - self.share))
        moved = self.threshold + step * self.distance * each * (inside - self.share * total)
        wider = self.distance + self.MEMORY * each * (distances - total * self.distance)
        first, deviation = self._first(sums)
        self._keep("threshold", torch.where(begun, moved, first))
        self._keep("distance", torch.where(begun, wider, deviation.nan_to_num(0.0)))

    @torch.no_grad()
    def reset(self, scores: Tensor, mass: Tensor) -> HardRows:
        """Set the threshold exactly to that of these rows, some of which have weight."""
        exact, mass = scores.to(self.threshold.dtype), mass.to(self.threshold.dtype)
        ordered = exact.argsort(descending=True)
        filled = mass[ordered].cumsum(0)
        wanted = self.share * filled[-1]
        if self.share < 1.0:
            threshold = exact[ordered[(filled < wanted).sum()]]  # of the row that fills the share
            on_it = mass @ (exact == threshold).to(mass.dtype)
            above = mass @ (exact > threshold).to(mass.dtype)
            self.threshold.copy_(threshold)
            self.boundary.copy_(((wanted - above) / on_it).clamp(0.0, 1.0))
            self.distance.copy_(mass @ (exact - threshold).abs() / filled[-1])
        return HardRows(self._inside(exact, self.threshold)[0], wanted, filled[-1])

    def extra_repr(self) -> str:
        """Show the share."""
        return f"share={self.share:g}"
