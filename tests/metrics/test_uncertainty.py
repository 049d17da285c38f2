"""Intervals and paired tests of every metric: against the bootstrap, by their laws, in coverage."""

import math
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from metric_infos import INFOS

from aucmax import metrics
from aucmax.metrics import delong_test, roc_auc_interval

GROUPS = np.arange(480) // 12  # of the rows below
METRICS = {info.name: info for info in INFOS if info.name not in ("roc_auc", "grouped_auc")}


def functions(name):
    """The metric, its interval and its test, with their options."""
    info = METRICS[name]
    return [partial(x, **info.options) for x in (info.function, info.interval, info.paired)]


@pytest.fixture(scope="module")
def rows():
    """Scores of two models that have much in common, labels and weights."""
    random = np.random.default_rng(0)
    y, shared = np.arange(480) % 4 == 0, random.standard_normal(480)
    a, b = (0.6 * shared + 0.8 * random.standard_normal(480) + g * y for g in (1.2, 1.0))
    return a, b, y, random.lognormal(0, 0.5, 480)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_errors_match_bootstrap(rows, name, weighted):
    """Rows of each class are drawn again, each with its weight."""
    metric, interval, paired = functions(name)
    a, b, y, w = rows
    if name == "count":
        w = w / w.mean()  # a count is of weight: drawn rows have as much but for chance
    random, classes = np.random.default_rng(1), [np.flatnonzero(y), np.flatnonzero(~y)]
    values = []
    for _ in range(150):
        drawn = np.concatenate([random.choice(part, len(part)) for part in classes])
        weight = w[drawn] if weighted else None
        values.append([metric(x[drawn], y[drawn], weight=weight) for x in (a, b)])
    first, second = np.array(values).T
    weight = w if weighted else None
    found = interval(a, y, weight=weight)
    assert found.value == pytest.approx(metric(a, y, weight=weight), rel=1e-12)
    assert found.standard_error == pytest.approx(first.std(), rel=0.2)
    test = paired(a, b, y, weight=weight)
    assert test.standard_error == pytest.approx((first - second).std(), rel=0.25)
    assert test.difference == pytest.approx(found.value - metric(b, y, weight=weight), rel=1e-12)
    assert test.z == pytest.approx(test.difference / test.standard_error)
    assert test.p_value == pytest.approx(2 * NormalDist().cdf(-abs(test.z)))


def test_grouped_auc_errors_match_bootstrap_of_groups(rows):
    a, b, y, w = rows
    a = a + np.random.default_rng(2).standard_normal(40)[GROUPS] * y  # some groups are easier
    random, values = np.random.default_rng(1), []
    for _ in range(150):
        drawn = random.choice(40, 40)
        index = np.concatenate([np.flatnonzero(g == GROUPS) for g in drawn])
        group = np.repeat(np.arange(40), 12)
        values.append(
            [metrics.grouped_auc(x[index], y[index], group, w[index]) for x in (a, b)]
            + [metrics.grouped_auc(a[index], y[index], group, mean=True)]
        )
    first, second, mean = np.array(values).T
    found = metrics.grouped_auc_interval(a, y, GROUPS, weight=w)
    assert found.value == metrics.grouped_auc(a, y, GROUPS, w)
    assert found.standard_error == pytest.approx(first.std(), rel=0.15)
    test = metrics.grouped_auc_test(a, b, y, GROUPS, w)
    assert test.standard_error == pytest.approx((first - second).std(), rel=0.15)
    alike = metrics.grouped_auc_interval(a, y, torch.tensor(GROUPS), mean=True)
    assert alike.standard_error == pytest.approx(mean.std(), rel=0.15)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_clustered_errors_match_bootstrap_of_groups(rows, weighted, several):
    a, _, y, w = rows
    random = np.random.default_rng(2)
    y = np.where(random.uniform(size=480) < 0.2, 2, y) if several else y.astype(int)
    a = a + 2 * random.standard_normal(40)[GROUPS] * (y > 0)  # some groups are easier
    if several:
        a = np.exp(np.stack([-a, 0 * a, a + (y == 2)], axis=1))
        a = a / a.sum(axis=1, keepdims=True)
    metric, interval = (
        (metrics.hand_till, metrics.hand_till_interval)
        if several
        else (metrics.roc_auc, roc_auc_interval)
    )
    values, weight = [], w if weighted else None
    for _ in range(200):
        drawn = np.concatenate([np.flatnonzero(g == GROUPS) for g in random.choice(40, 40)])
        values.append(metric(a[drawn], y[drawn], weight=w[drawn] if weighted else None))
    found = interval(a, y, weight=weight, group=GROUPS)
    apart = interval(a, y, weight=weight)
    assert found.value == apart.value == pytest.approx(metric(a, y, weight=weight), rel=1e-12)
    assert found.standard_error == pytest.approx(np.std(values), rel=0.2)
    assert found.standard_error > 1.1 * apart.standard_error
    alone = interval(a, y, weight=weight, group=np.arange(480) + 7)
    assert alone == pytest.approx(apart, rel=1e-12)


def test_clustered_interval_coverage():
    """Of 30 patients with 8 rows of one class each, where rows would seem to tell much more."""
    random, group = np.random.default_rng(0), np.arange(240) // 8
    y, truth = group % 3 == 0, NormalDist().cdf(1 / 2)  # a difference of 1, of deviation 2
    held = np.zeros(2)
    for _ in range(300):
        scores = y + random.standard_normal(30)[group] + random.standard_normal(240)
        for k, given_group in enumerate((group, None)):
            found = roc_auc_interval(scores, y, group=given_group)
            held[k] += found.low <= truth <= found.high
    assert held[0] / 300 > 0.92
    assert held[1] / 300 < 0.8


def test_class_of_single_group_has_wide_interval():
    found = roc_auc_interval([0.1, 0.2, 0.3, 0.25, 0.9], [0, 0, 0, 1, 1], group=[1, 2, 3, 4, 4])
    assert found.standard_error == pytest.approx(math.sqrt(found.value * (1 - found.value)))
    assert found.high - found.low > 0.9


def test_single_group_has_wide_interval(rows):
    a, b, y, _ = rows
    found = metrics.grouped_auc_interval(a, y, np.zeros(480))
    assert found.high - found.low > 0.8
    assert metrics.grouped_auc_test(a, b, y, np.zeros(480)).p_value > 0.9


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
@example(2342, False, False)  # separated classes, whose curve has rounding errors
def test_partial_auc_interval_of_full_range_is_delongs(seed, ties, weighted):
    random = np.random.default_rng(seed)
    y = np.arange(random.integers(5, 40)) % 4 == 0
    a, b = random.standard_normal((2, len(y))) + y
    a, b = (a.round(), b.round()) if ties else (a, b)
    w = random.random(len(y)) + 0.1 if weighted else None
    close = partial(pytest.approx, rel=1e-9, abs=1e-12)
    assert metrics.partial_auc_interval(a, y, weight=w) == close(roc_auc_interval(a, y, weight=w))
    assert metrics.partial_auc_test(a, b, y, weight=w) == close(delong_test(a, b, y, w))


def test_intervals_of_separated_classes():
    x, y = np.arange(110.0), np.arange(110) >= 100
    edge = 0.025**0.1  # Clopper and Pearson's for ten of ten
    for name in METRICS.keys() - {"count", "precision_at"}:
        low, high = functions(name)[1](x, y)[1:3]
        assert low / high == pytest.approx(0.025 ** (1 / 7) if name == "two-way" else edge)
    found = metrics.precision_at_interval(x, y, 10)
    assert found[:3] == (1.0, pytest.approx(edge), 1.0)
    found = metrics.precision_at_interval(x, y, 20)  # at most half of them can be positive
    assert found[:3] == (0.5, pytest.approx(edge / 2), 0.5)


def test_undefined_values_have_no_interval():
    x, y = np.arange(4.0), np.arange(4) % 2
    with pytest.warns(UserWarning, match="share is 9 rows of 4"):
        assert math.isnan(metrics.precision_at_interval(x, y, 9).low)
    with pytest.warns(UserWarning, match="no group has both"):
        assert math.isnan(metrics.grouped_auc_interval(x, y, y).low)
    with pytest.warns(UserWarning, match="no group has both"):
        assert math.isnan(metrics.grouped_auc_test(x, x, y, y).p_value)


def test_errors_under_no_grad_and_inference_mode(rows):
    a, b, y, _ = rows
    expected = metrics.average_precision_test(a, b, y)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            scores = torch.tensor(a) * 1, torch.tensor(b) * 1
            assert metrics.average_precision_test(*scores, torch.tensor(y)) == expected


def test_partial_auc_interval_may_begin_at_zero():
    """The curve reaches a TPR of 0.3 up to an FPR of 0.1 by chance alone."""
    random, y = np.random.default_rng(0), np.arange(330) < 30
    found = [
        metrics.partial_auc_interval(random.standard_normal(330) + 0.74 * y, y, 0.1, 0.3)
        for _ in range(100)
    ]
    assert np.mean([x.low == 0 for x in found]) > 0.93
    assert sum(x.value > 0 for x in found) > 30
