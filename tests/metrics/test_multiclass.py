"""Hand and Till's M with its interval and its test, against the definition and the bootstrap."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from errors import assert_names
from hypothesis import given
from hypothesis import strategies as st
from reference import auc as reference

from aucmax.metrics import compare, hand_till, interval, roc_auc


def close(value):
    return pytest.approx(value, rel=1e-11, abs=1e-12)


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
    assert interval(x, y, "hand_till").value == result


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_weighted_hand_till_is_the_mean_over_pairs(seed, ties):
    rng = np.random.default_rng(seed)
    y = np.arange(30) % 3
    x = rng.integers(4, size=(30, 3)) if ties else rng.random((30, 3))
    w = rng.random(30) * (rng.random(30) < 0.8)
    w[:3] = 1.0
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    of_pairs = []
    for i, j in pairs:
        rows = (y == i) | (y == j)
        of_pairs.append(roc_auc(x[rows, i], y[rows] == i, w[rows]))
    assert hand_till(x, y, w) == close(np.mean(of_pairs))
    assert interval(x, y, "hand_till", weight=w).value == close(np.mean(of_pairs))
    assert hand_till(x, y, 1e300 * w) == close(hand_till(x, y, w))


def test_hand_till_of_two_columns():
    x = np.array([[0.0, 3.0], [1.0, 1.0], [2.0, 2.0], [3.0, 0.0]])
    y = np.array([0, 1, 0, 1])
    column_0, column_1 = roc_auc(x[:, 0], y == 0), roc_auc(x[:, 1], y == 1)
    assert column_0 != column_1
    assert hand_till(x, y) == (column_0 + column_1) / 2


@pytest.mark.parametrize("few", [1, 2, 30])
@pytest.mark.parametrize("weighted", [False, True])
def test_interval_of_two_classes_is_delongs(few, weighted):
    random = np.random.default_rng(few)
    y = np.repeat([1, 0], (few, 80))
    a, b = (1 / (1 + np.exp(-random.normal(y, 1.0))) for _ in range(2))
    w = random.lognormal(0, 1, len(y)) if weighted else None
    pairs = [np.stack([1 - p, p], axis=1) for p in (a, b)]
    expected = interval(a, y, level=0.9, weight=w)
    found = interval(pairs[0], y, "hand_till", level=0.9, weight=w)
    assert found == pytest.approx(expected, rel=1e-9)
    found = compare(*pairs, y, "hand_till", weight=w)
    assert found == pytest.approx(compare(a, b, y, weight=w), rel=1e-9)


def test_errors_match_bootstrap():
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
    assert interval(p, y, "hand_till").standard_error == pytest.approx(np.std(m), rel=0.15)
    test = compare(p, q, y, "hand_till")
    assert test.standard_error == pytest.approx(np.std(differences), rel=0.15)
    assert test.difference == pytest.approx(hand_till(p, y) - hand_till(q, y))
    assert compare(p, p, y, "hand_till").p_value == 1


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
        ("y_true", [0, 1, 2], np.ones((3, 3))),
    ],
)
def test_bad_input_is_named(argument, scores, target):
    assert_names(argument, hand_till, scores, target)
    assert_names(argument, interval, scores, target, "hand_till")


def test_tables_of_other_shapes_are_named():
    p, y = np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 0]
    with pytest.raises(ValueError, match=r"b must have shape \(N, c\)"):
        compare(p, p[:, 0], y, "hand_till")
    with pytest.raises(ValueError, match="b must have the 3 columns of a, found 4"):
        compare(p, np.c_[p, p[:, 0]], y, "hand_till")
    with pytest.raises(ValueError, match=r"scores must have shape .* metrics\.hand_till"):
        roc_auc(p, y)


def test_a_class_without_rows_is_nan_and_warns():
    table, y = np.ones((3, 4)), [0, 2, 2]
    for call in (
        lambda: hand_till(table, y),
        lambda: interval(table, y, "hand_till").low,
        lambda: compare(table, table, y, "hand_till").p_value,
        lambda: hand_till(np.ones((4, 3)), [0, 1, 2, 1], [1, 0, 1, 0]),
    ):
        with pytest.warns(UserWarning, match=r"target lacks class \[1") as record:
            assert math.isnan(call())
        assert record[0].filename == __file__
