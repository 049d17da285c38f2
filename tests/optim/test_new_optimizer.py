"""An optimizer that the library does not have, added by its base class alone."""

import numpy as np
import pytest
import torch
from optim_helpers import everything, make_params, set_grads
from torch import nn

import aucmax
from aucmax.optim.staged import StagedOptimizer


class SignDescent(StagedOptimizer):
    """Steps by the sign of a running mean of the gradient, with the prox of PPD-SG.

    m <- beta m + (1 - beta) g and v <- v - lr (sign(m) + (v - v_0) / gamma); the dual goes uphill
    without a prox.
    """

    def __init__(self, params, lr=0.01, *, gamma=2000.0, beta=0.9, maximize=False, foreach=None):
        defaults = {"lr": lr, "gamma": gamma, "beta": beta}
        super().__init__(params, {**defaults, "maximize": maximize, "foreach": foreach})

    def _state_names(self, group):
        return ["mean"] if group["maximize"] else ["reference", "drift", "mean"]

    def _plain(self, p, g, state, group):
        d = state["mean"].mul_(group["beta"]).add_(g, alpha=1 - group["beta"]).sign()
        if group["maximize"]:
            d = -d
        else:
            d += (p - state["reference"]) / group["gamma"]
        p.sub_(d * group["lr"])

    def _foreach(self, ps, gs, state, group):
        lr = group["lr"]
        torch._foreach_lerp_(state["mean"], gs, 1 - group["beta"])
        if not group["maximize"]:
            torch._foreach_lerp_(ps, state["reference"], lr / group["gamma"])
        signs = torch._foreach_sign(state["mean"])
        torch._foreach_add_(ps, signs, alpha=lr if group["maximize"] else -lr)


GROUPS = {"primal": {}, "dual": {"maximize": True}, "in bounds": {"bounds": (-0.1, 0.3)}}


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("name", GROUPS)
def test_new_optimizer_averages_its_stages(name, foreach):
    params = make_params((3, 2), (5,))
    optimizer = SignDescent([{"params": params, **GROUPS[name]}], lr=0.05, foreach=foreach)
    for stage in range(2):
        points = [[p.detach().clone() for p in params]]
        for t in range(4):
            set_grads(params, 10 * stage + t)
            optimizer.step()
            points.append([p.detach().clone() for p in params])
        means = [torch.stack(column).mean(0) for column in zip(*points, strict=True)]
        assert len(list(optimizer.averages())) == (0 if name == "dual" else 2)
        optimizer.end_stage()
        torch.testing.assert_close(
            [p.detach() for p in params], points[-1] if name == "dual" else means
        )


def test_forms_of_new_optimizer_are_equal():
    results = []
    for foreach in (None, False):
        params = make_params((3, 2), (5,))
        optimizer = SignDescent(params, foreach=foreach)
        for t in range(5):
            set_grads(params, t)
            optimizer.step()
        results.append(everything(optimizer))
    torch.testing.assert_close(*results)


def test_new_optimizer_learns_to_rank():
    """With the groups of a model, stages, and the average in place of the last iterate."""
    rng = np.random.default_rng(0)
    y = torch.tensor(rng.uniform(size=400) < 0.2)
    x = torch.tensor(rng.normal(size=(400, 3)), dtype=torch.float32) + y[:, None]
    torch.manual_seed(0)
    model, loss = nn.Linear(3, 1), aucmax.AUCLoss(0.2)
    optimizer = SignDescent(aucmax.minmax_groups(model, loss), lr=0.02)
    for stage in aucmax.stages.geometric(0.02, 100, stages=2):
        stage.set_lr(optimizer)
        for _ in range(stage.steps):
            rows = torch.tensor(rng.integers(400, size=64))
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
        optimizer.end_stage()
        loss.reset_dual(model(x), y)
    with torch.no_grad(), aucmax.averaged(model, optimizer):
        assert aucmax.metrics.roc_auc(model(x), y) > 0.85
