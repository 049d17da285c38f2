"""Classifiers of other libraries as one of several models."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble import others
from aucmax.tables.ensemble.base import LeftOutError, Setting
from aucmax.tables.ensemble.others import columns_of, fit_other
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows
from aucmax.train.metrics import METRICS

RANDOM = np.random.default_rng(0)
CODES = [3, 4]
TABLE = Encoded(
    RANDOM.normal(size=(120, 2)).astype(np.float32),
    np.stack([RANDOM.integers(0, n, 120) for n in CODES], 1),
)
SCORE = TABLE.numeric[:, 0] + TABLE.categorical[:, 1] * 0.5 + 0.5 * RANDOM.normal(size=120)
WEIGHT = RANDOM.uniform(0.1, 2, 120).astype(np.float32)
HELD = np.arange(120)[:, None] % 2 == np.arange(2)
FOLDS = Folds(~HELD, HELD)


def fitted(estimator, outputs=1, weight=None):
    classes = np.searchsorted(np.quantile(SCORE, [0.7] if outputs == 1 else [0.3, 0.7]), SCORE)
    setting = Setting(
        CODES, outputs, METRICS["roc_auc"], 5, torch.device("cpu"), np.inf, None, False
    )
    return fit_other(Rows.of(TABLE, classes, weight), FOLDS, setting, estimator), classes


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("estimator", "outputs"),
    [(LogisticRegression(), 1), (LinearSVC(random_state=0), 3)],
)
def test_scores_match_copies_fitted_to_the_folds(estimator, outputs, wide, monkeypatch):
    monkeypatch.setattr(others, "WIDE", 1 if wide else 1000)
    found, classes = fitted(estimator, outputs, WEIGHT)
    assert not hasattr(estimator, "classes_")
    columns = columns_of(TABLE, CODES)
    for held in HELD.T:
        model = type(estimator)(**estimator.get_params() | {"random_state": 5})
        model.fit(columns[~held], classes[~held], sample_weight=WEIGHT[~held])
        if isinstance(estimator, LinearSVC):
            expected = model.decision_function(columns[held]).reshape(-1, outputs)
        else:
            expected = np.log(model.predict_proba(columns[held]) + others.NEVER)
            expected = expected[:, 1:] - expected[:, :1] if outputs == 1 else expected
        np.testing.assert_allclose(found.scores[held], expected, rtol=0, atol=1e-12)
    alone = [found.model.score(TABLE, fold) for fold in range(2)]
    np.testing.assert_allclose(found.model.score(TABLE), np.mean(alone, 0), atol=1e-14)
    for fold, held in enumerate(HELD.T):
        assert (alone[fold][held] == found.scores[held]).all()
    assert found.model.name == type(estimator).__name__


def test_scores_are_finite():
    found, _ = fitted(KNeighborsClassifier(1))
    assert np.isfinite(found.scores).all()
    assert len(np.unique(found.scores)) == 2


def test_ignored_weights_warn():
    with pytest.warns(UserWarning, match="KNeighborsClassifier takes no weights of rows"):
        fitted(KNeighborsClassifier(), weight=WEIGHT)


def test_errors_name_the_classifier():
    with pytest.raises(LeftOutError, match="KNeighborsClassifier cannot be fitted: The 'n_neigh"):
        fitted(KNeighborsClassifier(-1))
    classes = np.arange(120) // 60  # as a column says
    told = Rows.of(Encoded(classes[:, None].astype(np.float32), TABLE.categorical), classes, None)
    setting = Setting(CODES, 1, METRICS["roc_auc"], 0, torch.device("cpu"), np.inf, None, False)
    with np.errstate(all="ignore"), pytest.raises(LeftOutError, match="scores are not finite"):
        fit_other(told, FOLDS, setting, GaussianNB(var_smoothing=0.0))
    model = fitted(GaussianNB())[0].model
    with pytest.raises(ValueError, match=r"GaussianNB cannot be saved.*: fit without it.*joblib"):
        model.to_plain()
    with pytest.raises(ValueError, match=r"GaussianNB cannot be exported.*: fit without it"):
        model.as_module()
