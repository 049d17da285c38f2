"""Ranking by one sort of tensors, as a GPU does it, gives what NumPy gives; here on the CPU."""

import warnings

import numpy as np
import pytest
import torch
from interpreted import DEVICE, by_turns

from aucmax import metrics
from aucmax.kernels import ranking
from aucmax.metrics import _gpu

SCORES = {
    "no ties": lambda rng, n: rng.standard_normal(n).astype(np.float32),
    "ties": lambda rng, n: rng.standard_normal(n).round(1),
    "all tied": lambda rng, n: np.zeros(n),
    "separated": lambda rng, n: np.arange(n, dtype=np.float64),
}


def rows(kind, n):
    rng = np.random.default_rng(n)
    target = rng.random(n) < 0.3
    target[:2] = [False, True]
    return SCORES[kind](rng, n), target, rng.random(n)


@pytest.mark.parametrize("n", [2, 3, 1000])
@pytest.mark.parametrize("kind", SCORES)
def test_gpu_roc_auc_equals_numpy(kind, n):
    scores, target, weight = rows(kind, n)
    weight[n // 2] = 0.0
    tensors = [torch.from_numpy(x) for x in (scores, target, weight)]
    assert _gpu.roc_auc(*tensors[:2]) == metrics.roc_auc(scores, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a row of two without weight leaves one class
        expected = metrics.roc_auc(scores, target, weight)
    assert _gpu.roc_auc(*tensors) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("n", [2, 3, 1000])
@pytest.mark.parametrize("kind", SCORES)
def test_gpu_placements_match_pairs(kind, n):
    scores, target, _ = rows(kind, n)
    auc, wins, losses = _gpu.placements(*map(torch.from_numpy, (scores, target)))
    twice = 1 + np.sign(scores[target][:, None] - scores[~target][None, :]).astype(int)
    assert auc == metrics.roc_auc(scores, target)
    assert wins.tolist() == twice.sum(1).tolist()
    assert losses.tolist() == twice.sum(0).tolist()


@pytest.mark.parametrize("kind", SCORES)
def test_kernel_roc_auc_equals_numpy(kind, monkeypatch):
    """Runs that reach over several blocks, and that begin and end at their edges."""
    monkeypatch.setattr(ranking, "BLOCK", 16)
    for n in (2, 16, 90):
        scores, target, _ = rows(kind, n)
        tensors = [torch.from_numpy(x).to(DEVICE) for x in (scores, target.astype(np.int64))]
        by_kernels, plain = by_turns(lambda tensors=tensors: _gpu.roc_auc(*tensors))
        assert by_kernels == plain == metrics.roc_auc(scores, target)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gpu_leaves_scores_that_are_not_finite(bad):
    scores, target = torch.tensor([0.1, bad, 0.3]).to(DEVICE), torch.tensor([1.0, 0.0, 1.0])
    assert np.isnan(by_turns(lambda: _gpu.roc_auc(scores, target.to(DEVICE)))).all()
    assert _gpu.placements(scores, target.to(DEVICE)) is None


def test_gpu_leaves_bad_labels():
    scores, target = (
        torch.linspace(0, 1, 4).to(DEVICE),
        torch.tensor([0.0, 1.0, 2.0, 0.0]).to(DEVICE),
    )
    assert np.isnan(by_turns(lambda: _gpu.roc_auc(scores, target))).all()


@pytest.mark.parametrize("weight", [[-1.0, 1.0], [0.0, 0.0], [np.nan, 1.0]])
def test_gpu_leaves_bad_weights(weight):
    assert np.isnan(
        _gpu.roc_auc(torch.tensor([0.3, 0.6]), torch.tensor([0, 1]), torch.tensor(weight))
    )


@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 0.0]])
def test_gpu_one_class_warns(weight, monkeypatch):
    """Also if the rows of the other have no weight."""
    target = torch.tensor([1.0, 1.0, 1.0 if weight is None else 0.0])
    weight = None if weight is None else torch.tensor(weight)
    monkeypatch.setattr(_gpu, "tensors_on_gpu", lambda *given: given)
    with pytest.warns(UserWarning, match="target has . positives and 0 negatives") as caught:
        assert np.isnan(metrics.roc_auc(torch.tensor([0.3, 0.6, 0.1]), target, weight))
    assert caught[0].filename == __file__
