"""Folders written before the tree was laid out anew: models load, runs are refused by name."""

import csv
import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import aucmax
from aucmax.cli import main
from aucmax.images import sheets

BEFORE = Path(__file__).parent / "files" / "before"
MODELS = ["two_classes", "three_classes"]
SAME = {"rtol": 0, "atol": 1e-6}
"""Bits on the processor that wrote them; another one's matrix products round differently."""


def expected(name):
    return np.load(BEFORE / f"{name}.npy")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_the_same(name, tmp_path):
    out = tmp_path / "predicted.csv"
    main(["predict", str(BEFORE / name), str(BEFORE / f"{name}.csv"), "--out", str(out)])
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    model = aucmax.AUCClassifier.load(BEFORE / name)
    probability = expected(name)
    shown = model.classes_[1:] if len(model.classes_) == 2 else model.classes_
    found = [[float(row[f"probability of {label}"]) for label in shown] for row in rows]
    np.testing.assert_allclose(found, probability[:, -len(shown) :], **SAME)
    labels = probability.argmax(axis=1)
    if len(model.classes_) == 2:
        labels = (probability[:, 1] >= model.threshold_).astype(int)
    assert [row["prediction"] for row in rows] == list(model.classes_[labels])


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_whole_and_can_be_saved_again(name, tmp_path):
    model = aucmax.AUCClassifier.load(BEFORE / name)
    written = json.loads((BEFORE / name / "model.json").read_text("utf-8"))["classifier"]
    assert model.validation_auc_ == written["validation_auc"]
    assert model.rows_ == written["rows"]
    assert model.history_ == written["history"]
    assert (model.objective_, model.candidates_) == (written["options"]["objective"], ())
    assert {key: model.get_params()[key] for key in written["options"]} == written["options"]
    again = aucmax.AUCClassifier.load(model.save(tmp_path / "again"))
    assert again.encoder_.to_dict() == model.encoder_.to_dict() == written["encoder"]


@pytest.mark.parametrize("name", MODELS)
def test_its_report_can_be_written_again(name, tmp_path, capsys):
    folder = shutil.copytree(BEFORE / name, tmp_path / "model")
    main(["report", str(folder)])
    assert "report.html" in capsys.readouterr().out
    page = (folder / "report.html").read_text("utf-8")
    assert all(label in page for label in aucmax.AUCClassifier.load(folder).classes_)


def written_by():
    """What ``write.py`` defines."""
    return runpy.run_path(str(BEFORE / "write.py"))


def arguments(out):
    """Those of the call that began the runs."""
    return written_by()["run_arguments"](out)


def test_a_model_of_pictures_predicts_the_same_and_says_that_it_has_no_report(tmp_path, capsys):
    folder = BEFORE / "pictures"
    model = aucmax.ImageClassifier.load(folder, written_by()["small_network"])
    probability = model.predict_proba(written_by()["draw"](tmp_path / "scans"))
    np.testing.assert_allclose(probability, expected("pictures"), **SAME)
    assert sheets.read_fitted_to(folder) == frozenset()
    with pytest.raises(SystemExit) as stop:
        main(["report", str(shutil.copytree(folder, tmp_path / "model"))])
    assert stop.value.code == 2
    assert "fit again for a report" in capsys.readouterr().err


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("[!.]*") if p.is_file()}


def test_a_killed_run_is_refused_by_name_and_left_as_it_is(tmp_path):
    out = shutil.copytree(BEFORE / "killed_run", tmp_path / "run")
    with pytest.raises(ValueError, match=r"^out must be a new folder, .* another version"):
        aucmax.fit(**arguments(out), time_limit=0.1)
    assert contents(out) == contents(BEFORE / "killed_run")


def test_the_weights_of_a_finished_run_load():
    given = arguments(None)
    model = given["model"]
    aucmax.load_weights(model, BEFORE / "finished_run")
    scores = model.eval()(torch.from_numpy(given["valid"][0])).detach().numpy()
    np.testing.assert_allclose(scores, expected("finished_run"), **SAME)
