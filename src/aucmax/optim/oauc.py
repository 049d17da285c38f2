"""OAUC, the online method of Ying, Wen and Lyu (2016), a baseline of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax.optim.staged import (
    Group,
    StagedOptimizer,
    State,
    blocks,
    check_restart,
    copy_of,
    default_to_fused_or_foreach,
    in_single_precision,
    scalar,
    use_grad_for_differentiable,
)

__all__ = ["OAUC", "oauc"]


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
        maximize: whether groups are dual unless they say otherwise.
        foreach: False moves tensor by tensor in plain operations, True works on lists of tensors;
            None works on lists, unless autograd or the compiler follows.
        fused: True is refused: there is no kernel.
        capturable: count steps on the parameters' device, so that a CUDA graph can hold the step.
        differentiable: let autograd follow the step, on parameters that are not leaves.

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

    numbers = ("step", "lr_sum")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
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
        for group, params, grads, states, resting in self._begin_step():
            numbers = self._numbers_of(group)
            total, size = numbers["lr_sum"], _size(group["lr"], numbers["step"])
            size = torch.as_tensor(size, dtype=total.dtype, device=total.device)
            # lists, since torch.compile loses what is added to a single number in double precision
            torch._foreach_add_([total], [size])
            oauc(
                params,
                grads,
                [state["average"] for state in states],
                numbers["step"],
                numbers["lr_sum"],
                foreach=group["foreach"],
                fused=group["fused"],
                differentiable=group["differentiable"],
                lr=group["lr"],
                maximize=group["maximize"],
            )
            weight = _weight(group["lr"], **numbers)
            for p in resting:  # one more point in its average, equal to the last
                if "average" in self.state[p]:
                    _move_towards(self.state[p]["average"], p, weight)
        return loss

    def end_stage(self, restart: str = "average") -> None:
        """Do nothing: the method has no stages."""
        check_restart(restart)

    def averages(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter that has moved, with its step-weighted average."""
        for group in self.param_groups:
            for p in group["params"]:
                if "average" in self.state.get(p, ()):
                    yield p, self.state[p]["average"]

    def _state_names(self, group: Group) -> list[str]:
        return ["average"]

    def _begin_state(self, p: Tensor, state: State, names: list[str]) -> None:
        state["average"] = copy_of(p)


def oauc(
    params: list[Tensor],
    grads: list[Tensor],
    averages: list[Tensor],
    step: Tensor,
    lr_sum: Tensor,
    foreach: bool | None = None,
    fused: bool | None = None,
    differentiable: bool = False,
    *,
    lr: float | Tensor,
    maximize: bool,
) -> None:
    """Functional form: one step on one group, in place.

    See :class:`OAUC` for details. ``step`` is the number of this step, from one on, and ``lr_sum``
    the sum of the sizes of all steps with this one.
    """
    fused, foreach = default_to_fused_or_foreach(params, lr, foreach, fused, differentiable)
    if fused:
        raise RuntimeError("`fused=True` is not supported by OAUC")
    func = _multi_tensor_oauc if foreach else _single_tensor_oauc
    func(
        params,
        grads,
        averages,
        size=_size(lr, step),
        weight=_weight(lr, step, lr_sum),
        maximize=maximize,
    )


def _single_tensor_oauc(
    params: list[Tensor],
    grads: list[Tensor],
    averages: list[Tensor],
    *,
    size: float | Tensor,
    weight: float | Tensor,
    maximize: bool,
) -> None:
    for i, param in enumerate(params):
        with in_single_precision(param) as p:
            g = grads[i].to(p.dtype)
            _move_towards(averages[i], p, weight)  # the point that the gradient was taken at
            p.add_(g * size if maximize else g * -size)


def _multi_tensor_oauc(
    params: list[Tensor],
    grads: list[Tensor],
    averages: list[Tensor],
    *,
    size: Any,
    weight: Any,
    maximize: bool,
) -> None:
    for ps, gs, means in blocks(params, grads, averages):
        # the points that the gradients were taken at
        if isinstance(size, Tensor):  # counted on the device
            gaps = torch._foreach_sub(ps, means)
            torch._foreach_mul_(gaps, weight.to(ps[0].dtype))
            torch._foreach_add_(means, gaps)
            steps = torch._foreach_mul(gs, size.to(ps[0].dtype))
            torch._foreach_add_(ps, steps, alpha=1.0 if maximize else -1.0)
        else:
            torch._foreach_lerp_(means, ps, weight)
            torch._foreach_add_(ps, gs, alpha=size if maximize else -size)


def _size(lr: float | Tensor, step: Tensor) -> Any:
    return scalar(lr) / scalar(step) ** 0.5


def _weight(lr: float | Tensor, step: Tensor, lr_sum: Tensor) -> Any:
    """The share of this step's point in the average."""
    tiny = 1e-300  # steps of size zero leave the average alone
    return _size(lr, step) / (scalar(lr_sum) + tiny)


def _move_towards(average: Tensor, p: Tensor, weight: Any) -> None:
    """Move the average towards ``p`` by the share ``weight``, a number or, compiled, a tensor."""
    if isinstance(weight, Tensor):
        average.add_((p - average).mul_(weight))
    else:
        average.lerp_(p.to(average.dtype), weight)
