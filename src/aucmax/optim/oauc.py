"""OAUC, the online method of Ying, Wen and Lyu (2016), a baseline of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax.optim.staged import StagedOptimizer, check_restart, copy_of, scalar


class OAUC(StagedOptimizer):
    r"""Primal-dual stochastic gradient with a step size that decays as :math:`1/\sqrt t`.

    .. math::

        \begin{aligned}
        v_{t+1} &= v_t - \eta_t\, g_v, \qquad
        \alpha_{t+1} = \alpha_t + \eta_t\, g_\alpha, \qquad
        \eta_t = \eta_0 / \sqrt t \\
        \bar v_T &= \sum_{t=1}^T \eta_t v_t \bigr/ \sum_{t=1}^T \eta_t
        \end{aligned}

    and likewise :math:`\bar\alpha_T`: the points at which the gradients were taken, weighted by
    their steps, are what the method returns and what :func:`aucmax.averaged` shows. There is no
    prox and there are no stages.

    ======================  ==================  ==================================================
    symbol                  argument            where it lives
    ======================  ==================  ==================================================
    :math:`\eta_0`          ``lr``              ``param_groups``
    :math:`t`               --                  ``param_groups[i]["stage_steps"]``
    :math:`\sum \eta_t`     --                  ``param_groups[i]["lr_sum"]``
    :math:`\bar v_T`        --                  ``state[p]["average"]``
    ======================  ==================  ==================================================

    Differences from the 2016 paper (*Stochastic Online AUC Maximization*, NeurIPS):
        It treats linear models and projects onto balls of known radius; here, as in the ICLR 2020
        paper's comparison, the model is any network and nothing is projected.

    Args:
        params: parameters or groups; :func:`aucmax.minmax_groups` builds them.
        lr: the first step's size :math:`\eta_0`.
        maximize: whether groups are dual unless they say otherwise.
        foreach: False moves tensor by tensor in plain operations, None and True work on lists.
        capturable: count steps on the parameters' device, so that a CUDA graph can hold the step.

    Example:
        >>> import torch, aucmax
        >>> model, loss = torch.nn.Linear(2, 1), aucmax.AUCLoss(prior=0.5)
        >>> optimizer = aucmax.OAUC(aucmax.minmax_groups(model, loss), lr=0.1)
        >>> x, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
        >>> with aucmax.averaged(model, optimizer):
        ...     scores = model(x)
    """

    counters = ("stage_steps", "lr_sum")
    lists_take_tensors = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
    ) -> None:
        defaults = {"lr": lr, "maximize": maximize, "foreach": foreach, "capturable": capturable}
        super().__init__(params, defaults)

    def end_stage(self, restart: str = "average") -> None:
        """Do nothing: the method has no stages."""
        check_restart(restart)

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter that has moved, with its step-weighted average."""
        for _, p, state in self._states():
            yield p, state["average"]

    def _names(self, group: dict[str, Any]) -> list[str]:
        return ["average"]

    def _start(self, p: Tensor, state: dict[str, Tensor], names: list[str]) -> None:
        state["average"] = copy_of(p)

    def _lr(self, group: dict[str, Any]) -> Any:
        return scalar(group["lr"]) / scalar(group["stage_steps"]) ** 0.5

    def _weight(self, group: dict[str, Any]) -> Any:
        """The share of this step's point in the average."""
        lr, tiny = self._lr(group), 1e-300  # steps of size zero leave the average alone
        return lr / (scalar(group["lr_sum"]) + lr + tiny)

    def _finish(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None and p in self.state:
                    take_in(self.state[p]["average"], p, self._weight(group))
            group["lr_sum"] += self._lr(group)

    def _move_one(
        self, group: dict[str, Any], lr: Any, p: Tensor, g: Tensor, state: dict[str, Tensor]
    ) -> None:
        take_in(state["average"], p, self._weight(group))
        p.add_(g * lr if group["maximize"] else g * -lr)

    def _move_many(
        self,
        group: dict[str, Any],
        lr: float,
        ps: list[Tensor],
        gs: list[Tensor],
        state: dict[str, list[Tensor]],
    ) -> None:
        weight = self._weight(group)
        if isinstance(weight, Tensor):
            gaps = torch._foreach_sub(ps, state["average"])
            torch._foreach_mul_(gaps, weight.to(ps[0].dtype))
            torch._foreach_add_(state["average"], gaps)
            gs = list(torch._foreach_mul(gs, lr.to(ps[0].dtype)))  # type: ignore[attr-defined]
            lr = 1.0
        else:
            torch._foreach_lerp_(state["average"], ps, weight)
        torch._foreach_add_(ps, gs, alpha=lr if group["maximize"] else -lr)


def take_in(average: Tensor, p: Tensor, weight: Any) -> None:
    """Move the average towards ``p`` by the share ``weight``, a number or, compiled, a tensor."""
    if isinstance(weight, Tensor):
        average.add_((p - average).mul_(weight))
    else:
        average.lerp_(p.to(average.dtype), weight)
