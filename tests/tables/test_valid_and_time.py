"""Rows that are given to stop by, and rows in the order of time."""

import numpy as np
import pandas as pd
import pytest

from aucmax import AUCClassifier
from aucmax.judge.calibration import fit_platt
from aucmax.judge.evaluation import Evaluation
from aucmax.tables import evaluate_file, fit_file, predict_file
from aucmax.tables.fit import TableFile
from aucmax.tables.search import read_folds

SMALL = {"quality": "fast", "max_steps": 20, "members": 2, "width": 8, "n_jobs": 1}
QUICK = SMALL | {"compare": False, "progress": False}


def visits(rows=240, seed=0):
    """On each of many days some come; what x says of them is turned round half-way."""
    random = np.random.default_rng(seed)
    ill = random.random(rows) < 0.3
    day = np.arange(rows) // 3
    return pd.DataFrame(
        {
            "day": np.datetime64("2024-01-01") + day,
            "x": random.normal(np.where(day < day.max() / 2, 2.0, -2.0) * ill),
            "city": random.choice(["Oslo", "Rome"], rows),
            "ward": np.arange(rows) % 12,
            "ill": np.where(ill, "yes", "no"),
        }
    ).sample(frac=1, random_state=seed, ignore_index=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("valid")
    table = visits()
    table[:180].to_csv(folder / "a.csv", index=False)
    table[170:].to_csv(folder / "b.csv", index=False)  # ten of them are known
    return folder


# ---- rows to stop by -----------------------------------------------------------------------------


def test_eval_set_stops_and_calibrates():
    table = visits()
    X, y, w = table[["x", "city"]], table.ill, np.arange(240) % 3
    train, valid = slice(0, 160), slice(160, None)
    model = AUCClassifier(**SMALL, random_state=0, threshold="recall=0.8")
    given = X[valid], y[valid], w[valid]
    model.fit(X[train], y[train], eval_set=[given])
    counted = (w > 0)[valid]
    assert model.rows_["train"] == [(y[train] == label).sum() for label in ("no", "yes")]
    assert sum(model.rows_["valid"]) == counted.sum()
    X_valid, y_valid = X[valid][counted], (y[valid][counted] == "yes").to_numpy()
    scores = model.score_encoded(model.encoder_.transform(X_valid))
    expected = fit_platt(scores, y_valid.astype(np.int64), w[valid][counted])
    assert model.calibration_(scores) == pytest.approx(expected(scores), rel=1e-5)
    auc = model.score(X[valid], y[valid], w[valid])
    assert model.validation_score_ == pytest.approx(auc, abs=1e-6)
    found = model.predict(X_valid)[y_valid] == "yes"
    assert np.average(found, weights=w[valid][counted][y_valid]) >= 0.8


def test_encoder_does_not_see_the_eval_set():
    X = np.arange(80.0)[:, None]
    model = AUCClassifier(**SMALL, random_state=0).fit(
        X, np.arange(80) % 2, eval_set=(1000 + X, np.arange(80) % 2)
    )
    assert model.encoder_.transform([[79.0]]).numeric == model.encoder_.transform([[5e3]]).numeric


@pytest.mark.parametrize(
    ("eval_set", "message"),
    [
        (5, r"eval_set must be one tuple \(X, y\), .*, found int"),
        ([([[1.0]], [1]), ([[1.0]], [1])], "eval_set must be one .*, found tuple of 2, tuple of 2"),
        (([[1.0], [2.0]], [0, 3]), r"eval_set: y must hold the classes \[0, 1\], found .*3"),
        (([[1.0], [2.0]], [0, 0]), "eval_set: it must have rows of every class, found none of .*1"),
        (([[1.0], [2.0]], [0, 1], [1, 0]), "eval_set: it must have rows of every class"),
        (([[1.0, 2.0]], [0]), "eval_set: X has 2 features, but AUCClassifier is expecting 1"),
        (([[1.0], [2.0]], [0, 1], None, [0, 0]), "eval_set: it must have groups if X has, found"),
    ],
)
def test_eval_set_that_cannot_be_raises(eval_set, message):
    with pytest.raises(ValueError, match=message):
        AUCClassifier(**SMALL, random_state=0).fit(
            np.arange(8.0)[:, None], np.arange(8) % 2, eval_set=eval_set
        )


def test_eval_set_with_groups():
    table = visits()
    X, y, ward = table[["x"]], table.ill, table.ward
    given = X[160:], y[160:], None, ward[160:]
    model = AUCClassifier(**SMALL, random_state=0)
    model.fit(X[:160], y[:160], groups=ward[:160], eval_set=given)
    expected = model.score(X[160:], y[160:], groups=ward[160:])
    assert model.validation_score_ == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="must have groups if X has, found none"):
        model.fit(X[:160], y[:160], groups=ward[:160], eval_set=given[:2])


def test_valid_file(place):
    given = {"out": place / "v", "id_column": "day", "drop": ["ward"], "group": None}
    fitted = fit_file(place / "a.csv", "ill", valid=place / "b.csv", **given, **QUICK)
    parts = fitted.evaluation.parts
    assert parts["valid"].rows == 70
    assert parts["train"].rows + parts["test"].rows == 180
    b = place / "b.csv"
    (note,) = (x for x in fitted.evaluation.notes if x.startswith(f"{b}: 1"))
    assert "10 of 70 rows are alike in every column to rows of" in note
    again = evaluate_file(place / "v", b)
    assert any("the model was fitted to" in note for note in again.notes)


def test_models_are_judged_by_the_eval_set():
    table = visits()
    X, y = table[["x", "city"]], table.ill
    model = AUCClassifier(
        **SMALL | {"quality": "good"}, random_state=0, models=["network", "logistic"]
    )
    model.fit(X[:160], y[:160], eval_set=(X[160:], y[160:]))
    assert model.rows_ == {
        "train": [(y[:160] == k).sum() for k in ("no", "yes")],
        "valid": [(y[160:] == k).sum() for k in ("no", "yes")],
    }
    for scores in model.oof_scores_.values():
        assert np.isnan(scores[:160]).all()
        assert np.isfinite(scores[160:]).all()
    assert model.validation_score_ == pytest.approx(model.score(X[160:], y[160:]), abs=1e-6)


# ---- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_text", [False, True])
def test_latest_rows_are_held_out(as_text):
    table = visits()
    days = table.day.astype(str) if as_text else table.day
    model = AUCClassifier(**SMALL, random_state=0, validation_fraction=0.25)
    model.fit(table[["x"]], table.ill, time=days)
    late = table.day >= np.datetime64("2024-01-01") + 60
    assert model.rows_["valid"] == [(late & (table.ill == k)).sum() for k in ("no", "yes")]
    expected = model.score(table[["x"]][late], table.ill[late])
    assert model.validation_score_ == pytest.approx(expected, abs=1e-6)


def test_folds_follow_time():
    table = visits()
    model = AUCClassifier(
        **SMALL | {"quality": "good"}, random_state=0, models=["network", "logistic"]
    )
    model.fit(table[["x"]], table.ill, time=table.day)
    late = np.isfinite(model.oof_scores_["logistic"][:, 0])
    assert late.sum() == pytest.approx(120, abs=3)
    assert table.day[~late].max() < table.day[late].min()
    assert sum(model.rows_["train"]) == 240


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (range(5), "time must have a value for each of 8 rows, found"),
        (list("abcdefgh"), "time must hold numbers or dates, found text"),
        ([1.0, np.nan, *range(6)], "time must have no missing values, found 1, the first in row 1"),
    ],
)
def test_times_that_cannot_be_raise(time, message):
    with pytest.raises(ValueError, match=message):
        AUCClassifier(**SMALL, random_state=0).fit(
            np.arange(8.0)[:, None], np.arange(8) % 2, time=time
        )


def test_late_rows_of_one_class_hold_nothing_out():
    X, y = np.arange(40.0)[:, None], (np.arange(40) < 10).astype(int)
    with pytest.warns(UserWarning, match="no rows are held out: the latest rows and those before"):
        model = AUCClassifier(**SMALL, random_state=0).fit(X, y, time=np.arange(40))
    assert model.rows_["valid"] == [0, 0]


def test_time_column_of_a_file(place):
    fitted = fit_file(place / "a.csv", "ill", out=place / "t", time="day", **QUICK)
    table = pd.read_csv(place / "a.csv", parse_dates=["day"])
    found = fitted.evaluation
    begin = table.day.sort_values().iloc[-found.parts["test"].rows]
    late = table[table.day >= begin]
    assert found.parts["test"].rows == len(late) == pytest.approx(36, abs=2)
    assert sorted(found.classes) == sorted(late.ill == "yes")
    (note,) = (x for x in found.notes if "judge the model" in x)
    assert note.startswith(f"rows before {begin:%Y-%m-%d} are trained on")
    assert "'day' itself is not trained on" in note
    assert "day" not in {column.name for column in found.columns}
    assert Evaluation.read(place / "t").time_column == "day"
    _, notes = predict_file(place / "t", place / "b.csv")
    assert not any("'day'" in note for note in notes)


def test_tune_folds_follow_time(place):
    file = TableFile((str(place / "a.csv"),), "ill", time="day")
    train, _, folds = read_folds(file, file.digest)
    for k in range(folds.count):
        used, held = folds.rows(k)
        assert train.time[used].max() < train.time[held].min()
