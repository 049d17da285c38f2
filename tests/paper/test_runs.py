"""The experiments: which runs they have, what decides a run, and what is left of it on disk."""

import itertools
import json
import math
import os
import re
import resource
import shutil
import sys
import threading
import warnings
from contextlib import suppress
from functools import partial

import numpy as np
import optuna
import pytest
import torch
from experiment_helpers import results, stamps, timeless
from fit_data import one_thread  # noqa: F401

import aucmax
from aucmax import history, paper, stages
from aucmax.disk import write_json
from aucmax.models import mlp
from aucmax.paper import datasets, prepare, reproduce, timing
from aucmax.paper.commands import command_of
from aucmax.paper.datasets import ImageData
from aucmax.paper.folder import Folder
from aucmax.paper.libauc import with_libauc
from aucmax.paper.progress import RunsBar
from aucmax.paper.results import RunResult, settings_of
from aucmax.paper.runner import Runner, train_by_turns, train_run
from aucmax.paper.settings import EXPERIMENTS, _options, make_plan
from aucmax.paper.training import fit_options, make_model, make_parts
from aucmax.paper.tune import command_options, plan_trials, tune_runs

pytestmark = pytest.mark.xdist_group("experiments")
SMALL = {"protocols": ["strong"], "removed": [0.9], "seeds": 1}
LINES = ("ppd-sg", "sgd")
CLEAN = {"wrong": [0, 0], "valid": 200}
EVERY_LINE = (
    "ppd-sg", "ppd-sg-normalized", "ppd-sg-pretrained", "ppd-sg-no-prox", "ppd-adagrad", "pga",
    "oauc", "sgd", "sgd-staged", "adagrad", "libauc",
)  # fmt: skip


def one_run(line, dataset="digits", experiment="figure1", protocol="strong", **options):
    options = {"removed": [0.9], "seeds": 1, **options}
    (found,) = make_plan(experiment, dataset, protocols=[protocol], lines=[line], **options).runs
    return found


def runner(path):
    folder = Folder(path)
    return Runner(folder, "cpu", 1, RunsBar(folder, show=False))


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


# ---- The plan ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experiment", "curves", "ratios", "seeds"),
    [
        ("figure1", 6 + 7, ["50/50", "71/29", "83/17", "91/9"], 3),
        ("figure1-long", 5, ["91/9"], 3),
        ("figure2", 3 + 4, ["50/50", "71/29", "83/17", "91/9"], 3),
        ("figure3", 6 + 5, ["10:1", "20:1"], 5),
        ("readings", 3 + 3 + 3, ["91/9"], 3),
    ],
)
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "stl10", "catdog", "digits"])
def test_every_experiment_has_its_curves_at_every_ratio_for_every_seed(
    experiment, curves, ratios, seeds, dataset
):
    plan = make_plan(experiment, dataset)
    assert len(plan.runs) == curves * len(ratios) * seeds
    assert sorted({run.ratio for run in plan.runs}) == ratios
    assert {run.seed for run in plan.runs} == {*range(seeds)}
    assert {run.experiment for run in plan.runs} == {experiment}
    assert len({run.name for run in plan.runs}) == len(plan.runs)
    assert len({run.key for run in plan.runs}) == curves * len(ratios)
    assert plan.wanted.seeds == seeds


def test_the_lists_of_experiments_and_lines_are_whole():
    assert EXPERIMENTS == ("figure1", "figure1-long", "figure2", "figure3", "readings")
    for line in EVERY_LINE:
        assert one_run(line).line == line


def test_all_lines_of_a_seed_come_before_the_next_seed():
    """Whatever is done so far can be compared; the strongest imbalance first."""
    runs = make_plan("figure1", "digits").runs
    order = [(-run.removed, run.seed) for run in runs]
    assert order == sorted(order)
    assert len({(run.protocol, run.line) for run in runs[:13]}) == 13


@pytest.mark.parametrize(
    ("experiment", "removed", "ratio"),
    [
        ("figure1", 0.0, "50/50"),
        ("figure1", 0.6, "71/29"),
        ("figure1", 0.8, "83/17"),
        ("figure1", 0.9, "91/9"),
        ("figure3", 0.95, "20:1"),
        ("figure3", 0.9, "10:1"),
    ],
)
def test_a_ratio_is_named_as_in_the_paper(experiment, removed, ratio):
    run = one_run("ppd-sg", experiment=experiment, removed=[removed])
    assert run.ratio == ratio
    assert run.name == f"strong-digits-{ratio.replace('/', '-').replace(':', '-')}-ppd-sg-seed0"


@pytest.mark.parametrize(
    "twice",
    [
        {"removed": [0.9, 0.9]},
        {"removed": [0.9, 0.901]},  # both are 91/9: their results would be one file
        {"lines": ["sgd", "sgd"]},
        {"protocols": ["paper", "paper"]},
    ],
    ids=str,
)
def test_no_run_is_planned_twice(twice):
    with pytest.raises(ValueError, match="once, found more of paper-digits-"):
        make_plan("figure1", "digits", **twice)


def test_what_is_asked_for_is_what_is_planned():
    asked = {"protocols": ["paper"], "removed": [0.5], "lines": ["pga", "oauc"]}
    plan = make_plan("figure2", "stl10", seeds=2, steps=7, **asked)
    assert [(run.line, run.seed) for run in plan.runs] == [
        ("pga", 0), ("oauc", 0), ("pga", 1), ("oauc", 1),
    ]  # fmt: skip
    assert {(r.protocol, r.removed, r.options["steps"]) for r in plan.runs} == {("paper", 0.5, 7)}
    assert plan.wanted == (3, 80_000, ("50/50", "71/29", "83/17", "91/9"))
    assert "Figure 2" in plan.title
    assert "STL-10" in plan.title


def test_the_last_word_counts():
    """Line above protocol above data set."""
    paper, strong = (one_run("ppd-sg", protocol=name).options for name in ("paper", "strong"))
    assert (paper["normalize"], strong["normalize"]) == (False, True)
    assert one_run("ppd-sg-normalized", protocol="paper").options["normalize"] is True
    assert one_run("sgd", protocol="paper").options["iterate"] == "last"
    assert one_run("sgd", protocol="strong").options["iterate"] == "average"
    assert one_run("libauc").options["positives"] == 0.8
    assert strong["positives"] == 0.5
    assert "positives" not in paper
    assert (strong["batch_size"], one_run("sgd", "cifar10").options["batch_size"]) == (32, 128)
    assert one_run("sgd", "stl10").options["batch_size"] == 32
    for run in make_plan("figure1", "cifar10").runs:
        assert not any(isinstance(value, dict) for value in run.options.values())
        assert "title" not in run.options


def test_from_the_general_to_the_special():
    """Data set, protocol, data set under it, line, line under it, and what was found."""
    keys = ("a", "b", "c", "d", "e", "f")
    settings = {
        "datasets": {"digits": dict.fromkeys(keys, 1) | {"eval_every": 50, "title": "Digits"}},
        "protocols": {
            "strong": dict.fromkeys(keys[1:], 2) | {"first_stage": 0.5, "factor": 3},
            "other": dict.fromkeys(keys[2:], 3) | {"like": "strong"},
        },
        "lines": {"mine": dict.fromkeys(keys[3:], 4) | {"method": "pga"}},
        "tuned": {"digits": {"strong-mine": {"f": 6}, "paper-mine": {"a": 7}}, "stl10": {}},
    }
    settings["lines"]["mine"]["strong"] = dict.fromkeys(keys[4:], 5)
    settings["lines"]["mine"]["paper"] = dict.fromkeys(keys, 8)
    settings["datasets"]["digits"] |= {"strong": {"b": 9, "valid": 0.1}, "paper": {"a": 8}}
    found = _options(settings, "digits", "other", "mine", 100)
    assert [found[key] for key in keys] == [1, 9, 3, 4, 5, 6]
    known = {"method", "first_stage", "factor", "steps", "eval_every", "valid"}
    assert found.keys() == {*keys, *known}
    found = _options(settings, "digits", "strong", "mine", 100)
    assert [found[key] for key in keys] == [1, 9, 2, 4, 5, 6]


@pytest.mark.parametrize(
    ("line", "protocol", "steps", "first"),
    [
        ("ppd-sg", "paper", 80_000, 2_000),
        ("ppd-sg", "strong", 80_000, 40_000),
        ("sgd-staged", "strong", 80_000, 40_000),
        ("pga", "paper", 80_000, 208),
        ("ppd-sg", "paper", 20_000, 2_000),
        ("ppd-sg", "strong", 39, 20),
        ("ppd-sg", "strong", 41, 21),
    ],
)
def test_the_first_stage_takes_its_share(line, protocol, steps, first):
    run = one_run(line, "stl10", protocol=protocol, steps=steps)  # whose settings are not tuned
    assert fit_options(run)["stages"][0].steps == first


def test_the_line_without_prox_is_what_its_name_says():
    options = fit_options(one_run("ppd-sg-no-prox", "cifar10", steps=20_000))
    assert (options["method"], options["restart"], options["positives"]) == ("ppd-sg", "last", 0.5)
    momentum = {"momentum": 0.9, "weight_decay": 1e-3, "gamma": math.inf}
    assert options["optimizer_options"] == momentum
    assert options["loss_options"] == {"normalize": True}
    (trials,) = plan_trials(
        [one_run("ppd-sg-no-prox", tuned=False)], {"strong": GRID}, None, None
    ).values()
    assert {trial.options["gamma"] for trial in trials} == {"inf"}
    assert len(trials) == 4


@pytest.mark.parametrize("line", ["sgd", "adagrad", "oauc"])
def test_what_has_no_stages_has_no_first(line):
    assert not {"first_stage", "factor"} & one_run(line).options.keys()
    assert "stages" not in fit_options(one_run(line))


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (39, 1), (400, 20), (2_000, 50), (8_000, 50)])
def test_a_short_run_is_evaluated_as_often_as_a_long_one(steps, every):
    assert one_run("sgd", steps=steps).options["eval_every"] == every


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"experiment": "figure4"}, "experiment must be one of 'figure1'.*, found 'figure4'"),
        ({"dataset": "mnist"}, "dataset must be one of .*'digits'.*, found 'mnist'"),
        ({"protocols": ["weak"]}, "protocols must be one of 'paper', 'strong', found 'weak'"),
        ({"lines": ["ppd"]}, "lines must be one of .*'ppd-sg'.*, found 'ppd'"),
        ({"removed": [1.0]}, r"removed must be .*but not 1, found 1\.0"),
        ({"removed": ["most"]}, "removed must be .*, found 'most'"),
        ({"seeds": 0}, "seeds must be an integer >= 1, found 0"),
        ({"seeds": 1.5}, r"seeds must be an integer >= 1, found 1\.5"),
        ({"steps": -1}, "steps must be an integer >= 1, found -1"),
    ],
)
def test_what_is_wrong_is_named_before_a_folder_is_made(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        reproduce(**{"experiment": "figure1", "progress": False, **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be an integer >= 1, found 0"),
        ({"device": "abacus"}, "device must be .*, found 'abacus'"),
        ({"time_limit": -1.0}, r"time_limit must be .*, found -1\.0"),
        ({"time_limit": math.nan}, "time_limit must be .*, found nan"),
        ({"tune": True, "trials": 0}, "trials must be an integer >= 1, found 0"),
        ({"tune": True, "tune_steps": 0}, "tune_steps must be an integer >= 1, found 0"),
        ({"tune": {"momentum": [0.9]}}, "tune must be a grid of lr, .*, found .*momentum"),
        ({"tune": {"lr": []}}, "tune must .*lr"),
        ({"lines": ["libauc"]}, "libauc"),
    ],
)  # fmt: skip
def test_so_is_what_is_wrong_with_the_way_it_is_run(tmp_path, monkeypatch, options, message):
    monkeypatch.setitem(sys.modules, "libauc", None)
    monkeypatch.chdir(tmp_path)
    small = {"lines": ["sgd"], "steps": 2, "progress": False, **SMALL}
    with pytest.raises(ValueError, match=message):
        reproduce("figure1", **{**small, **options})
    assert not list(tmp_path.iterdir())


# ---- From a run to fit -------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["paper", "strong"])
@pytest.mark.parametrize("line", [line for line in EVERY_LINE if line != "libauc"])
def test_every_line_is_an_option_of_fit(line, protocol):
    """Momentum and weight decay reach those that have them; each has a loss of its own kind."""
    run = one_run(line, protocol=protocol, steps=100)
    found, strong, method = fit_options(run), protocol == "strong", run.options["method"]
    parts = tuple(torch.zeros(60, 1, 8, 8, dtype=torch.uint8) for _ in range(2))
    y = (torch.arange(60) % 3 == 0).float()
    generator = torch.Generator().manual_seed(0)
    x = [torch.randint(0, 17, part.shape, generator=generator) for part in parts]
    result = aucmax.fit(
        mlp(64, (4,)), (x[0], y), (x[1], y), test=(x[1], y),
        **{**found, "steps": 3, "pretrain": min(2, found["pretrain"]), "progress": False},
    )  # fmt: skip
    assert result.steps == 3 + min(2, found["pretrain"])
    staged = method in ("ppd-sg", "ppd-adagrad", "pga")
    extras = {"ppd-sg": ("momentum", "weight_decay"), "sgd": ("momentum", "weight_decay")}
    names = {**extras, "adagrad": ("weight_decay",)}.get(method, ()) if strong else ()
    extra = {name: run.options[name] for name in names}
    extra |= {"gamma": float(run.options["gamma"])} if staged else {}
    extra |= {"output": "last"} if method == "pga" else {}
    assert found["optimizer_options"] == extra
    normalize = strong or line == "ppd-sg-normalized"
    cross_entropy = method in ("sgd", "adagrad")
    assert found["loss_options"] == ({} if cross_entropy else {"normalize": normalize})
    in_stages = staged or line == "sgd-staged"
    assert ("stages" in found, "lr" in found) == (in_stages, not in_stages)
    assert found["pretrain"] == (25 if line == "ppd-sg-pretrained" else 0)  # a quarter at most
    assert found["steps"] + found["pretrain"] == 100
    assert found["positives"] == (0.5 if strong else None)
    assert found["save_every"] == 5 * found["eval_every"]


@pytest.mark.parametrize("seed", [0, 4])
def test_the_runs_seed_is_fits(seed):
    run = make_plan("figure1", "digits", seeds=5, lines=["sgd"]).runs
    assert {fit_options(r)["seed"] for r in run if r.seed == seed} == {seed}


def test_images_are_augmented_where_they_are_images():
    assert fit_options(one_run("sgd", "digits"))["augment"] is None
    shifted = fit_options(one_run("sgd", "cifar10"))["augment"]
    assert repr(shifted) == "CropAndFlip(padding=4, flip=True)"
    assert fit_options(one_run("sgd", "cifar10", protocol="paper"))["augment"] is None


@pytest.mark.parametrize("first", [0.0025, 0.1, 0.5, 1, 7, 3000.0])
@pytest.mark.parametrize("steps", [1, 20, 2_000])
@pytest.mark.parametrize("line", ["ppd-sg", "ppd-adagrad", "pga", "sgd-staged"])
def test_the_stages_are_as_many_as_the_steps_need(line, steps, first):
    run = one_run(line, steps=steps).with_options(first_stage=first, factor=4, lr=0.25)
    found = fit_options(run)["stages"]
    assert sum(stage.steps for stage in found) >= steps
    assert sum(stage.steps for stage in found[:-1]) < steps
    assert (found[0].steps, found[0].lr) == (
        first if first >= 1 else math.ceil(first * steps),
        0.25,
    )
    rule = stages.polynomial if line == "pga" else partial(stages.geometric, factor=4)
    assert found == rule(0.25, found[0].steps, stages=len(found))


def test_libauc_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "libauc", None)
    with pytest.raises(
        ValueError, match=r"line 'libauc' needs the package libauc, version 2\.0\.1"
    ):
        with_libauc(fit_options(one_run("libauc")), mlp(4), "cpu")


# ---- Data and model ----------------------------------------------------------------------------


@pytest.mark.parametrize(("removed", "kept"), [(0.0, 678), (0.6, 271), (0.8, 136), (0.9, 68)])
def test_the_parts_have_the_counts_that_were_wanted(digits, removed, kept):
    """Of 674 positives and 678 negatives; validation has 200 in the share that is left."""
    run = one_run("sgd", removed=[removed]).with_options(**CLEAN)
    counts = make_parts(run, digits).counts()
    share = round(200 * kept / (674 + kept))
    assert counts["valid"] == [200 - share, share]
    assert counts["train"] == [674 - (200 - share), kept - share]
    assert counts["test"] == [222, 223]


def test_the_parts_are_what_partition_thinning_and_split_leave(digits):
    run = make_plan("figure3", "digits", lines=["sgd"], seeds=3, removed=[0.9]).runs[-1]
    assert run.seed == 2
    parts = make_parts(run.with_options(**CLEAN), digits)
    positive = prepare.random_halves(10, 2)
    y = np.isin(digits.y_train, positive).astype(int)
    rows = prepare.thin(y, 0.9, seed=2)
    train, valid = (rows[part] for part in prepare.split(y[rows], 200, seed=2))
    for (x, target), part in ((parts.train, train), (parts.valid, valid)):
        assert torch.equal(x, torch.from_numpy(digits.x_train[part]).permute(0, 3, 1, 2))
        assert target.tolist() == y[part].tolist()
        assert target.dtype == torch.float32
        assert x.dtype == torch.uint8
        assert x.is_contiguous(memory_format=torch.channels_last)
    assert len(parts.test[1]) == 445
    assert parts.test[1].tolist() == np.isin(digits.y_test, positive).tolist()


@pytest.mark.parametrize("protocol", ["paper", "strong"])
def test_wrong_labels_are_trained_on_and_not_tested_on(digits, protocol):
    run = one_run("sgd", protocol=protocol)
    parts, clean = (make_parts(x, digits) for x in (run, run.with_options(wrong=[0, 0])))
    assert torch.equal(parts.test[1], clean.test[1])
    changed = torch.cat([parts.train[1] - clean.train[1], parts.valid[1] - clean.valid[1]])
    true = torch.cat([clean.train[1], clean.valid[1]])
    assert [int((changed == x).sum()) for x in (1, -1)] == [
        round(0.2 * int((true == 0).sum())), round(0.06 * int((true == 1).sum()))
    ]  # fmt: skip
    assert all(torch.equal(x[0], y[0]) for x, y in zip(parts, clean, strict=True))


@pytest.mark.parametrize(
    ("protocol", "train", "valid"),
    [
        ("paper", [574, 58], [100, 100]),  # 674 and 678 of which 100 each are set apart, then 58
        ("paper-after", [492, 50], [182, 18]),  # 674 and 68 of which 200 are set apart
        ("paper-none", [674, 68], None),
    ],
)
def test_the_readings_of_the_split(digits, protocol, train, valid):
    run = one_run("sgd", experiment="readings", protocol=protocol).with_options(**CLEAN)
    parts = make_parts(run, digits)
    held_out = {} if valid is None else {"valid": valid}
    assert parts.counts() == {"train": train, **held_out, "test": [222, 223]}
    if valid is not None:
        seen = parts.train[0].flatten(1)[:, None] == parts.valid[0].flatten(1)
        assert not seen.all(2).any()


def test_where_nothing_is_held_out_nothing_is_chosen(tmp_path, digits):
    folder = Folder(tmp_path)
    folder.store_images(digits)
    run = one_run("sgd", experiment="readings", protocol="paper-none", steps=20)
    result = train_run(run, folder, "cpu", 1)
    assert result.result.chosen is None
    assert 0 < result.result.final["last"] < 1
    (row,) = paper.summarize([result])
    assert (row.chosen.n, row.final_valid.n, row.shown.n) == (0, 0, 1)


def test_a_seed_decides_rows_and_weights_and_another_decides_others(digits):
    first, other = make_plan("figure1", "digits", lines=["sgd"], **{**SMALL, "seeds": 2}).runs
    parts = [make_parts(run, digits) for run in (first, first, other)]
    assert torch.equal(parts[0].train[0], parts[1].train[0])
    assert not torch.equal(parts[0].train[0], parts[2].train[0])
    models = [make_model(run, parts[0].train[0]).state_dict() for run in (first, first, other)]
    name = "2.weight"
    assert torch.equal(models[0][name], models[1][name])
    assert not torch.equal(models[0][name], models[2][name])


def test_the_lines_of_a_seed_share_data_and_weights(digits):
    one, two = one_run("ppd-sg"), one_run("sgd")
    parts = [make_parts(run, digits) for run in (one, two)]
    assert torch.equal(parts[0].train[0], parts[1].train[0])
    models = [make_model(run, parts[0].train[0]).state_dict() for run in (one, two)]
    assert all(torch.equal(models[1][name], x) for name, x in models[0].items())


def test_the_model_standardizes_by_the_training_images(digits):
    images = make_parts(one_run("sgd"), digits).train[0]
    model = make_model(one_run("sgd"), images)
    seen = model[0](images)
    assert abs(seen.mean()) < 1e-4
    assert abs(seen.std() - 1) < 1e-4
    coloured = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
    resnet = make_model(one_run("sgd", "cifar10"), coloured)
    assert type(resnet).__name__ == "ResNet20"
    assert resnet.standardize(coloured).mean((0, 2, 3)).abs().max() < 1e-4


def test_repeats_are_dropped_before_anything_is_drawn(tmp_path):
    x = np.arange(40, dtype=np.uint8).reshape(10, 2, 2, 1)
    rows, tested = [0, 1, 1, 2, 3, 4], [3, 5, 5]
    images = ImageData(x[rows], np.array(rows), x[tested], np.array(tested), ("a", "b"))
    Folder(tmp_path).store_images(images)
    found = Folder(tmp_path).stored_images()
    assert found.y_train.tolist() == [0, 1, 2, 4]
    assert found.y_test.tolist() == [3, 5]
    assert np.array_equal(found.x_train, x[[0, 1, 2, 4]])
    assert np.array_equal(found.x_test, x[[3, 5]])
    assert found.classes == ("a", "b")
    assert isinstance(found.x_train, np.memmap)  # every worker shares it


# ---- One run -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the .* AUC is nan", "ignore:alpha = ")
def test_a_run_that_diverges_is_recorded_and_counted(tmp_path, digits):
    Folder(tmp_path).store_images(digits)
    plan = make_plan("figure1", "digits", lines=["sgd", "ppd-sg"], steps=20, **SMALL)
    wild = plan.runs[0].with_options(lr=1e30)
    for run in (wild, plan.runs[1]):
        assert not runner(tmp_path).is_done(run)
        train_run(run, Folder(tmp_path), "cpu", 1)
        assert runner(tmp_path).is_done(run)
    found = results(tmp_path)
    assert "diverged at step" in found[wild.name]["error"]
    assert found[wild.name]["result"] is None
    assert "error" not in found[plan.runs[1].name]
    assert not any((tmp_path / "unfinished" / "runs").iterdir())
    rows = paper.summarize(paper.read_results(tmp_path / "runs"))
    assert {row.line: row.diverged for row in rows} == {"sgd": 1, "ppd-sg": 0}


def test_a_result_is_there_whole_or_not_at_all(tmp_path):
    """A reader that looks all the time never sees a part of it."""
    path, content, over = tmp_path / "result.json", {"a": [*range(100_000)]}, threading.Event()
    seen = []

    def look():
        while not over.is_set():
            with suppress(FileNotFoundError):
                seen.append(path.read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(10):
        write_json(path, content)
    over.set()
    reader.join()
    assert len(set(seen)) == 1
    assert json.loads(seen[0]) == content
    assert [other.name for other in path.parent.iterdir()] == ["result.json"]


def test_a_result_that_cannot_be_written_leaves_the_run_where_it_was(tmp_path, digits):
    """A folder stands in the way; when it is gone the run ends without training again."""
    Folder(tmp_path).store_images(digits)
    run = one_run("sgd", steps=20)
    target, work = tmp_path / "runs" / f"{run.name}.json", tmp_path / "unfinished/runs" / run.name
    target.mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        train_run(run, Folder(tmp_path), "cpu", 1)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [target.name]
    before = history.read(work / "history.jsonl")
    target.rmdir()
    train_run(run, Folder(tmp_path), "cpu", 1)
    (found,) = results(tmp_path).values()
    assert found["history"] == before
    assert not work.exists()


@pytest.mark.filterwarnings("ignore:the .* AUC is nan")
def test_runs_that_take_turns_leave_the_results_of_runs_alone(tmp_path, digits):
    """As on a GPU; one of them diverges."""
    plan = make_plan("figure1", "digits", lines=["sgd", "ppd-sg", "oauc"], steps=20, **SMALL)
    first, second, third = plan.runs
    runs, asked = [first.with_options(lr=1e30), second, third], []
    for folder in ("alone", "in turn"):
        Folder(tmp_path / folder).store_images(digits)
    for run in runs:
        train_run(run, Folder(tmp_path / "alone"), "cpu", 2)
    begun = (asked.append(run.name) or run for run in runs)
    done = {}
    turns = Folder(tmp_path / "in turn")
    for run, result in train_by_turns(begun, turns, "cpu", 2):
        assert turns.result(run) == result
        assert len(asked) < 3 or len(done) > 0  # the third had to wait for a place
        done[run.name] = result
    assert sorted(done) == sorted(run.name for run in runs)
    found = results(tmp_path / "in turn")
    assert timeless(found) == timeless(results(tmp_path / "alone"))
    assert "diverged" in found[first.name]["error"]
    assert {result["at_once"] for result in found.values()} == {2}
    assert not any((tmp_path / "in turn" / "unfinished" / "runs").iterdir())


def test_a_damaged_result_is_named(tmp_path):
    run = one_run("sgd")
    path = Folder(tmp_path).result_file(run)
    RunResult(**settings_of(run, "cpu"), history=[]).write(path)
    assert runner(tmp_path).is_done(run)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        runner(tmp_path).is_done(run)


# ---- An experiment from start to end -----------------------------------------------------------


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Two lines by two workers: the folder, and the call that made it."""
    out = tmp_path_factory.mktemp("experiment") / "out"
    call = {"lines": LINES, "steps": 200, "out": out, "workers": 2, "progress": False, **SMALL}
    assert reproduce("figure1", **call) == out / "index.html"
    return out, call


def test_what_an_experiment_leaves(experiment):
    out, _ = experiment
    names = {f"runs/strong-digits-91-9-{line}-seed0.json" for line in LINES}
    made = {"index.html", "table.txt", "summary.svg", "by-step.svg", "by-seconds.svg"}
    assert set(stamps(out)) == names | made
    page = (out / "index.html").read_text()
    assert all(label in page for label in ("PPD-SG", "SGD, cross-entropy", "Figure 1"))


def test_a_result_says_all_about_its_run(experiment):
    out, call = experiment
    for name, found in results(out).items():
        run = one_run(found["line"], steps=call["steps"])
        assert run.name == name
        described = json.loads(json.dumps(settings_of(run, "cpu")))
        assert {key: found[key] for key in described} == described
        assert found["precision"] == "float32"
        configured = {"partition": "halves", "removed": 0.9, "model": "mlp", "batch_size": 32}
        assert configured.items() <= found["configuration"].items()
        assert found["configuration"]["lr"] == run.options["lr"]
        assert found["counts"]["test"] == [222, 223]
        assert found["at_once"] == 2
        assert {"python", "torch", "aucmax"} <= set(found["versions"])
        assert found["hardware"]
        assert len(found["date"]) == len("2020-01-01")
        assert found["commit"] is None or found["commit"]
        assert found["seconds"] > 0
        assert 0 < found["seconds_per_step"] < found["seconds"]
        assert {record["step"] for record in found["history"]} >= {*range(10, 201, 10)}
        last, final = found["history"][-1], found["result"]["final"]
        assert final == {which: last[f"test_auc_{which}"] for which in ("last", "average")}
        assert 0.8 < final["last"] <= 1


def test_the_chosen_weights_are_the_best_on_validation_data(experiment):
    """And what is said of them is how they do on the test data."""
    for found in results(experiment[0]).values():
        chosen = found["result"]["chosen"]
        best = max(
            r[f"valid_auc_{which}"] for r in found["history"] for which in ("last", "average")
        )
        assert chosen["valid_auc"] == best
        (at,) = [r for r in found["history"] if r["step"] == chosen["step"]]
        assert at[f"valid_auc_{chosen['iterate']}"] == best
        assert at[f"test_auc_{chosen['iterate']}"] == chosen["test_auc"]


def test_a_result_is_that_of_fit_called_by_hand(experiment, digits):
    """PPD-SG under the strong protocol, without any of the experiments' own functions."""
    found = results(experiment[0])["strong-digits-91-9-ppd-sg-seed0"]
    settings = found["configuration"]
    y = (digits.y_train >= 5).astype(int)
    rows = prepare.thin(y, 0.9, seed=0)
    train, valid = (rows[part] for part in prepare.split(y[rows], 0.2, seed=0))
    y[rows] = prepare.mislabel(y[rows], (0.2, 0.06), seed=0)
    x = torch.from_numpy(digits.x_train).permute(0, 3, 1, 2)
    x_test = torch.from_numpy(digits.x_test).permute(0, 3, 1, 2)
    y, y_test = torch.from_numpy(y), torch.from_numpy(digits.y_test >= 5)
    pixels = x[train].double()
    generator = torch.Generator().manual_seed(0)
    model = mlp(
        64, mean=[pixels.mean().item()], std=[pixels.std(correction=0).item()], generator=generator
    )
    assert (settings["normalize"], settings["momentum"]) == (True, 0.9)
    first = math.ceil(settings["first_stage"] * 200)
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, os.cpu_count() // 2))
    result = aucmax.fit(
        model, (x[train], y[train]), (x[valid], y[valid]), test=(x_test, y_test), seed=0,
        method="ppd-sg", steps=200, batch_size=32, positives=0.5, eval_every=10, probe=256,
        stages=aucmax.stages.geometric(settings["lr"], first, settings["factor"], stages=5),
        loss_options={"normalize": True}, progress=False,
        optimizer_options={
            "gamma": settings["gamma"], "momentum": 0.9, "weight_decay": settings["weight_decay"],
        },
    )  # fmt: skip
    torch.set_num_threads(before)
    assert timeless(found["history"]) == timeless(json.loads(json.dumps(result.history)))
    assert found["result"]["chosen"]["valid_auc"] == result.auc


def test_done_again_nothing_is_done(experiment):
    out, call = experiment
    before, spent = stamps(out), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    reproduce("figure1", **call)
    # No worker was started: it takes seconds to import torch.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - spent < 0.5
    after = stamps(out)
    assert after.keys() == before.keys()
    runs = [name for name in before if name.startswith("runs/")]
    assert {name: after[name] for name in runs} == {name: before[name] for name in runs}


def test_after_the_time_limit_no_run_begins_and_the_page_shows_what_is_done(experiment):
    out, call = experiment
    before, spent = stamps(out), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert reproduce("figure1", **{**call, "lines": [*LINES, "oauc"], "time_limit": 0}).exists()
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - spent < 0.5
    assert stamps(out).keys() == before.keys()
    assert "OAUC" not in (out / "table.txt").read_text()
    assert "SGD, cross-entropy" in (out / "table.txt").read_text()


def test_a_time_limit_that_leaves_nothing_to_show_is_an_error(tmp_path):
    small = {"lines": ["sgd"], "steps": 2, "progress": False, **SMALL}
    with pytest.raises(ValueError, match="time_limit must leave time for a run"):
        reproduce("figure1", out=tmp_path, time_limit=0, **small)


@pytest.mark.parametrize(
    ("other", "named"),
    [({"steps": 201}, "steps"), ({"protocols": ["paper", "strong"], "steps": 80}, "steps")],
)
def test_results_of_other_settings_are_refused_and_left_alone(experiment, other, named):
    out, call = experiment
    before = stamps(out)
    with pytest.raises(ValueError, match=f"out must be .*with another {named}") as caught:
        reproduce("figure1", **{**call, **other})
    assert str(out) in str(caught.value)
    assert stamps(out) == before


def test_a_result_of_another_configuration_is_refused(experiment):
    run, there = one_run("sgd", steps=200), runner(experiment[0])
    assert there.is_done(run)
    for option, value in (("lr", 0.3), ("batch_size", 16), ("weight_decay", 0.5)):
        with pytest.raises(ValueError, match="with another configuration"):
            there.is_done(run.with_options(**{option: value}))
    with pytest.raises(ValueError, match="with another iterate"):
        there.is_done(run.with_options(iterate="last"))


def test_more_seeds_and_lines_join_those_that_are_there(experiment):
    """They are missing, not different."""
    more = {**SMALL, "lines": ["sgd", "pga"], "seeds": 2}
    wanted = make_plan("figure1", "digits", steps=200, **more)
    done = [runner(experiment[0]).is_done(run) for run in wanted.runs]
    assert done == [True, False, False, False]


def test_the_same_runs_are_taken_from_another_folder(experiment, tmp_path):
    """Of another figure too; what is to be trained otherwise is missing."""
    call = {"lines": ["sgd"], "steps": 200, "workers": 1, "progress": False, **SMALL}
    reproduce("figure2", **call, out=tmp_path / "taken", reuse=experiment[0])
    (path,) = (tmp_path / "taken" / "runs").iterdir()
    mine, theirs = (
        json.loads((f / path.name).read_text()) for f in (path.parent, experiment[0] / "runs")
    )
    assert mine == {**theirs, "experiment": "figure2"}
    other = {**call, "steps": 20, "time_limit": 0}
    with pytest.raises(ValueError, match="time_limit must leave time for a run"):
        reproduce("figure2", **other, out=tmp_path / "missing", reuse=experiment[0])
    with pytest.raises(ValueError, match="reuse must be a folder of results"):
        reproduce("figure2", **call, out=tmp_path / "none", reuse=tmp_path)
    assert not (tmp_path / "none").exists()


# ---- Tuning ------------------------------------------------------------------------------------

GRID = {"lr": [0.1, 0.01], "gamma": [500, 2000], "first_stage": [0.1, 0.5]}


def test_a_line_is_timed_once_for_all_its_ratios_and_figures(experiment, tmp_path, monkeypatch):
    out, call = experiment
    monkeypatch.setattr(timing, "LENGTHS", (2, 4))
    monkeypatch.setattr(timing, "configure_torch", lambda threads: None)  # for this process
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(out, first)
    reproduce("figure1", **{**call, "out": first, "time_limit": 0, "time_alone": True})
    times = json.loads((first / "timing.json").read_text())
    assert times.keys() == {f"strong-digits-{line}" for line in LINES}
    assert {result.at_once for result in timing.read_timed_results(Folder(first))} == {1}
    more = {"removed": [0.8, 0.9], "seeds": 1, "lines": [*LINES, "adagrad"], "reuse": first}
    more |= {"out": second, "time_limit": 0, "time_alone": True}
    with pytest.raises(ValueError, match="time_limit must leave time for a run"):
        reproduce("figure3", **{**call, **more})
    again = json.loads((second / "timing.json").read_text())
    assert again.keys() - times.keys() == {"strong-digits-adagrad"}
    assert {name: again[name] for name in times} == times
    (second / "timing.json").unlink()
    write_json(first / "timing.json", {k: {**x, "hardware": "other"} for k, x in times.items()})
    with pytest.raises(ValueError, match="time_limit must leave time for a run"):
        reproduce("figure3", **{**call, **more})
    again = json.loads((second / "timing.json").read_text())
    assert {x["hardware"] for x in again.values()} == {times["strong-digits-sgd"]["hardware"]}


def points(trials):
    return [tuple(trial.options[name] for name in GRID) for trial in trials]


def trials_of(run, grid, steps=20, most=None):
    ((name, found),) = plan_trials([run], {"strong": grid}, steps, most).items()
    assert name == run.key.file_name
    return found


def test_every_point_of_the_grid_is_tried_once_those_near_the_settings_first():
    run = one_run("ppd-sg", steps=320, tuned=False)
    trials = trials_of(run, GRID)
    assert sorted(points(trials)) == sorted(itertools.product(*GRID.values()))
    assert {*points(trials)[:2]} == {(0.1, 2000, 0.5), (0.01, 2000, 0.5)}
    changed = [(gamma != 2000) + (first != 0.5) for _, gamma, first in points(trials)]
    assert changed == [0, 0, 1, 1, 1, 1, 2, 2]
    assert points(trials_of(one_run("ppd-adagrad", tuned=False), GRID)) == points(trials)
    assert points(trials_of(run, GRID)) == points(trials)
    assert points(trials_of(run, GRID, most=3)) == points(trials)[:3]
    assert {(trial.options["steps"], trial.seed) for trial in trials} == {(20, 0)}
    assert len({trial.name for trial in trials} | {run.name}) == 9


def test_a_lines_own_settings_are_among_the_trials():
    """Those of PGA's first stage are in no grid."""
    run = one_run("pga", tuned=False)
    trials = trials_of(run, GRID)
    assert len(trials) == 2 * 2 * 3
    own = [trial for trial in trials[:2] if trial.options["lr"] == run.options["lr"]]
    assert [trial.options["first_stage"] for trial in own] == [0.0026]


def test_a_search_begins_without_what_others_found(tmp_path):
    """So that options that it leaves alone are those of the settings."""
    tuned, own = (one_run("ppd-sg", "cifar10", tuned=value).options for value in (True, False))
    assert {"tuned"} == tuned.keys() - own.keys()
    assert (own["lr"], own["gamma"], own["first_stage"]) == (0.1, 2000, 0.5)
    with pytest.raises(ValueError, match="tune must be False for readings"):
        reproduce("readings", tune=True, out=tmp_path)


def test_a_trial_is_a_sixteenth_of_a_run_of_the_first_seed():
    plan = make_plan("figure1", "digits", lines=["sgd", "ppd-sg"], steps=320, tuned=False)
    studies = plan_trials(plan.runs, plan.grids, None, None)
    trials = [trial for study in studies.values() for trial in study]
    assert len(trials) == 2 * 5 + 5 * 3 * 4 + 5 * 3 * 3  # what each line has under each protocol
    assert {t.options["first_stage"] for t in studies["paper-digits-91-9-ppd-sg"]} == {
        200, 500, 1000, 2000,
    }  # fmt: skip
    assert {trial.ratio for trial in trials} == {"91/9"}
    assert {(trial.options["steps"], trial.seed) for trial in trials} == {(20, 0)}


def test_a_method_without_stages_has_step_sizes_alone():
    trials = trials_of(one_run("sgd", tuned=False), GRID)
    assert sorted(trial.options["lr"] for trial in trials) == [0.01, 0.1]
    assert not any("gamma" in trial.options for trial in trials)


@pytest.fixture(scope="module")
def trained_trials(tmp_path_factory, digits):
    """A search of step sizes whose trials are done: the runs, the grid and the folder."""
    folder = Folder(tmp_path_factory.mktemp("trials"))
    folder.store_images(digits)
    runs = make_plan(
        "figure1", "digits", lines=["sgd"], steps=320, tuned=False, **{**SMALL, "seeds": 2}
    ).runs
    grid = {"lr": [0.2, 0.1, 0.05, 0.01]}
    for trial in trials_of(runs[0], grid):
        train_run(trial, folder, "cpu", 1)
    return runs, grid, folder


@pytest.fixture
def searched(tmp_path, trained_trials):
    """Ends the search on validation AUCs of ours in the real results."""
    runs, grid, trained = trained_trials
    shutil.copytree(trained.path / "trials", tmp_path / "trials")

    def search(values):
        for trial in trials_of(runs[0], grid):
            path = Folder(tmp_path).result_file(trial)
            found = json.loads(path.read_text())
            value = values[trial.options["lr"]]
            if value is None:
                found |= {"result": None, "error": "training diverged at step 5"}
            else:
                found["history"][-1]["valid_auc_average"] = value
                found["history"][0]["valid_auc_average"] = 1 - value  # the end counts
            path.write_text(json.dumps(found))
        (tmp_path / "studies.log").unlink(missing_ok=True)
        studies = plan_trials(runs, {"strong": grid}, 20, None)
        return tune_runs(runs, studies, runner(tmp_path), "--tune")

    search.folder = tmp_path
    return search


def test_the_best_on_validation_data_is_used_for_every_seed(searched):
    before = one_run("sgd", steps=320, tuned=False)
    found = searched({0.2: 0.6, 0.1: 0.7, 0.05: 0.9, 0.01: 0.8})
    assert [(run.seed, run.options["lr"]) for run in found] == [(0, 0.05), (1, 0.05)]
    kept = {k: v for k, v in found[0].options.items() if k not in ("lr", "tuned")}
    assert kept == {k: v for k, v in before.options.items() if k not in ("lr", "tuned")}
    (best,) = json.loads((searched.folder / "tuned.json").read_text()).values()
    where = {"protocol": "strong", "dataset": "digits", "ratio": "91/9", "line": "sgd"}
    search = {"trials": 4, "steps": 20, "how": "--tune"}
    assert best == {**where, "options": {"lr": 0.05}, "valid_auc": 0.9, **search}


@pytest.mark.parametrize(
    ("tune", "steps", "trials", "command"),
    [
        (True, None, None, "--tune"),
        (True, 30, 4, "--tune --tune-steps 30 --trials 4"),
        ({"lr": [0.1, 0.05]}, 30, None, "--tune-lr 0.1 0.05 --tune-steps 30"),
        ({"gamma": [500], "first_stage": [0.5]}, None, 1,
         "--tune-gamma 500 --tune-first-stage 0.5 --trials 1"),
    ],
)  # fmt: skip
def test_a_tuned_result_says_how_to_search_again(tune, steps, trials, command):
    assert command_options(tune, steps, trials) == command


def test_optunas_tools_can_read_the_search(searched):
    searched({0.2: 0.6, 0.1: None, 0.05: 0.9, 0.01: 0.8})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backend = optuna.storages.journal.JournalFileBackend(str(searched.folder / "studies.log"))
        storage = optuna.storages.JournalStorage(backend)
    study = optuna.load_study(study_name="strong-digits-91-9-sgd", storage=storage)
    assert study.best_params == {"lr": 0.05}
    assert sorted(trial.value for trial in study.trials) == [0.6, 0.8, 0.9]


def test_what_diverged_is_never_the_best(searched):
    found = searched({0.2: None, 0.1: None, 0.05: 0.3, 0.01: 0.2})
    assert {run.options["lr"] for run in found} == {0.05}


def test_where_all_diverged_the_settings_stay(searched):
    found = searched(dict.fromkeys([0.2, 0.1, 0.05, 0.01]))
    assert {run.options["lr"] for run in found} == {one_run("sgd", tuned=False).options["lr"]}
    assert not any("tuned" in run.options for run in found)
    assert json.loads((searched.folder / "tuned.json").read_text()) == {}


def test_trials_of_other_settings_are_refused(searched):
    """Not taken for those of these settings."""
    searched(dict.fromkeys([0.2, 0.1, 0.05, 0.01], 0.5))
    other = one_run("sgd", steps=320, tuned=False).with_options(batch_size=16)
    studies = plan_trials([other], {"strong": {"lr": [0.2, 0.1]}}, 20, None)
    with pytest.raises(ValueError, match="with another configuration"):
        tune_runs([other], studies, runner(searched.folder), "--tune")


def test_tuning_without_optuna_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImportError, match=r"pip install 'aucmax\[tune\]'"):
        reproduce("figure1", tune=True, lines=["sgd"], steps=20, progress=False, **SMALL)
    assert not list(tmp_path.iterdir())


def repeated(changes=None, **plan):
    """What to type for results of a plan, of which some have other options."""
    runs = make_plan("figure1", "digits", **plan).runs
    runs = [run.with_options(**(changes or {}).get(run.line, {})) for run in runs]
    return command_of([RunResult(**settings_of(run, "cpu"), history=[]) for run in runs])


@pytest.mark.parametrize(
    ("plan", "command"),
    [
        ({}, "--dataset digits"),
        ({"protocols": ["paper"], "seeds": 1}, "--dataset digits --protocol paper --seeds 1"),
        (
            {"removed": [0.9, 0.5], "steps": 100},
            "--dataset digits --removed 0.5 0.9 --steps 100",
        ),
        (
            {"lines": ["sgd", "libauc"]},
            "--dataset digits --protocol paper --lines sgd libauc\n"
            "aucmax reproduce figure1 --dataset digits --protocol strong --lines sgd libauc",
        ),
    ],
)
def test_what_to_type_for_the_same_results(plan, command):
    assert repeated(**plan) == f"aucmax reproduce figure1 {command}"


def test_lines_that_ran_otherwise_have_a_command_of_their_own():
    plan = {"protocols": ["strong"], "lines": ["sgd", "pga"]}
    same, shorter = repeated({"pga": {"steps": 50}}, **plan).splitlines()
    assert same.endswith("--protocol strong --lines sgd")
    assert shorter.endswith("--protocol strong --lines pga --steps 50")
    tuned = {"lr": 0.3, "tuned": "--tune-lr 0.3 0.1"}
    same, searched = repeated({"pga": tuned}, **plan).splitlines()
    assert same.endswith("--protocol strong --lines sgd")
    assert searched.endswith("--protocol strong --lines pga --tune-lr 0.3 0.1")
