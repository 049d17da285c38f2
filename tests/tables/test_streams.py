"""Tables larger than memory: every row once, those kept apart never."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import pytest
from process import LIMIT

from aucmax import AUCClassifier
from aucmax.cli import main
from aucmax.metrics import roc_auc
from aucmax.tables import (
    csv_files,
    evaluate_file,
    fit_stream,
    predict_file,
    preview_file,
    preview_stream,
    streaming,
)
from aucmax.tables.files import read
from aucmax.tables.streaming import Batches, RowGroups

REAL_FILES = Path(__file__).parents[1] / "files" / "tables"
RANKS = Path(__file__).parents[1] / "helpers" / "ranks_stream.py"
QUICK = {"members": 2, "width": 16, "n_jobs": 1, "progress": False}


def write_parts(folder, rows=6000, parts=3, kind="parquet"):
    """Files whose rows are numbered, with a target that x tells in part."""
    random = np.random.default_rng(0)
    y = random.random(rows) < 0.2
    table = pa.table(
        {
            "row": np.arange(rows),
            "x": random.normal(y * 1.5),
            "city": np.where(random.random(rows) < 0.5, "Oslo", "Rome"),
            "y": np.where(y, "yes", "no"),
        }
    )
    for k, start in enumerate(range(0, rows, rows // parts)):
        part = table.slice(start, rows // parts)
        if kind == "parquet":
            pa.parquet.write_table(part, folder / f"part-{k}.parquet", row_group_size=700)
        else:
            pa.csv.write_csv(part, folder / f"part-{k}.csv")
    return folder / f"part-*.{kind}"


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("largest", [3000, 10**6])
def test_every_row_is_read_once(tmp_path, monkeypatch, kind, largest):
    monkeypatch.setattr(streaming, "LARGEST_SAMPLE", largest)
    monkeypatch.setattr(streaming, "BLOCK", 256)
    groups = RowGroups(write_parts(tmp_path, kind=kind))
    assert groups.rows == 6000
    sample, parts = groups.sample()
    rows = sample.values[sample.names.index("row")]
    assert len(rows) <= largest
    held = set(rows[parts > 0])
    assert 0.15 < len(held) / len(rows) < 0.25
    given = [block.values[0] for block in groups.blocks(seed=0)]
    assert max(map(len, given)) <= 256
    flat = np.concatenate(given)
    assert len(flat) == len(set(flat)) == 6000 - len(held)
    assert not held & set(flat)
    again, other = (np.concatenate([b.values[0] for b in groups.blocks(seed)]) for seed in (0, 1))
    assert np.array_equal(flat, again)
    assert not np.array_equal(flat, other)
    assert sorted(flat) == sorted(other)


def test_epochs_differ_in_order(tmp_path):
    def encode(block):
        return [block.values[0]], block.values[0]

    batches = Batches(RowGroups(write_parts(tmp_path)), encode, 100, seed=0)
    first = [y for _, y in batches]
    batches.set_epoch(1)
    second = [y for _, y in batches]
    assert max(map(len, first)) == 100
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))
    assert sorted(np.concatenate(first)) == sorted(np.concatenate(second))


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(streaming, "BATCH", 100)
    monkeypatch.setattr(streaming, "EVALUATIONS", 12)


def test_fit_stream(tmp_path, small_batches):
    pattern = write_parts(tmp_path)
    fitted = fit_stream(pattern, "y", drop=["row"], out=tmp_path / "model", **QUICK)
    assert fitted.evaluation.auc.value > 0.75
    assert {part: about.rows for part, about in fitted.evaluation.parts.items()} == {
        "train": 4800, "valid": 600, "test": 600,
    }  # fmt: skip
    assert fitted.evaluation.columns[0].distinct == 5400  # x, of the rows to train on and stop by
    assert not (tmp_path / "model.unfinished").exists()
    model = AUCClassifier.load(tmp_path / "model")
    assert model.history_[-1]["step"] == 48
    found = evaluate_file(tmp_path / "model", tmp_path / "part-1.parquet")
    assert found.auc.value > 0.75
    assert (
        len(predict_file(tmp_path / "model", tmp_path / "part-0.parquet")[0].splitlines()) == 2001
    )


def test_notes_of_the_sample(tmp_path):
    pattern = write_parts(tmp_path, 600)
    first = pa.parquet.read_table(tmp_path / "part-0.parquet")
    labels = [{0: "?", 1: None}.get(k % 8, y.upper()) for k, y in enumerate(first["y"].to_pylist())]
    first = first.set_column(3, "y", [labels])
    pa.parquet.write_table(first, tmp_path / "part-0.parquet")
    fitted = fit_stream(pattern, "y", out=tmp_path / "model", **QUICK)
    said = "\n".join(fitted.evaluation.notes)
    assert "--drop row leaves it out" in said
    assert "50 rows have no 'y' and are left out (25 '?'; --exact-labels keeps them)" in said
    assert "' as 'no'; " in said
    assert "'YES' as 'yes'; --exact-labels" in said
    assert sum(part.rows for part in fitted.evaluation.parts.values()) == 550


CALLS = []


def interrupted(scores, labels, weights):
    """A metric at whose last call somebody presses Ctrl-C."""
    if CALLS and CALLS.pop():
        raise KeyboardInterrupt
    return roc_auc(scores, labels, weights)


def test_interrupted_stream_resumes_bit_for_bit(tmp_path, small_batches):
    pattern = write_parts(tmp_path)
    given = {"drop": ["row"], "metric": interrupted, **QUICK}
    CALLS[:] = [True, *10 * [False]]
    with pytest.raises(KeyboardInterrupt):
        fit_stream(pattern, "y", out=tmp_path / "m", **given)
    assert not (tmp_path / "m").exists()
    (history,) = tmp_path.glob("m.unfinished/*/history.jsonl")
    assert 2 < len(history.read_text().splitlines()) < 12
    one, two = (
        fit_stream(pattern, "y", out=tmp_path / name, **given).model for name in ("m", "whole")
    )
    values = pa.table({"x": np.linspace(-3, 3, 50), "city": ["Oslo", "Rome"] * 25})
    assert np.array_equal(one.decision_function(values), two.decision_function(values))


def test_several_classes(tmp_path, small_batches):
    """Their shares come from the sample; probabilities are calibrated as of a table in memory."""
    random = np.random.default_rng(0)
    y = random.choice(3, 3000, p=[0.7, 0.2, 0.1])
    table = pa.table({"x": random.normal(1.5 * y), "y": np.array(["low", "mid", "top"])[y]})
    pa.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=400)
    fitted = fit_stream(tmp_path / "a.parquet", "y", out=tmp_path / "model", **QUICK)
    assert fitted.evaluation.auc.value > 0.7
    assert fitted.model.classes_.tolist() == ["low", "mid", "top"]
    told = pa.csv.read_csv(
        pa.py_buffer(predict_file(tmp_path / "model", tmp_path / "a.parquet")[0].encode())
    )
    shares = [np.mean(told[f"probability of {label}"]) for label in ("low", "mid", "top")]
    assert np.allclose(shares, [0.7, 0.2, 0.1], atol=0.05)
    assert fitted.model.quality == "fast"
    refused = {
        "threshold must be left to two classes, found 'cost=5'": {"threshold": "cost=5"},
        "quality must be 'fast' for streaming, .*, found 'good'": {"quality": "good"},
        r"quality must be 'fast' for streaming, .*, found \['boosting'\]": {"models": ["boosting"]},
    }
    for said, option in refused.items():
        with pytest.raises(ValueError, match=said):
            fit_stream(tmp_path / "a.parquet", "y", **option, **QUICK)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A folder as other programs leave it, and a model of it that nobody named."""
    folder = tmp_path_factory.mktemp("of-spark") / "sales.parquet"
    (folder / "older").mkdir(parents=True)
    write_parts(folder, 600)
    for name in ("_SUCCESS", ".part-0.parquet.crc", "part-1.parquet.crc"):
        (folder / name).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        return folder, fit_stream(folder, "y", drop=["row"], **QUICK)


def test_folder_is_a_table(spark):
    folder, fitted = spark
    assert fitted.folder == folder.parent / "sales-model"
    assert sum(part.rows for part in fitted.evaluation.parts.values()) == 600
    said = [
        f"the folder {folder / 'older'} is not looked into: a pattern can name it",
        f"what is hidden in the folder {folder} is not read: '.part-0.parquet.crc', '_SUCCESS', "
        f"'part-1.parquet.crc'",
    ]
    assert [note for note in fitted.evaluation.notes if "folder" in note] == said
    for data in (folder, folder / "part-*", [folder / "part-0.parquet", folder / "part-[12].*"]):
        assert preview_file(data, "y").columns == preview_stream(data, "y").columns
        text, notes = predict_file(fitted.folder, data)
        assert len(text.splitlines()) == 601
        assert [note for note in notes if "folder" in note] == (said if data == folder else [])
        found = evaluate_file(fitted.folder, data)
        assert found.rows.counts == tuple(
            pa.compute.value_counts(read(data).table["y"]).field(1).to_pylist()
        )
        assert sum("the model was fitted to" in note for note in found.notes) == 3
    with pytest.raises(ValueError, match="out must be another file than the data"):
        predict_file(fitted.folder, folder / "part-*.parquet", out=folder / "part-1.parquet")


def test_folder_without_files_raises(tmp_path):
    (tmp_path / "_SUCCESS").touch()
    said = rf"^data must name files that are there, found none in the folder {tmp_path} but '_SUC"
    for reads in (read, RowGroups):
        with pytest.raises(ValueError, match=said):
            reads(tmp_path)


def test_name_that_looks_like_a_pattern(tmp_path):
    (tmp_path / "a[1].csv").write_text("x,y\n1,no\n2,yes\n")
    (tmp_path / "a1.csv").write_text("x,y\n1,no\n")
    assert read(tmp_path / "a[1].csv").table.num_rows == RowGroups(tmp_path / "a[1].csv").rows == 2


@pytest.mark.ranks
def test_ranks_read_files_of_their_own(tmp_path):
    """Or row groups, where files are fewer; the first writes the model, and tells of it."""
    for name, parts in (("many", 3), ("one", 1)):
        (tmp_path / name).mkdir()
        write_parts(tmp_path / name, rows=6000, parts=parts)
    command = [sys.executable, str(RANKS), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The model is in") == 1
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    for name, files in (("many", [2, 1]), ("one", [1, 1])):
        assert [len(rank[name]["files"]) for rank in ranks] == files
        given = [row for rank in ranks for row in rank[name]["rows"]]
        assert len(given) == len(set(given)) == 4800
    assert abs(len(ranks[0]["one"]["rows"]) - len(ranks[1]["one"]["rows"])) <= 700
    model = AUCClassifier.load(tmp_path / "model")
    assert model.history_[-1]["step"] == 48
    assert model.validation_auc_ > 0.75
    assert (model.members, model.dropout) == (4, 0.0)  # less than of a table in memory


@pytest.mark.parametrize(
    ("pattern", "target", "message"),
    [
        ("none-*.parquet", "y", "data must name files that are there, found none like"),
        ("part-*", "label", "target must be a column of .*, found 'label'"),
        ("part-*", "row", "target must have at most 100 classes"),
        ("*", "y", r"data must be files of one kind, found endings like .*: 3 .parquet, 1 .txt"),
        ("notes.txt", "y", r"data must be files of one kind of .parquet, .*, found \['.txt'\]"),
    ],
)
def test_stream_that_cannot_be_raises(tmp_path, pattern, target, message):
    write_parts(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match=message):
        fit_stream(tmp_path / pattern, target, out=tmp_path / "model", **QUICK)
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "model.unfinished").exists()


def test_broken_file_is_named(tmp_path):
    write_parts(tmp_path)
    (tmp_path / "part-1.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match=r"^file '.*part-1.parquet' cannot be read: Parquet magic"):
        RowGroups(tmp_path / "part-*.parquet")


# ---- CSVs as people write them -------------------------------------------------------------------


def understood(preview, path):
    """What is understood of a file, notes in no order; of an error how many lines it has."""
    try:
        found = preview(path, "y")
    except ValueError as error:
        return len(str(error).splitlines())
    return found._replace(notes=sorted(found.notes))


@pytest.mark.parametrize("path", sorted(REAL_FILES.glob("*.csv")), ids=lambda path: path.name)
def test_streaming_understands_files_alike(path):
    if path.name == "ctrl-z.csv":
        pytest.skip("only who holds all of a file sees what ends it")
    assert understood(preview_stream, path) == understood(preview_file, path)


@pytest.fixture(scope="module")
def own_ways(tmp_path_factory):
    """A model of two files, each written in its own way, and their folder."""
    folder = tmp_path_factory.mktemp("own-ways")
    cities = {1: "weightless", 5: "test"}  # by the last digit of the row's number
    rows = [
        (k, f"{k % 7},5", cities.get(k % 10, "Oslo" if k % 3 else "Rome"), k % 10 != 1, k % 4 < 2)
        for k in range(400)
    ]
    one = [f"{k};{x};{city};{int(weight)};{int(y)};" for k, x, city, weight, y in rows[:200]]
    two = [f'{int(y)},"{x}",{int(weight)},{k},{city},' for k, x, city, weight, y in rows[200:]]
    one = ["A title", "", ';"x\nof";città;w;y;', *one]
    two = ['y,"x\nof",w,Unnamed: 0,città,', *two]
    (folder / "part-0.csv").write_text("\n".join(one), "cp1252")
    (folder / "part-1.csv").write_text("\r\n".join(two), "utf-16")
    given = {"weight": "w", "out": folder / "model", **QUICK}
    return fit_stream(folder / "part-*.csv", "y", **given), folder


def test_files_of_different_formats(own_ways):
    fitted, folder = own_ways
    assert fitted.model.encoder_.names == ["Unnamed: 0", "x\nof", "città"]
    kinds = {column.name: column.kind for column in fitted.evaluation.columns}
    assert kinds == {"Unnamed: 0": "number", "x\nof": "number", "città": "category"}
    paths = [folder / "part-0.csv", folder / "part-1.csv"]
    said = [*fitted.evaluation.notes]
    assert [note for note in read(paths).notes if note not in said] == []
    assert sum("windows-1252: --encoding says another" in note for note in said) == 1
    assert sum("each line ends in a separator" in note for note in said) == 1
    assert len(predict_file(fitted.folder, paths)[0].splitlines()) == 401


def test_encoder_sees_training_rows_only(own_ways):
    learned = json.dumps(own_ways[0].model.encoder_.to_dict())
    assert "Oslo" in learned
    assert "test" not in learned  # nor what stands in rows that weigh nothing
    assert "weightless" not in learned


def test_dry_run_of_a_pattern(own_ways, capsys, monkeypatch):
    monkeypatch.setattr(streaming, "LARGEST_SAMPLE", 200)
    pattern = str(own_ways[1] / "part-*.csv")
    main(["fit", pattern, "--target", "y", "--weight", "w", "--streaming", "--dry-run"])
    said = capsys.readouterr().out
    assert "città" in said
    assert "note: only a sample is looked at, 200 of 400 rows" in said


@pytest.mark.parametrize(
    ("late", "encoding"),
    [("é".encode(), None), (b"\xe9", "windows-1252"), (b"\xe9\x81", "latin-1")],
)
def test_late_letters_of_another_encoding(tmp_path, monkeypatch, late, encoding):
    monkeypatch.setattr(csv_files, "HEAD", 64)
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,y\n" + b"1,no\n" * 500 + late + b",yes\n")
    groups = RowGroups(path)
    said = [f"the text is no UTF-8 and is read as {encoding}: --encoding says another"]
    assert groups.notes == (said if encoding else [])
    assert groups.sample()[0].values[0][-1] == late.decode(encoding or "utf-8")


def test_invisible_characters_are_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeff\ufeffx,y\n" + "1\0,no\n\u200b2,yes\n" * 10)
    groups = RowGroups(tmp_path / "a.csv")
    assert groups.notes == [
        "NUL bytes are left out, 10 in all",
        "byte order marks are left out, 1 in all",
        "blanks without a width are left out, 10 in all",
    ]
    for block in (groups.sample()[0], *groups.blocks(seed=0)):
        assert block.names == ["x", "y"]
        assert {*block.values[0]} == {"1", "2"}


def test_unclosed_quote_raises(tmp_path):
    """Arrow gives all that follows as one value."""
    path, rows = tmp_path / "a.csv", "no,a\nyes,b\n" * 10
    for stray in ('no,5" pipe\n', 'no,"a\nb"\n', "yes,don't\n"):
        path.write_text(f"y,c\n{rows}{stray}{rows}no,\n")
        assert RowGroups(path).rows == 42
    path.write_text(f'y,c\n{rows}no,5" pipe\nno,"a\nb"\n')
    assert RowGroups(path).rows == 22
    path.write_text(f'y,c\n{rows}no,"open\n{rows}')
    with pytest.raises(ValueError, match="has a quote that is never closed, before 'open'"):
        RowGroups(path)
    path.write_text(f'y,c\n{rows}no,"open\n{rows * 30_000}')
    with pytest.raises(ValueError, match=r"has a quote that is never closed$"):
        RowGroups(path)


def test_files_with_different_columns_raise(tmp_path):
    (tmp_path / "part-0.csv").write_text("a,b,y\n1,2,yes\n")
    (tmp_path / "part-1.csv").write_text("b,c,y\n1,2,yes\n")
    with pytest.raises(ValueError, match=r"found '.*part-1.csv' without 'a' and with 'c'"):
        RowGroups(tmp_path / "part-*.csv")


def test_index_of_pandas_is_not_a_column(tmp_path):
    table = pa.table({"x": [1.0, 2.0], "y": ["no", "yes"], "__index_level_0__": [5, 7]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    assert RowGroups(tmp_path / "a.parquet").sample()[0].names == ["x", "y"]
