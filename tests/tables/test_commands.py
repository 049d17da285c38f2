"""The commands for tables, from files to predictions and a report."""

import csv
import importlib
import json
import re
import shutil
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from evaluations import make_ensemble, make_evaluation
from refusals import refused
from sklearn.metrics import roc_auc_score

from aucmax import AUCClassifier
from aucmax.cli import main
from aucmax.cli._tables import fit
from aucmax.cli._words import summary
from aucmax.judge.evaluation import Evaluation
from aucmax.tables import evaluate_file, fit_file, predict_file
from aucmax.tables.labeled import choose_labels, join_spellings, label_numbers, read_labeled

QUICK = {
    "quality": "fast",
    "max_steps": 40,
    "members": 2,
    "width": 16,
    "n_jobs": 1,
    "progress": False,
}


def customers(rows=500, seed=0):
    random = np.random.default_rng(seed)
    churned = random.random(rows) < 0.2
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "age": np.where(random.random(rows) < 0.1, np.nan, random.normal(40, 9, rows)),
            "plan": np.where(churned & (random.random(rows) < 0.6), "basic", "gold"),
            "calls": random.poisson(1 + 3 * churned),
            "joined": np.datetime64("2021-01-01") + random.integers(0, 600, rows),
            "churned": np.where(churned, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, its data and what it was told."""
    place = tmp_path_factory.mktemp("shell")
    customers().to_csv(place / "train.csv", index=False)
    customers(300, seed=1).to_csv(place / "new.csv", index=False)
    fitted = fit_file(place / "train.csv", "churned", out=place / "model", drop=["id"], **QUICK)
    return place, fitted


# ---- What is made --------------------------------------------------------------------------------


def test_fit_file_writes_model_evaluation_and_report(folder):
    place, fitted = folder
    assert sorted(p.name for p in (place / "model").iterdir()) == [
        "evaluation.json", "evaluation.safetensors", "model.json", "model.safetensors",
        "report.html",
    ]  # fmt: skip
    found = fitted.evaluation
    assert sum(part.rows for part in found.parts.values()) == 500
    assert found.labels == ("no", "yes")
    assert found.auc.low < found.auc.value < found.auc.high
    assert found.auc.value > 0.8
    assert [peer.name for peer in found.peers] == ["logistic regression", "gradient boosting"]
    assert found.importance[0].column in ("calls", "plan")
    assert {c.name: c.kind for c in found.columns} == {
        "age": "number", "plan": "category", "calls": "number", "joined": "date",
    }  # fmt: skip


def test_auc_is_of_the_test_rows(folder):
    _, fitted = folder
    found = fitted.evaluation
    expected = roc_auc_score(found.classes, found.probability)
    assert found.auc.value == pytest.approx(expected, abs=1e-12)
    assert len(found.classes) == found.parts["test"].rows
    assert found.classes.sum() == found.parts["test"].counts[1]


def test_predictions_keep_the_order_of_the_file(folder):
    place, fitted = folder
    out = place / "predicted.csv"
    assert predict_file(place / "model", place / "new.csv", out, keep=["id"])[0] is None
    rows = list(csv.DictReader(out.read_text().splitlines()))
    data = customers(300, seed=1)
    assert [int(row["id"]) for row in rows] == data["id"].tolist()
    p = np.array([float(row["probability of yes"]) for row in rows])
    expected = fitted.model.predict_proba(data[["age", "plan", "calls", "joined"]])[:, 1]
    np.testing.assert_allclose(p, expected, atol=1e-12)
    said = np.array([row["prediction"] for row in rows])
    assert set(said) == {"no", "yes"}
    assert (p[said == "yes"].min()) > p[said == "no"].max()


def test_columns_are_matched_by_name(folder):
    place, _ = folder
    data = customers(300, seed=1)
    shuffled = data[["joined", "calls", "churned", "age", "id", "plan"]].assign(extra=1)
    shuffled.to_parquet(place / "shuffled.parquet")
    one, _ = predict_file(place / "model", place / "new.csv")
    two, notes = predict_file(place / "model", place / "shuffled.parquet")
    assert one == two
    assert any("extra" in note for note in notes)


def test_unseen_category_is_scored(folder):
    place, _ = folder
    data = customers(40, seed=2).assign(plan="platinum")
    data.to_csv(place / "unseen.csv", index=False)
    text, _ = predict_file(place / "model", place / "unseen.csv")
    assert len(text.splitlines()) == 41
    data[:1].to_csv(place / "one.csv", index=False)
    _, notes = predict_file(place / "model", place / "one.csv")
    assert re.match(r"[01] of 1 row is predicted 'yes', from 0\.\d+ on$", notes[-1])


@pytest.mark.parametrize("kind", ["csv.gz", "tsv", "parquet", "feather"])
def test_every_file_format_gives_the_same(folder, kind, tmp_path):
    place, _ = folder
    data = pd.read_csv(place / "new.csv", parse_dates=["joined"])
    path = tmp_path / f"new.{kind}"
    if kind == "parquet":
        data.to_parquet(path)
    elif kind == "feather":
        pyarrow.feather.write_feather(pa.Table.from_pandas(data), path)
    else:
        data.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    expected = predict_file(place / "model", place / "new.csv")
    assert predict_file(place / "model", path)[0] == expected[0]
    predict_file(place / "model", path, tmp_path / "out.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["probability of yes", "prediction"]
    assert found.num_rows == 300


def test_evaluate_file_matches_sklearn(folder):
    place, fitted = folder
    found = evaluate_file(place / "model", place / "new.csv")
    data = customers(300, seed=1)
    scores = fitted.model.decision_function(data[["age", "plan", "calls", "joined"]])
    truth = data["churned"] == "yes"
    assert found.auc.value == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    assert found.recall == pytest.approx((scores[truth] > 0).mean())
    assert found.specificity == pytest.approx((scores[~truth] <= 0).mean())
    assert found.rows.counts == (int((~truth).sum()), int(truth.sum()))
    data["churned"] = np.where(np.arange(300) % 2, " YES", "yes")
    data.loc[~truth, "churned"] = "No"
    data.loc[0, "churned"] = "?"
    data.to_csv(place / "spelled.csv", index=False)
    spelled = evaluate_file(place / "model", place / "spelled.csv")
    assert sum(spelled.rows.counts) == 299
    assert spelled.auc.value == pytest.approx(roc_auc_score(truth[1:], scores[1:]), abs=1e-12)
    assert "1 row has no 'churned' and is left out (1 '?')" in spelled.notes
    joined = r"joined: \d+ 'No' as 'no'; \d+ 'yes', \d+ ' YES' as 'yes'"
    assert [note for note in spelled.notes if re.search(joined, note)]


def test_several_classes(tmp_path):
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, 300)
    data = pd.DataFrame({"x": random.normal(kind, 0.5), "kind": np.array(["a", "b", "c"])[kind]})
    data["noise"] = random.normal(size=300)
    data.to_csv(tmp_path / "data.csv", index=False)
    fitted = fit_file(tmp_path / "data.csv", "kind", out=tmp_path / "model", **QUICK)
    found = fitted.evaluation
    p, truth = found.probability, found.classes
    expected = roc_auc_score(truth, p, multi_class="ovo")
    assert found.auc.value == pytest.approx(expected, abs=1e-12)
    assert 0.8 < found.auc.low < found.auc.value
    assert [peer.name for peer in found.peers] == ["logistic regression", "gradient boosting"]
    assert all(peer.auc.value > 0.8 and 0 <= peer.p_value <= 1 for peer in found.peers)
    assert found.importance[0].column == "x"
    assert found.importance[0].drop > 0.2
    assert found.importance[1].drop < 0.1
    assert "Predicting “kind”" in fitted.report.read_text("utf-8")
    elsewhere = evaluate_file(tmp_path / "model", tmp_path / "data.csv").auc
    assert 0.8 < elsewhere.low < elsewhere.value
    text, notes = predict_file(tmp_path / "model", tmp_path / "data.csv")
    header, *lines = text.splitlines()
    counts = [sum(f'"{x}"' in line for line in lines) for x in "abc"]
    assert sorted(notes[-1].removeprefix("300 rows predicted: ").split(", ")) == sorted(
        f"{count} {label!r}" for count, label in zip(counts, "abc", strict=True)
    )
    assert [x.strip('"') for x in header.split(",")] == [
        "probability of a", "probability of b", "probability of c", "prediction",
    ]  # fmt: skip


# ---- Labels --------------------------------------------------------------------------------------


def labeled(tmp_path, target, **options):
    path = tmp_path / "data.csv"
    pd.DataFrame({"x": np.arange(len(target)), "t": target}).to_csv(path, index=False)
    return read_labeled(path, "t", **options)


@pytest.mark.parametrize(
    ("target", "labels", "classes"),
    [
        ([0, 1, 1, 1], ["0", "1"], [0, 1, 1, 1]),
        (["yes", "yes", "no", "yes"], ["no", "yes"], [1, 1, 0, 1]),
        ([True, True, False, True], ["False", "True"], [1, 1, 0, 1]),
        (["sick", "well", "well", "well"], ["well", "sick"], [1, 0, 0, 0]),
        ([1.5, 2.5, 2.5, 2.5], ["2.5", "1.5"], [1, 0, 0, 0]),
        ([3, 4, 4, 4], ["4", "3"], [1, 0, 0, 0]),
    ],
)
def test_positive_label_by_default(tmp_path, target, labels, classes):
    found = labeled(tmp_path, target)
    assert (found.labels, found.classes.tolist()) == (labels, classes)
    assert any(repr(labels[1]) in note for note in found.notes)


def test_positive_label_of_an_option(tmp_path):
    found = labeled(tmp_path, [0, 1, 1, 1], positive="0")
    assert found.labels == ["1", "0"]
    assert found.classes.tolist() == [1, 0, 0, 0]


def test_rows_without_a_target_are_left_out(tmp_path):
    found = labeled(tmp_path, [0, 1, None, 1])
    assert found.table.rows == 3
    assert found.table.values[0].tolist() == [0, 1, 3]
    assert found.notes[0] == "1 row has no 't' and is left out"


@pytest.mark.parametrize(
    ("words", "labels", "note"),
    [
        (["yes", " Yes", "YES", "yes", "no"], ["no", "yes"], "2 'yes', 1 ' Yes', 1 'YES' as 'yes'"),
        (["Yes ", "Yes", "yes", "no"], ["no", "Yes"], "1 'Yes', 1 'Yes ', 1 'yes' as 'Yes'"),
        (["1", "1.0", "0", "0.0", "1"], ["0", "1"], "2 '1', 1 '1.0' as '1'; 1 '0', 1 '0.0' as '0'"),
        (["a\0", "a", "b"], ["a", "b"], "1 'a', 1 'a\\x00' as 'a'"),
        (["caf\u00e9", "cafe\u0301", "tea"], ["caf\u00e9", "tea"], "are joined"),
        (["1.5.0", "1.5", "1.5.0"], ["1.5.0", "1.5"], ""),
        (["01", "1", "1"], ["01", "1"], ""),
    ],
)
def test_spellings_of_a_label_are_joined(words, labels, note):
    notes = []
    joined = join_spellings(np.array(words, object), "t", notes)
    assert sorted(choose_labels(joined, "t", None, [])) == sorted(labels)
    assert notes == [] if not note else note in notes[0] and "--exact-labels" in notes[0]
    exact = join_spellings(np.array(words, object), "t", notes := [], exact=True)
    assert (exact.tolist(), notes) == (words, [])


@pytest.mark.parametrize(
    ("words", "labels", "note"),
    [
        (["a", "b", "?", "NA", "?"], "ab", "3 rows have no 't' and are left out (2 '?', 1 'NA'{})"),
        (["a", "b", "", "  "], "ab", "2 rows have no 't' and are left out (1 '  ')"),
        (["+", "-", "-", "+"], "+-", ""),
        (["+", "-", "?", "-"], "+-", "1 row has no 't' and is left out (1 '?'{})"),
        (["x", "y", "-", "."], "xy", "2 rows have no 't' and are left out (1 '-', 1 '.'{})"),
    ],
)
def test_texts_for_a_missing_label(words, labels, note):
    joined = join_spellings(np.array(words, object), "t", notes := [])
    expected = [note.format("; --exact-labels keeps them")] if note else []
    assert (sorted({*joined} - {""}), notes) == (sorted(labels), expected)


def test_known_labels_match_any_spelling():
    words = np.array(["NO", "yes", "?", "Yes "], object)
    found = join_spellings(words, "t", notes := [], known=["no", "yes"]).tolist()
    assert found == ["no", "yes", "", "yes"]
    assert notes[1].endswith("joined: 1 'NO' as 'no'; 1 'Yes ', 1 'yes' as 'yes'")
    apart = np.array(["yes", "Yes", "-"], object)
    assert join_spellings(apart, "t", [], known=["-", "yes", "Yes"]).tolist() == apart.tolist()
    with pytest.raises(ValueError, match="column 't' must hold '-', 'yes', 'Yes', found 'YES'"):
        label_numbers(
            join_spellings(np.array(["YES"], object), "t", [], known=["-", "yes", "Yes"]),
            ["-", "yes", "Yes"], "t",
        )  # fmt: skip


def test_one_label_in_several_spellings_raises(tmp_path):
    with pytest.raises(ValueError, match=r"found 'yes' alone; .* 2 'yes', 1 'YES' as 'yes'"):
        labeled(tmp_path, ["yes", "YES", "yes"])
    assert labeled(tmp_path, ["yes", "YES", "yes"], exact_labels=True).labels == ["yes", "YES"]
    assert labeled(tmp_path, ["yes", "NO", "no"], positive="No").labels == ["yes", "NO"]


# ---- The demo ------------------------------------------------------------------------------------


def test_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["aucmax", "demo"])
    importlib.import_module("aucmax.cli._main")  # which knows the fit that is not replaced
    monkeypatch.setattr("aucmax.cli._tables.fit", partial(fit, models=("logistic",)))
    main(["demo"])
    out = capsys.readouterr().out
    assert "aucmax fit demo-model-data.csv --target malignant --out demo-model" in out
    assert "interval" in out
    assert "against logistic regression" in out
    assert "against gradient boosting" in out
    assert "is replaced" not in out
    assert (tmp_path / "demo-model" / "report.html").exists()
    evaluation = json.loads((tmp_path / "demo-model" / "evaluation.json").read_text())["state"]
    assert "aucmax demo" in json.dumps(evaluation)
    main(["evaluate", "demo-model", "demo-model-data.csv"])
    assert "569 rows: 357 'no', 212 'yes'" in capsys.readouterr().out
    main(["report", "demo-model"])
    assert capsys.readouterr().out.strip() == "The report is demo-model/report.html"


def test_formats_of_training_hold_in_predict(tmp_path):
    """A small file's zips look like numbers and its flags like booleans."""
    random = np.random.default_rng(0)
    zips, flags = ["01000", "02000", "SW1A"], ["true", "false", "maybe"]
    rows = [(f"{i:05d}", zips[i % 3], flags[i % 3], random.normal()) for i in range(300)]
    lines = [f"{a},{b},{c},{d},{int(b == '01000')}" for a, b, c, d in rows]
    (tmp_path / "train.csv").write_text("\n".join(["id,zip,flag,x,t", *lines]))
    small = [line for line in lines if "SW1A" not in line][:6]
    (tmp_path / "new.csv").write_text("\n".join(["id,zip,flag,x,t", *small]))
    options = {"drop": ["id"], "compare": False, **QUICK}
    fit_file(tmp_path / "train.csv", "t", out=tmp_path / "m", **options)
    whole, _ = predict_file(tmp_path / "m", tmp_path / "train.csv", keep=["id"])
    few, _ = predict_file(tmp_path / "m", tmp_path / "new.csv", keep=["id"])
    expected = {line.split(",")[0]: line for line in whole.splitlines()}
    assert [line == expected[line.split(",")[0]] for line in few.splitlines()] == [True] * 7
    assert '"00001"' in few


def test_few_test_rows_compare_no_models(folder, capsys, tmp_path):
    """In the terminal: the count, the interval, what would be needed, and no comparison."""
    place, fitted = folder
    rows = customers(300, seed=1)
    few = pd.concat([rows[rows.churned == "no"], rows[rows.churned == "yes"][:3]])
    few.to_csv(tmp_path / "few.csv", index=False)
    main(["evaluate", str(place / "model"), str(tmp_path / "few.csv")])
    counts, auc, _, rates, needed = capsys.readouterr().out.splitlines()
    assert counts == f"{len(few)} rows: {len(few) - 3} 'no', 3 'yes'"
    assert "95% interval" in auc
    assert re.search(rf"recall \S+ \(\d of 3\), specificity \S+ \(\d+ of {len(few) - 3}\)", rates)
    assert re.fullmatch(
        rf"only 3 of the {len(few)} rows to judge by are 'yes', too few to compare models by: "
        r"about \d+ 'yes' would bring the interval of the AUC to ±0\.05", needed,
    )  # fmt: skip
    judged = evaluate_file(place / "model", tmp_path / "few.csv")
    peers = tuple(replace(peer, p_value=None) for peer in fitted.evaluation.peers)
    parts = {**fitted.evaluation.parts, **judged.parts}
    columns = fitted.evaluation.columns
    said = summary(replace(judged, parts=parts, peers=peers, columns=columns))
    assert said.startswith("columns of the 400 rows to train on and to stop by:\ncolumn ")
    assert f"of the rows to judge by are 'yes' (3 of {len(few)})" in said
    assert needed in said.splitlines()
    assert re.search(
        r"^logistic regression: AUC 0\.\d+, 95% interval 0\.\d+ to", said, re.MULTILINE
    )
    for word in ("p =", "better", "worse", "against", "difference"):
        assert word not in said


def test_model_is_replaced_and_other_files_kept(folder, capsys, tmp_path):
    place, _ = folder
    copy = tmp_path / "model"
    shutil.copytree(place / "model", copy)
    (copy / "thesis.txt").write_text("years of work")
    command = ["fit", place / "train.csv", "--target", "churned", "--quality", "fast"]
    command += ["--time-limit", "0.01"]
    said = refused(capsys, *command, "--out", copy)
    assert "'thesis.txt'" in said
    assert (copy / "thesis.txt").exists()
    (copy / "thesis.txt").unlink()
    main([str(x) for x in [*command, "--out", copy, "--metric", "partial_auc@0.1"]])
    model, evaluation = AUCClassifier.load(copy), Evaluation.read(copy)
    assert (model.metric, 0 < model.validation_score_ <= 0.1) == ("partial_auc@0.1", True)
    assert evaluation.metric == "partial_auc@0.1"
    assert 0 < evaluation.score <= 0.1
    report = (copy / "report.html").read_text("utf-8")
    assert "Partial AUC (FPR &lt;= 0.1)" in report
    note = f"note: the model that was in {copy} before is replaced"
    out = capsys.readouterr().out
    assert out.splitlines().count(note) == 1
    (said,) = re.findall(r"partial AUC \(FPR <= 0.1\) (.*)", out)
    assert re.fullmatch(r"[\d.]+, of logistic regression [\d.]+, of gradient boosting [\d.]+", said)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    main(["evaluate", str(copy), str(place / "train.csv")])
    said = capsys.readouterr().out
    assert re.search(r"partial AUC \(FPR <= 0.1\) 0\.\d+, which the model was chosen by", said)


@pytest.mark.parametrize("content", ['{"learner": {}}', "no JSON", None])
def test_model_of_another_program_is_kept(folder, capsys, tmp_path, content):
    """XGBoost writes a model.json too."""
    place, _ = folder
    other = tmp_path / ("model.json" if content else "report.html")
    other.write_text(content or "a report")
    said = refused(capsys, "fit", place / "new.csv", "--target", "churned", "--out", tmp_path)
    assert f"out must be empty or a model's folder, found '{other.name}'" in said
    assert other.read_text() == (content or "a report")


def test_failing_peer_is_a_note(folder, monkeypatch):
    place, _ = folder

    def fail(*_, **__):
        raise ValueError("too many\ncategories")

    monkeypatch.setattr("sklearn.ensemble.HistGradientBoostingClassifier.fit", fail)
    found = fit_file(
        place / "train.csv", "churned", out=place / "other", **QUICK | {"max_steps": 5}
    ).evaluation
    assert [peer.name for peer in found.peers] == ["logistic regression"]
    assert "not compared with gradient boosting: too many" in found.notes


def test_dry_run(tmp_path, capsys):
    path = tmp_path / "data.csv"
    rows = [
        f"{k % 17},{k % 5},{k % 3 + 1}.{k % 12 + 1}.2024;{'ja' if k % 3 else 'nein'}"
        for k in range(40)
    ]
    lines = [row.replace(",", ";", 1).replace(",", ",5;", 1) for row in rows]
    lines[3] = "?;1,5;1.1.2024;ja"
    path.write_bytes("\n".join(["age;size;seen;Größe", *lines]).encode("latin-1"))
    given = ["--target", "Größe", "--positive", "nein", "--na-values", "16"]
    main(["fit", str(path), *given, "--dry-run"])
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["column", "taken", "as", "missing", "values", "most", "often"]
    assert said[1].split()[:4] == ["age", "number", "3", "(7.5%)"]
    assert re.match(r"seen +date, written \d\.1\d\.2024 +0 +\d+ +2024-", said[3])
    assert said[5] == "40 rows: 27 'ja', 13 'nein'"
    assert said[6:8] == [
        "note: the text is no UTF-8 and is read as windows-1252: --encoding says another",
        "note: '?' is taken as missing in column 'age' (1)",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]
    main(["fit", str(path), *given, "--dry-run", "--encoding", "latin-1"])
    assert "UTF-8" not in capsys.readouterr().out


def test_summary_of_models():
    content = make_evaluation(**make_ensemble())
    assert "model     weight  AUC of the rows to stop by" in summary(Evaluation.from_dict(content))
    for part in ("rows", "positives"):
        del content[part]["valid"]
    said = summary(Evaluation.from_dict(content)).splitlines()
    begin = said.index("model     weight  AUC out of fold")
    assert said[begin + 1 : begin + 5] == [
        "network      75%  0.8600, 0.8400 to 0.8800",
        "boosting     25%  0.8500, 0.8200 to 0.8800",
        "logistic          0.8000, 0.7700 to 0.8300  left out: it hardly moves the average",
        "trees                                       left out: no time left",
    ]
    promised = "AUC 0.8700, 95% interval 0.8500 to 0.8900"
    assert f"promised before: {promised}; the test rows fall short of it, beyond chance" in said
    assert said[-1] == "1 label worth checking: see the report; the first is 'yes' of row 1,234"
