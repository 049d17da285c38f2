"""Bad arguments and data are named before anything is trained or written."""

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


def refused(name, *, model=None, train=(X, Y), valid=None, folder=None, **options):
    """fit raises ValueError that names the argument, leaves the model alone and writes nothing."""
    model = model or linear()
    before = {key: x.clone() for key, x in model.state_dict().items()}
    random_numbers = torch.get_rng_state()
    with pytest.raises(ValueError, match=rf"\b{name}\b") as caught:
        fit(model, train, valid, out=folder, **options)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])
    assert torch.equal(torch.get_rng_state(), random_numbers)
    if folder is not None:
        assert [p for p in folder.rglob("*") if p.is_file()] == []
    return str(caught.value)


# ---- Arguments ---------------------------------------------------------------------------------

LOADER = DataLoader(TensorDataset(X, Y), batch_size=32)
SGD = torch.optim.SGD(linear().parameters())
ARGUMENTS = [
    # counts, sizes and choices
    ("steps", {"steps": 0}),
    ("steps", {"steps": None}),
    ("batch_size", {"batch_size": 2.5}),
    ("accumulate", {"accumulate": 0}),
    ("local_steps", {"local_steps": -1}),
    ("eval_every", {"eval_every": "ten"}),
    ("save_every", {"save_every": True}),
    ("patience", {"patience": 0, "valid": VALID}),
    ("pretrain", {"pretrain": -1}),
    ("workers", {"workers": None}),
    ("probe", {"probe": 2.5}),
    ("lr", {"lr": 0}),
    *(("lr", {"lr": INF, "method": method}) for method in METHODS),
    ("pretrain_lr", {"pretrain": 1, "pretrain_lr": INF}),
    ("clip_norm", {"clip_norm": NAN}),
    ("lipschitz", {"lipschitz": "small"}),
    ("positives", {"positives": 0}),
    ("positives", {"positives": 1}),
    ("positives", {"positives": NAN}),
    ("seed", {"seed": 1.5}),
    ("time_limit", {"time_limit": 0}),
    ("method", {"method": "adam"}),
    ("task", {"task": "ranking"}),
    ("restart", {"restart": "best"}),
    ("amp", {"amp": "fp8"}),
    ("parallel", {"parallel": "dp"}),
    ("device", {"device": "gpu"}),
    ("device", {"device": "cuda:99"}),
    # stages, losses and optimizers
    ("stages", {"stages": stages.geometric(steps=3, stages=2)}),
    ("stages", {"stages": []}),
    ("stages", {"stages": "geometric"}),
    ("optimizer", {"optimizer": SGD}),
    ("optimizer_options", {"optimizer_options": {"lr": 1}}),
    ("optimizer_options", {"optimizer_options": {"nesterov": 1}, "method": "adamw"}),
    ("optimizer_options", {"optimizer_options": [1]}),
    ("gamma", {"optimizer_options": {"gamma": -1}}),
    ("loss_options", {"loss_options": {"prior": 0.5}}),
    ("loss_options", {"loss_options": {"margin": 2}, "method": "sgd"}),
    ("loss_options", {"loss_options": -1.0}),
    ("margin", {"loss_options": {"margin": -1}}),
    ("objective", {"objective": "ranking"}),
    ("objective", {"objective": "auc+auc"}),
    ("ce", {"objective": "auc+-1*ce"}),
    ("objective", {"objective": "auc", "loss": aucmax.AUCLoss(0.2)}),
    # arguments that do not go together
    ("batch_size", {"batch_size": 32, "accumulate": 3}),
    ("batch_size", {"batch_size": 1, "positives": 0.5}),
    ("valid", {"patience": 3}),
    ("valid", {"stages": stages.plateau()}),
    ("valid", {"patience": 3, "test": VALID}),
    ("restart", {"restart": "last", "method": "pga"}),
    ("lipschitz", {"stages": LEMMA_3, "method": "ppd-adagrad", "steps": 150}),
    ("ppd-adagrad", {"stages": LEMMA_3, "lipschitz": 1.0, "steps": 150}),
    *(
        ("local_steps", {"local_steps": 4, "method": x})
        for x in METHODS
        if x not in ("ppd-sg", "sgd")
    ),
    ("local_steps", {"local_steps": 4, "amp": "fp16"}),
    ("local_steps", {"local_steps": 4, "parallel": "fsdp"}),
    ("positives", {"train": LOADER, "positives": 0.5}),
    ("positives", {"train": (X, multiclass(400)[1]), "model": linear(4, 3), "positives": 0.5}),
    ("labels", {"train": (X, Y), "labels": torch.cat([Y, Y])}),
    ("labels", {"train": LOADER, "task": "multilabel"}),
]


@pytest.mark.parametrize(("name", "options"), ARGUMENTS)
def test_bad_argument_is_named(name, options, tmp_path):
    refused(name, folder=tmp_path / "out", **options)


def test_tensorboard_needs_a_folder():
    refused("tensorboard", tensorboard=True)


def test_local_steps_go_by_the_optimizer_not_by_the_method():
    model, loss = linear(), aucmax.AUCLoss(Y.mean().item())
    groups = aucmax.minmax_groups(model, loss)
    own = {"loss": loss, "optimizer": aucmax.PPDAdaGrad(groups)}
    assert "PPDAdaGrad" in refused("local_steps", model=model, local_steps=2, **own)
    own["optimizer"] = aucmax.PPDSG(groups)
    assert fit(model, (X, Y), method="adamw", **own, local_steps=2).steps == 40


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_folder_that_is_refused_is_let_go(tmp_path):
    fit(linear(), (X, Y), out=tmp_path)
    with pytest.raises(ValueError, match=r"out must be .*lr \(None there, 0\.5 now\)") as caught:
        fit(linear(), (X, Y), out=tmp_path, lr=0.5)
    assert caught.tb is not None  # as a notebook keeps it
    opened = [os.readlink(p) for p in Path("/proc/self/fd").iterdir() if p.is_symlink()]
    assert [name for name in opened if name.startswith(str(tmp_path))] == []


# ---- Data --------------------------------------------------------------------------------------


class NoLabels(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return X[i], Y[i]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


def one_column(column):
    return X, torch.stack([Y, column], 1)


def weighted(value):
    return X, Y, torch.ones(400).index_fill(0, torch.tensor(7), value)


TRAINING_DATA = [
    ("train", (X, torch.zeros(400)), {}),
    ("train", (X, torch.ones(400)), {}),
    ("train", (X, Y[:50]), {}),
    ("train", (X, Y, torch.ones(7)), {}),
    ("train", ((X, X[:9]), Y), {}),
    ("train", (X[:0], Y[:0]), {}),
    ("train", TensorDataset(X[:0], Y[:0]), {}),
    ("train", (X,), {}),
    ("train", (X, Y, Y, Y, Y), {}),
    ("train", None, {}),
    ("train", [], {}),
    ("DataLoader", Stream(), {}),
    ("0 and 1", (X, 2 * Y - 1), {}),
    ("0 and 1", (X, Y.where(Y == 0, NAN)), {}),
    ("0 and 1", [(X, 2 * Y - 1)], {}),
    ("numbers", (X, np.array(["a", "b"] * 200)), {}),
    ("numbers", (np.array([["a"]] * 400), Y), {}),
    ("batches", [X], {}),
    ("batches", [{"x": X, "y": Y}], {}),
    ("weight", weighted(-1.0), {}),
    ("weight", weighted(NAN), {"method": "sgd"}),
    ("labels", NoLabels(), {"positives": 0.5}),
    ("labels", NoLabels(), {"labels": Y[:30]}),
    # other tasks
    ("class", (X, 2 * Y.long()), {"outputs": 3}),
    ("class", (X, Y.long() + 1), {"outputs": 3, "task": "multiclass"}),
    ("0 or more", (X, Y.long() - 1), {"outputs": 3, "task": "multiclass"}),
    ("integers", (X, Y), {"outputs": 3, "task": "multiclass"}),
    ("shape", (X, Y), {"outputs": 3, "task": "multilabel"}),
    ("shape", (X, torch.stack([Y, Y], 1)), {"task": "binary"}),
    ("label 1 of train", one_column(torch.zeros(400)), {"outputs": 2}),
    ("label 1 of train", one_column(Y.where(Y == 1, NAN)), {"outputs": 2}),
    # scores of another shape than the labels
    ("scores", (X, Y), {"outputs": 2}),
    ("scores", (X, Y), {"outputs": 2, "method": "sgd"}),
]


@pytest.mark.parametrize(("name", "train", "options"), TRAINING_DATA)
def test_bad_training_data_is_refused(name, train, options, tmp_path):
    options = dict(options)
    model = linear(4, options.pop("outputs", 1))
    refused(name, model=model, train=train, folder=tmp_path / "out", **options)


@pytest.mark.parametrize("name", ["valid", "test"])
@pytest.mark.parametrize(
    "data", [iter(LOADER), (X, Y[:5]), (X,), (X[:0], Y[:0]), 5, Stream()], ids=lambda x: ""
)
def test_bad_evaluation_data_is_named(name, data, tmp_path):
    refused(name, folder=tmp_path / "out", eval_every=1, **{name: data})


@pytest.mark.parametrize("name", ["valid", "test"])
@pytest.mark.parametrize("labels", [2 * Y - 1, Y / 2], ids=["-1/+1", "halves"])
def test_bad_labels_to_evaluate_on_are_named(name, labels, tmp_path):
    message = refused(name, folder=tmp_path / "out", eval_every=1, **{name: (X, labels)})
    assert "0 and 1" in message


@pytest.mark.parametrize(("method", "label"), [("ppd-sg", 0.0), ("sgd", 1.0)])
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


def test_models_own_warning_is_not_taken_for_one_about_the_data():
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


@pytest.mark.parametrize(
    ("method", "step", "make"), [("ppd-sg", 5, with_batch_norm), ("adamw", 6, hidden)]
)
def test_bad_inputs_are_found_where_they_are(method, step, make):
    """PPD-SG has used batch 0 before its first step."""
    model, rule = make(), [stages.Stage(1, 0.01, 20, 2)]
    options = {"method": method, "batch_size": 32, "eval_every": 100, "stages": rule, "probe": 32}
    with pytest.raises(DivergedError, match=rf"step {step} \(batch 5\)") as caught:
        fit(model, (spoiled_from_batch_five(), Y), steps=20, **options)
    assert isinstance(caught.value, ArithmeticError)
    assert all(x.isfinite().all() for x in model.state_dict().values())


def test_bad_inputs_among_the_samples_that_a_and_b_begin_with():
    """Eight batches of 32, the one with a NaN among them, before there is a step."""
    model = with_batch_norm()
    message = r"after step 0 \(fresh samples up to batch 7\): .*weights of step 0"
    with pytest.raises(DivergedError, match=message):
        fit(model, (spoiled_from_batch_five(), Y), batch_size=32, probe=256, method="oauc")
    before = with_batch_norm().state_dict()
    for name, value in model.state_dict().items():
        assert "num_batches" in name or torch.equal(value, before[name]), name


def test_model_keeps_the_weights_of_the_last_good_step():
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
def test_step_size_that_is_much_too_large(method, objective, advice):
    model = hidden()
    rule = [stages.Stage(1, 1e30, 200, 2)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "alpha")
        with pytest.raises(DivergedError, match=rf"diverged at step \d+ .*Lower lr.*{advice}"):
            fit(model, (X * 1e4, Y), method=method, objective=objective, stages=rule, steps=200)
    assert all(p.isfinite().all() for p in model.parameters())


def test_loss_of_ones_own_that_is_nan():
    class Bad(nn.Module):
        calls = 0

        def forward(self, scores, target):
            self.calls += 1
            return scores.sum() * (NAN if self.calls == 3 else 1.0)

    with pytest.raises(DivergedError, match=r"step 3 .*loss is not finite"):
        fit(linear(), (X, Y), loss=Bad(), method="sgd", eval_every=100)


# ---- evaluate ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("amp", VALID, {"amp": "fp8"}),
        ("batch_size", VALID, {"batch_size": 0}),
        ("task", VALID, {"task": "ranking"}),
        ("device", VALID, {"device": "gpu"}),
        ("row", (X[:0], Y[:0]), {}),
        ("label", (X, Y[:5]), {}),
        ("0 and 1", (X, 2 * Y - 1), {}),
        ("int", 5, {}),
    ],
)
def test_evaluate_names_what_is_wrong(name, data, options):
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        evaluate(linear(), data, **options)
