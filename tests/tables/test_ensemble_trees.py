"""Trees as plain arrays, and boosting: the scores of the libraries that grew them."""

import json
import sys
import time
import warnings

import lightgbm
import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from aucmax import metrics
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble import boosting as boosting_module
from aucmax.tables.ensemble import trees as trees_module
from aucmax.tables.ensemble.base import LeftOutError, Setting
from aucmax.tables.ensemble.boosting import fit_boosting
from aucmax.tables.ensemble.kinds import KINDS
from aucmax.tables.ensemble.linear import fit_logistic
from aucmax.tables.ensemble.trees import Trees
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows
from aucmax.train.metrics import METRICS

CARDINALITIES = [3, 300, 12]
NUMERIC = 4
ROWS = 700


def encoded(rows=ROWS, seed=0):
    random = np.random.default_rng(seed)
    numeric = random.normal(size=(rows, NUMERIC)).astype(np.float32)
    numeric[:, 1] = numeric[:, 1].round(1)  # values that are thresholds' neighbours
    codes = np.stack([random.integers(0, n, rows) for n in CARDINALITIES], 1)
    codes[:, 1] = codes[:, 1] % 7 * 43 + random.integers(0, 2, rows)  # few, up to 259
    return Encoded(numeric, codes)


def classes_of(table, count):
    random = np.random.default_rng(9)
    score = table.numeric[:, 0] * table.numeric[:, 1] + np.sin(table.categorical * 2.0).sum(1)
    score = score + 0.3 * random.normal(size=len(score))
    return np.searchsorted(np.quantile(score, np.linspace(0, 1, count + 1)[1:-1] ** 0.5), score)


TABLE, NEW = encoded(), encoded(300, seed=1)


def columns(table, most=None):
    codes = table.categorical if most is None else table.categorical.clip(max=most)
    return np.concatenate([table.numeric, codes], 1)


def setting(outputs, **changes):
    known = Setting(
        CARDINALITIES, outputs, METRICS["roc_auc"], 3, torch.device("cpu"), np.inf, None, False
    )
    return known._replace(**changes)


def rows_of(count, weight=None):
    return Rows.of(TABLE, classes_of(TABLE, count), weight)


def folds_of(count, rows=ROWS):
    held = np.arange(rows)[:, None] % count == np.arange(count)
    return Folds(~held, held)


def grown(library, count, leaves, trees=12):
    """The library's raw scores of new rows, and our trees."""
    target = classes_of(TABLE, count)
    if library == "lightgbm":
        objective = {"objective": "binary"} if count == 2 else {"objective": "multiclass"}
        known = {"num_class": 1 if count == 2 else count, "verbose": -1, "num_threads": 1}
        known |= {"num_leaves": leaves, "min_data_per_group": 5, "cat_smooth": 1}
        data = lightgbm.Dataset(
            columns(TABLE), target, categorical_feature=list(range(NUMERIC, NUMERIC + 3))
        )
        models = [
            lightgbm.train({**objective, **known, "extra_trees": extra}, data, trees)
            for extra in (False, True)
        ]
        found = Trees.of_lightgbm(models, NUMERIC, CARDINALITIES)
        return sum(model.predict(columns(NEW), raw_score=True) for model in models) / 2, found
    model = HistGradientBoostingClassifier(
        max_iter=trees, max_leaf_nodes=leaves, min_samples_leaf=5, early_stopping=False,
        categorical_features=np.arange(NUMERIC + 3) >= NUMERIC,
    ).fit(columns(TABLE, 254), target)  # fmt: skip
    found = Trees.of_scikit_learn(model, NUMERIC, CARDINALITIES)
    return model.decision_function(columns(NEW, 254)), found


@pytest.mark.parametrize("library", ["lightgbm", "scikit-learn"])
@pytest.mark.parametrize(("count", "leaves"), [(2, 15), (3, 40), (2, 16)])
def test_scores_match_the_library(library, count, leaves):
    expected, found = grown(library, count, leaves)
    expected = expected.reshape(len(expected), -1)
    assert len(np.unique(expected[:, 0])) > 2
    assert (found.chosen >= 0).any()  # splits by codes
    assert (found.chosen[found.column >= 0] < 0).any()  # and by numbers
    np.testing.assert_allclose(found.score(NEW), expected, rtol=0, atol=1e-12)
    by_torch = found.as_module()(tuple(map(torch.from_numpy, NEW)))
    np.testing.assert_allclose(by_torch.numpy(), expected, rtol=0, atol=1e-12)
    about, arrays = found.to_plain()
    again = Trees.from_plain(json.loads(json.dumps(about)), arrays)
    assert (again.score(NEW) == found.score(NEW)).all()


def test_values_at_thresholds_match_sklearn():
    numbers = np.nextafter(np.float32(1), [np.float32(0), np.float32(1), np.float32(2)])
    table = Encoded(np.repeat(numbers, 40)[:, None], np.empty((120, 0), np.int64))
    for cut in (1, 2):
        target = np.repeat([0, 1], [40 * cut, 120 - 40 * cut])
        model = HistGradientBoostingClassifier(max_iter=2).fit(table.numeric, target)
        found = Trees.of_scikit_learn(model, 1, []).score(table)[:, 0]
        np.testing.assert_allclose(found, model.decision_function(table.numeric), atol=1e-12)
        assert len(np.unique(found)) == 2


def test_trees_of_one_leaf_and_few_rows():
    table = Encoded(TABLE.numeric[:6], TABLE.categorical[:6])
    rows = Rows.of(table, np.array([0, 0, 0, 0, 1, 1]), None)
    held = np.zeros((6, 1), bool)
    held[[0, 5]] = True
    fitted = fit_boosting(rows, Folds(~held, held), setting(1))
    found = fitted.model.score(NEW)
    assert found.shape == (300, 1)
    assert np.isfinite(found).all()
    by_torch = fitted.model.as_module()(tuple(map(torch.from_numpy, NEW)))
    np.testing.assert_allclose(by_torch, found, rtol=0, atol=1e-12)


def test_threads_and_blocks_change_no_score(monkeypatch):
    _, found = grown("lightgbm", 3, 40)
    expected = found.score(NEW)
    monkeypatch.setattr(trees_module, "BLOCK", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert (found.score(NEW) == expected).all()
    one = Encoded(NEW.numeric[5:6], NEW.categorical[5:6])
    assert (found.score(one) == expected[5]).all()


# ---- Models --------------------------------------------------------------------------------------


@pytest.fixture(params=["lightgbm", "scikit-learn"])
def boosting(request, monkeypatch):
    """With LightGBM, and as if it were not there; fewer trees, for speed."""
    monkeypatch.setattr(boosting_module, "TREES", 12)
    if request.param == "scikit-learn":
        monkeypatch.setitem(sys.modules, "lightgbm", None)
    return fit_boosting


@pytest.mark.parametrize("outputs", [1, 3])
def test_scores_are_out_of_fold(boosting, outputs, capfd):
    rows, folds = rows_of(max(2, outputs), np.linspace(1, 2, ROWS, dtype=np.float32)), folds_of(3)
    folds.held[5] = False  # judged by none
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = boosting(rows, folds, setting(outputs))
    assert capfd.readouterr() == ("", "")
    assert np.isnan(found.scores[5]).all()
    for fold in range(3):
        held = folds.held[:, fold]
        alone = found.model.score(TABLE.select(np.flatnonzero(held)), fold)
        assert (alone == found.scores[held]).all()
    judged = folds.judged
    seen = found.model.score(TABLE)  # of all rows, which it was trained on
    for output in range(outputs):
        target = rows.classes == (output if outputs > 1 else 1)
        held_out = metrics.roc_auc(found.scores[judged, output], target[judged])
        assert 0.6 < held_out < metrics.roc_auc(seen[:, output], target)
    again = fit_boosting(rows, folds, setting(outputs))
    assert (again.model.score(NEW) == found.model.score(NEW)).all()
    about, arrays = found.model.to_plain()
    loaded = KINDS["boosting"].from_plain(json.loads(json.dumps(about)), arrays)
    assert (loaded.score(NEW) == found.model.score(NEW)).all()
    with pytest.raises(ValueError, match="fold must be None"):
        loaded.score(NEW, 0)


@pytest.mark.parametrize("fit", [fit_boosting, fit_logistic])
def test_deadline_leaves_it_out(fit):
    with pytest.raises(LeftOutError, match=r"seconds more than were left|a fit takes longer"):
        fit(rows_of(2), folds_of(4), setting(1, deadline=time.monotonic() + 1e-3))
    with pytest.raises(LeftOutError, match="1 of 3 classes have no rows"):
        fit(rows_of(2), folds_of(4), setting(3))


def test_sample_weight(boosting):
    known = TABLE.numeric[:, 2] > 0
    classes = classes_of(TABLE, 2)

    def agreement(weight):  # of fits that differ in the classes of rows that should not count
        rows = (Rows.of(TABLE, x, weight) for x in (classes, np.where(known, classes, 0)))
        found = [boosting(x, folds_of(2), setting(1)).scores[:, 0] for x in rows]
        return np.corrcoef(found)[0, 1]

    assert agreement(None) < 0.9 < 0.93 < agreement(np.where(known, 1, 1e-6).astype(np.float32))
