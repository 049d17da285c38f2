"""StreamingPrior against its NumPy transcription, and its bias in exact sums."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from errors import assert_names
from hypothesis import given
from hypothesis import strategies as st
from reference.prior import UnbiasedPrior

from aucmax import StreamingPrior

NAN = float("nan")

labels = st.lists(st.integers(0, 1), min_size=1, max_size=20).map(np.array)


def counted(target, weight=None):
    estimate = StreamingPrior()
    estimate.update(torch.as_tensor(target), weight)
    return estimate


def assert_agree(found, reference):
    assert found.p.item() == pytest.approx(reference.p, rel=1e-12)
    assert found.p_one_minus_p.item() == pytest.approx(reference.pq, rel=1e-12)


# ---- The estimates -----------------------------------------------------------------------------


@given(st.lists(labels, max_size=6), st.booleans(), st.randoms(use_true_random=False))
def test_streaming_prior_matches_reference(batches, weighted, random):
    estimate, reference = StreamingPrior(), UnbiasedPrior()
    for y in batches:
        weight = np.array([random.uniform(0.01, 5) for _ in y]) if weighted else None
        estimate.update(torch.tensor(y), None if weight is None else torch.tensor(weight))
        reference.update(y, weight)
        assert_agree(estimate, reference)


def test_streaming_prior_starts_at_one_half():
    assert StreamingPrior().p.item() == 0.5
    assert StreamingPrior().p_one_minus_p.item() == 0.5  # 2/1 * 1/4


def expectation(statistic: Callable[[int], float], n: int, p: float) -> float:
    """Over the number of positives among n labels, exactly."""
    chances = (math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1))
    return math.fsum(chance * statistic(k) for k, chance in enumerate(chances))


def test_streaming_prior_without_pseudo_labels_is_unbiased():
    estimate = StreamingPrior()

    def statistic(positives):
        for name, count in (("positives", positives), ("negatives", 8 - positives), ("squares", 8)):
            getattr(estimate, name).fill_(count)
        return estimate.p_one_minus_p.item()

    assert expectation(statistic, 8, 0.3) == pytest.approx(0.3 * 0.7, rel=1e-12)


# ---- Input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("bool", (8,)), ("uint8", (8, 1)), ("int64", (2, 4)), ("bfloat16", (2, 2, 2))],
)
def test_streaming_prior_takes_any_shape_and_dtype(dtype, shape):
    y = torch.tensor([1, 0, 0, 1, 0, 0, 0, 0]).reshape(shape).to(getattr(torch, dtype))
    assert counted(y).p.item() == 3 / 10
    assert counted(y, torch.full(shape, 2.0)).p.item() == 5 / 18


@pytest.mark.parametrize(
    ("argument", "target", "weight"),
    [
        ("target", [-1, 1], None),
        ("target", [0, 2], None),
        ("target", [0.5, 1], None),
        ("target", [NAN, 1], None),
        ("weight", [0, 1], [1.0, -1.0]),
        ("weight", [0, 1], [0.0, 0.0]),
        ("weight", [0, 1], [1.0, NAN]),
        ("weight", [0, 1], [1.0]),
        ("weight", [0, 1], [[1.0], [1.0]]),
    ],
)
def test_bad_input_of_streaming_prior_is_named_and_not_counted(argument, target, weight):
    estimate = StreamingPrior()
    weight = None if weight is None else torch.tensor(weight)
    assert_names(argument, estimate.update, torch.tensor(target), weight)
    assert estimate.p.item() == 0.5
    assert estimate.squares.item() == 2.0


# ---- As a module -------------------------------------------------------------------------------


def test_streaming_prior_carries_no_gradient():
    estimate = StreamingPrior()
    estimate.update(torch.ones(3), torch.ones(3, requires_grad=True))
    assert not estimate.p.requires_grad
    assert not list(estimate.parameters())
