"""PPD-AdaGrad, the paper's Algorithm 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax import checks
from aucmax.optim._fused import launch_once
from aucmax.optim.staged import (
    Group,
    StagedOptimizer,
    State,
    blocks,
    centre_of,
    copy_of,
    default_to_fused_or_foreach,
    in_single_precision,
    scalar,
    use_grad_for_differentiable,
)

__all__ = ["PPDAdaGrad", "ppd_adagrad"]


class PPDAdaGrad(StagedOptimizer):
    r"""Proximal primal-dual AdaGrad (Algorithm 3): dual averaging within each stage.

    .. math::

        \begin{aligned}
        \hat g_t &= \bigl[\,g_v + \tfrac{1}{\gamma}(v_t - v_0)\,;\; -g_\alpha\,\bigr] \\
        G_t &= \sum_{\tau \le t} \hat g_\tau, \qquad
        S_t = \sum_{\tau \le t} \hat g_\tau^2 \\
        u_{t+1} &= u_0 - \eta_k\, G_t / (\delta + \sqrt{S_t})
        \end{aligned}

    for :math:`u = [v; \alpha]`, coordinate by coordinate, the sums since the stage began: the
    closed form of the paper's arg min.

    ======================  ==================  ==================================================
    paper                   argument            where it lives
    ======================  ==================  ==================================================
    :math:`\eta_k`          ``lr``              ``param_groups``; set it from ``stage.lr``
    :math:`\gamma`          ``gamma``           ``param_groups``
    :math:`\delta`          ``delta``           ``param_groups``
    :math:`G_t`             --                  ``state[p]["grad_sum"]``
    :math:`s_t^2`           --                  ``state[p]["square_sum"]``
    :math:`v_0^k`           --                  ``state[p]["reference"]``
    :math:`\alpha_0^k`      --                  ``state[p]["centre"]`` of the dual, read at the
                                                stage's first step
    :math:`\bar v_k`        --                  :meth:`averages`; ``state[p]["drift"]`` is
                                                :math:`\sum_t (v_t - u_0)`
    ======================  ==================  ==================================================

    With ``end_stage(restart="last")`` the primal begins its stage at the last iterate, which is
    then the centre :math:`u_0` (one more copy), while the prox still pulls to the average.

    Args:
        params: parameters or groups; :func:`aucmax.minmax_groups` builds them.
        lr: step size :math:`\eta_k`.
        gamma: prox parameter; large is loose, ``math.inf`` switches the prox off.
        delta: added to the root of the sum of squares. The theory asks for a bound on the
            gradients' entries; a smaller one makes the early steps larger, and a much smaller one
            makes them fragile.
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
        >>> optimizer = aucmax.PPDAdaGrad(aucmax.minmax_groups(model, loss), lr=0.1)
        >>> x, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> loss(model(x), y).backward()
        >>> optimizer.step()
        >>> optimizer.should_stop(M=1e-3, lipschitz=0.1)
        True
    """

    kernel = "PPD_ADAGRAD"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        *,
        gamma: float = 2000.0,
        delta: float = 0.1,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "gamma": gamma,
            "delta": delta,
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
        if self._step_fused():
            return loss
        for group, params, grads, states, resting in self._begin_step():
            primal = [] if group["maximize"] else states
            ppd_adagrad(
                params,
                grads,
                [state["reference"] for state in primal],
                [state["drift"] for state in primal],
                [state["grad_sum"] for state in states],
                [state["square_sum"] for state in states],
                [centre_of(state) for state in states],
                foreach=group["foreach"],
                fused=group["fused"],
                differentiable=group["differentiable"],
                lr=group["lr"],
                gamma=group["gamma"],
                delta=group["delta"],
                maximize=group["maximize"],
            )
            self._rest(resting)
        return loss

    def should_stop(self, M: float, lipschitz: float) -> bool:
        r"""Whether the stage has reached the stopping time of Lemma 3, with c = 1/sqrt(d + 3).

        .. math::

            \tau \ge M \max\Bigl(
                \tfrac{1}{c}(\delta + \max_i s_i) \max(1, 8 \tilde L^2),\;
                2c \bigl(\sum_i s_i + (d+3)(\delta + \max_i s_i)\bigr)
            \Bigr)

        Here :math:`\tau` counts the steps of this stage and :math:`s_i` is the norm of coordinate
        i's gradients in it, over all :math:`d + 3` coordinates of w, a, b and alpha. It reads
        every coordinate: ask every hundred steps rather than at each.

        Args:
            M: :math:`M_k`, from ``stage.M`` of :func:`aucmax.stages.theory`.
            lipschitz: :math:`\tilde L`, the Lipschitz constant of h in w.
        """
        checks.positive("M", M, infinite=True)
        checks.non_negative("lipschitz", lipschitz)
        sums = [s["square_sum"] for s in self.state.values() if "square_sum" in s]
        sums = [x for x in sums if x.numel()]
        steps = max(self._stage_steps(group) for group in self.param_groups)
        if not sums or steps == 0:
            return False
        size = sum(x.numel() for x in sums)
        c = 1.0 / math.sqrt(size)
        delta = max(group["delta"] for group in self.param_groups)
        largest = delta + math.sqrt(max(x.max().item() for x in sums))
        total = math.fsum(x.sqrt().sum().item() for x in sums)
        by_distance = largest * max(1.0, 8.0 * lipschitz**2) / c
        by_noise = 2.0 * c * (total + size * largest)
        return bool(steps >= M * max(by_distance, by_noise))

    def _state_names(self, group: Group) -> list[str]:
        sums = ["grad_sum", "square_sum"]
        return ["centre", *sums] if group["maximize"] else ["reference", "drift", *sums]

    def _begin_state(self, p: Tensor, state: State, names: list[str]) -> None:
        if "centre" in names or "reference" in state:
            # The dual, or a primal that goes on from its last iterate: u_0 is where it is now.
            state["centre"] = copy_of(p)
        super()._begin_state(p, state, names)

    def _factors(self, group: Group) -> dict[str, Any]:
        return _factors(group["lr"], group["gamma"], group["delta"], group["maximize"])


def ppd_adagrad(
    params: list[Tensor],
    grads: list[Tensor],
    references: list[Tensor],
    drifts: list[Tensor],
    grad_sums: list[Tensor],
    square_sums: list[Tensor],
    centres: list[Tensor],
    foreach: bool | None = None,
    fused: bool | None = None,
    differentiable: bool = False,
    *,
    lr: float | Tensor,
    gamma: float,
    delta: float,
    maximize: bool,
) -> None:
    """Functional form: one step on one group, in place.

    See :class:`PPDAdaGrad` for details. The centres are the references themselves, unless the stage
    began elsewhere. The dual, ``maximize=True``, has no references and no drifts: empty lists.
    """
    fused, foreach = default_to_fused_or_foreach(params, lr, foreach, fused, differentiable)
    if fused:
        func = _fused_ppd_adagrad
    elif foreach:
        func = _multi_tensor_ppd_adagrad
    else:
        func = _single_tensor_ppd_adagrad
    func(
        params,
        grads,
        references,
        drifts,
        grad_sums,
        square_sums,
        centres,
        lr=scalar(lr),
        gamma=gamma,
        delta=delta,
        maximize=maximize,
        differentiable=differentiable,
    )


def _single_tensor_ppd_adagrad(
    params: list[Tensor],
    grads: list[Tensor],
    references: list[Tensor],
    drifts: list[Tensor],
    grad_sums: list[Tensor],
    square_sums: list[Tensor],
    centres: list[Tensor],
    *,
    lr: float | Tensor,
    gamma: float,
    delta: float,
    maximize: bool,
    differentiable: bool,
) -> None:
    for i, param in enumerate(params):
        with in_single_precision(param) as p:
            g = grads[i].to(p.dtype)
            d = -g if maximize else (p - references[i]).div_(gamma).add_(g)  # Alg. 3, line 3
            grad_sums[i].add_(d)
            square_sums[i].addcmul_(d, d)
            if differentiable:  # autograd keeps what it works on
                h, total = square_sums[i].sqrt().add(delta) / -lr, grad_sums[i].clone()
            else:
                h, total = d.copy_(square_sums[i]).sqrt_().add_(delta).div_(-lr), grad_sums[i]
            p.copy_(centres[i]).addcdiv_(total, h)  # lines 4 and 5
            if not maximize:
                drifts[i].add_(p).sub_(centres[i])  # Alg. 2, line 10
        del g, d, h  # before the next ones are there


def _multi_tensor_ppd_adagrad(
    params: list[Tensor],
    grads: list[Tensor],
    references: list[Tensor],
    drifts: list[Tensor],
    grad_sums: list[Tensor],
    square_sums: list[Tensor],
    centres: list[Tensor],
    *,
    lr: float,
    gamma: float,
    delta: float,
    maximize: bool,
    differentiable: bool,
) -> None:
    pull = 1.0 / gamma
    for ps, gs, refs, sums, totals, squares, centre in blocks(
        params, grads, references, drifts, grad_sums, square_sums, centres
    ):
        if len(ps) == 1 and not maximize:
            # A large tensor in the fewest passes: ``out`` saves what lists must copy.
            h = torch.add(gs[0], ps[0], alpha=pull).add_(refs[0], alpha=-pull)  # Alg. 3, line 3
            totals[0].add_(h)
            squares[0].addcmul_(h, h)
            torch.sqrt(squares[0], out=h).add_(delta)  # line 4
            torch.addcdiv(centre[0], totals[0], h, value=-lr, out=ps[0])  # line 5
            sums[0].addcdiv_(totals[0], h, value=-lr)  # Alg. 2, line 10
            del h  # before the next one is there
            continue
        if maximize:  # Alg. 3, line 3
            d = torch._foreach_neg(gs)
        else:
            d = torch._foreach_add(gs, ps, alpha=pull)
            torch._foreach_add_(d, refs, alpha=-pull)
        torch._foreach_add_(totals, d)
        torch._foreach_addcmul_(squares, d, d)
        torch._foreach_copy_(d, squares)  # line 4
        torch._foreach_sqrt_(d)
        # a plain number takes three times as long
        torch._foreach_add_(d, d[0].new_full((), delta), alpha=1.0)
        torch._foreach_copy_(ps, centre)  # line 5
        torch._foreach_addcdiv_(ps, totals, d, value=-lr)
        if not maximize:  # Alg. 2, line 10
            torch._foreach_addcdiv_(sums, totals, d, value=-lr)
        del d


def _fused_ppd_adagrad(
    params: list[Tensor],
    grads: list[Tensor],
    references: list[Tensor],
    drifts: list[Tensor],
    grad_sums: list[Tensor],
    square_sums: list[Tensor],
    centres: list[Tensor],
    *,
    lr: float,
    gamma: float,
    delta: float,
    maximize: bool,
    differentiable: bool,
) -> None:
    columns = {
        "param": params,
        "grad": grads,
        "reference": references,
        "drift": drifts,
        "grad_sum": grad_sums,
        "square_sum": square_sums,
        "centre": centres,
    }
    launch_once("PPD_ADAGRAD", columns, _factors(lr, gamma, delta, maximize))


def _factors(lr: float | Tensor, gamma: float, delta: float, maximize: bool) -> dict[str, Any]:
    """What the kernel is told: the dual goes uphill, and nothing pulls at it."""
    return {
        "lr": scalar(lr),
        "pull": 0.0 if maximize else 1.0 / gamma,
        "delta": delta,
        "sign": -1.0 if maximize else 1.0,
    }
