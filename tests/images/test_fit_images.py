"""The commands for pictures, from files on disk to a model, predictions and a report."""

import base64
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from image_data import (
    OPTIONS,
    SMALL,
    paths_and_labels,
    run,
    shorten,
    write_classes,
    write_picture,
    write_scans,
)
from PIL import Image
from process import LIMIT
from refusals import refused
from sklearn.metrics import roc_auc_score

import aucmax
from aucmax.images import ImageClassifier, fit_images, sheets
from aucmax.judge.evaluation import Evaluation
from aucmax.judge.training import training

HELPERS = Path(__file__).parents[1] / "helpers"
SILENT = {"workers": 1, "progress": False}


# ---- The model and its report --------------------------------------------------------------------


def test_fit_images_ranks_unseen_pictures(fitted):
    assert fitted.evaluation.labels == ("healthy", "sick")
    assert fitted.evaluation.parts["test"].counts == (12, 4)
    assert fitted.evaluation.auc.value > 0.8
    names = {path.name for path in fitted.folder.iterdir()}
    assert {"model.json", "model.safetensors", "report.html", "pictures.safetensors"} <= names


def test_report_shows_pictures_and_can_be_written_again(fitted, capsys):
    page = fitted.report.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") > 20
    assert "Labelled “healthy”, scored highest" in page
    assert "Where the network looked" in page
    assert "<h1>Predicting “sick”</h1>" in page
    text = re.sub(r"<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert "test pictures" in text
    assert not re.search(r"\brows?\b", text, re.IGNORECASE)
    fitted.report.unlink()
    run("report", fitted.folder)
    assert "The report is" in capsys.readouterr().out
    assert fitted.report.read_text(encoding="utf-8") == page


def test_kept_weights_are_those_of_the_record(fitted):
    step, score, iterate = kept = fitted.model.kept_
    (record,) = [x for x in fitted.model.history_ if x["step"] == step]
    assert record[f"valid_auc_{iterate}"] == score
    assert Evaluation.read(fitted.folder).steady == kept
    assert training(fitted.evaluation.history, "roc_auc", kept).kept == kept
    page = " ".join(fitted.report.read_text(encoding="utf-8").split())
    assert f"{iterate}d weights with AUC {score:.4f} on the validation pictures at step" in page


def test_pictures_in_the_report_are_those_of_the_files(tmp_path):
    """Noise, which takes the most bytes, of 200 pixels, though the network sees 8."""
    random, place = np.random.default_rng(0), tmp_path / "scans"
    for label, high, height in (("no", 200, 100), ("yes", 256, 200)):
        (place / label).mkdir(parents=True)
        for number in range(60):
            pixels = random.integers(0, high, size=(height, 200, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(place / label / f"{number}.bmp")
    out = tmp_path / "model"
    run("fit-images", place, "--out", out, "--test-share", "0.6", *SMALL)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert 1_000_000 < len(page) < 5_000_000
    found = [base64.b64decode(x) for x in re.findall(r"data:image/jpeg;base64,([^\"]*)", page)]
    assert {Image.open(io.BytesIO(x)).size for x in found} == {(160, 80), (160, 160)}
    for shown in sheets.read(out).looked:
        small = Image.open(io.BytesIO(shown.picture)).convert("L")
        whole = Image.open(place / shown.name).convert("L").resize(small.size)
        assert np.corrcoef(np.ravel(small), np.ravel(whole))[0, 1] > 0.9


def test_several_classes(tmp_path):
    write_classes(tmp_path / "three", seed=1, a=(20, 20), b=(20, 90), c=(20, 160))
    made = fit_images(tmp_path / "three", out=tmp_path / "model", **SILENT, **OPTIONS)
    assert made.evaluation.probability.shape == (12, 3)
    assert made.evaluation.auc.value > 0.8
    assert "Labelled “c”, but least like it" in made.report.read_text(encoding="utf-8")


def test_onnx_file_gives_the_same_probabilities(fitted, scans, tmp_path):
    pytest.importorskip("onnxscript")
    from onnx.reference import ReferenceEvaluator

    run("export", fitted.folder, "--onnx", tmp_path / "m.onnx")
    paths = paths_and_labels(scans)[0][::16]
    pixels = np.stack([np.asarray(Image.open(path)) for path in paths]).astype(np.float32)
    session = ReferenceEvaluator(str(tmp_path / "m.onnx"))
    (found,) = session.run(None, {"pixels": pixels.transpose(0, 3, 1, 2)})
    expected = ImageClassifier.load(fitted.folder).predict_proba(paths)
    np.testing.assert_allclose(found, expected, atol=1e-5)


# ---- predict-images ------------------------------------------------------------------------------


def test_predictions_are_those_of_the_classifier(fitted, scans, tmp_path, capsys):
    place = tmp_path / "new folder" / "p.csv"
    run("predict-images", fitted.folder, scans, "--out", place)
    assert re.search(r"80 pictures: \d+ 'healthy', \d+ 'sick'", capsys.readouterr().err)
    lines = place.read_text(encoding="utf-8").splitlines()
    assert lines[0] == '"file","probability of sick","prediction"'
    assert lines[1].startswith('"healthy/0.png",')
    paths = [scans / name.split(",")[0].strip('"') for name in lines[1:]]
    model = ImageClassifier.load(fitted.folder)
    expected = model.predict_proba(paths)[:, 1]
    assert [float(x.split(",")[1]) for x in lines[1:]] == pytest.approx(expected, abs=1e-6)
    assert [x.split(",")[2].strip('"') for x in lines[1:]] == list(model.predict(paths))


def test_predict_looks_a_threshold_up_on_the_test_pictures(fitted, scans, capsys):
    run("predict-images", fitted.folder, scans, "--threshold", "recall=1")
    lines = [x.split(",") for x in capsys.readouterr().out.splitlines()[1:]]
    judged = fitted.evaluation
    least = judged.probability[judged.classes == 1].min()
    below = judged.probability[judged.probability < least].max(initial=0.0)
    threshold = (least + below) / 2
    assert threshold != pytest.approx(judged.threshold)
    assert all((label == '"sick"') == (float(p) >= threshold) for _, p, label in lines)
    assert len(lines) == 80


# ---- Other sources of labels ---------------------------------------------------------------------


def test_table_of_files_groups_and_weights(scans, tmp_path, capsys):
    files = sorted(scans.rglob("*.png"))
    rows = [
        f"{path.relative_to(scans)},{int(path.parent.name == 'sick')},p{k // 4},{1 + k % 2}"
        for k, path in enumerate(files)
    ]
    table, out = tmp_path / "labels.csv", tmp_path / "model"
    table.write_text("\n".join(["file,ill,patient,w", *rows]) + "\n", encoding="utf-8")
    options = ["--target", "ill", "--group", "patient", "--weight", "w", "--out", out, *SMALL]
    run("fit-images", table, "--images", scans, *options)
    assert "the interval of the AUC takes each as drawn whole" in capsys.readouterr().out
    evaluation = Evaluation.read(out)
    assert evaluation.labels == ("0", "1")
    assert evaluation.weight_column == "w"
    assert {*evaluation.weight.tolist()} == {1.0, 2.0}
    options = ["--images", scans, "--weight", "w", "--quiet", "--device", "cpu"]
    for more in (["--group", "patient"], []):
        run("evaluate-images", out, table, *options, *more)
    whole, apart = capsys.readouterr().out.splitlines()
    assert whole.split(",")[0] == apart.split(",")[0]
    assert whole < apart  # the interval of whole patients begins lower


def test_test_folder_leaves_all_others_to_train_on(scans, tmp_path, capsys):
    other = write_scans(tmp_path / "other", healthy=8, sick=29, seed=7)
    shutil.copy(scans / "sick" / "3.png", other / "sick" / "again.png")
    out = tmp_path / "model"
    run("fit-images", scans, "--out", out, "--store", tmp_path / "s", "--test", other, *SMALL)
    said = capsys.readouterr().out
    assert "note: 1 picture not trained on: " in said
    assert "note: 78.9% of the test pictures are 'sick', of those to train on 24.1%: " in said
    evaluation = Evaluation.read(out)
    assert evaluation.parts["test"].counts == (8, 30)
    both = np.add(evaluation.parts["train"].counts, evaluation.parts["valid"].counts)
    assert both.tolist() == [60, 19]
    run("evaluate-images", out, other, "--device", "cpu", "--quiet")
    assert f"AUC {evaluation.auc.value:.4f}, " in capsys.readouterr().out
    said = refused(capsys, "fit-images", scans, "--test", scans, "--store", tmp_path / "s")
    assert said.startswith("source must have pictures of every label that are not those")


def test_copies_stay_on_one_side(tmp_path):
    place = write_classes(tmp_path / "scans", no=(20, 80), yes=(20, 110))
    for path in [*place.rglob("*.png")]:
        shutil.copy(path, path.with_name(f"copy{path.name}"))
    made = fit_images(place, out=tmp_path / "model", **SILENT, **OPTIONS)
    (note,) = (x for x in made.evaluation.notes if "show the same" in x)
    assert note.startswith("80 pictures show the same as another, 40 sets")
    assert all(count % 2 == 0 for part in made.evaluation.parts.values() for count in part.counts)


def test_broken_files_are_left_out_only_if_asked(scans, tmp_path, capsys):
    place = shutil.copytree(scans, tmp_path / "scans")
    (place / "sick" / "cut.png").write_bytes((scans / "sick" / "0.png").read_bytes()[:60])
    options = ["--out", tmp_path / "model", *SMALL]
    assert "found 1 broken (sick/cut.png: " in refused(capsys, "fit-images", place, *options)
    assert not (tmp_path / "model").exists()
    run("fit-images", place, "--skip-broken", *options)
    assert "note: left out: 1 broken (sick/cut.png: " in capsys.readouterr().out


def test_few_pictures_and_a_time_limit_are_noted(tmp_path, monkeypatch):
    shorten(monkeypatch, steps=10**6)
    place = write_classes(tmp_path / "few", no=(10, 80), yes=(5, 120))
    with warnings.catch_warnings(action="ignore"):  # of how little there is to go by
        made = fit_images(place, out=tmp_path / "model", time_limit=0.1, **SILENT, **OPTIONS)
    assert made.evaluation.parts["test"].rows == 3
    said = r"the time limit of 0.1 s ended the training after \d+ of [\d,]+ steps"
    assert any(re.fullmatch(said, note) for note in made.evaluation.notes)


def test_disk_without_room_is_noted(scans, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(7))
    store = tmp_path / "store"
    made = fit_images(scans, out=tmp_path / "model", store=store, **SILENT, **OPTIONS)
    (note,) = (x for x in made.evaluation.notes if "no room to keep 80 decoded pictures" in x)
    assert f"need 15,360 bytes, and the disk of {store} has 7 free" in note


# ---- evaluate-images -----------------------------------------------------------------------------


def test_evaluate_images_matches_sklearn(fitted, scans, tmp_path, capsys):
    other = write_classes(tmp_path / "other", seed=7, Healthy=(12, 80), sick=(11, 110))
    run("evaluate-images", fitted.folder, other, "--device", "cpu")
    said = capsys.readouterr()
    assert said.out.startswith("23 pictures: 12 'healthy', 11 'sick'\nAUC ")
    assert "at the model's threshold: recall " in said.out
    assert "joined: 12 'Healthy' as 'healthy'" in said.err
    paths, labels = paths_and_labels(other)
    y = [label == "sick" for label in labels]
    scores = ImageClassifier.load(fitted.folder).decision_function(paths)
    assert f"AUC {roc_auc_score(y, scores):.4f}, 95% interval" in said.out
    rows = [f"{path},{path.parent.name},{1 + k % 3}" for k, path in enumerate(paths)]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["file,seen,w", *rows]) + "\n", encoding="utf-8")
    options = ["--target", "seen", "--weight", "w", "--quiet", "--device", "cpu"]
    run("evaluate-images", fitted.folder, table, *options)
    auc = roc_auc_score(y, scores, sample_weight=[1 + k % 3 for k in range(len(y))])
    assert capsys.readouterr().out.startswith(f"AUC {auc:.4f}, ")
    (other / "sick" / "cut.png").write_bytes(paths[-1].read_bytes()[:60])
    assert "found 1 broken" in refused(capsys, "evaluate-images", fitted.folder, other)
    run("evaluate-images", fitted.folder, other, "--skip-broken", "--device", "cpu")
    again = capsys.readouterr()
    assert again.out == said.out
    assert "note: left out: 1 broken (sick/cut.png: " in again.err
    run("evaluate-images", fitted.folder, scans, "--device", "cpu")
    assert "note: 64 of 80 pictures are among those that the model" in capsys.readouterr().err


# ---- Dry run and mistakes ------------------------------------------------------------------------


def test_dry_run_counts_and_writes_nothing(scans, tmp_path, capsys, monkeypatch):
    place = shutil.copytree(scans, tmp_path / "scans")
    Image.new("RGB", (9, 12), "red").save(place / "sick" / "odd.png")
    (place / "sick" / "cut.png").write_bytes((place / "sick" / "0.png").read_bytes()[:60])
    shutil.copy(place / "sick" / "0.png", place / "healthy" / "again.png")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(scans.parent))
    run("fit-images", "scans", "--dry-run", "--quiet")
    assert sorted(tmp_path.rglob("*")) == before
    assert [path.name for path in scans.parent.iterdir()] == ["scans"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "82 pictures: 61 'healthy', 21 'sick'",
        "pixels, wide and high: 81 of 8 x 8, 1 of 9 x 12",
    ]
    notes = "\n".join(lines[2:])
    assert "broken files are an error unless --skip-broken" in notes
    assert "left out: 1 broken (sick/cut.png: " in notes
    assert "1 of them with labels that differ, to be checked (healthy/again.png = sick" in notes
    assert "2 sizes, 8 to 9 wide, are scaled to 32 x 32" in notes
    monkeypatch.setenv("RANK", "1")
    run("fit-images", "scans", "--dry-run", "--quiet")
    assert capsys.readouterr().out == ""  # the first rank says it
    for path in place.glob("sick/[1-9]*.png"):
        path.unlink()
    (place / "sick" / "odd.png").unlink()
    assert "found 1 of 'sick'" in refused(capsys, "fit-images", "scans", "--dry-run", "--quiet")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("none", "source must be a folder or a table of labels, found none"),
        ("scans --target ill", "target must go with a table of labels"),
        ("scans --size 4", "size must be an integer >= 8, found 4"),
        ("scans --model resnet999", "resnet20"),
        ("scans --test-share 1.5", "test_share must be a share between 0 and 1"),
        ("scans --test scans --test-share 0.3", "test_share must not be given with test"),
        ("scans --test none", "test must be a folder or a table of labels, found none"),
        ("scans --metric luck", "metric must be one of"),
        ("scans --color-jitter 2", "color_jitter must be a number from 0 to 1"),
        ("scans --out {file}/model", "out must be a folder that can be written to"),
        ("scans --store {file}/store", "Not a directory"),
        ("scans --store {file}", "store must be a folder, found the file"),
        ("scans --store {mine}", "found 'notes.txt' in"),
    ],
)
def test_fit_images_mistake_is_one_line(arguments, said, scans, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(scans.parent)
    (tmp_path / "file").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    words = arguments.format(file=tmp_path / "file", mine=tmp_path / "mine").split()
    places = {"--out": tmp_path / "model", "--store": tmp_path / "store"}
    places = [x for option, path in places.items() if option not in words for x in (option, path)]
    assert said in refused(capsys, "fit-images", *places, *SMALL, *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine"]


@pytest.mark.parametrize(("name", "ours"), [("verbose", "progress"), ("random_state", "seed")])
def test_fit_images_names_its_own_option(scans, name, ours):
    with pytest.raises(ValueError, match=rf"^{name} must be given as {ours}, found {name}=1$"):
        fit_images(scans, **{name: 1})


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (("healthy", "ill"), "folder must have the labels 'healthy', 'sick' alone, found 'ill'"),
        (("healthy",), "folder must have pictures of every label, found none of 'sick'"),
    ],
)
def test_evaluate_images_needs_the_labels_of_the_model(labels, said, fitted, tmp_path, capsys):
    for label in labels:
        write_picture(tmp_path / label / "1.png", 80, np.random.default_rng(0))
    assert said in refused(capsys, "evaluate-images", fitted.folder, tmp_path)


def test_dicom_files_are_to_be_converted(tmp_path, capsys):
    for label in ("healthy", "sick"):
        (tmp_path / "scans" / label).mkdir(parents=True)
        (tmp_path / "scans" / label / "1.dcm").write_bytes(bytes(128) + b"DICM" + bytes(40))
    table = tmp_path / "labels.csv"
    table.write_text("file,label\nhealthy/1.dcm,0\nsick/1.dcm,1\n", encoding="utf-8")
    of_table = [table, "--images", tmp_path / "scans", "--target", "label"]
    for source in ([tmp_path / "scans"], of_table):
        said = refused(capsys, "fit-images", *source, "--out", tmp_path / "model", *SMALL)
        assert "for example with pydicom" in said


# ---- Stopped, and several ranks ------------------------------------------------------------------


def test_killed_fit_resumes_bit_for_bit(fitted, scans, tmp_path):
    """SIGKILL in the second phase; what a kill leaves of a model being written is removed."""
    out = tmp_path / "model"
    options = [scans, "--out", out, "--store", tmp_path / "store", *SMALL]
    script = [sys.executable, HELPERS / "killed_command.py", "/2/", "1"]
    done = subprocess.run([*script, "fit-images", *options], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not out.exists()
    (tmp_path / "model.partial").mkdir()
    (tmp_path / "model.partial" / "model.json.tmp").touch()
    run("fit-images", *options, "--quiet")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "store"}
    name = "model.safetensors"
    assert (out / name).read_bytes() == (fitted.folder / name).read_bytes()


@pytest.mark.ranks
def test_ranks_train_together_and_the_first_writes(tmp_path):
    """Of 208 pictures 141 are trained on, an eighth of which, a batch, is odd."""
    folder = write_scans(tmp_path / "scans", healthy=160, sick=48)
    command = [sys.executable, HELPERS / "ranks_images.py", folder, tmp_path]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The model is in") == 1
    assert sum(ImageClassifier.load(tmp_path / "model").counts_["train"]) // 8 == 17
    assert not [*tmp_path.glob("*.unfinished"), *tmp_path.glob("aucmax-*")]
    name = "model.safetensors"
    assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


# ---- Model files ---------------------------------------------------------------------------------


def test_models_of_tables_and_pictures_are_told_apart(fitted, tmp_path, capsys):
    with pytest.raises(ValueError, match=r"found one of pictures in .*: predict-images"):
        aucmax.AUCClassifier.load(fitted.folder)
    assert "model must be a folder that fit-images made" in refused(
        capsys, "predict-images", tmp_path, tmp_path
    )


def test_changed_byte_of_a_model_is_an_error(fitted, tmp_path):
    for name in ("model.json", "model.safetensors"):
        shutil.copy(fitted.folder / name, tmp_path / name)
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        ImageClassifier.load(tmp_path)
