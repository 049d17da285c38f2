"""PPD-SG, the paper's Algorithm 2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax.optim.staged import Group, Lists, StagedOptimizer, State, add_scaled_, lerp_

__all__ = ["PPDSG"]


class PPDSG(StagedOptimizer):
    r"""Proximal primal-dual stochastic gradient (Algorithm 2).

    .. math::

        \begin{aligned}
        v_t &= v_{t-1} - \eta_k \bigl(g_v + \tfrac{1}{\gamma}(v_{t-1} - v_0)\bigr)
            && \text{the primal: w, a, b} \\
        \alpha_t &= \alpha_{t-1} + \eta_k\, g_\alpha
            && \text{the dual: groups with maximize=True} \\
        \bar v_k &= \tfrac{1}{T_k} \sum_{t=0}^{T_k - 1} v_t
            && \text{kept up to date at every step}
        \end{aligned}

    where :math:`v_0` is the reference, the average of the stage before. Gradients of primal and
    dual are taken at the same point. The dual has no prox, no weight decay and no average.

    ======================  ==================  ==================================================
    paper                   argument            where it lives
    ======================  ==================  ==================================================
    :math:`\eta_k`          ``lr``              ``param_groups``; set it from ``stage.lr``
    :math:`\gamma`          ``gamma``           ``param_groups``; ``math.inf`` switches the prox off
    :math:`v_0^k`           --                  ``state[p]["reference"]``
    :math:`\bar v_k`        --                  :meth:`averages`; ``state[p]["drift"]`` is
                                                :math:`\sum_t (v_t - v_0^k)`
    :math:`t`               --                  ``state[p]["step"]``
    ======================  ==================  ==================================================

    With ``gamma=math.inf`` the iterates are those of :class:`torch.optim.SGD`. A group may have
    ``bounds=(low, high)``, to which its parameters are clamped after every step; the groups of
    :func:`aucmax.minmax_groups` have them for a, b and alpha where the loss guards these.

    Args:
        params: parameters or groups; :func:`aucmax.minmax_groups` builds them.
        lr: step size :math:`\eta_k`.
        gamma: prox parameter; large is loose. The authors' code tunes it in {500, 1000, 2000}.
        momentum: heavy-ball momentum as in torch's SGD; the paper's algorithm has none.
        weight_decay: L2 penalty of the primal.
        maximize: the default of the groups; True makes a group dual.
        foreach: False updates tensor by tensor, in plain operations; the default works on lists.
        fused: True updates all tensors with one kernel, on a GPU that has Triton; elsewhere it
            changes nothing.
        capturable: count steps on the parameters' device, so that a CUDA graph can hold the step.

    Example:
        >>> import torch, aucmax
        >>> model, loss = torch.nn.Linear(2, 1), aucmax.AUCLoss(prior=0.5)
        >>> x, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> loss.begin(model(x), y)
        >>> optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.1, gamma=500)
        >>> for stage in aucmax.stages.geometric(lr=0.1, steps=10, stages=2):
        ...     stage.set_lr(optimizer)
        ...     for _ in range(stage.steps):
        ...         optimizer.zero_grad()
        ...         loss(model(x), y).backward()
        ...         optimizer.step()
        ...     optimizer.end_stage()
        ...     loss.reset_dual(model(x), y)
    """

    kernel = "PPD_SG"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        *,
        gamma: float = 2000.0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "gamma": gamma,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: Group) -> list[str]:
        names = [] if group["maximize"] else ["reference", "drift"]
        return [*names, "momentum_buffer"] if group["momentum"] else names

    def _plain(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        if group["maximize"]:
            d = -g  # line 7
        else:
            d = (p - state["reference"]).div_(group["gamma"]).add_(g)  # line 6
            if group["weight_decay"]:
                d.add_(p, alpha=group["weight_decay"])
        if group["momentum"]:
            d.copy_(state["momentum_buffer"].mul_(group["momentum"]).add_(d))
        p.sub_(d.mul_(group["lr"]))

    def _foreach(self, ps: list[Tensor], gs: list[Tensor], state: Lists, group: Group) -> None:
        lr, uphill = group["lr"], group["maximize"]
        pull = 0.0 if uphill else 1.0 / group["gamma"]
        decay = 0.0 if uphill else group["weight_decay"]
        sign = -1.0 if uphill else 1.0
        if group["momentum"]:
            buffers = state["momentum_buffer"]
            torch._foreach_mul_(buffers, group["momentum"])
            torch._foreach_add_(buffers, gs, alpha=sign)
            if pull + decay:
                torch._foreach_add_(buffers, ps, alpha=pull + decay)
            if pull:
                torch._foreach_add_(buffers, state["reference"], alpha=-pull)
            add_scaled_(ps, buffers, -lr)
            return
        if decay:  # p - lr (pull (p - reference) + decay p)
            torch._foreach_mul_(ps, 1.0 - lr * (pull + decay))
            add_scaled_(ps, state["reference"], lr * pull)
        elif pull:
            lerp_(ps, state["reference"], lr * pull)
        add_scaled_(ps, gs, -lr * sign)

    def _factors(self, group: Group) -> dict[str, Any]:
        return {
            "lr": group["lr"],
            "pull": 0.0 if group["maximize"] else 1.0 / group["gamma"],
            "weight_decay": 0.0 if group["maximize"] else group["weight_decay"],
            "momentum": group["momentum"],
            "sign": -1.0 if group["maximize"] else 1.0,
        }
