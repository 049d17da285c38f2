"""Metrics of the top of the list and within groups, against scikit-learn and their definitions."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import ranking as reference

from aucmax.metrics import (
    _gpu,
    average_precision,
    grouped,
    grouped_auc,
    partial_auc,
    precision_at,
    roc_auc,
    roc_curve,
    tpr_at_fpr,
)

RATES = st.one_of(st.sampled_from([0.05, 0.1, 0.25, 0.5, 1.0]), st.floats(0.01, 1))


@st.composite
def cases(draw, group=False):
    """Scores with ties, labels and weights of both classes, some weights zero."""
    y = np.array([*draw(st.lists(st.booleans(), max_size=20)), True, False])
    n = len(y)
    values = draw(st.sampled_from([st.integers(-3, 3).map(float), st.floats(-1, 1, width=32)]))
    x = np.array(draw(st.lists(values, min_size=n, max_size=n)))
    some = draw(st.sampled_from([st.just(1.0), st.integers(1, 4).map(float), st.floats(0.01, 9)]))
    w = np.array(draw(st.lists(st.one_of(some, st.just(0.0)), min_size=n, max_size=n)))
    w[-2:] = 1.0  # both classes have weight, and in one group
    if not group:
        return x, y.astype(int), w
    g = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    g[-1] = g[-2]
    return x, y.astype(int), w, g


def close(value):
    return pytest.approx(value, rel=1e-11, abs=1e-12)


@given(cases(), RATES, st.booleans())
def test_partial_auc_matches_sklearn(case, max_fpr, weighted):
    x, y, w = case
    w = w if weighted else None
    expected = sklearn.metrics.roc_auc_score(y, x, max_fpr=max_fpr, sample_weight=w)
    assert partial_auc(x, y, max_fpr, weight=w, standardized=True) == close(expected)


@given(cases(), RATES, st.one_of(st.just(0.0), st.floats(0, 0.99)))
def test_partial_auc_matches_area_of_polygon(case, max_fpr, min_tpr):
    x, y, w = case
    found = partial_auc(torch.tensor(x), y, max_fpr, min_tpr, w)
    assert type(found) is float
    assert 0 <= found <= max_fpr * (1 - min_tpr)
    assert found == close(reference.partial_auc(x, y, max_fpr, min_tpr, w))
    assert partial_auc(x, y, weight=w) == close(roc_auc(x, y, w))


@given(cases(), st.one_of(st.sampled_from([0.0, 0.1, 0.3, 1.0]), st.floats(0, 1)), st.booleans())
def test_tpr_at_fpr_matches_roc_curve(case, fpr, weighted):
    x, y, w = case
    w = w if weighted else None
    curve = roc_curve(x, y, w)
    found = tpr_at_fpr(torch.tensor(x), torch.tensor(y), fpr, w)
    assert type(found) is float
    assert found == close(curve.tpr[curve.fpr <= fpr * (1 + 1e-12)].max())
    assert found == close(reference.tpr_at_fpr(x, y, fpr, np.ones(len(x)) if w is None else w))


def test_tpr_at_fpr_reaches_exact_rates():
    """Sums of weights round: 0.1 + 0.1 + 0.1 of 1 is above 0.3 by a little."""
    x, y = np.arange(20.0)[::-1], np.arange(20) % 2
    for alarms in range(11):
        expected = min(10, alarms + 1) / 10 if alarms < 10 else 1.0
        for w in (None, np.full(20, 0.1), np.full(20, 1 / 3)):
            assert tpr_at_fpr(-x, y, alarms / 10, w) == pytest.approx(expected)


@given(cases(), RATES, st.integers(1, 4))
def test_precision_at_averages_over_ties(case, share, rows):
    x, y, w = case
    found = precision_at(torch.tensor(x), y, share, w)
    assert type(found) is float
    assert found == close(reference.precision_at(x, y, share * w.sum(), w))
    rows = min(rows, int(w.sum()))
    assert precision_at(x, y, rows, w) == close(reference.precision_at(x, y, rows, w))
    assert precision_at(x, y, np.int64(1)) == precision_at(x, y, 1 / len(x))
    assert type(precision_at(x, y, np.float32(share))) is float
    assert precision_at(x, y, 1.0, w) == close(w @ y / w.sum())


def test_precision_at_count_is_of_weight():
    x, y, times = np.arange(8.0), np.arange(8) % 3 == 0, np.array([1, 2, 3, 1, 2, 3, 1, 2])
    for count in (1, 2, 3, 7):
        repeated = precision_at(np.repeat(x, times), np.repeat(y, times), count)
        assert precision_at(x, y, count, times) == close(repeated)


@given(cases(group=True), st.booleans(), st.sampled_from(["numbers", "texts", "objects", "tensor"]))
def test_grouped_auc_matches_pairs_within_groups(case, mean, form):
    x, y, w, g = case
    names = {
        "numbers": g[:, None],
        "texts": [f"ward {i}" for i in g],
        "objects": np.array([i if i % 2 else str(i) for i in g], dtype=object),
        "tensor": torch.tensor(g),
    }
    found = grouped_auc(x, y, names[form], w, mean)
    assert type(found) is float
    assert found == close(reference.grouped_auc(x, y, g, w, mean))
    ones = np.ones(len(x))
    assert grouped_auc(x, y, names[form], mean=mean) == close(
        reference.grouped_auc(x, y, g, ones, mean)
    )


def test_grouped_auc_of_small_weights():
    random = np.random.default_rng(0)
    y, g = np.arange(400) % 3 == 0, np.arange(400) // 40
    x, w = random.standard_normal(400) + y, np.where(g == 3, 1e-200, 1e100)
    aucs = [roc_auc(x[g == k], y[g == k]) for k in range(10)]
    assert grouped_auc(x, y, g, w, mean=True) == pytest.approx(np.mean(aucs), rel=1e-12)
    w = np.where(y & (g == 3), 1e-16, 1.0)  # the positives alone
    assert grouped_auc(x, y, g, w, mean=True) == pytest.approx(np.mean(aucs), rel=1e-12)


@given(cases(group=True), st.booleans())
def test_gpu_curves_and_groups_equal_cpu(case, weighted):
    x, y, w, g = map(torch.tensor, case)
    w = w if weighted else None
    hits, alarms = _gpu.counts_above(x, y, w)
    curve = roc_curve(x, y, w)
    np.testing.assert_allclose(hits / hits[-1], curve.tpr[1:], rtol=1e-12)
    np.testing.assert_allclose(alarms / alarms[-1], curve.fpr[1:], rtol=1e-12)
    auc, pairs = grouped.of_tensors(x, y, w, g)
    assert float(auc @ pairs / pairs.sum()) == close(grouped_auc(x, y, g, w))
    assert _gpu.counts_above(x, 2 * y, w) is None
    assert grouped.of_tensors(x, y, -torch.ones(len(x)), g) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_top_metrics_on_a_gpu():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5000, generator=generator).round(decimals=2)
    y, g = torch.rand(5000, generator=generator) < 0.2, torch.arange(5000) % 50
    for w in (None, torch.rand(5000, generator=generator)):
        there = None if w is None else w.cuda()
        for metric, *numbers in (
            (partial_auc, 0.1, 0.1), (tpr_at_fpr, 0.1), (precision_at, 0.1), (precision_at, 100),
            (average_precision,),
        ):  # fmt: skip
            on_gpu = metric(x.cuda(), y.cuda(), *numbers, weight=there)
            assert on_gpu == close(metric(x, y, *numbers, weight=w))
        assert grouped_auc(x.cuda(), y.cuda(), g.cuda(), there) == close(grouped_auc(x, y, g, w))


# Wrong input

GOOD = [0.1, 0.4, 0.3, 0.8], [0, 0, 1, 1]


def test_undefined_metrics_are_nan_and_warn():
    x, y = GOOD
    for call, reason in (
        (lambda: precision_at(x, y, 5), "share is 5 rows of 4"),
        (lambda: grouped_auc(x, [0] * 4, [1] * 4), "0 positives"),
        (lambda: grouped_auc(x, y, y), "no group has both"),
        (lambda: grouped_auc(x, y, [1, 2, 1, 2], [0, 1, 1, 0]), "no group has both"),
    ):
        with pytest.warns(UserWarning, match=reason) as record:
            assert math.isnan(call())
        assert record[0].filename == __file__


def test_standardized_partial_auc_of_guessing_is_one_half():
    x = np.arange(40_000) % 200 / 200  # every score in both classes alike
    y = np.arange(40_000) // 200 % 2
    for range_ in ((0.5, 0.2), (0.2, 0.5), (0.3, 0.0)):
        found = partial_auc(x, y, *range_, standardized=True)
        assert found == pytest.approx(0.5, abs=1e-9)
        assert partial_auc(y + x, y, *range_, standardized=True) == 1.0
