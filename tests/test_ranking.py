"""Ranking by one sort of tensors, as a GPU does it, gives what NumPy gives; here on the CPU."""

import numpy as np
import pytest
import torch

from aucmax import _ranking, metrics

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
def test_the_auc_is_that_of_numpy(kind, n):
    scores, target, weight = rows(kind, n)
    tensors = [torch.from_numpy(x) for x in (scores, target, weight)]
    plain, weighted = _ranking.find_runs(*tensors[:2]), _ranking.find_runs(*tensors)
    assert _ranking.auc(plain) == metrics.roc_auc(scores, target)
    expected = metrics.roc_auc(scores, target, weight)
    assert _ranking.auc(weighted) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 1000])
@pytest.mark.parametrize("kind", SCORES)
def test_placements_are_counted_pair_by_pair(kind, n):
    scores, target, _ = rows(kind, n)
    positive = torch.from_numpy(target)
    auc, wins, losses = _ranking.placements(
        _ranking.find_runs(torch.from_numpy(scores), positive), positive
    )
    gaps = scores[target][:, None] - scores[~target][None, :]
    twice = 1 + np.sign(gaps).astype(int)
    assert auc == metrics.roc_auc(scores, target)
    assert wins.tolist() == twice.sum(1).tolist()
    assert losses.tolist() == twice.sum(0).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_left_to_numpy(bad):
    scores = torch.tensor([0.1, bad, 0.3])
    assert _ranking.find_runs(scores, torch.tensor([True, False, True])) is None
