"""The parts the optimizers are made of, and corners that a user can reach."""

import math
import os
import sys

import pytest
import torch
from errors import assert_names
from optim_helpers import (
    assert_near,
    assert_same,
    average_of,
    everything,
    make_batch,
    make_params,
    make_task,
    set_grads,
    train_step,
    walk,
)
from torch import nn

from aucmax import OAUC, PGA, PPDSG, PPDAdaGrad

ALL = pytest.mark.parametrize("cls", [PPDSG, PPDAdaGrad, PGA, OAUC])
FOREACH = pytest.mark.parametrize("foreach", [None, False], ids=["foreach", "single"])


# ---- Small helpers -----------------------------------------------------------------------------


def test_average_in_half_precision_after_many_steps():
    p = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = PPDSG([p], lr=0.0)
    for _ in range(300):
        p.grad = torch.zeros_like(p)
        optimizer.step()
    with torch.no_grad():
        p.fill_(2.0)
    optimizer.step()
    torch.testing.assert_close(average_of(optimizer, p), torch.tensor([1 + 1 / 302]))


def test_cuda_graph_capture_raises(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="CUDA graph"):
        PPDSG(make_params((2,))).step()


@ALL
def test_counters_stay_on_cpu(cls):
    """They are read at every step; on an accelerator that would wait for it."""
    params = make_params((2,))
    optimizer = cls(params)
    set_grads(params, 0)
    with torch.device("meta"):
        optimizer.step()
    assert {x.device.type for x in optimizer.state[params[0]].values()} == {"cpu"}


# ---- torch's arguments -----------------------------------------------------------------------


@ALL
@pytest.mark.parametrize("flags", [{"foreach": "yes"}, {"capturable": None}, {"maximize": 2}])
def test_bad_flags_of_optimizers_and_groups_are_named(cls, flags):
    (argument,) = flags
    assert_names(argument, cls, make_params((2,)), **flags)
    assert_names(argument, cls, [{"params": make_params((2,)), **flags}])


def test_lr_scale_of_0_2_raises():
    with pytest.raises(ValueError, match="give the group its lr"):
        PPDSG([{"params": make_params((2,)), "lr_scale": 10.0}])


@pytest.mark.parametrize("cls", [PPDSG, PPDAdaGrad])
def test_fused_and_foreach_together_raise(cls):
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
        cls(make_params((2,)), fused=True, foreach=True)
    assert_names("fused", cls, make_params((2,)), fused=2)


@pytest.mark.parametrize("cls", [PPDSG, PPDAdaGrad])
def test_fused_on_cpu_changes_nothing(cls):
    results = []
    for fused in (None, True):
        params = make_params((3, 4), (4,))
        optimizer = cls(params, gamma=2.0, fused=fused)
        walk(optimizer, params, 3)
        results.append(everything(optimizer))
    assert_same(*results)


def test_step_takes_few_calls():
    """Of functions in aucmax, for the three groups of a model and its loss."""
    task = make_task()
    optimizer = PPDSG(task.groups())
    for t in range(2):
        train_step(task, optimizer, make_batch(t))
    calls = []

    def note(frame, event, _):
        code = frame.f_code
        is_own = "aucmax" in code.co_filename.split(os.sep) and not code.co_name.startswith("<")
        if event == "call" and is_own:
            calls.append(code.co_name)

    sys.setprofile(note)
    try:
        optimizer.step()
    finally:
        sys.setprofile(None)
    assert 3 < len(calls) <= 20, calls


# ---- Settings at the edge ----------------------------------------------------------------------


@ALL
def test_empty_group(cls):
    (p,) = make_params((3,))
    start = p.detach().clone()
    optimizer = cls([{"params": []}, {"params": [p]}], lr=0.1)
    walk(optimizer, [p], 1)
    assert not torch.equal(p.detach(), start)
    cls([{"params": []}]).step()


@ALL
@FOREACH
def test_lr_zero_moves_nothing(cls, foreach):
    params = make_params((3,), ())
    start = [p.detach().clone() for p in params]
    optimizer = cls(params, lr=0.0, foreach=foreach)
    walk(optimizer, params, 2)
    for p, value in zip(params, start, strict=True):
        assert torch.equal(p.detach(), value)
    averages = dict(optimizer.averages())
    assert all(torch.equal(averages[p], p.detach()) for p in params)


@ALL
@FOREACH
def test_warm_up_from_lr_zero(cls, foreach):
    params = make_params((3,))
    optimizer = cls(params, lr=0.0, foreach=foreach)
    walk(optimizer, params, 2)
    optimizer.param_groups[0]["lr"] = 0.1
    start = params[0].detach().clone()
    walk(optimizer, params, 3, first=2)
    assert torch.isfinite(params[0]).all()
    assert not torch.equal(params[0].detach(), start)
    assert torch.isfinite(average_of(optimizer, params[0])).all()


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_ppdsg_with_lr_times_weight_decay_one(momentum):
    """lr * weight_decay = 1: nothing of the point is kept, in lists and one by one."""
    results = []
    for foreach in (None, False):
        params = make_params((3,), (2, 2))
        optimizer = PPDSG(
            params, lr=2.0, weight_decay=0.5, gamma=3.0, momentum=momentum, foreach=foreach
        )
        walk(optimizer, params, 3)
        results.append(everything(optimizer))
    assert_near(*results, rtol=1e-12, atol=1e-12)


@FOREACH
def test_momentum_switched_on_during_training(foreach):
    """As with torch's SGD, which is the same here: no prox."""
    ours, theirs = make_params((3,)), make_params((3,))
    optimizers = (
        PPDSG(ours, lr=0.1, gamma=math.inf, foreach=foreach),
        torch.optim.SGD(theirs, lr=0.1),
    )
    for optimizer, params in zip(optimizers, (ours, theirs), strict=True):
        walk(optimizer, params, 2)
        optimizer.param_groups[0]["momentum"] = 0.9
        walk(optimizer, params, 4, first=2)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-13, atol=1e-13)


# ---- PGA's ball holds what is trained ----------------------------------------------------------


@FOREACH
def test_pga_skips_frozen_parameters(foreach):
    moving, frozen = make_params((3,), (4,))
    frozen.requires_grad_(False)
    start = frozen.detach().clone()
    optimizer = PGA([moving, frozen], lr=0.1, radius=0.5, foreach=foreach)
    walk(optimizer, [moving], 1)
    assert torch.equal(frozen, start)
    assert moving.norm().item() == pytest.approx(0.5)


def test_pga_averages_projected_points():
    first, late = make_params((3,), (4,))
    optimizer = PGA([first, late], lr=0.1, radius=0.5)
    points = []
    for t in range(4):
        set_grads([first, late] if t >= 2 else [first], t)
        optimizer.step()
        points.append(late.detach().clone())
    average = dict(optimizer.averages())[late]
    torch.testing.assert_close(average, torch.stack(points).mean(0), rtol=1e-12, atol=0)


# ---- Precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (PPDSG, {"gamma": 3.0, "momentum": 0.9}),
        (PPDAdaGrad, {"gamma": 3.0, "delta": 0.1}),
        (PGA, {"gamma": 3.0, "radius": 1.3}),
        (OAUC, {}),
    ],
)
def test_mixed_precision_parameters(cls, options):
    results = []
    for foreach in (None, False):
        params = [*make_params((3,), dtype=torch.float32), *make_params((5,), seed=1)]
        walk(cls(params, lr=0.1, foreach=foreach, **options), params, 4)
        results.append(params[1].detach())
        assert params[0].dtype == torch.float32
    # PGA's common norm is that of the single-precision one; the others do not mix
    tolerance = 1e-6 if cls is PGA else 1e-13
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


# ---- should_stop -------------------------------------------------------------------------------


def test_should_stop_before_first_step():
    assert PPDAdaGrad(make_params((2,))).should_stop(M=1e-9, lipschitz=0.0) is False


def test_should_stop_with_an_empty_parameter():
    params = make_params((3,), (0,))
    optimizer = PPDAdaGrad(params)
    walk(optimizer, params, 1)
    assert optimizer.should_stop(M=1e-9, lipschitz=0.1) is True
    assert optimizer.should_stop(M=1e9, lipschitz=0.1) is False


def test_bad_constants_of_should_stop_are_named():
    optimizer = PPDAdaGrad(make_params((2,)))
    for M in (0.0, math.nan):
        assert_names("M", optimizer.should_stop, M, 1.0)
    assert_names("lipschitz", optimizer.should_stop, 1.0, -1.0)
