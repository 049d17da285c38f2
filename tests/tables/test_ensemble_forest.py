"""A forest as plain arrays: the probabilities of the library that has grown it."""

import json
import time

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier

from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble import forest, trees
from aucmax.tables.ensemble.base import LeftOutError, Setting
from aucmax.tables.ensemble.forest import Averaged, fit_forest
from aucmax.tables.ensemble.kinds import KINDS
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows
from aucmax.train.metrics import METRICS

CODES = [3, 40]
ROWS = 400


def encoded(rows, seed):
    random = np.random.default_rng(seed)
    numeric = random.normal(size=(rows, 3)).astype(np.float32)
    numeric[:, 1] = numeric[:, 1].round(1)
    return Encoded(numeric, np.stack([random.integers(0, n, rows) for n in CODES], 1))


TABLE, NEW = encoded(ROWS, 0), encoded(150, 1)
SCORE = TABLE.numeric[:, 0] * TABLE.numeric[:, 1] + np.sin(TABLE.categorical).sum(1)
WEIGHT = np.random.default_rng(2).uniform(0, 2, ROWS).astype(np.float32)
WEIGHT[::5] = 0
HELD = np.arange(ROWS)[:, None] % 2 == np.arange(2)


def columns(table):
    return np.concatenate([table.numeric, table.categorical], 1)


def logarithms(model, table):
    logs = np.log(model.predict_proba(columns(table)) + forest.NEVER)
    return logs[:, 1:] - logs[:, :1] if logs.shape[1] == 2 else logs


def fitted(outputs, weight=None, **changes):
    classes = np.searchsorted(np.quantile(SCORE, [0.8] if outputs == 1 else [0.3, 0.7]), SCORE)
    setting = Setting(
        CODES, outputs, METRICS["roc_auc"], 3, torch.device("cpu"), np.inf, None, False
    )
    rows, folds = Rows.of(TABLE, classes, weight), Folds(~HELD, HELD)
    return fit_forest(rows, folds, setting._replace(**changes)), classes


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(forest, "TREES", 12)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_scores_match_sklearn(outputs, weight, monkeypatch):
    monkeypatch.setattr(forest, "LEAVES", 60)  # which then decides in what order nodes are made
    found, classes = fitted(outputs, weight)
    for used, fold in ((np.full(ROWS, True), None), (~HELD[:, 0], 0), (~HELD[:, 1], 1)):
        known = {"min_samples_leaf": 2, "max_leaf_nodes": 60, "min_weight_fraction_leaf": 1e-9}
        model = ExtraTreesClassifier(12, random_state=3, **known)
        counts = None if weight is None else weight[used]
        model.fit(columns(TABLE)[used], classes[used], counts)
        expected = logarithms(model, NEW)
        assert len(np.unique(expected)) > 100
        np.testing.assert_allclose(found.model.score(NEW, fold), expected, rtol=0, atol=1e-9)
        if fold is not None:
            held = logarithms(model, TABLE)[HELD[:, fold]]
            np.testing.assert_allclose(found.scores[HELD[:, fold]], held, rtol=0, atol=1e-9)
    by_torch = found.model.as_module()(tuple(map(torch.from_numpy, NEW)))
    np.testing.assert_allclose(by_torch, found.model.score(NEW), rtol=0, atol=1e-9)
    about, arrays = found.model.to_plain()
    loaded = KINDS["forest"].from_plain(json.loads(json.dumps(about)), arrays)
    assert (loaded.score(NEW) == found.model.score(NEW)).all()


def test_values_at_thresholds_match_sklearn():
    numbers = np.nextafter(np.float32(1), [np.float32(0), np.float32(1), np.float32(2)])
    table = Encoded(np.repeat(numbers, 40)[:, None], np.empty((120, 0), np.int64))
    target = np.repeat([0, 1, 0], 40)
    model = ExtraTreesClassifier(40, random_state=0).fit(table.numeric, target)
    found = Averaged.of_forest(model, 1, 1).score(table)
    assert len(np.unique(found)) > 1
    np.testing.assert_allclose(found, logarithms(model, table), rtol=0, atol=1e-9)


def test_threads_and_blocks_change_no_score(monkeypatch):
    model = fitted(3)[0].model
    expected = model.score(NEW)
    monkeypatch.setattr(trees, "BLOCK", 64)
    monkeypatch.setattr(forest, "NEAR", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert (model.score(NEW) == expected).all()
    one = Encoded(NEW.numeric[5:6], NEW.categorical[5:6])
    assert (model.score(one) == expected[5]).all()
    assert (fitted(3)[0].model.score(NEW) == expected).all()  # and none is drawn otherwise


def test_repeated_folds_share_the_trees(monkeypatch):
    monkeypatch.setattr(f"{__name__}.HELD", np.tile(HELD, 2))
    model = fitted(1)[0].model
    assert [len(fit.roots) for fit in (model.whole, *model.fits)] == [12, 6, 6, 6, 6]


def test_deadline_leaves_it_out():
    with pytest.raises(LeftOutError, match="seconds more than were left"):
        fitted(1, deadline=time.monotonic() + 1e-3)
