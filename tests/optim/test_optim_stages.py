"""What must hold across stages and long stages, whatever the algorithm."""

import numpy as np
import pytest
import torch
from optim_helpers import average_of, make_params, set_grads, walk
from torch import nn

import aucmax
from aucmax import OAUC, PGA, PPDSG, PPDAdaGrad

STAGED = pytest.mark.parametrize("cls", [PPDSG, PPDAdaGrad, PGA])
PPD = pytest.mark.parametrize("cls", [PPDSG, PPDAdaGrad])


@STAGED
@pytest.mark.parametrize("foreach", [None, False])
def test_an_average_in_single_precision_does_not_stand_still_in_a_long_stage(cls, foreach):
    """Each step's share is a hundred-millionth: lost in a running mean, not in a sum."""
    p = nn.Parameter(torch.ones(8))
    optimizer = cls([p], lr=0.0, foreach=foreach)
    points = [p.detach().double().numpy().copy()]
    for t in range(2000):
        p.grad = torch.zeros_like(p)
        optimizer.step()
        if cls is PPDSG or cls is PGA:  # PPD-AdaGrad's points follow from its sums alone
            with torch.no_grad():
                p.fill_(1.0 + 1e-4 * t / 2000)
        points.append(p.detach().double().numpy().copy())
    found = average_of(optimizer, p).double().numpy()
    if cls is PPDAdaGrad:
        assert np.array_equal(found, points[0])
    else:  # the point of step t is seen at step t + 1
        expected = np.mean(points[:-1] if cls is PGA else [points[0], *points[:-1]], axis=0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-7)
        assert abs(found[0] - 1.0) > 4e-5


SETTLED = {
    "PPDSG": lambda ps: PPDSG(ps, lr=0.1),
    "PPDAdaGrad": lambda ps: PPDAdaGrad(ps, lr=3.0),
    "PGA": lambda ps: PGA(ps, lr=0.1),
    "IterateAverage": lambda ps: aucmax.IterateAverage(torch.optim.SGD(ps, lr=0.1)),
}


@pytest.mark.parametrize("name", SETTLED)
def test_float32_average_of_20000_settled_steps(name):
    """After a hundred steps or so the point stands still: a running mean loses 16 percent here."""
    generator = torch.Generator().manual_seed(0)
    start, away = torch.randn(2, 300, generator=generator)
    averages = []
    for dtype in (torch.float32, torch.float64):
        p = nn.Parameter(start.to(dtype, copy=True))
        optimizer = SETTLED[name]([p])
        target = p.detach() + away.to(dtype)
        step = getattr(optimizer, "optimizer", optimizer).step
        for _ in range(20_000):
            p.grad = p.detach() - target
            step()
            if isinstance(optimizer, aucmax.IterateAverage):
                optimizer.update()
        averages.append(average_of(optimizer, p).double())
    error = (averages[0] - averages[1]).abs() / away.abs().double()
    assert error.max() < 1e-3


def test_late_parameter_is_averaged_over_whole_stage():
    """Also where the stage goes on from the last iterate, away from the reference."""
    steady, late = make_params((3,), (4,))
    optimizer = PPDSG([steady, late], lr=0.1, gamma=2.0)
    walk(optimizer, [steady, late], 3)
    optimizer.end_stage("last")
    points = [late.detach().clone()]
    for t in range(3, 8):
        set_grads([steady, late], t)
        late.grad = late.grad if t >= 6 else None
        optimizer.step()
        points.append(late.detach().clone())
    torch.testing.assert_close(average_of(optimizer, late), torch.stack(points).mean(0))


@PPD
def test_stage_starts_at_values_set_between_stages(cls):
    torch.manual_seed(0)
    model, loss = nn.Linear(3, 1), aucmax.AUCLoss(0.5)
    optimizer = cls(aucmax.minmax_groups(model, loss), lr=1e-6)
    x, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    for _ in range(2):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    optimizer.end_stage()
    loss.reset_primal(model(x), y)
    loss.reset_dual(model(x), y)
    expected = [v.item() for v in (loss.a, loss.b, loss.alpha)]
    optimizer.zero_grad()
    loss(model(x), y).backward()
    optimizer.step()
    assert [v.item() for v in (loss.a, loss.b, loss.alpha)] == pytest.approx(expected, abs=1e-4)
    assert average_of(optimizer, loss.a).item() == pytest.approx(expected[0], abs=1e-4)


def test_interrupted_adagrad_step_keeps_parameters(monkeypatch):
    params = make_params((4,), (4,))
    optimizer = PPDAdaGrad(params, lr=0.1)
    walk(optimizer, params, 1)
    before = [p.detach().clone() for p in params]

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "_foreach_sqrt_", interrupt)
    set_grads(params, 1)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert all(torch.equal(p.detach(), x) for p, x in zip(params, before, strict=True))


def test_huge_gamma_is_no_prox():
    results = []
    for gamma in (1e30, torch.inf):
        (p,) = make_params((4,), dtype=torch.float32)
        walk(PPDAdaGrad([p], lr=0.1, gamma=gamma), [p], 3)
        results.append(p.detach())
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("cls", [PPDAdaGrad, PGA, OAUC])
def test_weight_decay_raises_where_unsupported(cls):
    params = make_params((2,))
    with pytest.raises(ValueError, match=r"has no weight_decay, found 0\.01"):
        cls([{"params": params, "weight_decay": 0.01}])
    cls([{"params": params, "weight_decay": 0.0}])  # as minmax_groups says it


@pytest.mark.parametrize("cls", [PPDAdaGrad, PGA, OAUC])
def test_sparse_gradient_raises_before_any_step(cls):
    first, second = make_params((2,), (2,))
    optimizer = cls([{"params": [first]}, {"params": [second]}])
    set_grads([first], 0)
    second.grad = torch.zeros_like(second).to_sparse()
    before = first.detach().clone()
    with pytest.raises(ValueError, match="gradients must be dense"):
        optimizer.step()
    assert torch.equal(first.detach(), before)


def test_averaged_needs_common_parameters():
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer = PPDSG(model.parameters())
    with (
        pytest.raises(ValueError, match="found no common parameter"),
        aucmax.averaged(other, optimizer),
    ):
        pass


def test_update_batch_norm_without_batches():
    model = nn.Sequential(nn.BatchNorm1d(1))
    model(torch.tensor([[1.0], [3.0]]))
    before = model[0].running_mean.clone()
    with pytest.raises(ValueError, match="at least one batch"):
        aucmax.update_batch_norm(model, [])
    assert torch.equal(model[0].running_mean, before)
    assert model.training


def test_pga_output_last():
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = aucmax.PGA([p], lr=0.1, output="last")
    for _ in range(3):
        points = []
        for _ in range(4):
            p.grad = 2 * p.detach()
            optimizer.step()
            points.append(p.detach().clone())
            ((_, running),) = optimizer.averages()
            torch.testing.assert_close(running, torch.stack(points).mean(0))
        optimizer.end_stage()
        ((_, last),) = optimizer.averages()
        torch.testing.assert_close(last, torch.stack(points).mean(0))
        torch.testing.assert_close(p.detach(), last)
    with pytest.raises(ValueError, match="output must be 'drawn' or 'last', found 'best'"):
        aucmax.PGA([p], output="best")
