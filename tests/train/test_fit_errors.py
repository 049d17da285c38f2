"""What cannot be right is named before anything is trained or written."""

import math
import os
import warnings
from pathlib import Path

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
    with_batch_norm,
)
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import aucmax
from aucmax import DivergedError, evaluate, stages
from aucmax.history import read
from aucmax.train.methods import METHODS

NAN, INF = math.nan, math.inf
X, Y = binary()
VALID = binary(seed=1)
LEMMA_3 = stages.theory("ppd-adagrad", mu=1, L=1, sigma=0.5, p=0.25, lr=1.0, stages=3, d=5)


def refused(message, *, model=None, train=(X, Y), valid=None, folder=None, **options):
    """fit raises ValueError with this message, leaves the model alone and writes nothing."""
    model = model or linear()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    random_numbers = torch.get_rng_state()
    with pytest.raises(ValueError, match=message):
        fit(model, train, valid, out=folder, **options)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert torch.equal(torch.get_rng_state(), random_numbers)
    if folder is not None:
        assert [p for p in folder.rglob("*") if p.is_file()] == []


# ---- Arguments ---------------------------------------------------------------------------------

COUNTS = ["steps", "batch_size", "accumulate", "local_steps", "eval_every", "save_every"]
COUNTS += ["patience"]
SIZES = ["lr", "pretrain_lr", "clip_norm", "lipschitz"]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2.5, "ten", True, NAN], ids=str)
def test_counts(name, value, tmp_path):
    message = rf"{name} must be an integer >= 1, found {value!r}"
    refused(message, valid=VALID, folder=tmp_path / "out", **{name: value})


@pytest.mark.parametrize("name", ["pretrain", "workers", "probe"])
@pytest.mark.parametrize("value", [-1, 2.5, "ten", None], ids=str)
def test_counts_that_may_be_zero(name, value, tmp_path):
    message = rf"{name} must be an integer >= 0, found {value!r}"
    refused(message, folder=tmp_path / "out", **{name: value})


def test_steps_must_be_given_as_a_number():
    refused("steps must be an integer >= 1, found None", steps=None)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -0.1, NAN, "small"], ids=str)
def test_sizes(name, value, tmp_path):
    refused(rf"{name} must be .*> 0, found {value!r}", folder=tmp_path / "out", **{name: value})


@pytest.mark.parametrize("method", ["ppd-sg", "pga", "sgd", "adamw"])
def test_an_infinite_step_size(method):
    refused(r"lr must be a finite number .*found inf", method=method, lr=INF)


def test_an_infinite_step_size_of_pretraining():
    refused(r"pretrain_lr must be a finite number .*found inf", pretrain=1, pretrain_lr=INF)


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"method": "adam"}, "'ppd-sg', 'ppd-adagrad', 'pga', 'oauc', 'sgd', 'adagrad', 'adamw'"),
        ({"method": None}, "'ppd-sg'"),
        ({"task": "ranking"}, "'auto', 'binary', 'multiclass', 'multilabel'"),
        ({"restart": "best"}, "None, 'average', 'last'"),
        ({"amp": "fp8"}, "None, 'bf16', 'fp16'"),
        ({"parallel": "dp"}, "'ddp', 'fsdp'"),
    ],
    ids=str,
)
def test_choices(options, allowed, tmp_path):
    ((name, value),) = options.items()
    message = rf"{name} must be one of {allowed}.*, found {value!r}"
    refused(message, folder=tmp_path / "out", **options)


@pytest.mark.parametrize("value", [0, 1, -0.5, 1.5, NAN, "half"], ids=str)
def test_the_share_of_positives(value, tmp_path):
    message = rf"positives must be .*between 0 and 1.*, found {value!r}"
    refused(message, folder=tmp_path / "out", positives=value)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "nonsense"])
def test_devices(device, tmp_path):
    allowed = "('cpu' or one of|'cpu' here, where|'auto' or)"
    refused(rf"device must be {allowed} .*found '{device}'", folder=tmp_path / "out", device=device)


@pytest.mark.parametrize("value", ["a", 1.5, None], ids=str)
def test_the_seed(value, tmp_path):
    refused(rf"seed must be an integer.*, found {value!r}", folder=tmp_path / "out", seed=value)


def test_a_batch_that_parts_do_not_divide(tmp_path):
    message = r"batch_size must be a multiple of 3.*accumulate.*, found 32"
    refused(message, folder=tmp_path / "out", batch_size=32, accumulate=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stages": stages.geometric(steps=3, stages=2)}, "stages .*steps=40 .*found 12"),
        ({"stages": []}, r"stages must be stages .* found \[\]"),
        ({"stages": "geometric"}, "stages must .*found 'geometric'"),
        ({"stages": 4}, "stages must .*found 4"),
        ({"optimizer": torch.optim.SGD(linear().parameters())}, "optimizer must .*loss=None"),
        ({"optimizer_options": {"beta": 1}}, "optimizer_options must fit PPDSG.*'beta'"),
        ({"optimizer_options": {"lr": 1}}, "optimizer_options must fit PPDSG.*'lr'"),
        ({"optimizer_options": {"gamma": -1}}, "gamma must be a number > 0, found -1"),
        ({"optimizer_options": {"nesterov": 1}, "method": "adamw"}, "optimizer_options .*AdamW"),
        ({"loss_options": {"beta": 1}}, "loss_options must fit AUCLoss, .* alpha_min, .*'beta'"),
        ({"loss_options": -1.0}, "loss_options must be a mapping or None, found -1.0"),
        ({"optimizer_options": [1]}, r"optimizer_options must be a mapping or None, found \[1\]"),
        ({"loss_options": {"prior": 0.5}}, "loss_options must fit AUCLoss.*'prior'"),
        ({"loss_options": {"margin": -1}}, "margin must be .*found -1"),
        (
            {"loss_options": {"margin": 2}, "method": "sgd"},
            "loss_options must fit CrossEntropy, .*: .*unexpected keyword argument .margin.",
        ),
        ({"patience": 3}, "valid must be given"),
        ({"stages": stages.plateau()}, "valid must be given"),
        ({"tensorboard": True}, r"tensorboard must have a folder: pass out="),
        ({"restart": "last", "method": "pga"}, "restart must be 'average' for PGA, found 'last'"),
        ({"stages": LEMMA_3, "method": "ppd-adagrad", "steps": 150}, "lipschitz"),
        ({"stages": LEMMA_3, "method": "ppd-sg", "lipschitz": 1.0, "steps": 150}, "ppd-adagrad"),
    ],
    ids=lambda x: "" if isinstance(x, str) else " ".join(x),
)
def test_arguments_that_do_not_go_together(options, message, tmp_path):
    folder = None if "tensorboard" in options else tmp_path / "out"
    refused(message, folder=folder, **options)


@pytest.mark.parametrize("name", ["ppd-adagrad", "pga", "oauc", "adagrad", "adamw"])
def test_local_steps_are_for_steps_that_are_linear_in_the_gradient(name, tmp_path):
    kind = METHODS[name].optimizer.__name__
    message = f"local_steps must be None with the optimizer {kind}: .*, found 4"
    refused(message, folder=tmp_path / "out", method=name, local_steps=4)


@pytest.mark.parametrize("options", [{"amp": "fp16"}, {"parallel": "fsdp"}], ids=str)
def test_local_steps_are_for_whole_models_without_a_scaler(options, tmp_path):
    ((name, value),) = options.items()
    message = f"local_steps must be None with {name}='{value}': .*, found 4"
    refused(message, folder=tmp_path / "out", local_steps=4, **options)


def test_local_steps_go_by_the_optimizer_not_by_the_method():
    model, loss = linear(), aucmax.AUCLoss(Y.mean().item())
    groups = aucmax.minmax_groups(model, loss)
    message = "local_steps must be None with the optimizer PPDAdaGrad: .*, found 2"
    refused(message, model=model, loss=loss, optimizer=aucmax.PPDAdaGrad(groups), local_steps=2)
    own = {"loss": loss, "optimizer": aucmax.PPDSG(groups)}
    assert fit(model, (X, Y), method="adamw", **own, local_steps=2).steps == 40


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_a_folder_that_is_refused_is_let_go(tmp_path):
    fit(linear(), (X, Y), out=tmp_path)
    with pytest.raises(ValueError, match=r"out must be .*lr \(None there, 0\.5 now\)") as caught:
        fit(linear(), (X, Y), out=tmp_path, lr=0.5)
    assert caught.tb is not None  # as a notebook keeps it
    opened = [os.readlink(p) for p in Path("/proc/self/fd").iterdir() if p.is_symlink()]
    assert [name for name in opened if name.startswith(str(tmp_path))] == []


# ---- Training data -----------------------------------------------------------------------------


class NoLabels(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return X[i], Y[i]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


LOADER = DataLoader(TensorDataset(X, Y), batch_size=32)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ((X, torch.zeros(400)), "train must hold both classes, found 0 positives and 400 neg"),
        ((X, torch.ones(400)), "train must hold both classes, found 400 positives and 0 neg"),
        ((X, 2 * Y - 1), r"0 and 1 only, found -1, 1; .*-1/\+1"),
        ((X, Y / 2), r"0 and 1 only, found 0, 0\.5"),
        ((X, Y.where(Y == 0, NAN)), "0 and 1 only, found 0, nan"),
        ((X, Y[:50]), r"train must have one label per row, found lengths \[50, 400\]"),
        ((X, Y, torch.ones(7)), r"one label per row, found lengths \[7, 400\]"),
        (((X, X[:9]), Y), r"one label per row, found lengths \[9, 400\]"),
        ((X[:0], Y[:0]), "train must have rows, found none"),
        (TensorDataset(X[:0], Y[:0]), "train must have rows, found none"),
        ((X,), r"train must be \(inputs, labels\).*found 1 part"),
        (TensorDataset(X), r"train must be \(inputs, labels\).*found 1 part"),
        ((X, Y, Y, Y, Y), r"train must be \(inputs, labels\).*found 5 parts"),
        ((X, np.array(["a", "b"] * 200)), "labels and weights must hold numbers, found dtype"),
        ((np.array([["a"]] * 400), Y), "inputs must hold numbers, found dtype"),
        (Stream(), "found Stream: wrap it in a DataLoader"),
        (5, "train must be .*found int"),
        (None, "train must be .*found NoneType"),
        (X, r"(inputs, labels).*found Tensor"),
        ([], "train must have rows|train must .*found none"),
        ([(X, Y, Y, Y, Y)], r"batches must be \(inputs, labels\).*found 5 parts"),
        ([X], r"batches must be \(inputs, labels\).*found Tensor"),
        ([{"x": X, "y": Y}], r"batches must be \(inputs, labels\).*found dict"),
        ([(X, 2 * Y - 1)], "0 and 1 only, found -1, 1"),
    ],
)
@pytest.mark.parametrize("method", ["ppd-sg", "sgd"])
def test_training_data(train, message, method, tmp_path):
    refused(message, train=train, method=method, folder=tmp_path / "out")


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        ("multiclass", torch.zeros(400, dtype=int), r"every class .*found counts \[400\]"),
        ("auto", 2 * Y.long(), r"every class from 0 on.*found counts \[300, 0, 100\]"),
        ("multiclass", Y.long() + 1, r"every class from 0 on.*found counts \[0, 300, 100\]"),
        ("multiclass", Y.long() - 1, r"must be 0 or more, found -1"),
        ("multiclass", Y, r"integers of shape \(N,\), found torch.float32 of shape \(400,\)"),
        ("multilabel", Y, r"shape \(N, L\), found \(400,\)"),
        ("binary", torch.stack([Y, Y], 1), r"shape \(N,\), found \(400, 2\)"),
    ],
)
def test_labels_of_a_task(task, labels, message, tmp_path):
    outputs = 1 if task == "binary" else 3
    refused(
        message, model=linear(4, outputs), train=(X, labels), task=task, folder=tmp_path / "out"
    )


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (torch.zeros(400), "0 positives and 400 negatives"),
        (torch.ones(400), "400 positives and 0 negatives"),
        (Y.where(Y == 1, NAN), "100 positives and 0 negatives"),
        (torch.full((400,), NAN), "0 positives and 0 negatives"),
    ],
)
def test_a_label_of_one_class(column, found, tmp_path):
    message = f"label 1 of train must hold both classes, found {found}"
    train = X, torch.stack([Y, column], 1)
    refused(message, model=linear(4, 2), train=train, folder=tmp_path / "out")


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (LOADER, {"positives": 0.5}, r"positives must be None for a DataLoader.*found 0\.5"),
        (iter(LOADER), {"positives": 0.5}, "positives must be None"),
        (NoLabels(), {"positives": 0.5}, "labels must be given.*share of positives"),
        (NoLabels(), {"labels": Y[:30]}, "labels must be one per row.*400, found 30"),
        ((X, Y), {"labels": torch.cat([Y, Y])}, "labels must .*400, found 800"),
        (LOADER, {"task": "multilabel"}, "labels must be given for a multilabel task"),
        ((X, multiclass(400)[1]), {"positives": 0.5}, "positives .*two classes"),
        ((X, multilabel(400)[1]), {"positives": 0.5}, r"positives .*two classes"),
        ((X, Y), {"positives": 0.5, "batch_size": 1}, "batch_size must be 2 or more"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_data_and_options_that_do_not_go_together(train, options, message, tmp_path):
    refused(message, model=linear(4, 3), train=train, folder=tmp_path / "out", **options)


@pytest.mark.parametrize("value", [-1.0, NAN, INF])
def test_weights_that_are_none(value, tmp_path):
    weight = torch.ones(400)
    weight[7] = value
    message = "weight must be (non-negative|finite)"
    refused(message, train=(X, Y, weight), folder=tmp_path / "out")
    refused(message, train=(X, Y, weight), method="sgd", folder=tmp_path / "out")


@pytest.mark.parametrize("method", ["ppd-sg", "sgd"])
def test_a_model_whose_scores_have_the_wrong_shape(method, tmp_path):
    rows = 512 if method == "ppd-sg" else 128  # those that a and b begin with, or a batch
    message = rf"scores must be .*\(N,\) or \(N, 1\).*found .*\({rows}, 2\)"
    refused(message, model=linear(4, 2), method=method, folder=tmp_path / "out")
    message = rf"scores must be .*\(N, 3\).*found .*\({rows}, 2\)|target must hold classes 0 to 1"
    refused(message, model=linear(3, 2), train=multiclass(), method=method, folder=tmp_path / "o")


# ---- Validation and test data ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["valid", "test"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (iter(LOADER), " must be .*found an iterator: put it in a list"),
        ((x for x in [VALID]), " must be .*found an iterator: put it in a list"),
        ((X, Y[:5]), r" must have one label per row, found lengths \[5, 400\]"),
        ((X, 2 * Y - 1), ".*0 and 1 only, found -1, 1"),
        ((X, Y / 2), r".*0 and 1 only, found 0, 0\.5"),
        (TensorDataset(X, 2 * Y - 1), ".*0 and 1 only, found -1, 1"),
        ((X,), r" must be \(inputs, labels\).*found 1 part"),
        ((X[:0], Y[:0]), " must have .*row.*found none"),
        ([], " must have .*row.*found none"),
        (5, " must be .*found int"),
        (Stream(), " must be .*found Stream: wrap it in a DataLoader"),
    ],
)
def test_data_to_judge_by(name, data, message, tmp_path):
    refused(f"^{name}{message}", folder=tmp_path / "out", eval_every=1, **{name: data})


@pytest.mark.parametrize("options", [{"patience": 3}, {"stages": stages.plateau()}], ids=list)
def test_test_data_does_not_stand_in_for_validation_data(options, tmp_path):
    refused("^valid must be given", test=VALID, folder=tmp_path / "out", **options)


@pytest.mark.parametrize("method", ["ppd-sg", "sgd"])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_validation_data_of_one_class_warns_once_and_trains_on(method, label, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        valid = X, torch.full((400,), label)
        result = fit(linear(), (X, Y), valid, method=method, out=tmp_path)
    (warning,) = caught
    assert warning.category is UserWarning
    assert "validation" in str(warning.message)
    assert math.isnan(result.auc)
    assert (result.steps, result.reason) == (40, "all steps taken")
    assert result.iterate == ("last" if method == "sgd" else "average")
    assert {r["valid_auc_last"] for r in read(tmp_path / "history.jsonl")} == {None}
    assert_same_weights(result.model, fit(linear(), (X, Y), method=method).model)


def without_class_two():
    x, y = multiclass()
    return (x, y), (x[y < 2], y[y < 2])


def without_a_positive_of_label_one():
    x, y = multilabel()
    return (x, y), (x, y.index_fill(1, torch.tensor(1), 0.0))


@pytest.mark.parametrize("make", [without_class_two, without_a_positive_of_label_one])
def test_validation_data_that_lacks_a_class_of_several(make):
    with pytest.warns(UserWarning, match="validation AUC is nan") as caught:
        result = fit(linear(3, 3), *make())
    assert len(caught) == 1
    assert math.isnan(result.auc)
    assert result.steps == 40


def test_patience_and_plateau_wait_where_the_auc_is_nan():
    valid = X, torch.zeros(400)
    for options in ({"patience": 2}, {"stages": stages.plateau(patience=1)}):
        with pytest.warns(UserWarning, match="validation"):
            assert fit(linear(), (X, Y), valid, **options).steps == 40


def test_a_models_own_warning_is_not_taken_for_one_about_the_data():
    class Warns(nn.Linear):
        def forward(self, x):
            if not self.training:
                warnings.warn("mind the gap", RuntimeWarning, stacklevel=2)
            return super().forward(x)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(Warns(4, 1), (X, Y), VALID, steps=4)
    assert {str(w.message) for w in caught} <= {"mind the gap"}


# ---- Divergence --------------------------------------------------------------------------------


def spoiled_from_batch_five():
    """Inputs with a NaN in a row that comes up in batch 5 for the first time."""
    x = X.clone()
    x[aucmax.BatchSampler(Y, 32).rows(5)[0], 0] = NAN
    return x


@pytest.mark.parametrize("make", [hidden, with_batch_norm])
@pytest.mark.parametrize(("method", "step"), [("ppd-sg", 5), ("adamw", 6)])
def test_bad_inputs_are_found_where_they_are(method, step, make):
    """PPD-SG has used batch 0 before its first step."""
    model, rule = make(), [stages.Stage(1, 0.01, 20, 2)]
    options = {"method": method, "batch_size": 32, "eval_every": 100, "stages": rule, "probe": 32}
    with pytest.raises(DivergedError, match=rf"step {step} \(batch 5\)") as caught:
        fit(model, (spoiled_from_batch_five(), Y), steps=20, **options)
    assert isinstance(caught.value, ArithmeticError)
    assert all(x.isfinite().all() for x in model.state_dict().values())


@pytest.mark.parametrize("make", [hidden, with_batch_norm])
def test_bad_inputs_among_the_samples_that_a_and_b_begin_with(make):
    """Eight batches of 32, the one with a NaN among them, before there is a step."""
    model = make()
    message = r"after step 0 \(fresh samples up to batch 7\): .*weights of step 0"
    with pytest.raises(DivergedError, match=message):
        fit(model, (spoiled_from_batch_five(), Y), batch_size=32, probe=256, method="oauc")
    before = make().state_dict()
    for name, value in model.state_dict().items():
        assert "num_batches" in name or torch.equal(value, before[name]), name


def test_the_model_keeps_the_weights_of_the_last_good_step():
    model, rule = hidden(), [stages.Stage(1, 0.01, 20, 0)]
    options = {"method": "adamw", "batch_size": 32, "eval_every": 100, "stages": rule}
    with pytest.raises(DivergedError, match="holds the weights of step 5"):
        fit(model, (spoiled_from_batch_five(), Y), steps=20, **options)
    assert_same_weights(model, fit(hidden(), (X, Y), steps=5, **options).model)


@pytest.mark.parametrize(
    ("method", "objective", "advice"),
    [
        ("ppd-sg", None, "clip_norm$"),
        ("pga", None, "clip_norm$"),
        ("sgd", "ce", "clip_norm$"),
        ("sgd", "pairwise", r"loss_options=\{'scale': 0.1\}$"),
    ],
)
def test_a_step_size_that_is_much_too_large(method, objective, advice):
    model = hidden()
    rule = [stages.Stage(1, 1e30, 200, 2)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "alpha")
        with pytest.raises(DivergedError, match=rf"diverged at step \d+ .*Lower lr.*{advice}"):
            fit(model, (X * 1e4, Y), method=method, objective=objective, stages=rule, steps=200)
    assert all(p.isfinite().all() for p in model.parameters())


def test_a_loss_of_ones_own_that_is_nan():
    class Bad(nn.Module):
        calls = 0

        def forward(self, scores, target):
            self.calls += 1
            return scores.sum() * (NAN if self.calls == 3 else 1.0)

    with pytest.raises(DivergedError, match=r"step 3 .*loss is not finite"):
        fit(linear(), (X, Y), loss=Bad(), method="sgd", eval_every=100)


# ---- evaluate ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (VALID, {"amp": "fp8"}, "amp must be one of None, 'bf16', 'fp16', found 'fp8'"),
        (VALID, {"batch_size": 0}, "batch_size must be an integer >= 1, found 0"),
        (VALID, {"task": "ranking"}, "task must be one of .*found 'ranking'"),
        (VALID, {"device": "gpu"}, "device must .*found 'gpu'"),
        ((X[:0], Y[:0]), {}, "row.*found none"),
        ((X, Y[:5]), {}, r"one label per row, found lengths \[5, 400\]"),
        ((X,), {}, "found 1 part"),
        ((X, 2 * Y - 1), {}, "0 and 1 only, found -1, 1"),
        (5, {}, "found int"),
    ],
)
def test_evaluating_what_cannot_be(data, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(linear(), data, **options)
