"""GroupedAUCLoss against the mean over pairs within groups and its transcription."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import grouped

from aucmax import GroupedAUCLoss
from aucmax.checks import MissingClassError
from aucmax.data import count_classes

LINKS = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "identity": lambda x: x}
G = 5


# ---- Helpers -----------------------------------------------------------------------------------


def make_rows(seed=0, n=30, ties=False, weighted=True, groups=G):
    """Scores, labels, weights, groups; group 0 has both classes, the last positives alone."""
    rng = np.random.default_rng(seed)
    group = rng.integers(groups, size=n)
    y = (rng.uniform(size=n) < 0.4).astype(float)
    group[:2], y[:2] = 0, (1, 0)
    y[group == groups - 1] = 1
    scores = rng.normal(size=n)
    scores = scores.round() if ties else scores
    return scores, y, rng.uniform(0.2, 2, n) if weighted else None, group


def tensors(*arrays):
    return [None if x is None else torch.tensor(x) for x in arrays]


def make_loss(rows, seed=0, groups=G, **options):
    """The loss of these rows as training data, at a random point."""
    _, y, weight, group = tensors(*rows)
    positives, negatives = count_classes(group, y, weight)
    missing = groups - len(positives)
    positives, negatives = (torch.cat([x, x.new_zeros(missing)]) for x in (positives, negatives))
    loss = GroupedAUCLoss(positives, negatives, **{"guard": False, **options}).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in loss.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    return loss, positives.numpy(), negatives.numpy()


def value_and_gradients(loss, rows):
    scores, y, weight, group = tensors(*rows)
    scores.requires_grad_()
    value = loss(scores, y, weight, group=group)
    gradients = torch.autograd.grad(value, [scores, loss.a, loss.b, loss.alpha])
    return value.item(), [g.numpy() for g in gradients]


def values_of(loss):
    return [p.detach().numpy().copy() for p in (loss.a, loss.b, loss.alpha)]


def near(found, wanted, tolerance=1e-10):
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


# ---- The mathematics ---------------------------------------------------------------------------

ROWS = st.builds(
    make_rows,
    seed=st.integers(0, 10_000),
    n=st.integers(2, 25),
    ties=st.booleans(),
    weighted=st.booleans(),
)


@given(rows=ROWS, link=st.sampled_from(list(LINKS)), margin=st.floats(0.1, 3))
def test_grouped_optimum_is_pairwise_risk_within_groups(rows, link, margin):
    loss, *_ = make_loss(rows, link=link, margin=margin)
    scores, y, weight, group = rows
    loss.reset_primal(*tensors(*rows))
    loss.reset_dual(*tensors(*rows))
    value, (gradient, *of_variables) = value_and_gradients(loss, rows)
    h = LINKS[link](scores)
    risk, wanted = grouped.pairwise_risk(h, y, group, margin, weight)
    slope = h * (1 - h) if link == "sigmoid" else 1.0
    near(value, risk)
    near(gradient, wanted * slope)  # where the gradients in a, b and alpha vanish
    near(np.concatenate(of_variables), 0.0)
    paired = ~np.isnan(grouped.optimal_a_b_alpha(h, y, group, G, weight)[0])
    for found, best in zip(
        values_of(loss), grouped.optimal_a_b_alpha(h, y, group, G, weight), strict=True
    ):
        near(found[paired], best[paired])


@given(
    rows=ROWS,
    batch=st.integers(0, 99),
    prior=st.sampled_from([None, 0.5, 0.2]),
    link=st.sampled_from(list(LINKS)),
)
def test_grouped_loss_matches_reference(rows, batch, prior, link):
    loss, positives, negatives = make_loss(rows, prior=prior, link=link, margin=0.7)
    picked = np.random.default_rng(batch).integers(len(rows[0]), size=6)
    part = [None if x is None else x[picked] for x in rows]
    scores, y, weight, group = part
    wanted = grouped.batch_loss(
        LINKS[link](scores),
        y,
        group,
        *values_of(loss),
        positives,
        negatives,
        0.7,
        weight,
        prior,
    )
    near(value_and_gradients(loss, part)[0], wanted)


def test_grouped_prior_corrects_balanced_batches():
    """Half positives, each class drawn at random: the expectation over rows of a class is exact."""
    rows = make_rows(n=60, weighted=False)
    rows = [None if x is None else x[np.isin(rows[3], [0, 1, 2])] for x in rows]
    loss, *_ = make_loss(rows, groups=3)
    balanced, *_ = make_loss(rows, groups=3, prior=0.5)
    ones, zeros = np.flatnonzero(rows[1] == 1), np.flatnonzero(rows[1] == 0)
    batch = np.concatenate([np.tile(ones, len(zeros)), np.tile(zeros, len(ones))])
    found = value_and_gradients(balanced, [None if x is None else x[batch] for x in rows])
    wanted = value_and_gradients(loss, rows)
    near(found[0], wanted[0])
    for x, y in zip(found[1][1:], wanted[1][1:], strict=True):
        near(x, y)


def test_groups_of_one_class_have_no_gradient():
    rows = make_rows()
    loss, *_ = make_loss(rows)
    alone = rows[3] == G - 1
    _, (scores, *of_variables) = value_and_gradients(loss, rows)
    assert alone.any()
    assert not scores[alone].any()
    assert not any(g[G - 1] for g in of_variables)
    value, gradients = value_and_gradients(loss, [x[alone] for x in rows])
    assert value == 1.0  # the margin's square, as every row has it
    assert not any(g.any() for g in gradients)


def test_grouped_alpha_min():
    rows = make_rows()
    loss, *_ = make_loss(rows, alpha_min=0.3)
    value_and_gradients(loss, rows)
    assert (loss.alpha >= 0.3).all()
    loss.reset_dual(*tensors(*rows))
    assert (loss.alpha >= 0.3).all()


# ---- Closed forms ------------------------------------------------------------------------------


def test_reset_keeps_groups_without_both_classes():
    rows = make_rows()
    loss, *_ = make_loss(rows)
    before = values_of(loss)
    part = [x[np.isin(rows[3], [0, 1, G - 1])] for x in rows]
    loss.reset_primal(*tensors(*part))
    loss.reset_dual(*tensors(*part))
    for found, old in zip(values_of(loss), before, strict=True):
        assert (found == old).tolist() == [False, False, True, True, True]


def test_reset_sets_unseen_groups_to_mean_of_others():
    """At zero they would pull all scores there."""
    rows = make_rows()
    loss = GroupedAUCLoss([1.0] * G, [1.0] * G).double()
    part = scores, y, weight, group = [x[np.isin(rows[3], [0, 1])] for x in rows]
    loss.reset_primal(*tensors(*part))
    best = grouped.optimal_a_b_alpha(LINKS["sigmoid"](scores), y, group, 2, weight)
    mass = [[weight[(group == g) & (y == label)].sum() for label in (0, 1)] for g in (0, 1)]
    near(loss.a[2:].detach(), np.average(best[0], weights=np.prod(mass, 1)))
    near(loss.b[2:].detach(), np.average(best[1], weights=np.prod(mass, 1)))


@pytest.mark.parametrize("name", ["reset_primal", "reset_dual"])
def test_reset_without_pairs_raises(name):
    loss, *_ = make_loss(make_rows())
    before = values_of(loss)
    with pytest.raises(MissingClassError, match="1 groups with positives and 2 with negatives"):
        getattr(loss, name)(
            torch.zeros(4), torch.tensor([1, 0, 0, 0]), None, torch.tensor([0, 1, 1, 2])
        )
    near(values_of(loss), before, 0)
