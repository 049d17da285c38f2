"""Networks of folds, and the classifier's several models."""

import math

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from aucmax import AUCClassifier, metrics
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble import networks
from aucmax.tables.ensemble.base import CrossFitted, Setting
from aucmax.tables.ensemble.combined import combine
from aucmax.tables.ensemble.cross_fit import keep, kept
from aucmax.tables.ensemble.kinds import KINDS
from aucmax.tables.ensemble.linear import Logistic
from aucmax.tables.ensemble.networks import NetworkFit
from aucmax.tables.folds import make_folds
from aucmax.tables.samples import representative
from aucmax.tables.scoring import Rows
from aucmax.train.metrics import find_metric

RANDOM = np.random.default_rng(0)
NUMERIC = RANDOM.normal(size=(200, 3)).astype(np.float32)
CLASSES = (NUMERIC[:, 0] + RANDOM.normal(size=200) > 1).astype(np.int64)
ENCODED = Encoded(NUMERIC, np.zeros((200, 0), np.int64))
AUC = find_metric("roc_auc")
SMALL = {"members": 2, "width": 8, "blocks": 1, "max_steps": 20, "random_state": 0, "n_jobs": 1}


def rows_of(weight=None, group=None):
    return Rows.of(ENCODED, CLASSES, weight, group)


def setting(deadline=math.inf):
    return Setting([], 1, AUC, 0, torch.device("cpu"), deadline, None, False)


def test_scores_are_out_of_fold():
    weight = np.where(np.arange(200) % 7, 1.0, 0.0).astype(np.float32)
    rows = rows_of(weight)
    folds = make_folds(ENCODED, CLASSES, weight, count=3, repeats=2, seed=0)
    fitted, result = NetworkFit(
        "network", rows, folds, setting(), AUCClassifier(**SMALL)._recipe()
    ).run()
    assert len(fitted.model.networks) == folds.count == 6
    each = [fitted.model.score(ENCODED, k)[:, 0] for k in range(6)]
    wanted = [np.mean([s[i] for s, h in zip(each, folds.held[i], strict=True) if h] or [np.nan])
              for i in range(200)]  # fmt: skip
    np.testing.assert_allclose(fitted.scores[:, 0], wanted, rtol=1e-5, atol=1e-6)
    assert np.array_equal(np.isnan(wanted), weight == 0)
    judged = folds.judged
    value = metrics.roc_auc(fitted.scores[judged, 0], CLASSES[judged], weight[judged])
    assert result.score == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize("name", ["roc_auc", "average_precision", "partial_auc@0.3"])
def test_sample_to_stop_by_is_representative(name):
    classes = (np.arange(3000) % 300 == 0).astype(np.int64)
    scores = np.random.default_rng(1).normal(size=3000) + classes
    rows = Rows(torch.zeros(3000, 1), torch.zeros(3000, 0, dtype=torch.int64), classes, None)
    some = representative(rows, 1500, seed=0)
    assert (len(some.rows), some.rows.classes.sum()) == (1500, 10)
    metric = find_metric(name)
    given = [torch.from_numpy(x) for x in (scores, classes)]
    part = [x[some.places] for x in given]
    found = metric.function(*part, torch.from_numpy(some.rows.weight))
    assert float(found) == pytest.approx(float(metric.function(*given, None)), abs=0.05)


def test_whole_groups_are_sampled(monkeypatch):
    monkeypatch.setattr(networks, "MOST_JUDGED", 40)
    group = np.arange(200) // 4
    folds = make_folds(ENCODED, CLASSES, None, count=2, seed=0, group=group)
    made = NetworkFit(
        "network", rows_of(group=group), folds, setting(), AUCClassifier(**SMALL)._recipe()
    )
    _, _, weight, chosen = made.arguments["valid"]
    assert weight is None
    assert set(np.bincount(chosen)) == {0, 4}
    assert 30 <= len(chosen) <= 40


# ---- Of the classifier ---------------------------------------------------------------------------


class Normed(torch.nn.Module):
    """A network whose layers know how many columns they must have."""

    def __init__(self, numeric, codes, outputs):
        super().__init__()
        self.norm, self.layer = torch.nn.BatchNorm1d(numeric), torch.nn.Linear(numeric, outputs)

    def forward(self, columns):
        numeric, _ = columns
        return self.layer(self.norm(numeric))


@pytest.mark.parametrize(
    "options", [{"backbone": Normed}, {"method": "ppd-sg", "lr": 0.1}, {"hidden": 4}]
)
def test_networks_of_any_kind(options):
    model = AUCClassifier(**SMALL, models=["network"], **options).fit(NUMERIC, CLASSES)
    assert len(model.models_["network"].networks) > 1
    assert np.isfinite(model.decision_function(NUMERIC)).all()


def test_diverged_network_is_left_out():
    options = {**SMALL, "lr": 1e30}
    with pytest.warns(UserWarning, match=r"models are left out \(network: training diverged"):
        model = AUCClassifier(models=["logistic", "network"], **options).fit(NUMERIC, CLASSES)
    assert model.weights_ == {"logistic": 1.0, "network": 0.0}
    with pytest.raises(ArithmeticError, match="training diverged"):
        AUCClassifier(models=["network"], **options).fit(NUMERIC, CLASSES)


def test_models_beyond_the_time_limit_are_left_out():
    with pytest.warns(UserWarning, match=r"models are left out \("):
        model = AUCClassifier(**SMALL, time_limit=1e-3).fit(NUMERIC, CLASSES)
    assert sum(model.weights_.values()) == pytest.approx(1)
    assert any(x.left_out for x in model.standings_)


def test_time_before_a_kill_counts(tmp_path):
    first = AUCClassifier(models=["logistic"], random_state=0)
    first._train(first._prepare(NUMERIC, CLASSES), tmp_path)
    keep(kept(Logistic, tmp_path / "logistic")._replace(seconds=60.0), tmp_path / "logistic")
    model = AUCClassifier(**SMALL, models=["logistic", "network"], time_limit=50)
    model._train(model._prepare(NUMERIC, CLASSES), tmp_path)
    assert [x.left_out for x in model.standings_] == ["", "no time left"]


@pytest.mark.parametrize("kind", ["logistic", GaussianNB()])
def test_three_rows_of_a_class(kind):
    few = (np.arange(200) < 3).astype(int)
    model = AUCClassifier(models=[kind], random_state=0).fit(NUMERIC, few)
    assert math.isnan(model.validation_score_)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (["logistic", LinearRegression()], r"scikit-learn's classifiers, found LinearRegression"),
        (["network", "logistic", "network"], "models must name each once, found network, logist"),
    ],
)
def test_models_that_cannot_be_raise(models, message):
    with pytest.raises(ValueError, match=message):
        AUCClassifier(models=models).fit(NUMERIC, CLASSES)


def test_left_out_classifier_is_not_saved(tmp_path, monkeypatch):
    flipped = make_pipeline(RandomForestClassifier(3, max_depth=1))
    models = ["logistic", flipped, GaussianNB()]
    model = AUCClassifier(models=models, random_state=0).fit(NUMERIC, CLASSES)
    again = AUCClassifier(models=models, random_state=0).fit(NUMERIC, CLASSES)
    assert np.array_equal(model.oof_scores_["Pipeline"], again.oof_scores_["Pipeline"])
    only = {"logistic": CrossFitted(model.models_["logistic"], model.oof_scores_["logistic"], 1.0)}
    model.ensemble_, _ = combine(only, rows_of(), AUC)
    loaded = AUCClassifier.load(model.save(tmp_path))
    assert loaded.models == ["logistic"]
    assert np.array_equal(loaded.decision_function(NUMERIC), model.decision_function(NUMERIC))
    monkeypatch.delitem(KINDS, "logistic")
    with pytest.raises(ValueError, match=r"kind 'logistic' was written by .*: pip install"):
        AUCClassifier.load(tmp_path)
