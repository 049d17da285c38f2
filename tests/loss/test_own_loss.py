"""A loss of a user's own: what a subclass of `Loss` has to say, and what it gets."""

import pytest
import torch
from torch import nn

import aucmax
from aucmax.loss import CrossEntropy, Loss, RankingLoss
from aucmax.loss.base import check_binary_shapes, computable, flatten
from aucmax.loss.pairwise import pair_means


class SquaredError(Loss):
    """The Brier score: the mean of (sigmoid(s) - y)^2."""

    def forward(self, scores, target, weight=None, *, group=None, index=None):
        check_binary_shapes(scores, target, weight)
        s = scores.reshape(-1).to(computable(scores.dtype))
        y = flatten(target, s.dtype)
        w = torch.ones_like(s) if weight is None else flatten(weight, s.dtype)
        self.check_values(s.detach(), y, w)
        return (w * (s.sigmoid() - y).square()).sum() / w.sum()


class SmoothAUC(Loss):
    """The mean over pairs of sigmoid(s_j - s_i), all of them at once."""

    compares_rows = True

    def forward(self, scores, target, weight=None, *, group=None, index=None):
        check_binary_shapes(scores, target, weight)
        s, y = scores.reshape(-1), flatten(target, scores.dtype)
        self.check_values(s.detach(), y)
        pairs = y[:, None] * (1 - y)
        return (pairs * torch.sigmoid(s - s[:, None])).sum() / pairs.sum()


class Exponential:
    """exp(-z) of the difference z of a pair's scores."""

    name, scale = "exponential", 1.5

    def value_and_slope(self, z):
        value = torch.exp(-z)
        return value, -value


class ExponentialAUC(RankingLoss):
    """The weighted mean of it over the pairs of each column."""

    def forward(self, scores, target, weight=None, *, group=None, index=None):
        rows = self.columns_of(scores, target, weight, group, index)
        weight = torch.ones_like(rows.labels) if rows.weight is None else rows.weight
        positive, negative = weight * rows.labels, weight * (1 - rows.labels)
        means = pair_means(rows.scores, positive, negative, rows.group, Exponential())
        return rows.as_loss(means.value.mean(), means.gradient / len(rows.scores))


GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(600, 3, generator=GENERATOR)
Y = (torch.rand(600, generator=GENERATOR) < torch.sigmoid(2 * X[:, 0] - 1)).float()
S = X[:24, 0].double()


def test_own_loss_is_its_formula():
    weight = torch.rand(24, generator=torch.Generator().manual_seed(1)).double()
    expected = ((S.sigmoid() - Y[:24]).square() * weight).sum() / weight.sum()
    torch.testing.assert_close(SquaredError()(S[:, None], Y[:24], weight), expected)
    sigmoid = aucmax.PairwiseAUCLoss("sigmoid")
    torch.testing.assert_close(SmoothAUC()(S, Y[:24]), sigmoid(S, Y[:24]))


def test_own_surrogate_is_its_formula():
    s = S.clone().requires_grad_()
    weight = torch.rand(24, generator=torch.Generator().manual_seed(1)).double()
    group = torch.arange(24) % 2
    pairs = weight[:, None] * weight * Y[:24, None] * (1 - Y[:24]) * (group[:, None] == group)
    expected = (pairs * torch.exp(1.5 * (s - s[:, None]))).sum() / pairs.sum()
    value = ExponentialAUC()(s, Y[:24], weight, group=group)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(
        torch.autograd.grad(value, s), torch.autograd.grad(expected, s), rtol=1e-10, atol=1e-12
    )


def test_own_loss_is_checked():
    with pytest.raises(ValueError, match="target must hold 0 and 1 only, found -1, 1"):
        SquaredError()(S, 2 * Y[:24] - 1)
    with pytest.raises(ValueError, match="scores must be finite"):
        SquaredError()(S / 0, Y[:24])
    with pytest.raises(ValueError, match="target must have shape"):
        SmoothAUC()(S, Y[:23])


def test_own_loss_adds_to_others():
    loss = sum([SmoothAUC(), 0.5 * SquaredError(), CrossEntropy()])
    parts = SmoothAUC(), 0.5 * SquaredError(), CrossEntropy()
    torch.testing.assert_close(loss(S, Y[:24]), sum(part(S, Y[:24]) for part in parts))


def test_own_loss_survives_state_and_copies():
    loss = (SmoothAUC() + SquaredError()).half()
    assert loss(S.float(), Y[:24]).dtype == torch.float32
    loss.load_state_dict(loss.state_dict())
    loss.check()


@pytest.mark.parametrize(
    "loss", [SquaredError(), SmoothAUC() + CrossEntropy()], ids=["mean", "sum"]
)
def test_own_loss_trains_by_fit(loss):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW([*model.parameters(), *loss.parameters()], lr=0.05)
    rows = (X[:400], Y[:400]), (X[400:], Y[400:])
    result = aucmax.fit(model, *rows, loss=loss, optimizer=optimizer, steps=100, eval_every=50)
    assert result.auc > 0.8
