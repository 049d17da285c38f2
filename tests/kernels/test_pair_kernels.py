"""Sums over pairs as a GPU has them; on the CPU by Triton's interpreter."""

import pytest
import torch
from interpreted import DEVICE, by_turns, with_kernels  # noqa: F401

import aucmax
from aucmax.kernels import pairs as tiles
from aucmax.loss import _pairs_gpu
from aucmax.loss.pairs import Surrogate, pair_sums
from aucmax.loss.surrogates import DEGREES, SURROGATES

pytestmark = pytest.mark.usefixtures("with_kernels")

OPTIONS = {"margin": 0.75, "scale": 1.5, "q": 0.4}
CLOSE = {torch.float32: 3e-6, torch.float64: 1e-12}


def rows(columns, n, dtype=torch.float64, far=0.0):
    """Scores with ties, also at the margin; weights as positives and as negatives; groups."""
    g = torch.Generator().manual_seed(n)
    scores = (torch.randn(columns, n, generator=g).mul(2).round().div(2) + far).to(dtype)
    weight = torch.randint(0, 4, (columns, n), generator=g).to(dtype) / 3
    up = torch.rand(columns, n, generator=g) < 0.3
    return scores, weight * up, weight * ~up, torch.randint(-2, 3, (n,), generator=g)


def check(found, expected, close):
    for x, y in zip(found, expected, strict=True):
        assert (x.cpu().double() - y).abs().max() <= close * max(1.0, y.abs().max().item())


@pytest.mark.parametrize("tiled", [True, False], ids=["few rows", "many rows"])
@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "groups"])
@pytest.mark.parametrize("name", SURROGATES)
def test_sums_are_those_of_the_cpu(name, grouped, tiled, monkeypatch):
    """Many rows are sorted: hinges to be added up, the others so that tiles can be left out."""
    if not tiled:
        monkeypatch.setattr(_pairs_gpu, "PAIRS", 0)
    monkeypatch.setattr(tiles, "shape", lambda n: tiles.Shape(16, 16, 1))
    *given, group = rows(2, 24)
    group = group if grouped else None
    surrogate = Surrogate(name, **OPTIONS)
    there = [x.to(DEVICE) for x in given], group if group is None else group.to(DEVICE)
    check(
        _pairs_gpu.pair_sums(*there[0], there[1], surrogate),
        pair_sums(*given, group, surrogate),
        CLOSE[torch.float64],
    )


@pytest.mark.parametrize("name", DEGREES)
def test_an_offset_costs_no_digits(name, monkeypatch):
    *given, _ = rows(1, 30, torch.float32, far=4096.0)
    expected = pair_sums(*(x.double() for x in given), None, Surrogate(name))
    for most in (_pairs_gpu.PAIRS, 0):
        monkeypatch.setattr(_pairs_gpu, "PAIRS", most)
        found = _pairs_gpu.pair_sums(*(x.to(DEVICE) for x in given), None, Surrogate(name))
        check(found, expected, CLOSE[torch.float32])


@pytest.mark.parametrize(
    ("n", "labels", "weighted", "grouped", "dtype"),
    [
        (20, torch.int64, False, False, torch.float32),
        (20, torch.bool, True, True, torch.float64),
        (33, torch.float32, True, False, torch.bfloat16),
        (tiles.ALONE + 20, torch.uint8, True, True, torch.float32),
    ],
    ids=["alone", "alone, groups", "half precision", "several programs"],
)
def test_a_mean_over_pairs_takes_what_a_loss_is_given(n, labels, weighted, grouped, dtype):
    scores, positive, negative, group = rows(1, n, dtype)
    weight = (positive + negative)[0]
    surrogate = Surrogate("squared_hinge", **OPTIONS)
    target = (positive[0] > 0).to(labels)
    group = group if grouped else None
    if not weighted:
        positive, negative = target[None].double(), 1.0 - target[None].double()
    sums, mass, gradient = pair_sums(
        scores.double(), positive.double(), negative.double(), group, surrogate
    )
    found = tiles.pair_mean(
        scores[0].to(DEVICE), target.to(DEVICE), weight.to(DEVICE) if weighted else None,
        None if group is None else group.to(DEVICE), ("squared_hinge", 0.75, 1.5, 0.4),
    )  # fmt: skip
    assert found[0].dtype == found[1].dtype == (dtype if dtype.itemsize == 8 else torch.float32)
    check(found, (sums[0] / mass[0], gradient[0] / mass[0]), 3e-6)


@pytest.mark.parametrize("label", [0.0, 1.0, torch.nan], ids=["negatives", "positives", "missing"])
def test_without_a_pair_the_mean_is_zero(label):
    scores = torch.linspace(-1.0, 2.0, 5, device=DEVICE)
    options = ("logistic", 1.0, 1.0, 0.7)
    value, gradient = tiles.pair_mean(scores, torch.full_like(scores, label), None, None, options)
    assert value.item() == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["32", "16"])
@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "groups"])
def test_the_loss_is_that_of_the_cpu(grouped, dtype):
    scores, positive, negative, group = (x.squeeze(0).to(DEVICE) for x in rows(1, 50, dtype))
    weight, target = positive + negative, (positive > 0).long()

    def value_and_gradient():
        s = scores[:, None].clone().requires_grad_()
        value = aucmax.PairwiseAUCLoss()(s, target, weight, group=group if grouped else None)
        return value.detach(), *torch.autograd.grad(value, s)

    found, expected = by_turns(value_and_gradient)
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == y.dtype
        torch.testing.assert_close(
            x, y, rtol=1e-2 if x.dtype == torch.bfloat16 else 1e-5, atol=1e-6
        )


def test_values_are_looked_at_if_asked_for():
    target = torch.tensor([0, 1, 2], device=DEVICE)
    with pytest.raises(ValueError, match="target must hold 0 and 1 only, found 0, 1, 2"):
        aucmax.PairwiseAUCLoss(debug=True)(torch.zeros(3, device=DEVICE), target)


def test_groups_must_be_those_of_the_rows():
    target = torch.tensor([0, 1], device=DEVICE)
    with pytest.raises(ValueError, match="group must be a tensor of shape"):
        aucmax.PairwiseAUCLoss()(torch.zeros(2, device=DEVICE), target, group=target[:1])
