"""The pairwise loss against its definition."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from reference import pairwise as reference

import aucmax
from aucmax import PairwiseAUCLoss
from aucmax.loss.surrogates import SURROGATES

OPTIONS = {"margin": 0.75, "scale": 1.5, "q": 0.4}


def rows(n, seed, columns=1, ties=False):
    """Scores, labels, weights and groups; some weights are zero."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(n, columns))
    scores = np.round(2 * scores) / 2 if ties else scores
    target = (random.random((n, columns)) < 0.4).astype(float)
    weight = np.append(random.integers(0, 4, n - 1) / 2, 1.0)
    return scores, target, weight, random.integers(0, 3, n)


def value_and_gradient(loss, scores, target, *weight, **more):
    """Those of a loss, of arrays."""
    s = torch.tensor(scores, requires_grad=True)
    given_ = (None if x is None else torch.tensor(x) for x in (target, *weight))
    value = loss(s, *given_, **{k: torch.tensor(x) for k, x in more.items() if x is not None})
    value.backward()
    return value.item(), s.grad.numpy()


def wanted(name, scores, target, weight=None, group=None, memories=None, shares=(1, 0), **options):
    """The mean of the columns' values, and its gradient; memories are written to."""
    n, columns = scores.shape
    weight = np.ones(n) if weight is None else weight
    found = []
    for k in range(columns):
        label = target[:, k]
        column = (scores[:, k], weight * label, weight * (1 - label))
        memory = None if memories is None else memories[k]
        past = None if memory is None else memory.rows
        found.append(reference.pairwise_loss(name, *column, group, past, shares, **options))
        if memory is not None:
            memory.add(*column, np.zeros(n, int) if group is None else group)
    return np.mean([x for x, _ in found]), np.stack([x for _, x in found], 1) / columns


def close(found, wanted_):
    for x, y in zip(found, wanted_, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)


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
        wanted(name, *given_, group, shares=shares, **OPTIONS),
    )


@example(  # what rounding leaves of a full share is no pair
    name="squared_hinge", size=2, seed=357, columns=2, ties=False, grouped=True, shares=(0.4, 0.3)
)
@given(
    name=st.sampled_from(SURROGATES),
    size=st.integers(1, 5),
    seed=st.integers(0, 999),
    columns=st.integers(1, 2),
    ties=st.booleans(),
    grouped=st.booleans(),
    shares=st.sampled_from([(1.0, 0.0), (0.4, 0.3)]),
)
def test_pairwise_loss_with_memory_matches_definition(
    name, size, seed, columns, ties, grouped, shares
):
    loss = PairwiseAUCLoss(name, memory=size, max_fpr=shares[0], min_tpr=shares[1], **OPTIONS)
    memories = [reference.Memory(size) for _ in range(columns)]
    for step, n in enumerate((3, 1, 9, 2, 4)):
        scores, target, weight, group = rows(n, 10 * seed + step, columns, ties)
        group = group if grouped else None
        close(
            value_and_gradient(loss, scores, target, weight, group=group),
            wanted(name, scores, target, weight, group, memories, shares, **OPTIONS),
        )


@pytest.mark.parametrize("name", SURROGATES)
def test_pairwise_loss_gradcheck(name):
    scores, target, weight, group = (torch.tensor(x) for x in rows(8, 3))
    loss = PairwiseAUCLoss(name, **OPTIONS, memory=4, max_fpr=0.8)
    loss(scores + 0.1, target)  # written to the memory
    call = lambda s: copy.deepcopy(loss)(s, target, weight, group=group)  # noqa: E731
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


@pytest.mark.parametrize("options", [{}, {"memory": 3}, {"max_fpr": 0.5}])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_no_pair_gives_zero(options, label):
    target = np.full(4, label)
    value, gradient = value_and_gradient(PairwiseAUCLoss(**options), np.arange(4.0), target)
    assert value == 0.0
    assert not gradient.any()


def test_one_class_batch_with_memory():
    loss = PairwiseAUCLoss(memory=4)
    value_and_gradient(loss, np.array([0.5]), np.ones(1))
    value, gradient = value_and_gradient(loss, np.array([0.0, 1.0]), np.zeros(2))
    close((value, gradient), ((0.5**2 + 1.5**2) / 2, [0.5, 1.5]))


@pytest.mark.parametrize("options", [{}, {"memory": 3}])
def test_overflow_in_float32_is_infinite(options):
    scores = np.array([-1e30, 1e30], np.float32)
    value, gradient = value_and_gradient(PairwiseAUCLoss(**options), scores, np.array([1.0, 0.0]))
    assert value == np.inf
    np.testing.assert_allclose(gradient, [-4e30, 4e30], rtol=1e-6)


# ---- The memory as state -------------------------------------------------------------------------


def test_empty_memory_is_saved_and_loaded():
    loss = PairwiseAUCLoss(memory=5)
    loss.load_state_dict(PairwiseAUCLoss(memory=5).state_dict())
    assert value_and_gradient(loss, *rows(6, 0, columns=2)[:2])[0] > 0


def test_memory_skips_scores_that_are_not_finite():
    memory = PairwiseAUCLoss(memory=3).memory  # on a GPU, where values are not looked at
    scores = torch.tensor([[1.0, float("nan"), 2.0, float("inf")]])
    memory.add(scores, torch.ones_like(scores), torch.zeros_like(scores), None)
    assert memory.scores[0, 0].tolist() == [1.0, 2.0, 0.0]
    assert memory.weight[0, 0].tolist() == [1.0, 1.0, 0.0]


def test_evaluation_ignores_memory():
    loss, plain = PairwiseAUCLoss(memory=5), PairwiseAUCLoss()
    value_and_gradient(loss, *rows(6, 0, columns=2)[:2])
    before = copy.deepcopy(loss.state_dict())
    loss.eval()
    batch = rows(9, 1)[:2]
    close(value_and_gradient(loss, *batch), value_and_gradient(plain, *batch))
    assert all((x == y).all() for x, y in zip(before.values(), loss.buffers(), strict=True))


# ---- Bad input -----------------------------------------------------------------------------------


def test_memory_of_other_columns_raises():
    loss = PairwiseAUCLoss(memory=4)
    value_and_gradient(loss, *rows(6, 0, columns=2)[:2])
    with pytest.raises(ValueError, match=r"scores must have 2 columns.*found 3"):
        value_and_gradient(loss, *rows(6, 0, columns=3)[:2])
