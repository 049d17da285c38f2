"""Several objectives, tried side by side from the same weights; validation chooses."""

import math

import pytest
import torch
from torch import nn

import aucmax
from aucmax.metrics import compare

GENERATOR = torch.Generator().manual_seed(0)
Y = (torch.rand(600, generator=GENERATOR) < 0.3).float()
X = torch.randn(600, 4, generator=GENERATOR) + 0.7 * Y[:, None]
TRAIN, VALID = (X[:400], Y[:400]), (X[400:], Y[400:])
OPTIONS = {"steps": 40, "method": "adamw", "lr": 0.02, "progress": False, "device": "cpu"}


def model():
    torch.manual_seed(3)
    return nn.Linear(4, 1)


def test_the_best_is_kept_and_the_others_are_told():
    net = model()
    result = aucmax.fit(net, TRAIN, VALID, objective=["ce", "auc"], **OPTIONS)
    alone = {
        name: aucmax.fit(model(), TRAIN, VALID, objective=name, **OPTIONS) for name in ("ce", "auc")
    }
    best, other = sorted(alone.values(), key=lambda x: -x.score)
    assert (result.objective, result.score) == (best.objective, best.score)
    assert result.model is net
    assert torch.equal(net.weight, best.model.weight)
    first, second = result.candidates
    assert (first.objective, first.chosen, first.behind) == (best.objective, True, 0)
    assert math.isnan(first.p_value)
    assert second.objective == other.objective
    assert second.score == other.score
    assert second.behind == pytest.approx(best.score - other.score)
    rows = [x.model(VALID[0]).detach()[:, 0] for x in (best, other)]
    assert second.p_value == pytest.approx(compare(*rows, VALID[1]).p_value)
    assert "behind" in str(second)
    assert "p = " in str(second)
    assert "chosen" in str(first)


def test_a_folder_holds_the_runs_and_the_choice_and_goes_on(tmp_path):
    call = {"objective": ("ce", "auc"), "out": tmp_path / "a", **OPTIONS}
    result = aucmax.fit(model(), TRAIN, VALID, **call)
    (tmp_path / "a" / "auc" / "model.json").unlink()  # as if it was killed before the end
    again = aucmax.fit(model(), TRAIN, VALID, **call)
    assert torch.equal(result.model.weight, again.model.weight)
    assert again.out == tmp_path / "a"
    loaded = model()
    aucmax.load_weights(loaded, tmp_path / "a")
    assert torch.equal(loaded.weight, result.model.weight)
    with pytest.raises(ValueError, match=r"with another: .*objective"):
        aucmax.fit(model(), TRAIN, VALID, **{**call, "objective": "ce"})


def test_auto_tries_what_suits_the_metric():
    result = aucmax.fit(model(), TRAIN, VALID, objective="auto", **{**OPTIONS, "steps": 4})
    assert {x.objective for x in result.candidates} == {"ce", "auc", "auc+ce", "pairwise"}
    few = {**OPTIONS, "steps": 4, "metric": "average_precision"}
    result = aucmax.fit(model(), TRAIN, VALID, objective="auto", **few)
    assert "ap" in {x.objective for x in result.candidates}


@pytest.mark.parametrize(
    ("metric", "names"),
    [
        ("partial_auc@0.2", {"ce", "ap", "ap+ce", "pairwise"}),
        (None, {"ce", "auc", "pairwise"}),
    ],
)
def test_auto_tries_what_ranks_within_groups(metric, names):
    train, valid = ((*data, None, torch.arange(len(data[0])) % 20) for data in (TRAIN, VALID))
    result = aucmax.fit(
        model(), train, valid, objective="auto", metric=metric, **{**OPTIONS, "steps": 2}
    )
    assert {x.objective for x in result.candidates} == names
    assert not any(math.isnan(x.p_value) for x in result.candidates[1:])


def test_auto_tries_what_ranks_several_classes_within_groups():
    train = (X[:400], torch.arange(400) % 3, None, torch.arange(400) % 20)
    result = aucmax.fit(
        nn.Linear(4, 3), train, train[:2], objective="auto", **{**OPTIONS, "steps": 2}
    )
    assert {x.objective for x in result.candidates} == {"ce", "pairwise"}


def test_one_that_diverges_is_left_out():
    train = (X[:400] * 1e19, Y[:400])
    options = {**OPTIONS, "loss_options": {"auc": {"link": "identity"}}}
    with pytest.raises(aucmax.DivergedError, match="no objective came to a validation AUC"):
        aucmax.fit(
            model(), (train[0] * math.nan, Y[:400]), VALID, objective=["ce", "auc"], **options
        )
    result = aucmax.fit(model(), train, VALID, objective=["ce", "auc"], **options)
    (failed,) = [x for x in result.candidates if x.failed]
    assert failed.objective == "auc"
    assert "diverged" in str(failed)
    assert result.objective == "ce"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("objective", {"objective": ["ce"]}),
        ("objective", {"objective": ["ce", 3]}),
        ("objective", {"objective": ["auc+ce", "ce + auc"]}),
        ("loss_options", {"objective": ["ce", "auc"], "loss_options": {"auc": 2}}),
        ("loss_options", {"objective": "auto", "loss_options": {"margin": 2}}),
    ],
)
def test_bad_choice_is_named(name, options):
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        aucmax.fit(model(), TRAIN, VALID, **OPTIONS, **options)


def test_a_choice_needs_validation_and_a_run_of_its_own():
    with pytest.raises(ValueError, match="valid must be given"):
        aucmax.fit(model(), TRAIN, objective="auto", **OPTIONS)
    config = {"model": model(), "train": TRAIN, "valid": VALID, "steps": 2, "objective": "auto"}
    with pytest.raises(ValueError, match="one objective each"):
        aucmax.sweep([config], progress=False, device="cpu")
