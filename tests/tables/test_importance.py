"""By how much a number falls when a column is shuffled, by fits that do not know the rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from aucmax.tables import AUCClassifier, importance
from aucmax.tables.columns import columns_of
from aucmax.tables.encoder import TableEncoder
from aucmax.tables.folds import make_folds
from aucmax.tables.importance import JudgedRows
from aucmax.tables.scoring import Rows


@pytest.fixture(scope="module")
def judged():
    """A column that tells and others that do not, and trees that learn their rows by heart."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 600)
    table = pd.DataFrame({"noise": random.normal(size=600), "one": 1.0})
    table["tells"] = np.where(random.random(600) < 0.8, y, 1 - y).astype(str)
    table["also noise"] = random.normal(size=600)
    encoder = TableEncoder().fit(columns_of(table))
    encoded = encoder.transform(columns_of(table))
    folds = make_folds(encoded, y, None, count=3, repeats=2, seed=0)
    trees = [
        DecisionTreeClassifier(random_state=0).fit(np.hstack(encoded.select(used)), y[used])
        for used, _ in map(folds.rows, range(folds.count))
    ]
    return encoder, Rows.of(encoded, y, None), folds, trees


def drops(judged, other=0):
    """Of the columns; by another fit than was judged by the rows, if so many further is said."""
    encoder, rows, folds, trees = judged
    asked = []

    def score(encoded, fold):
        asked.append((fold, len(encoded.numeric)))
        return trees[(fold + other) % 6].predict_proba(np.hstack(encoded))[:, 1:]

    def auc(scores, rows):
        return roc_auc_score(rows.classes, scores[:, 0])

    sample = JudgedRows.sample(rows, folds, seed=0)
    return sample.importances(encoder, 1, score, auc), sample, asked


def test_importance_of_noise_is_zero_out_of_fold(judged):
    found, sample, asked = drops(judged)
    noise, one, tells, also = found
    assert one == 0
    assert tells > 0.15
    assert max(abs(noise), abs(also)) < 0.06
    by_heart = drops(judged, other=1)[0]  # trees that know the rows
    assert min(by_heart[0], by_heart[3]) > 0.1
    assert (sample.held.sum(axis=1) == 2).all()
    assert {fold for fold, _ in asked} == set(range(6))
    assert max(rows for _, rows in asked) <= 201  # of each fit those alone that it was judged by


def test_sample_is_judged_out_of_fold(judged, monkeypatch):
    monkeypatch.setattr(importance, "MOST_JUDGED", 100)
    found, sample, _ = drops(judged)
    _, rows, folds, _ = judged
    assert np.bincount(sample.rows.classes).tolist() == [50, 50]
    for k in range(100):
        same = (rows.numeric == sample.rows.numeric[k]).all(1).numpy()
        assert (folds.held[same] == sample.held[k]).all()
    assert found[2] > 0.1


# --- of a classifier ------------------------------------------------------------------------------


def test_feature_importances_of_a_saved_model(tmp_path):
    random = np.random.default_rng(0)
    y = np.where(random.random(300) < 0.3, "yes", "no")
    table = pd.DataFrame({"noise": random.normal(size=300), "one": 1.0})
    table["tells"] = random.normal(size=300) + 2 * (y == "yes")
    model = AUCClassifier(models=["logistic"], random_state=0)
    assert not hasattr(model, "feature_importances_")
    model.fit(table, y)
    model.save(tmp_path / "before")
    noise, one, tells = model.feature_importances_
    assert (abs(noise) < 0.05, one, tells > 0.2) == (True, 0, True)
    again = AUCClassifier.load(model.save(tmp_path / "after"))
    np.testing.assert_array_equal(again.feature_importances_, [noise, one, tells])
    with pytest.raises(AttributeError, match=r"^feature_importances_ needs rows .* use it before$"):
        _ = AUCClassifier.load(tmp_path / "before").feature_importances_
    model.fit(table[["one", "tells"]], y)  # what was computed before is not kept
    assert len(model.feature_importances_) == 2


def test_feature_importances_are_deterministic(tmp_path):
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 240)
    X = np.c_[random.normal(size=240), y + random.normal(size=240)]
    found = [
        AUCClassifier(models=["logistic"], random_state=0).fit(X, y).feature_importances_
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*found)
    assert found[0][1] > 0.2 > 0.05 > abs(found[0][0])
