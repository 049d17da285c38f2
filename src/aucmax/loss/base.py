"""What the losses share: sums of them, exact state, and the saddle variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from aucmax import checks
from aucmax.loss._inputs import check_tensors, computable
from aucmax.loss.objective import LINKS


class Scale(NamedTuple):
    """How much a part of a batch counts in the whole: means over rows, and what compares rows."""

    means: Any
    comparisons: Any


class Loss(nn.Module):
    """A loss of scores, labels and perhaps weights, groups and row numbers; losses add by ``+``.

    Attributes:
        needs_index: whether it wants each row's number in the training data.
        compares_rows: whether rows are compared with each other, so that it is no mean over rows.
        is_likelihood: whether the scale and the shift of the scores matter to it, so that in a sum
            with others it gets those of its own.
        debug: whether to check values on accelerators too.
    """

    needs_index = False
    compares_rows = False
    is_likelihood = False
    debug = False

    def _may_look(self, scores: Tensor) -> bool:
        """Whether this call may look at values."""
        return checks.host_readable(scores) or (self.debug and checks.synchronizable())

    def __add__(self, other: Loss) -> LossSum:
        if not isinstance(other, Loss):
            return NotImplemented
        return _sum_of([*_terms(self), *_terms(other)])

    def __mul__(self, weight: float) -> LossSum:
        return _sum_of([(part, weight * own) for part, own in _terms(self)])

    __rmul__ = __mul__


class ExactState(nn.Module):
    """A module whose own buffers and parameters follow ``.to(device)``, but not into few digits.

    Buffers stay in double precision: counts do not fit in ``half()``, and a prior that went through
    single precision is another one. Parameters stay in single precision or better: in half they
    would stand still, since a step of 1e-3 is lost beside a value of 0.5.

    Attributes:
        follows_batches: whether a training batch changes its buffers.
    """

    follows_batches = False

    def _keep(self, name: str, value: Tensor) -> None:
        """Give a buffer the value that it has after a batch."""
        if torch.compiler.is_compiling():
            # A compiled backward may read the buffer again: it must find the value of before.
            setattr(self, name, value)
        else:
            getattr(self, name).copy_(value)  # in place, as a captured graph needs it

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        buffers = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        values = {name: p.detach().clone() for name, p in self.named_parameters(recurse=False)}
        self._buffers.clear()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in values.items():
            p = getattr(self, name)
            if p.dtype in checks.LOW_PRECISION:
                p.data = value.to(p.device)
        for name, buffer in buffers.items():
            device = fn(torch.empty(0, device=buffer.device)).device
            if device.type == "mps":  # which has no float64
                self._buffers[name] = buffer.to(device, torch.float32)
            else:
                moved = fn(buffer)
                self._buffers[name] = moved if moved.dtype == buffer.dtype else buffer.to(device)
        return self


class LossSum(Loss, ExactState):
    r"""A weighted sum of losses of the same scores, which ``+`` and ``*`` make.

    A likelihood in it, such as cross-entropy, gets the scores as :math:`|c| \cdot s + d` with the
    scale c and the shift d learned, so that no part asks its scale of the scores of the others.

    Args:
        parts: the losses, by name; at most one of them with saddle variables.
        weights: one for each.

    Example:
        >>> from aucmax.loss import AUCLoss, CrossEntropy
        >>> loss = AUCLoss(0.1, link="identity") + 0.5 * CrossEntropy()
        >>> [name for name, _ in loss.named_parameters()]
        ['scale', 'shift', 'part0.a', 'part0.b', 'part0.alpha']
    """

    def __init__(self, parts: Mapping[str, nn.Module], weights: tuple[float, ...]) -> None:
        super().__init__()
        self.weights = tuple(checks.positive("weight", weight) for weight in weights)
        for name, part in parts.items():
            self.add_module(name, part)
        self.names = tuple(parts)
        saddles = [part for part in parts.values() if isinstance(part, SaddleLoss)]
        if len(saddles) > 1:
            kinds = ", ".join(type(part).__name__ for part in saddles)
            raise ValueError(
                f"a sum must have at most one loss with saddle variables, found {kinds}"
            )
        likely = [part for part in parts.values() if getattr(part, "is_likelihood", False)]
        mapped = 0 < len(likely) < len(parts)
        self.scale = nn.Parameter(torch.ones(1)) if mapped else None
        size = _shifts(saddles, likely) if mapped else 0
        self.shift = nn.Parameter(torch.zeros(size)) if size else None

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The losses, by name."""
        return {name: getattr(self, name) for name in self.names}

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        index: Tensor | None = None,
        scale: Scale | None = None,
    ) -> Tensor:
        """The objective of one batch."""
        check_tensors(scores, target)
        # Of a negative scale the likelihood would be least where the ranking is upside down.
        mapped = scores if self.scale is None else scores * self.scale.abs()
        mapped = mapped if self.shift is None else mapped + self.shift
        total: Any = 0.0
        for part, share in zip(self.parts.values(), self.weights, strict=True):
            own = mapped if getattr(part, "is_likelihood", False) else scores
            value = loss_of(part, own, target, weight, group, index, scale)
            total = total + (value if share == 1 else share * value)
        return total  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Show the weights."""
        return f"weights={self.weights}"


def loss_of(
    loss: nn.Module,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    group: Tensor | None = None,
    index: Tensor | None = None,
    scale: Scale | None = None,
) -> Tensor:
    """The value of any loss, which is called with what there is and what it takes.

    An ensemble gives several scores per row, one after the other: in a mean over rows each learns
    the row's label; a loss that compares rows compares the scores of each member. Weights (N, k)
    are those of each of a row's k scores. Of scores that the rows do not divide, the loss says what
    is wrong.
    """
    more = {"group": group} if group is not None else {}
    if index is not None and getattr(loss, "needs_index", False):
        more["index"] = index
    if isinstance(loss, LossSum):
        return loss(scores, target, weight, group=group, index=index, scale=scale)  # type: ignore[no-any-return]
    compares = getattr(loss, "compares_rows", False)
    repeats = len(scores) // len(target) if len(target) else 0
    if not compares and repeats > 1 and len(scores) == repeats * len(target):
        if hasattr(loss, "repeats"):
            setattr(loss, "repeats", repeats)  # noqa: B010
        if weight is not None:
            each = target.ndim == 1 and weight.shape == (len(target), repeats)
            weight = weight.flatten() if each else weight.repeat_interleave(repeats, dim=0)
        target = target.repeat_interleave(repeats, dim=0)
        more = {name: x.repeat_interleave(repeats, dim=0) for name, x in more.items()}
    if weight is not None and scale is not None and not compares:
        # Of weights that are all zero there is no mean: it is one of ones, of which the scale
        # lets nothing count.
        weight = weight + (weight.sum() == 0)
    given = (scores, target) if weight is None else (scores, target, weight)
    value: Tensor = loss(*given, **more)
    if scale is None:
        return value
    scaled: Tensor = value * (scale.comparisons if compares else scale.means)
    return scaled


def _terms(loss: Loss) -> list[tuple[nn.Module, float]]:
    if isinstance(loss, LossSum):
        return list(zip(loss.parts.values(), loss.weights, strict=True))
    return [(loss, 1.0)]


def _sum_of(terms: list[tuple[nn.Module, float]]) -> LossSum:
    parts = {f"part{k}": part for k, (part, _) in enumerate(terms)}
    return LossSum(parts, tuple(weight for _, weight in terms))


def _shifts(saddles: list[SaddleLoss], likely: list[nn.Module]) -> int:
    """How many shifts the scores get before a likelihood: one per class where that is known.

    Under a softmax scores of classes are compared already: a shift would undo that.
    """
    if saddles and saddles[0].link == "softmax":
        return 0
    priors = getattr(saddles[0], "priors", None) if saddles else None
    if priors is not None:
        return len(priors)
    return 0 if getattr(likely[0], "task", "binary") == "multiclass" else 1


class SaddleLoss(Loss, ExactState):
    """A loss that is minimized over a and b and maximized over alpha.

    Args:
        shape: of each of the three.
        links: those it can have.
        margin: by how much positives should outrank negatives.
        link: what makes h of the scores.
        normalize: whether the objective is divided by the classes' shares.
        alpha_min: a lower limit for alpha.
        debug: whether to check values on accelerators too.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        links: tuple[str, ...],
        margin: float,
        link: str,
        normalize: bool,
        alpha_min: float | None,
        debug: bool,
    ) -> None:
        super().__init__()
        self.link = checks.choice("link", link, links)
        self.margin = checks.positive("margin", margin)
        self.normalize = bool(normalize)
        self.alpha_min = alpha_min
        if alpha_min is not None:
            allowed = "None or a finite number"
            self.alpha_min = checks.number("alpha_min", alpha_min, allowed, math.isfinite)
        self.debug = bool(debug)
        self.a = nn.Parameter(torch.zeros(shape))
        self.b = nn.Parameter(torch.zeros(shape))
        self.alpha = nn.Parameter(torch.zeros(shape))

    def _linked(self, scores: Tensor) -> Tensor:
        """h, in single precision or better."""
        return LINKS[self.link](scores.to(computable(scores.dtype)))

    def _refuse(self, group: Tensor | None) -> None:
        """Raise for groups, of which each would need saddle variables of its own."""
        if group is not None:
            raise ValueError(
                f"group must be None for {type(self).__name__}: GroupedAUCLoss, or a loss on pairs "
                f"such as PairwiseAUCLoss, ranks within groups"
            )

    def _project_dual(self) -> None:
        """Keep alpha at or above ``alpha_min``, in place: a clamp in the graph would trap it there.

        ``.data`` leaves the version counter alone: graphs built since the last optimizer step hold
        the same projected value.
        """
        if self.alpha_min is not None:
            self.alpha.data.clamp_(min=self.alpha_min)

    def _class_means(
        self, scores: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
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
        :class:`aucmax.GroupedAUCLoss` alone.

        Raises:
            ValueError: if the examples lack a class.
        """
        positive, negative = self._class_means(scores, target, weight)
        self.alpha.copy_(negative - positive)
        self._project_dual()

    @torch.no_grad()
    def reset_primal(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        group: Tensor | None = None,
    ) -> None:
        r"""Set a and b to their optimum, the means of :math:`h` over positives and negatives."""
        positive, negative = self._class_means(scores, target, weight)
        self.a.copy_(positive)
        self.b.copy_(negative)

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
        self.reset_primal(scores, target, weight, group)
        self.reset_dual(scores, target, weight, group)
        if self.alpha_min is not None and not trained:
            middle = (self.a + self.b) / 2
            self.a.copy_(middle)
            self.b.copy_(middle)
            self.alpha.fill_(max(self.alpha_min, -self.margin))

    def extra_repr(self) -> str:
        """Show the options."""
        text = f"margin={self.margin:g}, link={self.link!r}, normalize={self.normalize}"
        return text if self.alpha_min is None else f"{text}, alpha_min={self.alpha_min:g}"
