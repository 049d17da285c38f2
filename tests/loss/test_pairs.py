"""Sums over pairs against the double loop."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import pairwise as reference

from aucmax.loss import _pairs_gpu, pairs
from aucmax.loss.pairs import Surrogate, pair_sums, pair_sums_of_arrays
from aucmax.loss.surrogates import SURROGATES, curvature, value_and_slope

OPTIONS = {"margin": 0.75, "scale": 1.5, "q": 0.4}


def rows(n, seed, ties=False):
    """Scores, weights as positives and as negatives, some zero."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=n)
    if ties:  # in quarters, which the margin and the scale turn into quarters and eighths
        scores = np.round(scores * 2) / 2
    weight = random.integers(0, 4, n) / 2
    label = random.random(n) < 0.4
    return scores, weight * label, weight * ~label, random.integers(-2, 3, n)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SURROGATES)
def test_surrogates_match_reference(name):
    z = np.array([-800.0, -3.0, -0.5, 0.0, 0.25, 0.75, 2.0, 800.0])
    surrogate = Surrogate(name, **OPTIONS)
    finite = slice(1, -1)
    wanted = np.array([reference.phi(name, x, 0.75, 0.4) for x in z[finite]]).T
    for kind in (np.asarray, torch.from_numpy):
        found = (*value_and_slope(kind(z), surrogate), curvature(kind(z), surrogate))
        assert all(np.isfinite(np.asarray(x)).all() for x in found)
        for x, y in zip(found, wanted, strict=True):
            close(np.asarray(x)[finite], y)


@pytest.mark.parametrize("name", SURROGATES)
@given(n=st.integers(1, 12), seed=st.integers(0, 999), ties=st.booleans(), grouped=st.booleans())
def test_pair_sums_match_double_loop(name, n, seed, ties, grouped):
    scores, positive, negative, group = rows(n, seed, ties)
    group = group if grouped else None
    given_ = (scores, positive, negative, group)
    found = pair_sums_of_arrays(*given_, Surrogate(name, **OPTIONS), curved=True)
    for x, y in zip(found, reference.pair_sums(name, *given_, **OPTIONS), strict=True):
        close(x, y)


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("grouped", [False, True])
def test_pair_sums_of_columns(name, grouped):
    columns = [rows(30, seed) for seed in range(3)]
    group = torch.from_numpy(columns[0][3]) if grouped else None
    given_ = [torch.from_numpy(np.stack([c[k] for c in columns])) for k in range(3)]
    surrogate = Surrogate(name, **OPTIONS)
    together = pair_sums(*given_, group, surrogate)
    for k in range(3):
        alone = pair_sums(*(x[k : k + 1] for x in given_), group, surrogate)
        for x, y in zip(together, alone, strict=True):
            close(x[k : k + 1], y)


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("grouped", [False, True])
def test_pair_sums_by_tensor_operations(name, grouped):
    *given_, group = (torch.from_numpy(x) for x in rows(40, 5, ties=True))
    given_ = [x[None] for x in given_]
    group = group if grouped else None
    surrogate = Surrogate(name, **OPTIONS)
    for x, y in zip(
        _pairs_gpu.pair_sums(*given_, group, surrogate),
        pair_sums(*given_, group, surrogate),
        strict=True,
    ):
        close(x, y)


@pytest.mark.parametrize("many", [1, 30, 10**6])
def test_pair_sums_in_blocks(monkeypatch, many):
    given_ = (*rows(60, 3), Surrogate("logistic"))
    whole = pair_sums_of_arrays(*given_, curved=True)
    for name, value in (("LIST", 15), ("TABLE", (5, 3)), ("MANY", many)):
        monkeypatch.setattr(pairs, name, value)
    for x, y in zip(pair_sums_of_arrays(*given_, curved=True), whole, strict=True):
        close(x, y)
