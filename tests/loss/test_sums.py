"""Sums of losses, and the map of the scores before a likelihood among them."""

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from aucmax import AUCLoss, MulticlassAUCLoss, PairwiseAUCLoss
from aucmax.loss import CrossEntropy

SCORES = torch.linspace(-2, 3, 12, dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0])
WEIGHTS = torch.linspace(0.5, 2, 12, dtype=torch.float64)


def combined(auc, weight=1.0, task="binary"):
    loss = (auc + weight * CrossEntropy(task)).double()
    with torch.no_grad():
        for i, p in enumerate(loss.parameters()):
            p.copy_(0.3 + 0.1 * i)
    return loss


@pytest.mark.parametrize("weight", [None, WEIGHTS])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_auc_with_cross_entropy_is_weighted_sum(weight, share):
    loss = combined(AUCLoss(0.4, link="identity"), weight=share)
    likely = binary_cross_entropy_with_logits(
        loss.scale * SCORES + loss.shift, LABELS.double(), weight, reduction="none"
    )
    mean = likely.sum() / (12 if weight is None else weight.sum())
    expected = loss.part0(SCORES, LABELS, weight) + share * mean
    torch.testing.assert_close(loss(SCORES, LABELS, weight), expected)


def test_multiclass_sum_has_shift_per_class():
    scores = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 1, 2] * 3)
    loss = combined(MulticlassAUCLoss([0.5, 0.3, 0.2], link="identity"), task="multiclass")
    assert (loss.scale.shape, loss.shift.shape) == ((1,), (3,))
    expected = loss.part0(scores, target) + cross_entropy(scores * loss.scale + loss.shift, target)
    torch.testing.assert_close(loss(scores, target), expected)
    loss = combined(MulticlassAUCLoss([0.5, 0.3, 0.2], link="softmax"), task="multiclass")
    assert loss.shift is None
    expected = loss.part0(scores, target) + cross_entropy(scores * loss.scale, target)
    torch.testing.assert_close(loss(scores, target), expected)


def test_scale_and_shift_apply_to_cross_entropy_alone():
    loss = combined(AUCLoss(0.4, link="identity"))
    scores = SCORES.clone().requires_grad_()
    loss(scores, LABELS).backward()
    for name in ("scale", "shift"):
        parameter = getattr(loss, name)
        likely = binary_cross_entropy_with_logits(loss.scale * SCORES + loss.shift, LABELS.double())
        (expected,) = torch.autograd.grad(likely, parameter)
        torch.testing.assert_close(parameter.grad, expected)


def test_python_sums_losses():
    likely, pairs = CrossEntropy(), PairwiseAUCLoss()
    total = sum([likely, pairs, AUCLoss(0.5)])
    assert list(total.parts.values())[:2] == [likely, pairs]
    assert sum([likely]) is likely
    with pytest.raises(TypeError):
        1 + likely
    with pytest.raises(TypeError):
        likely * "2"


def test_losses_add_and_scale():
    scores, target = torch.tensor([0.3, -0.2, 0.9, 0.1]), torch.tensor([1, 0, 0, 1])
    auc, likely = AUCLoss(0.5, link="identity"), CrossEntropy()
    total = 2 * auc + 0.5 * likely
    assert total.weights == (2.0, 0.5)
    assert list(total.parts.values()) == [auc, likely]
    expected = 2 * auc(scores, target) + 0.5 * likely(scores, target)
    torch.testing.assert_close(total(scores, target), expected)  # the map begins as the identity
    total(scores, target).backward()
    assert total.scale.grad.abs() > 0
    assert total.shift.grad.abs() > 0
    assert (total + likely).weights == (2.0, 0.5, 1.0)


def test_sum_of_two_saddle_losses_raises():
    with pytest.raises(ValueError, match="at most one loss with saddle variables, found AUCLoss"):
        AUCLoss(0.5) + AUCLoss(0.5)
    with pytest.raises(TypeError):
        AUCLoss(0.5) + 1


def test_negative_scale_does_not_invert_ranking():
    """Large steps once turned the scale's sign, and then the ranking."""
    total = AUCLoss(0.5, link="identity") + CrossEntropy()
    scores, target = torch.tensor([3.0, -3.0]), torch.tensor([1, 0])
    torch.nn.init.constant_(total.scale, -1.0)
    right, wrong = total(scores, target), total(-scores, target)
    assert right < wrong
