"""Every benchmark runs with sizes that take no time; its numbers say nothing here."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from process import Scripts

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the folder benchmarks is absent", allow_module_level=True)

TIMED = sorted(
    path.stem
    for path in BENCHMARKS.glob("[!_]*.py")
    if "from _timing import Bench" in path.read_text("utf-8") and path.stem != "against"
)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    paths = [BENCHMARKS / f"{name}.py" for name in (*TIMED, "tables", "real_files")]
    with Scripts(paths, tmp_path_factory.mktemp("said")) as scripts:
        yield scripts


@pytest.fixture
def run(scripts, tmp_path):
    def run(name, *options):
        done = scripts.run(BENCHMARKS / f"{name}.py", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def results(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("name", TIMED)
def test_timings_run_and_are_saved(name, run, tmp_path):
    said = run(name, "--tiny", "--json", "out.jsonl")
    (found,) = results(tmp_path / "out.jsonl")
    assert found["benchmark"] == name
    timed = [row for row in found["rows"] if "ratio" in row]
    assert timed
    assert all(math.isfinite(row["seconds"]) for row in timed)
    peers = [row for row in timed if row["name"] == row["peer"]]
    assert len(peers) == len({row["title"] for row in timed})
    assert all(row["name"] in said for row in found["rows"])


def test_metric_coverage(run, tmp_path):
    run("metric_coverage", "--tiny", "--json", "out.jsonl")
    (found,) = results(tmp_path / "out.jsonl")
    assert {row["title"] for row in found["rows"]} == {"metrics", "AUC"}
    assert all(0 <= row["coverage"] <= 1 for row in found["rows"])


def test_two_trees_are_compared(run, tmp_path):
    options = ["--tiny", "--rounds", 1, "--processes", 1, "--only", "MulticlassAUCLoss"]
    run("against", ROOT / "src", ROOT / "src", *options, "--json", "out.jsonl")
    (found,) = results(tmp_path / "out.jsonl")
    (row,) = found["rows"]
    assert (row["workload"], row["n"]) == ("MulticlassAUCLoss, N = 128", 1)
    assert row["ratio"] == row["new"] / row["old"]


@pytest.mark.parametrize("part", ["all", "few"])
def test_tables_resume_and_summarize(part, run, tmp_path):
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(600, 3)), columns=[*"abc"])
    x["word"] = rng.choice(["red", "green"], 600)
    x["target"] = (x["a"] + rng.normal(size=600) > 1).astype(int)
    x.to_csv(tmp_path / "haberman.csv.gz", index=False)
    options = ["--data", ".", "--part", part, "--tables", "haberman", "--splits", 0, "--tiny"]
    options += ["--json", "out.jsonl", "--methods", "logistic regression", "HistGradientBoosting"]
    run("tables", *options[:-1])
    first = results(tmp_path / "out.jsonl")
    assert [(row["part"], row["method"]) for row in first] == [(part, "logistic regression")]
    assert 0.7 < first[0]["auc"] <= 1
    run("tables", *options)
    assert results(tmp_path / "out.jsonl")[:1] == first
    assert len(results(tmp_path / "out.jsonl")) == 2
    assert f"{first[0]['auc']:.4f}" in run("tables", "--print", "--json", "out.jsonl")


def test_real_files_as_a_tree_sees_them(run):
    said = run("real_files", "--here", "--only", "Labels 1 and 1.0", "A workbook called .csv")
    shown = dict(json.loads(line) for line in said.splitlines())
    assert shown["Labels 1 and 1.0"].startswith("2 labels: '0', '1'; note: ")
    assert "'workbook.csv' is a ZIP file" in shown["A workbook called .csv"]
