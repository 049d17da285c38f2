"""``AUCClassifier`` as scikit-learn's users know classifiers."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from aucmax import AUCClassifier, metrics
from aucmax.judge.calibration import fit_platt

X, Y = make_classification(600, 8, n_informative=5, weights=[0.85], random_state=0)
QUICK = {
    "quality": "fast",
    "max_steps": 60,
    "members": 2,
    "width": 16,
    "random_state": 0,
    "n_jobs": 1,
}


def quick(**options):
    return AUCClassifier(**QUICK | options)


@pytest.fixture(scope="module")
def fitted():
    return quick().fit(X[:400], Y[:400])


# ---- scikit-learn --------------------------------------------------------------------------------


def test_check_estimator():
    """Weights are not repeats, as scikit-learn says of its SGDClassifier: batches differ."""
    expected = {
        f"check_sample_weight_equivalence_on_{kind}_data": "batches are drawn by row"
        for kind in ("dense", "sparse")
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            quick(max_steps=20, width=8, blocks=1),
            expected_failed_checks=expected,
            on_fail=None,
            on_skip=None,
        )
    assert len(results) > 50
    failed = {r["check_name"]: str(r["exception"]) for r in results if r["status"] == "failed"}
    assert failed == {}


def test_pipeline_grid_search_and_cross_validation():
    pipeline = make_pipeline(StandardScaler(), quick(max_steps=20))
    search = GridSearchCV(pipeline, {"aucclassifier__objective": ["auc", "ce"]}, cv=2)
    assert search.fit(X, Y).score(X, Y) > 0.6
    scores = cross_val_score(quick(max_steps=20), X, Y, cv=2, scoring="roc_auc")
    assert scores.mean() > 0.6


def test_clone_and_pickle(fitted):
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(X[400:]), fitted.predict_proba(X[400:]))


# ---- What it learns ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"objective": "auc"},
        {"objective": "ce", "balanced": True},
        {"hidden": [32, 16]},
        {"hidden": 32, "method": "ppd-sg", "objective": "auc", "lr": 0.3},
        {"hidden": 32, "method": "ppd-adagrad", "objective": "auc"},
        {"method": "sgd", "lr": 0.05},
        {"validation_fraction": 0},
    ],
)
def test_fit_ranks(options):
    model = quick(max_steps=120, **options).fit(X[:400], Y[:400])
    assert model.score(X[400:], Y[400:]) > 0.8
    assert (model.rows_["valid"] == [0, 0]) == (options == {"validation_fraction": 0})


def half_minus_distance(scores, target, weight=None):
    """A metric of one's own: how near the mean score is to one half."""
    return 0.5 - abs(float(torch.as_tensor(scores).double().sigmoid().mean()) - 0.5)


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision", half_minus_distance])
def test_metric_chooses_the_weights(tmp_path, metric):
    model = quick(metric=metric).fit(X[:400], Y[:400])
    name = metric if isinstance(metric, str) else metric.__name__
    key = {"roc_auc": "auc"}.get(name, name)
    values = [r[f"valid_{key}_{which}"] for r in model.history_ for which in ("last", "average")
              if r.get(f"valid_{key}_{which}") is not None]  # fmt: skip
    assert model.validation_score_ == pytest.approx(max(values), abs=1e-6)  # of merged members
    assert np.isnan(model.validation_auc_) == (name != "roc_auc")
    again = AUCClassifier.load(model.save(tmp_path))
    assert again.metric == name
    assert again.validation_score_ == model.validation_score_
    assert np.isnan(again.validation_auc_) == (name != "roc_auc")
    assert np.array_equal(again.decision_function(X), model.decision_function(X))


def test_partial_fit_with_any_metric():
    model = quick(batch_size=50, metric="average_precision").partial_fit(X, Y)
    assert 0 < model.validation_score_ <= 1
    assert np.isnan(model.validation_auc_)
    assert model.history_[-1]["valid_average_precision"] == model.validation_score_


def test_same_seed_same_bits():
    one, two, three = (
        quick(random_state=seed).fit(X, Y).decision_function(X) for seed in (1, 1, 2)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, three)


def test_score_is_the_auc(fitted):
    x, y = X[400:], Y[400:]
    expected = roc_auc_score(y, fitted.decision_function(x))
    assert fitted.score(x, y) == pytest.approx(expected, abs=1e-12)
    assert roc_auc_score(y, fitted.predict_proba(x)[:, 1]) == pytest.approx(expected, abs=1e-12)
    weight = np.linspace(0.1, 2, len(y))
    expected = roc_auc_score(y, fitted.decision_function(x), sample_weight=weight)
    assert fitted.score(x, y, weight) == pytest.approx(expected, abs=1e-12)


def test_probabilities_are_calibrated():
    x, y = make_classification(3000, 8, n_informative=5, weights=[0.9], random_state=1)
    model = quick(max_steps=150).fit(x[:2000], y[:2000])
    p = model.predict_proba(x[2000:])[:, 1]
    assert abs(p.mean() - y[2000:].mean()) < 0.03
    order = np.argsort(p)
    for part in np.array_split(order, 4):
        assert abs(p[part].mean() - y[2000:][part].mean()) < 0.08


def test_balanced_threshold():
    proba, balanced = (quick(threshold=t).fit(X[:400], Y[:400]) for t in ("proba", "balanced"))
    x, y = X[400:], Y[400:]
    assert np.array_equal(proba.predict_proba(x), balanced.predict_proba(x))
    assert np.array_equal(proba.predict(x) == 1, proba.predict_proba(x)[:, 1] > 0.5)
    assert np.array_equal(
        balanced.predict(x) == 1, balanced.predict_proba(x)[:, 1] > balanced.threshold_
    )
    assert balanced.threshold_ < 0.5
    found = [(m.predict(x) == 1)[y == 1].mean() for m in (balanced, proba)]
    assert found[0] > found[1]


@pytest.mark.parametrize(
    "labels", [["no", "yes"], [False, True], [-1, 1], [2.0, 7.0], np.array(["b", "a"], object)]
)
def test_labels_of_any_kind(labels):
    y = np.asarray(labels)[Y]
    model = quick().fit(X, y)
    assert sorted(np.asarray(labels).tolist()) == model.classes_.tolist()
    assert set(model.predict(X).tolist()) <= set(np.asarray(labels).tolist())
    positive = y == model.classes_[1]
    assert model.score(X, y) == pytest.approx(roc_auc_score(positive, model.decision_function(X)))


def test_several_classes():
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = quick(max_steps=150).fit(x, names)
    assert (model.predict(x) == names).mean() > 0.9
    p = model.predict_proba(x)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert model.score(x, names) == pytest.approx(metrics.hand_till(p, y))
    assert np.array_equal(p.argmax(axis=1), model.decision_function(x).argmax(axis=1))


def test_sample_weight():
    """Rows that say the opposite, but weigh nothing or little, change nothing much."""
    x, y = np.concatenate([X, X]), np.concatenate([Y, 1 - Y])
    weight = np.repeat([1.0, 0.0], len(X))
    plain = quick(max_steps=100).fit(X, Y)
    weighed = quick(max_steps=100).fit(x, y, weight)
    assert weighed.score(X, Y) > 0.85
    assert weighed.rows_ == plain.rows_
    assert quick(max_steps=100).fit(x, y, weight + 0.05).score(X, Y) > 0.75


# ---- Tables --------------------------------------------------------------------------------------


def frame(rows=400):
    random = np.random.default_rng(0)
    y = (random.random(rows) < 0.2).astype(int)
    table = pd.DataFrame(
        {
            "age": random.normal(40, 10, rows) + 8 * y,
            "city": np.where(y & (random.random(rows) < 0.7), "Oslo", "Rome"),
            "member": random.random(rows) < 0.5,
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(random.integers(0, 900, rows), "D"),
        }
    )
    table.loc[::7, "age"] = np.nan
    table.loc[::11, "city"] = None
    return table, y


def test_pandas_and_polars():
    table, y = frame()
    model = quick(max_steps=120).fit(table, y)
    assert model.feature_names_in_.tolist() == ["age", "city", "member", "since"]
    assert model.score(table, y) > 0.85
    other = quick(max_steps=120).fit(pl.from_pandas(table), y)
    assert np.array_equal(
        other.decision_function(pl.from_pandas(table)), model.decision_function(table)
    )


def test_sparse_equals_dense():
    dense = np.where(np.abs(X) > 0.8, X, 0.0)
    one = quick().fit(dense, Y)
    two = quick().fit(scipy.sparse.csr_matrix(dense), Y)
    assert np.array_equal(
        one.decision_function(dense), two.decision_function(scipy.sparse.csr_array(dense))
    )


def test_rows_are_scored_independently(fitted):
    whole = fitted.decision_function(X)
    alone = np.concatenate([fitted.decision_function(X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, whole[:20], rtol=0, atol=1e-12)


# ---- Online --------------------------------------------------------------------------------------


def test_partial_fit():
    model = quick(batch_size=50, lr=0.02)
    for start in range(0, 600, 100):
        model.partial_fit(X[start : start + 100], Y[start : start + 100], classes=[0, 1])
    assert model.score(X, Y) > 0.85
    assert [record["rows"] for record in model.history_] == list(range(100, 700, 100))
    assert abs(model.predict_proba(X)[:, 1].mean() - Y.mean()) < 0.1


def test_partial_fit_scores_rows_before_it_learns_them():
    """Labels that are pure chance cannot be foreseen, however often a model learns them."""
    noise = np.random.default_rng(1).integers(0, 2, 600)
    model = quick(batch_size=20, lr=0.05)
    for start in range(0, 600, 100):
        model.partial_fit(X[start : start + 100], noise[start : start + 100], classes=[0, 1])
    assert abs(model.validation_auc_ - 0.5) < 0.1


def test_partial_fit_of_several_classes():
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(150)
    model = quick(batch_size=10, lr=0.02)
    for _ in range(4):
        model.partial_fit(x[order], y[order])
    assert model.score(x, y) > 0.9


# ---- Errors --------------------------------------------------------------------------------------


GAP = np.where(np.arange(600) % 4 == 3, np.nan, Y)
REFUSED = {
    "threshold": ({"threshold": "best"}, {}, "threshold"),
    "objective": ({"objective": "f1"}, {}, "objective"),
    "metric": ({"metric": "f1"}, {}, "metric"),
    "backbone": ({"backbone": "cnn"}, {}, "backbone"),
    "backbone's result": ({"backbone": lambda *_: "net"}, {}, "backbone"),
    "validation_fraction": ({"validation_fraction": 1}, {}, "validation_fraction"),
    "max_steps": ({"max_steps": 0}, {}, "max_steps"),
    "members": ({"members": 1.5}, {}, "members"),
    "n_jobs": ({"n_jobs": 0}, {}, "n_jobs"),
    "lr": ({"lr": 0.0}, {}, "lr"),
    "time_limit": ({"time_limit": -1}, {}, "time_limit"),
    "NaN for a label": ({}, {"y": GAP}, "y"),
    "None for a label": ({}, {"y": pd.Series(GAP, dtype=object).where(~np.isnan(GAP), None)}, "y"),
    "pandas' missing label": ({}, {"y": pd.Series(GAP, dtype="Int64")}, "y"),
    "polars' missing label": ({}, {"y": pl.Series(GAP).fill_nan(None)}, "y"),
    "a class without weight": ({}, {"sample_weight": 1.0 * Y}, "sample_weight"),
}


@pytest.mark.parametrize(("options", "rows", "name"), REFUSED.values(), ids=REFUSED)
def test_fit_raises(options, rows, name):
    with pytest.raises(ValueError, match=rf"^{name} must"):
        quick(**options).fit(**{"X": X, "y": Y, **rows})


@pytest.mark.parametrize(
    ("y", "classes"), [([0, 1, 2, 1], [0, 1]), ([0, 0, 0, 0], None), ([0, 1], [0, 1])]
)
def test_partial_fit_raises_for_labels_that_do_not_fit(y, classes):
    with pytest.raises(ValueError, match=r"^y must|two classes"):
        quick().partial_fit(X[:4], y, classes=classes)


# ---- Files ---------------------------------------------------------------------------------------


def test_save_and_load(tmp_path):
    table, y = frame()
    labels = np.where(y, "yes", "no")
    model = quick(threshold="balanced").fit(table, labels)
    again = AUCClassifier.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.decision_function(table), model.decision_function(table))
    assert np.array_equal(again.predict(table), model.predict(table))
    assert again.get_params() == model.get_params()
    assert again.history_[-1]["valid_auc_last"] == model.history_[-1]["valid_auc_last"]
    assert (again.validation_auc_, again.rows_) == (model.validation_auc_, model.rows_)
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        "model.json", "model.safetensors",
    ]  # fmt: skip


def test_changed_byte_raises(tmp_path, fitted):
    folder = fitted.save(tmp_path)
    for name in ("model.json", "model.safetensors"):
        path = folder / name
        good = path.read_bytes()
        for place in (len(good) // 3, len(good) - 5):
            path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            with pytest.raises(ValueError, match=r"altered|JSON"):
                AUCClassifier.load(folder)
        path.write_bytes(good)
    AUCClassifier.load(folder)


def test_model_of_a_newer_version_warns(tmp_path, fitted, monkeypatch):
    monkeypatch.setattr("aucmax.checkpoint.__version__", "99.1.0")
    fitted.save(tmp_path)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=r"written by aucmax 99\.1\.0"):
        AUCClassifier.load(tmp_path)


def test_backbone_of_a_function(tmp_path):
    def make(numeric, cardinalities, outputs):
        class Own(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(numeric, outputs)

            def forward(self, columns):
                return self.layer(columns[0])

        return Own()

    model = quick(backbone=make, max_steps=200).fit(X, Y)
    assert model.score(X, Y) > 0.75
    model.save(tmp_path)
    with pytest.raises(ValueError, match="backbone must be given"):
        AUCClassifier.load(tmp_path)
    again = AUCClassifier.load(tmp_path, backbone=make)
    assert np.array_equal(again.decision_function(X), model.decision_function(X))


def test_few_categories_are_split_by_row():
    """Repeats are what will come: held out whole, they would be categories never seen."""
    random = np.random.default_rng(0)
    city = random.integers(0, 30, 2000)
    y = (random.random(2000) < (city % 5) / 6).astype(int)
    table = pd.DataFrame({"city": city.astype(str)})
    model = quick(max_steps=200, lr=0.01).fit(table, y)
    best = roc_auc_score(y, city % 5)
    assert model.score(table, y) > best - 0.02
    assert model.validation_auc_ > best - 0.08


def test_rows_without_weight_are_left_out():
    weight = np.ones(600)
    weight[::7] = 0
    model = quick().fit(X, Y, weight)
    assert sum(model.rows_["train"]) + sum(model.rows_["valid"]) == np.count_nonzero(weight)


def test_partial_fit_of_a_fitted_model(tmp_path, fitted):
    model = pickle.loads(pickle.dumps(fitted))
    before = model.score(X[400:], Y[400:])
    model.partial_fit(X[400:420], Y[400:420])
    assert abs(model.score(X[400:], Y[400:]) - before) < 0.1
    assert model.online_.network is model.network_
    assert np.isnan(model.standings_[0].score)  # which was of the network before
    assert not hasattr(model, "oof_scores_")
    loaded = AUCClassifier.load(fitted.save(tmp_path)).partial_fit(X[400:420], Y[400:420])
    assert np.array_equal(loaded.decision_function(X), model.decision_function(X))
    model.fit(X, Y)
    assert not hasattr(model, "online_")


def test_partial_fit_is_calibrated():
    x, y = make_classification(4000, 8, n_informative=5, weights=[0.85], random_state=2)
    model = quick(batch_size=100, lr=0.02)
    for start in range(0, 3000, 200):
        model.partial_fit(x[start : start + 200], y[start : start + 200], classes=[0, 1])
    again = fit_platt(model.calibration_.logit(model._raw_scores(x[3000:])), y[3000:])
    assert 0.75 < again.slope < 1.35


def test_frame_after_array_goes_by_position(fitted):
    table = pd.DataFrame(X, columns=[f"c{i}" for i in range(8)])
    with pytest.warns(UserWarning, match="feature names"):
        found = fitted.decision_function(table)
    assert np.array_equal(found, fitted.decision_function(X))


def test_duplicate_column_names_raise(fitted):
    names = [*"abcdefg", "a"]
    for table in (pd.DataFrame(X, columns=names), pa.table(list(X.T), names=names)):
        for use in (
            lambda x: quick().fit(x, Y),
            lambda x: quick().partial_fit(x, Y),
            fitted.predict,
        ):
            with pytest.raises(
                ValueError, match="a name of its own for each column, found 'a' twi"
            ):
                use(table)


def test_failed_save_leaves_the_old_model(tmp_path, fitted):
    fitted.save(tmp_path)
    days = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")[Y]
    other = quick(max_steps=5).fit(X, Y)
    other.classes_ = np.unique(days)
    with pytest.raises(ValueError, match="plain values"):
        other.save(tmp_path)
    assert np.array_equal(
        AUCClassifier.load(tmp_path).decision_function(X), fitted.decision_function(X)
    )
