"""Easy data of every task, small models, and short calls of fit."""

import numpy as np
import pytest
import torch
from torch import nn

import aucmax


@pytest.fixture(autouse=True)
def one_thread():
    """For the tests that import it: with models this small, threads cost more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def binary(n=400, share=0.25, shift=1.5, seed=0, columns=4):
    """Inputs and labels of two classes that a line tells apart fairly well."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) < round(share * n))
    x = rng.normal(size=(n, columns)) + shift * y[:, None]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def multiclass(n=600, classes=3, shift=4.0, seed=0):
    """Each class has a direction of its own."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    x = rng.normal(size=(n, classes)) + shift * np.eye(classes)[y]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def multilabel(n=600, labels=3, shift=3.0, seed=0, missing=0.0):
    """Label j shows in column j; a share of the labels is missing."""
    rng = np.random.default_rng(seed)
    y = (rng.uniform(size=(n, labels)) < [0.2, 0.4, 0.3][:labels]).astype(float)
    x = rng.normal(size=(n, labels)) + shift * y
    y[rng.uniform(size=y.shape) < missing] = np.nan
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def linear(columns=4, outputs=1, seed=0):
    """A linear model whose weights a seed fixes, without a draw of torch's own numbers."""
    return seeded(nn.Linear(columns, outputs), seed)


def hidden(columns=4, seed=0):
    return seeded(nn.Sequential(nn.Linear(columns, 6), nn.Tanh(), nn.Linear(6, 1)), seed)


def with_batch_norm(columns=4, seed=0, outputs=1):
    layers = nn.Linear(columns, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, outputs)
    return seeded(nn.Sequential(*layers), seed)


def with_dropout(columns=4, seed=0):
    layers = nn.Linear(columns, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 1)
    return seeded(nn.Sequential(*layers), seed)


@torch.no_grad()
def seeded(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.copy_(torch.randn(p.shape, generator=generator) / 2)
    return model


def fit(model, train, valid=None, **options):
    """A short silent run."""
    return aucmax.fit(model, train, valid, **{"steps": 40, "progress": False, **options})


def weights(module):
    return {name: x.detach().clone() for name, x in module.state_dict().items()}


def assert_same_weights(actual, expected):
    actual, expected = weights(actual), weights(expected)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name


@torch.no_grad()
def scores_of(model, x):
    """Scores in evaluation mode, as an array."""
    assert not any(module.training for module in model.modules())
    return model(x).squeeze(-1).numpy()
