"""AUCLoss against the paper's formula and the pairwise risk, both in NumPy."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference.objective import batch_gradients, batch_loss, pairwise_risk, sigmoid
from reference.prior import UnbiasedPrior

from aucmax import (
    AUCLoss,
    StreamingPrior,
)
from aucmax.loss import CrossEntropy
from aucmax.loss.saddle import BLOCK, LINKS, ClassSums, coefficients, row_sums, saddle

POINT = (0.3, -0.2, 0.4)  # a, b, alpha: nothing special
ignore_share = pytest.mark.filterwarnings("ignore:prior=")  # priors that are wrong on purpose


# ---- Helpers -----------------------------------------------------------------------------------


def make_loss(prior=0.25, point=POINT, dtype=torch.float64, **options):
    loss = AUCLoss(prior, **{"guard": False, **options}).to(dtype)
    with torch.no_grad():
        for parameter, value in zip((loss.a, loss.b, loss.alpha), point, strict=True):
            parameter.fill_(value)
    return loss


def make_batch(n=16, dtype=torch.float64, seed=0):
    """Scores, labels of which a quarter are positive, and weights."""
    g = torch.Generator().manual_seed(seed)
    target = (torch.arange(n) % 4 == 1).to(dtype)
    scores = torch.randn(n, generator=g, dtype=torch.float64) + target
    weight = 0.2 + torch.rand(n, generator=g, dtype=torch.float64)
    return scores.to(dtype).requires_grad_(), target, weight.to(dtype)


def gradients(value, loss, scores, **options):
    return torch.autograd.grad(value, [scores, loss.a, loss.b, loss.alpha], **options)


def evaluate(loss, scores, y, weight=None):
    """Value and gradients in scores, a, b, alpha, float64 arrays."""
    scores = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    weight = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    value = loss(scores, torch.tensor(y), weight)
    return value.item(), [g.numpy().squeeze() for g in gradients(value, loss, scores)]


def link_and_slope(scores, link):
    """h and dh/dscores."""
    h = sigmoid(scores) if link == "sigmoid" else scores
    return h, h * (1 - h) if link == "sigmoid" else np.ones_like(h)


def expected(scores, y, point, p, margin, normalize, link, weight=None, pq=None):
    """What evaluate should give, from the NumPy reference."""
    h, slope = link_and_slope(scores, link)
    arguments = (h, y, *point, p, margin, normalize, weight, pq)
    dh, *rest = batch_gradients(*arguments)
    return batch_loss(*arguments), [dh * slope, *rest]


def assert_close(found, wanted, tolerance=1e-10):
    np.testing.assert_allclose(found[0], wanted[0], rtol=tolerance, atol=tolerance)
    for x, y in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def assert_same(found, wanted, **options):
    """Equal in value and dtype, bit for bit unless options say otherwise."""
    options = options or {"rtol": 0.0, "atol": 0.0}
    torch.testing.assert_close(found, wanted, **options)


@st.composite
def batches(draw, both_classes=True):
    """Scores (often tied), labels and weights or None."""
    y = draw(st.lists(st.integers(0, 1), min_size=1, max_size=10))
    y = np.array(draw(st.permutations([0, 1, *y])) if both_classes else y)
    tied = st.sampled_from([-1.0, 0.0, 0.5])
    score = draw(st.sampled_from([st.floats(-6, 6), tied, st.floats(-6, 6) | tied]))
    scores = np.array(draw(st.lists(score, min_size=len(y), max_size=len(y))))
    weight = st.lists(st.floats(0.1, 10), min_size=len(y), max_size=len(y)).map(np.array)
    return scores, y, draw(st.none() | weight)


margins = st.sampled_from([1.0, 0.3]) | st.floats(0.1, 3)
links = st.sampled_from(["sigmoid", "identity"])
points = st.tuples(*[st.floats(-2, 2)] * 3)


# ---- The mathematics ---------------------------------------------------------------------------


@given(batches(), margins, links)
def test_optimum_is_pairwise_risk(batch, margin, link):
    scores, y, weight = batch
    loss = AUCLoss(np.average(y, weights=weight), margin=margin, link=link).double()
    tensors = [None if x is None else torch.tensor(x) for x in batch]
    loss.reset_primal(*tensors)
    loss.reset_dual(*tensors)
    value, (d_scores, *d_saddle) = evaluate(loss, scores, y, weight)
    h, slope = link_and_slope(scores, link)
    risk, d_h = pairwise_risk(h, y, margin, weight)
    assert_close((value, [d_scores, *d_saddle]), (risk, [d_h * slope, 0.0, 0.0, 0.0]))


@ignore_share
@given(batches(both_classes=False), points, st.floats(0.01, 0.99), margins, links, st.booleans())
def test_auc_loss_matches_reference(batch, point, p, margin, link, normalize):
    scores, y, weight = batch
    loss = make_loss(p, point, margin=margin, link=link, normalize=normalize)
    found = evaluate(loss, scores, y, weight)
    assert_close(found, expected(scores, y, point, p, margin, normalize, link, weight))


def test_reset_sets_class_means():
    loss = AUCLoss(0.5, link="identity")
    scores, target = torch.tensor([1.0, 2.0, 5.0, 9.0]), torch.tensor([0, 1, 0, 1])
    weight = torch.tensor([3.0, 1.0, 1.0, 1.0])
    loss.reset_primal(scores, target, weight)
    assert (loss.a.item(), loss.b.item(), loss.alpha.item()) == (5.5, 2.0, 0.0)
    loss.reset_dual(scores[:, None], target, weight)
    assert (loss.a.item(), loss.b.item(), loss.alpha.item()) == (5.5, 2.0, -3.5)
    assert loss.alpha.grad is None
    assert loss.alpha.requires_grad


# ---- The formula -------------------------------------------------------------------------------


@pytest.mark.parametrize(("link", "weighted"), [("sigmoid", True), ("identity", False)])
def test_several_blocks_equal_the_reference(link, weighted):
    scores, target, weight = make_batch(2 * BLOCK + 3)
    loss = make_loss(link=link)
    arrays = (x.detach().numpy() for x in (scores, target, weight))
    s, y, w = arrays
    w = w if weighted else None
    assert_close(evaluate(loss, s, y, w), expected(s, y, POINT, 0.25, 1.0, True, link, w), 1e-11)


def test_sums_of_rows_give_the_value_of_the_loss():
    """The formula of the other forms, row by row, with gradients by autograd."""
    scores, target, weight = make_batch()
    loss = make_loss()
    wanted = loss(scores, target, weight)
    terms = coefficients(0.25, 0.1875, 1.0, True)
    k = weight / weight.sum() * (target * terms.positive + (1 - target) * terms.negative)
    rows = row_sums(LINKS["sigmoid"](scores), target, k, loss.a, loss.b)
    sums = ClassSums(*(x.sum() for x in rows))
    value, *found = saddle(sums, loss.a, loss.b, loss.alpha, terms.dual, 1.0)
    assert_same(value.sum() + terms.constant, wanted, rtol=1e-13, atol=0.0)
    gradient, *rest = gradients(wanted, loss, scores)
    assert_same([x.reshape(1) for x in found], [*rest], rtol=1e-12, atol=1e-15)
    by_autograd = gradients(value.sum(), loss, scores)
    assert_same([*by_autograd], [gradient, *rest], rtol=1e-12, atol=1e-15)


# ---- Backward ----------------------------------------------------------------------------------


def test_step_between_forward_and_backward():
    loss, (scores, target, _) = make_loss(), make_batch()
    wanted = gradients(loss(scores, target), loss, scores)
    value = loss(scores, target)
    with torch.no_grad():
        loss.alpha.add_(1.0)
    assert_same(gradients(value, loss, scores), wanted)


# ---- Precision ---------------------------------------------------------------------------------


def test_large_finite_scores():
    scores = torch.tensor([1e30, -1e30, 3e38, -1e30], requires_grad=True)
    value = AUCLoss(0.5)(scores, torch.tensor([1, 0, 1, 0]))
    value.backward()
    assert value.item() == 0.0  # h is 1, 0, 1, 0: one plus the mean of 2 (h^2 - 2 h), -2, 0, -2, 0
    assert scores.grad.tolist() == [0.0] * 4


# ---- The streaming prior inside the loss -------------------------------------------------------


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_streaming_prior_is_estimated_before_the_batch(normalize, weighted):
    rng = np.random.default_rng(0)
    loss, prior = make_loss(None, normalize=normalize), UnbiasedPrior()
    for n in (1, 7, 32, 32):
        scores, y = rng.normal(size=n), (rng.random(n) < 0.2).astype(int)
        weight = rng.uniform(0.5, 1.5, size=n) if weighted else None
        wanted = expected(scores, y, POINT, prior.p, 1.0, normalize, "sigmoid", weight, prior.pq)
        assert_close(evaluate(loss, scores, y, weight), wanted, 1e-12)
        prior.update(y, weight)
        assert loss.prior.p.item() == pytest.approx(prior.p, rel=1e-12)
        assert loss.prior.p_one_minus_p.item() == pytest.approx(prior.pq, rel=1e-12)


def test_streaming_prior_is_updated_in_training_only():
    loss, (scores, target, _) = make_loss(None), make_batch()
    loss(scores, target)
    learned = loss.prior.p.item()
    assert learned == (4 + 1) / (16 + 2)
    loss.eval()
    value = loss(scores, 1 - target)
    assert loss.prior.p.item() == learned
    pq = loss.prior.p_one_minus_p.item()
    y, s = 1 - target.numpy(), scores.detach().numpy()
    wanted, _ = expected(s, y, POINT, learned, 1.0, True, "sigmoid", pq=pq)
    assert value.item() == pytest.approx(wanted, rel=1e-12)
    loss.train()
    loss(scores, target)
    assert loss.prior.p.item() == (8 + 1) / (32 + 2)


# ---- alpha_min ---------------------------------------------------------------------------------


def auc_margin(h, y, margin, alpha_prime):
    """The AUC-margin objective with a, b at the class means, of its own dual alpha' >= 0."""
    positive, negative = h[y == 1], h[y == 0]
    gap = margin + negative.mean() - positive.mean()
    return positive.var() + negative.var() + 2 * alpha_prime * gap - alpha_prime**2


@given(batches(), margins, st.floats(0, 3))
def test_alpha_min_gives_auc_margin_objective(batch, margin, alpha_prime):
    scores, y, _ = batch
    x, target = torch.tensor(scores), torch.tensor(y)
    loss = AUCLoss(y.mean(), margin=margin, link="identity", alpha_min=-margin).double()
    loss.reset_primal(x, target)
    loss.alpha.data.fill_(alpha_prime - margin)
    wanted = auc_margin(scores, y, margin, alpha_prime)
    assert loss(x, target).item() == pytest.approx(wanted, rel=1e-10, abs=1e-10)

    loss.reset_dual(x, target)
    best = max(0.0, margin + scores[y == 0].mean() - scores[y == 1].mean())
    wanted = auc_margin(scores, y, margin, best)
    assert loss.alpha.item() == pytest.approx(best - margin, abs=1e-12)
    assert loss(x, target).item() == pytest.approx(wanted, rel=1e-10, abs=1e-10)


def test_two_forwards_before_backward_with_alpha_min():
    scores, target, _ = make_batch()
    loss = make_loss(point=(0.0, 0.0, -3.0), alpha_min=-1.0)
    both = gradients(loss(scores, target) + loss(2 * scores, target), loss, scores)
    projected = make_loss(point=(0.0, 0.0, -1.0))
    first = gradients(projected(scores, target), projected, scores)
    second = gradients(projected(2 * scores, target), projected, scores)
    wanted = tuple(x + y for x, y in zip(first, second, strict=True))
    assert_same(both, wanted, rtol=1e-13, atol=1e-13)
    value = loss(scores, target)
    loss(scores, target)
    gradients(value, loss, scores, create_graph=True)  # reads the saved alpha


# ---- As a module -------------------------------------------------------------------------------


def test_prior_is_module_or_number():
    assert isinstance(AUCLoss().prior, StreamingPrior)
    assert AUCLoss(torch.tensor(0.25)).prior == 0.25
    assert AUCLoss(np.float32(0.25)).prior == 0.25


# ---- The warning about a wrong prior -----------------------------------------------------------


def walk(loss, share, batches, n=64, seed=0):
    """Batches of random labels."""
    rng = torch.Generator().manual_seed(seed)
    for _ in range(batches):
        loss(torch.zeros(n), torch.rand(n, generator=rng) < share)


def test_prior_of_balanced_batches_warns_once():
    loss, target = AUCLoss(0.09), torch.arange(64) % 2
    with pytest.warns(UserWarning, match=r"prior=0\.09, but 0\.5 of the 64 labels") as caught:
        loss(torch.zeros(64), target)
    assert caught[0].filename == __file__
    walk(loss, 0.5, batches=20)


@pytest.mark.parametrize(("prior", "share"), [(0.5, 0.09), (0.1, 0.2), (0.9, 0.7), (0.01, 0.02)])
def test_wrong_prior_warns(prior, share):
    loss = AUCLoss(prior)
    with pytest.warns(UserWarning, match="prior must be the share of positives in the batches"):
        walk(loss, share, batches=400)


@pytest.mark.parametrize("share", [0.5, 0.09, 0.01, 0.97])
def test_right_prior_does_not_warn(share):
    walk(AUCLoss(share), share, batches=500)


def test_rounded_prior_does_not_warn():
    loss, target = AUCLoss(0.09), torch.arange(440_000) % 11 == 0  # 0.0909 of them
    for _ in range(20):
        loss(torch.zeros(len(target)), target)


# At np far below one a single early positive is more than five standard errors away from p.
@pytest.mark.parametrize("n", [8, 32])
def test_early_positive_of_rare_class_does_not_warn(n):
    AUCLoss(0.001)(torch.zeros(n), torch.arange(n) == 0)


def test_evaluation_batches_do_not_count_against_prior():
    loss = AUCLoss(0.09)
    walk(loss.eval(), 0.5, batches=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        walk(loss.train(), 0.09, batches=20)


def test_validation_without_gradients_does_not_count_against_prior():
    """Few set the loss to evaluation, as they do the model."""
    loss = AUCLoss(0.5)
    with torch.no_grad():
        walk(loss, 0.09, batches=20)
    walk(loss, 0.5, batches=20)


def test_a_transform_over_batches_counts_nothing_against_prior():
    scores, y = torch.linspace(-1, 1, 32).view(4, 8), (torch.arange(32) % 8 == 0).view(4, 8)
    found = torch.func.vmap(AUCLoss(0.5))(scores, y)
    one_by_one = [AUCLoss(0.5)(*batch) for batch in zip(scores, y, strict=True)]
    torch.testing.assert_close(found, torch.stack(one_by_one))


def test_scores_of_inference_mode():
    loss, y = AUCLoss(0.5), torch.arange(8) % 2
    with torch.inference_mode():
        scores = torch.linspace(-1, 1, 8)
        inside = loss(scores, y)
    assert loss(scores, y).item() == inside.item()


# ---- Where it lives ----------------------------------------------------------------------------


def test_a_low_default_dtype_leaves_variables_that_can_move():
    torch.set_default_dtype(torch.bfloat16)
    try:
        loss = AUCLoss(0.3) + CrossEntropy()
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for p in loss.parameters()} == {torch.float32}


@pytest.mark.parametrize("build", [AUCLoss, lambda: AUCLoss(0.3)])
def test_loss_made_on_meta(build):
    with torch.device("meta"):
        loss = build()
    assert "AUCLoss" in repr(loss)
    loss = loss.to_empty(device="cpu")
    assert all(x.is_cpu for x in (*loss.parameters(), *loss.buffers()))
