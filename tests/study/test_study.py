"""The study: a fair plan, the right rows, runs that go on after a kill, and its statistics."""

import copy
import itertools
import json
import math
import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from picture_files import shorten, write_pictures
from scipy import stats

import aucmax
from aucmax.cli._reproduce import Regime as RegimeName
from aucmax.models import mlp
from aucmax.study import find_regime, regimes, run_study, write_report
from aucmax.study.differences import holm, over_datasets, resampled
from aucmax.study.page import RegimeResults, difference_text, rst_page
from aucmax.study.pictures import draw_sources, fit_arguments, make_pictures
from aucmax.study.problems import Part, make_problem
from aucmax.study.settings import plan
from aucmax.study.summary import Results
from aucmax.study.training import (
    WithOffset,
    optimum,
    train_run,
    with_offsets,
)
from aucmax.study.when import (
    BEGIN,
    END,
    IMPORTS,
    SEARCH,
    answers,
    between_marks,
    code_of,
    in_a_sentence,
    short_table,
    when_page,
    when_table,
)
from aucmax.train._candidates import CANDIDATES, RANKS_ALL

# ---- The plan ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", regimes())
def test_ranking_objectives_and_likelihoods_are_as_many_and_have_as_many_trials(name):
    regime = find_regime(name)
    for model, lines in regime.lines.items():
        ranks = [bool(x.get("ranks")) for x in regime.objectives.lines[model].values()]
        assert sum(ranks) * 2 == len(ranks)
        assert len({math.prod(map(len, line["grid"].values())) for line in lines.values()}) == 1


def test_every_table_is_for_choosing_or_for_confirming():
    data = plan()["data"]
    assert not set(data["choosing"]) & set(data["confirming"])
    for name in regimes():
        datasets = set(find_regime(name).datasets) - set(data["made"])
        assert datasets <= {*data["choosing"], *data["confirming"]}


def test_every_regime_answers_one_question():
    asked = [name for about in plan()["questions"] for name in about["regimes"]]
    assert sorted(asked) == sorted(regimes())


@pytest.mark.parametrize("name", regimes())
def test_of_a_regime_with_additions_it_is_said_what_was_tried(name):
    regime = find_regime(name)
    assert bool(regime.tried) == (regime.planned.lines != regime.objectives.lines)


def test_the_command_knows_all_regimes():
    assert get_args(RegimeName) == regimes()


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="regime must be one of"):
        find_regime("none")
    with pytest.raises(ValueError, match="datasets must be one of"):
        find_regime("small", ["iris"])


# ---- The rows ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder with a table "haberman": 240 rows of three columns, the last 40 of them repeats."""
    random = np.random.default_rng(0)
    y = (np.arange(200) % 4 == 0).astype(int)
    x = random.normal(size=(200, 2)) + y[:, None]
    rows = [f"{a:.6f},{b:.6f},{'uv'[k % 2]},{y[k]}" for k, (a, b) in enumerate(x)]
    folder = tmp_path_factory.mktemp("data") / "tables"
    folder.mkdir()
    text = "\n".join(["a,b,c,target", *rows, *rows[:40]])
    (folder / "haberman.csv").write_text(text + "\n", encoding="utf-8")
    return folder.parent


def rows_of(part):
    return {tuple(row) for row in part[0].numpy().round(5).tolist()}


def test_parts_share_no_row_and_repeats_are_dropped(tables):
    problem = make_problem(tables, "haberman", {}, 0)
    train, valid, test = map(rows_of, problem)
    assert len(train) + len(valid) + len(test) == sum(len(part.y) for part in problem) == 200
    assert not train & valid | train & test | valid & test
    assert problem.counts() == {"train": [26, 79], "valid": [9, 26], "test": [15, 45]}


@pytest.mark.parametrize(("negatives", "wrong"), [("even", 28), ("right", 14)])
def test_wrong_labels_are_as_many_as_asked_for_and_never_in_the_test_rows(tables, negatives, wrong):
    clean = make_problem(tables, "haberman", {}, 0)
    noisy = make_problem(tables, "haberman", {"wrong": 0.4, "negatives": negatives}, 0)
    assert (noisy.test[1] == clean.test[1]).all()
    assert (labels_in_order(noisy) != labels_in_order(clean)).sum() == wrong  # of 35 and 105 rows


def labels_in_order(problem):
    """Those of all rows by their first column, whose order the encoding keeps."""
    x, y = (np.concatenate([part[k].numpy() for part in problem]) for k in (0, 1))
    return y[np.argsort(x[:, 0])]


def test_few_positives_are_left_to_train_and_validate_with(tables):
    counts = make_problem(tables, "haberman", {"most": 10}, 0).counts()
    assert counts["train"][0] + counts["valid"][0] == 10
    assert counts["test"] == [15, 45]


def test_unseen_groups_are_whole_and_no_input(tables):
    seen = make_problem(tables, "simulated", {"unseen": False}, 0, "group")
    unseen = make_problem(tables, "simulated", {"unseen": True}, 0, "group")
    assert set(seen.test.group.tolist()) == set(range(80))
    parts = [set(part.group.tolist()) for part in unseen]
    assert [len(part) for part in parts] == [42, 14, 24]  # 100 rows each
    assert len(set.union(*parts)) == 80
    assert unseen.train.x.shape[1] == 8


def test_offsets_are_the_log_odds_of_a_group_and_validation_rows_have_none():
    y, group = torch.tensor([1.0, 1, 0, 0, 1]), torch.tensor([7, 7, 7, 2, 2])
    part = Part(torch.zeros(5, 2), y, group=group)
    offset = [math.log(3 / 2)] * 3 + [0.0] * 2  # two of three, one of two, and one of each class
    assert with_offsets(part).x[:, 2].tolist() == pytest.approx(offset)
    model = WithOffset(mlp(2, [3], generator=torch.Generator().manual_seed(0)))
    added = model(with_offsets(part).x) - model(part.x)
    assert added.reshape(-1).tolist() == pytest.approx(offset)


@pytest.mark.parametrize("line", ["offset", "auc", "pairwise"])
def test_lines_rank_within_groups(tables, line):
    regime = find_regime("groups", ["simulated"])
    models = {"mlp": {**regime.models["mlp"], "steps": 60}}
    run = next(x for x in regime.trials("simulated") if x.line == line and x.options["lr"] == 0.01)
    record = train_run(run, replace(regime, models=models), tables)
    assert record["test"]["grouped_auc"] > 0.65


def test_a_condition_can_have_steps_of_its_own(tables):
    regime = find_regime("clean", ["haberman"])
    short = {"mlp": {**regime.models["mlp"], "steps": 30}}
    conditions = {"clean": {**regime.conditions["clean"], "steps": 30}}
    plans = (regime, replace(regime, models=short), replace(regime, conditions=conditions))
    usual, of_model, of_condition = (
        train_run(next(plan.trials("haberman")), plan, tables)["test"] for plan in plans
    )
    assert of_condition == of_model != usual


def test_tables_that_are_not_there_are_named(tables, tmp_path):
    with pytest.raises(ValueError, match=r"found none of adult$"):
        make_problem(tables, "adult", {}, 0)
    names = ["haberman", "adult", "phoneme"]
    with pytest.raises(ValueError, match=r"NAME\.csv .* found none of adult, phoneme$"):
        run_study("clean", datasets=names, data=tables, out=tmp_path)


# ---- Pictures ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Cats and dogs: 80 of each to train with, 20 to test, dogs a little brighter."""
    return write_pictures(tmp_path_factory.mktemp("pictures"))


def test_positive_pictures_are_few_and_labels_wrong_but_in_the_test(pictures):
    clean = make_pictures(pictures, "catdog", {}, 0)
    assert clean.counts() == {"train": [6, 60], "valid": [2, 20], "test": [20, 20]}
    noisy = make_pictures(pictures, "catdog", {"wrong": 0.25, "negatives": "even"}, 0)
    assert noisy.counts() == clean.counts()
    assert torch.equal(noisy.test.x, clean.test.x)
    assert torch.equal(noisy.test.y, clean.test.y)
    missed = make_pictures(pictures, "catdog", {"wrong": 0.25, "negatives": "right"}, 0)
    assert sum(missed.counts()[part][0] for part in ("train", "valid")) == 6


def test_sources_have_a_light_and_a_prevalence_of_their_own(pictures):
    plain, seen, unseen = (
        make_pictures(pictures, "catdog", condition, 0)
        for condition in ({}, {"unseen": False}, {"unseen": True})
    )
    assert plain.train.group is None
    assert {*seen.test.group.tolist()} <= set(range(8))
    assert {*unseen.train.group.tolist()} <= set(range(8))
    assert {*unseen.valid.group.tolist()} <= set(range(8, 12))
    assert {*unseen.test.group.tolist()} <= set(range(12, 16))
    # The same light for all of a source.
    ratio = (seen.test.x.float() + 0.5) / plain.test.x.float()
    first = seen.test.group == seen.test.group[0]
    assert ratio[first].mean((2, 3)).std(0).max() < 0.01 < ratio.mean((2, 3)).std(0).max()
    y = np.repeat([1, 0], 20_000)
    group = draw_sources(y, np.arange(8), np.random.RandomState(0))
    odds = [(y[group == k] == 1).sum() / (y[group == k] == 0).sum() for k in range(8)]
    assert np.log(odds) == pytest.approx(np.linspace(-2, 2, 8), abs=0.15)


def test_options_of_a_loss_reach_the_training_on_pictures(pictures):
    regime = find_regime("pictures-clean", ["catdog"])
    problem = make_pictures(pictures, "catdog", {}, 0)
    about = regime.models["resnet"]
    given = {
        run.line: fit_arguments(problem, run, about, regime.lines["resnet"][run.line], "", "cpu")
        for run in regime.trials("catdog")
    }
    assert given["pairwise-tenth"]["loss_options"] == {"scale": 0.1}
    assert given["mild-gce"]["loss_options"] == {"q": 0.2}
    assert not given["pairwise"]["loss_options"]


def test_a_network_is_trained_on_pictures(pictures, monkeypatch):
    shorten(monkeypatch)
    regime = find_regime("pictures-sources", ["catdog"])
    record = train_run([*regime.trials("catdog")][-1], regime, pictures)
    assert record["line"] == "pairwise"
    assert 0 < record["test"]["grouped_auc"] < 1


# ---- Runs ----------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """The regime "clean" with few steps, two points and two lines."""
    grid = {"lr": [0.01], "positives": ["natural", 0.5]}
    for name, value in (("steps", 20), ("grid", grid)):
        monkeypatch.setitem(plan()["models"]["mlp"], name, value)
    lines = {name: plan()["lines"]["network"][name] for name in ("ce", "pairwise")}
    monkeypatch.setitem(plan()["lines"], "network", lines)
    monkeypatch.delitem(plan()["regimes"]["clean"], "lines")
    monkeypatch.setitem(plan(), "seeds", 2)


def without_times(path):
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {x["key"]: {k: v for k, v in x.items() if k not in ("seconds", "date")} for x in records}


@pytest.mark.usefixtures("quick")
def test_a_regime_goes_on_after_a_kill_and_gives_the_same(tables, tmp_path):
    def run(out):
        options = {"datasets": ["haberman"], "data": tables, "workers": 1, "progress": False}
        return run_study("clean", out=out, **options) / "haberman.jsonl"

    whole = run(tmp_path / "whole")
    assert len(without_times(whole)) == 2 * 2 + 2  # trials, and the other seed's runs
    lines = whole.read_text(encoding="utf-8").splitlines(keepends=True)
    cut = tmp_path / "cut" / "clean" / "haberman.jsonl"
    cut.parent.mkdir(parents=True)
    cut.write_text("".join(lines[:3]) + lines[3][:40], encoding="utf-8")  # killed while writing
    assert without_times(run(tmp_path / "cut")) == without_times(whole)
    summary = write_report("clean", whole.parent).read_text(encoding="utf-8")
    assert "1 of 23 data sets" in summary
    assert (whole.parent / "forest.svg").read_text(encoding="utf-8").startswith("<svg")
    results = Results(find_regime("clean").objectives, whole.parent)
    (comparison,) = results.comparisons()
    values = results.values[comparison.setting]
    own = [values["pairwise"].test[k] - values["ce"].test[k] for k in (0, 1)]
    assert comparison.difference.mean == pytest.approx(np.mean(own))
    assert "study-clean.svg" in rst_page(RegimeResults(results), "study-clean")


def write_records(folder, regime, value_of):
    """A file for each data set: what every trial and run reached by ``value_of(run)``."""
    folder.mkdir(parents=True, exist_ok=True)
    for dataset in regime.datasets:
        trials = list(regime.trials(dataset))
        best = {(x.setting.model, x.line): x.options for x in reversed(trials)}
        runs = {x.key: x for x in [*trials, *regime.runs(dataset, best)]}.values()
        lines = [json.dumps(record_of(x, value_of(x), regime.metric)) for x in runs]
        (folder / f"{dataset}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def record_of(run, value, metric):
    value = value if isinstance(value, dict) else {"valid": value, "test": value}
    return {
        "key": run.key, **run.setting._asdict(), "line": run.line, "seed": run.seed,
        "valid": value["valid"], "test": {"tpr_at_fpr@0.01": None, metric: value["test"]},
        "seconds": 1.0, "commit": "0", "hardware": "x86_64 CPU, 2 cores",
        "counts": {"train": [10, 50], "valid": [5, 5], "test": [10, 20]}, "versions": {"torch": ""},
    }  # fmt: skip


def made_up(run):
    """Squared hinges are ahead by 0.02, a little less with each seed; the sigmoid has diverged."""
    if run.line == "auc":
        return None
    return 0.82 - 0.0001 * run.seed if run.line == "pairwise" else 0.8


def test_what_is_not_whole_is_not_compared(tmp_path):
    regime = replace(find_regime("clean").planned, datasets=("haberman",))
    write_records(tmp_path, regime, made_up)
    assert len(Results(regime, tmp_path).values) == 1
    path = tmp_path / "haberman.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for missing in (3, -1):  # a trial that is not the best, a run
        path.write_text("".join(x for x in lines if x != lines[missing]), encoding="utf-8")
        assert Results(regime, tmp_path).values == {}
    assert "No data set is done yet" in write_report("clean", tmp_path).read_text(encoding="utf-8")


def test_of_a_data_set_the_conditions_that_are_whole_are_compared(tmp_path):
    regime = replace(find_regime("pictures-sources"), datasets=("catdog",))
    write_records(tmp_path, regime, made_up)
    path = tmp_path / "catdog.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert json.loads(lines[-1])["condition"] == "seen"
    path.write_text("".join(lines[:-1]), encoding="utf-8")
    results = Results(regime, tmp_path)
    assert [setting.condition for setting in results.values] == ["unseen"]
    assert [setting.condition for setting in results.missing] == ["seen"]
    page = rst_page(RegimeResults(results), "study-pictures-sources")
    assert f"{regime.title} — 1 of 2 settings" in page
    (aim,) = results.aims()
    assert (aim.verdict, aim.datasets) == ("open", 1)
    assert 'Not complete: "sources that were seen"' in page


def test_what_auto_chooses_from_is_part_of_its_plan(monkeypatch):
    def plans():
        return {run.line: run.plan for run in find_regime("clean").trials("haberman")}

    before = plans()
    monkeypatch.setitem(plan()["auto"]["lines"], "roc_auc", ["ce", "auc"])
    assert {line for line, digest in plans().items() if digest != before[line]} == {"auto"}


def drop(folder, is_gone):
    """Leave those of the records out."""
    for path in folder.glob("*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(x for x in lines if not is_gone(json.loads(x))), encoding="utf-8")


def test_a_model_that_lacks_a_data_set_is_recommended_from_the_others(tmp_path):
    regime = find_regime("small").planned
    write_records(tmp_path, regime, made_up)
    drop(tmp_path, lambda x: (x["dataset"], x["model"], x["seed"]) == ("w8a", "trees", 4))
    results = Results(regime, tmp_path)
    datasets = {x.model: x.datasets for x in results.recommendations()}
    assert datasets["trees"] == datasets["layer"] - 1
    page = rst_page(RegimeResults(results), "study-small")
    assert 'Not complete: "clean" with boosted trees of depth 2 of w8a' in page


def test_an_aim_is_not_confirmed_before_all_is_done_and_what_was_added_waits(tmp_path):
    regime = find_regime("noise").objectives
    write_records(tmp_path, regime, lambda run: 0.8 + 0.01 * (run.line == "auc"))

    def verdict():
        found = RegimeResults.read("noise", tmp_path)
        return found.planned.aims()[0].verdict, found.later is not None

    assert verdict() == ("confirmed", True)
    drop(tmp_path, lambda x: (x["condition"], x["line"]) == ("missed-40", "mild-gce"))
    assert verdict() == ("confirmed", False)  # a line that was added
    drop(tmp_path, lambda x: x["condition"] == "missed-40" and x["dataset"] == "phoneme")
    assert verdict() == ("open", False)


def test_verdicts_recommendation_and_aim_of_results_made_up(tmp_path):
    regime = find_regime("clean")
    write_records(tmp_path, regime, made_up)
    results = Results(regime, tmp_path)
    comparisons = results.comparisons()
    assert {(x.ours, x.verdict, x.seeds) for x in comparisons} == {("pairwise", "ahead", 5)}
    (found,) = results.recommendations()
    assert (found.model, found.ours, found.ahead, found.datasets) == ("mlp", "pairwise", 11, 11)
    assert found.difference.mean == pytest.approx(0.02, abs=5e-4)
    page = rst_page(RegimeResults(results), "study-clean")
    assert "clearly ahead in 23 and clearly behind in 0" in page
    assert "Confirmed: not behind by more than 0.002" in page
    *_, table = page.split(".. list-table::")
    rows = table.split("To repeat")[0].split("   * - ")[1:]
    assert {row.count("\n     - ") for row in rows} == {6}  # one model and one condition go unsaid


def test_aims_are_confirmed_refuted_or_open(tmp_path):
    regime = find_regime("noise").planned

    def aim_of(value_of):
        write_records(tmp_path, regime, value_of)
        (aim,) = Results(regime, tmp_path).aims()
        return aim

    by_seed = 0.0001  # so that a test has something to go by
    clear = aim_of(lambda run: 0.8 + (0.01 + by_seed * run.seed) * (run.line == "auc"))
    assert (clear.verdict, clear.ahead, clear.datasets) == ("confirmed", 10, 10)
    bad = ("phoneme", "even-40")  # one setting of sixty, in which all seeds agree

    def mostly(run):
        worse = -0.02 + by_seed * run.seed if run.setting[:2] == bad else 0.01
        return 0.8 + worse * (run.line == "auc")

    aim = aim_of(mostly)
    assert (aim.verdict, aim.ahead) == ("refuted", 10)  # phoneme's mean is above zero
    assert aim.worst == pytest.approx(-0.02, abs=0.001)
    noisy = aim_of(lambda run: mostly(run) + 0.1 * (run.line == "auc" and run.seed == 0))
    assert noisy.verdict == "confirmed"
    few = ("phoneme", "letter_z", "abalone_7", "annthyroid")
    some = aim_of(
        lambda run: 0.8 + (0.001 if run.setting.dataset in few else -0.001) * (run.line == "auc")
    )
    assert (some.verdict, some.ahead) == ("open", 4)  # of ten: no proof that it is not half
    regime = find_regime("clean")
    even = aim_of(lambda run: 0.8 + sign(run) * ahead(run))
    assert even.verdict == "open"  # as often ahead as behind
    assert even.difference.low < -0.002 < even.difference.high


def ahead(run):
    return 0.01 if find_regime("noise").lines["mlp"][run.line].get("ranks") else 0.0


def sign(run):
    return (-1) ** find_regime("clean").datasets.index(run.setting.dataset)


def test_auto_has_for_each_seed_what_its_validation_rows_prefer(tmp_path):
    regime = replace(find_regime("clean"), datasets=("haberman", "phoneme"))
    prefers = {0: "ce", 1: "auc", 2: "auc", 3: "pairwise", 4: "auc-ce"}
    write_records(tmp_path, regime, lambda run: 0.9 if run.line == prefers[run.seed] else 0.8)
    (auto,) = Results(regime, tmp_path).autos()
    assert auto.chosen == {"ce": 2, "auc": 4, "pairwise": 2, "auc-ce": 2}
    assert auto.best == "auc"  # in two of five seeds
    assert auto.from_best.mean == pytest.approx(0.9 - (0.8 + 0.1 * 2 / 5))
    assert auto.from_ce.mean == pytest.approx(0.9 - (0.8 + 0.1 / 5))
    assert auto.verdict == "confirmed"
    worse = {"valid": 0.95, "test": 0.7}  # what it prefers is worst
    write_records(tmp_path, regime, lambda run: worse if run.line == "ce" else 0.8)
    (auto,) = Results(regime, tmp_path).autos()
    assert (auto.verdict, auto.chosen) == ("refuted", {"ce": 10})
    assert "Refuted, as far as the other lines' runs tell: on average objective=" in rst_page(
        RegimeResults(Results(regime, tmp_path)), "study"
    )


def test_auto_chooses_from_what_fit_tries():
    for metric, lines in plan()["auto"]["lines"].items():
        regime = next(x for x in map(find_regime, regimes()) if x.metric == metric)
        tried = CANDIDATES.get(metric.partition("@")[0], RANKS_ALL)
        assert {regime.lines["mlp"][line]["objective"] for line in lines} == {*tried}


def test_what_was_added_is_kept_apart(tmp_path):
    regime = find_regime("noise").objectives
    later = {name for name, line in regime.lines["mlp"].items() if line.get("added")}
    assert later == set(regime.lines["mlp"]) - set(regime.planned.lines["mlp"]) != set()
    write_records(tmp_path, regime.planned, made_up)
    found = RegimeResults.read("noise", tmp_path)
    assert found.planned.values
    assert found.later is None  # its runs are missing
    write_records(tmp_path, regime, lambda run: 0.9 if run.line in later else made_up(run))
    found = RegimeResults.read("noise", tmp_path)
    page = rst_page(found, "study-noise")
    planned, added = page.split("was added when all of that was known")
    assert "after cross-entropy" not in planned
    assert "after cross-entropy" in added
    assert '"AUC margin, sigmoid": of six ways to begin it was chosen on' in added
    assert [x.added for x in answers(found)] == [False, True]
    best = {"auc-margin": 0.95}
    write_records(tmp_path, regime, lambda run: best.get(run.line) or made_up(run))
    page = when_page([RegimeResults.read("noise", tmp_path)])
    assert '5 data sets. "AUC margin, sigmoid": of six ways to begin it was chosen on' in page
    write_records(tmp_path, regime, lambda run: 0.7 if run.line in later else made_up(run))
    found = RegimeResults.read("noise", tmp_path)
    assert found.later is not None
    assert [x.added for x in answers(found)] == [False]  # they change nothing


def test_where_an_aim_is_refuted_it_is_said_what_was_tried(tmp_path):
    def page_of(name, value_of):
        write_records(tmp_path / name, find_regime(name).planned, value_of)
        return rst_page(RegimeResults.read(name, tmp_path / name), f"study-{name}")

    tried = find_regime("noise").tried
    for gain, times in ((0.01, 0), (-0.05, 1)):
        page = page_of("noise", lambda run, gain=gain: 0.8 + gain * (run.line == "auc"))
        assert page.count(tried) == times
    page = page_of("groups", lambda run: 0.8)
    assert "Refuted: 0.01" in page
    assert "What is refuted was left as it is." in page


def test_lines_beside_count_neither_as_ours_nor_as_theirs(tmp_path):
    better = {"haberman": 0.03, "phoneme": 0.01, "w8a": 0.03, "mammography": 0.04}
    regime = replace(find_regime("clean"), datasets=tuple(better))

    def value(run):
        libauc = 0.8 + better[run.setting.dataset]
        return {"libauc": libauc, "auto": 0.9, "auc-ce": 0.85}.get(run.line, 0.8)

    write_records(tmp_path, regime.objectives, value)
    before = RegimeResults.read("clean", tmp_path)
    assert before.planned.values
    assert before.whole is None  # its runs are missing
    write_records(tmp_path, regime, value)
    found = RegimeResults.read("clean", tmp_path)
    assert found.planned.comparisons() == before.planned.comparisons()
    shown = [
        (x.line, x.other, x.is_best, round(x.difference.mean, 9), x.ahead, x.datasets, x.diverged)
        for x in found.whole.besides()
    ]
    assert shown == [
        ("libauc", "auc", False, 0.0275, 4, 4, 0),
        ("libauc", "auc-margin", False, 0.0275, 4, 4, 0),
        ("libauc", "auc-ce", False, -0.0225, 0, 4, 0),
        ("auto", "auc-ce", True, 0.05, 4, 4, 0),
    ]
    page = rst_page(found, "study-clean")
    assert '"LibAUC: AUCM with PESG" minus "AUC saddle, sigmoid", two hidden' in page
    assert 'minus "AUC saddle + cross-entropy", the best line of all, two hidden' in page
    assert page.count("+0.0350 (−0.0285 to +0.0985) on those for confirming alone") == 1
    assert "LibAUC" not in rst_page(before, "study-clean")
    assert 'Clean labels, the whole AUC: "LibAUC: AUCM' in when_page([found])
    assert "LibAUC" not in when_page([before])


def test_lines_beside_are_asked_for_and_need_libauc(tables, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "libauc", None)
    with pytest.raises(ValueError, match="beside must be False for small"):
        run_study("small", data=tables, out=tmp_path, beside=True)
    with pytest.raises(ValueError, match="needs the package libauc"):
        run_study("clean", data=tables, out=tmp_path, beside=True)


@pytest.mark.parametrize("name", regimes())
def test_what_a_user_is_told_to_type_runs(name):
    random = torch.Generator().manual_seed(0)
    x, group = torch.randn(80, 3, generator=random), torch.arange(80) % 4
    y = (x[:, 0] + torch.randn(80, generator=random) > 0.5).float()
    names = {"aucmax": aucmax, "x": x, "y": y, "group": group, "copy": copy}
    one = SimpleNamespace(product=lambda *values: [next(itertools.product(*values))])
    exec(IMPORTS, names)
    exec(SEARCH, names | (known := {"itertools": itertools if name == "clean" else one}), names)
    names |= known
    regime = find_regime(name).objectives
    rows = (x, y, None, group) if regime.columns else (x, y)
    names |= {"train": rows, "valid": rows, "model": mlp(3, [4], generator=random)}
    for lines in regime.lines.values():
        for line in lines.values():
            if line["kind"] == "pictures":
                compile(code_of(line, regime.metric), name, "exec")
            if line["kind"] == "network" and not line.get("offset"):
                code = code_of(line, regime.metric)
                exec(re.sub(r"steps=\d+", "steps=2, progress=False", code), names)
                assert 0 <= names["result"].score <= 1


def test_what_is_new_stands_between_the_marks():
    assert between_marks(f"a{BEGIN}old{END}b", "new") == f"a{BEGIN}new{END}b"
    with pytest.raises(ValueError, match="found one of them at most"):
        between_marks(f"a{BEGIN}", "new")


def test_it_helps_where_it_is_ahead_of_the_strongest_likelihood(tmp_path):
    regime = find_regime("clean")

    def values(run):
        if run.line == "focal":  # chosen by nothing, best where others confirm
            return 0.83 if run.setting.dataset in plan()["data"]["confirming"] else 0.7
        return made_up(run)

    def asked():
        found = RegimeResults(Results(regime, tmp_path))
        return found, [x.word for x in answers(found)]

    write_records(tmp_path, regime, values)
    found, words = asked()
    (recommended,) = found.planned.recommendations()
    assert (recommended.theirs, recommended.strongest, words) == ("ce", "focal", ["no"])
    assert 'valid, {"focal": {}}, grid' in when_page([found])
    write_records(tmp_path, regime, made_up)
    found, words = asked()
    assert words == ["yes"]
    row = ["Clean labels, the whole AUC", "squared hinge on pairs"]
    row += ["+0.0198 (+0.0198 to +0.0198)", "yes"]
    assert "   * - " + "\n     - ".join(row) in short_table([found])
    said = "In 1 comparisons the best ranking objective was shown to help in 1"
    assert said in in_a_sentence([found])
    assert "Not measured yet: few false alarms" in in_a_sentence([found])
    assert "+0.0198 (+0.0198 to +0.0198) on 11 data sets" in when_table([found])
    assert 'valid, {"pairwise": {}}, grid' in when_page([found])


def test_a_line_that_diverged_anywhere_is_not_recommended(tmp_path):
    regime = find_regime("clean")
    once = ("phoneme", 3)

    def values(run):
        has_diverged = (run.setting.dataset, run.seed) == once and run.line == "pairwise"
        return None if has_diverged else made_up(run)

    write_records(tmp_path, regime, values)
    results = Results(regime, tmp_path)
    (found,) = results.recommendations()
    assert found.ours != "pairwise"
    assert "1 run diverged" in rst_page(RegimeResults(results), "study")


def test_parts_of_a_study_are_shown_without_what_they_lack(tmp_path):
    regime = replace(find_regime("groups"), datasets=("simulated",))
    write_records(tmp_path, regime, lambda run: 0.8)
    results = Results(regime, tmp_path)
    assert results.autos() == results.recommendations() == results.aims() == []
    assert "made so that ranking can gain" in rst_page(RegimeResults(results), "study")
    regime = replace(find_regime("clean"), datasets=("haberman",))
    write_records(tmp_path, regime, lambda run: None if ahead(run) else 0.8)
    assert Results(regime, tmp_path).comparisons() == []  # no ranking objective came to an end


def test_a_partial_auc_is_a_share_of_the_whole(tmp_path):
    regime = replace(find_regime("top"), datasets=("haberman",))
    write_records(tmp_path, regime, lambda run: 0.025)
    results = Results(regime, tmp_path)
    assert {x.test[0] for lines in results.values.values() for x in lines.values()} == {0.5}


def test_a_record_of_another_plan_is_not_taken(tmp_path, monkeypatch):
    regime = replace(find_regime("clean").objectives, datasets=("haberman",))
    write_records(tmp_path, regime, made_up)
    monkeypatch.setitem(plan()["models"]["mlp"], "steps", 20)
    assert Results(replace(find_regime("clean"), datasets=("haberman",)), tmp_path).values == {}


@pytest.mark.parametrize(
    "line", ["logloss", "square", "logistic-regression", "hinge-pairs", "sigmoid-pairs"]
)
def test_trees_and_linear_models_learn(tables, line):
    pytest.importorskip("lightgbm")
    regime = find_regime("small", ["haberman"])
    run = next(x for x in regime.trials("haberman") if x.line == line)
    assert train_run(run, regime, tables)["test"]["roc_auc"] > 0.7


@pytest.mark.parametrize("line", ["libauc", "libauc-partial", "libauc-ap", "auto"])
def test_lines_beside_learn(tables, line, monkeypatch):
    if line != "auto":
        pytest.importorskip("libauc", reason="LibAUC is installed by hand, for comparisons alone")
    name = "top" if line in ("libauc-partial", "libauc-ap") else "clean"
    regime = find_regime(name)
    monkeypatch.setitem(regime.models["mlp"], "steps", 60)
    run = next(x for x in regime.trials("haberman") if x.line == line and x.options["lr"] == 0.01)
    assert train_run(run, regime, tables)["test"]["roc_auc"] > 0.6


def test_an_optimum_has_no_slope_and_is_below_its_start(tables):
    x, y, *_ = make_problem(tables, "haberman", {}, 0).train
    loss, start = aucmax.PairwiseAUCLoss("sigmoid", scale=3.0), torch.ones(x.shape[1]).double()

    def objective(w):
        return loss(x.double() @ w, y) + 0.01 * (w - start).square().sum()

    w = optimum(lambda w: loss(x.double() @ w, y), start, 0.01).requires_grad_()
    objective(w).backward()
    assert w.grad.abs().max() < 1e-4
    assert objective(w) < objective(start) - 0.001


def test_data_without_tables_is_refused(tmp_path):
    with pytest.raises(ValueError, match="data must be a folder with one named tables"):
        run_study("clean", data=tmp_path, out=tmp_path / "out")


# ---- Statistics ----------------------------------------------------------------------------------


def test_splits_of_the_same_rows_without_overlap_are_the_plain_t_test():
    x = [0.01, 0.03, -0.01, 0.02, 0.04]
    found, plain = resampled(x, ratio=0), stats.ttest_1samp(x, 0)
    interval = plain.confidence_interval(0.95)
    assert found == pytest.approx((np.mean(x), interval.low, interval.high, plain.pvalue))
    assert resampled(x, ratio=3 / 7).p > found.p


def test_of_five_differences_wilcoxons_p_cannot_be_small_and_is_left_out():
    differences = [0.01, 0.02, 0.03, 0.04, 0.05]
    found = over_datasets(differences)
    assert math.isnan(found.p)
    assert stats.wilcoxon(differences).pvalue > 0.05
    assert difference_text(found) == "+0.0300 (+0.0104 to +0.0496)"
    found = over_datasets([*differences, 0.06])
    assert found.p == stats.wilcoxon([*differences, 0.06]).pvalue < 0.05
    assert difference_text(found).endswith("; p = 0.031)")
    assert difference_text(over_datasets([0.01])) == "+0.0100"


def test_intervals_over_data_sets_are_those_of_t_and_p_is_wilcoxons():
    x = [0.01, 0.03, -0.015, 0.02, 0.04, 0.005]
    interval = stats.ttest_1samp(x, 0).confidence_interval(0.95)
    expected = (np.mean(x), interval.low, interval.high, stats.wilcoxon(x).pvalue)
    assert over_datasets(x) == pytest.approx(expected)


def test_holm_rejects_what_stepping_down_rejects():
    random = np.random.default_rng(0)
    for _ in range(100):
        p = random.uniform(0, 0.2, size=6)
        rejected = set()
        for rank, k in enumerate(np.argsort(p)):
            if p[k] > 0.05 / (6 - rank):
                break
            rejected.add(int(k))
        assert {k for k, x in enumerate(holm(list(p))) if x <= 0.05} == rejected
