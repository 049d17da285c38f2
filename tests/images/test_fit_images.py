"""From pictures on disk to a model with its report, by the command and by the classifier."""

import base64
import collections
import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from torch import nn

import aucmax
from aucmax import checkpoint
from aucmax.cli import main
from aucmax.images import ImageClassifier, fit_images, sheets
from aucmax.images.networks import make_network
from aucmax.images.split import join, keep_apart
from aucmax.judge.evaluation import Evaluation
from aucmax.judge.multilabel import read_evaluation
from aucmax.judge.training import training
from aucmax.models.standardize import moments

RANKS = Path(__file__).parents[1] / "helpers" / "ranks_images.py"
SMALL = ["--size", "8", "--quality", "fast", "--device", "cpu"]


def write(path, level, random):
    """Noise around a level of grey, brighter to the right."""
    slope = np.linspace(0, 60, 8)[None, :, None]
    pixels = level + slope + random.integers(0, 60, size=(8, 8, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def write_scans(place, healthy, sick):
    """A folder of each, the sick a little brighter."""
    random = np.random.default_rng(0)
    for label, count, level in (("healthy", healthy, 80), ("sick", sick, 110)):
        for number in range(count):
            write(place / label / f"{number}.png", level, random)
    return place


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_scans(tmp_path_factory.mktemp("data") / "scans", healthy=60, sick=20)


@pytest.fixture(scope="module")
def fitted(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "model"
    store = out.with_name("store")
    options = {"size": 8, "quality": "fast", "device": "cpu"}
    return fit_images(folder, out=out, store=store, progress=False, **options)


def run(*arguments):
    main([str(x) for x in arguments])


# ---- What belongs together -----------------------------------------------------------------------


def test_sets_that_share_a_row_are_one():
    assert join([1, 2, 3, 4, 4], ["a", "a", "b", "b", "c"]).tolist() == [0, 0, 1, 1, 1]
    assert join([3, 1, 3], None).tolist() == [0, 1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_a_share_of_every_class_is_kept_apart_and_no_set_is_cut(seed):
    random = np.random.default_rng(seed)
    together = random.integers(0, 120, size=400)
    classes = (random.uniform(size=400) < 0.1).astype(int)
    train, held = keep_apart(np.eye(2, dtype=int)[classes], together, 0.25, seed, ["no", "yes"])
    assert sorted([*train, *held]) == list(range(400))
    assert not {*together[train]} & {*together[held]}
    for label in (0, 1):
        of_label = (classes == label).sum()
        assert (classes[held] == label).sum() == pytest.approx(0.25 * of_label, abs=4)


def test_rows_that_have_several_classes_are_kept_apart_by_each():
    random = np.random.default_rng(0)
    together, has = (
        random.integers(0, 150, size=400),
        random.uniform(size=(400, 3)) < [0.05, 0.3, 1],
    )
    train, held = keep_apart(has.astype(int), together, 0.25, 0, ["rare", "some", "all"])
    assert sorted([*train, *held]) == list(range(400))
    assert not {*together[train]} & {*together[held]}
    for label, about in enumerate((2, 8, 30)):
        assert has[held, label].sum() == pytest.approx(0.25 * has[:, label].sum(), abs=about)


def test_a_class_of_one_set_cannot_be_on_both_sides():
    has = np.eye(2, dtype=int)[[0, 0, 0, 1, 1]]
    with pytest.raises(ValueError, match=r"found 2 of 'yes'; copies .* count once: 1"):
        keep_apart(has, np.array([0, 1, 2, 3, 3]), 0.4, 0, ["no", "yes"])


# ---- The command ---------------------------------------------------------------------------------


def test_the_model_ranks_pictures_that_it_has_not_seen(fitted):
    assert fitted.evaluation.labels == ("healthy", "sick")
    assert fitted.evaluation.parts["test"].counts == (12, 4)
    assert fitted.evaluation.auc.value > 0.8
    names = {path.name for path in fitted.folder.iterdir()}
    assert {"model.json", "model.safetensors", "report.html", "pictures.safetensors"} <= names


def test_the_report_shows_pictures_and_is_written_again_alike(fitted, capsys):
    page = fitted.report.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") > 20
    assert "Labelled “healthy”, scored highest" in page
    assert "Where the network looked" in page
    assert "<code>aucmax predict-images</code>" in page
    assert "<h1>Predicting “sick”</h1>" in page
    text = re.sub(r"<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert "test pictures" in text
    assert not re.search(r"\brows?\b", text, re.IGNORECASE)
    assert len(page) < 5_000_000
    fitted.report.unlink()
    run("report", fitted.folder)
    assert "The report is" in capsys.readouterr().out
    assert fitted.report.read_text(encoding="utf-8") == page


def test_the_report_says_which_weights_were_kept(fitted):
    step, score, iterate = kept = fitted.model.kept_
    (record,) = [x for x in fitted.model.history_ if x["step"] == step]
    assert (iterate, record["valid_auc_average"]) == ("average", score)
    history = fitted.evaluation.history
    assert training(history, "roc_auc").kept != kept  # the first of the highest
    assert Evaluation.read(fitted.folder).steady == kept
    page = " ".join(fitted.report.read_text(encoding="utf-8").split())
    said = (
        f"averaged weights with AUC {score:.4f} on the validation pictures at step {step}, one of"
    )
    assert said in page
    assert "kept unless a paired test sees it behind" in page


def test_pictures_in_the_report_are_those_of_the_files_and_fit_into_5_mb(tmp_path, capsys):
    """Noise, which takes the most bytes, of 200 pixels, though the network sees 8."""
    random, place = np.random.default_rng(0), tmp_path / "scans"
    for label, high, height in (("no", 200, 100), ("yes", 256, 200)):
        (place / label).mkdir(parents=True)
        for number in range(60):
            pixels = random.integers(0, high, size=(height, 200, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(place / label / f"{number}.bmp")
    out = tmp_path / "model"
    run("fit-images", place, "--out", out, "--time-limit", "1", "--test-share", "0.6", *SMALL)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert 1_000_000 < len(page) < 5_000_000
    found = [base64.b64decode(x) for x in re.findall(r"data:image/jpeg;base64,([^\"]*)", page)]
    assert {Image.open(io.BytesIO(x)).size for x in found} == {(160, 80), (160, 160)}
    for shown in sheets.read(out).looked:
        small = Image.open(io.BytesIO(shown.picture)).convert("L")
        whole = Image.open(place / shown.name).convert("L").resize(small.size)
        assert np.corrcoef(np.ravel(small), np.ravel(whole))[0, 1] > 0.9


def test_predictions_are_those_of_the_classifier(fitted, folder, tmp_path, capsys):
    run("predict-images", fitted.folder, folder, "--out", tmp_path / "p.csv")
    assert re.search(r"80 pictures: \d+ 'healthy', \d+ 'sick'", capsys.readouterr().err)
    lines = (tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == '"file","probability of sick","prediction"'
    assert lines[1].startswith('"healthy/0.png",')
    paths = [folder / name.split(",")[0].strip('"') for name in lines[1:]]
    model = ImageClassifier.load(fitted.folder)
    expected = model.predict_proba(paths)[:, 1]
    assert [float(x.split(",")[1]) for x in lines[1:]] == pytest.approx(expected, abs=1e-6)
    assert [x.split(",")[2].strip('"') for x in lines[1:]] == list(model.predict(paths))


def test_another_threshold_is_looked_up_on_the_pictures_that_judged(fitted, folder, capsys):
    run("predict-images", fitted.folder, folder, "--threshold", "recall=1")
    lines = [x.split(",") for x in capsys.readouterr().out.splitlines()[1:]]
    judged = fitted.evaluation
    least = judged.probability[judged.classes == 1].min()
    below = judged.probability[judged.probability < least].max(initial=0.0)
    threshold = (least + below) / 2
    assert threshold != pytest.approx(judged.threshold)
    assert all((label == '"sick"') == (float(p) >= threshold) for _, p, label in lines)
    assert len(lines) == 80


def test_a_table_names_files_groups_and_weights(folder, tmp_path, capsys):
    files = sorted(folder.rglob("*.png"))
    rows = [
        f"{path.relative_to(folder)},{int(path.parent.name == 'sick')},p{k // 4},{1 + k % 2}"
        for k, path in enumerate(files)
    ]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["file,ill,patient,w", *rows]) + "\n", encoding="utf-8")
    out = tmp_path / "model"
    with pytest.raises(SystemExit, match="2"):
        run("fit-images", table, "--images", folder, "--out", out)
    assert "labels.csv, one of file, ill, patient, w\n" in capsys.readouterr().err
    options = ["--group", "patient", "--weight", "w", "--time-limit", "1", "--out", out, *SMALL]
    run("fit-images", table, "--images", folder, "--target", "ill", *options)
    said = capsys.readouterr().out
    assert re.search(r"^AUC [01]\.\d{4}, 95% interval", said, re.MULTILINE)
    evaluation = Evaluation.read(out)
    assert evaluation.labels == ("0", "1")
    assert evaluation.weight_column == "w"
    assert "the interval of the AUC takes each as drawn whole" in said
    table = ["--images", folder, "--weight", "w", "--quiet", "--device", "cpu"]
    for more in (["--group", "patient"], []):
        run("evaluate-images", out, tmp_path / "labels.csv", *table, *more)
    whole, apart = capsys.readouterr().out.splitlines()
    assert whole.split(",")[0] == apart.split(",")[0]
    assert whole < apart  # the interval begins lower
    assert {*evaluation.weight.tolist()} == {1.0, 2.0}


def test_a_model_is_judged_by_other_pictures(fitted, folder, tmp_path, capsys):
    random, other = np.random.default_rng(7), tmp_path / "other"
    for label, count, level in (("Healthy", 12, 80), ("sick", 11, 110)):
        for number in range(count):
            write(other / label / f"{number}.png", level, random)
    run("evaluate-images", fitted.folder, other, "--device", "cpu")
    said = capsys.readouterr()
    assert said.out.startswith("23 pictures: 12 'healthy', 11 'sick'\nAUC ")
    assert "at the model's threshold: recall " in said.out
    assert "joined: 12 'Healthy' as 'healthy'" in said.err
    paths = sorted(other.rglob("*.png"))
    y = [path.parent.name == "sick" for path in paths]
    scores = ImageClassifier.load(fitted.folder).decision_function(paths)
    auc = roc_auc_score(y, scores)
    assert f"AUC {auc:.4f}, 95% interval" in said.out
    table = tmp_path / "labels.csv"
    rows = [f"{path},{path.parent.name},{1 + k % 3}" for k, path in enumerate(paths)]
    table.write_text("\n".join(["file,seen,w", *rows]) + "\n", encoding="utf-8")
    weight = ["--target", "seen", "--weight", "w"]
    run("evaluate-images", fitted.folder, table, "--quiet", "--device", "cpu", *weight)
    auc = roc_auc_score(y, scores, sample_weight=[1 + k % 3 for k in range(len(y))])
    assert capsys.readouterr().out.startswith(f"AUC {auc:.4f}, ")
    (other / "sick" / "cut.png").write_bytes(paths[-1].read_bytes()[:60])
    with pytest.raises(SystemExit):
        run("evaluate-images", fitted.folder, other)
    assert "found 1 broken (sick/cut.png: " in capsys.readouterr().err
    run("evaluate-images", fitted.folder, other, "--skip-broken", "--device", "cpu")
    again = capsys.readouterr()
    assert again.out == said.out
    assert "note: left out: 1 broken (sick/cut.png: " in again.err
    run("evaluate-images", fitted.folder, folder, "--device", "cpu")
    assert "note: 64 of 80 pictures are among those that the model" in capsys.readouterr().err


def test_a_dry_run_says_what_is_there_and_writes_nothing(folder, tmp_path, capsys, monkeypatch):
    place = tmp_path / "scans"
    for path in folder.rglob("*.png"):
        (place / path.parent.name).mkdir(parents=True, exist_ok=True)
        (place / path.parent.name / path.name).write_bytes(path.read_bytes())
    Image.new("RGB", (9, 12), "red").save(place / "sick" / "odd.png")
    (place / "sick" / "cut.png").write_bytes((place / "sick" / "0.png").read_bytes()[:60])
    (place / "healthy" / "again.png").write_bytes((place / "sick" / "0.png").read_bytes())
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(folder.parent))
    run("fit-images", "scans", "--dry-run", "--quiet")
    assert sorted(tmp_path.rglob("*")) == before
    assert [path.name for path in folder.parent.iterdir()] == ["scans"]
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
    assert capsys.readouterr().out == ""  # the first says it
    for path in place.glob("sick/[1-9]*.png"):
        path.unlink()
    (place / "sick" / "odd.png").unlink()
    with pytest.raises(SystemExit):
        run("fit-images", "scans", "--dry-run", "--quiet")
    assert "found 1 of 'sick'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (("healthy", "ill"), "folder must have the labels 'healthy', 'sick' alone, found 'ill'"),
        (("healthy",), "folder must have pictures of every label, found none of 'sick'"),
    ],
)
def test_pictures_of_other_labels_do_not_judge_a_model(labels, said, fitted, tmp_path, capsys):
    for label in labels:
        write(tmp_path / label / "1.png", 80, np.random.default_rng(0))
    with pytest.raises(SystemExit) as stop:
        run("evaluate-images", fitted.folder, tmp_path)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_a_folder_to_judge_by_leaves_all_others_to_train_on(folder, tmp_path, capsys):
    random, other = np.random.default_rng(7), tmp_path / "other"
    for label, count, level in (("healthy", 8, 80), ("sick", 29, 110)):
        for number in range(count):
            write(other / label / f"{number}.png", level, random)
    (other / "sick" / "again.png").write_bytes((folder / "sick" / "3.png").read_bytes())
    out = tmp_path / "model"
    options = [folder, "--out", out, "--store", tmp_path / "s", "--time-limit", "0.5", *SMALL]
    run("fit-images", *options, "--test", other)
    said = capsys.readouterr().out
    assert "note: 1 picture not trained on: " in said
    assert "note: 78.9% of the test pictures are 'sick', of those to train on 24.1%: " in said
    evaluation = Evaluation.read(out)
    assert evaluation.parts["test"].counts == (8, 30)
    both = np.add(evaluation.parts["train"].counts, evaluation.parts["valid"].counts)
    assert both.tolist() == [60, 19]
    run("evaluate-images", out, other, "--device", "cpu", "--quiet")
    assert f"AUC {evaluation.auc.value:.4f}, " in capsys.readouterr().out
    for more, found in (
        (["--test", other, "--test-share", "0.3"], "test_share must not be given with test"),
        (["--test", tmp_path / "none"], "test must be a folder or a table of labels, found none"),
        (["--test", folder], "source must have pictures of every label that are not those"),
    ):
        with pytest.raises(SystemExit) as stop:
            run("fit-images", *options, *more)
        assert stop.value.code == 2
        assert found in capsys.readouterr().err


def test_several_classes(folder, tmp_path):
    random = np.random.default_rng(1)
    for label, level in (("a", 20), ("b", 90), ("c", 160)):
        for number in range(20):
            write(tmp_path / "three" / label / f"{number}.png", level, random)
    options = {"size": 8, "quality": "fast", "time_limit": 3, "device": "cpu", "progress": False}
    fitted = fit_images(tmp_path / "three", out=tmp_path / "model", **options)
    assert fitted.evaluation.probability.shape == (12, 3)
    assert fitted.evaluation.auc.value > 0.8
    assert "Labelled “c”, but least like it" in fitted.report.read_text(encoding="utf-8")


def test_copies_are_kept_on_one_side(tmp_path):
    random, place = np.random.default_rng(0), tmp_path / "scans"
    for label, level in (("no", 80), ("yes", 110)):
        for number in range(20):
            write(place / label / f"{number}.png", level, random)
            copy = (place / label / f"{number}.png").read_bytes()
            (place / label / f"copy{number}.png").write_bytes(copy)
    options = {"size": 8, "quality": "fast", "time_limit": 0.5, "progress": False}
    fitted = fit_images(place, out=tmp_path / "model", device="cpu", **options)
    (note,) = (x for x in fitted.evaluation.notes if "show the same" in x)
    assert note.startswith("80 pictures show the same as another, 40 sets")
    assert all(count % 2 == 0 for part in fitted.evaluation.parts.values() for count in part.counts)


def test_broken_files_are_named_and_left_out_only_if_asked(folder, tmp_path, capsys):
    place = tmp_path / "scans"
    for path in folder.rglob("*.png"):
        (place / path.parent.name).mkdir(parents=True, exist_ok=True)
        (place / path.parent.name / path.name).write_bytes(path.read_bytes())
    (place / "sick" / "cut.png").write_bytes((folder / "sick" / "0.png").read_bytes()[:60])
    options = ["--out", tmp_path / "model", "--time-limit", "0.5", *SMALL]
    with pytest.raises(SystemExit) as stop:
        run("fit-images", place, *options)
    assert stop.value.code == 2
    assert "found 1 broken (sick/cut.png: " in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
    run("fit-images", place, "--skip-broken", *options)
    assert "note: left out: 1 broken (sick/cut.png: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none"], "source must be a folder or a table of labels, found none at none"),
        (["scans/sick"], "folder must hold a folder for each class"),
        (["scans", "--target", "ill"], "target must go with a table of labels"),
        (["scans", "--size", "4"], "size must be an integer >= 8, found 4"),
        (["scans", "--model", "resnet999"], "resnet20"),
        (["scans", "--positive", "ill"], "positive must be"),
        (["scans", "--test-share", "1.5"], "test_share must be a share between 0 and 1"),
        (["scans", "--test", "scans", "--test-share", "0.3"], "test_share must not be given with"),
        (["scans", "--metric", "luck"], "metric must be one of"),
        (["scans", "--color-jitter", "2"], "color_jitter must be a number from 0 to 1"),
    ],
)
def test_bad_input_is_one_line(arguments, said, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for more in ([], ["--dry-run"]):
        with pytest.raises(SystemExit) as stop:
            run("fit-images", *arguments, "--out", tmp_path / "model", *more)
        error = capsys.readouterr().err.strip().splitlines()
        assert (stop.value.code, len(error)) == (2, 1)
        assert error[0].startswith("aucmax: error: ")
        assert said in error[0]
        assert not [*tmp_path.iterdir()]


def test_options_that_have_another_name_here_are_refused(folder):
    for name, ours in (("verbose", "progress"), ("random_state", "seed")):
        with pytest.raises(ValueError, match=rf"^{name} must be given as {ours}, found {name}=1$"):
            fit_images(folder, **{name: 1})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "file/model"], "out must be a folder that can be written to, found "),
        (["--out", "/proc/none/model"], "/proc/none/model.unfinished: No such file or directory"),
        (["--store", "/proc/none"], "store must be a folder that can be written to, found /proc"),
        (["--store", "file/store"], "file/store: Not a directory"),
        (["--store", "file"], "store must be a folder, found the file file"),
        (["--store", "mine"], "an empty one or one of decoded pictures, found 'notes.txt' in mine"),
    ],
)
def test_what_cannot_be_written_is_one_line(options, said, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(SystemExit) as stop:
        run("fit-images", folder, "--out", "model", "--store", "store", *options, *SMALL)
    error = capsys.readouterr().err.strip().splitlines()
    assert (stop.value.code, len(error)) == (2, 1)
    assert said in error[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine"]


def test_predictions_make_their_folder_or_say_that_they_cannot(fitted, folder, tmp_path, capsys):
    run("predict-images", fitted.folder, folder / "sick", "--out", tmp_path / "a" / "b" / "p.csv")
    assert (tmp_path / "a" / "b" / "p.csv").exists()
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        run("predict-images", fitted.folder, folder / "sick", "--out", "/proc/none/p.csv")
    assert stop.value.code == 2
    assert "its folder, must be a folder that can be written to" in capsys.readouterr().err


def test_dicom_is_said_to_be_converted(fitted, tmp_path, capsys):
    for label in ("healthy", "sick"):
        (tmp_path / "scans" / label).mkdir(parents=True)
        (tmp_path / "scans" / label / "1.dcm").write_bytes(bytes(128) + b"DICM" + bytes(40))
    table = tmp_path / "labels.csv"
    table.write_text("file,label\nhealthy/1.dcm,0\nsick/1.dcm,1\n", encoding="utf-8")
    of_table = [table, "--images", tmp_path / "scans", "--target", "label"]
    for given_source, said in (
        ([tmp_path / "scans"], "found 2 .dcm in "),
        (of_table, "2 broken (healthy/1.dcm: DICOM, which is to be written as PNG first"),
    ):
        with pytest.raises(SystemExit) as stop:
            run("fit-images", *given_source, "--out", tmp_path / "model", *SMALL)
        assert stop.value.code == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert said in error
        assert "for example with pydicom" in error


def test_a_killed_fit_goes_on_and_ends_with_the_same_bits(fitted, folder, tmp_path):
    out = tmp_path / "model"
    options = [folder, "--out", out, "--store", tmp_path / "store", *SMALL]
    command = [sys.executable, "-m", "aucmax", "fit-images", *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not [*tmp_path.glob("model.unfinished/*/*/2/*.safetensors")]:  # in the second phase
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert not out.exists()
    run("fit-images", *options, "--quiet")
    assert not [*tmp_path.glob("model.unfinished")]
    name = "model.safetensors"
    assert (out / name).read_bytes() == (fitted.folder / name).read_bytes()


@pytest.mark.ranks
def test_ranks_train_together_and_the_first_writes(tmp_path):
    """Of 208 pictures 141 are trained on, an eighth of which, a batch, is odd."""
    folder = write_scans(tmp_path / "scans", healthy=160, sick=48)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [str(RANKS), str(folder), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The model is in") == 1
    assert sum(ImageClassifier.load(tmp_path / "model").counts_["train"]) // 8 == 17
    assert not [*tmp_path.glob("*.unfinished"), *tmp_path.glob("aucmax-*")]
    name = "model.safetensors"
    assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


# ---- The classifier ------------------------------------------------------------------------------


def test_the_classifier_has_the_manners_of_scikit_learn(folder, tmp_path, monkeypatch, capsys):
    paths = sorted(folder.rglob("*.png"))
    y = np.array([path.parent.name == "sick" for path in paths])
    model = clone(ImageClassifier(size=8, quality="fast", time_limit=3, device="cpu"))
    assert model.fit(paths, y) is model
    p = model.predict_proba(paths)
    assert p.shape == (80, 2)
    assert model.score(paths, y) == pytest.approx(roc_auc_score(y, p[:, 1]))
    for wrong in (str(paths[0]), paths[0], pd.DataFrame({"p": paths}), [1.5]):
        with pytest.raises(ValueError, match="X must be a list of paths"):
            model.predict(wrong)
    assert p.sum(axis=1) == pytest.approx(1)
    assert roc_auc_score(y, p[:, 1]) > 0.8
    model.save(tmp_path / "model")
    again = ImageClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(paths), model.decision_function(paths))
    assert again.classes_.tolist() == [False, True]
    assert aucmax.ImageClassifier is ImageClassifier
    monkeypatch.setattr("aucmax.checkpoint.__version__", "99.1.0")
    model.save(tmp_path / "newer")
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=r"newer was written by aucmax 99\.1\.0"):
        ImageClassifier.load(tmp_path / "newer")
    tensors, notes = checkpoint.load_tensors(tmp_path / "model", "model")
    notes["options"]["sharpness"] = 1
    checkpoint.save_tensors(tmp_path / "model", "model", tensors, notes)
    with pytest.raises(SystemExit) as stop:
        run("predict-images", tmp_path / "model", folder)
    assert stop.value.code == 2
    assert "knows, found ['sharpness'], of aucmax" in capsys.readouterr().err
    for unfitted in (clone(model).score, clone(model).auc_by_label):
        with pytest.raises(NotFittedError):
            unfitted(paths, y)


def test_models_of_tables_and_pictures_are_told_apart(fitted, tmp_path, capsys):
    with pytest.raises(ValueError, match=r"found one of pictures in .*: predict-images"):
        aucmax.AUCClassifier.load(fitted.folder)
    with pytest.raises(SystemExit) as stop:
        run("predict-images", tmp_path, tmp_path)
    assert stop.value.code == 2
    assert (
        "model must be a folder that fit-images made, found no model.json"
        in capsys.readouterr().err
    )


def test_a_changed_byte_of_a_model_is_an_error(fitted, tmp_path):
    for name in ("model.json", "model.safetensors"):
        (tmp_path / name).write_bytes((fitted.folder / name).read_bytes())
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        ImageClassifier.load(tmp_path)


def test_a_network_of_your_own(folder, tmp_path):
    def make(outputs):
        return nn.Sequential(
            aucmax.models.Standardize(128, 64), nn.Flatten(), nn.Linear(192, outputs)
        )

    paths = sorted(folder.rglob("*.png"))
    y = [path.parent.name for path in paths]
    options = {"size": 8, "quality": "fast", "time_limit": 1, "device": "cpu"}
    model = ImageClassifier(make, **options).fit(paths, y)
    model.save(tmp_path)
    with pytest.raises(ValueError, match="model must be given"):
        ImageClassifier.load(tmp_path)
    again = ImageClassifier.load(tmp_path, make)
    np.testing.assert_array_equal(again.predict(paths), model.predict(paths))


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Pictures that are bright or not, and red or not, which 30 of 90 do not tell."""
    random, place = np.random.default_rng(3), tmp_path_factory.mktemp("several")
    y = pd.DataFrame({"bright": random.integers(0, 2, 90), "red": random.integers(0, 2, 90)})
    y = y.astype(float)
    paths = [place / f"{number}.png" for number in range(90)]
    for path, bright, red in zip(paths, y.bright, y.red, strict=True):
        pixels = 60 + 40 * bright + random.integers(0, 60, (8, 8, 3))
        pixels[:, :, 0] += int(50 * red)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    known = y.copy()
    known.loc[:29, "red"] = np.nan
    return paths, known, y


@pytest.mark.parametrize("most_bytes", [0, 2**30])
def test_several_labels(several, most_bytes, tmp_path, monkeypatch):
    paths, known, whole = several
    monkeypatch.setattr("aucmax.images.classifier.MOST_BYTES", most_bytes)
    monkeypatch.setattr("aucmax.images.classifier.cores", lambda: 0)  # in this process
    options = {"size": 8, "quality": "fast", "time_limit": 3, "device": "cpu", "random_state": 0}
    model = ImageClassifier(**options).fit(paths, known)
    assert (model.task_, model.classes_.tolist()) == ("multilabel", ["bright", "red"])
    counts = np.array([model.counts_["train"], model.counts_["valid"]])
    expected = [*(known == 1).sum(), *(known == 0).sum()]
    assert counts.sum(axis=0).tolist() == expected
    assert (counts > 0).all()
    p = model.predict_proba(paths)
    assert p.shape == (90, 2)
    assert ((p >= model.threshold_) == model.predict(paths)).all()
    found = model.auc_by_label(paths, known)
    for k, label in enumerate(known):
        there = known[label].notna()
        auc = roc_auc_score(known[label][there], p[there, k])
        assert found[label].value == pytest.approx(auc)
        assert found[label].low < auc <= found[label].high
        assert auc > 0.8
    assert model.score(paths, known) == pytest.approx(np.mean([x.value for x in found.values()]))
    assert model.score(paths, whole) > 0.8  # also of what training was not told
    assert model.auc_by_label(paths, known[["red", "bright"]]) == found
    assert model.score(paths, known[["red", "bright"]]) == model.score(paths, known.to_numpy())
    with pytest.raises(ValueError, match=r"\['bright', 'red'\], found \['bright', 'dark'\]"):
        model.score(paths, known.rename(columns={"red": "dark"}))
    with pytest.warns(UserWarning, match="nan"):
        lone = model.auc_by_label(paths, known.assign(red=1))
    assert lone["bright"] == found["bright"]
    assert np.isnan(lone["red"].value)
    model.save(tmp_path)
    again = ImageClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(paths), p)
    np.testing.assert_array_equal(again.predict(paths), model.predict(paths))


# ---- Several labels, by the command --------------------------------------------------------------


@pytest.fixture(scope="module")
def table(several):
    """The same as a table, of patients with two pictures each."""
    paths, known, _ = several
    words = known.bright.map({1: "yes", 0: "No"}), known.red.map({1: "1.0", 0: "0"}).fillna("")
    each = enumerate(zip(paths, *words, strict=True))
    rows = [f"{path.stem},{bright},{red},p{k // 2}" for k, (path, bright, red) in each]
    place = paths[0].parent / "labels.csv"
    place.write_text("\n".join(["file,bright,red,patient", *rows]) + "\n", encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def by_label(table, tmp_path_factory):
    """A model that the command has made, what it said, and where it is."""
    out = tmp_path_factory.mktemp("labels") / "model"
    columns = ["--target", "bright", "red", "--group", "patient", "--test-share", "0.4"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        run("fit-images", table, *columns, "--out", out, "--store", out.with_name("store"), *SMALL)
    return out, said.getvalue()


def test_each_label_is_judged_by_the_pictures_that_know_it(by_label, several):
    out, said = by_label
    judged, known = read_evaluation(out), several[1]
    assert [x.target for x in judged.by_label] == ["bright", "red"]
    assert "note: labels that are not known, of 90 rows: 30 of 'red'" in said
    assert f"AUC {judged.mean_auc:.4f}, the mean of 2 labels\n" in said
    assert judged.mean_auc == pytest.approx(np.mean([x.auc.value for x in judged.by_label]))
    assert judged.mean_auc > 0.8
    counts = np.array([[x.parts[part].counts for part in x.parts] for x in judged.by_label])
    for label, found, x in zip(known, counts, judged.by_label, strict=True):
        whole = (known[label] == 0).sum(), (known[label] == 1).sum()
        assert found.sum(axis=0).tolist() == list(whole)  # each picture in one part
        assert roc_auc_score(x.classes, x.probability) == pytest.approx(x.auc.value)
        negatives, positives = x.parts["test"].counts
        line = rf"{label} +{x.auc.value:.4f} +{x.auc.low:.4f} to {x.auc.high:.4f} +"
        assert re.search(line + rf"{x.average_precision:.4f} +{positives} +{negatives}\n", said)
    assert judged.rows["fit"] + judged.rows["test"] == 90
    assert judged.rows["test"] % 2 == 0  # no patient is cut


def test_the_report_has_a_section_per_label(by_label, table, capsys):
    out, _ = by_label
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<h1>Predicting “bright” and “red”</h1>" in page
    assert f"{100 * read_evaluation(out).mean_auc:.1f} of 100 cases" in page
    for k, label in enumerate(("bright", "red")):
        assert f'<section id="label{k}">\n<h2>“{label}”</h2>' in page
        assert f"Labelled “no {label}”, scored highest" in page
    shown = sheets.read(out).mistakes
    assert page.count("data:image/png;base64,") == sum(map(len, shown)) == 36
    numbers = pd.read_csv(table, dtype={"file": str}).set_index("file")
    for k, label in enumerate(("bright", "red")):
        for x in [*shown[2 * k], *shown[2 * k + 1]]:
            word = str(numbers[label][x.name.removesuffix(".png")])
            assert word in (("No", "0.0"), ("yes", "1.0"))[x.label]
        for has, sheet in enumerate(shown[2 * k : 2 * k + 2]):
            p = [x.probability for x in sheet]
            assert p == sorted(p, reverse=not has)
            assert {x.label for x in sheet} == {has}
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    (out / "report.html").unlink()
    run("report", out)
    assert (out / "report.html").read_text(encoding="utf-8") == page


def test_a_report_of_many_labels_fits_into_5_mb(tmp_path, monkeypatch):
    """Noise, which takes the most bytes, and more labels than have pictures."""
    monkeypatch.setattr("aucmax.images.classifier.LEAST_STEPS", {"fast": 4})
    monkeypatch.setattr("aucmax.images.classifier.EPOCHS", {"fast": 1})
    random = np.random.default_rng(0)
    y = pd.DataFrame(random.integers(0, 2, (60, 70))).add_prefix("finding ")
    for number in range(60):
        pixels = random.integers(0, 256, size=(160, 160, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.bmp")
    y.to_csv(tmp_path / "labels.csv", index_label="file")
    columns = {"target": y.columns.tolist(), "store": tmp_path / "store", "progress": False}
    options = {"size": 8, "quality": "fast", "device": "cpu", "workers": 1}
    made = fit_images(tmp_path / "labels.csv", out=tmp_path / "model", **columns, **options)
    shown = [len(sheet) for sheet in sheets.read(made.folder).mistakes]
    assert collections.Counter(shown) == {0: 20, 1: 120}
    pictures = zip(shown[::2], made.evaluation.by_label, strict=True)
    lowest = [x.auc.value for count, x in pictures if count]
    assert max(lowest) <= made.evaluation.best_first[9].auc.value
    assert 3_000_000 < made.report.stat().st_size < 5_000_000


def test_predictions_have_columns_for_each_label(by_label, several, tmp_path, capsys):
    (out, _), (paths, _, _) = by_label, several
    run("predict-images", out, paths[0].parent, "--out", tmp_path / "p.csv")
    found, model = pd.read_csv(tmp_path / "p.csv"), ImageClassifier.load(out)
    columns = [f"{x} of {label}" for label in ("bright", "red") for x in PREDICTED]
    assert found.columns.tolist() == ["file", *columns]
    files = [paths[0].parent / name for name in found.file]
    np.testing.assert_allclose(found[columns[::2]], model.predict_proba(files), atol=1e-6)
    assert (found[columns[1::2]].to_numpy() == model.predict(files)).all()
    counts = found[columns[1::2]].sum().tolist()
    assert f"90 pictures: {counts[0]} 'bright', {counts[1]} 'red'" in capsys.readouterr().err
    run("predict-images", out, paths[0].parent, "--threshold", "recall=1")
    again = pd.read_csv(io.StringIO(capsys.readouterr().out))
    for x in read_evaluation(out).by_label:
        least = x.probability[x.classes == 1].min()
        surely = again[f"probability of {x.target}"] >= least
        assert again[f"prediction of {x.target}"][surely].all()


PREDICTED = ("probability", "prediction")


def test_a_model_of_several_labels_is_judged_by_other_pictures(by_label, several, table, capsys):
    (out, _), (paths, known, _) = by_label, several
    run("evaluate-images", out, table, "--group", "patient", "--device", "cpu")
    said = capsys.readouterr()
    model = ImageClassifier.load(out)
    auc = {label: x.value for label, x in model.auc_by_label(paths, known).items()}
    assert said.out.startswith(f"90 pictures\nAUC {np.mean([*auc.values()]):.4f}, the mean of 2")
    fitted_to = read_evaluation(out).rows["fit"]
    assert f"note: {fitted_to} of 90 pictures are among those" in said.err
    run("evaluate-images", out, table, "--target", "red", "--device", "cpu", "--quiet")
    assert capsys.readouterr().out == f"AUC {auc['red']:.4f}, the mean of 1 label\n"


def test_a_dry_run_counts_what_is_known_of_each_label(table, several, tmp_path, capsys):
    paths, known, _ = several
    more = known.bright[[0, 1]].map({1: "yes", 0: "no"}).tolist()
    more[0] = "no" if more[0] == "yes" else "yes"
    for k, bright in enumerate(more):  # copies, of which the first contradicts
        (tmp_path / f"copy{k}.png").write_bytes(paths[k].read_bytes())
        more[k] = f"{tmp_path}/copy{k}.png,{bright},1,p90\n"
    text = table.read_text(encoding="utf-8") + "".join(more)
    (tmp_path / "labels.csv").write_text(text, encoding="utf-8")
    columns = ["--images", table.parent, "--target", "bright", "red", "--size", "8"]
    given = [tmp_path / "labels.csv", *columns, "--group", "patient"]
    run("fit-images", *given, "--dry-run", "--quiet")
    said = capsys.readouterr().out
    assert said.startswith("92 pictures: ")
    patients = pd.read_csv(tmp_path / "labels.csv").patient.value_counts()
    assert f"{len(patients)} groups, none of them cut, of up to {patients.max()} pictures" in said
    assert f", {int((known.red == 1).sum()) + 2} 'red = 1', " in said
    assert "4 pictures show the same as another, 2 sets, 1 of them with labels that differ" in said
    assert "to be checked (0.png = " in said


def test_pictures_of_several_labels_to_judge_by(table, several, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("aucmax.images.classifier.LEAST_STEPS", {"fast": 4})
    monkeypatch.setattr("aucmax.images.classifier.EPOCHS", {"fast": 1})
    head, *rows = table.read_text(encoding="utf-8").splitlines()
    for name, some in (("train", rows[:62]), ("test", rows[60:])):
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *some]) + "\n", encoding="utf-8")
    source = [tmp_path / "train.csv", "--test", tmp_path / "test.csv", "--images", table.parent]
    run("fit-images", *source, "--target", "bright", "red", "--out", tmp_path / "model", *SMALL)
    assert "note: 2 pictures not trained on: " in capsys.readouterr().out
    judged = read_evaluation(tmp_path / "model")
    assert judged.rows == {"fit": 60, "test": 30}
    assert sum(judged.by_label[1].parts["test"].counts) == 30


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "bright", "patient"], "found 'p0' in row 1 of 'patient', the first being 1"),
        (["--target", "bright", "rad"], "target 2 must be a column of "),
        (["--target", "red", "red"], "target 2 must be another column than the target"),
        (["--target", "bright", "red", "--positive", "1"], "positive must go with one column of"),
        (["--target", "bright", "red", "--mixup", "0.2"], "mixup must be 0 for several labels"),
    ],
)
def test_several_columns_that_cannot_be_used(arguments, said, table, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        run("fit-images", table, *arguments, "--out", tmp_path / "model", *SMALL)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert not (tmp_path / "model").exists()


def test_a_model_of_one_label_is_judged_by_one_column(fitted, table, capsys):
    with pytest.raises(SystemExit) as stop:
        run("evaluate-images", fitted.folder, table, "--target", "bright", "red")
    assert stop.value.code == 2
    assert "target must be one column, as the model's is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "--onnx", "m.onnx"], "model must give each picture one label to be exported"),
        (["evaluate-images", "labels.csv", "--target", "edema"], "target must be labels of the"),
        (["evaluate-images", "."], "source must be a table, for the model has several labels"),
    ],
)
def test_what_models_of_several_labels_cannot_do(arguments, said, by_label, table, capsys):
    command, *more = arguments
    more = [str(table) if x == "labels.csv" else x for x in more]
    with pytest.raises(SystemExit) as stop:
        run(command, by_label[0], *more)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_pictures_without_a_label_are_left_out(several, monkeypatch):
    paths, known, _ = several
    monkeypatch.setattr("aucmax.images.classifier.LEAST_STEPS", {"fast": 4})
    monkeypatch.setattr("aucmax.images.classifier.EPOCHS", {"fast": 1})
    known = known.copy()
    known.loc[:4, "bright"] = np.nan
    options = {"size": 8, "quality": "fast", "device": "cpu"}
    with pytest.warns(UserWarning, match="left out: 5 without a label"):
        model = ImageClassifier(**options).fit(paths, known.to_numpy())
    assert model.classes_.tolist() == [0, 1]
    assert sum(model.counts_["train"][::2]) + sum(model.counts_["valid"][::2]) == 85


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: y * 2, r"y must hold 0 and 1, .* found \[0.0, 2.0\] in column 'bright'"),
        (lambda y: y.assign(red=1.0), r"found \[1.0\] in column 'red'"),
        (lambda y: y[["red"]], r"two columns of labels or more, found shape \(90, 1\)"),
        (lambda y: y[:80], r"found shape \(80, 2\) for 90 pictures"),
        (lambda y: y.assign(red="yes"), "y must hold 0, 1 or NaN"),
    ],
)
def test_tables_of_labels_that_do_not_fit_are_refused(change, said, several):
    paths, known, _ = several
    with pytest.raises(ValueError, match=said):
        ImageClassifier(size=8, device="cpu").fit(paths, change(known))


def test_several_labels_are_not_blended(several):
    paths, known, _ = several
    with pytest.raises(ValueError, match=r"mixup must be 0 for several labels, found 0\.2"):
        ImageClassifier(size=8, device="cpu", mixup=0.2).fit(paths, known)


@pytest.mark.parametrize("weighted", [False, True])
def test_more_pictures_than_memory_is_for_are_read_as_they_come(weighted, folder, monkeypatch):
    paths = sorted(folder.rglob("*.png"))
    y = [path.parent.name for path in paths]
    monkeypatch.setattr("aucmax.images.classifier.MOST_BYTES", 0)
    monkeypatch.setattr("aucmax.images.classifier.cores", lambda: 0)  # in this process
    model = ImageClassifier(size=8, quality="fast", time_limit=1, device="cpu")
    weight = np.ones(80) if weighted else None
    assert model.fit(paths, y, weight).validation_score_ > 0.7


def test_colours_and_blends_change_the_training(folder, monkeypatch):
    paths = sorted(folder.rglob("*.png"))
    y = [path.parent.name for path in paths]
    monkeypatch.setattr("aucmax.images.classifier.LEAST_STEPS", {"fast": 4})
    monkeypatch.setattr("aucmax.images.classifier.EPOCHS", {"fast": 1})
    options = {"size": 8, "quality": "fast", "device": "cpu", "random_state": 1}
    scores = [
        ImageClassifier(**options, **more).fit(paths, y).decision_function(paths)
        for more in ({}, {"color_jitter": 0.2}, {"mixup": 0.5})
    ]
    assert len({x.tobytes() for x in scores}) == 3
    for name, wrong in (("color_jitter", 2), ("mixup", -1.0)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            ImageClassifier(**options, **{name: wrong}).fit(paths, y)


@pytest.mark.parametrize("most_bytes", [0, 2**30])
def test_without_room_on_the_disk_training_ends_with_the_same_bits(most_bytes, folder, monkeypatch):
    paths = sorted(folder.rglob("*.png"))
    y = [path.parent.name for path in paths]
    monkeypatch.setattr("aucmax.images.classifier.MOST_BYTES", most_bytes)
    monkeypatch.setattr("aucmax.images.classifier.cores", lambda: 0)  # in this process
    monkeypatch.setattr("aucmax.images.classifier.LEAST_STEPS", {"fast": 8})
    monkeypatch.setattr("aucmax.images.classifier.EPOCHS", {"fast": 1})
    options = {"size": 8, "quality": "fast", "device": "cpu", "random_state": 1}
    stored = ImageClassifier(**options).fit(paths, y)
    usage = collections.namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0))
    with pytest.warns(UserWarning, match=r"no room to keep 80 decoded pictures: .* 15,360 bytes"):
        streamed = ImageClassifier(**options).fit(paths, y)
    for name, x in stored.network_.state_dict().items():
        assert torch.equal(x, streamed.network_.state_dict()[name])
    scores = stored.decision_function(paths)
    np.testing.assert_array_equal(streamed.decision_function(paths), scores)


def test_the_command_says_that_the_disk_has_no_room(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("aucmax.images.classifier.LEAST_STEPS", {"fast": 4})
    monkeypatch.setattr("aucmax.images.classifier.EPOCHS", {"fast": 1})
    usage = collections.namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(7))
    options = {"size": 8, "quality": "fast", "device": "cpu", "progress": False}
    store = tmp_path / "store"
    fitted = fit_images(folder, out=tmp_path / "model", store=store, **options)
    said = (
        f"no room to keep 80 decoded pictures: they need 15,360 bytes, and the disk of {store} has "
        f"7 free; they are decoded anew whenever they are used"
    )
    assert said in fitted.evaluation.notes
    assert "no room to keep 80" in fitted.report.read_text(encoding="utf-8")


def test_weights_to_begin_with(fitted, folder, tmp_path):
    path, saved = (
        fitted.folder / "model.safetensors",
        load_file(fitted.folder / "model.safetensors"),
    )
    about = ([0.0] * 3, [1.0] * 3, torch.Generator().manual_seed(1))
    for outputs, differ in ((1, set()), (3, {"head.weight", "head.bias"})):
        with warnings.catch_warnings(record=True, action="always") as said:
            state = make_network("resnet20", outputs, *about, path).state_dict()
        assert {k for k in state if not torch.equal(state[k].cpu(), saved[k])} == differ
        begin = [f"{len(differ)} of {len(state)} weights are not in"] if differ else []
        assert [str(x.message).split(" in ")[0] + " in" for x in said] == begin
    with pytest.raises(ValueError, match="weights must be those of the model, found 0 of its 2"):
        make_network(lambda n: nn.Sequential(nn.Flatten(), nn.Linear(192, n)), 1, *about, path)
    paths = sorted(folder.rglob("*.png"))
    y = [path.parent.name for path in paths]
    options = {"size": 8, "quality": "fast", "time_limit": 1, "device": "cpu"}
    with pytest.raises(ValueError, match="weights must be a file, found none"):
        ImageClassifier(weights=tmp_path / "none.pth", **options).fit(paths, y)
    sizes = [x["lr"] for x in ImageClassifier(weights=path, **options).fit(paths, y).history_]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 10 * sizes[1] == 0.1


def test_layers_that_are_frozen_stay_as_they_are_and_scores_may_be_flat(folder):
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(192, 4).requires_grad_(False)
            self.last = nn.Linear(4, 1)

        def forward(self, x):
            return self.last(self.first(x.flatten(1) / 255).relu()).reshape(-1)

    made = Frozen()
    before = made.first.weight.clone()
    paths = sorted(folder.rglob("*.png"))
    y = [path.parent.name for path in paths]
    options = {"size": 8, "quality": "fast", "time_limit": 1, "device": "cpu"}
    model = ImageClassifier(lambda outputs: made, **options).fit(paths, y)
    assert torch.equal(model.network_.first.weight.cpu(), before)
    assert model.network_.last.weight.requires_grad
    assert model.decision_function(paths).shape == (80,)


def test_moments_are_exact(tmp_path):
    pixels = np.random.default_rng(0).integers(200, 231, size=(300, 64, 64, 3)).astype(np.uint8)
    mean, std = moments(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    assert mean == pytest.approx(pixels.mean((0, 1, 2), dtype=np.float64))
    assert std == pytest.approx(pixels.std((0, 1, 2), dtype=np.float64))


def test_groups_of_a_column_are_rows_not_labels_of_its_index(folder, monkeypatch):
    seen = {}

    def train_on(self, *given, is_grouped):
        seen.update(together=given[4], is_grouped=is_grouped)

    monkeypatch.setattr(ImageClassifier, "train_on", train_on)
    paths = pd.Series(sorted(folder.rglob("*.png")))
    y = np.array([path.parent.name for path in paths])
    order = np.random.default_rng(0).permutation(80)
    groups = pd.Series([f"p{k // 4}" for k in range(80)], index=order)
    ImageClassifier(size=8, device="cpu").fit(paths, y, groups=groups)
    assert seen["together"].tolist() == (np.arange(80) // 4).tolist()
    assert seen["is_grouped"]


def test_of_groups_no_test_chooses_but_the_highest_average(folder, monkeypatch):
    monkeypatch.setattr("aucmax.images.classifier.EPOCHS", {"fast": 1})
    monkeypatch.setattr("aucmax.images.classifier.LEAST_STEPS", {"fast": 160})
    paths = sorted(folder.rglob("*.png"))
    y = np.random.default_rng(2).integers(0, 2, size=80)  # by chance, so that values go up and down
    model = ImageClassifier(size=8, quality="fast", device="cpu", random_state=0)
    kept = model.fit(paths, y).kept_
    assert kept[::2] == (160, "average")
    assert kept.score < max(x["valid_auc_average"] for x in model.history_)
    kept = model.fit(paths, y, groups=range(80)).kept_
    assert kept[1:] == (max(x["valid_auc_average"] for x in model.history_), "average")
    _, valid = keep_apart(np.eye(2, dtype=int)[y], np.arange(80), 0.15, 0, ["0", "1"])
    as_predicted = model.score([paths[k] for k in valid], y[valid])
    assert model.validation_score_ == as_predicted != kept.score  # mirror images count


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": ["a"] * 79 + [None]}, "y must have no missing labels, found 1 of 80"),
        ({"y": np.r_[np.zeros(79), np.nan]}, "y must have no missing labels, found 1 of 80"),
        ({"y": ["a"] * 80}, "y must hold two labels or more"),
        ({"y": ["a", "b"]}, "y must have a label per picture"),
        ({"sample_weight": [1.0] * 79}, "sample_weight must have a finite number"),
        ({"sample_weight": [-1.0] * 80}, "sample_weight must have a finite number"),
        ({"groups": [1] * 81}, "groups must have a value for each of 80 rows"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change, said, folder):
    paths = sorted(folder.rglob("*.png"))
    given = {"y": [path.parent.name for path in paths], **change}
    with pytest.raises(ValueError, match=said):
        ImageClassifier(size=8, device="cpu").fit(paths, **given)


def test_few_pictures_to_judge_by(tmp_path):
    random = np.random.default_rng(0)
    for label, count, level in (("no", 10, 80), ("yes", 5, 120)):
        for number in range(count):
            write(tmp_path / "few" / label / f"{number}.png", level, random)
    options = {"size": 8, "quality": "fast", "time_limit": 0.5, "device": "cpu", "progress": False}
    with warnings.catch_warnings(action="ignore"):  # of how little there is to go by
        fitted = fit_images(tmp_path / "few", out=tmp_path / "model", **options)
    assert fitted.evaluation.parts["test"].rows == 3
    said = r"the time limit of 0.5 s ended the training after \d+ of [\d,]+ steps"
    assert any(re.fullmatch(said, note) for note in fitted.evaluation.notes)


def test_a_kill_while_the_model_is_written_is_put_right(fitted, folder, tmp_path):
    (tmp_path / "model.partial").mkdir()  # as a killed command leaves it
    (tmp_path / "model.partial" / "model.json.tmp").touch()
    (tmp_path / "model.unfinished").mkdir()
    options = {"size": 8, "quality": "fast", "time_limit": 0.5, "device": "cpu", "progress": False}
    again = fit_images(folder, out=tmp_path / "model", store=tmp_path / "store", **options)
    assert again.report.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "store"}


def test_another_runtime_gives_the_same_probabilities(fitted, folder, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    from onnx.reference import ReferenceEvaluator

    run("export", fitted.folder, "--onnx", tmp_path / "m.onnx")
    assert "The model is in" in capsys.readouterr().out
    paths = sorted(folder.rglob("*.png"))[::16]
    pixels = np.stack([np.asarray(Image.open(path)) for path in paths]).astype(np.float32)
    session = ReferenceEvaluator(str(tmp_path / "m.onnx"))
    (found,) = session.run(None, {"pixels": pixels.transpose(0, 3, 1, 2)})
    expected = ImageClassifier.load(fitted.folder).predict_proba(paths)
    np.testing.assert_allclose(found, expected, atol=1e-5)
