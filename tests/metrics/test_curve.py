"""The ROC curve and what is read off it, against scikit-learn and the definitions."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from curve_cases import cases, rows
from hypothesis import given
from hypothesis import strategies as st
from reference import auc as of_pairs
from reference import ranking as reference

from aucmax.metrics import (
    average_precision,
    interval,
    partial_auc,
    precision_at,
    roc_auc,
    roc_curve,
    tpr_at_fpr,
)

RATES = st.one_of(st.sampled_from([0.05, 0.1, 0.25, 0.5, 1.0]), st.floats(0.01, 1))


def close(value):
    return pytest.approx(value, rel=1e-11, abs=1e-12)


# AUC and the curve


@given(rows())
def test_roc_auc_matches_sklearn(case):
    x, y = case
    result = roc_auc(x, y)
    assert result == close(sklearn.metrics.roc_auc_score(y, x))
    assert result == close(of_pairs.auc(x, y))


@given(cases())
def test_weighted_roc_auc_matches_sklearn(case):
    x, y, w = case
    result = roc_auc(x, y, w)
    assert 0 <= result <= 1
    assert result == close(sklearn.metrics.roc_auc_score(y, x, sample_weight=w))
    assert result == close(of_pairs.auc(x, y, w))


@given(cases(), st.booleans())
def test_roc_curve_matches_sklearn(case, weighted):
    x, y, w = case
    w = w if weighted else None
    curve = roc_curve(torch.tensor(x), y, w)
    expected = sklearn.metrics.roc_curve(y, x, sample_weight=w, drop_intermediate=False)
    if weighted:  # scikit-learn keeps thresholds of rows without weight
        expected = [np.unique(np.stack(expected[:2], 1), axis=0).T[i] for i in (0, 1)]
        curve = np.unique(np.stack(curve[:2], 1), axis=0).T
    for ours, theirs in zip(curve, expected, strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@given(cases())
def test_area_under_roc_curve_is_roc_auc(case):
    x, y, w = case
    curve = roc_curve(x, y, w)
    assert sklearn.metrics.auc(curve.fpr, curve.tpr) == close(roc_auc(x, y, w))


def test_ties_survive_dtypes():
    assert roc_auc(np.array([2**53, 2**53 + 1]), [0, 1]) == 1.0
    assert roc_auc(torch.tensor([2**62, 2**62 + 1]), [0, 1]) == 1.0
    assert roc_auc(np.array([2**64 - 2, 2**64 - 1], dtype=np.uint64), [0, 1]) == 1.0
    assert roc_auc(np.array([1.0, 1.0 + 2**-52]), [0, 1]) == 1.0
    assert roc_auc(torch.tensor([40.0, 41.0]), [0, 1]) == 1.0  # their sigmoids are tied
    assert roc_auc(torch.tensor([1.0, 1.0 + 2**-9], dtype=torch.bfloat16), [0, 1]) == 0.5
    assert roc_auc(np.array([0.0, -0.0]), [0, 1]) == 0.5


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.int32, torch.bool]
)
def test_small_dtypes(dtype):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(200, generator=generator) * 3).to(torch.int8).abs().to(dtype)
    y = torch.arange(200) % 3 == 0
    expected = of_pairs.auc(x.double().numpy(), y.numpy())
    assert roc_auc(x, y) == close(expected)
    assert interval(x, y).auc == close(expected)


LARGE = {
    "float32": lambda x, y: x.astype(np.float32),
    "float64": lambda x, y: x,
    "ties": lambda x, y: np.round(x, 1),
    "integers": lambda x, y: np.round(10 * x).astype(np.int64),
    "whole range of float64": lambda x, y: 1.7e308 * np.sin(x),
    "subnormal": lambda x, y: 1e-310 * x,
    "equal positives": lambda x, y: np.where(y, 0.5, x),
    "equal negatives": lambda x, y: np.where(y, x, 0.5),
    "separated": lambda x, y: x + 100.0 * y,
}


@pytest.mark.parametrize("name", LARGE)
def test_large_inputs_are_exact(name):
    rng = np.random.default_rng(0)
    y = rng.random(50_000) < (0.9 if name == "float32" else 0.1)
    x = LARGE[name](rng.standard_normal(50_000) + y, y)
    down = np.sort(x[~y])
    twice = np.searchsorted(down, x[y], "left") + np.searchsorted(down, x[y], "right")
    assert roc_auc(x, y) == int(twice.sum()) / int(2 * y.sum() * (~y).sum())
    assert interval(x, y).auc == roc_auc(x, y)


# Parts of the curve


@given(cases(), RATES, st.booleans())
def test_standardized_partial_auc_matches_sklearn(case, max_fpr, weighted):
    x, y, w = case
    w = w if weighted else None
    expected = sklearn.metrics.roc_auc_score(y, x, max_fpr=max_fpr, sample_weight=w)
    assert partial_auc(x, y, w, max_fpr=max_fpr, standardized=True) == close(expected)


@given(cases(), RATES, st.one_of(st.just(0.0), st.floats(0, 0.99)))
def test_partial_auc_matches_area_of_polygon(case, max_fpr, min_tpr):
    x, y, w = case
    found = partial_auc(torch.tensor(x), y, w, max_fpr=max_fpr, min_tpr=min_tpr)
    assert 0 <= found <= max_fpr * (1 - min_tpr)
    assert found == close(reference.partial_auc(x, y, max_fpr, min_tpr, w))
    assert partial_auc(x, y, w) == close(roc_auc(x, y, w))


def test_standardized_partial_auc_of_guessing_is_one_half():
    x = np.arange(40_000) % 200 / 200  # every score in both classes alike
    y = np.arange(40_000) // 200 % 2
    for max_fpr, min_tpr in ((0.5, 0.2), (0.2, 0.5), (0.3, 0.0)):
        options = {"max_fpr": max_fpr, "min_tpr": min_tpr, "standardized": True}
        assert partial_auc(x, y, **options) == pytest.approx(0.5, abs=1e-9)
        assert partial_auc(y + x, y, **options) == 1.0


@given(cases(), st.one_of(st.sampled_from([0.0, 0.1, 0.3, 1.0]), st.floats(0, 1)), st.booleans())
def test_tpr_at_fpr_matches_roc_curve(case, fpr, weighted):
    x, y, w = case
    w = w if weighted else None
    curve = roc_curve(x, y, w)
    found = tpr_at_fpr(torch.tensor(x), torch.tensor(y), w, fpr=fpr)
    assert found == close(curve.tpr[curve.fpr <= fpr * (1 + 1e-12)].max())
    assert found == close(reference.tpr_at_fpr(x, y, fpr, np.ones(len(x)) if w is None else w))


def test_tpr_at_fpr_reaches_exact_rates():
    """Sums of weights round: 0.1 + 0.1 + 0.1 of 1 is above 0.3 by a little."""
    x, y = np.arange(20.0)[::-1], np.arange(20) % 2
    for alarms in range(11):
        expected = min(10, alarms + 1) / 10 if alarms < 10 else 1.0
        for w in (None, np.full(20, 0.1), np.full(20, 1 / 3)):
            assert tpr_at_fpr(-x, y, w, fpr=alarms / 10) == pytest.approx(expected)


# Precision


@given(cases(), st.booleans())
def test_average_precision_matches_sklearn(case, weighted):
    x, y, w = case
    w = w if weighted else None
    expected = sklearn.metrics.average_precision_score(y, x, sample_weight=w)
    assert average_precision(x, y, w) == close(expected)


def test_average_precision_is_one_at_most():
    """A sum of shares that add up to one may round above it."""
    rng = np.random.default_rng(0)
    for n in range(10, 60):
        y, w = np.arange(n) >= n // 2, rng.lognormal(0, 1, n)
        assert average_precision(np.arange(n), y, w) <= 1
        found = interval(np.arange(n), y, "average_precision", weight=w)
        assert found.value == pytest.approx(1) == found.high
        assert 0.1 < found.low < 1


@given(cases(), RATES, st.integers(1, 4))
def test_precision_at_averages_over_ties(case, share, count):
    x, y, w = case
    found = precision_at(torch.tensor(x), y, w, share=share)
    assert found == close(reference.precision_at(x, y, share * w.sum(), w))
    count = min(count, int(w.sum()))
    assert precision_at(x, y, w, k=count) == close(reference.precision_at(x, y, count, w))
    assert precision_at(x, y, k=np.int64(1)) == precision_at(x, y, share=1 / len(x))
    assert precision_at(x, y, w, share=1.0) == close(w @ y / w.sum())
    assert precision_at(x, y, w, share=1) == precision_at(x, y, w, share=1.0)


def test_precision_at_count_is_of_weight():
    x, y, times = np.arange(8.0), np.arange(8) % 3 == 0, np.array([1, 2, 3, 1, 2, 3, 1, 2])
    for count in (1, 2, 3, 7):
        repeated = precision_at(np.repeat(x, times), np.repeat(y, times), k=count)
        assert precision_at(x, y, times, k=count) == close(repeated)


def test_more_rows_than_there_are_is_nan_and_warns():
    with pytest.warns(UserWarning, match="k is 5 rows of 4") as record:
        assert math.isnan(precision_at([0.1, 0.4, 0.3, 0.8], [0, 0, 1, 1], k=5))
    assert record[0].filename == __file__


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_curve_metrics_on_a_gpu():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5000, generator=generator).round(decimals=2)
    y = torch.rand(5000, generator=generator) < 0.2
    for w in (None, torch.rand(5000, generator=generator)):
        for metric, options in (
            (roc_auc, {}),
            (partial_auc, {"max_fpr": 0.1, "min_tpr": 0.1}),
            (tpr_at_fpr, {"fpr": 0.1}),
            (precision_at, {"share": 0.1}),
            (precision_at, {"k": 100}),
            (average_precision, {}),
        ):
            on_gpu = metric(x.cuda(), y.cuda(), None if w is None else w.cuda(), **options)
            assert on_gpu == close(metric(x, y, w, **options))
