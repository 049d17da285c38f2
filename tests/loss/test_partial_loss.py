"""PartialAUCLoss against the pairwise risk over the hardest rows, in NumPy."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference.objective import sigmoid
from reference.partial import centred, members, partial_risk, saddle
from sklearn.metrics import roc_auc_score

import aucmax
from aucmax import AUCLoss, PartialAUCLoss
from aucmax.loss.cross_entropy import CrossEntropy


def as_tensors(*arrays):
    return [None if x is None else torch.tensor(x) for x in arrays]


def at_its_best(scores, y, weight=None, **options):
    """A loss whose thresholds, a, b and alpha are the best for these rows."""
    p = np.average(y, weights=weight)
    loss = PartialAUCLoss(**{"prior": p, **options}).double()
    loss.reset_primal(*as_tensors(scores, y, weight))
    loss.reset_dual(*as_tensors(scores, y, weight))
    return loss


def evaluate(loss, scores, y, weight=None):
    """Value and gradients in scores, a, b, alpha."""
    scores, y, weight = as_tensors(scores, y, weight)
    value = loss(scores.requires_grad_(), y, weight)
    gradients = torch.autograd.grad(value, [scores, loss.a, loss.b, loss.alpha])
    return value.item(), [g.numpy().squeeze() for g in gradients]


@st.composite
def batches(draw):
    """Scores (often tied), labels of both classes and weights or None."""
    y = draw(st.lists(st.integers(0, 1), min_size=1, max_size=10))
    y = np.array(draw(st.permutations([0, 1, *y])))
    tied = st.sampled_from([-1.0, 0.0, 0.5])
    score = draw(st.sampled_from([st.floats(-6, 6), tied, st.floats(-6, 6) | tied]))
    scores = np.array(draw(st.lists(score, min_size=len(y), max_size=len(y))))
    weight = st.lists(st.floats(0.1, 10), min_size=len(y), max_size=len(y)).map(np.array)
    return scores, y, draw(st.none() | weight)


fprs = st.sampled_from([0.1, 0.5, 1.0]) | st.floats(0.01, 1.0)
tprs = st.sampled_from([0.0, 0.5, 0.9]) | st.floats(0.0, 0.99)
links = st.sampled_from(["centred", "sigmoid", "identity"])


# ---- The mathematics ---------------------------------------------------------------------------


@given(batches(), fprs, tprs, st.sampled_from([1.0, 0.3]), links)
def test_partial_optimum_is_pairwise_risk_of_hardest_rows(batch, fpr, tpr, margin, link):
    scores, y, weight = batch
    loss = at_its_best(*batch, max_fpr=fpr, min_tpr=tpr, margin=margin, link=link)
    value, (d_scores, *d_saddle) = evaluate(loss, *batch)
    h = sigmoid(scores) if link == "sigmoid" else scores
    in_centre = 0.0
    if link == "centred":
        h, in_centre = centred(scores, y, members(scores, y, fpr, tpr, weight), weight)
    risk, d_h = partial_risk(h, scores, y, margin, fpr, tpr, weight)
    expected = d_h if link == "identity" else d_h * h * (1 - h)
    expected = expected - in_centre * expected.sum()
    np.testing.assert_allclose(value, risk, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(d_scores, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(d_saddle, 0.0, atol=1e-10)


@given(batches(), fprs, tprs, st.tuples(*[st.floats(-2, 2)] * 3), st.floats(0.05, 0.95))
def test_partial_loss_matches_reference(batch, fpr, tpr, point, p):
    scores, y, weight = batch
    loss = at_its_best(*batch, max_fpr=fpr, min_tpr=tpr, prior=p, link="sigmoid").eval()
    for parameter, value in zip((loss.a, loss.b, loss.alpha), point, strict=True):
        parameter.data.fill_(value)
    inside = members(scores, y, fpr, tpr, weight)
    expected = saddle(sigmoid(scores), y, inside, point, p, 1.0, fpr, tpr, weight)
    assert evaluate(loss, *batch)[0] == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("prior", [0.25, None])
@pytest.mark.parametrize("weighted", [False, True])
def test_partial_loss_of_full_range_equals_auc_loss(prior, weighted):
    rng = np.random.default_rng(0)
    partial = PartialAUCLoss(1.0, prior=prior, link="sigmoid")
    losses = [partial.double(), AUCLoss(prior).double()]
    for _ in range(3):
        y = (np.arange(12) % 4 == 0).astype(float)
        weight = rng.uniform(0.5, 2, 12) if weighted else None
        batch = rng.normal(size=12), y, weight
        found, wanted = (evaluate(loss, *batch) for loss in losses)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
        for ours, auc in zip(found[1], wanted[1], strict=True):
            np.testing.assert_allclose(ours, auc, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("link", ["centred", "sigmoid", "identity"])
def test_partial_loss_gradcheck(link):
    rng = np.random.default_rng(1)
    scores, y = rng.normal(size=16), np.arange(16) % 4 == 0
    loss = at_its_best(scores, y, max_fpr=0.3, min_tpr=0.4, link=link).eval()
    for threshold in (loss.hard_positives.threshold, loss.hard_negatives.threshold):
        threshold -= 1e-3  # off the row on the boundary, which is in or out as it moves

    def value(scores, a, b, alpha):
        given = {"a": a, "b": b, "alpha": alpha}
        return torch.func.functional_call(loss, given, (scores, torch.tensor(y)))

    point = (torch.tensor(x, dtype=torch.float64) for x in ([0.3], [-0.2], [0.4]))
    inputs = [x.requires_grad_() for x in (torch.tensor(scores), *point)]
    assert torch.autograd.gradcheck(value, inputs)


@pytest.mark.parametrize("only", [0, 1])
def test_partial_loss_without_pair_is_zero(only):
    scores, y = np.linspace(-1, 1, 10), np.arange(10) % 2
    loss = at_its_best(scores, y, max_fpr=0.2, min_tpr=0.6)
    value, gradients = evaluate(loss, scores, np.full(10, only))
    assert value == 0.0
    assert all((g == 0.0).all() for g in gradients)
    few = np.array([-1.0, 1.0])  # the negative is not among the top
    assert evaluate(loss, few, np.array([0, 1]))[0] == 0.0


def test_partial_loss_of_batches_is_unbiased():
    rng = np.random.default_rng(2)
    y = np.arange(400) % 2
    scores = rng.normal(size=400) + y
    loss = at_its_best(scores, y, max_fpr=0.1, link="sigmoid").eval()
    whole = evaluate(loss, scores, y)[0]
    drawn = [
        np.concatenate([rng.choice(200, 8) * 2, rng.choice(200, 8) * 2 + 1]) for _ in range(600)
    ]
    values = np.array([evaluate(loss, scores[rows], y[rows])[0] for rows in drawn])
    values = values[values != 0]
    assert 0.3 < len(values) / 600 < 0.8  # most others have no hard negative
    assert abs(values.mean() - whole) < 3 * values.std() / math.sqrt(len(values))


def test_centred_link_is_shift_invariant():
    rng = np.random.default_rng(3)
    y = np.arange(40) % 2
    scores = rng.normal(size=40) + y
    found = [evaluate(at_its_best(x, y, max_fpr=0.2), x, y) for x in (scores, scores + 50)]
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-10)
    np.testing.assert_allclose(found[0][1][0], found[1][1][0], atol=1e-12)
    assert found[0][1][0].sum() == pytest.approx(0.0, abs=1e-12)


# ---- The running thresholds --------------------------------------------------------------------


@pytest.mark.parametrize(("share", "tolerance"), [(0.1, 0.03), (0.01, 0.007), (0.5, 0.06)])
def test_threshold_converges_to_quantile(share, tolerance):
    """Of scores that are far from normal, on which it begins at the wrong place."""
    g = torch.Generator().manual_seed(0)
    loss = PartialAUCLoss(share, min_tpr=1 - share, prior=0.5)
    y = torch.arange(128) % 2
    above, below = [], []
    for step in range(400):
        scores = torch.empty(128).exponential_(generator=g)
        loss(torch.where(y == 1, -scores, scores), y)
        if step >= 200:
            above.append(math.exp(-loss.hard_negatives.threshold.item()))
            below.append(math.exp(-loss.hard_positives.threshold.item()))
    assert np.mean(above) == pytest.approx(share, rel=0.2)
    assert np.mean(below) == pytest.approx(share, rel=0.2)
    assert np.std(above) < tolerance


def test_threshold_follows_shift():
    g = torch.Generator().manual_seed(0)
    loss, y = PartialAUCLoss(0.1, prior=0.5), torch.arange(128) % 2
    for shift in [0.0] * 20 + [50.0] * 60:  # fifty deviations at once
        loss(torch.randn(128, generator=g) + shift, y)
    assert loss.hard_negatives.threshold.item() == pytest.approx(51.28, abs=0.5)


def test_threshold_starts_at_first_rows_and_rests_in_evaluation():
    loss = PartialAUCLoss(0.1, 0.5)
    g = torch.Generator().manual_seed(0)
    loss(torch.randn(4, generator=g), torch.ones(4))
    assert loss.hard_negatives.threshold.isnan()
    loss(torch.randn(10_000, generator=g) + 3, torch.zeros(10_000))
    assert loss.hard_negatives.threshold.item() == pytest.approx(4.28, abs=0.05)
    state = copy.deepcopy(loss.eval().state_dict())
    loss(torch.randn(10, generator=g), torch.zeros(10))
    torch.testing.assert_close(loss.state_dict(), state, rtol=0, atol=0)


def test_tied_scores_count_in_part():
    """A model whose last layer begins at zero."""
    loss = PartialAUCLoss(0.25, prior=0.5, link="sigmoid").double()
    y = torch.arange(8) % 2
    value, (d_scores, *_) = evaluate(loss, np.zeros(8), y.numpy())
    expected, (of_auc, *_) = evaluate(AUCLoss(0.5).double(), np.zeros(8), y.numpy())
    assert value == pytest.approx(expected)
    np.testing.assert_allclose(d_scores, of_auc)
    assert loss.hard_negatives.threshold.item() == 0.0


def test_hard_rows_have_total_weight_one():
    loss = PartialAUCLoss(0.1, prior=0.5, link="identity").double()
    y = torch.arange(200) % 2
    scores = torch.linspace(-1, 1, 200).double()
    loss.reset_primal(scores, y)
    far = (scores.detach() + 5).requires_grad_()
    loss(far, y).backward()
    weight = far.grad[y == 0] / (2 * (far.detach()[y == 0] - loss.b.detach() + 1))
    assert weight.sum().item() == pytest.approx(1.0, rel=1e-6)


# ---- Training ----------------------------------------------------------------------------------


def bulk_and_top(n, seed):
    """One feature orders all a little; the other puts most positives on top and the rest last.

    Rows far off cost a likelihood so much that it does without the second, which rules the top.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    last = (y == 1) & (rng.uniform(size=n) < 0.2)
    bulk = y + rng.normal(size=n)
    top = np.where(last, -8.0, 3.0 * y) + rng.normal(size=n)
    return torch.tensor(np.c_[bulk, top], dtype=torch.float32), torch.tensor(y)


def trained(loss, optimizer, x, y, steps=250, size=128):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    opt = optimizer(model, loss)
    for k in range(steps):
        rows = torch.arange(k * size, (k + 1) * size) % len(y)
        opt.zero_grad()
        loss(model(x[rows]), y[rows]).backward()
        opt.step()
    return model


def of_test(model, x, y):
    return roc_auc_score(y, model(x).detach().squeeze(1), max_fpr=0.1)


def test_partial_loss_beats_cross_entropy_at_the_top():
    x, y = bulk_and_top(6000, 0)
    test = bulk_and_top(6000, 1)
    likely = trained(CrossEntropy(), lambda m, _: torch.optim.AdamW(m.parameters(), lr=0.05), x, y)
    ppd_sg = lambda m, loss: aucmax.PPDSG(aucmax.minmax_groups(m, loss), lr=0.1)  # noqa: E731
    model = trained(PartialAUCLoss(0.1, prior=0.5), ppd_sg, x, y)
    assert of_test(model, *test) > of_test(likely, *test) + 0.2
