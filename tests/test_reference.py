"""The references themselves: gradients by finite differences, the algorithms by closed forms."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import oauc, pga, ppd_adagrad, ppd_sg
from reference.objective import (
    F,
    LinearSigmoid,
    OneHidden,
    batch_gradients,
    batch_loss,
    closed_form_dual,
    multiclass_loss,
    multiclass_optimal_a_b_alpha,
    multiclass_pairwise_risk,
    optimal_a_b_alpha,
    pairwise_risk,
    saddle_gradient,
    saddle_loss,
)
from reference.prior import PaperPrior, UnbiasedPrior


def numerical_gradient(f, x, step=1e-6):
    gradient = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        gradient[i] = (f(up) - f(down)) / (2 * step)
    return gradient


def make_batch(n=9, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3 % 2  # a third of the labels are positive
    return rng.uniform(size=n), y, rng.uniform(0.5, 2.0, size=n)


def make_task(n=60, seed=0):
    """Two Gaussian classes in the plane, a third of them positive."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3 % 2
    return rng.normal(size=(n, 2)) + 1.5 * y[:, None], y


# ---- Objective ---------------------------------------------------------------------------------


def test_pairwise_risk_is_the_mean_over_pairs():
    h, y, weight = make_batch()
    shortfall = (1.5 - h[y == 1][:, None] + h[y == 0][None, :]) ** 2
    pair_weight = np.outer(weight[y == 1], weight[y == 0])
    assert pairwise_risk(h, y, 1.5)[0] == pytest.approx(shortfall.mean())
    expected = np.average(shortfall, weights=pair_weight)
    assert pairwise_risk(h, y, 1.5, weight)[0] == pytest.approx(expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_pairwise_risk_gradient(weighted):
    h, y, weight = make_batch()
    weight = weight if weighted else None
    numerical = numerical_gradient(lambda x: pairwise_risk(x, y, 0.7, weight)[0], h)
    np.testing.assert_allclose(pairwise_risk(h, y, 0.7, weight)[1], numerical, atol=1e-8)


def test_F_of_a_positive_and_a_negative_by_hand():
    values = F(np.array([0.5, 0.5]), np.array([1, 0]), a=0.1, b=0.2, alpha=-0.5, p=0.25)
    positive = 0.75 * 0.4**2 - 2 * 0.5 * 0.75 * 0.5 - 0.1875 * 0.25
    negative = 0.25 * 0.3**2 + 2 * 0.5 * 0.25 * 0.5 - 0.1875 * 0.25
    np.testing.assert_allclose(values, [positive, negative])


def test_an_estimate_of_p_one_minus_p_enters_the_last_term_only():
    h, y, _ = make_batch()
    change = F(h, y, 0.6, 0.3, -0.4, 0.2, pq=0.26) - F(h, y, 0.6, 0.3, -0.4, 0.2, pq=0.16)
    np.testing.assert_allclose(change, -0.1 * 0.4**2)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pq", [None, 0.11])
def test_batch_gradients(normalize, weighted, pq):
    h, y, weight = make_batch()
    weight = weight if weighted else None
    scalars = np.array([0.6, 0.3, -0.4])

    def loss(h, scalars):
        return batch_loss(h, y, *scalars, 0.2, 0.7, normalize, weight, pq)

    dh, *d_scalars = batch_gradients(h, y, *scalars, 0.2, 0.7, normalize, weight, pq)
    np.testing.assert_allclose(dh, numerical_gradient(lambda x: loss(x, scalars), h), atol=1e-8)
    numerical = numerical_gradient(lambda x: loss(h, x), scalars)
    np.testing.assert_allclose(d_scalars, numerical, atol=1e-8)


@given(seed=st.integers(0, 10**6), margin=st.floats(0.1, 3.0), weighted=st.booleans())
def test_proposition_1(seed, margin, weighted):
    """At the saddle point m^2 + F / (p (1 - p)) is the pairwise risk, and so is its gradient."""
    h, y, weight = make_batch(seed=seed)
    weight = weight if weighted else np.ones(len(h))
    p = weight[y == 1].sum() / weight.sum()
    a, b, alpha = optimal_a_b_alpha(h, y, weight)
    risk, risk_gradient = pairwise_risk(h, y, margin, weight)
    assert batch_loss(h, y, a, b, alpha, p, margin, True, weight) == pytest.approx(risk)
    dh, *d_scalars = batch_gradients(h, y, a, b, alpha, p, margin, True, weight)
    np.testing.assert_allclose(dh, risk_gradient, atol=1e-12)
    np.testing.assert_allclose(d_scalars, 0, atol=1e-12)


def test_the_saddle_is_a_minimum_in_a_b_and_a_maximum_in_alpha():
    h, y, _ = make_batch()
    a, b, alpha = optimal_a_b_alpha(h, y)
    best = batch_loss(h, y, a, b, alpha, 1 / 3, 1.0, True)
    for shift in (-0.1, 0.1):
        assert batch_loss(h, y, a + shift, b, alpha, 1 / 3, 1.0, True) > best
        assert batch_loss(h, y, a, b + shift, alpha, 1 / 3, 1.0, True) > best
        assert batch_loss(h, y, a, b, alpha + shift, 1 / 3, 1.0, True) < best


# ---- More than two classes ---------------------------------------------------------------------


def make_multiclass_batch(n=12, classes=3, seed=1):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % (classes + 1) % classes  # class 0 twice as often as the others
    return rng.uniform(size=(n, classes)), y, rng.uniform(0.5, 2.0, size=n)


def test_multiclass_risk_counts_every_pair_of_every_class_pair():
    h, y, weight = make_multiclass_batch()
    means = []
    for i, j in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]:
        shortfall = (1 - h[y == i, i][:, None] + h[y == j, i][None, :]) ** 2
        means.append(np.average(shortfall, weights=np.outer(weight[y == i], weight[y == j])))
    assert multiclass_pairwise_risk(h, y, 1.0, weight)[0] == pytest.approx(np.mean(means))


def test_multiclass_risk_gradient():
    h, y, weight = make_multiclass_batch()
    numerical = numerical_gradient(lambda x: multiclass_pairwise_risk(x, y, 1.2, weight)[0], h)
    gradient = multiclass_pairwise_risk(h, y, 1.2, weight)[1]
    np.testing.assert_allclose(gradient, numerical, atol=1e-8)


def test_multiclass_loss_at_its_saddle_is_the_multiclass_risk():
    h, y, weight = make_multiclass_batch()
    priors = np.array([weight[y == k].sum() for k in range(3)]) / weight.sum()
    a, b, alpha = multiclass_optimal_a_b_alpha(h, y, weight)
    loss = multiclass_loss(h, y, a, b, alpha, priors, 1.3, True, weight)
    assert loss == pytest.approx(multiclass_pairwise_risk(h, y, 1.3, weight)[0])


@pytest.mark.parametrize("normalize", [False, True])
def test_two_classes_are_the_mean_of_two_binary_losses(normalize):
    h, y, _ = make_multiclass_batch(classes=2)
    a, b, alpha = np.random.default_rng(2).uniform(size=(3, 2, 2))
    losses = [
        batch_loss(h[:, i], y == i, a[i, 1 - i], b[i, 1 - i], alpha[i, 1 - i], p, 1.0, normalize)
        for i, p in enumerate([0.7, 0.3])
    ]
    loss = multiclass_loss(h, y, a, b, alpha, np.array([0.7, 0.3]), 1.0, normalize)
    assert loss == pytest.approx(np.mean(losses))


# ---- Scoring models ----------------------------------------------------------------------------


@pytest.mark.parametrize("model", [LinearSigmoid(2), OneHidden(2, 3)])
def test_model_gradients(model):
    X, y = make_task()
    rng = np.random.default_rng(1)
    w, dh = rng.normal(size=model.size), rng.normal(size=len(y))
    numerical = numerical_gradient(lambda w: dh @ model.h(w, X), w)
    np.testing.assert_allclose(model.vjp(w, X, dh), numerical, atol=1e-7)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pq", [None, 0.2])
def test_saddle_gradient(normalize, pq):
    X, y = make_task()
    model = OneHidden(2, 3)
    rng = np.random.default_rng(1)
    v, alpha = rng.normal(size=model.size + 2), np.array([-0.3])
    rest = (X, y, 0.3, 0.8, normalize, pq)
    g_v, g_alpha = saddle_gradient(model, v, alpha, *rest)
    numerical_v = numerical_gradient(lambda v: saddle_loss(model, v, alpha, *rest), v)
    numerical_alpha = numerical_gradient(lambda alpha: saddle_loss(model, v, alpha, *rest), alpha)
    np.testing.assert_allclose(g_v, numerical_v, atol=1e-7)
    np.testing.assert_allclose(g_alpha, numerical_alpha, atol=1e-7)


def test_closed_form_dual_is_where_the_gradient_in_alpha_vanishes():
    X, y = make_task()
    model = LinearSigmoid(2)
    v = np.random.default_rng(1).normal(size=model.size + 2)
    alpha = closed_form_dual(model, X, y)(v)
    _, g_alpha = saddle_gradient(model, v, alpha, X, y, p=1 / 3)
    np.testing.assert_allclose(g_alpha, 0, atol=1e-15)


# ---- Algorithms --------------------------------------------------------------------------------

V0, ALPHA0 = np.array([1.0, -2.0]), np.array([0.5])


def batch_is_the_gradient(v, alpha, batch):
    return batch[:2], batch[2:]


def no_gradient(v, alpha, batch):
    return np.zeros_like(v), np.zeros_like(alpha)


def test_ppd_sg_averages_the_start_and_every_iterate():
    g = np.array([1.0, 2.0, 3.0])
    stages = [(0.1, [g] * 4, None)]  # T_k - 1 = 4 steps, five points
    steps, [end] = ppd_sg.run(batch_is_the_gradient, V0, ALPHA0, stages, gamma=np.inf)
    np.testing.assert_allclose(steps[-1].v, V0 - 0.4 * g[:2])
    np.testing.assert_allclose(steps[-1].alpha, ALPHA0 + 0.4 * g[2:])
    np.testing.assert_allclose(steps[1].average, V0 - 0.1 * g[:2])
    np.testing.assert_allclose(end.average, V0 - 0.2 * g[:2])
    np.testing.assert_array_equal(end.v, end.average)
    np.testing.assert_array_equal(end.alpha, steps[-1].alpha)


def test_ppd_sg_ends_a_stage_with_the_dual_at_the_average():
    stages = [(0.1, [np.ones(3)] * 2, lambda average: average[:1])]
    _, [end] = ppd_sg.run(batch_is_the_gradient, V0, ALPHA0, stages, gamma=np.inf)
    np.testing.assert_allclose(end.alpha, [0.9])


@pytest.mark.parametrize("restart", ["average", "last"])
def test_ppd_sg_pulls_to_the_average_of_the_stage_before(restart):
    """A push in the first stage, then none: what moves in the second stage is the prox term."""
    stages = [(0.1, [np.ones(3)] * 2, None), (0.1, [np.zeros(3)] * 3, None)]
    steps, ends = ppd_sg.run(batch_is_the_gradient, V0, ALPHA0, stages, 0.5, restart)
    reference = ends[0].average
    start = {"average": reference, "last": steps[1].v}[restart]
    shrink = 1 - 0.1 / 0.5
    for t in (1, 2, 3):
        expected = reference + shrink**t * (start - reference)
        np.testing.assert_allclose(steps[1 + t].v, expected)
    points = [start, steps[2].v, steps[3].v, steps[4].v]
    np.testing.assert_allclose(ends[1].average, np.mean(points, axis=0))


@pytest.mark.parametrize("restart", ["average", "last"])
def test_ppd_adagrad_step_minimizes_line_5_of_algorithm_3(restart):
    rng = np.random.default_rng(0)
    lr, gamma, delta = 0.3, 0.7, 0.2
    batches = [[rng.normal(size=3) for _ in range(4)] for _ in range(2)]
    stages = [(lr, batches[0], lambda average: average[:1]), (lr, batches[1], None)]
    steps, ends = ppd_adagrad.run(batch_is_the_gradient, V0, ALPHA0, stages, gamma, delta, restart)
    reference, u0 = ends[0].average, np.concatenate([ends[0].v, ends[0].alpha])
    iterates = [u0] + [np.concatenate([step.v, step.alpha]) for step in steps[4:]]
    signs = np.array([1, 1, -1])  # descent in v, ascent in alpha
    gradients = []
    for t, batch in enumerate(batches[1], start=1):
        prox = np.append((iterates[t - 1][:2] - reference) / gamma, 0)
        gradients.append(signs * batch + prox)
        H = delta + np.linalg.norm(gradients, axis=0)
        slope = lr * np.mean(gradients, axis=0) + H * (iterates[t] - u0) / t
        np.testing.assert_allclose(slope, 0, atol=1e-12)
        np.testing.assert_allclose(steps[3 + t].norms, np.linalg.norm(gradients, axis=0))
        np.testing.assert_allclose(steps[3 + t].average, np.mean(iterates[: t + 1], axis=0)[:2])


def test_ppd_adagrad_restarts_where_it_should():
    stages = [(0.3, [np.ones(3)] * 3, None)] * 2
    for restart in ("average", "last"):
        steps, ends = ppd_adagrad.run(batch_is_the_gradient, V0, ALPHA0, stages, 1.0, 0.1, restart)
        expected = {"average": ends[0].average, "last": steps[2].v}[restart]
        np.testing.assert_array_equal(ends[0].v, expected)


def test_stopping_time_of_lemma_3():
    norms, M, delta, c = np.array([3.0, 1.0, 2.0]), 2.0, 0.5, 0.4
    distance = 2 * (0.5 + 3) / 0.4  # lipschitz = 0.1: max(1, 0.08) = 1
    noise = 2 * 2 * 0.4 * (6 + 3 * 3.5)
    assert noise > distance
    assert ppd_adagrad.stopping_time_reached(np.ceil(noise), norms, M, delta, 0.1, c)
    assert not ppd_adagrad.stopping_time_reached(np.floor(noise), norms, M, delta, 0.1, c)
    steep = 8 * distance  # lipschitz = 1
    assert ppd_adagrad.stopping_time_reached(np.ceil(steep), norms, M, delta, 1.0, c)
    assert not ppd_adagrad.stopping_time_reached(np.ceil(steep) - 1, norms, M, delta, 1.0, c)


def test_pga_averages_the_iterates_without_the_start():
    g = np.array([1.0, 2.0, 3.0])
    stages = [(0.1, [g] * 3), (0.05, [g] * 2)]
    steps, ends = pga.run(batch_is_the_gradient, V0, ALPHA0, stages, np.inf, np.inf, np.inf)
    np.testing.assert_allclose(ends[0].v, V0 - 0.2 * g[:2])
    np.testing.assert_allclose(ends[0].alpha, ALPHA0 + 0.2 * g[2:])
    np.testing.assert_allclose(steps[3].v, ends[0].v - 0.05 * g[:2])
    np.testing.assert_allclose(ends[1].v, ends[0].v - 0.075 * g[:2])
    np.testing.assert_array_equal(steps[-1].average, ends[1].v)
    np.testing.assert_array_equal(steps[-1].alpha_average, ends[1].alpha)


def test_pga_pulls_to_the_average_of_the_stage_before():
    g = np.ones(3)
    stages = [(0.1, [g] * 2), (0.1, [g] * 2)]
    steps, ends = pga.run(batch_is_the_gradient, V0, ALPHA0, stages, 0.5, np.inf, np.inf)
    reference = ends[0].v
    np.testing.assert_allclose(steps[2].v, reference - 0.1)
    pull = (steps[2].v - reference) / 0.5
    np.testing.assert_allclose(steps[3].v, steps[2].v - 0.1 * (1 + pull))


def test_pga_without_balls_steps_like_ppd_sg():
    batches = [np.array([1.0, -1.0, 2.0])] * 4
    ours, _ = pga.run(batch_is_the_gradient, V0, ALPHA0, [(0.1, batches)], 0.5, np.inf, np.inf)
    other, _ = ppd_sg.run(batch_is_the_gradient, V0, ALPHA0, [(0.1, batches, None)], 0.5)
    for step, expected in zip(ours, other, strict=True):
        np.testing.assert_array_equal(step.v, expected.v)
        np.testing.assert_array_equal(step.alpha, expected.alpha)


def test_pga_stays_in_its_balls():
    stages = [(1.0, [np.array([3.0, 4.0, 9.0])])]
    [step], _ = pga.run(batch_is_the_gradient, np.zeros(2), ALPHA0, stages, np.inf, 2.0, 0.7)
    np.testing.assert_allclose(step.v, [-1.2, -1.6])  # one norm for all primal coordinates
    np.testing.assert_allclose(step.alpha, [0.7])
    np.testing.assert_array_equal(pga.project(np.array([0.3, 0.4]), 0.5), [0.3, 0.4])


def test_oauc_weighs_the_points_left_behind_by_their_steps():
    g = np.array([1.0, 2.0, 3.0])
    steps = oauc.run(batch_is_the_gradient, V0, ALPHA0, [g] * 3, lr=0.6)
    sizes = 0.6 / np.sqrt([1, 2, 3])
    points = [V0, V0 - sizes[0] * g[:2], V0 - sizes[:2].sum() * g[:2]]
    np.testing.assert_allclose(steps[-1].v, V0 - sizes.sum() * g[:2])
    np.testing.assert_allclose(steps[-1].average, sizes @ points / sizes.sum())
    np.testing.assert_array_equal(steps[0].average, V0)
    np.testing.assert_array_equal(steps[0].alpha_average, ALPHA0)


def test_without_a_gradient_nothing_moves():
    stage = (0.1, [None] * 3, None)
    for steps in (
        ppd_sg.run(no_gradient, V0, ALPHA0, [stage], 1.0)[0],
        ppd_adagrad.run(no_gradient, V0, ALPHA0, [stage], 1.0, 0.1)[0],
        pga.run(no_gradient, V0, ALPHA0, [stage[:2]], 1.0, 10.0, 10.0)[0],
        oauc.run(no_gradient, V0, ALPHA0, [None] * 3, 0.1),
    ):
        for step in steps:
            np.testing.assert_array_equal(step.v, V0)
            np.testing.assert_array_equal(step.average, V0)
            np.testing.assert_array_equal(step.alpha, ALPHA0)


def test_every_algorithm_lowers_the_pairwise_risk():
    X, y = make_task()
    model = LinearSigmoid(2)
    dual = closed_form_dual(model, X, y)

    def grad(v, alpha, rows):
        return saddle_gradient(model, v, alpha, X[rows], y[rows], p=1 / 3, normalize=True)

    rng = np.random.default_rng(0)
    batches = [rng.choice(len(y), size=12, replace=False) for _ in range(160)]
    parts = [(0.1, batches[:40]), (0.05, batches[40:])]
    with_dual = [(*part, dual) for part in parts]
    start = np.zeros(model.size + 2), np.zeros(1)
    _, sg = ppd_sg.run(grad, *start, with_dual, gamma=10.0)
    _, adagrad = ppd_adagrad.run(grad, *start, with_dual, gamma=10.0, delta=1.0)
    _, guided = pga.run(grad, *start, parts, gamma=10.0, R1=100.0, R2=10.0)
    online = oauc.run(grad, *start, batches, lr=0.5)
    results = [sg[-1].average, adagrad[-1].average, guided[-1].v, online[-1].average]
    for v in results:
        assert pairwise_risk(model.h(v[:-2], X), y, 1.0)[0] < 0.75  # 1 at the start


# ---- Estimates of p (1 - p) --------------------------------------------------------------------


def expectation(estimate, labels, p):
    """The mean of estimate(y) over every sequence of that many labels."""
    return sum(
        p ** sum(y) * (1 - p) ** (labels - sum(y)) * estimate(np.array(y))
        for y in product([0, 1], repeat=labels)
    )


def paper_estimate(y):
    prior = PaperPrior(y[0], y[1])
    for label in y[2:]:
        prior.update([label])
    return prior.pq


def paper_ratio(labels):
    """The expected estimate over p (1 - p).

    From the third on, label i is compared with a mean that holds it, and its square is expected
    to be 1 - 1/i of what it should be.
    """
    return 1 - sum(1 / i for i in range(3, labels + 1)) / (labels - 1)


@pytest.mark.parametrize("p", [0.5, 0.09])
def test_the_papers_recursion_is_biased(p):
    assert expectation(paper_estimate, 2, p) == pytest.approx(p * (1 - p))
    assert expectation(paper_estimate, 9, p) == pytest.approx(p * (1 - p) * paper_ratio(9))


def test_the_papers_bias_after_twenty_labels():
    """Twenty labels after the two it begins from: 0.896; twenty in all: 0.890."""
    assert paper_ratio(22) == pytest.approx(0.8957, abs=1e-4)
    assert paper_ratio(20) == pytest.approx(0.8896, abs=1e-4)
    p, runs = 0.3, 2000
    labels = (np.random.default_rng(0).uniform(size=(runs, 22)) < p).astype(int)
    ratios = np.array([paper_estimate(y) for y in labels]) / (p * (1 - p))
    standard_error = ratios.std() / np.sqrt(runs)
    assert standard_error < 0.01
    assert abs(ratios.mean() - paper_ratio(22)) < 4 * standard_error


def test_the_papers_mean_is_its_share_of_positives():
    prior = PaperPrior(1, 0)
    for batch in ([1, 0, 0], [0], [1, 1, 0, 0, 0]):
        prior.update(batch)
    assert prior.p == pytest.approx(4 / 11)
    assert prior.y_bar == pytest.approx(prior.p)


def unbiased_estimate(y, pseudo_labels, weight=None):
    prior = UnbiasedPrior(pseudo_labels)
    prior.update(y, weight)
    return prior.pq


@pytest.mark.parametrize("weight", [None, np.array([0.5, 1, 2, 1, 0.25, 3, 1, 1])])
def test_our_estimate_is_unbiased_but_for_its_pseudo_labels(weight):
    p = 0.2
    mean = expectation(lambda y: unbiased_estimate(y, 0, weight), 8, p)
    assert mean == pytest.approx(p * (1 - p))


def test_what_the_pseudo_labels_add():
    """With n labels the mean is 1 / (n + 2) + n (n - 1) p (1 - p) / ((n + 1) (n + 2))."""
    p, n = 0.09, 8
    mean = expectation(lambda y: unbiased_estimate(y, 1), n, p)
    assert mean == pytest.approx(0.1 + 56 / 90 * p * (1 - p))


def test_our_estimates_count_batches_and_weights_alike():
    one, many = UnbiasedPrior(), UnbiasedPrior()
    one.update([1, 0, 0, 1, 0], [1, 2, 1, 1, 1])
    many.update([1, 0], [1, 2])
    many.update([0, 1, 0])
    assert (one.p, one.pq) == (many.p, many.pq) == (3 / 8, 3 / 8 * 5 / 8 / (1 - 10 / 64))


def test_our_estimate_is_never_zero():
    prior = UnbiasedPrior()
    assert (prior.p, prior.pq) == (0.5, 0.5)
    prior.update(np.zeros(1000))
    assert prior.p > 0
    assert prior.pq > 0
