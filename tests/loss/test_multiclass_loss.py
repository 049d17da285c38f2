"""MulticlassAUCLoss against every pair of classes and examples, one by one in NumPy."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference.objective import multiclass_loss, multiclass_pairwise_risk

from aucmax import AUCLoss, MulticlassAUCLoss

PRIORS = [0.5, 0.3, 0.2]  # not representable in binary: their rounding to float32 would show


# ---- Helpers -----------------------------------------------------------------------------------


def make_loss(priors=PRIORS, seed=0, dtype=torch.float64, **options):
    """A loss at a random point."""
    loss = MulticlassAUCLoss(priors, **{"guard": False, **options}).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return loss


def make_batch(n=20, classes=3, dtype=torch.float64, seed=0):
    """Scores, classes of decreasing frequency, and weights."""
    rng = np.random.default_rng(seed)
    y = np.resize(np.repeat(np.arange(classes), np.arange(classes, 0, -1)), n)
    scores = rng.normal(size=(n, classes)) + np.eye(classes)[y]
    weight = rng.uniform(0.2, 2.0, size=n)
    tensors = torch.tensor(scores).to(dtype).requires_grad_(), torch.tensor(y)
    return *tensors, torch.tensor(weight).to(dtype)


def gradients(value, loss, scores, **options):
    return torch.autograd.grad(value, [scores, loss.a, loss.b, loss.alpha], **options)


def link_h(scores, link):
    if link == "identity":
        return scores
    exponential = np.exp(scores - scores.max(1, keepdims=True))
    return exponential / exponential.sum(1, keepdims=True)


def through_link(h, d_h, link):
    """The gradient in the raw scores from that in h."""
    return d_h if link == "identity" else h * (d_h - (h * d_h).sum(1, keepdims=True))


def arrays(*tensors):
    return [None if x is None else x.detach().numpy() for x in tensors]


def reference_value(loss, scores, target, weight=None):
    scores, y, weight, *point = arrays(scores, target, weight, loss.a, loss.b, loss.alpha)
    options = (PRIORS, loss.margin, loss.normalize, weight)
    return multiclass_loss(link_h(scores, loss.link), y, *point, *options)


def assert_same(found, wanted, rtol=0.0, atol=0.0):
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=atol)


@st.composite
def batches(draw):
    """Scores (often tied), every class at least once, weights or None."""
    classes = draw(st.integers(2, 4))
    y = draw(st.lists(st.integers(0, classes - 1), max_size=8))
    y = np.array(draw(st.permutations([*range(classes), *y])))
    score = draw(st.sampled_from([st.floats(-4, 4), st.sampled_from([-1.0, 0.0, 0.5])]))
    scores = draw(st.lists(score, min_size=y.size * classes, max_size=y.size * classes))
    weight = st.lists(st.floats(0.1, 10), min_size=len(y), max_size=len(y)).map(np.array)
    return np.array(scores).reshape(-1, classes), y, draw(st.none() | weight)


# ---- The mathematics ---------------------------------------------------------------------------


@given(batches(), st.floats(0.1, 3), st.sampled_from(["softmax", "identity"]))
def test_multiclass_optimum_is_pairwise_risk(batch, margin, link):
    scores, y, weight = batch
    priors = np.bincount(y, weights=weight) / (len(y) if weight is None else weight.sum())
    loss = MulticlassAUCLoss(list(priors), margin=margin, link=link).double()
    x, *rest = (None if v is None else torch.tensor(v) for v in batch)
    loss.reset_primal(x, *rest)
    loss.reset_dual(x, *rest)
    value = loss(x.requires_grad_(), *rest)
    d_scores, *d_saddle = gradients(value, loss, x)

    h = link_h(scores, link)
    risk, d_h = multiclass_pairwise_risk(h, y, margin, weight)
    assert value.item() == pytest.approx(risk, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(d_scores, through_link(h, d_h, link), rtol=1e-10, atol=1e-10)
    for gradient in d_saddle:
        np.testing.assert_allclose(gradient, 0.0, atol=1e-10)


@pytest.mark.parametrize(
    ("link", "normalize", "weighted", "margin"),
    [
        ("softmax", True, False, 0.4),
        ("softmax", False, True, 1.0),
        ("identity", True, True, 1.0),
        ("identity", False, False, 0.4),
    ],
)
def test_multiclass_loss_matches_reference(link, normalize, weighted, margin):
    loss = make_loss(link=link, normalize=normalize, margin=margin)
    scores, target, weight = make_batch()
    weight = weight if weighted else None
    wanted = reference_value(loss, scores, target, weight)
    assert loss(scores, target, weight).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("present", "n"), [([0], 1), ([2], 6), ([0, 1], 6), ([1, 2], 6)])
def test_multiclass_batch_without_a_class(present, n):
    loss = make_loss()
    scores, _, _ = make_batch(n)
    target = torch.tensor(present).repeat(n)[:n]
    value = loss(scores, target)
    assert value.item() == pytest.approx(reference_value(loss, scores, target), rel=1e-12)
    assert all(g.isfinite().all() for g in gradients(value, loss, scores))


def test_diagonals_are_unused():
    loss, (scores, target, _) = make_loss(), make_batch()
    value = loss(scores, target)
    for gradient in gradients(value, loss, scores)[1:]:
        assert gradient.diagonal().tolist() == [0.0, 0.0, 0.0]
        assert (gradient != 0).sum() == 6
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.fill_diagonal_(1e6)
    assert_same(loss(scores, target), value)


def test_two_classes_equal_binary_loss():
    """h_0 = 1 - h_1: both ordered pairs have the binary risk."""
    scores, target, weight = make_batch(12, classes=2)
    share = (weight @ target.double() / weight.sum()).item()
    binary = AUCLoss(share, margin=0.8).double()
    multi = MulticlassAUCLoss([1 - share, share], margin=0.8).double()
    values = []
    for loss, x in ((binary, scores[:, 1] - scores[:, 0]), (multi, scores)):
        loss.reset_primal(x, target, weight)
        loss.reset_dual(x, target, weight)
        value = loss(x, target, weight)
        values.append((value, *torch.autograd.grad(value, scores)))
    assert_same(values[1], values[0], rtol=1e-10, atol=1e-10)


def test_reset_sets_class_means_per_score():
    loss = MulticlassAUCLoss(PRIORS, link="identity").double()
    scores, target, weight = make_batch()
    loss.reset_primal(scores, target, weight)
    assert loss.alpha.abs().sum() == 0
    loss.reset_dual(scores, target, weight)
    s, y, w = arrays(scores, target, weight)
    for i, j in itertools.product(range(3), repeat=2):
        mean_i = np.average(s[y == i, i], weights=w[y == i])
        mean_j = np.average(s[y == j, i], weights=w[y == j])
        assert loss.a[i, j].item() == pytest.approx(mean_i, rel=1e-12)
        assert loss.b[i, j].item() == pytest.approx(mean_j, rel=1e-12)
        assert loss.alpha[i, j].item() == pytest.approx(mean_j - mean_i, rel=1e-12, abs=1e-12)
