"""A stage, and how its counts are rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

FEWEST_DUAL_SAMPLES = 2  # the closed form of alpha needs a sample of each class


class HasParamGroups(Protocol):
    """What :meth:`Stage.set_lr` needs of an optimizer."""

    param_groups: list[dict[str, Any]]


@dataclass(frozen=True)
class Stage:
    r"""One stage of training.

    Attributes:
        index: the stage's number :math:`k`, counted from 1.
        lr: the learning rate :math:`\eta_k`.
        steps: optimizer steps in the stage; None where the stage ends by another rule.
        dual_samples: fresh samples :math:`m_k` that set the dual variable when the stage ends;
            0 where the dual variable is averaged instead.
        M: the factor :math:`M_k` of the stopping time of Lemma 3; None elsewhere.

    Example:
        >>> import torch
        >>> from aucmax.stages import Stage
        >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        >>> Stage(index=1, lr=0.1, steps=100, dual_samples=384).set_lr(optimizer)
        >>> optimizer.param_groups[0]["lr"]
        0.1
    """

    index: int
    lr: float
    steps: int | None
    dual_samples: int
    M: float | None = None

    def set_lr(self, optimizer: HasParamGroups) -> None:
        """Write the stage's learning rate into every parameter group of ``optimizer``.

        A group's ``lr_scale`` multiplies it. A learning rate that is a tensor is filled, so that a
        compiled step sees the new value.
        """
        for group in optimizer.param_groups:
            lr = self.lr * group.get("lr_scale", 1.0)
            if hasattr(group["lr"], "fill_"):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr


def round_up(x: float) -> int:
    """The smallest integer not below ``x``, where ``x`` carries the noise of a few roundings.

    ``100 * 1.1**2`` is 121.00000000000001 in floating point and means 121.
    """
    nearest = round(x)
    return nearest if math.isclose(x, nearest, rel_tol=1e-12) else math.ceil(x)
