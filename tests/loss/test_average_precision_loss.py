"""AveragePrecisionLoss against the pair by pair transcription."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference.average_precision import RunningAveragePrecision, logistic, squared_hinge

from aucmax.loss import average_precision
from aucmax.loss.average_precision import AveragePrecisionLoss

NAN = float("nan")
PHI = {"squared_hinge": squared_hinge, "logistic": logistic}


# ---- Helpers -----------------------------------------------------------------------------------


def make_batch(rng, n, rows, share=0.4):
    """Scores with ties, labels by row number, weights of which some are zero, groups, numbers."""
    index = rng.integers(0, rows, n)  # some rows several times
    scores = rng.integers(-6, 7, n) / 4.0
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], n)
    weight[0] = 1.0
    return scores, (index % 10 < 10 * share) * 1.0, weight, index % 3, index


def value_and_gradient(loss, scores, *args, **options):
    tensors = [None if x is None else torch.tensor(x) for x in args]
    options = {name: torch.tensor(x) for name, x in options.items() if x is not None}
    s = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    value = loss(s, *tensors, **options)
    value.backward()
    return value.item(), s.grad.numpy()


def assert_same(found, wanted, tolerance=1e-10):
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


# ---- The definition ----------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 12),
    prior=st.sampled_from([None, 0.1, 0.7]),
    surrogate=st.sampled_from(sorted(PHI)),
    weighted=st.booleans(),
    grouped=st.booleans(),
    remembers=st.booleans(),
    everywhere=st.booleans(),
)
def test_average_precision_loss_matches_reference(
    seed, n, prior, surrogate, weighted, grouped, remembers, everywhere
):
    rng = np.random.default_rng(seed)
    rows = 20 if remembers else None
    loss = AveragePrecisionLoss(prior, rows=rows, decay=0.3, surrogate=surrogate)
    reference = RunningAveragePrecision(PHI[surrogate], prior, decay=0.3)
    share = rng.choice([0.0, 0.4, 1.0], p=[0.1, 0.8, 0.1])
    with pytest.MonkeyPatch.context() as patch:
        if everywhere:  # as on a device, where positives cannot be told from the others
            patch.setattr(average_precision.checks, "host_readable", lambda x: False)
        for _ in range(4):
            scores, y, weight, group, index = make_batch(rng, n, 20, share)
            weight = weight if weighted else None
            group, index = group if grouped else None, index if remembers else None
            found = value_and_gradient(loss, scores, y, weight, group=group, index=index)
            assert_same(found, reference.step(scores, y, weight, group, index))
    if not remembers:
        return
    state = loss.estimates[:, 0].T.numpy()
    assert (state[:, 0] > 0).sum() == len(reference.known)
    for row, known in reference.known.items():
        np.testing.assert_allclose(state[row], known, rtol=1e-10)


@pytest.mark.parametrize(("margin", "scale"), [(0.5, 1.0), (2.0, 3.0)])
def test_average_precision_loss_margin_and_scale(margin, scale):
    scores, y, *_ = make_batch(np.random.default_rng(0), 12, 20)
    loss = AveragePrecisionLoss(surrogate="squared_hinge", margin=margin, scale=scale)
    reference = RunningAveragePrecision(partial(squared_hinge, margin=margin))
    value, gradient = reference.step(scale * scores, y)
    assert_same(value_and_gradient(loss, scores, y), (value, scale * gradient))


@pytest.mark.parametrize("surrogate", ["squared_hinge", "square", "logistic", "sigmoid"])
def test_average_precision_loss_gradcheck(surrogate):
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(9, generator=g, dtype=torch.float64, requires_grad=True)
    y, weight = torch.arange(9) % 3 == 0, torch.rand(9, generator=g, dtype=torch.float64)
    loss = AveragePrecisionLoss(0.1, surrogate=surrogate)
    assert torch.autograd.gradcheck(lambda s: loss(s, y, weight), scores)


def test_sharp_sigmoid_is_one_minus_average_precision():
    """The sigmoid of large differences is a comparison, which counts half a row for itself."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4 == 0
    scores = rng.normal(size=40) + y
    above = (scores[:, None] <= scores[None]) - 0.5 * np.eye(40)
    precision = (above * y).sum(1)[y] / above.sum(1)[y]
    value, _ = value_and_gradient(AveragePrecisionLoss(surrogate="sigmoid", scale=1e7), scores, y)
    assert value == pytest.approx(1 - precision.mean(), abs=1e-9)


def test_average_precision_loss_in_blocks(monkeypatch):
    scores, y, weight, group, _ = make_batch(np.random.default_rng(1), 40, 60)
    wanted = value_and_gradient(AveragePrecisionLoss(), scores, y, weight, group=group)
    monkeypatch.setattr(average_precision, "BLOCK", 80)
    monkeypatch.setattr(average_precision, "BLOCK_ON_DEVICE", 120)
    assert_same(value_and_gradient(AveragePrecisionLoss(), scores, y, weight, group=group), wanted)
    monkeypatch.setattr(average_precision.checks, "host_readable", lambda x: False)
    assert_same(value_and_gradient(AveragePrecisionLoss(), scores, y, weight, group=group), wanted)


# ---- Prior and weights ------------------------------------------------------------------------


def test_prior_corrects_balanced_batches():
    """Positives four times over, as balanced sampling has them, and none the wiser."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 5 == 0
    scores = rng.normal(size=40) + y
    copies = np.repeat(np.arange(40), np.where(y, 4, 1))
    natural = value_and_gradient(AveragePrecisionLoss(), scores, y)
    value, gradient = value_and_gradient(AveragePrecisionLoss(0.2), scores[copies], y[copies])
    summed = np.zeros(40)
    np.add.at(summed, copies, gradient)
    assert_same((value, summed), natural)
    other, _ = value_and_gradient(AveragePrecisionLoss(), scores[copies], y[copies])
    assert value > other + 0.1  # half positive, the same scores are more precise


def test_average_precision_loss_weight_repeats_rows():
    scores, y, *_ = make_batch(np.random.default_rng(2), 15, 20)
    weight = np.where(np.arange(15) % 4 == 0, 2.0, 1.0)
    copies = np.repeat(np.arange(15), weight.astype(int))
    value, gradient = value_and_gradient(AveragePrecisionLoss(), scores[copies], y[copies])
    summed = np.zeros(15)
    np.add.at(summed, copies, gradient)
    assert_same(value_and_gradient(AveragePrecisionLoss(), scores, y, weight), (value, summed))


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_batch_is_zero_and_leaves_estimates(label):
    loss = AveragePrecisionLoss(0.1, rows=5)
    y = np.full(5, label)
    value, gradient = value_and_gradient(loss, np.arange(5.0), y, index=np.arange(5))
    assert value == 0
    assert not gradient.any()
    assert not loss.estimates.any()


# ---- Columns -----------------------------------------------------------------------------------


def test_estimates_per_label():
    rng = np.random.default_rng(3)
    loss = AveragePrecisionLoss([0.1, 0.5], rows=20, columns=2, surrogate="squared_hinge")
    references = [RunningAveragePrecision(squared_hinge, prior) for prior in (0.1, 0.5)]
    for _ in range(3):
        scores, y = rng.normal(size=(12, 2)), (rng.random((12, 2)) < 0.5) * 1.0
        y[rng.random((12, 2)) < 0.2] = NAN
        index = rng.integers(0, 20, 12)
        found = value_and_gradient(loss, scores, y, index=index)
        known = ~np.isnan(y)
        each = [
            r.step(scores[:, c], y[:, c], 1.0 * known[:, c], None, index)
            for c, r in enumerate(references)
        ]
        value = np.mean([value for value, _ in each])
        assert_same(found, (value, np.stack([gradient for _, gradient in each], 1) / 2))


def test_classes_one_vs_rest():
    rng = np.random.default_rng(4)
    scores, classes = rng.normal(size=(12, 3)), np.arange(12) % 3
    found = value_and_gradient(AveragePrecisionLoss(columns=3), scores, classes)
    one_hot = (classes[:, None] == np.arange(3)) * 1.0
    assert_same(found, value_and_gradient(AveragePrecisionLoss(columns=3), scores, one_hot))


# ---- State --------------------------------------------------------------------------------------


def test_evaluation_ignores_estimates():
    scores, y, weight, _, index = make_batch(np.random.default_rng(6), 12, 20)
    loss = AveragePrecisionLoss(0.1, rows=20)
    value_and_gradient(loss, 2 * scores, y, weight, index=index)
    state = loss.estimates.clone()
    value, _ = value_and_gradient(loss.eval(), scores, y, weight, index=index)
    assert value == value_and_gradient(AveragePrecisionLoss(0.1), scores, y, weight)[0]
    assert torch.equal(loss.estimates, state)


def test_training_without_row_numbers_is_said_once():
    scores, y, *_ = make_batch(np.random.default_rng(7), 12, 20)
    loss = AveragePrecisionLoss(0.1, rows=20)
    with pytest.warns(UserWarning, match="without index: it takes each batch by itself"):
        found = value_and_gradient(loss, scores, y)
    assert_same(value_and_gradient(loss, scores, y), found)
    assert_same(value_and_gradient(AveragePrecisionLoss(0.1), scores, y), found)
    assert_same(value_and_gradient(AveragePrecisionLoss(0.1, rows=20).eval(), scores, y), found)


# ---- Training -----------------------------------------------------------------------------------


def test_running_estimates_reduce_bias_of_small_batches():
    """All positives and a single negative at a time, of scores that stand still."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4 == 0
    scores = rng.normal(size=40) + y
    whole, _ = value_and_gradient(AveragePrecisionLoss(), scores, y)
    losses = AveragePrecisionLoss(0.25), AveragePrecisionLoss(0.25, rows=40, decay=0.95)
    found = []
    for _ in range(200):
        rows = np.r_[np.flatnonzero(y), rng.choice(np.flatnonzero(~y), 1)]
        batch = torch.tensor(scores[rows]), torch.tensor(y[rows])
        found.append([loss(*batch, index=torch.tensor(rows)).item() for loss in losses])
    in_batch, running = np.mean(found[50:], axis=0)
    assert abs(running - whole) < 0.25 * abs(in_batch - whole)
