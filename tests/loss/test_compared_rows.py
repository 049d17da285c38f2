"""What the losses share that compare rows with each other."""

import pytest
import torch

from aucmax import AveragePrecisionLoss, PairwiseAUCLoss
from aucmax.loss import CrossEntropy
from aucmax.loss.base import Scale, loss_of

GENERATOR = torch.Generator().manual_seed(0)
ROWS, MEMBERS, CLASSES = 12, 3, 4
SCORES = torch.randn(ROWS, MEMBERS, CLASSES, dtype=torch.float64, generator=GENERATOR)
WEIGHT = torch.rand(ROWS, dtype=torch.float64, generator=GENERATOR)
BINARY = torch.tensor([1, 0, 0] * 4)
CLASS = torch.tensor([0, 1, 2, 3] * 3)
LABELS = (torch.rand(ROWS, CLASSES, generator=GENERATOR) < 0.5).double()
LABELS[2, 1] = LABELS[5, 3] = torch.nan
LOSSES = [PairwiseAUCLoss(), PairwiseAUCLoss(max_fpr=0.5), AveragePrecisionLoss()]


def kind(loss):
    return type(loss).__name__


@pytest.mark.parametrize("loss", LOSSES, ids=kind)
@pytest.mark.parametrize(
    ("scores", "target", "weight"),
    [
        (SCORES[..., 0], BINARY, WEIGHT),
        (SCORES[..., :1], BINARY, WEIGHT[:, None]),
        (SCORES[..., :1], BINARY[:, None], WEIGHT),
        (SCORES, CLASS, WEIGHT),
        (SCORES, LABELS, WEIGHT),
        (SCORES, LABELS, WEIGHT[:, None] * torch.arange(1.0, 5.0)),
    ],
    ids=["(N,)", "(N, 1)", "labels (N, 1)", "classes", "labels", "a weight for each label"],
)
def test_ensemble_value_is_mean_over_members(loss, scores, target, weight):
    of_members = [loss(scores[:, k], target, weight) for k in range(MEMBERS)]
    whole = loss_of(loss, scores.flatten(0, 1), target, weight, members=MEMBERS)
    assert whole > 0
    torch.testing.assert_close(whole, torch.stack(of_members).mean())


@pytest.mark.parametrize("loss", LOSSES, ids=kind)
def test_infinite_score_of_one_member_raises(loss):
    scores = SCORES[..., 0].clone()
    scores[3, 2] = torch.inf
    with pytest.raises(ValueError, match="scores must be finite, found 0 NaN and 1 infinite of 36"):
        loss_of(loss, scores.flatten(), BINARY, members=MEMBERS)


@pytest.mark.parametrize("loss", LOSSES, ids=kind)
@pytest.mark.parametrize("target", [BINARY, CLASS, LABELS])
def test_rows_without_weight_make_no_pairs(loss, target):
    scores = (SCORES[:, 0, 0] if target is BINARY else SCORES[:, 0]).clone().requires_grad_()
    value = loss(scores, target, torch.zeros(ROWS))
    value.backward()
    assert value == 0
    assert not scores.grad.any()
    with pytest.raises(ValueError, match="weight must be non-negative, found values from -1 to"):
        loss(scores, target, WEIGHT - 1 - WEIGHT.min())


def test_part_of_batch_without_weight():
    loss = PairwiseAUCLoss() + CrossEntropy()
    parts = [
        loss_of(loss, SCORES[:, 0, 0], BINARY, weight, scale=Scale(share, 0.5))
        for weight, share in ((WEIGHT, 1.0), (0 * WEIGHT, 0.0))
    ]
    whole = [part(SCORES[:, 0, 0], BINARY, WEIGHT) for part in loss.parts.values()]
    assert sum(parts).item() == pytest.approx((0.5 * whole[0] + whole[1]).item())


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20])
@pytest.mark.parametrize("options", [{}, {"surrogate": "sigmoid"}, {"max_fpr": 0.5}])
@pytest.mark.parametrize("group", [None, torch.arange(ROWS) // 6])
def test_weights_of_any_scale_in_float32(scale, options, group):
    scores = SCORES[:, 0, 0].float()
    values = [
        PairwiseAUCLoss(**options)(scores, BINARY, weight, group=group)
        for weight in (WEIGHT.float(), scale * WEIGHT.float())
    ]
    torch.testing.assert_close(*values)


def test_sum_of_likelihoods_has_no_scale():
    assert not [*(CrossEntropy() + CrossEntropy(q=0.7)).parameters()]


def test_classes_are_compared_with_the_rest():
    one_hot = (CLASS[:, None] == torch.arange(CLASSES)).double()
    for loss in LOSSES:
        torch.testing.assert_close(
            loss(SCORES[:, 0], CLASS, WEIGHT), loss(SCORES[:, 0], one_hot, WEIGHT)
        )
