"""Metrics against scikit-learn, against their definitions over all pairs, and by their laws."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import sklearn.metrics
import torch
from errors import assert_names
from hypothesis import given
from hypothesis import strategies as st
from reference import auc as reference

from aucmax import metrics
from aucmax.metrics import (
    StreamingAUC,
    _pairs,
    average_precision,
    delong_test,
    hand_till,
    roc_auc,
    roc_auc_interval,
    roc_curve,
)

SCORES = [
    st.integers(-3, 3).map(float),  # many ties
    st.floats(-1, 1, width=32),
    st.floats(-(2.0**127), 2.0**127, width=32),  # any finite float32: sums of them overflow
]


@st.composite
def rows(draw, columns=1, least=1):
    """Float32 scores in float64, `columns` lists of them, and labels with both classes."""
    labels = draw(st.lists(st.booleans(), max_size=30)) + [True] * least + [False] * least
    values = draw(st.sampled_from(SCORES))
    fixed = st.lists(values, min_size=len(labels), max_size=len(labels))
    return *(np.array(draw(fixed)) for _ in range(columns)), np.array(labels)


def weights(like):
    some = st.one_of(st.just(0.0), st.floats(1e-3, 1e3), st.integers(1, 5).map(float))
    return st.lists(some, min_size=len(like), max_size=len(like)).map(np.array)


def weighted_rows():
    def usable(case):
        (_, y), w = case
        return w[y].sum() > 0 and w[~y].sum() > 0

    return rows().flatmap(lambda case: st.tuples(st.just(case), weights(case[1]))).filter(usable)


def close(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


# Against scikit-learn and the definition


@given(rows())
def test_roc_auc_matches_sklearn(case):
    x, y = case
    result = roc_auc(x, y)
    assert result == close(sklearn.metrics.roc_auc_score(y, x))
    assert result == close(reference.auc(x, y))


@given(weighted_rows())
def test_weighted_roc_auc_matches_sklearn(case):
    (x, y), w = case
    result = roc_auc(x, y, w)
    assert 0 <= result <= 1
    assert result == close(sklearn.metrics.roc_auc_score(y, x, sample_weight=w))
    assert result == close(reference.auc(x, y, w))


@given(weighted_rows(), st.booleans())
def test_average_precision_matches_sklearn(case, weighted):
    (x, y), w = case
    w = w if weighted else None
    expected = sklearn.metrics.average_precision_score(y, x, sample_weight=w)
    assert average_precision(x, y, w) == close(expected)


@given(weighted_rows(), st.booleans())
def test_roc_curve_matches_sklearn(case, weighted):
    (x, y), w = case
    w = w if weighted else None
    curve = roc_curve(torch.tensor(x), y, w)
    expected = sklearn.metrics.roc_curve(y, x, sample_weight=w, drop_intermediate=False)
    for ours, theirs in zip(curve, expected, strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert sklearn.metrics.auc(curve.fpr, curve.tpr) == pytest.approx(roc_auc(x, y, w), abs=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.booleans())
def test_hand_till_matches_sklearn(seed, classes, ties):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.concatenate([np.arange(classes), rng.integers(classes, size=30)]))
    raw = rng.integers(1, 4, size=(len(y), classes)) if ties else rng.random((len(y), classes))
    x = raw / raw.sum(axis=1, keepdims=True)  # scikit-learn takes probabilities only
    result = hand_till(torch.tensor(x), torch.tensor(y))
    assert result == close(reference.hand_till(x, y))
    if classes > 2:
        assert result == close(sklearn.metrics.roc_auc_score(y, x, multi_class="ovo"))


@pytest.mark.parametrize("few", [1, 2, 30])
def test_hand_till_interval_of_two_classes_is_delongs(few):
    random = np.random.default_rng(few)
    y = np.repeat([1, 0], (few, 80))
    a, b = (1 / (1 + np.exp(-random.normal(y, 1.0))) for _ in range(2))
    pairs = [np.stack([1 - p, p], axis=1) for p in (a, b)]
    expected = metrics.roc_auc_interval(a, y, 0.9)
    assert metrics.hand_till_interval(pairs[0], y, 0.9) == pytest.approx(expected, rel=1e-9)
    assert metrics.hand_till_test(*pairs, y) == pytest.approx(
        metrics.delong_test(a, b, y), rel=1e-9
    )


def test_hand_till_error_matches_bootstrap():
    random = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], (90, 60, 30))
    p, q = (random.normal(np.eye(3)[y] * size, 1.0) for size in (1.2, 1.0))
    m, differences = [], []
    for _ in range(300):
        rows = np.concatenate(
            [random.choice(np.flatnonzero(y == k), (y == k).sum()) for k in (0, 1, 2)]
        )
        m.append(hand_till(p[rows], y[rows]))
        differences.append(m[-1] - hand_till(q[rows], y[rows]))
    assert metrics.hand_till_interval(p, y).standard_error == pytest.approx(np.std(m), rel=0.15)
    test = metrics.hand_till_test(p, q, y)
    assert test.standard_error == pytest.approx(np.std(differences), rel=0.15)
    assert test.difference == pytest.approx(hand_till(p, y) - hand_till(q, y))


def test_hand_till_test_of_itself_and_without_class():
    p, y = np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 0]
    assert metrics.hand_till_test(p, p, y).p_value == 1
    with pytest.warns(UserWarning, match="lacks class"):
        assert math.isnan(metrics.hand_till_interval(p, [0, 1, 1, 0]).low)
    with pytest.warns(UserWarning, match="lacks class"):
        assert math.isnan(metrics.hand_till_test(p, p, [0, 1, 1, 0]).p_value)
    with pytest.raises(ValueError, match=r"scores_b must have shape \(N, c\)"):
        metrics.hand_till_test(p, p[:, 0], y)
    with pytest.raises(ValueError, match="scores_b must have the"):
        metrics.hand_till_test(p, np.c_[p, p[:, 0]], y)


def test_hand_till_of_two_columns():
    x = np.array([[0.0, 3.0], [1.0, 1.0], [2.0, 2.0], [3.0, 0.0]])
    y = np.array([0, 1, 0, 1])
    column_0, column_1 = roc_auc(x[:, 0], y == 0), roc_auc(x[:, 1], y == 1)
    assert column_0 != column_1
    assert hand_till(x, y) == (column_0 + column_1) / 2


# Precision and large inputs


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
    expected = reference.auc(x.double().numpy(), y.numpy())
    assert roc_auc(x, y) == close(expected)
    assert roc_auc_interval(x, y).auc == close(expected)
    metric = StreamingAUC()
    metric.update(x, y)
    assert metric.compute() == close(expected)


LARGE = {
    "float32": lambda x, y: x.astype(np.float32),
    "float64": lambda x, y: x,
    "ties": lambda x, y: np.round(x, 1),
    "integers": lambda x, y: np.round(10 * x).astype(np.int64),
    "outliers": lambda x, y: np.where(np.abs(x) > 3, 1e300 * x, x),
    "whole range of float64": lambda x, y: 1.7e308 * np.sin(x),
    "whole range of float32": lambda x, y: (3.4e38 * np.sin(x)).astype(np.float32),
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
    assert roc_auc_interval(x, y).auc == roc_auc(x, y)


@given(
    rows(),
    st.sampled_from([2, 8, 64]),
    st.sampled_from([3, 2**16]),
    st.sampled_from([np.float32, np.float64]),
)
def test_screen_settles_only_known_pairs(case, cells, block, dtype):
    x, y = case
    few, many = np.sort(x[y]).astype(dtype), x[~y].astype(dtype)
    settled, rest = _pairs.screen(few, many, cells, block)
    compared = np.sum(2 * (few[:, None] > rest) + (few[:, None] == rest))
    assert settled + compared == np.sum(2 * (few[:, None] > many) + (few[:, None] == many))


# DeLong


@given(rows(least=2))
def test_roc_auc_interval_error_is_delongs(case):
    x, y = case
    result = roc_auc_interval(x, y)
    assert result.auc == roc_auc(x, y)
    assert result.standard_error**2 == close(reference.delong_variance(x, y))


def test_delong_variance_has_relative_precision():
    rng = np.random.default_rng(1)
    y = rng.random(500) < 0.2
    x = np.round(rng.standard_normal(500) + 4 * y, 1)
    expected = reference.delong_variance(x, y)
    assert roc_auc_interval(x, y).standard_error ** 2 == pytest.approx(expected, rel=1e-12)


@given(rows(), st.floats(0.01, 0.999))
def test_roc_auc_interval_holds_value(case, level):
    x, y = case
    result = roc_auc_interval(x, y, level)
    assert 0 <= result.low <= result.auc <= result.high <= 1
    assert result.low < result.high
    assert result.level == level
    wider = roc_auc_interval(x, y, (1 + level) / 2)
    assert wider.low <= result.low
    assert wider.high >= result.high


@given(rows())
def test_roc_auc_interval_mirrors(case):
    x, y = case
    result = roc_auc_interval(x, y)
    for mirrored in (roc_auc_interval(-x, y), roc_auc_interval(x, ~y)):
        assert mirrored.low == close(1 - result.high)
        assert mirrored.high == close(1 - result.low)
        assert mirrored.standard_error == close(result.standard_error)


def test_roc_auc_interval_formula():
    rng = np.random.default_rng(3)
    y = np.arange(60) < 20
    x = rng.standard_normal(60) + y
    auc, low, high, error, level = roc_auc_interval(x, y, level=0.9)
    sigma = math.sqrt((20 * error**2 + auc * (1 - auc) / 20) / 21)
    half = 1.6448536269514722 * sigma / (auc * (1 - auc))
    logits = [math.log(p / (1 - p)) for p in (low, auc, high)]
    assert np.diff(logits) == pytest.approx([half, half])
    assert level == 0.9


def test_roc_auc_interval_of_separated_classes():
    x, y = np.arange(30), np.arange(30) >= 20  # 10 positives, 20 negatives
    assert roc_auc_interval(x, y) == (1.0, pytest.approx(0.025**0.1), 1.0, 0.0, 0.95)
    assert roc_auc_interval(-x, y)[:3] == (0.0, 0.0, pytest.approx(1 - 0.025**0.1))


def test_roc_auc_interval_of_ties_and_single_rows():
    equal = roc_auc_interval(np.zeros(40), np.arange(40) < 10)
    assert (equal.auc, equal.standard_error) == (0.5, 0.0)
    assert equal.low < 0.47 < 0.53 < equal.high
    single = roc_auc_interval([1.0, 0.0, 2.0], [1, 0, 0])
    assert (single.auc, single.standard_error) == (0.5, 0.5)
    extreme = roc_auc_interval(np.arange(300_000), np.arange(300_000) == 1)
    assert 0 <= extreme.low < extreme.auc < extreme.high <= 1


@pytest.mark.parametrize("positives", [1, 2, 4, 7])
def test_roc_auc_interval_coverage_with_few_positives(positives):
    """Wide enough at every AUC, where one row of a class has no variance and 1 has none either."""
    rng, y = np.random.default_rng(positives), np.arange(100) < positives
    for auc in (0.5, 0.9, 0.99):
        shift = math.sqrt(2) * NormalDist().inv_cdf(auc)
        draws = rng.standard_normal((300, 100)) + shift * y
        intervals = [roc_auc_interval(x, y) for x in draws]
        assert np.mean([x.low <= auc <= x.high for x in intervals]) >= 0.93
        assert min(x.high - x.low for x in intervals) > 0.1


@given(rows(columns=2, least=2))
def test_delong_test_matches_covariances(case):
    a, b, y = case
    test = delong_test(a, torch.tensor(b), y)
    assert (test.auc_a, test.auc_b) == (roc_auc(a, y), roc_auc(b, y))
    assert test.difference == test.auc_a - test.auc_b
    own = reference.delong_variance(a, y) + reference.delong_variance(b, y)
    variance = own - 2 * reference.delong_covariance(a, b, y)
    if variance > 1e-9:  # not zero but for rounding
        assert test.standard_error**2 == close(variance)
    assert test.p_value == pytest.approx(2 * NormalDist().cdf(-abs(test.z)), abs=1e-12)
    if test.difference:
        assert test.z == close(test.difference / test.standard_error)


def test_delong_test_of_opposite_scores():
    x, y = np.arange(20.0), np.arange(20) >= 10
    test = delong_test(x, -x, y)
    assert test[:3] == (1.0, 0.0, 1.0)
    assert test.z == pytest.approx(math.sqrt(10))
    assert 0.001 < test.p_value < 0.002
    single = delong_test([1.0, 0.0], [0.0, 1.0], [1, 0])
    assert (single.z, single.difference) == (1.0, 1.0)


# Laws


@given(weighted_rows())
def test_weighted_roc_auc_interval(case):
    (x, y), w = case
    found = roc_auc_interval(x, y, weight=w)
    assert found.auc == close(roc_auc(x, y, w))
    assert found.low <= found.auc <= found.high
    assert roc_auc_interval(x, y, weight=1e300 * w) == close(found)
    assert roc_auc_interval(x, y, weight=np.full(len(x), 7.0)) == close(roc_auc_interval(x, y))
    two = np.stack([-x, x], axis=1)
    assert metrics.hand_till_interval(two, y.astype(int), weight=w) == close(found)


def test_weighted_errors_match_bootstrap():
    """Rows are drawn with their weights, as a survey would draw others."""
    rng = np.random.default_rng(3)
    y, w = np.arange(400) % 4 == 0, rng.lognormal(0, 0.8, 400)
    a, b = (rng.standard_normal(400) + 0.8 * y for _ in range(2))
    classes = [np.flatnonzero(y), np.flatnonzero(~y)]
    aucs = []
    for _ in range(800):
        drawn = np.concatenate([rng.choice(part, len(part)) for part in classes])
        aucs.append([roc_auc(x[drawn], y[drawn], w[drawn]) for x in (a, b)])
    first, second = np.array(aucs).T
    assert roc_auc_interval(a, y, weight=w).standard_error == pytest.approx(first.std(), rel=0.1)
    test = delong_test(a, b, y, w)
    assert test.standard_error == pytest.approx((first - second).std(), rel=0.1)
    assert test.difference == close(roc_auc(a, y, w) - roc_auc(b, y, w))
    columns = [np.stack([-x, x], axis=1) for x in (a, b)]
    assert metrics.hand_till_test(*columns, y.astype(int), w) == close(test)


@given(rows(), st.lists(st.integers(0, 32), max_size=4), st.booleans())
def test_streaming_auc_equals_concatenation(case, cuts, weighted):
    x, y = case
    w = np.linspace(0.5, 2, len(x)) if weighted else None
    metric = StreamingAUC()
    for part in np.split(np.arange(len(x)), sorted(min(cut, len(x)) for cut in cuts)):
        metric.update(torch.tensor(x[part]), y[part], None if w is None else w[part])
    assert metric.compute() == close(roc_auc(x, y, w))
    assert metric.compute() == close(roc_auc(x, y, w))  # and again


def test_streaming_auc_of_batches_without_weights():
    metric = StreamingAUC()
    metric.update([1.0, 2.0], [0, 1], [3.0, 2.0])
    metric.update([3.0, 0.0], [0, 1])
    assert metric.compute() == close(roc_auc([1.0, 2.0, 3.0, 0.0], [0, 1, 0, 1], [3, 2, 1, 1]))


def test_streaming_auc_copies_batches():
    metric = StreamingAUC()
    scores, labels = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([0, 1])
    metric.update(scores * 1, labels)
    shared, weight = np.array([3.0, 0.0]), np.ones(2)
    metric.update(shared, labels.numpy(), weight)
    assert metric.compute() == 0.25
    shared[:], weight[:] = [-1.0, 9.0], 7.0
    labels[:] = 1 - labels
    assert metric.compute() == 0.25
    assert all(isinstance(batch, np.ndarray) and batch.base is None for batch in metric._batches)
    metric.reset()
    metric.update([1.0, 2.0], [1, 0])
    assert metric.compute() == 0.0


def test_streaming_auc_raises_for_inexact_scores():
    metric = StreamingAUC()
    metric.update(np.array([2**53, -(2**53)]), [0, 1])
    for value in (2**53 + 1, 2**63 - 1):
        with pytest.raises(ValueError, match="scores must fit float64, found int64"):
            metric.update(np.array([value]), [1])
    assert metric.compute() == 0.0


def test_streaming_auc_without_rows():
    metric = StreamingAUC()
    metric.update(torch.empty(0), torch.empty(0), torch.empty(0))
    with pytest.raises(ValueError, match="scores must have at least one row, found none"):
        metric.compute()


# Wrong input


@pytest.mark.parametrize(
    ("argument", "scores", "target"),
    [
        ("scores", np.ones(3), [0, 1, 2]),
        ("scores", np.ones((3, 1)), [0, 0, 0]),
        ("scores", np.ones((0, 3)), []),
        ("scores", np.full((3, 3), np.nan), [0, 1, 2]),
        ("target", np.ones((3, 3)), [0, 1, 3]),
        ("target", np.ones((3, 3)), [0, 0.5, 2]),
        ("target", np.ones((3, 3)), [0, 1]),
    ],
)
def test_bad_input_of_hand_till_is_named(argument, scores, target):
    assert_names(argument, hand_till, scores, target)


# One class


def test_one_class_in_stream_and_by_weight():
    metric = StreamingAUC()
    metric.update([0.1, 0.2], [1, 1])
    with pytest.warns(UserWarning, match="2 positives and 0 negatives") as record:
        assert math.isnan(metric.compute())
    assert record[0].filename == __file__
    with pytest.warns(UserWarning, match="1 positives and 0 negatives"):
        assert math.isnan(roc_auc([0.1, 0.2], [1, 0], [1, 0]))


def test_hand_till_without_a_class_is_nan_and_warns():
    with pytest.warns(UserWarning, match=r"target lacks class \[1, 3\]") as record:
        assert math.isnan(hand_till(np.ones((3, 4)), [0, 2, 2]))
    assert record[0].filename == __file__
