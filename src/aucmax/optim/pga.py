"""PGA, the proximally guided algorithm (the paper's Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax.optim.staged import (
    Group,
    GroupTensors,
    Lists,
    StagedOptimizer,
    State,
    add_scaled_,
    full,
    lerp_,
    local,
)

__all__ = ["PGA"]


class PGA(StagedOptimizer):
    r"""Proximally guided primal-dual stochastic gradient (Algorithm 1; Rafique et al., 2018).

    .. math::

        \begin{aligned}
        v_t &= \Pi_{\|v\| \le R_1}\bigl[v_{t-1}
            - \eta_k \bigl(g_v + \tfrac{1}{\gamma}(v_{t-1} - v_0)\bigr)\bigr] \\
        \alpha_t &= \Pi_{\|\alpha\| \le R_2}\bigl[\alpha_{t-1} + \eta_k\, g_\alpha\bigr] \\
        \bar v_k &= \tfrac{1}{T_k} \sum_{t=1}^{T_k} v_t, \qquad
        \bar\alpha_k = \tfrac{1}{T_k} \sum_{t=1}^{T_k} \alpha_t
        \end{aligned}

    Primal and dual both go on from their averages. What the method returns is the average of a
    stage drawn uniformly from those ended; it is drawn as the stages end, at the price of one more
    copy, and is what :func:`aucmax.averaged` shows once a stage has ended.

    ======================  ==================  ==================================================
    paper                   argument            where it lives
    ======================  ==================  ==================================================
    :math:`\eta_k`          ``lr``              ``param_groups``; set it from ``stage.lr``
    :math:`\gamma`          ``gamma``           ``param_groups``
    :math:`R_1`             ``radius``          ``param_groups``; over all primal groups together
    :math:`R_2`             ``dual_radius``     ``param_groups``; over all dual groups together
    :math:`v_0^k`           --                  ``state[p]["reference"]``
    :math:`\bar v_k`        --                  ``state[p]["drift"]`` is
                                                :math:`\sum_t (v_t - v_0^k)`
    :math:`\bar v_\tau`     ``seed``            ``state[p]["drawn"]``
    ======================  ==================  ==================================================

    Args:
        params: parameters or groups; :func:`aucmax.minmax_groups` builds them.
        lr: step size :math:`\eta_k`.
        gamma: prox parameter; large is loose, ``math.inf`` switches the prox off.
        radius: :math:`R_1`; infinite by default, no projection.
        dual_radius: :math:`R_2`.
        seed: seed of the draw of a stage, which depends on it and on the stage's number alone, so
            that a resumed run draws as one that was not interrupted.
        output: "drawn" is the paper's; "last" shows the average of the last stage, which the
            theorem says less about and which is better in practice.
        maximize: the default of the groups; True makes a group dual.
        foreach: False updates tensor by tensor, in plain operations; the default works on lists.
        capturable: count steps on the parameters' device, so that a CUDA graph can hold the step.

    Example:
        >>> import torch, aucmax
        >>> model, loss = torch.nn.Linear(2, 1), aucmax.AUCLoss(prior=0.5)
        >>> x, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> loss.begin(model(x), y)
        >>> optimizer = aucmax.PGA(aucmax.minmax_groups(model, loss), radius=10, dual_radius=1)
        >>> for stage in aucmax.stages.polynomial(lr=0.1, steps=5, stages=3):
        ...     stage.set_lr(optimizer)
        ...     for _ in range(stage.steps):
        ...         optimizer.zero_grad()
        ...         loss(model(x), y).backward()
        ...         optimizer.step()
        ...     optimizer.end_stage()
    """

    counts_start = False
    averages_in_update = False  # but after the projection, which is that of all groups together

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        *,
        gamma: float = 2000.0,
        radius: float = math.inf,
        dual_radius: float = math.inf,
        seed: int = 0,
        output: str = "drawn",
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
    ) -> None:
        if output not in ("drawn", "last"):
            raise ValueError(f"output must be 'drawn' or 'last', found {output!r}")
        defaults = {
            "lr": lr,
            "gamma": gamma,
            "radius": radius,
            "dual_radius": dual_radius,
            "seed": seed,
            "output": output,
            "stages_ended": 0,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step.

        Args:
            closure: evaluates the model again and returns the loss, as in every torch optimizer.
        """
        loss = super().step(closure)
        self._project(dual=False)
        self._project(dual=True)
        for p, state in self.state.items():
            if "drift" in state:
                state["drift"].add_(p).sub_(state["reference"])  # Alg. 1, line 9
        return loss

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the parameters with the drawn stage average, at first with the running one.

        With ``output="last"`` it is always the running stage's, or the last one's if none runs.
        """
        for group in self.param_groups:
            steps = self._stage_steps(group)
            for p in group["params"]:
                state = self.state.get(p, {})
                if "drift" in state and (group["output"] == "last" or "drawn" not in state):
                    yield p, self._average(state, steps)
                elif "drawn" in state:
                    yield p, state["drawn"]

    @torch.no_grad()
    def end_stage(self, restart: str = "average") -> None:
        """End the stage: primal and dual go on from their averages, which may be the one drawn."""
        if restart != "average":
            raise ValueError(f"restart must be 'average' for PGA, found {restart!r}")
        if not any(self._stage_steps(group) for group in self.param_groups):
            return
        for group in self.param_groups:
            group["stages_ended"] += 1
        super().end_stage(restart)

    def _state_names(self, group: Group) -> list[str]:
        return ["reference", "drift"]

    def _plain(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        if group["maximize"]:
            p.add_(g * group["lr"])  # line 7
        else:
            d = (p - state["reference"]).div_(group["gamma"]).add_(g)
            p.sub_(d.mul_(group["lr"]))  # line 6

    def _foreach(self, ps: list[Tensor], gs: list[Tensor], state: Lists, group: Group) -> None:
        lr = group["lr"]
        if group["maximize"]:
            add_scaled_(ps, gs, lr)  # line 7
        else:
            lerp_(ps, state["reference"], lr / group["gamma"])  # line 6
            add_scaled_(ps, gs, -lr)

    def _project(self, dual: bool) -> None:
        """Scale all primal, or all dual, coordinates back into their ball (Alg. 1, lines 6, 7)."""
        groups = [group for group in self.param_groups if bool(group["maximize"]) == dual]
        radius = min([math.inf, *(g["dual_radius" if dual else "radius"] for g in groups)])
        # those that never had a gradient are not trained
        ps = [p for group in groups for p in group["params"] if "drift" in self.state[p]]
        if radius == math.inf or not ps:
            return
        norms = [full(torch.linalg.vector_norm(p)) for p in ps]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        torch._foreach_mul_([local(p) for p in ps], (radius / norm).clamp(max=1.0))
        for group in groups:
            if group["bounds"] is not None:  # the range may not include zero
                for p in group["params"]:
                    p.clamp_(*group["bounds"])

    def _begin_group(self, group: Group) -> GroupTensors:
        begun = super()._begin_group(group)
        for p in begun.resting:
            if "drawn" in self.state[p] and "drift" not in self.state[p]:
                # the projection may move this parameter too
                self._begin_state(p, self.state[p], self._state_names(group))
        return begun

    def _end_stage_of(
        self, group: Group, p: Tensor, state: State, average: Tensor | None, restart: str
    ) -> State:
        drawn = state.get("drawn")
        if average is not None:
            p.copy_(average)  # Alg. 1, line 3
            first = self.param_groups[0]  # one draw for all
            if (
                drawn is None
                or group["output"] == "last"
                or _replaces_drawn(first["seed"], first["stages_ended"])
            ):
                drawn = average
        return {} if drawn is None else {"drawn": drawn}


def _replaces_drawn(seed: int, stage: int) -> bool:
    """Draw whether the stage that ends takes the drawn one's place: with probability 1 / stage.

    After k stages, each of them is the drawn one with probability 1 / k (Alg. 1, line 11).
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + stage)
    return torch.rand((), generator=generator, device="cpu").item() * stage < 1.0
