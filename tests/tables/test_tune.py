"""The search for options: what it looks at, what it leaves, and how it goes on when killed."""

import json
import re
import shutil
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import optuna
import pandas as pd
import pytest
import torch
from experiment_helpers import Command
from sklearn.metrics import average_precision_score, roc_auc_score

from aucmax import AUCClassifier
from aucmax.cli import main
from aucmax.cli._words import in_words
from aucmax.tables import evaluate_file, fit_file, predict_file, search, tune_file
from aucmax.tables.fit import TableFile
from aucmax.tables.search import Trial, Tuning
from aucmax.train import DivergedError

pytestmark = pytest.mark.xdist_group("tune")

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


def test_a_models_folder_with_its_trials(tuned):
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


def test_the_defaults_come_first_and_the_best_is_taken(tuned):
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


def test_the_model_is_the_one_that_fit_makes_of_these_options(tuned, data, tmp_path):
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


def test_what_is_said_of_it(tuned):
    _, (_, tuning) = tuned
    best, defaults = tuning.best, tuning.defaults
    tested = replace(tuning, defaults=replace(defaults, p_value=0.25))
    said = in_words(tested).splitlines()
    assert re.match(r"the best of 3 trials: objective \S+, lr 0\.\d+, weight_decay ", said[0])
    assert (
        f"{best.validation_score:.4f}, of the defaults {defaults.validation_score:.4f}" in said[1]
    )
    assert said[2].startswith(f"against the defaults, AUC {defaults.test_auc:.4f}: ")
    assert said[2].endswith("p = 0.25, no clear difference")
    few = in_words(tuning).splitlines()
    assert few == [*said[:2], f"the defaults: AUC {defaults.test_auc:.4f}"]
    lost = replace(tuning, defaults=Trial(defaults.options, error="diverged"))
    assert in_words(lost).endswith(
        "the defaults diverged (the best of many looks better than it is)"
    )


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


def test_folds_are_of_the_training_rows_alone(data):
    file = TableFile(str(data), "churned", None, (), 0.2, 0)
    train, test, folds = search.read_folds(file, "first")
    assert len(train.classes) + len(test.classes) == 180
    assert np.array_equal(folds.judged, np.arange(len(train.classes)))
    shares = [train.classes[held].mean() for held in folds.held.T]
    assert max(shares) - min(shares) < 0.06
    assert folds.count == search.FOLDS


def test_repeats_of_a_row_are_in_one_fold(tmp_path):
    table = customers()
    pd.concat([table, table[:80]]).to_csv(tmp_path / "data.csv", index=False)
    file = TableFile(str(tmp_path / "data.csv"), "churned", None, (), 0.2, 0)
    train, _, folds = search.read_folds(file, "")
    rows = list(zip(*(map(str, column) for column in train.table.values), strict=True))
    seen = [{rows[i] for i in folds.rows(k)[1]} for k in range(3)]
    assert len(set(rows)) < len(rows)
    assert [a & b for a, b in combinations(seen, 2)] == [set()] * 3


def test_a_trial_is_judged_by_folds_it_has_not_seen(data, monkeypatch):
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


def test_a_trial_that_diverges_is_none_to_choose(data, tmp_path, monkeypatch):
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


def in_turn(tasks, _, workers):
    """As on a GPU, on the CPU."""
    return search.validate_in_turn(tasks, torch.device("cpu"), 3 * workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_folds_that_take_turns_find_what_folds_alone_find(
    tuned, data, tmp_path, monkeypatch, workers
):
    """With one trial at a time the very same trials, whose folds are under way together."""
    _, (_, alone) = tuned
    monkeypatch.setattr(search, "_results", in_turn)
    options = QUICK | {"workers": workers, "trials": 2}
    _, found = tune_file(data, "churned", out=tmp_path / "m", **options)
    if workers == 1:
        assert timeless(found.trials) == timeless(alone.trials[:2])
    file = TableFile(str(data), "churned", None, (), 0.2, 0)
    last = found.trials[-1]
    assert search.validate(file, "", last.options).folds == last.folds
    assert len(found.trials) == 2


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


def test_stopped_it_goes_on_as_if_it_had_not_been(tuned, data, tmp_path, monkeypatch):
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


def test_another_search_in_the_same_place_begins_beside_it(data, tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "validate", stop)
    for seed in (0, 1, 0):
        with pytest.raises(KeyboardInterrupt):
            tune_file(data, "churned", out=tmp_path / "m", seed=seed, **QUICK | {"progress": True})
    said = "m.unfinished keeps unfinished work of other settings (seed), which is not gone on with"
    assert capsys.readouterr().err.count(said) == 2
    assert len(list((tmp_path / "m.unfinished").glob("*/study.log"))) == 2


def in_journal(path, state):
    """The trials in that state."""
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    study = optuna.load_study(study_name="tune", storage=storage)
    return study.get_trials(states=(optuna.trial.TrialState[state],))


def test_killed_with_its_workers_it_goes_on(data, tmp_path):
    """SIGKILL: trials that are done stay, those at work are done again, no process is left."""
    given = {**QUICK, "out": str(tmp_path / "m"), "trials": 1000, "workers": 2}
    code = f"from aucmax.tables import tune_file; tune_file({str(data)!r}, 'churned', **{given!r})"

    def done_so_far():
        logs = tmp_path.glob("m.unfinished/*/study.log")
        return sum(log.read_bytes().count(b'"values":[') for log in logs)

    with Command([], program=(sys.executable, "-c", code)) as command:
        command.wait_until(lambda: done_so_far() >= 1)
        assert len(list(command.workers())) == 2
        command.kill()
        command.process.wait(20)
        command.wait_for_the_end_of_all()
    (log,) = tmp_path.glob("m.unfinished/*/study.log")
    done, at_work = in_journal(log, "COMPLETE"), in_journal(log, "RUNNING")
    assert done
    assert at_work
    trials = len(done) + len(at_work)
    _, tuning = tune_file(data, "churned", **QUICK | {"out": tmp_path / "m", "trials": trials})
    found = [{**trial.options, "seconds": trial.seconds} for trial in tuning.trials]
    assert len(found) == trials
    fixed = {**SMALL, "metric": "roc_auc"}
    kept = [{**fixed, **trial.params, "seconds": trial.user_attrs["seconds"]} for trial in done]
    assert [trial for trial in kept if trial not in found] == []
    again = [{**fixed, **trial.params} for trial in at_work]
    for options in again:  # of one that was killed while it was asked for, some
        assert any(options.items() <= trial.items() for trial in found)
    assert 2e-3 in [trial["lr"] for trial in found]
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


# ---- The command ---------------------------------------------------------------------------------


def test_in_a_shell_until_the_time_limit(tmp_path, capsys):
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
