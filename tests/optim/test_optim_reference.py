"""The optimizers against their NumPy transcriptions, and against torch's SGD."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from optim_helpers import (
    PRIOR,
    end_stage,
    flat,
    make_batch,
    make_params,
    make_task,
    set_grads,
    set_lr,
    train_step,
    walk,
)
from reference import oauc, pga, ppd_adagrad, ppd_sg
from reference.objective import OneHidden, closed_form_dual, saddle_gradient

from aucmax import OAUC, PGA, PPDSG, PPDAdaGrad, averaged

MODEL = OneHidden(inputs=4, hidden=5)
GAMMA, DELTA = 3.0, 0.4
LRS, STEPS = (0.3, 0.1, 0.03), (6, 8, 10)

RESTARTS = pytest.mark.parametrize("restart", ["average", "last"])
FOREACH = pytest.mark.parametrize("foreach", [None, False], ids=["foreach", "single"])


# ---- Both sides of the comparison --------------------------------------------------------------


def stage_batches():
    """Three stages of batches, some of one class only, and fresh samples for each stage's end."""
    bounds = pairwise(np.cumsum([0, *STEPS]))
    batches = [[make_batch(seed) for seed in range(first, last)] for first, last in bounds]
    return batches, [make_batch(100 + k, n=40, both_classes=True) for k in range(3)]


def start_of(task):
    return flat(task.primal()), flat([task.loss.alpha])


def gradient(v, alpha, batch):
    return saddle_gradient(MODEL, v, alpha, *batch, PRIOR, normalize=True)


def ppd_stages():
    batches, fresh = stage_batches()
    duals = [closed_form_dual(MODEL, *samples) for samples in fresh]
    return list(zip(LRS, batches, duals, strict=True))


def observe(task, optimizer):
    """v, alpha and their running averages, read out of the optimizer's state."""
    running = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p, {})
            if "drift" in state:
                running[id(p)] = optimizer._average(state, state["step"].item())
            elif "average" in state:
                running[id(p)] = state["average"]
    average = flat([running[id(p)] for p in task.primal()])
    dual = running.get(id(task.loss.alpha))
    return *start_of(task), average, None if dual is None else flat([dual])


def train(task, optimizer, restart="average", reset_dual=True):
    """Three stages; what is observed after every step, and v and alpha after every stage."""
    steps, ends = [], []
    for lr, batches, fresh in zip(LRS, *stage_batches(), strict=True):
        set_lr(optimizer, lr)
        for batch in batches:
            train_step(task, optimizer, batch)
            steps.append(observe(task, optimizer))
        if reset_dual:
            end_stage(task, optimizer, fresh, restart)
        else:
            optimizer.end_stage(restart)
        ends.append(start_of(task))
    return steps, ends


near = partial(np.testing.assert_allclose, rtol=0, atol=1e-10)


def assert_steps_near(steps, expected):
    """v, alpha and v's average at every step; alpha's average where the method has one."""
    assert len(steps) == len(expected) == sum(STEPS)
    for (v, alpha, average, alpha_average), step in zip(steps, expected, strict=True):
        near(v, step.v)
        near(alpha, step.alpha)
        near(average, step.average)
        assert (alpha_average is None) == (not hasattr(step, "alpha_average"))
        if alpha_average is not None:
            near(alpha_average, step.alpha_average)


def assert_ends_near(ends, expected):
    for (v, alpha), end in zip(ends, expected, strict=True):
        near(v, end.v)
        near(alpha, end.alpha)


# ---- PPD-SG and PPD-AdaGrad --------------------------------------------------------------------


@RESTARTS
@FOREACH
def test_ppdsg_is_algorithm_2(restart, foreach):
    task = make_task()
    expected = ppd_sg.run(gradient, *start_of(task), ppd_stages(), GAMMA, restart)
    steps, ends = train(task, PPDSG(task.groups(), gamma=GAMMA, foreach=foreach), restart)
    assert_steps_near(steps, expected[0])
    assert_ends_near(ends, expected[1])


@RESTARTS
@FOREACH
def test_ppdadagrad_is_algorithm_3(restart, foreach):
    task = make_task()
    settings = {"gamma": GAMMA, "delta": DELTA}
    expected = ppd_adagrad.run(gradient, *start_of(task), ppd_stages(), **settings, restart=restart)
    steps, ends = train(task, PPDAdaGrad(task.groups(), foreach=foreach, **settings), restart)
    assert_steps_near(steps, expected[0])
    assert_ends_near(ends, expected[1])


@pytest.mark.parametrize(("M", "lipschitz"), [(0.12, 0.1), (0.006, 2.0), (1e-9, 0.1), (1e3, 0.1)])
def test_should_stop_is_lemma_3(M, lipschitz):
    task = make_task()
    optimizer = PPDAdaGrad(task.groups(), gamma=GAMMA, delta=DELTA)
    expected, _ = ppd_adagrad.run(gradient, *start_of(task), ppd_stages(), GAMMA, DELTA)
    rule = partial(
        ppd_adagrad.stopping_time_reached,
        M=M,
        delta=DELTA,
        lipschitz=lipschitz,
        c=1 / math.sqrt(len(expected[0].norms)),
    )
    answers, reference = iter(expected), []
    for lr, batches, fresh in zip(LRS, *stage_batches(), strict=True):
        set_lr(optimizer, lr)
        assert not optimizer.should_stop(M, lipschitz)
        for tau, batch in enumerate(batches, start=1):
            train_step(task, optimizer, batch)
            reference.append(bool(rule(tau, next(answers).norms)))
            assert optimizer.should_stop(M, lipschitz) is reference[-1]
        end_stage(task, optimizer, fresh)
    if 1e-9 < M < 1e3:  # the cases in between stop within a stage, by either part of the maximum
        assert {True, False} == set(reference)


# ---- PGA ---------------------------------------------------------------------------------------

RADII = {"R1": 2.2, "R2": 0.02}


def pga_reference(task):
    stages = list(zip(LRS, stage_batches()[0], strict=True))
    return pga.run(gradient, *start_of(task), stages, GAMMA, **RADII)


def make_pga(task, **options):
    radii = {"radius": RADII["R1"], "dual_radius": RADII["R2"]}
    return PGA(task.groups(), gamma=GAMMA, **radii, **options)


@FOREACH
def test_pga_is_algorithm_1(foreach):
    task = make_task()
    expected = pga_reference(task)
    steps, ends = train(task, make_pga(task, foreach=foreach), reset_dual=False)
    assert_steps_near(steps, expected[0])
    assert_ends_near(ends, expected[1])


def test_pga_radii_bind_at_some_steps_only():
    steps, _ = pga_reference(make_task())
    points_of_both = [step.v for step in steps], [step.alpha for step in steps]
    for points, radius in zip(points_of_both, RADII.values(), strict=True):
        on_the_sphere = [np.isclose(np.linalg.norm(point), radius) for point in points]
        assert {True, False} == set(on_the_sphere)


def test_pga_without_radii_does_not_project():
    task = make_task()
    stages = list(zip(LRS, stage_batches()[0], strict=True))
    expected = pga.run(gradient, *start_of(task), stages, GAMMA, math.inf, math.inf)
    steps, _ = train(task, PGA(task.groups(), gamma=GAMMA), reset_dual=False)
    assert_steps_near(steps, expected[0])


def test_pga_returns_one_stage_average():
    _, expected = pga_reference(make_task())
    drawn = set()
    for seed in range(12):
        task = make_task()
        optimizer = make_pga(task, seed=seed)
        train(task, optimizer, reset_dual=False)
        with averaged(task.model, optimizer):
            v, alpha = start_of(task)
        matches = [k for k, end in enumerate(expected) if np.abs(v - end.v).max() < 1e-10]
        assert len(matches) == 1
        near(alpha, expected[matches[0]].alpha)
        drawn.add(matches[0])
    assert drawn == {0, 1, 2}


def drawn_stages(seed, stages):
    """Which stage is the drawn one after 1, 2, ... stages of one step each."""
    p = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = PGA([p], lr=1.0, seed=seed)
    drawn = []
    for _ in range(stages):
        p.grad = -torch.ones_like(p)
        optimizer.step()
        optimizer.end_stage()  # stage k's average is k
        drawn.append(int(next(optimizer.averages())[1]))
    return drawn


def test_pga_draws_stage_uniformly():
    seeds, stages = 800, 4
    draws = np.array([drawn_stages(seed, stages) for seed in range(seeds)])
    for k in range(1, stages + 1):
        counts = np.bincount(draws[:, k - 1], minlength=k + 1)
        assert counts[0] == 0
        expected = seeds / k
        chi_square = ((counts[1:] - expected) ** 2 / expected).sum()
        assert chi_square < 21  # beyond the 0.9998 quantile, three degrees of freedom or fewer


def test_pga_draws_without_torchs_global_generator():
    state = torch.get_rng_state()
    first = drawn_stages(seed=3, stages=6)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(123)
    assert drawn_stages(seed=3, stages=6) == first


def test_pga_end_stage_without_step():
    (p,) = make_params((3,))
    optimizer = PGA([p])
    walk(optimizer, [p], 2)
    optimizer.end_stage()
    optimizer.end_stage()
    assert optimizer.param_groups[0]["stages_ended"] == 1


# ---- OAUC --------------------------------------------------------------------------------------


@FOREACH
def test_oauc_is_the_method_of_2016(foreach):
    """Whose averages the end of a stage leaves alone."""
    task = make_task()
    optimizer = OAUC(task.groups(), lr=0.3, foreach=foreach)
    stages, _ = stage_batches()
    batches = [batch for stage in stages for batch in stage]
    expected = oauc.run(gradient, *start_of(task), batches, 0.3)
    steps = []
    for batch in batches:
        train_step(task, optimizer, batch)
        steps.append(observe(task, optimizer))
        optimizer.end_stage()
    assert_steps_near(steps, expected)


# ---- torch's SGD as an outside oracle ----------------------------------------------------------

SHAPES = (3, 4), (4,), (2, 3, 2)


def iterates_on(optimizer, params, add_to_gradient=lambda params: None):
    points = []
    for t in range(8):
        set_grads(params, t)
        add_to_gradient(params)
        optimizer.step()
        points.append(flat(params))
    return np.array(points)


@FOREACH
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.2])
def test_ppdsg_without_prox_is_torchs_sgd(momentum, weight_decay, foreach):
    options = {"lr": 0.1, "momentum": momentum, "weight_decay": weight_decay}
    ours, theirs = make_params(*SHAPES), make_params(*SHAPES)
    actual = iterates_on(PPDSG(ours, gamma=math.inf, foreach=foreach, **options), ours)
    expected = iterates_on(torch.optim.SGD(theirs, foreach=False, **options), theirs)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13)


@FOREACH
@pytest.mark.parametrize("gamma", [0.5, math.inf])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_dual_is_torchs_maximizing_sgd(momentum, gamma, foreach):
    options = {"lr": 0.1, "momentum": momentum, "maximize": True}
    ours, theirs = make_params(*SHAPES), make_params(*SHAPES)
    dual = PPDSG(ours, gamma=gamma, weight_decay=0.2, foreach=foreach, **options)
    expected = iterates_on(torch.optim.SGD(theirs, foreach=False, **options), theirs)
    np.testing.assert_allclose(iterates_on(dual, ours), expected, rtol=0, atol=1e-13)


@FOREACH
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_ppdsg_is_torchs_sgd_on_proximal_objective(momentum, foreach):
    options = {"lr": 0.1, "momentum": momentum, "weight_decay": 0.2}
    ours, theirs = make_params(*SHAPES), make_params(*SHAPES)
    centres = [p.detach().clone() for p in theirs]

    def prox(params):
        for p, centre in zip(params, centres, strict=True):
            p.grad += (p.detach() - centre) / GAMMA

    actual = iterates_on(PPDSG(ours, gamma=GAMMA, foreach=foreach, **options), ours)
    expected = iterates_on(torch.optim.SGD(theirs, foreach=False, **options), theirs, prox)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13)


@FOREACH
def test_end_stage_zeroes_momentum(foreach):
    """Afterwards the dual, which nothing else touches, goes on like a new SGD."""
    options = {"lr": 0.1, "momentum": 0.9, "maximize": True}
    ours = make_params(*SHAPES)
    dual = PPDSG(ours, foreach=foreach, **options)
    walk(dual, ours, 3)
    dual.end_stage()
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    expected = iterates_on(torch.optim.SGD(theirs, foreach=False, **options), theirs)
    np.testing.assert_allclose(iterates_on(dual, ours), expected, rtol=0, atol=1e-13)
