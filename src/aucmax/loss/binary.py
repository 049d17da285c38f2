"""The AUC loss for two classes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aucmax import checks, distributed, kernels
from aucmax.loss import _cpu
from aucmax.loss._inputs import (
    check_binary_shapes,
    check_binary_values,
    computable,
    flatten,
    means_of_classes,
)
from aucmax.loss.base import SaddleLoss
from aucmax.loss.objective import Terms, saddle_objective, saddle_terms
from aucmax.loss.prior import StreamingPrior

IDLE = 500
"""Batches after which a, b and alpha have moved if an optimizer has them."""


class AUCLoss(SaddleLoss):
    r"""The square surrogate of the AUC as a saddle objective (Proposition 1).

    Minimize it in the model, ``a`` and ``b``, maximize it in ``alpha``: :func:`minmax_groups` says
    so to any optimizer with torch's ``maximize`` option. With ``normalize`` its value is

    .. math::

        m^2 + \frac{1}{p(1-p)} \cdot \frac{\sum_i w_i F(h_i, y_i)}{\sum_i w_i},

    which at the best a, b, alpha, and with p the batch's share of positives, equals the pairwise
    risk: the mean over pairs of :math:`(m - h(x^+) + h(x^-))^2`.

    Args:
        prior: the probability of a positive **in the batches this loss sees** (the sampler's
            share, not the data's, when batches are balanced), in (0, 1). None: estimated from the
            labels as they stream by, each batch weighted with the estimate made before it
            (:class:`StreamingPrior`, Algorithm 4), updated in training mode only.
        margin: m, by how much positives should outrank negatives; the paper's is 1.
        link: "sigmoid", the paper's h in [0, 1], or "identity", the raw scores.
        normalize: whether to divide by p(1-p), which makes one learning rate serve every
            imbalance; False is the paper's F.
        alpha_min: a lower limit for alpha, at which :meth:`begin` sets it. ``-margin`` gives the
            AUC-margin objective, which does not push positives that outrank by more than the margin
            back, and begins without pressure on the scores, so that a sigmoid saturates later.
        debug: check values on accelerators too, at the price of a synchronization per call.

    Shape:
        scores (N,) or (N, 1), raw; target (N,) or the shape of scores, 0 or 1 in any real or bool
        dtype; weight, optional, likewise. Returns a scalar, in float32 or better.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(5, 1)
        >>> loss = aucmax.AUCLoss(prior=0.25)
        >>> optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.1)
        >>> x, y = torch.randn(8, 5), torch.tensor([1, 0, 0, 0, 1, 0, 0, 0])
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
    """

    prior: float | StreamingPrior
    _fused = True  # whether there are kernels for it
    _links: tuple[str, ...] = ("sigmoid", "identity")

    def __init__(
        self,
        prior: float | None = None,
        *,
        margin: float = 1.0,
        link: str = "sigmoid",
        normalize: bool = True,
        alpha_min: float | None = None,
        debug: bool = False,
    ) -> None:
        super().__init__((1,), self._links, margin, link, normalize, alpha_min, debug)
        self.prior = StreamingPrior() if prior is None else checks.share("prior", prior)
        self._watch = _ShareWatch()
        self.repeats = 1  # scores that an ensemble gives for each label
        self._warned_of_alpha = False
        self._batches = 0

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
        self._refuse(group)
        check_binary_shapes(scores, target, weight)
        self._project_dual()
        single = self._fused and not checks.tracing() and scores.dtype != torch.float64
        if single and kernels.usable_on(scores):
            return self._by_kernels(scores, target, weight)
        dtype = computable(scores.dtype)
        labels = flatten(target, dtype)
        weight = None if weight is None else flatten(weight, dtype)
        if checks.host_readable(scores):
            loss = self._on_cpu(scores, labels, weight)
        else:
            loss = self._by_tensor_operations(scores, labels, weight)
        if self.training and isinstance(self.prior, StreamingPrior):
            self.prior.count(
                labels.sum() if weight is None else (weight * labels).sum(),
                torch.tensor(float(len(labels))) if weight is None else weight.sum(),
                torch.tensor(float(len(labels))) if weight is None else (weight * weight).sum(),
            )
        return loss

    def _on_cpu(self, scores: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
        """Values are checked and scalars read back: cheap here, and several times faster."""
        flat = flatten(scores, labels.dtype)
        positives, total = self._look_at(flat, labels, weight)
        terms = self._terms(float)
        batch = _cpu.Batch(flat, labels, weight, positives, total, terms, self.margin, self.link)
        value: Tensor = _cpu.SaddleOnCPU.apply(scores, self.a, self.b, self.alpha, batch)  # type: ignore[no-untyped-call]
        return value

    def _look_at(self, flat: Tensor, labels: Tensor, weight: Tensor | None) -> tuple[float, float]:
        """Check a batch's values and warn of likely mistakes; the positives' weight and the sum."""
        positives: float = check_binary_values(flat, labels, weight)
        total: float = len(labels)
        if weight is not None:
            positives, total = torch.dot(weight, labels).item(), weight.sum().item()
        elif self.training and isinstance(self.prior, float):
            self._watch.see(positives / self.repeats, total / self.repeats, self.prior)
        if self.training and self.link == "sigmoid" and not self._warned_of_alpha:
            self._warn_of_alpha()
        if self.training:
            self._batches += 1
            if self._batches == IDLE:
                self._warn_of_idleness()
        return positives, total

    def _warn_of_alpha(self) -> None:
        """The likeliest mistake with the optimizer: alpha minimized over, and off to infinity."""
        if abs(alpha := self.alpha.item()) > 3.0:
            self._warned_of_alpha = True
            warnings.warn(
                f"alpha = {alpha:.3g}, but its best value lies between -1 and 1: it must be "
                f"maximized over, as aucmax.minmax_groups(model, loss) tells the optimizer, at a "
                f"step size well below 1",
                UserWarning,
                stacklevel=7,
            )

    def _warn_of_idleness(self) -> None:
        """A mistake that no value shows: the optimizer was given the model's parameters alone."""
        own = (self.a, self.b, self.alpha)
        if all(x.grad is not None and not x.any() for x in own):
            warnings.warn(
                f"a, b and alpha of the loss are still zero after {IDLE} batches: the optimizer "
                f"must have them too, as aucmax.minmax_groups(model, loss) gives them to it",
                UserWarning,
                stacklevel=7,
            )

    def _by_kernels(self, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        from aucmax.kernels.saddle import Batch
        from aucmax.loss._gpu import SaddleOnGPU

        # Columns of a table have gaps, which the kernel does not know of.
        flat, labels = (x.detach().reshape(-1).contiguous() for x in (scores, target))
        weight = None if weight is None else weight.detach().reshape(-1).contiguous()
        if self.debug and checks.synchronizable():
            exact = None if weight is None else weight.float()
            check_binary_values(flat.float(), labels.float(), exact)
        if isinstance(self.prior, float):
            prior: Any = (self.prior, self.prior * (1.0 - self.prior))
        else:
            prior = (self.prior.positives, self.prior.negatives, self.prior.squares)
        running = self.training and isinstance(self.prior, StreamingPrior)
        counts = running and distributed.world_size() == 1
        batch = Batch(flat, labels, weight, prior, self.margin, self.normalize, self.link)
        loss: Tensor = SaddleOnGPU.apply(scores, self.a, self.b, self.alpha, batch, counts)  # type: ignore[no-untyped-call]
        if running and not counts:
            self.prior._count(labels.double(), weight)  # type: ignore[union-attr]
        return loss

    def _by_tensor_operations(
        self, scores: Tensor, labels: Tensor, weight: Tensor | None
    ) -> Tensor:
        if self.debug and checks.synchronizable():
            check_binary_values(flatten(scores, labels.dtype), labels, weight)
        h = self._linked(scores).reshape(-1)
        a, b, alpha = (x.reshape(()).to(h.dtype) for x in (self.a, self.b, self.alpha))
        terms = self._terms(lambda x: x.to(labels.dtype))
        return saddle_objective(h, labels, a, b, alpha, terms, self.margin, weight)

    def _terms(self, read: Callable[[Tensor], Any]) -> Terms:
        """F's coefficients from the prior as it stands before this batch."""
        if isinstance(self.prior, float):
            p, p_one_minus_p = self.prior, self.prior * (1.0 - self.prior)
        else:
            p, p_one_minus_p = read(self.prior.p), read(self.prior.p_one_minus_p)
        return saddle_terms(p, p_one_minus_p, self.margin, self.normalize)

    def _class_means(
        self, scores: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        check_binary_shapes(scores, target, weight)
        h = self._linked(scores.detach()).reshape(-1)
        labels = flatten(target, h.dtype)
        w = torch.ones_like(h) if weight is None else flatten(weight, h.dtype)
        check_binary_values(flatten(scores, h.dtype), labels, w)
        return means_of_classes(h, labels, w, "examples")

    def extra_repr(self) -> str:
        """Show the options."""
        known = isinstance(self.prior, float)
        return f"prior={self.prior:g}, {super().extra_repr()}" if known else super().extra_repr()


class _ShareWatch:
    """Warns once if the share of positives in the batches departs from the prior.

    The likeliest silent mistake is to pass the data's prior and train on balanced batches. A
    departure is five standard errors, measured by the likelihood ratio so that it holds for rare
    classes too, and a twentieth of the rarer class: a rounded prior is none.
    """

    def __init__(self) -> None:
        self.positives, self.total, self.warned = 0.0, 0.0, False

    def see(self, positives: float, total: float, prior: float) -> None:
        self.positives += positives
        self.total += total
        share = self.positives / self.total
        if self.warned or abs(share - prior) <= 0.05 * min(prior, 1.0 - prior):
            return
        # Kullback-Leibler divergence of two coins: half the squared standard errors per label.
        sides = ((share, prior), (1.0 - share, 1.0 - prior))
        if self.total * sum(x * math.log(x / y) for x, y in sides if x > 0.0) <= 5.0**2 / 2.0:
            return
        self.warned = True
        warnings.warn(
            f"prior={prior:g}, but {share:.3g} of the {self.total:.0f} labels seen so far are "
            f"positive: prior must be the share of positives in the batches",
            UserWarning,
            stacklevel=7,
        )
