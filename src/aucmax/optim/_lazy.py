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
        self.latest: tuple[Tensor, float] | None = None

    @torch.no_grad()
    def __call__(self, rows: Tensor | None = None, steps: float | None = None) -> None:
        """Catch up on all rows or some, each of them once, to a step or the present one."""
        touched, reference, drift = (self.state[x] for x in ("touched", "reference", "drift"))
        steps = self.state["step"].item() if steps is None else steps
        self.latest = None if rows is None else (rows, steps)
        behind = steps - (touched if rows is None else touched.index_select(0, rows))
        late = behind.nonzero().flatten()
        if not len(late):
            return
        if rows is None or len(late) < len(rows):
            rows = late if rows is None else rows.index_select(0, late)
            behind = behind.index_select(0, late)
        touched.index_fill_(0, rows, steps)
        x, r = self.values.index_select(0, rows).to(drift.dtype), reference.index_select(0, rows)
        pull, decay = self.state["rates"].tolist()
        c = pull + decay
        goal = r * (pull / c) if decay else r
        away = x - goal
        if c == 0.0:
            drift.index_add_(0, rows, _alike(behind, x) * away)
            return
        # Of a small c most digits of 1 - (1 - c)^k would cancel.
        gone = -torch.expm1(behind * math.log1p(-c)) if c < 1.0 else 1.0 - (1.0 - c) ** behind
        away.mul_(_alike(gone, x))
        self.values.index_copy_(0, rows, (x - away).to(self.values.dtype))
        drift.index_add_(0, rows, away, alpha=(1.0 - c) / c)
        if decay:
            drift.index_add_(0, rows, _alike(behind, x) * (goal - r))

    def has(self, rows: Tensor, steps: float) -> bool:
        """Whether these rows were caught up on last, and to this step."""
        if self.latest is None or self.latest[1] != steps:
            return False
        return torch.equal(self.latest[0], rows)

    def __reduce__(self) -> Any:
        return type(None), ()  # of no use without the optimizer, which hangs another


def step_rows(p: Tensor, grad: Tensor, state: State, lr: float, pull: float, decay: float) -> None:
    """Move the rows of a sparse gradient (Alg. 2, lines 6 and 10); the step is counted already."""
    steps, rates = state["step"].item(), [lr * pull, lr * decay]
    if "touched" not in state:
        state["touched"] = torch.full(p.shape[:1], steps - 1.0, dtype=torch.float64).to(p.device)
        state["rates"] = torch.tensor(rates, dtype=torch.float64)
        hang(p, state)
    catch_up: CatchUp = p.catch_up  # type: ignore[attr-defined]
    if state["rates"].tolist() != rates:
        catch_up(None, steps - 1.0)
        state["rates"] = torch.tensor(rates, dtype=torch.float64)
    if not catch_up.has(grad._indices()[0], steps - 1.0):  # else each is there once
        grad = grad.coalesce()
        catch_up(grad._indices()[0], steps - 1.0)
    rows, g = grad._indices()[0], grad._values()
    state["touched"].index_fill_(0, rows, steps)
    drift, r = state["drift"], state["reference"].index_select(0, rows)
    x = p.index_select(0, rows).to(drift.dtype)
    d = torch.sub(x, r).mul_(pull).add_(g)
    x = x.sub(d.add_(x, alpha=decay) if decay else d, alpha=lr)
    p.index_copy_(0, rows, x.to(p.dtype))
    drift.index_add_(0, rows, x.sub_(r))


def _alike(factor: Tensor, x: Tensor) -> Tensor:
    """A number for each row, in the type of the rows and such that it multiplies them."""
    return factor.to(x.dtype).view(-1, *[1] * (x.ndim - 1))


def hang(p: Tensor, state: State) -> None:
    """Let those who read rows of a parameter have them caught up, if any can be behind."""
    if "touched" in state:
        p.catch_up = CatchUp(p, state)  # type: ignore[attr-defined]
    elif hasattr(p, "catch_up"):
        del p.catch_up


def settle(p: Tensor, state: State, steps: float | None = None) -> None:
    """Catch up on all rows and forget which were behind, if any were."""
    if "touched" in state:
        CatchUp(p, state)(None, steps)
        for name in NAMES:
            del state[name]
        hang(p, state)
