"""The baseline's loss against scikit-learn's log loss and torch's own."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn.metrics import log_loss
from torch.nn import functional

from aucmax.loss.cross_entropy import CrossEntropy

NAN = math.nan
BOTH = pytest.mark.parametrize("weighted", [False, True])


def draw(seed=0, n=40, columns=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, columns)) * 2, rng.uniform(0.1, 3, size=n), rng


def value(task, scores, target, weight=None, **options):
    tensors = [None if x is None else torch.as_tensor(x) for x in (scores, target, weight)]
    return CrossEntropy(task, **options)(*tensors)


@BOTH
def test_binary_cross_entropy_matches_sklearn(weighted):
    scores, weight, rng = draw(columns=1)
    y = (rng.uniform(size=40) < 0.3).astype(int)
    weight = weight if weighted else None
    expected = log_loss(y, expit(scores[:, 0]), sample_weight=weight)
    for shaped in (scores, scores[:, 0]):
        assert value("binary", shaped, y, weight).item() == pytest.approx(expected, rel=1e-12)


@BOTH
def test_multiclass_cross_entropy_matches_sklearn(weighted):
    scores, weight, rng = draw()
    y = rng.integers(0, 3, size=40)
    weight = weight if weighted else None
    expected = log_loss(y, softmax(scores, axis=1), sample_weight=weight, labels=[0, 1, 2])
    assert value("multiclass", scores, y, weight).item() == pytest.approx(expected, rel=1e-12)


@BOTH
def test_multilabel_cross_entropy_matches_sklearn(weighted):
    scores, weight, rng = draw()
    y = (rng.uniform(size=(40, 3)) < 0.4).astype(float)
    y[rng.uniform(size=y.shape) < 0.3] = NAN
    weight = weight if weighted else None
    each = []
    for j in range(3):
        known = ~np.isnan(y[:, j])
        own = None if weight is None else weight[known]
        each.append(log_loss(y[known, j], expit(scores[known, j]), sample_weight=own))
    found = value("multilabel", scores, y, weight).item()
    assert found == pytest.approx(np.mean(each), rel=1e-12)


def test_multilabel_weights_per_label():
    scores, _, rng = draw()
    y = (rng.uniform(size=(40, 3)) < 0.4).astype(float)
    weight = rng.uniform(0.1, 2, size=(40, 3))
    each = [log_loss(y[:, j], expit(scores[:, j]), sample_weight=weight[:, j]) for j in range(3)]
    found = value("multilabel", scores, y, weight).item()
    assert found == pytest.approx(np.mean(each), rel=1e-12)


@given(st.integers(0, 10**6))
def test_cross_entropy_gradient_matches_torch(seed):
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.normal(size=(9, 3)), requires_grad=True)
    y = torch.tensor(rng.integers(0, 3, size=9))
    (found,) = torch.autograd.grad(CrossEntropy("multiclass")(scores, y), scores)
    (expected,) = torch.autograd.grad(functional.cross_entropy(scores, y), scores)
    torch.testing.assert_close(found, expected)
    (found,) = torch.autograd.grad(CrossEntropy()(scores[:, 0], y > 0), scores)
    loss = functional.binary_cross_entropy_with_logits(scores[:, 0], (y > 0).double())
    (expected,) = torch.autograd.grad(loss, scores)
    torch.testing.assert_close(found, expected)


def test_missing_labels_have_no_gradient():
    scores = torch.zeros(2, 2, requires_grad=True)
    CrossEntropy("multilabel")(scores, torch.tensor([[1.0, NAN], [0.0, NAN]])).backward()
    assert scores.grad.tolist() == [[-0.125, 0.0], [0.125, 0.0]]


def test_unknown_label_counts_nothing():
    scores = torch.tensor([[0.3, 2.0], [-1.0, 5.0]])
    found = value("multilabel", scores, torch.tensor([[1.0, NAN], [0.0, NAN]]))
    alone = value("multilabel", scores[:, :1], torch.tensor([[1.0], [0.0]]))
    assert torch.isfinite(found)
    assert found.item() == pytest.approx(alone.item() / 2)


@pytest.mark.parametrize("score", [1e4, -1e4])
def test_cross_entropy_of_large_scores_is_finite(score):
    scores = torch.tensor([score, score], requires_grad=True)
    loss = CrossEntropy()(scores, torch.tensor([0.0, 1.0]))
    loss.backward()
    assert loss.item() == pytest.approx(5000)
    assert scores.grad.isfinite().all()


# ---- Label smoothing, focal loss, generalized cross-entropy ------------------------------------


def by_definition(p, y, smoothing=0.0, focus=0.0, q=0.0):
    """The mean over rows of sum_k t_k (1 - p_k)^focus (1 - p_k^q) / q; p (n, c), y (n,)."""
    costs = (1 - p**q) / q if q else -np.log(p)
    share = (1 - smoothing) * np.eye(p.shape[1])[y] + smoothing / p.shape[1]
    return (share * (1 - p) ** focus * costs).sum(1)


VARIANTS = pytest.mark.parametrize(
    "options",
    [
        {"smoothing": 0.1},
        {"focus": 2.0},
        {"q": 0.7},
        {"q": 1.0},
        {"focus": 0.5, "q": 0.3, "smoothing": 0.2},
    ],
    ids=str,
)


@VARIANTS
@BOTH
def test_smoothing_focus_and_q_match_definition(options, weighted):
    scores, weight, rng = draw()
    weight = weight if weighted else None
    y = rng.integers(0, 3, size=40)
    each = by_definition(softmax(scores, axis=1), y, **options)
    expected = np.average(each, weights=weight)
    assert value("multiclass", scores, y, weight, **options).item() == pytest.approx(expected)
    two = expit(scores[:, 0])
    each = by_definition(np.c_[1 - two, two], (y > 0).astype(int), **options)
    expected = np.average(each, weights=weight)
    assert value("binary", scores[:, 0], y > 0, weight, **options).item() == pytest.approx(expected)
    one_label = value("multilabel", scores[:, :1], (y[:, None] > 0) * 1.0, weight, **options)
    assert one_label.item() == pytest.approx(expected)


def test_label_smoothing_matches_torch():
    scores, _, rng = draw()
    y = torch.tensor(rng.integers(0, 3, size=40))
    expected = functional.cross_entropy(torch.tensor(scores), y, label_smoothing=0.2)
    assert value("multiclass", scores, y, smoothing=0.2).item() == pytest.approx(expected.item())


@VARIANTS
def test_smoothing_focus_and_q_of_large_scores_are_finite(options):
    for scores, task in (([1e4, -1e4], "binary"), ([[1e4, 0.0], [-1e4, 0.0]], "multiclass")):
        for y in ([0, 1], [1, 0]):
            x = torch.tensor(scores, requires_grad=True)
            loss = value(task, x, torch.tensor(y), **options)
            loss.backward()
            assert loss.isfinite()
            assert x.grad.isfinite().all()
