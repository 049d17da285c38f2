"""Objectives, ensembles and the limit of time in ``fit``."""

import numpy as np
import pytest
import torch
from torch import nn

import aucmax
from aucmax import AUCLoss, MulticlassAUCLoss
from aucmax.loss import LossSum
from aucmax.loss.cross_entropy import CrossEntropy
from aucmax.train.objectives import ModelWithLoss

GENERATOR = torch.Generator().manual_seed(0)
Y = (torch.rand(400, generator=GENERATOR) < 0.2).float()
X = torch.randn(400, 4, generator=GENERATOR) + Y[:, None]


def train(model=None, y=Y, **options):
    torch.manual_seed(0)
    model = nn.Linear(4, 1) if model is None else model
    given = {"steps": 60, "batch_size": 40, "progress": False, "device": "cpu", **options}
    return aucmax.fit(model, (X, y), (X, y), **given)


@pytest.mark.parametrize(
    ("method", "objective", "kind"),
    [
        ("ppd-sg", None, AUCLoss),
        ("adamw", None, CrossEntropy),
        ("sgd", "auc", AUCLoss),
        ("ppd-sg", "ce", CrossEntropy),
        ("pga", "auc+ce", LossSum),
    ],
)
def test_every_method_takes_every_objective(method, objective, kind):
    lr = 0.05 if method == "adamw" else 0.5
    result = train(method=method, objective=objective, lr=lr, steps=100)
    assert type(result.loss) is kind
    assert result.auc > 0.8


def test_the_saddle_variables_begin_at_their_best_and_are_recorded():
    """As for the loss alone: else they would pull the scores to zero first."""
    records = train(method="adamw", objective="auc+ce", steps=1, eval_every=1).history
    assert abs(records[0]["a"] - records[0]["b"]) > 0
    assert records[0]["alpha"] != 0


def test_the_top_of_the_list_is_the_metrics_range():
    given = {"objective": "partial", "metric": "partial_auc@0.05,0.5", "steps": 2}
    loss = train(**given).loss
    assert (loss.max_fpr, loss.min_tpr) == (0.05, 0.5)
    loss = train(**given, loss_options={"max_fpr": 0.3}).loss
    assert (loss.max_fpr, loss.min_tpr) == (0.3, 0)
    loss = train(**{**given, "objective": "ce+partial", "metric": "partial_auc@0.2"}).loss
    assert [x.max_fpr for x in loss.modules() if hasattr(x, "max_fpr")] == [0.2]
    assert train(**{**given, "metric": "tpr_at_fpr@0.2"}).loss.max_fpr == 0.1


@pytest.mark.parametrize(("limit", "moves"), [(None, 1e-3), (-1.0, 1e-4)])
def test_adamw_moves_them_ten_times_as_far_unless_alpha_begins_at_its_limit(limit, moves):
    given = {"method": "adamw", "objective": "auc", "loss_options": {"alpha_min": limit}}
    result, start = (train(**given, steps=1, lr=lr).loss for lr in (1e-4, 1e-12))
    moved = [(getattr(result, k) - getattr(start, k)).abs().item() for k in ("a", "b", "alpha")]
    np.testing.assert_allclose(moved, moves, rtol=1e-3)
    scores = train(steps=1, method="sgd", lr=1e-12).model(X).sigmoid().flatten()
    a, b = (scores[label == Y].mean().item() for label in (1, 0))
    best = (a, b, b - a) if limit is None else ((a + b) / 2, (a + b) / 2, limit)
    assert [x.item() for x in (start.a, start.b, start.alpha)] == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize("alpha_min", [-1.0, -2.0])
def test_with_a_limit_alpha_begins_where_it_does_not_turn_the_ranking_round(alpha_min):
    result = train(method="adamw", objective="auc", loss_options={"alpha_min": alpha_min}, lr=0.05)
    assert result.auc > 0.8


def test_after_pretraining_alpha_begins_at_its_best():
    given = {"method": "adamw", "objective": "auc", "loss_options": {"alpha_min": -1.0}}
    result = train(**given, pretrain=30, pretrain_lr=1.0, steps=1, eval_every=1, lr=1e-4)
    first, last = result.history[-2:]
    assert (first["phase"], last["phase"]) == ("pretrain", "adamw")
    assert last["alpha"] == pytest.approx(last["b"] - last["a"], abs=0.01)
    assert last["alpha"] > -0.9


def test_of_a_loss_of_ones_own_nothing_is_set():
    loss = AUCLoss(0.2, alpha_min=-1.0)
    train(method="adamw", loss=loss, steps=1, lr=1e-4)
    assert loss.alpha.item() == pytest.approx(1e-3, rel=1e-3)  # ten times as far as the model


def test_several_classes():
    target = torch.arange(400) % 3
    result = train(nn.Linear(4, 3), target, method="adamw", objective="auc+ce")
    assert isinstance(result.loss.auc, MulticlassAUCLoss)


# ---- Ensembles -----------------------------------------------------------------------------------


class Pair(nn.Module):
    """Two linear models: both scores of a row while training, then their mean."""

    scores_per_row = 2

    def __init__(self, outputs=1):
        super().__init__()
        self.members = nn.ModuleList(nn.Linear(4, outputs) for _ in range(2))

    def forward(self, x):
        scores = torch.stack([member(x) for member in self.members], 1)
        return scores.flatten(0, 1) if self.training else scores.mean(1)


@pytest.mark.parametrize("weighted", [False, True])
def test_every_member_learns_the_rows_own_label(weighted):
    """One step of the pair is a step on the rows twice over, by hand."""
    weight = torch.linspace(0.5, 2, 400)
    data = (X, Y, weight) if weighted else (X, Y)
    torch.manual_seed(0)
    model = Pair()
    expected = [p.detach().clone().requires_grad_() for p in model.parameters()]
    aucmax.fit(
        model, data, method="sgd", steps=1, lr=0.5, batch_size=400, progress=False, device="cpu"
    )
    scores = torch.cat([X @ w.T + b for w, b in zip(expected[::2], expected[1::2], strict=True)])
    loss = nn.functional.binary_cross_entropy_with_logits(
        scores[:, 0], Y.repeat(2), weight.repeat(2) if weighted else None, reduction="none"
    )
    (loss.sum() / (weight.repeat(2).sum() if weighted else 800)).backward()
    for p, q in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), q.detach() - 0.5 * q.grad)


def test_ensembles_learn():
    assert train(Pair(), objective="auc", lr=0.5, steps=100).auc > 0.8
    target = torch.arange(400) % 3
    assert train(Pair(3), target, method="adamw", objective="auc").steps == 60


def test_scores_that_fit_no_rows_are_an_error():
    class Odd(nn.Linear):
        def forward(self, x):
            return super().forward(x)[:-1]

    with pytest.raises(ValueError, match="target"):
        train(Odd(4, 1), method="adamw")


# ---- Time ----------------------------------------------------------------------------------------


def test_training_ends_by_the_clock_with_an_evaluation():
    result = train(steps=100_000, eval_every=1_000, time_limit=1e-6)
    assert (result.steps, result.reason) == (1, "the time limit of 1e-06 s is reached")
    assert [record["step"] for record in result.history] == [1]
    assert train(steps=10, eval_every=5, time_limit=1e6).reason == "all steps taken"


def test_an_ensemble_is_no_departure_from_the_prior(recwarn):
    """Its labels come several times, which makes a share no surer."""
    rows = torch.tensor([1.0] * 60 + [0.0] * 40)
    torch.manual_seed(0)
    for members in (1, 20):
        objective = ModelWithLoss(Copies(members), AUCLoss(0.5))
        objective.train()
        for _ in range(4):
            objective(torch.zeros(100, 4), rows)
    assert not recwarn.list


class Copies(nn.Module):
    def __init__(self, members):
        super().__init__()
        self.members = self.scores_per_row = members
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x).repeat_interleave(self.members, dim=0)


def test_a_run_that_ended_by_the_clock_is_done(tmp_path):
    first = train(steps=50, eval_every=5, time_limit=1e-6, out=tmp_path)
    again = train(steps=50, eval_every=5, time_limit=1e-6, out=tmp_path)
    assert (again.steps, again.reason) == (first.steps, first.reason)


@pytest.mark.parametrize(
    "objective", ["pairwise+0.5*ce", "partial", "ap", "gce", "smoothed", "focal"]
)
def test_every_objective_learns(objective):
    assert train(nn.Linear(4, 1), method="adamw", objective=objective, lr=0.05).auc > 0.75


@pytest.mark.parametrize("objective", ["pairwise+ce", "ap"])
def test_several_labels_and_members_are_columns(objective):
    labels = torch.stack([Y, 1 - Y], 1)
    assert train(nn.Linear(4, 2), labels, method="adamw", objective=objective, lr=0.05).auc > 0.75
    assert train(Pair(), method="adamw", objective=objective, lr=0.05).auc > 0.75
