"""The average of any optimizer's iterates, against a plain mean in double precision."""

import copy
import io

import numpy as np
import pytest
import torch
from optim_helpers import as_tensors, make_batch, make_params, make_task, set_grads, walk
from torch import nn

from aucmax import IterateAverage, averaged

OPTIMIZERS = {
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    "Adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.1),
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.01),
}


def iterates(optimizer, average, params, steps, first=0):
    """Walk, and keep every point that the optimizer came to."""
    seen = []
    for t in range(first, first + steps):
        set_grads(params, t)
        optimizer.step()
        average.update()
        seen.append([p.detach().double().clone() for p in params])
    return seen


def means(seen):
    return [torch.stack(column).mean(0) for column in zip(*seen, strict=True)]


def found(average):
    return [value.double() for _, value in average.averages()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_iterate_average_is_mean(name):
    params = make_params((3, 4), (5,), ())
    optimizer = OPTIMIZERS[name](params)
    average = IterateAverage(optimizer)
    seen = iterates(optimizer, average, params, 9)
    torch.testing.assert_close(found(average), means(seen), rtol=1e-12, atol=1e-12)
    assert [p for p, _ in average.averages()] == params


@pytest.mark.parametrize("restart", ["last", "average"])
def test_end_stage_starts_new_average(restart):
    params = make_params((3, 4))
    optimizer = OPTIMIZERS["SGD"](params)
    average = IterateAverage(optimizer)
    first = iterates(optimizer, average, params, 6)
    average.end_stage(restart)
    expected = means(first) if restart == "average" else first[-1]
    torch.testing.assert_close([p.detach() for p in params], expected, rtol=1e-12, atol=1e-12)
    second = iterates(optimizer, average, params, 5, first=6)
    torch.testing.assert_close(found(average), means(second), rtol=1e-12, atol=1e-12)


def test_unknown_restart_raises():
    average = IterateAverage(OPTIMIZERS["SGD"](make_params((2,))))
    with pytest.raises(ValueError, match="restart must be 'average' or 'last', found 'best'"):
        average.end_stage("best")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_iterate_average_of_half_precision(dtype):
    params = make_params((50,), dtype=dtype)
    optimizer = torch.optim.SGD(params, lr=0.05)
    average = IterateAverage(optimizer)
    seen = iterates(optimizer, average, params, 20)
    ((_, value),) = average.averages()
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), means(seen)[0], rtol=1e-5, atol=1e-6)


def test_iterate_average_of_long_stage_in_float32():
    """The mean of 20,000 points that drift slowly, to a few digits of the distance."""
    p = nn.Parameter(torch.full((1,), 1000.0))
    average = IterateAverage(torch.optim.SGD([p], lr=1.0))
    points = 1000.0 + np.arange(20_000, dtype=np.float64).astype(np.float32) * np.float32(2**-10)
    for point in points:
        p.data.fill_(float(point))
        average.update()
    ((_, value),) = average.averages()
    assert value.item() == pytest.approx(points.astype(np.float64).mean(), abs=1e-3)


def test_iterate_average_skips_dual():
    task = make_task()
    average = IterateAverage(torch.optim.Adam(task.groups(), lr=0.1))
    for t in range(3):
        x, y = as_tensors(make_batch(t))
        task.loss(task.model(x), y).backward()
        average.optimizer.step()
        average.update()
    names = {id(p) for p, _ in average.averages()}
    assert names == {id(p) for p in task.primal()}
    assert id(task.loss.alpha) not in names


def test_iterate_average_skips_frozen_parameters():
    params = make_params((2,), (3,))
    params[0].requires_grad_(False)
    optimizer = torch.optim.SGD(params, lr=0.1)
    average = IterateAverage(optimizer)
    walk(optimizer, params[1:], 2)
    average.update()
    assert [p for p, _ in average.averages()] == params[1:]


def test_averaged_with_iterate_average():
    torch.manual_seed(0)
    model = nn.Linear(4, 1).double()
    params = list(model.parameters())
    average = IterateAverage(OPTIMIZERS["AdamW"](params))
    seen = iterates(average.optimizer, average, params, 4)
    with averaged(model, average):
        torch.testing.assert_close([p.detach() for p in params], means(seen))
    assert all(torch.equal(p, last) for p, last in zip(params, seen[-1], strict=True))


def test_iterate_average_before_first_step():
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()
    with averaged(model, IterateAverage(torch.optim.SGD(model.parameters(), lr=0.1))):
        assert torch.equal(model.weight, before)


def test_iterate_average_does_not_change_optimizer():
    plain, watched = make_params((3, 2)), make_params((3, 2))
    walk(OPTIMIZERS["AdamW"](plain), plain, 5)
    optimizer = OPTIMIZERS["AdamW"](watched)
    iterates(optimizer, IterateAverage(optimizer), watched, 5)
    assert torch.equal(plain[0], watched[0])


@pytest.mark.parametrize("steps_before", [0, 4])
def test_iterate_average_state_dict(steps_before):
    params = make_params((3, 4), (2,))
    average = IterateAverage(OPTIMIZERS["SGD"](params))
    iterates(average.optimizer, average, params, steps_before)
    file = io.BytesIO()
    torch.save(average.state_dict(), file)
    optimizer_state = copy.deepcopy(average.optimizer.state_dict())
    copies = [nn.Parameter(p.detach().clone()) for p in params]
    iterates(average.optimizer, average, params, 3, first=9)

    loaded = IterateAverage(OPTIMIZERS["SGD"](copies))
    loaded.optimizer.load_state_dict(optimizer_state)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    iterates(loaded.optimizer, loaded, copies, 3, first=9)
    for a, b in zip(found(loaded), found(average), strict=True):
        assert torch.equal(a, b)


def test_other_parameters_than_those_averaged_raise():
    params = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2), requires_grad=False)]
    average = IterateAverage(torch.optim.SGD(params, lr=0.1))
    average.update()
    params[1].requires_grad_(True)
    with pytest.raises(ValueError, match=r"optimizer must train the same.* found 2 after 1"):
        average.update()
    average.end_stage()
    average.update()
    assert len(found(average)) == 2
    with pytest.raises(ValueError, match="optimizer must be an optimizer, found NoneType"):
        IterateAverage(None)
