"""What a person is told of models, of what they promise, and of labels, by scores out of fold."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from aucmax import metrics
from aucmax.cli._words import summary
from aucmax.judge.evaluation import Evaluation
from aucmax.tables import fit_file
from aucmax.tables.fit import TableFile

QUIET = {"compare": False, "progress": False}


def patients(rows=420, seed=0):
    """A column that tells nearly all, and labels of which some are missing."""
    random = np.random.default_rng(seed)
    sick = random.random(rows) < 0.3
    table = pd.DataFrame({"key": [f"P{k}" for k in range(rows)], "age": random.normal(50, 9, rows)})
    table["fever"] = random.normal(size=rows) + 5 * sick
    table["ward"] = np.arange(rows) // 7
    table["sick"] = np.where(sick, "yes", "no")
    table.loc[::10, "sick"] = ""
    return table


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model of a table in which some labels are changed, the table, and which are."""
    table, place = patients().drop(columns="ward"), tmp_path_factory.mktemp("out_of_fold")
    changed = [k for k in range(3, 400, 61) if k % 10]
    table.loc[changed, "sick"] = np.where(table.sick[changed] == "yes", "no", "yes")
    table.to_csv(place / "patients.csv", index=False)
    given = {"id_column": "key", "out": place / "model", "models": ["logistic", "boosting"]}
    return fit_file(place / "patients.csv", "sick", **given, **QUIET), table, changed


def test_out_of_fold_auc_matches_sklearn(fitted):
    made, *_ = fitted
    model, found = made.model, made.evaluation
    path = made.folder.parent / "patients.csv"
    train, *_ = TableFile((str(path),), "sick", id_column="key").split()
    expected = {name: roc_auc_score(train.classes, x) for name, x in model.oof_scores_.items()}
    assert {x.name: x.auc.value for x in found.models} == pytest.approx(expected)
    assert [x.name for x in found.models] == sorted(expected, key=expected.get, reverse=True)
    assert {x.name: x.weight for x in found.models} == model.weights_
    whole = model.ensemble_.combine(model.oof_scores_)
    assert found.promised.value == pytest.approx(roc_auc_score(train.classes, whole))
    assert found.promised.low < found.promised_score == found.promised.value < found.promised.high
    assert found.is_cross_fitted
    assert Evaluation.read(made.folder).models == found.models
    assert "The models that it averages" in made.report.read_text("utf-8")


def test_changed_labels_are_found(fitted):
    made, table, changed = fitted
    found = made.evaluation.doubtful
    assert np.isin([x.row - 1 for x in found], changed).sum() >= 3
    assert np.isin([x.row - 1 for x in found], changed).mean() >= 0.6
    for x in found:
        assert (x.name, x.label) == (table.key[x.row - 1], table.sick[x.row - 1])
        assert {x.label, x.likelier} == {"yes", "no"}
        assert 0 < x.probability < 0.1
    said = f"worth checking: see the report; the first is {found[0].label!r} of row {found[0].row}"
    assert said in summary(made.evaluation)


def test_promise_of_a_valid_file(tmp_path):
    for name, seed in (("train.csv", 1), ("valid.csv", 2)):
        patients(160, seed).drop(columns=["key", "ward"]).to_csv(tmp_path / name, index=False)
    given = {"valid": tmp_path / "valid.csv", "out": tmp_path / "model", "models": ["logistic"]}
    made = fit_file(tmp_path / "train.csv", "sick", **given, **QUIET)
    valid = patients(160, 2)
    valid = valid[valid.sick != ""]
    expected = roc_auc_score(
        valid.sick == "yes", made.model.decision_function(valid[["age", "fever"]])
    )
    found = made.evaluation
    assert found.promised.value == pytest.approx(expected)
    assert (found.doubtful, found.is_cross_fitted) == (None, False)


def test_promise_within_groups(tmp_path):
    table = patients().drop(columns="key")
    table["fever"] += table.ward  # which tells nothing within a ward
    table.to_csv(tmp_path / "a.csv", index=False)
    given = {"group": "ward", "out": tmp_path / "model", "models": ["logistic"]}
    made = fit_file(tmp_path / "a.csv", "sick", **given, **QUIET)
    train, *_ = TableFile((str(tmp_path / "a.csv"),), "sick", group="ward").split()
    scores = made.model.oof_scores_["logistic"][:, 0]
    expected = metrics.grouped_auc(scores, train.classes, train.group)
    assert made.evaluation.promised.value == pytest.approx(expected)
    assert made.evaluation.models[0].auc == made.evaluation.promised
    assert "AUC within groups" in summary(made.evaluation).partition("promised before: ")[2]


def test_promise_of_several_classes(tmp_path):
    table = patients().drop(columns=["key", "ward"])
    table.loc[(table.sick == "no") & (table.age > 50), "sick"] = "old"
    table.to_csv(tmp_path / "a.csv", index=False)
    given = {"out": tmp_path / "model", "models": ["logistic"]}
    made = fit_file(tmp_path / "a.csv", "sick", **given, **QUIET)
    train, *_ = TableFile((str(tmp_path / "a.csv"),), "sick").split()
    shares = made.model.calibration_(made.model.oof_scores_["logistic"])
    expected = roc_auc_score(train.classes, shares, multi_class="ovo")
    assert made.evaluation.promised.value == pytest.approx(expected)
