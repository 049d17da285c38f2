"""OAUC, the online method of Ying, Wen and Lyu (2016), a baseline of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax.optim.staged import (
    Group,
    Lists,
    StagedOptimizer,
    State,
    add_scaled_,
    check_restart,
    lerp_,
    number_of,
)

__all__ = ["OAUC"]


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
    :math:`t`               --                  ``state[p]["step"]``
    :math:`\sum \eta_t`     --                  ``state[p]["lr_sum"]``
    :math:`\bar v_T`        --                  ``state[p]["average"]``
    ======================  ==================  ==================================================

    Differences from the 2016 paper (*Stochastic Online AUC Maximization*, NeurIPS):
        It treats linear models and projects onto balls of known radius; here, as in the ICLR 2020
        paper's comparison, the model is any network and nothing is projected.

    Args:
        params: parameters or groups; :func:`aucmax.minmax_groups` builds them.
        lr: the first step's size :math:`\eta_0`.
        maximize: the default of the groups; True makes a group dual.
        foreach: False updates tensor by tensor, in plain operations; the default works on lists.
        capturable: count steps on the parameters' device, so that a CUDA graph can hold the step.

    Example:
        >>> import torch, aucmax
        >>> model, loss = torch.nn.Linear(2, 1), aucmax.AUCLoss(prior=0.5)
        >>> x, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> loss.begin(model(x), y)
        >>> optimizer = aucmax.OAUC(aucmax.minmax_groups(model, loss), lr=0.1)
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
        >>> with aucmax.averaged(model, optimizer):
        ...     scores = model(x)
    """

    counters = ("step", "lr_sum")

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

    def _state_names(self, group: Group) -> list[str]:
        return ["average"]

    def _count(self, groups: list[Group], counters: list[State]) -> None:
        super()._count(groups, counters)
        for group, numbers in zip(groups, counters, strict=True):
            total, size = numbers["lr_sum"], _step_size(group, numbers)
            # lists, since torch.compile loses what is added to a single number in double precision
            size = torch.as_tensor(size, dtype=total.dtype, device=total.device)
            torch._foreach_add_([total], [size])

    def _plain(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        size = _step_size(group, state)
        # the average first: its point is the one that the gradient was taken at
        state["average"].add_((p - state["average"]).mul_(_weight(size, state)))
        p.add_(g * (size if group["maximize"] else -size))

    def _foreach(self, ps: list[Tensor], gs: list[Tensor], state: Lists, group: Group) -> None:
        size = _step_size(group, state)
        lerp_(state["average"], ps, _weight(size, state))
        add_scaled_(ps, gs, size if group["maximize"] else -size)

    def _rest(self, params: list[Tensor], group: Group) -> None:
        for p in params:
            state = self.state[p]
            if "average" in state:
                gap = p.to(state["average"].dtype) - state["average"]
                state["average"].add_(gap.mul_(_weight(_step_size(group, state), state)))

    def end_stage(self, restart: str = "average") -> None:
        """Do nothing: the method has no stages."""
        check_restart(restart)

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the parameters that have moved, with their step-weighted averages."""
        for group in self.param_groups:
            for p in group["params"]:
                if "average" in self.state.get(p, ()):
                    yield p, self.state[p]["average"]


def _step_size(group: Group, counters: Any) -> Any:
    """Return the size of the step that ``counters["step"]`` counts, from one on."""
    return number_of(group["lr"]) / number_of(counters["step"]) ** 0.5


def _weight(size: Any, counters: Any) -> Any:
    """Return the share of this step's point in the average."""
    tiny = 1e-300  # steps of size zero leave the average alone
    return size / (number_of(counters["lr_sum"]) + tiny)
