"""Pictures with several labels at once, by the classifier and by the commands."""

import collections
import contextlib
import io
import re

import numpy as np
import pandas as pd
import pytest
from image_data import OPTIONS, SMALL, linear_network, run
from PIL import Image
from refusals import refused
from sklearn.metrics import roc_auc_score

from aucmax.images import ImageClassifier, fit_images, sheets
from aucmax.judge.multilabel import read_evaluation


def quick(**options):
    return ImageClassifier(linear_network, **{**OPTIONS, "random_state": 0, "workers": 1} | options)


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


# ---- The classifier ------------------------------------------------------------------------------


@pytest.mark.parametrize("most_bytes", [0, 2**30])
def test_scores_by_label_match_sklearn(several, most_bytes, tmp_path, monkeypatch):
    paths, known, whole = several
    monkeypatch.setattr("aucmax.images.classifier.MOST_BYTES", most_bytes)
    monkeypatch.setattr("aucmax.images.classifier.cores", lambda: 0)  # in this process
    model = quick().fit(paths, known)
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
    again = ImageClassifier.load(tmp_path, linear_network)
    np.testing.assert_array_equal(again.predict_proba(paths), p)
    np.testing.assert_array_equal(again.predict(paths), model.predict(paths))


def test_pictures_without_a_label_are_left_out(several):
    paths, known, _ = several
    known = known.copy()
    known.loc[:4, "bright"] = np.nan
    with pytest.warns(UserWarning, match="left out: 5 without a label"):
        model = quick().fit(paths, known.to_numpy())
    assert model.classes_.tolist() == [0, 1]
    assert sum(model.counts_["train"][::2]) + sum(model.counts_["valid"][::2]) == 85


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: y * 2, r"found \[0.0, 2.0\] in column 'bright'"),
        (lambda y: y.assign(red=1.0), r"found \[1.0\] in column 'red'"),
        (lambda y: y[["red"]], r"found shape \(90, 1\)"),
        (lambda y: y[:80], r"found shape \(80, 2\) for 90 pictures"),
        (lambda y: y.assign(red="yes"), ""),
    ],
)
def test_labels_that_do_not_fit_raise(change, said, several):
    paths, known, _ = several
    with pytest.raises(ValueError, match=rf"^y must .*{said}"):
        quick().fit(paths, change(known))


def test_mixup_of_several_labels_raises(several):
    paths, known, _ = several
    with pytest.raises(ValueError, match="mixup must be 0"):
        quick(mixup=0.2).fit(paths, known)


# ---- The commands --------------------------------------------------------------------------------


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
    """A model that the command has made, and what it said."""
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


def test_report_has_a_section_per_label(by_label, table):
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


def test_report_of_many_labels_shows_pictures_of_the_worst(tmp_path):
    """Noise, which takes the most bytes, and more labels than have pictures."""
    random = np.random.default_rng(0)
    y = pd.DataFrame(random.integers(0, 2, (60, 70))).add_prefix("finding ")
    for number in range(60):
        pixels = random.integers(0, 256, size=(160, 160, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.bmp")
    y.to_csv(tmp_path / "labels.csv", index_label="file")
    columns = {"target": y.columns.tolist(), "store": tmp_path / "store", "progress": False}
    out = tmp_path / "model"
    made = fit_images(tmp_path / "labels.csv", out=out, workers=1, **columns, **OPTIONS)
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
    kinds = ("probability", "prediction")
    columns = [f"{kind} of {label}" for label in ("bright", "red") for kind in kinds]
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


def test_evaluate_images_gives_the_mean_of_labels(by_label, several, table, capsys):
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


def test_dry_run_counts_what_is_known_of_each_label(table, several, tmp_path, capsys):
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


def test_table_of_test_pictures(table, tmp_path, capsys):
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
        ("fit-images TABLE --target bright patient", "found 'p0' in row 1 of 'patient'"),
        ("fit-images TABLE --target bright rad", "target 2 must be a column of "),
        ("fit-images TABLE --target red red", "target 2 must be another column than the target"),
        ("fit-images TABLE --target bright red --positive 1", "positive must go with one column"),
        ("fit-images TABLE --target bright red --mixup 0.2", "mixup must be 0 for several labels"),
        ("export LABELS --onnx m.onnx", "model must give each picture one label"),
        ("evaluate-images LABELS TABLE --target edema", "target must be labels of the"),
        ("evaluate-images LABELS .", "source must be a table, for the model has several labels"),
        ("evaluate-images ONE TABLE --target bright red", "target must be one column"),
    ],
)
def test_mistake_is_one_line(arguments, said, by_label, fitted, table, tmp_path, capsys):
    places = {"TABLE": table, "LABELS": by_label[0], "ONE": fitted.folder}
    words = [places.get(word, word) for word in arguments.split()]
    if words[0] == "fit-images":
        words += ["--out", tmp_path / "model", *SMALL]
    assert said in refused(capsys, *words)
    assert not [*tmp_path.iterdir()]
