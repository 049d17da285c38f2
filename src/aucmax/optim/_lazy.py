r"""Rows of a parameter that PPD-SG moves only when they have a gradient or are looked at.

Without a gradient a step is :math:`x \leftarrow x - \eta ((x - r) / \gamma + \lambda x)`, r being
the reference: the share :math:`c = \eta / \gamma + \eta \lambda` of the way to
:math:`x^* = r \eta / (\gamma c)`. So k of them, and what they add to the drift, are with
:math:`s = 1 - (1 - c)^k`

.. math::

    x_k = x - s (x - x^*), \qquad
    \sum_{j=1}^k (x_j - r) = k (x^* - r) + \frac{(1 - c) s}{c} (x - x^*).

A row's last step is in ``state["touched"]``; ``state["rates"]`` are :math:`\eta / \gamma` and
:math:`\eta \lambda` of the steps that rows may be behind by.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

State = dict[str, Tensor]
NAMES = ("touched", "rates")


class CatchUp:
    """Brings rows of a parameter up to the present step.

    It hangs on the parameter as ``catch_up``, for a loss to call with the rows that it will read.
    """

    def __init__(self, p: Tensor, state: State) -> None:
        self.values, self.state = p.data, state  # graphs built since the last step stay valid

    @torch.no_grad()
    def __call__(self, rows: Tensor | None = None, steps: float | None = None) -> None:
        """Catch up on all rows or some, each of them once, to a step or the present one."""
        touched, reference, drift = (self.state[x] for x in ("touched", "reference", "drift"))
        steps = self.state["step"].item() if steps is None else steps
        behind = touched.neg().add_(steps) if rows is None else steps - touched[rows]
        late = behind.nonzero().flatten()
        if not len(late):
            return
        rows, behind = late if rows is None else rows[late], behind[late]
        touched[rows] = steps
        pull, decay = self.state["rates"].tolist()
        c = pull + decay
        if c == 0.0:
            gone, summed = torch.zeros_like(behind), behind
        else:
            # Of a small c most digits of 1 - (1 - c)^k would cancel.
            gone = -torch.expm1(behind * math.log1p(-c)) if c < 1.0 else 1.0 - (1.0 - c) ** behind
            summed = (1.0 - c) / c * gone
        x, r = self.values[rows].to(drift.dtype), reference[rows]
        shape = (-1, *[1] * (x.ndim - 1))
        k, gone, summed = (factor.to(x.dtype).view(shape) for factor in (behind, gone, summed))
        goal = r * (pull / c) if decay else r
        away = x - goal
        drift[rows] += k * (goal - r) + summed * away
        self.values[rows] = (x - gone * away).to(self.values.dtype)

    def __reduce__(self) -> Any:
        return type(None), ()  # of no use without the optimizer, which hangs another


def step_rows(p: Tensor, grad: Tensor, state: State, lr: float, pull: float, decay: float) -> None:
    """Move the rows of a sparse gradient (Alg. 2, lines 6 and 10); the step is counted already."""
    grad = grad.coalesce()
    rows, g = grad.indices()[0], grad.values()
    steps = state["step"].item()
    rates = torch.tensor([lr * pull, lr * decay], dtype=torch.float64)
    if "touched" not in state:
        state["touched"] = torch.full(p.shape[:1], steps - 1.0, dtype=rates.dtype, device=p.device)
        state["rates"] = rates
        hang(p, state)
    catch_up: CatchUp = p.catch_up  # type: ignore[attr-defined]
    if not torch.equal(state["rates"], rates):
        catch_up(None, steps - 1.0)
        state["rates"] = rates
    catch_up(rows, steps - 1.0)
    state["touched"][rows] = steps
    drift, reference = state["drift"], state["reference"][rows]
    x = p[rows].to(drift.dtype)
    x = x - lr * (g + pull * (x - reference) + decay * x)
    p[rows] = x.to(p.dtype)
    drift[rows] += x - reference


def hang(p: Tensor, state: State) -> None:
    """Let those who read rows of a parameter have them caught up."""
    p.catch_up = CatchUp(p, state)  # type: ignore[attr-defined]


def settle(p: Tensor, state: State, steps: float | None = None) -> None:
    """Catch up on all rows and forget which were behind, if any were."""
    if "touched" in state:
        CatchUp(p, state)(None, steps)
        for name in NAMES:
            del state[name]
        p.catch_up = None  # type: ignore[attr-defined]
