"""PPD-AdaGrad, the paper's Algorithm 3."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax import checks
from aucmax.optim.staged import StagedOptimizer, centre_of, copy_of


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
        foreach: False moves tensor by tensor in plain operations, True works on lists; None moves
            all tensors with one kernel on a GPU that has Triton, and works on lists elsewhere.
        capturable: count steps on the parameters' device, so that a CUDA graph can hold the step.

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

    kernel = "ppd_adagrad"
    kernel_columns = ("reference", "drift", "grad_sum", "square_sum", "centre")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        *,
        gamma: float = 2000.0,
        delta: float = 0.1,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "gamma": gamma,
            "delta": delta,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

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
        sums = [s["square_sum"] for *_, s in self._states() if "square_sum" in s]
        sums = [x for x in sums if x.numel()]
        steps = max(group["stage_steps"].item() for group in self.param_groups)
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

    def _names(self, group: dict[str, Any]) -> list[str]:
        sums = ["grad_sum", "square_sum"]
        return ["centre", *sums] if group["maximize"] else ["reference", "drift", *sums]

    def _start(self, p: Tensor, state: dict[str, Tensor], names: list[str]) -> None:
        if "centre" in names or "reference" in state:
            # The dual, or a primal that goes on from its last iterate: u_0 is where it is now.
            state["centre"] = copy_of(p)
        super()._start(p, state, names)

    def _columns(
        self, group: dict[str, Any], states: list[dict[str, Tensor]]
    ) -> dict[str, list[Tensor]]:
        return {**super()._columns(group, states), "centre": [centre_of(s) for s in states]}

    def _factors(self, group: dict[str, Any]) -> list[Any]:
        pull, sign = (0.0, -1.0) if group["maximize"] else (1.0 / group["gamma"], 1.0)
        return [self._lr(group), pull, group["delta"], sign]

    def _kernel_state(self, group: dict[str, Any], state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**super()._kernel_state(group, state), "centre": centre_of(state)}

    def _move_one(
        self, group: dict[str, Any], lr: Any, p: Tensor, g: Tensor, state: dict[str, Tensor]
    ) -> None:
        d = -g if group["maximize"] else (p - state["reference"]).div_(group["gamma"]).add_(g)
        state["grad_sum"].add_(d)  # Alg. 3, line 3
        state["square_sum"].addcmul_(d, d)
        d.copy_(state["square_sum"]).sqrt_().add_(group["delta"])  # line 4: H
        p.copy_(state["centre"]).addcdiv_(state["grad_sum"], d.div_(-lr))  # line 5
        if not group["maximize"]:
            state["drift"].add_(p).sub_(state["centre"])

    def _move_many(
        self,
        group: dict[str, Any],
        lr: float,
        ps: list[Tensor],
        gs: list[Tensor],
        state: dict[str, list[Tensor]],
    ) -> None:
        if len(ps) == 1 and not group["maximize"]:
            _move_large(group, lr, ps[0], gs[0], {name: x[0] for name, x in state.items()})
            return
        if group["maximize"]:
            d = torch._foreach_neg(gs)
        else:
            d = torch._foreach_add(gs, ps, alpha=1.0 / group["gamma"])
            torch._foreach_add_(d, state["reference"], alpha=-1.0 / group["gamma"])
        torch._foreach_add_(state["grad_sum"], d)
        torch._foreach_addcmul_(state["square_sum"], d, d)
        torch._foreach_copy_(d, state["square_sum"])
        torch._foreach_sqrt_(d)
        dtype = d[0].dtype if len({x.dtype for x in d}) == 1 else torch.float64
        delta = d[0].new_full((), group["delta"], dtype=dtype)
        torch._foreach_add_(d, delta, alpha=1.0)  # a plain number takes three times as long
        torch._foreach_copy_(ps, state["centre"])
        torch._foreach_addcdiv_(ps, state["grad_sum"], d, value=-lr)
        if not group["maximize"]:
            torch._foreach_addcdiv_(state["drift"], state["grad_sum"], d, value=-lr)


def _move_large(
    group: dict[str, Any], lr: float, p: Tensor, g: Tensor, state: dict[str, Tensor]
) -> None:
    """The primal's step on one tensor in the fewest passes: ``out`` saves what lists must copy."""
    d = torch.add(g, p, alpha=1.0 / group["gamma"])
    d.add_(state["reference"], alpha=-1.0 / group["gamma"])
    state["grad_sum"].add_(d)
    state["square_sum"].addcmul_(d, d)
    torch.sqrt(state["square_sum"], out=d).add_(group["delta"])
    torch.addcdiv(state["centre"], state["grad_sum"], d, value=-lr, out=p)
    state["drift"].addcdiv_(state["grad_sum"], d, value=-lr)
