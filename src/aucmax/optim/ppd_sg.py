"""PPD-SG, the paper's Algorithm 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax.optim import _lazy
from aucmax.optim._fused import launch_once
from aucmax.optim.staged import (
    Begun,
    Group,
    StagedOptimizer,
    blocks,
    default_to_fused_or_foreach,
    in_single_precision,
    scalar,
    use_grad_for_differentiable,
)

__all__ = ["PPDSG", "ppd_sg"]


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

    With ``gamma=math.inf`` the iterates are those of :class:`torch.optim.SGD`.

    A sparse gradient moves its own rows alone, so that a step costs nothing for the others. What
    the prox has done to a row since, and the average, follow in closed form when the row has a
    gradient again, when a loss that knows of it (:class:`aucmax.GroupedAUCLoss`) reads it, and
    before the average is used: up to rounding the iterates are those of dense gradients. Whoever
    reads such a parameter in between calls :meth:`catch_up` first.

    Args:
        params: parameters or groups; :func:`aucmax.minmax_groups` builds them.
        lr: step size :math:`\eta_k`.
        gamma: prox parameter; large is loose. The authors' code tunes it in {500, 1000, 2000}.
        momentum: heavy-ball momentum as in torch's SGD; the paper's algorithm has none.
        weight_decay: L2 penalty of the primal.
        maximize: whether groups are dual unless they say otherwise.
        foreach: False moves tensor by tensor in plain operations, True works on lists of tensors;
            None chooses, and so does None for ``fused``: lists, unless autograd or the compiler
            follows.
        fused: True moves all tensors with one kernel, on a GPU that has Triton; None does so where
            it can and ``foreach`` is None too.
        capturable: count steps on the parameters' device, so that a CUDA graph can hold the step.
        differentiable: let autograd follow the step, on parameters that are not leaves.

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

    kernel = "PPD_SG"
    exact = _lazy.NAMES
    _has_sparse = False

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
        differentiable: bool = False,
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
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step.

        Args:
            closure: evaluates the model again and returns the loss, as in every torch optimizer.
        """
        self._check_capture()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._has_sparse and self._step_fused():
            return loss
        for group, params, grads, states, resting in map(self._move_rows, self._begin_step()):
            primal = [] if group["maximize"] else states
            ppd_sg(
                params,
                grads,
                [state["reference"] for state in primal],
                [state["drift"] for state in primal],
                [state["momentum_buffer"] for state in states if group["momentum"]],
                foreach=group["foreach"],
                fused=group["fused"],
                differentiable=group["differentiable"],
                lr=group["lr"],
                gamma=group["gamma"],
                momentum=group["momentum"],
                weight_decay=group["weight_decay"],
                maximize=group["maximize"],
            )
            self._rest(resting)
        return loss

    def catch_up(self) -> None:
        """Bring all rows up to the last step, those too that had no gradient in it."""
        for p, state in self.state.items():
            _lazy.settle(p, state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for p in group["params"]:
                own = self.state.get(p, {})
                self._has_sparse |= "touched" in own
                _lazy.hang(p, own)

    def _check_sparse(self, group: Group, grad: Tensor) -> None:
        if grad.layout is not torch.sparse_coo or grad.sparse_dim() != 1:
            super()._check_sparse(group, grad)
        for name in ("momentum", "differentiable"):
            if group[name]:
                raise ValueError(f"{name} must be 0 for sparse gradients, found {group[name]!r}")
        self._has_sparse = True

    def _move_rows(self, begun: Begun) -> Begun:
        """Move the parameters with sparse gradients; returns what is left to be moved."""
        if not self._has_sparse:
            return begun
        group, dense = begun.group, []
        lr, pull, decay = float(group["lr"]), 1.0 / group["gamma"], group["weight_decay"]
        for p, grad, state in zip(begun.params, begun.grads, begun.states, strict=True):
            if not grad.is_sparse:
                dense.append((p, grad, state))
            elif group["maximize"]:
                p.add_(grad, alpha=lr)  # Alg. 2, line 7
            else:
                _lazy.step_rows(p, grad, state, lr, pull, decay)
        still = [(p, self.state[p]) for p in begun.resting]
        for p, state in [*((p, state) for p, _, state in dense), *still]:
            _lazy.settle(p, state, state["step"].item() - 1.0)
        params, grads, states = map(list, zip(*dense, strict=True)) if dense else ([], [], [])
        return Begun(group, params, grads, states, begun.resting)

    def _state_names(self, group: Group) -> list[str]:
        names = [] if group["maximize"] else ["reference", "drift"]
        return [*names, "momentum_buffer"] if group["momentum"] else names

    def _factors(self, group: Group) -> dict[str, Any]:
        return _factors(
            group["lr"], group["gamma"], group["momentum"], group["weight_decay"], group["maximize"]
        )


def ppd_sg(
    params: list[Tensor],
    grads: list[Tensor],
    references: list[Tensor],
    drifts: list[Tensor],
    momentum_buffers: list[Tensor],
    foreach: bool | None = None,
    fused: bool | None = None,
    differentiable: bool = False,
    *,
    lr: float | Tensor,
    gamma: float,
    momentum: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """Functional form: one step on one group, in place.

    See :class:`PPDSG` for details. The dual, ``maximize=True``, has no references and no drifts;
    without momentum there are no buffers. Those lists are then empty.
    """
    fused, foreach = default_to_fused_or_foreach(params, lr, foreach, fused, differentiable)
    if fused:
        func = _fused_ppd_sg
    elif foreach:
        func = _multi_tensor_ppd_sg
    else:
        func = _single_tensor_ppd_sg
    func(
        params,
        grads,
        references,
        drifts,
        momentum_buffers,
        lr=scalar(lr),
        gamma=gamma,
        momentum=momentum,
        weight_decay=weight_decay,
        maximize=maximize,
    )


def _single_tensor_ppd_sg(
    params: list[Tensor],
    grads: list[Tensor],
    references: list[Tensor],
    drifts: list[Tensor],
    momentum_buffers: list[Tensor],
    *,
    lr: float | Tensor,
    gamma: float,
    momentum: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    for i, param in enumerate(params):
        with in_single_precision(param) as p:
            g = grads[i].to(p.dtype)
            if maximize:
                d = -g  # Alg. 2, line 7
            else:
                d = (p - references[i]).div_(gamma).add_(g)  # line 6
                if weight_decay:
                    d.add_(p, alpha=weight_decay)
            if momentum:
                d = momentum_buffers[i].mul_(momentum).add_(d)
                if isinstance(lr, Tensor) and lr.requires_grad:
                    d = d.clone()  # autograd keeps it
                p.sub_(d * lr)  # lines 6 and 7
            else:
                p.sub_(d.mul_(lr))
            if not maximize:
                drifts[i].add_(p).sub_(references[i])  # line 10
        del g, d  # before the next ones are there


def _multi_tensor_ppd_sg(
    params: list[Tensor],
    grads: list[Tensor],
    references: list[Tensor],
    drifts: list[Tensor],
    momentum_buffers: list[Tensor],
    *,
    lr: float,
    gamma: float,
    momentum: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    sign = -1.0 if maximize else 1.0
    pull = 0.0 if maximize else 1.0 / gamma
    decay = 0.0 if maximize else weight_decay
    for ps, gs, refs, sums, buffers in blocks(params, grads, references, drifts, momentum_buffers):
        if momentum:  # Alg. 2, lines 6 and 7
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, gs, alpha=sign)
            if pull + decay:
                torch._foreach_add_(buffers, ps, alpha=pull + decay)
            if pull:
                torch._foreach_add_(buffers, refs, alpha=-pull)
            torch._foreach_add_(ps, buffers, alpha=-lr)
        else:
            if decay:  # p - lr (pull (p - r) + decay p)
                torch._foreach_mul_(ps, 1.0 - lr * (pull + decay))
                torch._foreach_add_(ps, refs, alpha=lr * pull)
            elif pull:
                torch._foreach_lerp_(ps, refs, lr * pull)
            torch._foreach_add_(ps, gs, alpha=-lr * sign)
        if not maximize:  # line 10
            torch._foreach_add_(sums, ps)
            torch._foreach_sub_(sums, refs)


def _fused_ppd_sg(
    params: list[Tensor],
    grads: list[Tensor],
    references: list[Tensor],
    drifts: list[Tensor],
    momentum_buffers: list[Tensor],
    *,
    lr: float,
    gamma: float,
    momentum: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    columns = {
        "param": params,
        "grad": grads,
        "reference": references,
        "drift": drifts,
        "momentum_buffer": momentum_buffers,
    }
    launch_once("PPD_SG", columns, _factors(lr, gamma, momentum, weight_decay, maximize))


def _factors(
    lr: float | Tensor, gamma: float, momentum: float, weight_decay: float, maximize: bool
) -> dict[str, Any]:
    """What the kernel is told: the dual goes uphill, and nothing pulls at it."""
    return {
        "lr": scalar(lr),
        "pull": 0.0 if maximize else 1.0 / gamma,
        "weight_decay": 0.0 if maximize else weight_decay,
        "momentum": momentum,
        "sign": -1.0 if maximize else 1.0,
    }
