"""Sums over pairs and the pairwise loss against the double loop over positives and negatives."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import pairwise as reference

import aucmax
from aucmax import PairwiseAUCLoss
from aucmax.loss import pairwise
from aucmax.loss.pairwise import SURROGATES, Surrogate, pair_means, top_share

OPTIONS = {"margin": 0.75, "scale": 1.5, "q": 0.4}


def rows(n, seed, columns=1, ties=False):
    """Scores, labels, weights and groups; some weights are zero.

    Ties are quarters, which the margin and the scale turn into quarters and eighths.
    """
    random = np.random.default_rng(seed)
    scores = random.normal(size=(n, columns))
    scores = np.round(2 * scores) / 2 if ties else scores
    target = (random.random((n, columns)) < 0.4).astype(float)
    weight = np.append(random.integers(0, 4, n - 1) / 2, 1.0)
    return scores, target, weight, random.integers(-2, 3, n)


def value_and_gradient(loss, scores, target, *weight, **more):
    """Those of a loss, of arrays."""
    s = torch.tensor(scores, requires_grad=True)
    given_ = (None if x is None else torch.tensor(x) for x in (target, *weight))
    value = loss(s, *given_, **{k: torch.tensor(x) for k, x in more.items() if x is not None})
    value.backward()
    return value.item(), s.grad.numpy()


def wanted(name, scores, target, weight=None, group=None, shares=(1, 0), **options):
    """The mean of the columns' values, and its gradient."""
    n, columns = scores.shape
    weight = np.ones(n) if weight is None else weight
    found = []
    for k in range(columns):
        label = target[:, k]
        column = (scores[:, k], weight * label, weight * (1 - label))
        found.append(reference.pairwise_loss(name, *column, group, shares, **options))
    return np.mean([x for x, _ in found]), np.stack([x for _, x in found], 1) / columns


def close(found, wanted_):
    for x, y in zip(found, wanted_, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)


# ---- Surrogates and sums -------------------------------------------------------------------------


@pytest.mark.parametrize("name", SURROGATES)
def test_surrogates_match_reference(name):
    z = torch.tensor([-800.0, -3.0, -0.5, 0.0, 0.25, 0.75, 2.0, 800.0], dtype=torch.float64)
    surrogate = Surrogate(name, **OPTIONS)
    found = (*surrogate.value_and_slope(z), surrogate.curvature(z))
    assert all(x.isfinite().all() for x in found)
    expected = np.array([reference.phi(name, x, 0.75, 0.4) for x in z[1:-1].tolist()]).T
    close([x[1:-1] for x in found], expected)


def means_of(name, scores, target, weight, group=None, kind=np.asarray):
    """Mean, gradient, mass and curvature of one column, of arrays or tensors."""
    weight = weight[:, None]
    columns = (kind(x.T.copy()) for x in (scores, weight * target, weight * (1 - target)))
    group = None if group is None else torch.tensor(group)
    found = pair_means(*columns, group, Surrogate(name, **OPTIONS), curved=True)
    return [np.asarray(x[0]) for x in found]


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("block", [pairwise.BLOCK, 7])
@given(n=st.integers(1, 12), seed=st.integers(0, 999), ties=st.booleans(), grouped=st.booleans())
def test_pair_means_match_double_loop(name, block, n, seed, ties, grouped):
    scores, target, weight, group = rows(n, seed, 1, ties)
    group = group if grouped else None
    up, down = weight * target[:, 0], weight * (1 - target[:, 0])
    expected = reference.pair_sums(name, scores[:, 0], up, down, group, **OPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairwise, "BLOCK", block)
        mean, gradient, mass, curvature = means_of(name, scores, target, weight, group)
    found = (mean * mass, mass, gradient * mass, curvature * mass)
    close(found, expected if mass else (0.0, 0.0, 0 * up, 0 * up))


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("block", [pairwise.BLOCK_ON_DEVICE, 200])
def test_pair_means_where_no_value_can_be_read(name, grouped, block, monkeypatch):
    """As on an accelerator and in compiled code, where rows are not selected by their class."""
    *given_, group = rows(40, 5, ties=True)
    group = group if grouped else None
    expected = means_of(name, *given_, group)
    monkeypatch.setattr(pairwise, "BLOCK_ON_DEVICE", block)
    monkeypatch.setattr(pairwise.checks, "host_readable", lambda x: False)
    close(means_of(name, *given_, group, kind=torch.tensor), expected)


@pytest.mark.parametrize("name", ["squared_hinge", "hinge", "square"])
def test_offset_of_scores_costs_no_digits(name):
    scores, target, weight, _ = rows(60, 2)
    scores = np.round(scores * 2**20) / 2**20  # so that the sum is exact
    found, shifted = (means_of(name, s, target, weight) for s in (scores, scores + 2.0**20))
    for x, y in zip(found, shifted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9)


@pytest.mark.parametrize("name", ["squared_hinge", "hinge"])
def test_pairs_beyond_the_margin_have_no_gradient(name):
    scores, target = np.array([[3.1], [1.2], [0.3], [0.1]]), np.array([[1.0], [1.0], [0.0], [0.0]])
    found, gradient, _, curvature = means_of(name, scores, target, np.array([0.1, 0.2, 0.3, 0.7]))
    assert found == 0
    assert not gradient.any()
    assert not curvature.any()


def test_top_share_counts_the_boundary_row_in_part():
    scores = torch.tensor([[3.0, 1.0, 2.0, 2.0]])
    weight = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    assert top_share(scores, weight, 0.625, None).tolist() == [[1.0, 0.0, 1.0, 0.5]]
    group = torch.tensor([7, 7, -1, 7])
    assert top_share(scores, weight, 0.5, group).tolist() == [[1.0, 0.0, 0.5, 0.5]]


# ---- The definition ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SURROGATES)
@given(
    n=st.integers(1, 10),
    seed=st.integers(0, 999),
    columns=st.integers(1, 3),
    ties=st.booleans(),
    weighted=st.booleans(),
    grouped=st.booleans(),
    shares=st.sampled_from([(1.0, 0.0), (0.3, 0.0), (0.25, 0.5), (1.0, 0.9)]),
)
def test_pairwise_loss_matches_definition(name, n, seed, columns, ties, weighted, grouped, shares):
    scores, target, weight, group = rows(n, seed, columns, ties)
    given_ = (scores, target, weight if weighted else None)
    group = group if grouped else None
    loss = PairwiseAUCLoss(name, max_fpr=shares[0], min_tpr=shares[1], **OPTIONS)
    close(
        value_and_gradient(loss, *given_, group=group),
        wanted(name, *given_, group, shares, **OPTIONS),
    )


def test_what_rounding_leaves_of_a_full_share_is_no_pair():
    """In both columns a class of some group is all of its share."""
    for seed in range(300):
        scores, target, weight, group = rows(9, seed, 2)
        loss = PairwiseAUCLoss(max_fpr=0.4, min_tpr=0.3)
        close(
            value_and_gradient(loss, scores, target, weight, group=group),
            wanted("squared_hinge", scores, target, weight, group, (0.4, 0.3)),
        )


@pytest.mark.parametrize("name", SURROGATES)
def test_pairwise_loss_gradcheck(name):
    scores, target, weight, group = (torch.tensor(x) for x in rows(8, 3))
    loss = PairwiseAUCLoss(name, **OPTIONS, max_fpr=0.8)
    call = lambda s: loss(s, target, weight, group=group)  # noqa: E731
    assert torch.autograd.gradcheck(call, scores.requires_grad_())


def test_square_surrogate_equals_saddle_optimum():
    scores, target, weight, _ = (torch.tensor(x).squeeze(-1) for x in rows(30, 1))
    saddle = aucmax.AUCLoss(link="identity", prior=(weight @ target / weight.sum()).item()).double()
    saddle.reset_primal(scores, target, weight)
    saddle.reset_dual(scores, target, weight)
    square = PairwiseAUCLoss("square")(scores, target, weight)
    assert saddle(scores, target, weight).item() == pytest.approx(square.item(), rel=1e-6)


# ---- Shapes and kinds ----------------------------------------------------------------------------


def test_pairwise_classes_one_vs_rest():
    scores = rows(20, 0, columns=3)[0]
    classes = np.random.default_rng(0).integers(0, 3, 20)
    close(
        value_and_gradient(PairwiseAUCLoss(), scores, classes),
        wanted("squared_hinge", scores, np.eye(3)[classes]),
    )


def test_pairwise_missing_labels():
    scores, target, *_ = rows(20, 0, columns=2)
    target[5:10, 1] = np.nan
    value, gradient = value_and_gradient(PairwiseAUCLoss(), scores, target)
    kept = np.r_[0:5, 10:20]
    first = wanted("squared_hinge", scores[:, :1], target[:, :1])
    second = wanted("squared_hinge", scores[kept, 1:], target[kept, 1:])
    close((value,), ((first[0] + second[0]) / 2,))
    close((gradient[:, 0], gradient[kept, 1]), (first[1][:, 0] / 2, second[1][:, 0] / 2))
    assert not gradient[5:10, 1].any()


@pytest.mark.parametrize("options", [{}, {"surrogate": "logistic"}, {"max_fpr": 0.5}])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_no_pair_gives_zero(options, label):
    target = np.full(4, label)
    value, gradient = value_and_gradient(PairwiseAUCLoss(**options), np.arange(4.0), target)
    assert value == 0.0
    assert not gradient.any()


def test_overflow_in_float32_is_infinite():
    scores = np.array([-1e30, 1e30], np.float32)
    value, gradient = value_and_gradient(PairwiseAUCLoss(), scores, np.array([1.0, 0.0]))
    assert value == np.inf
    np.testing.assert_allclose(gradient, [-4e30, 4e30], rtol=1e-6)
