"""What the losses share: the saddle variables, the options, the closed forms, the checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from aucmax import checks
from aucmax.loss._exact import ExactBuffers
from aucmax.loss.objective import LINKS

DIVERGED = "; if training diverged, lower the learning rate"


class SaddleLoss(ExactBuffers):
    """What the three losses share: the saddle variables, the options and the closed forms."""

    def __init__(
        self,
        shape: tuple[int, ...],
        links: tuple[str, ...],
        *,
        margin: float,
        link: str,
        normalize: bool,
        alpha_min: float | None,
        debug: bool,
    ) -> None:
        super().__init__()
        if link not in links:
            raise ValueError(f"link must be one of {', '.join(map(repr, links))}, found {link!r}")
        self.margin = checks.number(
            "margin", margin, "a finite number > 0", lambda x: 0 < x < math.inf
        )
        self.link = link
        self.normalize = bool(normalize)
        self.alpha_min = alpha_min
        if alpha_min is not None:
            self.alpha_min = checks.number(
                "alpha_min", alpha_min, "None or a finite number", math.isfinite
            )
        self.debug = bool(debug)
        self.a = nn.Parameter(torch.zeros(shape))
        self.b = nn.Parameter(torch.zeros(shape))
        self.alpha = nn.Parameter(torch.zeros(shape))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast; a, b and alpha stay in single precision or better.

        In half precision they would stand still: a step of 1e-3 is lost beside a value of 0.5.
        """
        exact = {name: getattr(self, name).detach().clone() for name in ("a", "b", "alpha")}
        super()._apply(fn, recurse)
        for name, value in exact.items():
            p = getattr(self, name)
            if p.dtype in checks.LOW_PRECISION:
                p.data = value.to(p.device)
        return self

    def _linked(self, scores: Tensor) -> Tensor:
        """h, in single precision or better."""
        return LINKS[self.link](scores.to(computable(scores.dtype)))

    def _checking(self, scores: Tensor) -> bool:
        """Whether this call may look at values."""
        return checks.host_readable(scores) or (self.debug and checks.synchronizable())

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
    def reset_dual(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        r"""Set alpha to its optimum for these scores, the closed form of Algorithm 2, line 12.

        .. math:: \alpha = E[h \mid y = 0] - E[h \mid y = 1]

        Call it at a stage's end with fresh examples scored in evaluation mode.

        Raises:
            ValueError: if the examples lack a class.
        """
        positive, negative = self._class_means(scores, target, weight)
        self.alpha.copy_(negative - positive)
        self._project_dual()

    @torch.no_grad()
    def reset_primal(self, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        r"""Set a and b to their optimum, the means of :math:`h` over positives and negatives."""
        positive, negative = self._class_means(scores, target, weight)
        self.a.copy_(positive)
        self.b.copy_(negative)

    def extra_repr(self) -> str:
        """Show the options."""
        text = f"margin={self.margin:g}, link={self.link!r}, normalize={self.normalize}"
        return text if self.alpha_min is None else f"{text}, alpha_min={self.alpha_min:g}"


def computable(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: single precision or better."""
    return torch.float32 if dtype in checks.LOW_PRECISION else dtype


def flatten(x: Tensor, dtype: torch.dtype) -> Tensor:
    """One dimension, the given dtype, no gradient; no operation that is not needed."""
    x = x.detach() if x.requires_grad else x
    x = x if x.ndim == 1 else x.reshape(-1)
    return x if x.dtype == dtype else x.to(dtype)


def as_shares(priors: Sequence[float] | Tensor) -> list[float]:
    """Shares as plain numbers, each checked."""
    values = priors.tolist() if isinstance(priors, Tensor) else priors
    if not isinstance(values, Sequence) or not values or isinstance(values, str):
        raise ValueError(f"priors must be a sequence of shares in (0, 1), found {priors!r}")
    return [checks.share(f"priors[{i}]", value) for i, value in enumerate(values)]


def check_tensors(scores: object, target: object) -> None:
    """Both are tensors."""
    for name, x in (("scores", scores), ("target", target)):
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a tensor, found {type(x).__name__}")


def check_binary_shapes(scores: Tensor, target: Tensor, weight: Tensor | None) -> None:
    """One score, one label and one weight per row."""
    check_tensors(scores, target)
    rows = scores.shape[:1]
    right_shape = scores.numel() > 0 and rows and scores.shape in (rows, (*rows, 1))
    if not (scores.is_floating_point() and right_shape):
        raise ValueError(
            f"scores must be floating point of shape (N,) or (N, 1), N >= 1, "
            f"found {scores.dtype} of shape {tuple(scores.shape)}"
        )
    if target.shape not in (rows, scores.shape):
        allowed = " or ".join(map(str, dict.fromkeys([tuple(rows), tuple(scores.shape)])))
        raise ValueError(
            f"target must have shape {allowed} to go with these scores, found {tuple(target.shape)}"
        )
    if weight is not None:
        check_weight_shape(weight, tuple(rows), tuple(scores.shape))


def check_table(name: str, table: Tensor, columns: int) -> None:
    """A row of so many real numbers for each example."""
    right_shape = table.ndim == 2 and table.shape[1] == columns and len(table) > 0
    if not (table.is_floating_point() and right_shape):
        raise ValueError(
            f"{name} must be floating point of shape (N, {columns}), N >= 1, "
            f"found {table.dtype} of shape {tuple(table.shape)}"
        )


def check_weight_shape(weight: Tensor, *allowed: tuple[int, ...]) -> None:
    """One of the allowed shapes."""
    if tuple(weight.shape) not in allowed:
        choices = " or ".join(map(str, dict.fromkeys(allowed)))
        raise ValueError(f"weight must have shape {choices}, found {tuple(weight.shape)}")


def check_binary_values(scores: Tensor, labels: Tensor, weight: Tensor | None) -> int:
    """Raise unless scores are finite, labels 0 or 1 and weights usable; count the positives."""
    checks.check_finite("scores", scores.numpy(force=True), hint=DIVERGED)
    if weight is not None:
        checks.check_weights(weight.numpy(force=True))
    return checks.check_labels(labels.numpy(force=True))


def means_of_classes(
    h: Tensor, labels: Tensor, weight: Tensor, whose: str
) -> tuple[Tensor, Tensor]:
    """Weighted means of h over positives and over negatives, along the first dimension."""
    positive, negative = weight * labels, weight * (1.0 - labels)
    mass = torch.stack([positive.sum(0), negative.sum(0)])
    if bool((mass == 0).any()):
        raise checks.MissingClassError(
            f"target must hold both classes among the {whose}, found weights "
            f"{mass[0].tolist()} of positives and {mass[1].tolist()} of negatives: "
            f"draw more, or as many of each class"
        )
    return (positive * h).sum(0) / mass[0], (negative * h).sum(0) / mass[1]
