"""What a user may say of a table beyond its target: weights, ids, several files."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from refusals import refused
from sklearn.metrics import average_precision_score, roc_auc_score

from aucmax import AUCClassifier
from aucmax.cli import main
from aucmax.judge.evaluation import Evaluation
from aucmax.judge.multiclass import class_results
from aucmax.tables import evaluate_file, fit_file, fit_stream, predict_file
from aucmax.tables.files import read
from aucmax.tables.formats import Format

QUICK = {
    "quality": "fast",
    "max_steps": 30,
    "members": 2,
    "width": 16,
    "n_jobs": 1,
    "progress": False,
}


def patients(rows=360, seed=0):
    """Half of the rows weigh much, and of them alone x tells the outcome."""
    random = np.random.default_rng(seed)
    ill, heavy = random.random(rows) < 0.3, random.random(rows) < 0.5
    return pd.DataFrame(
        {
            "patient": [f"{k:05d}" for k in range(rows)],
            "x": random.normal(2.0 * ill * heavy),
            "heavy": heavy,
            "city": random.choice(["Oslo", "Rome"], rows),
            "w": np.where(heavy, 2.5, 0.25),
            "ill": np.where(ill, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files, a model of both with weights and ids, and new rows."""
    place = tmp_path_factory.mktemp("options")
    table = patients()
    table[:200].to_csv(place / "a.csv", index=False)
    table[200:][table.columns[::-1]].to_csv(place / "b.csv", index=False)
    table.to_csv(place / "both.csv", index=False)
    patients(150, seed=1).to_csv(place / "new.csv", index=False)
    files = [place / "a.csv", place / "b.csv"]
    fitted = fit_file(files, "ill", out=place / "model", weight="w", id_column="patient", **QUICK)
    return place, fitted


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


# ---- Weights -------------------------------------------------------------------------------------


def test_weights_match_sklearn(folder):
    place, fitted = folder
    found = fitted.evaluation
    assert (found.weight_column, set(found.weight)) == ("w", {0.25, 2.5})
    p, y, w = found.probability, found.classes, found.weight
    assert found.auc.value == pytest.approx(roc_auc_score(y, p, sample_weight=w), abs=1e-9)
    precision = average_precision_score(y, p, sample_weight=w)
    assert found.average_precision == pytest.approx(precision, abs=1e-9)
    flagged = p >= found.threshold
    assert found.recall == pytest.approx(w[flagged & (y == 1)].sum() / w[y == 1].sum())
    assert found.specificity == pytest.approx(w[~flagged & (y == 0)].sum() / w[y == 0].sum())
    assert found.rows.base_rate == pytest.approx(np.average(y, weights=w))
    assert found.auc.value > roc_auc_score(y, p) + 0.01  # light rows cannot be told
    alike = fit_file(place / "both.csv", "ill", out=place / "alike", drop=["w"], **QUICK)
    assert alike.evaluation.weight is None
    assert fitted.model.history_ != alike.model.history_
    assert "w" not in fitted.model.feature_names_in_
    assert any("'w'" in note for note in found.notes)


def test_evaluate_by_weight(folder, capsys):
    place, _ = folder
    main(["evaluate", str(place / "model"), str(place / "new.csv"), "--weight", "w"])
    said = capsys.readouterr()
    alike = evaluate_file(place / "model", place / "new.csv")
    found = evaluate_file(place / "model", place / "new.csv", weight="w")
    assert f"AUC {found.auc.value:.4f}" in said.out
    assert found.auc.value != alike.auc.value
    assert [note for note in alike.notes if note.endswith("--weight w")]
    assert not [note for note in found.notes if "--weight" in note]
    assert "note: rows weigh as 'w' says, in every AUC and share\n" in said.err


def test_rows_of_weight_zero_are_left_out(tmp_path):
    table = patients(300)
    table["w"] = np.where(np.arange(300) % 3 == 0, 0.0, 1.0)
    table.to_csv(tmp_path / "some.csv", index=False)
    table[table["w"] > 0].drop(columns="w").to_csv(tmp_path / "rest.csv", index=False)
    drop = ["patient"]
    some = fit_file(
        tmp_path / "some.csv", "ill", out=tmp_path / "a", weight="w", drop=drop, **QUICK
    )
    rest = fit_file(tmp_path / "rest.csv", "ill", out=tmp_path / "b", drop=drop, **QUICK)
    assert "100 rows weigh 0 and are left out" in some.evaluation.notes
    assert some.evaluation.parts == rest.evaluation.parts
    np.testing.assert_array_equal(some.evaluation.classes, rest.evaluation.classes)


@pytest.mark.parametrize("scale", [2.0**-1000])
def test_scale_of_weights_is_irrelevant(folder, tmp_path, scale):
    _, fitted = folder
    table = patients()
    table.assign(w=table["w"] * scale).to_csv(tmp_path / "both.csv", index=False)
    given = {"weight": "w", "id_column": "patient", "compare": False, **QUICK}
    again = fit_file(tmp_path / "both.csv", "ill", out=tmp_path / "m", **given)
    losses = [[record["loss"] for record in x.model.history_] for x in (again, fitted)]
    assert losses[0] == losses[1]
    assert again.evaluation.auc.low == pytest.approx(fitted.evaluation.auc.low, abs=1e-9)


def test_weights_of_several_classes(tmp_path):
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, 300)
    table = {"x": random.normal(kind, 0.7), "w": random.integers(1, 5, 300), "kind": kind}
    pd.DataFrame(table).to_csv(tmp_path / "t.csv", index=False)
    fitted = fit_file(tmp_path / "t.csv", "kind", out=tmp_path / "m", weight="w", **QUICK)
    found = fitted.evaluation
    rows, w = found.rows, found.weight
    for k in range(3):
        one = roc_auc_score(found.classes == k, found.probability[:, k], sample_weight=w)
        assert rows.one_against_rest(k).counts[1] == (found.classes == k).sum()
        assert class_results(rows)[k].auc.value == pytest.approx(one, abs=1e-9)
    assert "Rows weigh as" in fitted.report.read_text("utf-8")


def test_weights_of_a_stream(tmp_path):
    table = patients(2000)
    table.loc[:99, "w"] = 0.0
    table.to_parquet(tmp_path / "part-1.parquet")
    given = {**QUICK, "drop": ["patient"], "weight": "w"}
    fitted = fit_stream(tmp_path / "part-*.parquet", "ill", out=tmp_path / "m", **given)
    found = fitted.evaluation
    expected = roc_auc_score(found.classes, found.probability, sample_weight=found.weight)
    assert found.auc.value == pytest.approx(expected, abs=1e-9)
    assert found.weight.min() > 0


# ---- Ids -----------------------------------------------------------------------------------------


def test_id_column(folder):
    place, fitted = folder
    assert "patient" not in fitted.model.feature_names_in_
    text, notes = predict_file(place / "model", place / "new.csv")
    found = rows_of(text)
    assert [*found[0]] == ["patient", "probability of yes", "prediction"]
    assert [row["patient"] for row in found[:2]] == ["00000", "00001"]  # not 0 and 1
    assert not [note for note in notes if "patient" in note]


def test_other_id_and_none(folder, tmp_path, capsys):
    place, _ = folder
    main(["predict", str(place / "model"), str(place / "new.csv"), "--id", "city", "--keep", "w"])
    out, _ = capsys.readouterr()
    assert out.splitlines()[0] == '"city","w","probability of yes","prediction"'
    patients(20).drop(columns="patient").to_csv(tmp_path / "none.csv", index=False)
    text, notes = predict_file(place / "model", tmp_path / "none.csv")
    assert [*rows_of(text)[0]] == ["probability of yes", "prediction"]
    assert "the predictions carry no 'patient', which named the rows of training" in notes
    said = refused(capsys, "predict", place / "model", place / "new.csv", "--id", "nobody")
    assert said.startswith("id must be one of 'patient', 'x'")


def test_kept_columns_are_copied_as_written(folder, tmp_path):
    """The model knows x, with a decimal point."""
    place, _ = folder
    table, path = patients(20, seed=1), tmp_path / "commas.csv"
    table.to_csv(path, index=False, sep=";", decimal=",")
    expected, notes = predict_file(place / "model", path)
    text, same = predict_file(place / "model", path, keep=["x"])
    found = rows_of(text)
    assert [row["x"] for row in found] == [str(x).replace(".", ",") for x in table["x"]]
    for name in ("probability of yes", "prediction"):
        assert [row[name] for row in found] == [row[name] for row in rows_of(expected)]
    assert same == notes


# ---- Thresholds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("0.125", "'yes' from 0.125 on (as said): recall "),
        ("cost=4", "'yes' from 0.2 on (cost=4): recall "),
        ("recall=0.8", " on (recall=0.8 of the rows "),
    ],
)
def test_fit_threshold_rule(folder, capsys, tmp_path, rule, said):
    place, _ = folder
    given = ["--target", "ill", "--drop", "patient", "w", "--models", "logistic"]
    given += ["--threshold", rule, "--out", str(tmp_path / "m")]
    main(["fit", str(place / "both.csv"), *given])
    out, _ = capsys.readouterr()
    assert said in out
    found = Evaluation.read(tmp_path / "m")
    assert found.threshold_rule == rule
    page = (tmp_path / "m" / "report.html").read_text("utf-8")
    assert f"<code>{rule}</code>" in page
    assert "<code>--threshold cost=5</code>" in page
    predicted = rows_of(predict_file(tmp_path / "m", place / "new.csv")[0])
    above = [float(row["probability of yes"]) > found.threshold for row in predicted]
    assert [row["prediction"] == "yes" for row in predicted] == above


def test_recall_is_of_the_validation_rows(folder):
    """Which chose the weights; the rows to judge by have another one."""
    place, _ = folder
    given = {**QUICK, "out": place / "recall", "drop": ["patient", "w"]}
    one = fit_file(place / "both.csv", "ill", threshold="recall=0.9", **given)
    other = fit_file(place / "both.csv", "ill", **given)
    assert one.model.history_[-1]["loss"] == other.model.history_[-1]["loss"]
    assert one.evaluation.threshold != other.evaluation.threshold
    assert one.evaluation.threshold not in one.evaluation.probability


def test_predict_threshold_rule(folder, capsys):
    place, fitted = folder
    found = fitted.evaluation
    for rule in ("0.3", "recall=0.7", "precision=0.6"):
        main(["predict", str(place / "model"), str(place / "new.csv"), "--threshold", rule])
        out, err = capsys.readouterr()
        cut, recall, precision, n = re.search(
            rf"note: rows are 'yes' from ([\d.]+) on \({rule}\): recall ([\d.]+), precision "
            rf"([\d.]+) of the (\d+) rows that judged", err,
        ).groups()  # fmt: skip
        assert int(n) == len(found.classes)
        by_them = "rows that judged the model, which chose it: new rows may have less\n" in err
        assert by_them == rule.startswith(("recall", "precision"))
        flagged = found.probability >= float(cut)
        w, y = found.weight, found.classes
        assert float(recall) == pytest.approx(
            w[flagged & (y == 1)].sum() / w[y == 1].sum(), abs=6e-4
        )
        assert float(precision) == pytest.approx(
            np.average(y[flagged], weights=w[flagged]), abs=6e-4
        )
        if rule.startswith(("recall", "precision")):
            wanted = float(rule.split("=")[1])
            assert float(recall if rule.startswith("r") else precision) >= wanted
        above = {float(row["probability of yes"]) > float(cut): row["prediction"]
                 for row in rows_of(out)}  # fmt: skip
        yes = sum(row["prediction"] == "yes" for row in rows_of(out))
        assert err.endswith(f"\n{yes} of 150 rows are predicted 'yes', from {cut} on\n")
        assert above == {True: "yes", False: "no"}


@pytest.mark.filterwarnings("default")
def test_unreached_precision_is_noted(folder, capsys):
    place, _ = folder
    main(["predict", str(place / "model"), str(place / "new.csv"), "--threshold", "precision=1"])
    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith("note: precision 1 is not reached on the 72 rows that choose")
    assert "on (precision=1): recall" in err[1]


def test_training_file_is_recognized(folder):
    place, _ = folder
    for files in (place / "a.csv", [place / "new.csv", place / "b.csv"]):
        (note,) = [x for x in evaluate_file(place / "model", files).notes if "fitted to" in x]
        assert re.match(r"the model was fitted to .*[ab]\.csv: it knows most of these rows", note)
    notes = evaluate_file(place / "model", place / "new.csv").notes
    assert not [x for x in notes if "fitted to" in x or "is not used" in x]


# ---- Device, threads, silence --------------------------------------------------------------------


def test_quiet(folder, tmp_path, capfd):
    place, _ = folder
    call = ["fit", str(place / "both.csv"), "--target", "ill", "--models", "logistic", "--quiet"]
    main([*call, "--out", str(tmp_path / "m"), "--device", "cpu", "--threads", "1"])
    out, err = capfd.readouterr()
    assert err == ""
    auc, where = out.splitlines()
    assert re.fullmatch(r"AUC 0\.\d{4}, 95% interval .*", auc)
    assert where.startswith(f"The model is in {tmp_path / 'm'}, its report is ")
    main(["evaluate", str(tmp_path / "m"), str(place / "new.csv"), "--quiet"])
    out, err = capfd.readouterr()
    assert (len(out.splitlines()), err) == (1, "")
    new, csv_file = str(place / "new.csv"), tmp_path / "p.csv"
    main(["predict", str(tmp_path / "m"), new, "--quiet", "--out", str(csv_file)])
    assert capfd.readouterr() == ("", "")
    assert len(csv_file.read_text().splitlines()) == 151
    assert refused(capfd, "predict", tmp_path / "m", "nothing.csv", "--quiet")


def test_threads_are_restored(folder, monkeypatch):
    place, _ = folder
    seen = []
    score = AUCClassifier.score_encoded

    def count(self, encoded):
        seen.append((torch.get_num_threads(), pyarrow.cpu_count()))
        return score(self, encoded)

    monkeypatch.setattr(AUCClassifier, "score_encoded", count)
    before = torch.get_num_threads(), pyarrow.cpu_count()
    folder_of, new = str(place / "model"), str(place / "new.csv")
    fitted_with = AUCClassifier.load(folder_of).n_jobs
    main(["evaluate", folder_of, new, "--threads", "3", "--quiet"])
    assert seen == [(3, 3)]
    assert fitted_with == 1
    assert (torch.get_num_threads(), pyarrow.cpu_count()) == before


def test_model_of_another_device(folder, tmp_path):
    """The folder of a model trained on a GPU says so; another machine may have none."""
    place, _ = folder
    model = AUCClassifier.load(place / "model")
    model.device = "cuda:7"
    model.save(tmp_path / "m")
    text, _ = predict_file(tmp_path / "m", place / "new.csv", device="cpu")
    assert rows_of(text)[0]["prediction"] in ("yes", "no")


# ---- Several files -------------------------------------------------------------------------------


def test_several_files_are_one_table(folder):
    """The second has its columns the other way round."""
    place, fitted = folder
    given = {"weight": "w", "id_column": "patient", **QUICK}
    one = fit_file(place / "both.csv", "ill", out=place / "one", **given)
    assert one.model.history_[-1]["loss"] == fitted.model.history_[-1]["loss"]
    files = [place / "a.csv", place / "b.csv"]
    assert predict_file(place / "model", files) == predict_file(place / "model", place / "both.csv")
    found, expected = (evaluate_file(place / "model", x) for x in (files, place / "both.csv"))
    assert found.auc == expected.auc


def test_shell_takes_several_files(folder, capsys, monkeypatch):
    place, _ = folder
    monkeypatch.chdir(place)
    main(["predict", "model", "a.csv", "b.csv"])
    out, _ = capsys.readouterr()
    assert len(out.splitlines()) == 361
    said = "a FILE must be given, and before options of several values like --drop"
    assert refused(capsys, "predict", "model") == said
    assert refused(capsys, "fit", "--target", "ill", "--drop", "w", "a.csv") == said
    assert "out must be another file" in refused(
        capsys, "predict", "model", "a.csv", "b.csv", "--out", "b.csv"
    )


def test_column_types_of_several_files(tmp_path):
    """Numbers in one file and words in the other are words in both, 007 with its zeros."""
    (tmp_path / "a.csv").write_text("k,n,d\n007,1,2024-01-01\n8,2,2024-01-02\n")
    (tmp_path / "b.csv").write_text("d,n,k\n2024-01-03,2.5,x\n")
    table = read([tmp_path / "a.csv", tmp_path / "b.csv"]).table
    assert table["k"].to_pylist() == ["007", "8", "x"]
    assert table["n"].to_pylist() == [1.0, 2.0, 2.5]
    assert str(table["d"].type) == "date32[day]"


def test_unused_columns_may_differ(tmp_path):
    """Also where they are read again, for a column is text in one of them alone."""
    (tmp_path / "a.csv").write_text("x,k,extra\n1,2,9\n3,4,9\n")
    (tmp_path / "b.csv").write_text("k,x\na,5\n")
    known = {"x": Format("number"), "k": Format("number")}
    table = read([tmp_path / "a.csv", tmp_path / "b.csv"], formats=known).table
    assert table.to_pydict() == {"x": [1, 3, 5], "k": ["2", "4", "a"]}


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("x,z\n1,2\n", r"found '.*b.csv' without 'y' and with 'z', unlike '.*a.csv'"),
        ("x\n1\n", r"found '.*b.csv' without 'y', unlike '.*a.csv'"),
        ("x,y,z\n1,2,3\n", r"found '.*b.csv' with 'z', unlike '.*a.csv'"),
        ("x,y\n2024-01-01,2\n", r"found 'x' as date32\[day\] in '.*b.csv' and as int64 in '.*a"),
    ],
)
def test_files_that_differ_raise(tmp_path, second, said):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text(second)
    with pytest.raises(ValueError, match=said) as error:
        read([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert re.match("data must be files with", str(error.value))
