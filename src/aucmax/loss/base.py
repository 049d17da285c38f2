"""What the AUC losses share: the saddle variables, the options and the closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from aucmax import checks
from aucmax.loss._inputs import computable
from aucmax.loss.objective import LINKS


class ExactState(nn.Module):
    """A module whose own buffers and parameters follow ``.to(device)``, but not into few digits.

    Buffers stay in double precision: counts do not fit in ``half()``, and a prior that went through
    single precision is another one. Parameters stay in single precision or better: in half they
    would stand still, since a step of 1e-3 is lost beside a value of 0.5.
    """

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


class SaddleLoss(ExactState):
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

    def _may_look(self, scores: Tensor) -> bool:
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
