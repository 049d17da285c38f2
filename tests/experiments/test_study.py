"""The study trains, resumes from its searches, and prints tables."""

import json
import math
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

table = pytest.importorskip("experiments.table", reason="the folder experiments is absent")

from experiments import run, train_table  # noqa: E402
from experiments.draw_pages import forest  # noqa: E402
from experiments.plan import Plan  # noqa: E402
from experiments.provenance import code  # noqa: E402
from experiments.stats import Difference  # noqa: E402

ROOT = Path(__file__).parents[2]

STUDY = ROOT / "experiments" / "study.toml"
SEARCHES = [
    *("clean-search", "noise-search", "few-search", "top-search", "budget-search"),
    *("groups-search", "small-trees-search", "small-logistic-search", "small-squares-search"),
    *("small-hinge-search", "small-linear-search"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a small table under the names that the study uses."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "tables").mkdir()
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(300, 3)), columns=[*"abc"])
    x["occupation"] = rng.choice(["cook", "clerk", "pilot", None], 300)
    x.loc[rng.random(300) < 0.1, "b"] = np.nan
    x["target"] = (x["a"] + rng.normal(size=300) > 0.8).astype(int)
    for name in ("haberman", "adult", "abalone_7"):
        x.to_csv(folder / "tables" / f"{name}.csv.gz", index=False)
    return folder


@pytest.fixture(scope="module")
def plan():
    return Plan.read(STUDY, "code", "torch")


@pytest.mark.parametrize("search", SEARCHES)
def test_every_line_of_a_search_trains(search, plan, data, tmp_path):
    names = {"adult", "abalone_7"}
    firsts = {}
    for each in plan.runs(search):
        if each.settings["dataset"] in names:
            firsts.setdefault(each.settings["line"], each)
    assert {each.settings["line"] for each in plan.runs(search)} == firsts.keys()
    for each in firsts.values():
        settings = each.settings
        if "steps" in settings:
            settings["steps"] = 4
        found = train_table.train(plan.run(settings), data, "cpu", tmp_path)
        assert found["error"] is None
        assert 0 <= found["valid"] <= 1
        assert set(found["test"]) == {*train_table.JUDGED, settings["metric"]}
        assert all(0 <= value <= 1 for value in found["test"].values())


def test_a_run_repeats_itself(plan, data, tmp_path):
    tiny = plan.runs("tiny-search")[0]
    first, second = (train_table.train(tiny, data, "cpu", tmp_path) for _ in range(2))
    assert first == second


def test_parts_hold_no_row_twice_and_right_test_labels(plan, data):
    settings = plan.runs("noise-search")[0].settings
    assert settings["wrong"] == 0.25
    parts = train_table.make_parts(settings, data)
    right = train_table.make_parts({k: v for k, v in settings.items() if k != "wrong"}, data)
    assert sum(len(part.y) for part in parts) == 300
    assert torch.equal(parts.test.y, right.test.y)
    trained = [torch.cat([p.train.y, p.valid.y]) for p in (parts, right)]
    assert trained[0].sum() == trained[1].sum()  # as many wrong negatives as positives


def test_unseen_groups_are_held_out_whole(plan, data):
    settings = next(
        r for r in plan.runs("groups-search") if r.settings["dataset"] == "adult"
    ).settings
    parts = train_table.make_parts(settings, data)
    groups = [set(part.group.tolist()) for part in parts]
    assert all(a.isdisjoint(b) for a, b in zip(groups, groups[1:] + groups[:1], strict=True))


def test_a_part_takes_the_best_points_of_its_searches(plan):
    searched = plan.runs("pictures-search")
    records = {
        run.id: {"chosen": {"valid_auc": -abs(run.settings["lr"] - 0.1)}} for run in searched
    }
    diverged = [run for run in searched if run.settings["line"] == "picture-pairwise"]
    records |= {run.id: {} for run in diverged}
    runs = plan.runs("pictures", records)
    lines = {run.settings["line"] for run in searched} - {"picture-pairwise"}
    assert len(runs) == 2 * len(lines) * 5 * 5
    assert {run.settings["lr"] for run in runs} == {0.1}
    clean = [run.settings for run in runs if run.settings["condition"] == "clean"]
    assert not any("wrong" in settings for settings in clean)
    with pytest.raises(ValueError, match="records"):
        plan.runs("pictures", {})


def test_command_takes_the_best_of_a_search_and_compares(data, tmp_path, capsys):
    """The search's records are there, as after a stop; only what is missing is trained."""
    plan, out = Plan.read(STUDY, code(), version("torch")), tmp_path / "out.jsonl"
    with out.open("w") as file:
        for searched in plan.runs("tiny-search"):
            found = train_table.train(searched, data, "cpu", tmp_path)
            about = {"id": searched.id, "code": searched.code, "torch": searched.torch}
            file.write(json.dumps({**about, "settings": searched.settings, **found}) + "\n")
    options = ["--out", out, "--checkpoints", tmp_path / "checkpoints", "--data", data]
    run.main([str(x) for x in (STUDY, "tiny-search", "tiny", *options)])
    said = capsys.readouterr().out
    assert "tiny-search: 0 runs are wanted" in said
    assert "tiny: 6 runs are wanted" in said  # two are those of the search
    table.main([str(x) for x in (out, STUDY, "tiny")])
    said = capsys.readouterr().out.splitlines()
    assert said.count("tiny, mlp") == 1
    assert [line.split()[:3] for line in said[-2:]] == [
        ["tiny", "mlp", "clean"],
        ["tiny", "mlp", "even-25"],
    ]


# --- tables ---------------------------------------------------------------------------------------


def row(line, value, dataset="a", seed=0, valid=0.5):
    found = {"line": line, "value": value, "dataset": dataset, "seed": seed}
    return {**found, "valid": valid, "condition": "clean", "model": "mlp"}


def test_compare_pairs_cells_and_averages_seeds():
    rows = [row("ours", v, d, s) for d, s, v in [("a", 0, 0.8), ("a", 1, 0.9), ("b", 0, 0.7)]]
    rows += [row("theirs", v, d, s) for d, s, v in [("a", 0, 0.7), ("a", 1, 0.6), ("b", 0, 0.8)]]
    rows += [row("theirs", 0.1, "c")]  # nothing to pair it with
    expected = Difference.paired([0.2, -0.1])
    found = table.compare(pd.DataFrame(rows), "ours", "theirs")
    assert (found.value, found.n) == (pytest.approx(expected.value), 2)
    assert found.p == pytest.approx(expected.p)


def test_summaries_count_common_cells_only():
    rows = [row("a", 0.6), row("a", 0.8, "b"), row("b", 0.5), row("b", math.nan, "b")]
    summary = table.summarize(pd.DataFrame(rows))
    assert list(summary["mean"]) == [0.6, 0.5]
    assert list(summary["n"]) == list(summary["runs"]) == [1, 1]
    assert list(summary["diverged"]) == [0, 1]


def test_validation_chooses_a_line_per_data_set():
    rows = [row("a", 0.1, "x", valid=0.9), row("b", 0.2, "x", valid=0.8)]
    rows += [row("a", 0.3, "y", valid=math.nan), row("b", 0.4, "y", valid=0.1)]
    rows += [row("a", 0.5, "z"), row("b", 0.6, "z")]  # a tie goes to the first line given
    chosen = table.choose_line(pd.DataFrame(rows), ["b", "a"], "best").sort_values("dataset")
    assert chosen[["dataset", "value", "line"]].to_numpy().tolist() == [
        ["x", 0.1, "best"],
        ["y", 0.4, "best"],
        ["z", 0.6, "best"],
    ]


def test_a_line_has_one_row_of_a_cell():
    with pytest.raises(ValueError, match="duplicate"):
        table.by_cell(pd.DataFrame([row("a", 0.1), row("a", 0.2)]))


def test_image_run_has_the_test_auc_of_the_chosen_weights():
    settings = {"kind": "image", "line": "a"}
    records = [{"settings": settings, "chosen": {"test_auc": 0.8}}, {"settings": settings}]
    assert table.to_rows(records).value.to_list() == pytest.approx([0.8, math.nan], nan_ok=True)


def test_forest_is_drawn(tmp_path):
    rows = [
        {"name": name, "difference": d.value, "low": d.low, "high": d.high, "n": d.n}
        for name, d in (("a", Difference.paired([0.1, 0.2])), ("b", Difference.paired([0.1])))
    ]
    figure = forest(rows)
    figure.savefig(tmp_path / "forest.svg")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["a (n = 2)", "b (n = 1)"]


def test_hinge_on_pairs_ends_at_the_minimum(plan, data):
    settings = plan.runs("small-hinge-search")[0].settings | {"dataset": "adult", "C": 0.1}
    parts = train_table.make_parts(settings, data)
    basis = train_table.Part(torch.eye(parts.train.x.shape[1]), parts.valid.y)
    w = torch.as_tensor(train_table.train_linear(settings, parts._replace(valid=basis))[0])
    x, y = parts.train.x.double(), parts.train.y
    margins = (x[y == 1] @ w)[:, None] - x[y == 0] @ w
    gaps = x[y == 1][:, None] - x[y == 0]
    slope = -2 * (1 - margins).clamp_min(0)[..., None] * gaps
    gradient = settings["C"] * len(y) * slope.mean((0, 1)) + w
    assert gradient.abs().max() < 1e-2 * w.abs().max() * len(w)
