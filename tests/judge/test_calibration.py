"""Probabilities from scores, against scikit-learn and the definitions."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score

from aucmax.judge import calibration
from aucmax.judge.calibration import (
    Platt,
    Temperature,
    are_alike,
    fit_platt,
    fit_temperature,
    from_dict,
)

RANDOM = np.random.default_rng(0)
Y = (RANDOM.random(500) < 0.15).astype(int)
S = RANDOM.normal(size=500) + 1.5 * Y
WEIGHT = RANDOM.uniform(0.2, 3, 500)


class Identity(ClassifierMixin, BaseEstimator):
    """A classifier whose score is its only column."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X[:, 0]

    def predict(self, X):
        return self.classes_[1 * (X[:, 0] > 0)]


def test_platt_scaling_matches_sklearn():
    """Scikit-learn's sigmoid calibration of a model whose scores are the only column."""
    model = CalibratedClassifierCV(FrozenEstimator(Identity().fit(S[:, None], Y)), method="sigmoid")
    expected = model.fit(S[:, None], Y).predict_proba(S[:, None])[:, 1]
    np.testing.assert_allclose(fit_platt(S, Y)(S), expected, rtol=1e-3)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_platt_is_invariant_to_scale_and_shift(scale, shift):
    p = fit_platt(S * scale + shift * scale, Y)(S * scale + shift * scale)
    np.testing.assert_allclose(p, fit_platt(S, Y)(S), rtol=1e-5)


def test_weights_repeat_rows():
    counts = np.where(Y, 3, 1 + (S > 0))
    repeated = fit_platt(np.repeat(S, counts), np.repeat(Y, counts))
    weighed = fit_platt(S, Y, counts * 1.0)
    # Only the smoothing of the targets counts rows: it is that of 500.
    np.testing.assert_allclose(weighed(S), repeated(S), atol=0.02)
    assert abs(weighed(S) - fit_platt(S, Y)(S)).max() > 0.05
    np.testing.assert_allclose(fit_platt(S, Y, WEIGHT)(S), fit_platt(S, Y, WEIGHT * 8.0)(S))


@pytest.mark.parametrize("scores", [S, -S, S * 1e-8, np.round(S)])
def test_platt_keeps_the_ranking(scores):
    platt = fit_platt(scores, Y)
    assert platt.slope > 0
    assert roc_auc_score(Y, platt(scores)) == roc_auc_score(Y, scores)


def test_platt_of_reversed_scores_is_the_base_rate():
    p = fit_platt(-S, Y)(-S)
    np.testing.assert_allclose(p, Y.mean(), atol=5e-3)


def test_platt_of_separated_classes_is_finite():
    platt = fit_platt(np.array([-1.0, -2.0, 1.0, 2.0]), np.array([0, 0, 1, 1]))
    assert np.isfinite([platt.slope, platt.shift]).all()
    assert 0.5 < platt(np.array([1.0]))[0] < 1


def test_platt_of_constant_scores():
    platt = fit_platt(np.ones(20), Y[:20] | (np.arange(20) == 0))
    assert 0 < platt(np.ones(1))[0] < 1


def test_platt_does_not_overflow():
    assert Platt(1.0, 0.0)(np.array([-1e6, 1e6])).tolist() == [0.0, 1.0]


def test_probabilities_match_the_base_rate():
    """The mean of a maximum-likelihood fit with a shift is the share, but for the smoothing."""
    assert abs(fit_platt(S, Y)(S).mean() - Y.mean()) < 5e-3
    assert (
        abs(np.average(fit_platt(S, Y, WEIGHT)(S), weights=WEIGHT) - np.average(Y, weights=WEIGHT))
        < 5e-3
    )


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_temperature_matches_scipy(weight):
    """Against scipy on the same smoothed likelihood."""
    scores = RANDOM.normal(size=(500, 3)) * 4
    truth = Temperature(0.3, (1.0, 0.0, -1.0))
    target = np.array([RANDOM.choice(3, p=p) for p in truth(scores)])
    w = np.ones(500) if weight is None else weight / weight.mean()
    smooth = (np.eye(3)[target] * 500 + 1) / 503

    def surprise(theta):
        return -(w @ (smooth * log_softmax(theta[0] * scores + [0, *theta[1:]], axis=1)).sum(1))

    best = minimize(surprise, [1.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-4}).x
    found = fit_temperature(scores, target, weight)
    shifts = np.subtract(found.shifts, found.shifts[0])
    np.testing.assert_allclose([found.slope, *shifts[1:]], best, rtol=1e-3)
    np.testing.assert_allclose(found(scores).sum(axis=1), 1)
    np.testing.assert_allclose([found.slope, shifts[2]], [0.3, -2.0], rtol=0.3)


def test_temperature_shifts_classes():
    scores = np.eye(3)[np.arange(60) % 3] + [5.0, 0.0, -5.0]
    found = fit_temperature(scores, np.arange(60) % 3)
    assert (found(scores).argmax(axis=1) == np.arange(60) % 3).all()
    assert np.isfinite([found.slope, *found.shifts]).all()


def test_temperature_slope_stays_positive():
    scores = np.eye(3)[np.arange(60) % 3]
    found = fit_temperature(-scores, np.arange(60) % 3)
    assert found.slope > 0
    np.testing.assert_allclose(found(-scores), 1 / 3, atol=0.01)


@pytest.mark.parametrize("kind", [Platt(0.1, 1 / 3), Temperature(2 / 3, (0.1, -0.1))])
def test_json_round_trip(kind):
    assert from_dict(json.loads(json.dumps(kind.to_dict()))) == kind


def test_several_labels_are_calibrated_one_by_one():
    random = np.random.default_rng(0)
    scores, target = random.normal(size=(60, 2)), random.integers(0, 2, (60, 2)).astype(float)
    target[:20, 1] = np.nan
    weight = random.uniform(size=60)
    found = calibration.fit_labels(scores, target, weight)
    expected = [
        calibration.fit_platt(scores[:, 0], target[:, 0], weight),
        calibration.fit_platt(scores[20:, 1], target[20:, 1], weight[20:]),
    ]
    assert found.labels == tuple(expected)
    columns = [platt(scores[:, k]) for k, platt in enumerate(expected)]
    np.testing.assert_array_equal(found(scores), np.stack(columns, axis=1))
    assert calibration.PerLabel.from_dict(found.to_dict()) == found


def test_are_alike():
    wrong = fit_platt(-S, Y)(-S)  # ranked the wrong way round
    assert np.ptp(wrong) > 0
    assert are_alike(wrong)
    assert not are_alike(fit_platt(S, Y)(S))
    assert are_alike(np.tile([0.2, 0.3, 0.5], (9, 1)))
    assert not are_alike(np.array([[0.2, 0.3, 0.5], [0.3, 0.2, 0.5]]))
    assert are_alike(np.zeros(3))
    assert not are_alike(np.array([1e-6, 2e-6]))
