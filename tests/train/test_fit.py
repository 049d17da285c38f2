"""What fit does besides the method's own steps: records, the choice of weights, random numbers."""

import copy
import itertools
import json
import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from fit_data import (
    assert_same_weights,
    binary,
    fit,
    hidden,
    linear,
    multiclass,
    multilabel,
    one_thread,  # noqa: F401
    scores_of,
    weights,
    with_batch_norm,
    with_dropout,
)
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import aucmax
from aucmax import AUCLoss, evaluate, load_weights, minmax_groups
from aucmax.history import read
from aucmax.stages import Stage

METHODS = ["ppd-sg", "ppd-adagrad", "pga", "oauc", "sgd", "adagrad", "adamw"]
X, Y = binary()
VALID = binary(seed=1, shift=1.0)
TEST = binary(251, seed=2, shift=0.5)
FIELDS = {
    "step", "phase", "stage", "lr", "seconds", "steps_per_second", "loss", "a", "b", "alpha",
    "train_auc_last", "train_auc_average", "valid_auc_last", "valid_auc_average",
}  # fmt: skip


def run(model=None, valid=VALID, train=(X, Y), **options):
    defaults = {"steps": 40, "batch_size": 32, "eval_every": 8, "probe": 64}
    return fit(model or hidden(), train, valid, **{**defaults, **options})


def best_of(history):
    """Step, iterate and AUC that validation likes best, the first of equals."""
    found = [
        (r["step"], iterate, r[f"valid_auc_{iterate}"])
        for r in history
        for iterate in ("last", "average")
    ]
    return max(found, key=lambda x: x[2])


# ---- The result --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "make", "valid"),
    [
        ("ppd-sg", hidden, VALID),
        ("ppd-sg", with_batch_norm, None),
        ("ppd-adagrad", with_dropout, VALID),
        ("pga", with_batch_norm, VALID),
        ("oauc", with_batch_norm, VALID),
        ("oauc", hidden, None),
        ("sgd", with_dropout, None),
        ("adagrad", hidden, VALID),
        ("adamw", with_batch_norm, VALID),
    ],
)
def test_result_is_best_on_validation_and_its_aucs_match_sklearn(method, make, valid):
    result = run(make(), valid, method=method, lr=0.5, steps=60, eval_every=4, test=TEST)
    assert all(r.keys() == FIELDS | {"test_auc_last", "test_auc_average"} for r in result.history)
    (record,) = [r for r in result.history if r["step"] == result.step]
    found = {"test": (record[f"test_auc_{result.iterate}"], TEST)}
    if valid:
        assert (result.step, result.iterate, result.auc) == best_of(result.history)
        found["valid"] = result.auc, valid
    for auc, (x, y) in found.values():
        assert evaluate(result.model, (x, y)) == auc
        assert roc_auc_score(y, scores_of(result.model, x)) == pytest.approx(auc, rel=1e-12)


def test_earlier_iterate_may_be_the_best():
    """Data that turns wrong late must not cost what was learned early."""
    calls = []

    def turned_later(x):
        calls.append(1)
        return -x if len(calls) > 150 else x

    result = run(linear(), method="sgd", lr=1.0, steps=200, augment=turned_later)
    assert result.history[-1]["valid_auc_last"] < 0.5
    assert result.step < 150
    assert result.auc == evaluate(result.model, VALID) > 0.85


def few_of(x, y, positives):
    """So few positives, and all negatives."""
    kept = torch.cat([torch.nonzero(y == 1)[:positives, 0], torch.nonzero(y == 0)[:, 0]])
    return x[kept], y[kept]


def test_of_few_positives_the_latest_average_is_steadier_than_the_highest_value():
    options = {"valid": few_of(*VALID, 5), "method": "sgd", "lr": 0.5, "steps": 60}
    result = run(choose="steady", **options)
    (*_, highest), last = best_of(result.history), result.history[-1]
    assert (result.step, result.iterate) == (60, "average")
    assert result.auc == last["valid_auc_average"] < highest
    assert evaluate(result.model, options["valid"]) == result.auc
    assert run(choose="best", **options).auc == highest


def test_of_many_positives_the_steady_choice_sees_what_is_worse():
    calls = []

    def turned_later(x):
        calls.append(1)
        return -x if len(calls) > 150 else x

    options = {"method": "sgd", "lr": 1.0, "steps": 400, "augment": turned_later}
    result = run(linear(), choose="steady", **options)
    assert result.history[-1]["valid_auc_average"] < 0.6
    assert result.step < 300
    assert result.auc > 0.85


def test_steady_choice_needs_validation_rows_in_one_order():
    rows = torch.utils.data.TensorDataset(*VALID)
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.utils.data.DataLoader(rows, 64, shuffle=True, generator=generator)
    with pytest.raises(ValueError, match="valid must come in the same order every time"):
        run(valid=shuffled, choose="steady", steps=60)


def test_last_iterate_is_chosen_only_where_the_test_sees_it_ahead():
    """An average of few large steps lags behind: seen by many positives, and not by few."""
    stages = [Stage(index=1, lr=0.3, steps=8, dual_samples=0)]
    options = {"method": "sgd", "stages": stages, "steps": 8, "choose": "steady"}
    model = linear()
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(-0.3)  # the wrong way round, from which the average comes late
    for valid, iterate in ((VALID, "last"), (few_of(*VALID, 3), "average")):
        found = run(copy.deepcopy(model), valid=valid, **options)
        (record,) = found.history
        assert record["valid_auc_last"] > record["valid_auc_average"]
        assert found.iterate == iterate


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_without_a_test_the_highest_average_is_kept(task):
    make = multiclass if task == "multiclass" else multilabel
    result = run(linear(3, 3), make(seed=1), make(), choose="steady")
    highest = max(result.history, key=lambda r: r["valid_auc_average"])
    assert result.iterate == "average"
    assert (result.step, result.auc) == (highest["step"], highest["valid_auc_average"])


@pytest.mark.parametrize("method", METHODS)
def test_without_validation_it_is_the_methods_own_iterate(method):
    result = run(valid=None, method=method)
    expected = "last" if method in ("sgd", "adagrad", "adamw") else "average"
    assert (result.step, result.iterate, result.steps) == (40, expected, 40)
    assert math.isnan(result.auc)
    assert result.reason == "all steps taken"
    assert all(r["valid_auc_last"] is None for r in result.history)


def test_model_that_was_passed_is_trained_in_place():
    model = hidden()
    result = run(model)
    assert result.model is model
    assert not any(module.training for module in model.modules())


def test_validation_does_not_change_the_walk():
    with_valid, without = run(), run(valid=None)
    assert [r["loss"] for r in with_valid.history] == [r["loss"] for r in without.history]


def evaluations_until(history, patience):
    """How many it takes until so many in a row were no better than the best before them."""
    best, without = -math.inf, 0
    for count, record in enumerate(history, start=1):
        auc = max(record["valid_auc_last"], record["valid_auc_average"])
        best, without = (auc, 0) if auc > best else (best, without + 1)
        if without == patience:
            return count
    return len(history)


def test_patience_stops():
    options = {"lr": 0.3, "steps": 200, "eval_every": 5}
    whole = run(linear(), **options)
    for patience in (1, 3, 1000):
        result = run(linear(), patience=patience, **options)
        expected = evaluations_until(whole.history, patience)
        assert [r["loss"] for r in result.history] == [r["loss"] for r in whole.history[:expected]]
        assert result.steps == result.history[-1]["step"]
        stopped = f"no better validation AUC in {patience} evaluations"
        assert result.reason == ("all steps taken" if patience == 1000 else stopped)
        assert patience == 1000 or result.steps < 200


def test_run_killed_between_its_last_checkpoint_and_its_result_takes_no_more_steps(tmp_path):
    options = {"lr": 0.3, "steps": 200, "eval_every": 5, "patience": 1, "out": tmp_path}
    first = run(linear(), **options)
    assert first.steps < 200
    (tmp_path / "model.json").unlink()
    again = run(linear(seed=5), **options)
    assert (again.steps, again.step, again.reason) == (first.steps, first.step, first.reason)
    assert_same_weights(again.model, first.model)


def test_loss_comes_with_the_values_of_the_end():
    result = run()
    assert {k: result.history[-1][k] for k in ("a", "b", "alpha")} == {
        k: getattr(result.loss, k).item() for k in ("a", "b", "alpha")
    }


# ---- Records -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ppd-sg", "oauc", "adamw"])
def test_record_per_evaluation(method):
    history = run(method=method).history
    assert all(r.keys() == FIELDS for r in history)
    steps = [r["step"] for r in history]
    assert steps == sorted(set(steps))
    assert {8, 16, 24, 32, 40} <= set(steps)
    assert [r["stage"] for r in history] == sorted(r["stage"] for r in history)
    assert {r["phase"] for r in history} == {method}
    assert all(a["seconds"] <= b["seconds"] for a, b in itertools.pairwise(history))
    assert all(r["steps_per_second"] > 0 for r in history)
    assert all(0 <= r[name] <= 1 for r in history for name in FIELDS if "auc" in name)


def test_pretraining_is_stage_0():
    history = run(pretrain=16).history
    stages = {
        phase: {r["stage"] for r in history if r["phase"] == phase}
        for phase in ("pretrain", "ppd-sg")
    }
    assert stages == {"pretrain": {0}, "ppd-sg": {1, 2, 3, 4}}


def test_evaluations_are_due_every_so_many_steps_and_at_the_ends_of_stages():
    """Stages of 1, 2, 8 and 29 steps end after 1, 3, 11 and 40."""
    assert [r["step"] for r in run(eval_every=15).history] == [1, 3, 11, 15, 30, 40]
    assert [r["step"] for r in run(eval_every=10**6).history] == [1, 3, 11, 40]


def test_fortieth_of_the_steps_is_between_evaluations():
    result = fit(linear(), (X, Y), method="oauc", steps=130, probe=0)
    assert [r["step"] for r in result.history] == [*range(4, 130, 4), 130]


def test_training_auc_is_that_of_the_probe():
    """A probe of all rows, drawn without replacement, has the AUC of the data."""
    result = run(train=(X, Y), valid=(X, Y), batch_size=400, probe=400)
    for r in result.history:
        assert r["train_auc_last"] == pytest.approx(r["valid_auc_last"], rel=1e-12)
        assert r["train_auc_average"] == pytest.approx(r["valid_auc_average"], rel=1e-12)


def test_without_a_probe_there_is_no_training_auc():
    assert {r["train_auc_last"] for r in run(probe=0).history} == {None}


def test_file_holds_the_records(tmp_path):
    result = run(valid=None, out=tmp_path)
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    strict = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert strict == result.history == read(tmp_path / "history.jsonl")
    assert len(lines) == len({r["step"] for r in result.history})


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_several_saddle_variables_are_lists(task, tmp_path):
    train = multiclass() if task == "multiclass" else multilabel(missing=0.1)
    result = run(linear(3, 3), None, train, out=tmp_path)
    found = torch.tensor(result.history[-1]["alpha"])
    torch.testing.assert_close(found, result.loss.alpha.detach())
    assert read(tmp_path / "history.jsonl") == result.history


def test_tensorboard_shows_the_records(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(out=tmp_path, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    numbers = FIELDS - {"step", "phase", "stage"}
    assert numbers <= set(events.Tags()["scalars"])
    for name in numbers:
        found = [(e.step, e.value) for e in events.Scalars(name)]
        assert [step for step, _ in found] == [r["step"] for r in result.history]
        expected = [r[name] for r in result.history]
        assert [value for _, value in found] == pytest.approx(expected, rel=1e-6)


def test_folder_holds_the_result(tmp_path):
    result = run(with_batch_norm(), out=str(tmp_path))
    assert result.out == tmp_path
    model = with_batch_norm(seed=9)
    notes = load_weights(model, tmp_path)
    assert_same_weights(model, result.model)
    known = (result.step, result.iterate, result.auc, result.steps, result.reason)
    assert tuple(notes[k] for k in ("step", "iterate", "auc", "steps", "reason")) == known


def test_numpy_numbers_are_numbers(tmp_path):
    options = {
        "seed": np.int64(3), "steps": np.int64(30), "lr": np.float32(0.125),
        "positives": np.float32(0.5), "batch_size": np.int32(16),
    }  # fmt: skip
    plain = {name: value.item() for name, value in options.items()}
    result = run(out=tmp_path / "numpy", **options)
    assert_same_weights(result.model, run(out=tmp_path / "plain", **plain).model)


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run()
    assert list(tmp_path.iterdir()) == []


# ---- Test data ---------------------------------------------------------------------------------


TIMES = ("seconds", "steps_per_second")


def without(history, *names):
    """The records but for the clock and more fields."""
    return [{k: v for k, v in r.items() if k not in (*TIMES, *names)} for r in history]


def test_test_auc_of_both_iterates_at_every_step():
    """Validation on the same data finds the same."""
    for r in run(valid=TEST, test=TEST).history:
        assert r["test_auc_last"] == r["valid_auc_last"]
        assert r["test_auc_average"] == r["valid_auc_average"]


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_test_auc_of_several_classes_or_labels(task):
    make = multiclass if task == "multiclass" else multilabel
    result = run(linear(3, 3), None, make(), test=make(101, seed=2))
    expected = evaluate(result.model, make(101, seed=2))
    assert result.history[-1]["test_auc_average"] == expected


class Pairs(Dataset):
    """A Dataset that is not one of tensors."""

    def __init__(self, x, y):
        self.x, self.targets = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.targets[i]


@pytest.mark.parametrize(
    "data",
    [
        tuple(x.numpy() for x in TEST),
        TensorDataset(*TEST),
        Pairs(*TEST),
        DataLoader(TensorDataset(*TEST), 32),
        list(DataLoader(TensorDataset(*TEST), 32)),
    ],
    ids=["arrays", "TensorDataset", "Dataset", "DataLoader", "list"],
)
def test_test_data_of_every_kind(data):
    found, expected = (run(hidden().double(), test=test).history for test in (data, TEST))
    assert without(found) == without(expected)


PLATEAU = {"factor": 2, "patience": 1, "stages": 4, "dual_samples": 50}


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        ("no validation", with_batch_norm),
        ("validation, patience", with_dropout),
        ("validation, plateau", with_batch_norm),
    ],
)
def test_nothing_is_chosen_by_test_data(rule, make):
    """Nor by its opposite, which likes other steps better."""
    x, y = VALID
    valid = None if rule == "no validation" else VALID

    def walked(**options):
        options |= {"patience": 2} if "patience" in rule else {}
        stages = {"stages": aucmax.stages.plateau(0.5, **PLATEAU)}
        options |= stages if "plateau" in rule else {"lr": 0.5}
        return run(make(), valid, steps=60, eval_every=3, **options)

    expected = walked()
    for test in (TEST, (x, 1 - y)):
        found = walked(test=test)
        assert without(found.history, "test_auc_last", "test_auc_average") == without(
            expected.history
        )
        chosen = [(r.step, r.iterate, r.steps, r.reason, str(r.auc)) for r in (found, expected)]
        assert chosen[0] == chosen[1]
        assert_same_weights(found.model, expected.model)
        assert_same_weights(found.loss, expected.loss)


def test_test_data_of_one_class_warns_once():
    with pytest.warns(UserWarning, match="the test AUC is nan") as caught:
        result = run(test=(X, torch.zeros(len(X))))
    assert len(caught) == 1
    assert {r["test_auc_last"] for r in result.history} == {None}
    assert (result.step, result.iterate, result.auc) == best_of(result.history)


# ---- Random numbers ----------------------------------------------------------------------------


def states():
    version, keys, gauss = random.getstate()
    numpy = np.random.get_state()  # noqa: NPY002
    return version, keys, gauss, numpy[1].tolist(), numpy[2:], torch.get_rng_state().tolist()


def disturb(seed):
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    random.gauss(0, 1)  # leaves a second number behind
    np.random.normal()  # noqa: NPY002


@pytest.mark.parametrize("method", ["ppd-sg", "adamw"])
def test_callers_random_numbers_are_left_as_they_were(method):
    model = with_dropout()
    disturb(3)
    before = states()
    run(model, method=method)
    assert states() == before


def test_they_are_left_as_they_were_by_a_run_that_fails():
    model = with_dropout()
    disturb(3)
    before = states()
    with pytest.raises(ZeroDivisionError):
        run(model, augment=lambda x: torch.randn(3) / (1 // 0))
    assert states() == before


def noisy(x):
    """An augmentation with random numbers of all three kinds."""
    return x + 0.1 * torch.randn(x.shape) + random.gauss(0, 0.1) + float(np.random.normal(0, 0.1))  # noqa: NPY002


def test_training_goes_by_the_seed_not_by_the_callers_random_numbers():
    found = []
    for callers, seed in ((1, 0), (2, 0), (1, 5)):
        disturb(callers)
        found.append(run(with_dropout(), augment=noisy, seed=seed))
    assert_same_weights(found[0].model, found[1].model)
    assert found[0].auc == found[1].auc
    assert not torch.equal(found[0].model[0].weight, found[2].model[0].weight)


# ---- Parts, clipping, precision, compilation ---------------------------------------------------


@pytest.mark.parametrize(
    ("method", "accumulate"), [(method, (2, 4)[k % 2]) for k, method in enumerate(METHODS)]
)
def test_batch_in_parts_is_the_whole_batch(method, accumulate):
    whole = run(hidden().double(), method=method)
    parts = run(hidden().double(), method=method, accumulate=accumulate)
    torch.testing.assert_close(
        parts.model.state_dict(), whole.model.state_dict(), rtol=1e-9, atol=1e-10
    )
    for a, b in zip(parts.history, whole.history, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-9)


def test_weighted_batch_in_parts_is_the_whole_batch():
    weight = torch.tensor(np.random.default_rng(0).uniform(0.2, 3, len(Y)))
    found = [run(hidden().double(), train=(X, Y, weight), accumulate=k) for k in (1, 4)]
    torch.testing.assert_close(
        found[1].model.state_dict(), found[0].model.state_dict(), rtol=1e-9, atol=1e-10
    )


@pytest.mark.parametrize(("task", "method"), [("multiclass", "ppd-sg"), ("multilabel", "sgd")])
def test_batch_of_every_task_in_parts_is_the_whole_batch(task, method):
    train = multiclass() if task == "multiclass" else multilabel()
    whole, parts = (
        run(linear(3, 3).double(), None, train, method=method, accumulate=k) for k in (1, 2)
    )
    torch.testing.assert_close(
        parts.model.state_dict(), whole.model.state_dict(), rtol=1e-9, atol=1e-10
    )


def test_one_process_has_nobody_to_average_local_steps_with():
    alone, local = (run(hidden(), local_steps=n) for n in (None, 3))
    assert_same_weights(local.model, alone.model)
    assert local.auc == alone.auc


def test_balanced_batches_in_parts():
    whole, parts = (run(hidden().double(), positives=0.5, accumulate=k) for k in (1, 2))
    torch.testing.assert_close(
        parts.model.state_dict(), whole.model.state_dict(), rtol=1e-9, atol=1e-10
    )


def test_probe_that_parts_do_not_divide_changes_nothing():
    """The probe is a number of samples: it must not depend on how batches are worked on."""
    whole, parts = (run(hidden().double(), probe=40, accumulate=k) for k in (1, 2))
    torch.testing.assert_close(
        parts.model.state_dict(), whole.model.state_dict(), rtol=1e-9, atol=1e-10
    )


def test_clipping_limits_every_step():
    """One step of SGD moves by at most the step size times the limit."""

    def one_step(**options):
        stage = aucmax.stages.Stage(1, 0.5, 1, 0)
        return run(linear(), None, method="sgd", steps=1, stages=[stage], **options).model

    moved = [one_step(clip_norm=0.01).state_dict()[k] - x for k, x in weights(linear()).items()]
    norm = torch.cat([x.flatten() for x in moved]).norm().item()
    assert norm == pytest.approx(0.5 * 0.01, rel=1e-4)
    loose, free = one_step(clip_norm=1e6), one_step()
    torch.testing.assert_close(loose.state_dict(), free.state_dict())


@pytest.mark.parametrize(("method", "make"), [("ppd-adagrad", with_batch_norm), ("adamw", hidden)])
def test_mixed_precision_trains(method, make):
    seen = set()
    model = make()
    model[-1].register_forward_hook(lambda _, args, output: seen.add(output.dtype))
    result = run(model, method=method, amp="bf16", lr=0.1 if method == "adamw" else 1.0, steps=200)
    assert seen == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert result.auc > 0.85
    assert evaluate(model, VALID, amp="bf16") == result.auc


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_run_is_an_eager_run(monkeypatch):
    """Traced and differentiated as always; generating C++ would take most of the time."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    eager = run(hidden(), steps=10, eval_every=5)
    compiled = run(hidden(), steps=10, eval_every=5, compile=True)
    torch.testing.assert_close(
        compiled.model.state_dict(), eager.model.state_dict(), rtol=1e-4, atol=1e-5
    )


# ---- Warnings ----------------------------------------------------------------------------------


def test_model_that_ends_in_a_sigmoid_is_noticed_once():
    """At the first evaluation, on validation rows or, without them, on the probe."""
    ends = nn.Sequential(hidden(), nn.Sigmoid())
    for valid in (VALID, None):
        with pytest.warns(UserWarning, match="the model ends in a sigmoid") as caught:
            run(ends, valid)
        assert len(caught) == 1
    x, y = multiclass(60)
    with pytest.warns(UserWarning, match="ends in a softmax"):
        run(nn.Sequential(nn.Linear(3, 3), nn.Softmax(1)), None, (x, y))


@pytest.mark.parametrize(
    "options",
    [
        {"loss_options": {"link": "identity"}},
        {"loss": nn.BCELoss()},
    ],
    ids=["taken as they are", "a loss of one's own"],
)
def test_sigmoid_that_belongs_there_is_not(options):
    run(nn.Sequential(hidden(), nn.Sigmoid(), nn.Flatten(0)), **options)


def test_class_of_one_row_is_noticed():
    one = torch.arange(len(Y)) == 7
    with pytest.warns(UserWarning, match="train has one row of class 1 among 400"):
        run(train=(X, one.float()))
    with pytest.warns(UserWarning, match="valid has one row of class 0 among 400"):
        run(valid=(X, 1 - one.float()))


# ---- Augmentation ------------------------------------------------------------------------------


def test_training_batches_are_augmented_and_validation_is_not():
    """Negated inputs are learned as such: the model ranks the plain ones the wrong way round."""
    seen = []

    def negated(x):
        seen.append(len(x))
        return -x

    result = run(linear(), augment=negated, lr=1.0, steps=100)
    assert set(seen) == {32}
    last = result.history[-1]
    assert last["train_auc_last"] > 0.9
    assert last["valid_auc_last"] < 0.2
    assert evaluate(result.model, VALID) == result.auc


def test_augmentation_that_does_nothing_changes_nothing():
    assert_same_weights(run(augment=lambda x: x).model, run().model)


def test_batch_norm_sees_what_training_sees():
    """Statistics at the average are those of augmented inputs."""
    model = nn.Sequential(nn.BatchNorm1d(4, affine=False), linear())
    run(model, None, augment=lambda x: x + 100.0)
    assert model[0].running_mean.min() > 90


# ---- The caller's own --------------------------------------------------------------------------


class Column(nn.Module):
    """torch's own loss on scores of shape (N, 1)."""

    def __init__(self):
        super().__init__()
        self.inner = nn.BCEWithLogitsLoss()

    def forward(self, scores, target):
        return self.inner(scores.squeeze(-1), target)


def test_optimizer_of_ones_own_keeps_its_step_sizes():
    model = hidden()
    groups = [
        {"params": model[0].parameters(), "lr": 0.01},
        {"params": model[2].parameters(), "lr": 0.05},
    ]
    optimizer = torch.optim.AdamW(groups)
    result = run(model, None, loss=Column(), optimizer=optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.05]
    assert {r["phase"] for r in result.history} == {"custom"}
    assert result.iterate == "last"

    other = hidden()
    groups = [
        {"params": other[0].parameters(), "lr": 0.01},
        {"params": other[2].parameters(), "lr": 0.05},
    ]
    other_optimizer, sampler = torch.optim.AdamW(groups), aucmax.BatchSampler(Y, 32)
    k = 0
    for step in range(1, 41):
        rows, k = sampler.rows(k), k + 1
        other_optimizer.zero_grad()
        Column()(other(X[rows]), Y[rows]).backward()
        other_optimizer.step()
        k += 2 * (step % 8 == 0)  # a probe of 64
    assert_same_weights(model, other)


def test_optimizer_that_clears_gradients_in_its_own_way_is_asked_to():
    class Remembering(torch.optim.SGD):
        cleared = 0

        def zero_grad(self, set_to_none=True):
            self.cleared += 1
            super().zero_grad(set_to_none)

    model = hidden()
    optimizer = Remembering(model.parameters(), lr=0.1)
    run(model, None, loss=Column(), optimizer=optimizer)
    assert optimizer.cleared == 40


def test_stages_set_the_step_sizes_of_ones_own_optimizer():
    model = hidden()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.7)
    rule = aucmax.stages.geometric(0.3, 10, stages=2)
    result = run(model, loss=Column(), optimizer=optimizer, stages=rule)
    assert [r["lr"] for r in result.history if r["step"] in (8, 40)] == pytest.approx([0.3, 0.1])


def test_our_loss_with_torchs_adam():
    model, loss = linear(), AUCLoss(link="identity")
    optimizer = torch.optim.Adam(minmax_groups(model, loss), lr=0.05)
    result = run(model, loss=loss, optimizer=optimizer, steps=200)
    assert result.loss is loss
    assert result.auc > 0.85
    assert loss.alpha.item() != 0
    h = result.model(X).detach()
    assert h[Y == 1].mean() > h[Y == 0].mean()


def test_loss_of_ones_own_with_a_named_method():
    result = run(linear(), loss=AUCLoss(0.25, margin=0.5), method="adamw", lr=0.05, steps=100)
    assert result.loss.margin == 0.5
    assert result.auc > 0.85


@pytest.mark.parametrize(
    ("method", "kind", "make"),
    [
        ("ppd-sg", aucmax.PPDSG, with_batch_norm),
        ("ppd-adagrad", aucmax.PPDAdaGrad, hidden),
        ("pga", aucmax.PGA, hidden),
        ("oauc", aucmax.OAUC, with_batch_norm),
    ],
)
def test_our_optimizer_of_ones_own_walks_as_the_method_of_its_name(method, kind, make):
    """Only that the method begins by itself what the caller does with a loss of their own."""
    model, loss = make(), AUCLoss(0.25)
    sampler = aucmax.BatchSampler(Y, 32)
    batches = [(X[rows], Y[rows]) for rows in map(sampler.rows, range(200))]
    first = 2 if method == "oauc" else 12  # batches: a probe of 64, or a stage's 384 samples
    start_at_the_best(model, loss, batches[:first])
    optimizer = kind(minmax_groups(model, loss), lr=0.1)
    rule = aucmax.stages.geometric(0.1, 10, stages=2)
    options = {"stages": None if method == "oauc" else rule}
    rest = batches[first:]
    own = run(model, None, train=rest, loss=loss, optimizer=optimizer, **options)
    named = run(make(), None, method=method, **options)
    assert [r["alpha"] for r in own.history] == [r["alpha"] for r in named.history]
    assert_same_weights(own.model, named.model)


@torch.no_grad()
def start_at_the_best(model, loss, batches):
    """Batch norm, a, b and alpha of a model that is not trained yet."""
    aucmax.update_batch_norm(model, batches)
    model.eval()
    scores, labels = torch.cat([model(x) for x, _ in batches]), torch.cat([y for _, y in batches])
    model.train()
    loss.reset_primal(scores, labels)
    loss.reset_dual(scores, labels)


def test_frozen_parameters_stay():
    model = hidden()
    model[0].requires_grad_(False)
    before = model[0].weight.detach().clone()
    result = run(model, method="adamw")
    assert torch.equal(result.model[0].weight, before)
    assert not torch.equal(result.model[2].weight, hidden()[2].weight)


# ---- Evaluating --------------------------------------------------------------------------------


def test_evaluate_leaves_the_mode_as_it_was():
    model = with_batch_norm().train()
    model[1].eval()
    before = weights(model)
    evaluate(model, VALID)
    assert [m.training for m in model] == [True, False, True, True]
    assert_same_weights(model, _loaded(with_batch_norm(), before))


def _loaded(model, state):
    model.load_state_dict(state)
    return model


@pytest.mark.parametrize("batch_size", [7, 10**6])
def test_evaluate_in_batches_of_any_size(batch_size):
    model = hidden().double().eval()
    x = VALID[0].double()
    expected = roc_auc_score(VALID[1], scores_of(model, x))
    assert evaluate(model, (x, VALID[1]), batch_size=batch_size) == pytest.approx(expected, 1e-12)


def test_evaluate_draws_nothing_and_warns_of_a_missing_class():
    model = with_dropout()
    disturb(1)
    before = states()
    with pytest.warns(UserWarning, match="nan"):
        assert math.isnan(evaluate(model, (X, torch.zeros(len(X)))))
    assert states() == before


def test_run_of_a_newer_version_is_read_with_a_warning(tmp_path, monkeypatch):
    """Also a checkpoint, from which it goes on."""
    monkeypatch.setattr("aucmax.checkpoint.__version__", "99.1.0")
    run(out=tmp_path, save_every=20)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=r"was written by aucmax 99\.1\.0"):
        run(out=tmp_path, save_every=20)
    (tmp_path / "model.json").unlink()
    with pytest.warns(UserWarning, match=r"checkpoints was written by aucmax 99\.1\.0"):
        run(out=tmp_path, save_every=20)
