"""PPD-SG, the paper's Algorithm 2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax.optim.staged import StagedOptimizer


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
    :math:`t`               --                  ``param_groups[i]["stage_steps"]``
    ======================  ==================  ==================================================

    With ``gamma=math.inf`` the iterates are those of :class:`torch.optim.SGD`.

    Args:
        params: parameters or groups; :func:`aucmax.minmax_groups` builds them.
        lr: step size :math:`\eta_k`.
        gamma: prox parameter; large is loose. The paper tunes it in {500, 1000, 2000}.
        momentum: heavy-ball momentum as in torch's SGD; the paper's algorithm has none.
        weight_decay: L2 penalty of the primal.
        maximize: whether groups are dual unless they say otherwise.
        foreach: False moves tensor by tensor in plain operations, True works on lists; None moves
            all tensors with one kernel on a GPU that has Triton, and works on lists elsewhere.
        capturable: count steps on the parameters' device, so that a CUDA graph can hold the step.

    Example:
        >>> import torch, aucmax
        >>> model, loss = torch.nn.Linear(2, 1), aucmax.AUCLoss(prior=0.5)
        >>> optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss), lr=0.1, gamma=500)
        >>> x, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> for stage in aucmax.stages.geometric(lr=0.1, steps=10, stages=2):
        ...     stage.set_lr(optimizer)
        ...     for _ in range(stage.steps):
        ...         optimizer.zero_grad()
        ...         loss(model(x), y).backward()
        ...         optimizer.step()
        ...     optimizer.end_stage()
        ...     loss.reset_dual(model(x), y)
    """

    kernel = "ppd_sg"
    kernel_columns = ("reference", "drift", "momentum")

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
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "gamma": gamma,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _names(self, group: dict[str, Any]) -> list[str]:
        names = [] if group["maximize"] else ["reference", "drift"]
        return [*names, "momentum"] if group["momentum"] else names

    def _factors(self, group: dict[str, Any]) -> list[Any]:
        lr, momentum = self._lr(group), group["momentum"]
        if group["maximize"]:
            return [lr, 0.0, 0.0, momentum, -1.0]
        return [lr, 1.0 / group["gamma"], group["weight_decay"], momentum, 1.0]

    def _move_one(
        self, group: dict[str, Any], lr: Any, p: Tensor, g: Tensor, state: dict[str, Tensor]
    ) -> None:
        if group["maximize"]:
            d = -g
        else:
            d = (p - state["reference"]).div_(group["gamma"]).add_(g)  # Alg. 2, line 6
            if group["weight_decay"]:
                d.add_(p, alpha=group["weight_decay"])
        if group["momentum"]:
            d = state["momentum"].mul_(group["momentum"]).add_(d)
            p.sub_(d * lr)
        else:
            p.sub_(d.mul_(lr))
        if not group["maximize"]:
            state["drift"].add_(p).sub_(state["reference"])  # line 10

    def _move_many(
        self,
        group: dict[str, Any],
        lr: float,
        ps: list[Tensor],
        gs: list[Tensor],
        state: dict[str, list[Tensor]],
    ) -> None:
        sign = -1.0 if group["maximize"] else 1.0
        pull = 0.0 if group["maximize"] else 1.0 / group["gamma"]
        decay = 0.0 if group["maximize"] else group["weight_decay"]
        if group["momentum"]:
            buffers = state["momentum"]
            torch._foreach_mul_(buffers, group["momentum"])
            torch._foreach_add_(buffers, gs, alpha=sign)
            if pull + decay:
                torch._foreach_add_(buffers, ps, alpha=pull + decay)
            if pull:
                torch._foreach_add_(buffers, state["reference"], alpha=-pull)
            torch._foreach_add_(ps, buffers, alpha=-lr)
        else:
            if decay:  # p - lr (pull (p - r) + decay p)
                torch._foreach_mul_(ps, 1.0 - lr * (pull + decay))
                torch._foreach_add_(ps, state["reference"], alpha=lr * pull)
            elif pull:
                torch._foreach_lerp_(ps, state["reference"], lr * pull)
            torch._foreach_add_(ps, gs, alpha=-lr * sign)
        if not group["maximize"]:
            torch._foreach_add_(state["drift"], ps)
            torch._foreach_sub_(state["drift"], state["reference"])
