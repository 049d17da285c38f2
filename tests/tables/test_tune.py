"""The search for options: what it looks at, what it leaves, and how it goes on when killed."""

import json
import re
import shutil
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from aucmax import AUCClassifier
from aucmax.cli import main
from aucmax.cli._words import in_words
from aucmax.tables import evaluate_file, fit_file, predict_file, search, tune_file
from aucmax.tables.fit import TableFile
from aucmax.tables.search import Tuning
from aucmax.train import DivergedError

SMALL = {"quality": "fast", "max_steps": 6, "members": 2, "width": 8, "blocks": 1, "batch_size": 64}
QUICK = {**SMALL, "workers": 1, "compare": False, "progress": False, "trials": 3}


def customers(rows=180, seed=0):
    random = np.random.default_rng(seed)
    churned = random.random(rows) < 0.3
    return pd.DataFrame(
        {
            "age": np.where(random.random(rows) < 0.1, np.nan, random.normal(40, 9, rows)),
            "plan": np.where(churned & (random.random(rows) < 0.6), "basic", "gold"),
            "calls": random.poisson(1 + 3 * churned),
            "churned": np.where(churned, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The data and what an uninterrupted search made of it."""
    place = tmp_path_factory.mktemp("tune")
    customers().to_csv(place / "data.csv", index=False)
    return place, tune_file(place / "data.csv", "churned", out=place / "model", **QUICK)


@pytest.fixture
def data(tuned):
    return tuned[0] / "data.csv"


def timeless(trials):
    return [replace(trial, seconds=None) for trial in trials]


# ---- What is made --------------------------------------------------------------------------------


def test_tune_file_writes_model_and_trials(tuned):
    place, (fitted, tuning) = tuned
    assert sorted(p.name for p in (place / "model").iterdir()) == [
        "evaluation.json", "evaluation.safetensors", "model.json", "model.safetensors",
        "report.html", "tuning.json",
    ]  # fmt: skip
    assert sorted(p.name for p in place.iterdir()) == ["data.csv", "model"]
    assert Tuning.read(place / "model") == tuning
    written = json.loads((place / "model" / "tuning.json").read_text())
    assert {*written} == {"best", "defaults", "searched", "folds", "trials"}
    assert {*written["best"]} == {"options", "validation_score", "folds", "seconds", "test_auc"}
    assert written["best"]["validation_score"] == tuning.best.validation_score
    assert evaluate_file(fitted.folder, place / "data.csv").auc.value > 0.6
    assert len(predict_file(fitted.folder, place / "data.csv")[0].splitlines()) == 181


def test_defaults_come_first_and_the_best_is_taken(tuned):
    _, (fitted, tuning) = tuned
    trials, own = tuning.trials, AUCClassifier(**SMALL).get_params()
    first = trials[0].options
    assert len(trials) == 3
    assert first == {name: own[name] for name in first} | {"lr": 2e-3, "metric": "roc_auc"}
    assert {"objective", "lr", "weight_decay", "dropout", "balanced"} <= set(first)
    assert len({json.dumps(trial.options) for trial in trials}) == 3
    assert all(trial.validation_score == np.mean(trial.folds) for trial in trials)
    assert all(trial.seconds > 0 for trial in trials)
    assert tuning.best.validation_score == max(trial.validation_score for trial in trials)
    assert tuning.defaults.folds == trials[0].folds
    params = fitted.model.get_params()
    assert {name: params[name] for name in first} == tuning.best.options


def test_model_equals_fit_file_with_its_options(tuned, data, tmp_path):
    _, (fitted, tuning) = tuned
    other = fit_file(
        data, "churned", out=tmp_path / "m", compare=False, progress=False,
        **tuning.best.options,
    )  # fmt: skip
    ours, theirs = fitted.evaluation, other.evaluation
    np.testing.assert_array_equal(ours.probability, theirs.probability)
    np.testing.assert_array_equal(ours.classes, theirs.classes)
    assert ours.parts == theirs.parts
    assert tuning.best.test_auc == theirs.auc.value


def test_several_classes(tmp_path):
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, 150)
    table = pd.DataFrame({"x": random.normal(kind, 0.5), "kind": np.array(["a", "b", "c"])[kind]})
    table.to_csv(tmp_path / "data.csv", index=False)
    options = QUICK | {"trials": 2, "max_steps": 20, "objective": "auc+ce"}
    fitted, tuning = tune_file(tmp_path / "data.csv", "kind", out=tmp_path / "m", **options)
    assert fitted.report == tmp_path / "m" / "report.html"
    assert tuning.searched == ["lr", "weight_decay", "dropout"]
    assert tuning.trials[0].validation_score > 0.7
    # Of several classes the difference to the defaults has no test.
    said = in_words(tuning)
    assert "the defaults were the best" in said or "\nthe defaults: AUC 0." in said


# ---- What it looks at ----------------------------------------------------------------------------


def test_repeats_of_a_row_are_in_one_fold(tmp_path):
    table = customers()
    pd.concat([table, table[:80]]).to_csv(tmp_path / "data.csv", index=False)
    file = TableFile(str(tmp_path / "data.csv"), "churned", None, (), 0.2, 0)
    train, _, folds = search.read_folds(file, "")
    rows = list(zip(*(map(str, column) for column in train.table.values), strict=True))
    seen = [{rows[i] for i in folds.rows(k)[1]} for k in range(3)]
    assert len(set(rows)) < len(rows)
    assert [a & b for a, b in combinations(seen, 2)] == [set()] * 3


def test_trial_is_judged_out_of_fold(data, monkeypatch):
    file = TableFile(str(data), "churned", None, (), 0.2, 0)
    train, _, folds = search.read_folds(file, "")
    monkeypatch.setattr(search, "read_folds", lambda *_: (train, None, folds))  # no test rows
    found = search.validate(file, "", SMALL)
    table = pd.DataFrame(dict(zip(train.table.names, train.table.values, strict=True)))
    for k in range(3):
        rest, held = folds.rows(k)
        model = AUCClassifier(random_state=0, n_jobs=1, **SMALL)
        model.fit(table.iloc[rest], train.classes[rest])
        scores = model.decision_function(table.iloc[held])
        assert found.folds[k] == pytest.approx(roc_auc_score(train.classes[held], scores))


def test_diverged_trial_is_not_chosen(data, tmp_path, monkeypatch):
    real = search.Fold.score

    def fold_auc(fold):
        if fold.model.lr == 2e-3:
            raise DivergedError("the loss\nis nan")
        return real(fold)

    monkeypatch.setattr(search.Fold, "score", fold_auc)
    _, tuning = tune_file(data, "churned", out=tmp_path / "m", **QUICK | {"trials": 2})
    assert [trial.error for trial in tuning.trials] == ["the loss is nan", None]
    assert tuning.best.options == tuning.trials[1].options
    assert tuning.defaults.test_auc is None
    with pytest.raises(ValueError, match="none of 1 trials that ended well: the loss is nan"):
        tune_file(data, "churned", out=tmp_path / "n", **QUICK | {"trials": 1})
    assert [p.name for p in tmp_path.glob("n*")] == ["n.unfinished"]  # for more trials


def test_trials_are_compared_by_the_metric(tmp_path):
    """Each fold's average precision by weight, of a model that stops by the same."""
    table = customers().assign(w=np.arange(180) % 4 + 1.0)
    table.to_csv(tmp_path / "data.csv", index=False)
    given = {**QUICK, "trials": 1, "metric": "average_precision", "threshold": "cost=4"}
    fitted, tuning = tune_file(
        tmp_path / "data.csv", "churned", out=tmp_path / "m", weight="w", **given
    )
    file = TableFile((str(tmp_path / "data.csv"),), "churned", None, (), 0.2, 0, weight="w")
    train, _, folds = search.read_folds(file, "")
    made = search.folds_of(train, folds, 0, tuning.best.options)
    for fold, found in zip(made, tuning.best.folds, strict=True):
        fold.score()
        p = fold.model.predict_proba(fold.held.table)[:, 1]
        y, w = fold.held.classes, fold.held.weight
        assert found == pytest.approx(average_precision_score(y, p, sample_weight=w), abs=1e-9)
    assert fitted.evaluation.metric == "average_precision"
    assert fitted.evaluation.threshold == 0.2
    assert tuning.metric.label == "average precision"
    assert Tuning.read(tmp_path / "m").best == tuning.best


# ---- Stopped and killed --------------------------------------------------------------------------


def test_interrupted_search_resumes(tuned, data, tmp_path, monkeypatch):
    """Also past what a kill or a power cut leaves: half a line, a lock, half a model."""
    _, (_, whole) = tuned
    real, calls = search.validate, []

    def validate(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(search, "validate", validate)
    with pytest.raises(KeyboardInterrupt):
        tune_file(data, "churned", out=tmp_path / "m", **QUICK)
    (log,) = (tmp_path / "m.unfinished").glob("*/study.log")
    with log.open("ab") as file:
        file.write(b'{"op_code": 8')
    log.with_name("study.log.lock").symlink_to("nowhere")
    shutil.copytree(tuned[0] / "model", tmp_path / "m.before")
    (tmp_path / "m.partial").mkdir()
    (tmp_path / "m.partial" / "model.json").write_text("{")
    _, tuning = tune_file(data, "churned", out=tmp_path / "m", **QUICK)
    assert len(calls) == 4
    assert timeless(tuning.trials) == timeless(whole.trials)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


# ---- The command ---------------------------------------------------------------------------------


def test_tune_command_stops_at_the_time_limit(tmp_path, capsys):
    """The defaults are tried whatever the limit, and so there is a model."""
    table = customers(60)
    table = table.drop(table.index[table.churned == "yes"][10:])
    table.to_csv(tmp_path / "data.csv", index=False)
    command = ["--target", "churned", "--drop", "plan", "--workers", "1", "--time-limit", "1e-9"]
    command += ["--quality", "fast"]
    main(["tune", str(tmp_path / "data.csv"), *command, "--out", str(tmp_path / "m")])
    out, err = capsys.readouterr()
    assert re.search(r"^   1/30  validation AUC 0\.\d{4}, \d+ s, best 0\.\d{4}$", err, re.M)
    assert "the time limit is reached after 1 of 30 trials" in err
    assert "gradient boosting: AUC" in out
    assert "only 2 of the 11 rows to judge by are 'yes', too few to compare models by" in out
    assert "note: the options are chosen by 8 rows of 'yes' in all, too few to choose by" in out
    assert "of 1 trials the defaults were the best: objective auc+ce, lr 0.002" in out
    assert str(tmp_path / "m" / "tuning.json") in out
    assert AUCClassifier.load(tmp_path / "m").encoder_.names == ["age", "calls"]
    tuning = json.loads((tmp_path / "m" / "tuning.json").read_text())
    assert tuning["defaults"]["test_auc"] == tuning["best"]["test_auc"]
