"""A small imbalanced task, and loose tensors with gradients of their own, for the optimizers."""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

import aucmax

PRIOR = 0.25


# ---- A model, the real loss, batches -----------------------------------------------------------


class Task(NamedTuple):
    model: nn.Module
    loss: aucmax.AUCLoss

    def groups(self):
        return aucmax.minmax_groups(self.model, self.loss)

    def primal(self):
        """The parameters of v = (w, a, b)."""
        return [*self.model.parameters(), self.loss.a, self.loss.b]


def one_hidden():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))


def make_task(seed=0, model=None, prior=PRIOR, dtype=torch.float64, **options):
    """A model and a loss whose parameters, a, b and alpha too, all start at random numbers."""
    model = (one_hidden() if model is None else model).to(dtype)
    loss = aucmax.AUCLoss(prior, **{"guard": False} | options).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in [*model.parameters(), *loss.parameters()]:
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) / 2)
    return Task(model, loss)


def make_batch(seed, n=12, both_classes=False):
    """Inputs and labels; a share PRIOR is positive on average, sometimes none is."""
    rng = np.random.default_rng(seed)
    y = (rng.uniform(size=n) < PRIOR).astype(int)
    if both_classes:
        y[:2] = 0, 1
    return rng.normal(size=(n, 4)) + y[:, None], y


def as_tensors(batch, dtype=torch.float64):
    x, y = batch
    return torch.tensor(x, dtype=dtype), torch.tensor(y)


def train_step(task, optimizer, batch):
    """One step on a batch of arrays, in the model's precision; returns the loss."""
    x, y = as_tensors(batch, next(task.model.parameters()).dtype)
    optimizer.zero_grad()
    value = task.loss(task.model(x), y)
    value.backward()
    optimizer.step()
    return value


def set_lr(optimizer, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr


def end_stage(task, optimizer, fresh, restart="average"):
    """The end of a PPD stage: alpha from fresh samples, scored at the stage's average."""
    x, y = as_tensors(fresh, next(task.model.parameters()).dtype)
    with torch.no_grad(), aucmax.averaged(task.model, optimizer):
        scores = task.model(x)
    optimizer.end_stage(restart)
    task.loss.reset_dual(scores, y)


def flat(tensors):
    return np.concatenate([t.detach().double().numpy().ravel() for t in tensors])


# ---- Loose tensors -----------------------------------------------------------------------------


def make_params(*shapes, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))
        for shape in shapes
    ]


def set_grads(params, t):
    """Gradients of step t: noise plus the point itself, so that an error never dies out."""
    for i, p in enumerate(params):
        generator = torch.Generator().manual_seed(1000 * t + i)
        noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        p.grad = (p.detach().double() + noise).to(p.dtype)


def walk(optimizer, params, steps, first=0):
    for t in range(first, first + steps):
        set_grads(params, t)
        optimizer.step()


def walk_two_stages(optimizer, params, restart="average"):
    walk(optimizer, params, 4)
    optimizer.end_stage(restart)
    walk(optimizer, params, 3, first=4)


def average_of(optimizer, p):
    return {id(q): average for q, average in optimizer.averages()}[id(p)]


def everything(optimizer):
    """Every number an optimizer holds: parameters, states and counters, by name."""
    values = {}
    for i, group in enumerate(optimizer.param_groups):
        values |= {f"{i}.{k}": v for k, v in group.items() if isinstance(v, torch.Tensor)}
        for j, p in enumerate(group["params"]):
            values[f"{i}.{j}"] = p.detach()
            values |= {f"{i}.{j}.{k}": v for k, v in optimizer.state.get(p, {}).items()}
    return {name: value.clone() for name, value in values.items()}


def assert_same(actual, expected):
    """Equal names and equal bits."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name


def assert_near(actual, expected, **tolerance):
    assert actual.keys() == expected.keys()
    torch.testing.assert_close(actual, expected, **tolerance)
