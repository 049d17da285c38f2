"""A finished part becomes one Parquet file, of one code, that is never rewritten."""

import json

import pandas as pd
import pytest

freeze = pytest.importorskip("experiments.freeze", reason="an sdist has no experiments")
from experiments.figures import FROZEN, by_ratio, by_step, finished, reports  # noqa: E402
from experiments.freeze import thaw  # noqa: E402
from experiments.plan import Plan  # noqa: E402
from experiments.search import wanted  # noqa: E402
from pyarrow import parquet  # noqa: E402

CODE_AND_TORCH = ("fa5cc89be8e7fe5f", "2.11.0")
PLAN = """
[lines.sgd]
label = "SGD"
returns = "last"
method = "sgd"
objective = "ce"
schedule = "cosine"
lr = 0.1
[parts.p]
title = "A part"
set = {kind = "image", dataset = "digits", protocol = "paper", ratio = "91/9", partition = "halves",
  removed = 0.9, valid = 0.2, hold_out = "before", model = "mlp", batch_size = 32, steps = 10,
  eval_every = 5, probe = 8, precision = "float32"}
each = {seed = [0, 1], line = ["sgd"]}
"""


def record(run, code, auc):
    history = {"step": [5, 10], "test_auc_last": [0.5, auc], "test_auc_average": [0.5, auc]}
    return {
        "id": run.id, "code": code, "torch": "2.13", "settings": run.settings, "error": None,
        "history": history, "final": {"last": auc, "average": auc, "valid_last": auc},
        "versions": {"torch": "2.13"},
    }  # fmt: skip


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace("\n  ", " "))
    return path


def write(path, plan, codes):
    """Records of the part's runs, those of each code whole or without the last."""
    lines = []
    for code, whole in codes.items():
        runs = Plan.read(plan, code, "2.13").runs("p")
        rows = [record(run, code, 0.7 + 0.1 * k) for k, run in enumerate(runs)]
        lines += rows if whole else rows[:-1]
    path.write_text("".join(json.dumps(row) + "\n" for row in lines))


def call(plan, records, out, *more):
    arguments = [plan, "p", "--records", records, "--out", out, *more]
    freeze.main([str(argument) for argument in arguments])


def test_a_part_becomes_a_file_once(plan, tmp_path):
    records, out = tmp_path / "r.jsonl", tmp_path / "p.parquet"
    write(records, plan, {"one": True, "other": False})
    call(plan, records, out)
    rows = parquet.read_table(out).to_pylist()
    assert [row["final_last"] for row in rows] == [0.7, 0.7 + 0.1]
    assert [row["history_test_auc_last"] for row in rows] == [[0.5, 0.7], [0.5, 0.7 + 0.1]]
    assert [row["seed"] for row in rows] == [0, 1]
    assert {row["code"] for row in rows} == {"one"}
    assert json.loads(rows[0]["settings"])["schedule"] == "cosine"
    with pytest.raises(SystemExit, match="never rewritten"):
        call(plan, records, out)


def test_a_run_that_diverged_hides_no_column_of_others(plan, tmp_path):
    first, second = (record(run, "one", 0.7) for run in Plan.read(plan, "one", "2.13").runs("p"))
    del first["final"]
    records, out = tmp_path / "r.jsonl", tmp_path / "p.parquet"
    records.write_text("".join(json.dumps(row) + "\n" for row in (first, second)))
    call(plan, records, out)
    assert parquet.read_table(out)["final_last"].to_pylist() == [None, 0.7]


@pytest.mark.parametrize("codes", [{"one": False}, {"one": True, "other": True}])
def test_an_unfinished_part_or_one_of_two_codes_raises(codes, plan, tmp_path):
    records, out = tmp_path / "r.jsonl", tmp_path / "p.parquet"
    write(records, plan, codes)
    with pytest.raises(ValueError, match="complete for one code"):
        call(plan, records, out)
    assert not out.exists()


def test_two_codes_can_be_told_apart(plan, tmp_path):
    records, out = tmp_path / "r.jsonl", tmp_path / "p.parquet"
    write(records, plan, {"one": True, "other": True})
    call(plan, records, out, "--code", "other")
    assert {row["code"] for row in parquet.read_table(out).to_pylist()} == {"other"}


def test_figures_show_the_iterate_that_a_line_returns(plan, tmp_path):
    records, out = tmp_path / "r.jsonl", tmp_path / "p.parquet"
    write(records, plan, {"one": True})
    call(plan, records, out)
    runs = finished(pd.read_parquet(out), {"sgd": {"returns": "last"}})
    (axes,) = by_step(runs, {"sgd": "SGD"}, "title").axes
    (line,) = axes.lines
    assert list(line.get_xdata()) == [5, 10]
    assert list(line.get_ydata()) == pytest.approx([0.5, 0.75])
    (axes,) = by_ratio(runs, {"sgd": "SGD"}, "digits").axes
    assert axes.lines[0].get_ydata() == pytest.approx([0.75])


def test_frozen_reports_are_of_seeds_that_chose_nothing():
    runs = reports(FROZEN)
    assert runs.groupby("line").seed.agg(tuple).to_dict() == dict.fromkeys(
        ("adagrad", "oauc", "pga", "ppd-adagrad", "ppd-sg", "sgd"), (10, 11, 12, 13, 14)
    )
    title = "digits"
    labels = {line: line for line in runs.line}
    small = runs.assign(panel="91/9")
    axes, _ = by_step(small, labels, title, runs).axes
    assert len(axes.lines) == 6


def test_a_search_keeps_what_each_run_is_for(plan, tmp_path):
    text = (
        plan.read_text()
        + """
[rules]
sgd = [{key = "lr", values = [0.1, 0.3]}]
"""
    )
    text = text.replace("each = {seed = [0, 1], line", "each = {line").replace(
        "set = {", "search = {again = 2, best = 1, most = [9], report = [3]}\nset = {seed = 1, "
    )
    plan.write_text(text)
    read = Plan.read(plan, "one", "2.13")
    records = {}
    while runs := wanted(read, "p", records):
        auc = [0.7 + run.settings["lr"] / 10 for run in runs]
        records |= {run.id: record(run, "one", x) for run, x in zip(runs, auc, strict=True)}
    path, out = tmp_path / "r.jsonl", tmp_path / "p.parquet"
    path.write_text("".join(json.dumps(row) + "\n" for row in records.values()))
    call(plan, path, out)
    rows = parquet.read_table(out).to_pylist()
    roles = {(row["seed"], json.loads(row["settings"])["lr"]): row["roles"] for row in rows}
    assert roles == {
        (1, 0.1): ["search"],
        (1, 0.3): ["search", "chosen", "chosen-9"],
        (2, 0.3): ["again", "chosen", "chosen-9"],
        (3, 0.3): ["report", "report-9"],
    }
    assert {row["iterate"] for row in rows} == {"last"}
    assert [row["final"] for row in rows] == [row["final_last"] for row in rows]
    thawed = tmp_path / "thawed.jsonl"
    for _ in range(2):  # what is there is not added again
        call(plan, thawed, out, "--thaw")
    assert [json.loads(line) for line in thawed.read_text().splitlines()] == [*records.values()]


def test_frozen_records_thaw_to_those_that_a_search_asks_for():
    records = {record["id"]: record for record in thaw(FROZEN)}
    read = Plan.read(FROZEN.parents[1] / "claims.toml", *CODE_AND_TORCH)
    assert not wanted(read, "A", records)
    assert len(wanted(read, "C-float32", records)) == 12
