"""PPD-AdaGrad, the paper's Algorithm 3."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from aucmax import checks
from aucmax.optim.staged import Group, Lists, StagedOptimizer, State

__all__ = ["PPDAdaGrad"]


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
        >>> optimizer = aucmax.PPDAdaGrad(aucmax.minmax_groups(model, loss), lr=0.1)
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
    ) -> None:
        defaults = {
            "lr": lr,
            "gamma": gamma,
            "delta": delta,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _state_names(self, group: Group) -> list[str]:
        dual = group["maximize"]
        names = ["centre"] if dual else ["reference", "centre", "drift"]
        return [*names, "grad_sum", "square_sum"]

    def _begin_state(self, p: Tensor, state: State, names: list[str]) -> None:
        # u_0 is the reference, which then stands for it, unless the stage begins elsewhere: that
        # of the dual, or of a primal that continues from its last iterate.
        if "reference" in names and "reference" not in state:
            names = [name for name in names if name != "centre"]
        super()._begin_state(p, state, names)

    def _plain(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        gamma = group["gamma"]
        d = -g if group["maximize"] else (p - state["reference"]).div_(gamma).add_(g)  # line 3
        state["grad_sum"].add_(d)
        state["square_sum"].addcmul_(d, d)
        h = d.copy_(state["square_sum"]).sqrt_().add_(group["delta"])  # line 4
        p.copy_(state["centre"])  # line 5
        p.addcdiv_(state["grad_sum"], h.div_(-group["lr"]))

    def _foreach(self, ps: list[Tensor], gs: list[Tensor], state: Lists, group: Group) -> None:
        pull = 1.0 / group["gamma"]
        if group["maximize"]:  # line 3
            d = torch._foreach_neg(gs)
        else:
            d = torch._foreach_add(gs, ps, alpha=pull)
            torch._foreach_add_(d, state["reference"], alpha=-pull)
        torch._foreach_add_(state["grad_sum"], d)
        torch._foreach_addcmul_(state["square_sum"], d, d)
        torch._foreach_copy_(d, state["square_sum"])  # line 4
        torch._foreach_sqrt_(d)
        torch._foreach_add_(d, group["delta"])
        torch._foreach_copy_(ps, state["centre"])  # line 5
        if isinstance(group["lr"], Tensor):
            torch._foreach_div_(d, -group["lr"])
            torch._foreach_addcdiv_(ps, state["grad_sum"], d)
        else:
            torch._foreach_addcdiv_(ps, state["grad_sum"], d, value=-group["lr"])

    def _factors(self, group: Group) -> dict[str, Any]:
        return {
            "lr": group["lr"],
            "pull": 0.0 if group["maximize"] else 1.0 / group["gamma"],
            "delta": group["delta"],
            "sign": -1.0 if group["maximize"] else 1.0,
        }

    def should_stop(self, M: float, lipschitz: float) -> bool:
        r"""Return True if the stage has reached Lemma 3's stopping time, with c = 1/sqrt(d + 3).

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
