r"""The saddle objective of AUC maximization: its formula, and the loss for two classes.

Labels are 0 and 1, :math:`p` is the probability of a positive **in the batches the loss sees**,
:math:`h` the score after the link, :math:`m` the margin. Proposition 1 of the paper turns the mean
over pairs of :math:`(m - h(x^+) + h(x^-))^2` into :math:`\min_{w,a,b} \max_\alpha E[F]` with

.. math::

    F = (1-p)(h-a)^2 \mathbb{I}_{y=1} + p(h-b)^2 \mathbb{I}_{y=0}
        + 2(m+\alpha)\bigl(p\,h\,\mathbb{I}_{y=0} - (1-p)\,h\,\mathbb{I}_{y=1}\bigr)
        - p(1-p)\alpha^2,

a sum over single examples: the cost is that of the batch, not of its pairs. :func:`saddle` is that
formula; the losses for several classes, labels and groups differ in how they come by its sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aucmax import checks
from aucmax.loss.base import (
    DIVERGED,
    NO_DEBUG,
    Loss,
    binary_rows,
    means_of_classes,
)
from aucmax.loss.prior import StreamingPrior

LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softmax": lambda scores: scores.softmax(-1),
    "identity": lambda scores: scores,
}

BLOCK = 1 << 16
"""Rows that are worked on at a time on the CPU: their arrays fit the cache."""


# ---- The formula ---------------------------------------------------------------------------------


class ClassSums(NamedTuple):
    """Sums over the classes of a batch, in which a row counts its curvature k, see :func:`saddle`.

    Each may be a number, or a tensor with an entry for each label, pair of classes or row.

    Attributes:
        mass_pos: the sum of k over the positives.
        mass_neg: the same over the negatives.
        first_pos: the sum of k (h - a) over the positives.
        first_neg: the sum of k (h - b) over the negatives.
        second: the sum of k (h - a)^2 over the positives and of k (h - b)^2 over the negatives.
    """

    mass_pos: Any
    mass_neg: Any
    first_pos: Any
    first_neg: Any
    second: Any


def saddle(
    sums: ClassSums, a: Any, b: Any, alpha: Any, dual: Any, margin: float
) -> tuple[Any, Any, Any, Any]:
    r"""Return the objective and its gradients in a, b and alpha from sums over the two classes.

    A row's curvature k is the second derivative of the objective in its h: its weight's share of
    the batch times :math:`2(1-p)` for a positive and :math:`2p` for a negative, both divided by
    :math:`p(1-p)` in the normalized objective. With r = m + alpha and
    :math:`R = \sum_{y=0} k h - \sum_{y=1} k h`,

    .. math::

        E[F] = \tfrac12 \sum_{y=1} k (h - a)^2 + \tfrac12 \sum_{y=0} k (h - b)^2 + r R
               - d \alpha^2,

    where d is p (1 - p), or 1 if normalized. Distances to a and b are small where scores are far
    from zero, so nothing cancels.

    Args:
        sums: numbers, or tensors of one shape.
        a: the positives' centre.
        b: the negatives' centre.
        alpha: the dual variable.
        dual: d.
        margin: m, by how much positives should outrank negatives.

    Example:
        >>> from aucmax.loss.saddle import ClassSums, saddle
        >>> sums = ClassSums(2.0, 2.0, 0.0, 0.0, 0.0)  # h is 0.75 and 0.25, and so are a and b
        >>> saddle(sums, 0.75, 0.25, -0.5, 1.0, margin=1.0)  # 1 + F: (1 - 0.75 + 0.25)^2
        (-0.75, -0.0, -0.0, 0.0)
    """
    rise = sums.first_neg - sums.first_pos
    rise = rise + (sums.mass_neg - sums.mass_pos) * b - sums.mass_pos * (a - b)
    value = 0.5 * sums.second + (margin + alpha) * rise - dual * alpha * alpha
    return value, -sums.first_pos, -sums.first_neg, rise - 2.0 * dual * alpha


def row_sums(h: Tensor, labels: Tensor, k: Tensor, a: Tensor, b: Tensor) -> ClassSums:
    """Return what each row adds to the sums over the classes.

    Args:
        h: linked scores.
        labels: 0 or 1, of h's shape and dtype.
        k: curvatures, likewise; see :func:`saddle`.
        a: the positives' centre.
        b: the negatives' centre.

    Example:
        >>> import torch
        >>> from aucmax.loss.saddle import row_sums
        >>> h, labels, k = torch.tensor([[2.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> rows = row_sums(h, labels, k, torch.tensor(1.5), torch.tensor(0.0))
        >>> rows.first_pos.sum().item(), rows.first_neg.sum().item()
        (0.5, 1.0)
    """
    distance = (h - b) - labels * (a - b)
    mass_pos = k * labels
    mass_neg = k - mass_pos
    first_pos, first_neg = mass_pos * distance, mass_neg * distance
    return ClassSums(mass_pos, mass_neg, first_pos, first_neg, k * distance.square())


class Coefficients(NamedTuple):
    """What the objective multiplies its parts with, by the share of positives.

    Attributes:
        positive: twice what multiplies a positive's part of F.
        negative: twice what multiplies a negative's.
        dual: what multiplies the square of alpha.
        constant: what is added to F.
    """

    positive: Any
    negative: Any
    dual: Any
    constant: float


def coefficients(p: Any, p_one_minus_p: Any, margin: float, normalize: bool) -> Coefficients:
    r"""Return those of F, or of :math:`m^2 + F / (p(1-p))` with ``normalize``.

    Args:
        p: the probability of a positive, a number or a tensor.
        p_one_minus_p: p (1 - p), which may be estimated on its own.
        margin: by how much positives should outrank negatives.
        normalize: whether to divide by p (1 - p).

    Example:
        >>> from aucmax.loss.saddle import coefficients
        >>> coefficients(0.25, 0.1875, margin=1.0, normalize=False)
        Coefficients(positive=1.5, negative=0.5, dual=0.1875, constant=0.0)
    """
    scale = p_one_minus_p if normalize else 1.0
    constant = margin * margin if normalize else 0.0
    return Coefficients(2.0 * (1.0 - p) / scale, 2.0 * p / scale, p_one_minus_p / scale, constant)


# ---- What all saddle losses share ----------------------------------------------------------------


class SaddleLoss(Loss):
    """A loss that is minimized over a and b and maximized over alpha.

    Args:
        shape: of each of the three.
        links: those it can have.
        margin: by how much positives should outrank negatives.
        link: what makes h of the scores.
        normalize: whether the objective is divided by the classes' shares.
        alpha_min: a lower limit for alpha.
        guard: whether a, b and alpha are kept in the range of their optimum, where the link has
            one.

    Attributes:
        primal_bounds: the range of a and b, or None.
        dual_bounds: the range of alpha, or None.
    """

    has_saddle = True

    def __init__(
        self,
        shape: tuple[int, ...],
        links: Sequence[str],
        margin: float,
        link: str,
        normalize: bool,
        alpha_min: float | None,
        guard: bool,
    ) -> None:
        super().__init__()
        self.link = checks.choice("link", link, links)
        self.margin = checks.positive("margin", margin)
        self.normalize = bool(normalize)
        self.alpha_min = alpha_min
        if alpha_min is not None:
            allowed = "None or a finite number"
            self.alpha_min = checks.number("alpha_min", alpha_min, allowed, math.isfinite)
        self.guard = bool(guard)
        self.primal_bounds: tuple[float, float] | None = None
        self.dual_bounds: tuple[float, float] | None = None
        if self.guard and link != "identity":  # h is in [0, 1], and so are its means
            self.primal_bounds = 0.0, 1.0
            low = -1.0 if self.alpha_min is None else self.alpha_min
            self.dual_bounds = low, 1.0 if low < 1.0 else math.inf
        elif self.alpha_min is not None:
            self.dual_bounds = self.alpha_min, math.inf
        everything = -math.inf, math.inf
        self._range = *(self.primal_bounds or everything), *(self.dual_bounds or everything)
        if link == "identity":
            self.hint = (
                f"{DIVERGED}, or draw as many positives as negatives: few of a class in a batch "
                f"make large steps (aucmax.BatchSampler(..., positives=0.5), and prior=0.5 here)"
            )
        self.a = nn.Parameter(torch.zeros(shape))
        self.b = nn.Parameter(torch.zeros(shape))
        self.alpha = nn.Parameter(torch.zeros(shape))
        self._watch = _Watch()

    @torch.no_grad()
    def project(self) -> None:
        """Clamp a, b and alpha to their range, in place.

        Our optimizers do so at every step. For others the loss does, at its next call in training
        mode with gradients on; call this before you read a, b and alpha. A clamp in the graph would
        trap alpha at its bound. ``.data`` leaves the version counter alone: graphs built since the
        last step hold the same projected value.
        """
        if self.primal_bounds is not None:
            self.a.data.clamp_(*self.primal_bounds)
            self.b.data.clamp_(*self.primal_bounds)
        if self.dual_bounds is not None:
            self.alpha.data.clamp_(*self.dual_bounds)

    def _variables(self, dtype: torch.dtype) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """Return a, b and alpha for one call, and before them alpha as the optimizer left it.

        In training they are projected; otherwise nothing is to be watched, and that is None.
        """
        left = None
        eager = not torch.compiler.is_compiling()
        if self.training and torch.is_grad_enabled() and not (eager and checks.transforming()):
            left = self.alpha.detach().clone()
            self.project()
        return left, self.a.to(dtype), self.b.to(dtype), self.alpha.to(dtype)

    def _report_own(self) -> None:
        super()._report_own()
        self._watch.judge(self)

    def _refuse_groups(self) -> None:
        """Raise for groups, of which each would need saddle variables of its own."""
        raise ValueError(
            f"group must be None for {type(self).__name__}: GroupedAUCLoss, or a loss on pairs "
            f"such as PairwiseAUCLoss, ranks within groups"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self._watch.restart()
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._watch.restart()
        super()._load_from_state_dict(*args, **kwargs)

    def _optimum(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best a, b and alpha for these scores, or raise if they lack a class."""
        raise NotImplementedError

    @torch.no_grad()
    def reset_dual(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        group: Tensor | None = None,
    ) -> None:
        r"""Set alpha to its optimum for these scores, the closed form of Algorithm 2, line 12.

        .. math:: \alpha = E[h \mid y = 0] - E[h \mid y = 1]

        Call it at a stage's end with fresh examples scored in evaluation mode. Groups matter to
        :class:`aucmax.GroupedAUCLoss` alone. Under a process group all ranks must call it.

        Raises:
            ValueError: if the examples lack a class.
        """
        self.check()
        self.alpha.copy_(self._optimum(scores, target, weight, group)[2])
        self.project()
        self._watch.restart()

    @torch.no_grad()
    def reset_primal(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        group: Tensor | None = None,
    ) -> None:
        r"""Set a and b to their optimum, the means of :math:`h` over positives and negatives."""
        self.check()
        a, b, _ = self._optimum(scores, target, weight, group)
        self.a.copy_(a)
        self.b.copy_(b)

    @torch.no_grad()
    def begin(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        group: Tensor | None = None,
        *,
        trained: bool = False,
    ) -> None:
        """Set a, b and alpha to where training begins, as :func:`aucmax.fit` does.

        That is to their best for these scores. But with ``alpha_min``, unless the model is
        ``trained`` already, alpha begins at its limit, or at ``-margin`` if that is higher, where
        it does not press on the scores; and a and b begin in the middle between the means of both
        classes. At the means themselves a model that happens to rank upside down would learn to.

        Raises:
            ValueError: if the examples lack a class.
        """
        self.check()
        a, b, alpha = self._optimum(scores, target, weight, group)
        if self.alpha_min is not None and not trained:
            a = b = (a + b) / 2
            alpha = torch.full_like(alpha, max(self.alpha_min, -self.margin))
        for parameter, value in ((self.a, a), (self.b, b), (self.alpha, alpha)):
            parameter.copy_(value)
        self.project()
        self._watch.restart()

    def extra_repr(self) -> str:
        """Show the options."""
        text = f"margin={self.margin:g}, link={self.link!r}, normalize={self.normalize}"
        text = text if self.alpha_min is None else f"{text}, alpha_min={self.alpha_min:g}"
        return text if self.guard else f"{text}, guard=False"


# ---- Two classes ---------------------------------------------------------------------------------


class AUCLoss(SaddleLoss):
    r"""The square surrogate of the AUC as a saddle objective (Proposition 1).

    Minimize it in the model, ``a`` and ``b``, maximize it in ``alpha``: :func:`minmax_groups` says
    so to any optimizer with torch's ``maximize`` option. With ``normalize`` its value is

    .. math::

        m^2 + \frac{1}{p(1-p)} \cdot \frac{\sum_i w_i F(h_i, y_i)}{\sum_i w_i},

    which at the best a, b, alpha, and with p the batch's share of positives, equals the pairwise
    risk: the mean over pairs of :math:`(m - h(x^+) + h(x^-))^2`.

    Where positives are rare, draw balanced batches (:class:`BatchSampler` with ``positives=0.5``,
    and ``prior=0.5`` here). In batches of B as they come, a single positive has the curvature
    2 / (p B), so that steps larger than about p B are too long for a, b and alpha. The guard keeps
    these in range, but such steps learn little.

    Args:
        prior: the probability of a positive **in the batches this loss sees** (the sampler's
            share, not the data's, when batches are balanced), in (0, 1). None: estimated from the
            labels as they stream by, each batch weighted with the estimate made before it
            (:class:`StreamingPrior`, Algorithm 4), updated in training mode only.
        margin: m, by how much positives should outrank negatives; the paper's is 1.
        link: "sigmoid", the paper's h in [0, 1], or "identity", the raw scores.
        normalize: whether to divide by p(1-p), which makes the best step size depend less on the
            imbalance; False is the paper's F.
        alpha_min: a lower limit for alpha, at which :meth:`begin` sets it. ``-margin`` gives the
            AUC-margin objective, which does not push positives that outrank by more than the margin
            back, and begins without pressure on the scores, so that a sigmoid saturates later.
        guard: with the sigmoid link, keep a and b in [0, 1] and alpha in [-1, 1], or in
            [``alpha_min``, 1], where their optimum lies: see :meth:`project`. Leave the loss out
            of ``fully_shard``, whose sharded parameters it could not project.

    Shape:
        scores (N,) or (N, 1), raw; target (N,) or the shape of scores, 0 or 1 in any real or bool
        dtype; weight, optional, likewise. Returns a scalar, in float32 or better.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(5, 1)
        >>> loss = aucmax.AUCLoss(prior=0.25)
        >>> x, y = torch.randn(8, 5), torch.tensor([1, 0, 0, 0, 1, 0, 0, 0])
        >>> loss.begin(model(x), y)  # a, b and alpha fit the scores that training begins with
        >>> optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.1)
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
    """

    prior: float | StreamingPrior
    _links: tuple[str, ...] = ("sigmoid", "identity")

    @checks.without(debug=NO_DEBUG)
    def __init__(
        self,
        prior: float | None = None,
        *,
        margin: float = 1.0,
        link: str = "sigmoid",
        normalize: bool = True,
        alpha_min: float | None = None,
        guard: bool = True,
    ) -> None:
        super().__init__((1,), self._links, margin, link, normalize, alpha_min, guard)
        self.prior = StreamingPrior() if prior is None else checks.share("prior", prior)
        self._share_watch = _ShareWatch()

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
        if group is not None:
            self._refuse_groups()
        flat, labels, weight = binary_rows(scores, target, weight)
        positives = self.check_values(flat, labels, weight)
        if isinstance(self.prior, float):
            p, p_one_minus_p = self.prior, self.prior * (1.0 - self.prior)
        else:  # as it stands before this batch
            read = torch.Tensor.clone if positives is None else float
            p, p_one_minus_p = self.prior.estimates(read)
        terms = coefficients(p, p_one_minus_p, self.margin, self.normalize)
        objective = Objective(flat, labels, weight, positives, terms, self.margin, self.link)
        if self.training and weight is None and isinstance(self.prior, float):
            self._share_watch.see(objective.positives, objective.total, self.prior)
        loss = self._evaluate(scores, objective)
        if self.training and isinstance(self.prior, StreamingPrior):
            squares = objective.total if weight is None else torch.dot(weight, weight)
            self.prior.count(objective.positives, objective.total, squares)
        return loss

    def _evaluate(self, scores: Tensor, objective: Objective) -> Tensor:
        """Return the objective of a checked batch."""
        own = self.a, self.b, self.alpha
        left: Any = None
        point: tuple[Any, ...]
        if objective.on_host:
            point = own[0].item(), own[1].item(), own[2].item()
            if self.training and torch.is_grad_enabled():
                left = point[2]
                low, high, least, most = self._range
                a, b, alpha = point
                if not (low <= a <= high and low <= b <= high and least <= alpha <= most):
                    self.project()
                    point = own[0].item(), own[1].item(), own[2].item()
        else:
            left, *variables = self._variables(objective.labels.dtype)
            left = None if left is None else left.reshape(())
            point = tuple(x.reshape(()) for x in variables)
        if not objective.on_host and checks.tracing():  # which follows plain operations best
            flat = scores.reshape(-1).to(objective.labels.dtype)
            loss, _, *gradients = objective(flat, *point)
            loss = loss.to(flat.dtype)
        else:
            loss = _Saddle.apply(scores, *own, point, objective)  # type: ignore[no-untyped-call]
            gradients = objective.gradients
        if left is not None:
            self._watch.see(self, left, point[2], point[0] + point[1], gradients[2])
        return loss  # type: ignore[no-any-return]

    def _optimum(
        self, scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        s, labels, w = binary_rows(scores, target, weight)
        self.look(s, labels, w)
        w = torch.ones_like(s) if w is None else w
        positive, negative = means_of_classes(LINKS[self.link](s), labels, w, "examples")
        return positive, negative, negative - positive

    def _report_own(self) -> None:
        super()._report_own()
        if isinstance(self.prior, float):
            self._share_watch.judge(self.prior)

    def extra_repr(self) -> str:
        """Show the options."""
        known = isinstance(self.prior, float)
        return f"prior={self.prior:g}, {super().extra_repr()}" if known else super().extra_repr()


class Objective:
    """The binary objective of one checked batch as a function of scores, a, b and alpha.

    Completing the squares, a positive contributes (h - (a + r))^2 and a negative (h - (b - r))^2
    up to constants, r = margin + alpha. So with d a row's distance to its class's aim and k its
    curvature, g = k d is the gradient in h, and the sums of g over each class and of g d are all
    that :func:`saddle` needs of the rows.

    Args:
        scores: (N,), without a gradient, in the dtype of the computation.
        labels: (N,), 0 or 1 in that dtype.
        weight: (N,), or None.
        positives: how many there are, on an eager CPU, where small tensor operations cost more than
            the arithmetic: sums are numbers then. Else None, and they are tensors, because a read
            would stop everything.
        terms: the coefficients by the prior.
        margin: of the loss.
        link: of the loss.

    Attributes:
        positives: the weight of the positives.
        total: the weight of all rows.
        gradients: those in a, b and alpha at the value that autograd has asked for.
    """

    gradients: list[Any]

    def __init__(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        positives: int | None,
        terms: Coefficients,
        margin: float,
        link: str,
    ) -> None:
        self.scores, self.labels, self.weight = scores, labels, weight
        self.terms, self.margin, self.link = terms, margin, link
        self.on_host = positives is not None
        self.positives: Any
        self.total: Any
        if weight is None:
            self.positives = labels.sum() if positives is None else float(positives)
            self.total = float(len(labels))
        else:
            self.positives, self.total = torch.dot(weight, labels), weight.sum()
            if self.on_host:
                self.positives, self.total = self.positives.item(), self.total.item()
            else:  # which may be zero until somebody reads the flag
                self.total = self.total.clamp_min(torch.finfo(weight.dtype).tiny)
        self.k_pos, self.k_neg = terms.positive / self.total, terms.negative / self.total

    def __call__(self, scores: Tensor, a: Any, b: Any, alpha: Any) -> tuple[Any, ...]:
        """Return the value and the gradients in scores, a, b and alpha."""
        r = self.margin + alpha
        sums: list[Any]
        if not isinstance(alpha, float):
            gradient, *sums = self._sums(scores, self.labels, self.weight, a, b, r)
        elif len(scores) <= BLOCK:
            gradient, *sums = self._sums(scores, self.labels, self.weight, a, b, r)
            sums = [sums[0].item(), sums[1].item(), sums[2].item()]
        else:  # in parts that stay in the cache
            gradient, sums = torch.empty_like(scores), [0.0, 0.0, 0.0]
            for first in range(0, len(scores), BLOCK):
                part = slice(first, first + BLOCK)
                weight = None if self.weight is None else self.weight[part]
                g, *more = self._sums(scores[part], self.labels[part], weight, a, b, r)
                gradient[part] = g
                sums = [total + x.item() for total, x in zip(sums, more, strict=True)]
        first_pos, first_neg, second = sums
        # From distances to the aims to those to a and b: they differ by r.
        mass_pos = self.k_pos * self.positives
        mass_neg = self.k_neg * (self.total - self.positives)
        second = second + r * (2.0 * (first_pos - first_neg) + r * (mass_pos + mass_neg))
        first_pos, first_neg = first_pos + r * mass_pos, first_neg - r * mass_neg
        about = ClassSums(mass_pos, mass_neg, first_pos, first_neg, second)
        value, *gradients = saddle(about, a, b, alpha, self.terms.dual, self.margin)
        return value + self.terms.constant, gradient, *gradients

    def _sums(
        self, scores: Tensor, labels: Tensor, weight: Tensor | None, a: Any, b: Any, r: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the gradient in the scores, the sums of k d of each class, and that of k d^2."""
        h = LINKS[self.link](scores)
        d = (h - b).sub_((labels * (a - b + 2.0 * r)).sub_(r))
        g = (labels * (self.k_pos - self.k_neg)).add_(self.k_neg) * d
        if weight is not None:
            g = g * weight
        # Not a matrix product, which autocast would do in half precision.
        first_pos, second = torch.dot(g, labels), torch.dot(g, d)
        first_neg = g.sum() - first_pos
        if self.link == "sigmoid":
            g = torch.ops.aten.sigmoid_backward(g, h)
        return g, first_pos, first_neg, second


class _Saddle(torch.autograd.Function):
    """The binary objective, whose gradients come with its value."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        a: Tensor,
        b: Tensor,
        alpha: Tensor,
        point: tuple[Any, Any, Any],
        objective: Objective,
    ) -> Tensor:
        """Return the value; ``point`` holds a, b and alpha as the batch needs them."""
        flat = objective.scores
        value, ctx.gradient, *objective.gradients = objective(flat, *point)
        ctx.save_for_backward(scores, a, b, alpha)
        ctx.objective, ctx.shape = objective, scores.shape
        if objective.on_host:
            return flat.new_full((), value)
        return value.to(flat.dtype)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients times ``upstream``."""
        objective, gradient, ctx.gradient = ctx.objective, ctx.gradient, None
        rest = objective.gradients
        if gradient is None or torch.is_grad_enabled():
            # Once more after retain_graph=True; followed by autograd with create_graph=True.
            scores, *point = ctx.saved_tensors
            dtype = objective.labels.dtype
            flat = scores.reshape(-1).to(dtype)
            _, gradient, *rest = objective(flat, *(x.reshape(()).to(dtype) for x in point))
        elif objective.on_host:
            factor = upstream.item()
            if factor != 1.0:
                gradient.mul_(factor)
            small = (upstream.new_full((1,), factor * x) for x in rest)
            return gradient.view(ctx.shape), *small, None, None
        return (
            (gradient * upstream).view(ctx.shape),
            *((x * upstream).view(1) for x in rest),
            None,
            None,
        )


# ---- What watches over training ------------------------------------------------------------------


class _Watch:
    """Finds out whether alpha is minimized, and whether nobody moves a, b and alpha.

    The gradient of alpha is summed while alpha stands still; with each move, as the optimizer left
    it, the product of move and summed gradient is added up. An optimizer that maximizes makes
    products above zero, apart from what momentum and noise do. One that minimizes within bounds
    soon holds alpha at one, although its gradient leads back: that counts as the move before it,
    once a or b show that there was a step.

    ``state`` is numbers of Python on an eager CPU for one alpha, else tensors, changed in place as
    a captured graph needs: alpha; a + b; the summed gradient; the size of the last product; the sum
    of the products; that of their sizes; their number; and the batches since anything moved.
    """

    MOVES, SHARE, IDLE = 16, 0.4, 500

    def __init__(self) -> None:
        self.state: list[Any] = []
        self.warned = False

    def restart(self) -> None:
        """Forget what was seen: a, b and alpha are set anew."""
        self.state = []

    def see(self, loss: SaddleLoss, left: Any, alpha: Any, primal: Any, gradient: Any) -> None:
        """Note the next batch.

        Args:
            loss: what is watched.
            left: alpha as the optimizer left it.
            alpha: as the guard left it.
            primal: a + b.
            gradient: that of the batch in alpha.
        """
        of_tensors = isinstance(left, Tensor)
        if of_tensors:
            alpha, primal, gradient = alpha.detach(), primal.detach(), gradient.detach()
        if not self.state:
            size = gradient * gradient  # that of a unit step, until there is one
            self.state = [alpha, primal, gradient, size, 0.0, 0.0, 0.0, 1.0]
            if of_tensors:
                with torch.inference_mode(False):
                    zeros = torch.zeros((4,), dtype=alpha.dtype, device=alpha.device).unbind()
                    self.state = [x.clone() for x in (alpha, primal, gradient, size, *zeros)]
            return
        last, before, summed, size, total, sizes, moves, idle = self.state
        stands, stays = left == last, primal == before
        product = (left - last) * summed
        if loss.dual_bounds is not None:
            low, high = loss.dual_bounds
            inward = ((last <= low) & (summed > 0)) | ((last >= high) & (summed < 0))
            product = product - (inward & stands & (primal != before)) * size
        summed = summed * stands + gradient
        size = abs(product) + size * (product == 0)
        still = stands & stays
        if of_tensors:
            product, still = product.sum(), still.all()
        total, sizes, moves = total + product, sizes + abs(product), moves + (product != 0)
        new = [alpha, primal, summed, size, total, sizes, moves, idle * still + 1.0]
        if of_tensors:
            torch._foreach_copy_(self.state, new)
            if left.is_cpu and not torch.compiler.is_compiling():
                self.judge(loss)
            return
        self.state = new
        if (moves >= self.MOVES and total < -self.SHARE * sizes) or idle >= self.IDLE:
            self.judge(loss)

    def judge(self, loss: SaddleLoss) -> None:
        """Warn, once, of what was found."""
        if self.warned or not self.state or not _is_known(self.state[-1]):
            return
        total, sizes, moves, idle = (float(x) for x in self.state[-4:])
        if moves >= self.MOVES and total < -self.SHARE * sizes:
            self.warned = True
            checks.warn(
                "alpha is minimized, but it must be maximized: it moves against its gradient, and "
                "the model will rank upside down. Give the optimizer the groups of "
                "aucmax.minmax_groups(model, loss), or alpha a group with maximize=True"
            )
        elif idle >= self.IDLE and loss.alpha.grad is not None:
            self.warned = True
            checks.warn(
                f"a, b and alpha of the loss have not moved in {self.IDLE} batches: the "
                f"optimizer must have them too, as aucmax.minmax_groups(model, loss) gives them to "
                f"it"
            )


class _ShareWatch:
    """Warns once if the share of positives in the batches departs from the prior.

    The likeliest silent mistake is to pass the data's prior and train on balanced batches. A
    departure is five standard errors, measured by the likelihood ratio so that it holds for rare
    classes too, and a twentieth of the rarer class: a rounded prior is none.
    """

    def __init__(self) -> None:
        self.positives: Any = 0.0
        self.total: Any = 0.0
        self.warned = False

    def see(self, positives: Any, total: float, prior: float) -> None:
        """Count the labels of a batch."""
        if isinstance(positives, Tensor):
            if not isinstance(self.total, Tensor) or self.total.device != positives.device:
                exact = torch.float32 if positives.device.type == "mps" else torch.float64
                with torch.inference_mode(False):
                    self.positives = torch.zeros((), dtype=exact, device=positives.device)
                    self.total = torch.zeros_like(self.positives)
            self.positives.add_(positives)  # in place, as a captured graph needs it
            self.total.add_(total)
            return
        self.positives += positives
        self.total += total
        if abs(self.positives - prior * self.total) > 0.05 * min(prior, 1.0 - prior) * self.total:
            self.judge(prior)

    def judge(self, prior: float) -> None:
        """Warn if what was counted departs from the prior."""
        if self.warned or not _is_known(self.total):
            return
        positives, total = float(self.positives), float(self.total)
        share = positives / total if total else prior
        if abs(share - prior) <= 0.05 * min(prior, 1.0 - prior):
            return
        # Kullback-Leibler divergence of two coins: half the squared standard errors per label.
        sides = ((share, prior), (1.0 - share, 1.0 - prior))
        if total * sum(x * math.log(x / y) for x, y in sides if x > 0.0) <= 5.0**2 / 2.0:
            return
        self.warned = True
        checks.warn(
            f"prior={prior:g}, but {share:.3g} of the {total:.0f} labels seen so far are "
            f"positive: prior must be the share of positives in the batches"
        )


def _is_known(x: Any) -> bool:
    """Whether a number or tensor can be read now."""
    return not isinstance(x, Tensor) or checks.readable(x)
