"""Sparse gradients in PPD-SG: rows that are left for later end where dense gradients bring them."""

import copy
import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from optim_helpers import assert_same, everything, make_params
from reference import ppd_sg

import aucmax
from aucmax import PPDSG, GroupedAUCLoss
from aucmax.data import count_classes

ROWS = 7
near = {"rtol": 0, "atol": 1e-12}


# ---- Helpers -----------------------------------------------------------------------------------


def make(shape=(ROWS,), dtype=torch.float64, **options):
    """A primal and a dual of the same shape, and their optimizer."""
    params = make_params(shape, shape, dtype=dtype)
    groups = [{"params": params[:1]}, {"params": params[1:], "maximize": True}]
    return params, PPDSG(groups, **{"lr": 0.3, "gamma": 2.0, **options})


def touched_rows(t):
    return np.flatnonzero(np.random.default_rng(t).uniform(size=ROWS) < 0.3)


def of_rows(rows, values, p):
    return torch.sparse_coo_tensor(rows[None], values, p.shape, check_invariants=True)


def set_grads(params, t, sparse):
    """Noise plus the point itself in the rows of step t, zero elsewhere."""
    rows = torch.tensor(touched_rows(t))
    for i, p in enumerate(params):
        if getattr(p, "catch_up", None) is not None:
            p.catch_up(rows)
        generator = torch.Generator().manual_seed(1000 * t + i)
        noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        dense = torch.zeros_like(p)
        dense[rows] = (p.detach() + noise)[rows].to(p.dtype)
        p.grad = of_rows(rows, dense[rows], p) if sparse else dense


def walk(params, optimizer, steps, sparse, first=0):
    for t in range(first, first + steps):
        set_grads(params, t, sparse)
        optimizer.step()


# ---- Equal to dense gradients ------------------------------------------------------------------


@given(
    plan=st.lists(
        st.tuples(
            st.integers(1, 6),
            st.sampled_from(["nothing", "average", "last", "look", "lr", "dense", "none"]),
        ),
        min_size=1,
        max_size=4,
    ),
    gamma=st.sampled_from([0.2, 2.0, 2000.0, math.inf]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    shape=st.sampled_from([(ROWS,), (ROWS, 2)]),
)
def test_sparse_gradients_equal_dense_gradients(plan, gamma, weight_decay, shape):
    """Over stages, changed step sizes, looks at the average, and steps of other gradients."""
    runs = []
    for sparse in (True, False):
        params, optimizer = make(shape, gamma=gamma, weight_decay=weight_decay)
        seen, t = [], 0
        for steps, then in plan:
            walk(params, optimizer, steps, sparse, t)
            t += steps
            if then in ("average", "last"):
                optimizer.end_stage(then)
            elif then == "look":
                seen += [average for _, average in optimizer.averages()]
            elif then == "lr":
                for group in optimizer.param_groups:
                    group["lr"] *= 0.7
            elif then == "dense":
                walk(params, optimizer, 1, sparse=False, first=t)
            elif then == "none":
                for p in params:
                    p.grad = None
                optimizer.step()
        optimizer.catch_up()
        runs.append([*seen, *params, *(average for _, average in optimizer.averages())])
    torch.testing.assert_close(*runs, **near)


@pytest.mark.parametrize("restart", ["average", "last"])
def test_sparse_gradients_match_reference(restart):
    params, optimizer = make()

    def grad(v, alpha, t):
        rows = np.isin(np.arange(ROWS), touched_rows(t))
        noises = [
            torch.randn(ROWS, generator=torch.Generator().manual_seed(1000 * t + i)).numpy()
            for i in (0, 1)
        ]
        return np.where(rows, v + noises[0], 0), np.where(rows, alpha + noises[1], 0)

    start = [p.detach().numpy().copy() for p in params]
    stages = [(0.3, range(20), None), (0.1, range(20, 45), None)]
    _, ends = ppd_sg.run(grad, *start, stages, 2.0, restart)
    for (lr, steps, _), end in zip(stages, ends, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = lr
        for t in steps:
            rows = torch.tensor(touched_rows(t))
            if getattr(params[0], "catch_up", None) is not None:
                params[0].catch_up(rows)
            gradients = grad(*(p.detach().numpy() for p in params), t)
            for p, g in zip(params, gradients, strict=True):
                p.grad = of_rows(rows, torch.tensor(g)[rows], p)
            optimizer.step()
        optimizer.end_stage(restart)
        np.testing.assert_allclose(params[0].detach(), end.v, **near)
        np.testing.assert_allclose(params[1].detach(), end.alpha, **near)


@pytest.mark.parametrize("link", ["sigmoid", "identity"])
def test_grouped_loss_with_sparse_gradients(link):
    rng = np.random.default_rng(0)
    group = torch.tensor(rng.integers(40, size=400))
    x, y = torch.tensor(rng.normal(size=(400, 3))), torch.tensor(rng.integers(2, size=400))
    found = []
    for sparse in (True, False):
        (weight,) = make_params((3,))
        options = {"sparse": sparse, "alpha_min": -0.2, "link": link}
        loss = GroupedAUCLoss(*count_classes(group, y), **options).double()
        primal, dual = [weight, loss.a, loss.b], [loss.alpha]
        groups = [{"params": primal}, {"params": dual, "maximize": True}]
        optimizer = PPDSG(groups, lr=0.3, gamma=5.0)
        sampler = aucmax.BatchSampler(y, 8)
        values = []
        for k in range(60):
            rows = sampler.rows(k)
            optimizer.zero_grad()
            value = loss(x[rows] @ weight, y[rows], group=group[rows])
            value.backward()
            assert loss.a.grad.is_sparse == sparse
            optimizer.step()
            values.append(value.item())
            if k == 40:
                optimizer.end_stage()
                loss.reset_dual(x @ weight, y, None, group)
        averages = [average for _, average in optimizer.averages()]
        found.append([torch.tensor(values, dtype=x.dtype), *primal, *averages])
        loss.alpha.data.clamp_(min=-0.2)  # of groups since last in a batch
        found[-1].append(loss.alpha)
    torch.testing.assert_close(*found, **near)


def test_rows_without_gradient_are_not_touched():
    params, optimizer = make()
    walk(params, optimizer, 1, sparse=True, first=3)
    rest = np.setdiff1d(np.arange(ROWS), touched_rows(4))
    before = everything(optimizer)
    walk(params, optimizer, 1, sparse=True, first=4)
    after = everything(optimizer)
    names = ["0.0", "1.0", "0.0.reference", "0.0.drift", "0.0.touched"]
    assert 0 < len(rest) < ROWS
    for name in names:
        assert torch.equal(before[name][rest], after[name][rest])
    optimizer.catch_up()
    assert (everything(optimizer)["0.0.drift"][rest] != after["0.0.drift"][rest]).any()


def test_repeated_rows_of_sparse_gradient_are_added():
    results = []
    for rows, values in ([[4, 1, 4], [1.0, 2.0, 5.0]], [[1, 4], [2.0, 6.0]]):
        params, optimizer = make()
        for p in params:
            p.grad = of_rows(torch.tensor(rows), torch.tensor(values).double(), p)
        optimizer.step()
        results.append([p.detach() for p in params])
    torch.testing.assert_close(*results, **near)


def test_sparse_half_precision_keeps_state_in_float32():
    params, optimizer = make(dtype=torch.bfloat16)
    walk(params, optimizer, 5, sparse=True)
    state = optimizer.state[params[0]]
    assert (state["drift"].dtype, state["touched"].dtype) == (torch.float32, torch.float64)
    assert params[0].isfinite().all()


# ---- Saved, copied -----------------------------------------------------------------------------


def save_and_load(params, optimizer):
    file = io.BytesIO()
    torch.save([[p.detach() for p in params], optimizer.state_dict()], file)
    file.seek(0)
    values, state = torch.load(file)
    params, optimizer = make(dtype=params[0].dtype)
    with torch.no_grad():
        for p, value in zip(params, values, strict=True):
            p.copy_(value)
    optimizer.load_state_dict(state)
    return params, optimizer


def copy_both(params, optimizer):
    return copy.deepcopy((params, optimizer))


@pytest.mark.parametrize(
    ("again", "dtype", "lr"),
    [
        (save_and_load, torch.float32, 0.1),
        (save_and_load, torch.float64, 0.3),
        (copy_both, torch.float64, 0.1),
    ],
)
def test_sparse_state_resumes_bit_for_bit(again, dtype, lr):
    params, optimizer = make(dtype=dtype)
    walk(params, optimizer, 6, sparse=True)
    for group in optimizer.param_groups:
        group["lr"] = lr  # rows that are behind owe steps of the old size
    others, other = again(params, optimizer)
    for each, own in ((params, optimizer), (others, other)):
        walk(each, own, 6, sparse=True, first=6)
    assert_same(everything(other), everything(optimizer))


def test_load_state_dict_drops_owed_steps():
    fresh = make()[1].state_dict()
    runs = [make(), make()]
    walk(*runs[0], 6, sparse=True)  # leaves rows behind
    for params, optimizer in runs:
        optimizer.load_state_dict(fresh)
        with torch.no_grad():
            for p in params:
                p.fill_(5.0)
        walk(params, optimizer, 6, sparse=True, first=7)
    assert_same(*(everything(optimizer) for _, optimizer in runs))


def test_save_and_load_whole_loss():
    loss = GroupedAUCLoss([1, 1], [1, 1], sparse=True)
    optimizer = PPDSG(loss.parameters())
    loss(torch.zeros(2), torch.tensor([0, 1]), group=torch.tensor([0, 0])).backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(loss, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False).a, loss.a)


# ---- What cannot be ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"differentiable": True}])
def test_options_that_need_dense_gradients_raise(options):
    params = make_params((ROWS,))
    before = params[0].detach().clone()
    optimizer = PPDSG(params, lr=0.1, **options)
    set_grads(params, 0, sparse=True)
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be 0"):
        optimizer.step()
    assert torch.equal(params[0], before)


def test_gradient_sparse_in_columns_raises():
    (p,) = make_params((ROWS, 2))
    p.grad = torch.zeros_like(p).to_sparse()
    with pytest.raises(ValueError, match="gradients must be dense"):
        PPDSG([p]).step()
