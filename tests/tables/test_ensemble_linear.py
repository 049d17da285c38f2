"""Logistic regression as one of several models: scikit-learn's, as plain arrays."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from aucmax.judge.peers import one_hot
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble import linear
from aucmax.tables.ensemble.base import Setting
from aucmax.tables.ensemble.kinds import KINDS
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows
from aucmax.train.metrics import METRICS


def table(rows, codes, seed=0):
    random = np.random.default_rng(seed)
    numeric = random.normal(size=(rows, 3)).astype(np.float32)
    return Encoded(numeric, np.stack([random.integers(0, n, rows) for n in codes], 1, dtype=int))


@pytest.mark.parametrize(("outputs", "codes"), [(1, [4, 6]), (3, [4]), (1, [])])
def test_scores_match_sklearn(outputs, codes, monkeypatch):
    encoded, new = table(300, codes or [1]), table(50, codes or [1], seed=1)
    if not codes:
        encoded, new = (x._replace(categorical=x.categorical[:, :0]) for x in (encoded, new))
    random = np.random.default_rng(2)
    score = encoded.numeric[:, 0] + encoded.categorical.sum(1) * 0.3 + random.normal(size=300)
    classes = np.searchsorted(np.quantile(score, [0.7] if outputs == 1 else [0.3, 0.8]), score)
    weight = random.uniform(0.5, 1.5, 300).astype(np.float32)
    held = np.arange(300)[:, None] % 3 == np.arange(3)
    setting = Setting(
        codes, outputs, METRICS["roc_auc"], 0, torch.device("cpu"), np.inf, None, False
    )
    found = linear.fit_logistic(Rows.of(encoded, classes, weight), Folds(~held, held), setting)

    def expected(strength):
        model = LogisticRegression(C=strength, max_iter=200)
        model.fit(one_hot(*encoded, codes), classes, sample_weight=weight / weight.mean())
        return model.decision_function(one_hot(*new, codes)).reshape(50, outputs)

    scores = found.model.score(new)
    near = [np.allclose(scores, expected(c), rtol=0, atol=1e-12) for c in linear.STRENGTHS]
    assert sum(near) == 1
    for fold in range(3):
        rows = np.flatnonzero(held[:, fold])
        alone = found.model.score(encoded.select(rows), fold)
        np.testing.assert_allclose(alone, found.scores[rows], rtol=0, atol=1e-14)
    by_torch = found.model.as_module()(tuple(map(torch.from_numpy, new)))
    np.testing.assert_allclose(by_torch, scores, rtol=0, atol=1e-12)
    about, arrays = found.model.to_plain()
    loaded = KINDS["logistic"].from_plain(json.loads(json.dumps(about)), arrays)
    assert (loaded.score(new) == scores).all()


def test_penalty_is_chosen_out_of_fold():
    random = np.random.default_rng(0)
    noise = Encoded(random.normal(size=(120, 60)).astype(np.float32), np.empty((120, 0), np.int64))
    held = np.arange(120)[:, None] % 3 == np.arange(3)
    setting = Setting([], 1, METRICS["roc_auc"], 0, torch.device("cpu"), np.inf, None, False)
    sizes = []
    for clear in (0, 6):  # noise alone wants the most penalty, a clear signal the least
        classes = (random.normal(size=120) + clear * noise.numeric[:, 0] > 0).astype(np.int64)
        fitted = linear.fit_logistic(Rows.of(noise, classes, None), Folds(~held, held), setting)
        sizes.append(float(np.abs(fitted.model.whole.weight).max()))
    assert sizes[0] < 0.2 < sizes[1]
