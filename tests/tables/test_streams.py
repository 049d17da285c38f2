"""Tables larger than memory: every row once, those kept apart never."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from aucmax import AUCClassifier
from aucmax.tables import evaluate_file, fit_stream, predict_file, streaming
from aucmax.tables.streaming import Batches, RowGroups

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
def test_every_row_is_trained_on_or_kept_apart(tmp_path, monkeypatch, kind, largest):
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


def test_a_pass_after_the_other_in_another_order(tmp_path):
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


def test_a_model_from_disk(tmp_path, small_batches):
    pattern = write_parts(tmp_path)
    fitted = fit_stream(pattern, "y", drop=["row"], out=tmp_path / "model", **QUICK)
    assert fitted.evaluation.auc.value > 0.75
    assert {part: about.rows for part, about in fitted.evaluation.parts.items()} == {
        "train": 4800, "valid": 600, "test": 600,
    }  # fmt: skip
    assert not (tmp_path / "model.unfinished").exists()
    model = AUCClassifier.load(tmp_path / "model")
    assert model.history_[-1]["step"] == 48
    found = evaluate_file(tmp_path / "model", tmp_path / "part-1.parquet")
    assert found.auc.value > 0.75
    assert (
        len(predict_file(tmp_path / "model", tmp_path / "part-0.parquet")[0].splitlines()) == 2001
    )


def test_notes_come_from_the_sample(tmp_path):
    pattern = write_parts(tmp_path, 600)
    first = pa.parquet.read_table(tmp_path / "part-0.parquet")
    labels = [{0: "?", 1: None}.get(k % 8, y.upper()) for k, y in enumerate(first["y"].to_pylist())]
    first = first.set_column(3, "y", [labels])
    pa.parquet.write_table(first, tmp_path / "part-0.parquet")
    fitted = fit_stream(pattern, "y", out=tmp_path / "model", **QUICK)
    said = "\n".join(fitted.evaluation.notes)
    assert "--drop row leaves it out" in said
    assert "50 rows have no 'y' and are left out (25 '?')" in said
    assert "' as 'no'; " in said
    assert "'YES' as 'yes'; --exact-labels" in said
    assert sum(part.rows for part in fitted.evaluation.parts.values()) == 550


def test_killed_it_goes_on(tmp_path, small_batches):
    """A real SIGKILL in the middle; the same call then ends as if nothing had been."""
    pattern = write_parts(tmp_path, rows=9000)
    script = (
        "import sys; from aucmax.tables import streaming;"
        "streaming.BATCH = 100; streaming.EVALUATIONS = 12;"
        "streaming.fit_stream(sys.argv[1], 'y', drop=['row'], out=sys.argv[2], members=2, width=16,"
        " n_jobs=1, progress=False)"
    )
    command = [sys.executable, "-c", script, str(pattern), str(tmp_path / "killed")]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    records = []
    while len(records) <= 3:
        assert process.poll() is None
        time.sleep(0.02)
        for history in tmp_path.glob("killed.unfinished/*/history.jsonl"):
            records = history.read_text().splitlines()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed").exists()
    steps = json.loads(records[-1])["step"]
    assert steps < 72
    one, two = (
        fit_stream(pattern, "y", drop=["row"], out=tmp_path / name, **QUICK).model
        for name in ("killed", "whole")
    )
    values = {"x": np.linspace(-3, 3, 50), "city": ["Oslo", "Rome"] * 25}
    assert np.array_equal(
        one.decision_function(pa.table(values)), two.decision_function(pa.table(values))
    )


@pytest.mark.parametrize(
    ("pattern", "target", "message"),
    [
        ("none-*.parquet", "y", "data must name files that are there, found none like"),
        ("part-*", "label", "target must be a column of .*, found 'label'"),
        ("part-*", "row", "target must have at most 100 classes"),
        ("*", "y", "data must be files of one kind of"),
    ],
)
def test_what_cannot_be_right(tmp_path, pattern, target, message):
    write_parts(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match=message):
        fit_stream(tmp_path / pattern, target, out=tmp_path / "model", **QUICK)
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "model.unfinished").exists()


def test_a_broken_file_is_named(tmp_path):
    write_parts(tmp_path)
    (tmp_path / "part-1.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match="data must be readable"):
        RowGroups(tmp_path / "part-*.parquet")
