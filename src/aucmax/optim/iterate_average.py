"""The average that aucmax's optimizers keep, for every other optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from aucmax.optim.staged import check_restart, copy_of, local


class IterateAverage:
    r"""The mean of the iterates :math:`v_1, \ldots, v_t` of any optimizer since a stage began.

    It gives torch's optimizers what aucmax's have built in, so that a baseline is compared on
    equal terms. Two copies of the parameters are kept, in single precision or better: the stage's
    first iterate, and the sum of the distances to it.

    Args:
        optimizer: whose parameters are averaged; groups with ``maximize=True`` are left out.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> average = aucmax.IterateAverage(optimizer)
        >>> for _ in range(3):
        ...     optimizer.zero_grad()
        ...     model(torch.ones(4, 2)).square().mean().backward()
        ...     optimizer.step()
        ...     average.update()
        >>> with aucmax.averaged(model, average):
        ...     scores = model(torch.ones(4, 2))
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.first: list[Tensor] = []
        self.drift: list[Tensor] = []
        self.points = torch.zeros((), dtype=torch.float64)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the optimizer."""
        return self.optimizer.param_groups

    def _parameters(self) -> list[Tensor]:
        groups = [g for g in self.param_groups if not g.get("maximize")]
        return [p for g in groups for p in g["params"] if p.requires_grad]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are; call it after every step of the optimizer."""
        parameters = self._parameters()
        if not self.first:
            self.first = [copy_of(p) for p in parameters]
            self.drift = [torch.zeros_like(x) for x in self.first]
            self.points = torch.zeros((), dtype=torch.float64, device=parameters[0].device)
        drift = [local(x) for x in self.drift]
        torch._foreach_add_(drift, [local(p) for p in parameters])
        torch._foreach_sub_(drift, [local(x) for x in self.first])
        self.points += 1  # on the device, where a captured graph counts its replays

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter with its average since the stage began."""
        if self.first:
            share = 1.0 / self.points.item()
            for p, first, drift in zip(self._parameters(), self.first, self.drift, strict=True):
                yield p, torch.add(first, drift, alpha=share)

    @torch.no_grad()
    def end_stage(self, restart: str = "last") -> None:
        """Begin a new average; with ``restart="average"`` the parameters go on from this one."""
        check_restart(restart)
        if restart == "average":
            for p, average in self.averages():
                p.copy_(average)
        self.first, self.drift = [], []

    def state_dict(self) -> dict[str, Any]:
        """The sums and the number of points in them."""
        return {"first": self.first, "drift": self.drift, "points": self.points}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        places = [p.device for p in self._parameters()]
        for name in ("first", "drift"):
            saved = [x.to(place, copy=True) for x, place in zip(state[name], places, strict=False)]
            setattr(self, name, saved)
        self.points = state["points"].to(places[0], copy=True)
