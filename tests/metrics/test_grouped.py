"""The AUC within groups, against all pairs of every group."""

import math

import numpy as np
import pytest
import torch
from curve_cases import cases
from hypothesis import given
from hypothesis import strategies as st
from reference import ranking as reference

from aucmax.metrics import grouped_auc, roc_auc


def close(value):
    return pytest.approx(value, rel=1e-11, abs=1e-12)


@given(cases(group=True), st.booleans(), st.sampled_from(["numbers", "texts", "objects", "tensor"]))
def test_grouped_auc_matches_pairs_within_groups(case, mean, form):
    x, y, w, g = case
    names = {
        "numbers": g[:, None],
        "texts": [f"ward {i}" for i in g],
        "objects": np.array([i if i % 2 else str(i) for i in g], dtype=object),
        "tensor": torch.tensor(g),
    }
    found = grouped_auc(x, y, names[form], w, mean=mean)
    assert found == close(reference.grouped_auc(x, y, g, w, mean))
    ones = np.ones(len(x))
    assert grouped_auc(x, y, names[form], mean=mean) == close(
        reference.grouped_auc(x, y, g, ones, mean)
    )


def test_grouped_auc_of_small_weights():
    random = np.random.default_rng(0)
    y, g = np.arange(400) % 3 == 0, np.arange(400) // 40
    x, w = random.standard_normal(400) + y, np.where(g == 3, 1e-200, 1e100)
    aucs = [roc_auc(x[g == k], y[g == k]) for k in range(10)]
    assert grouped_auc(x, y, g, w, mean=True) == pytest.approx(np.mean(aucs), rel=1e-12)
    w = np.where(y & (g == 3), 1e-16, 1.0)  # the positives alone
    assert grouped_auc(x, y, g, w, mean=True) == pytest.approx(np.mean(aucs), rel=1e-12)


def test_groups_of_one_class_are_nan_and_warn():
    x, y = [0.1, 0.4, 0.3, 0.8], [0, 0, 1, 1]
    for call in (
        lambda: grouped_auc(x, y, y),
        lambda: grouped_auc(x, y, [1, 2, 1, 2], [0, 1, 1, 0]),
    ):
        with pytest.warns(UserWarning, match="no group has both") as record:
            assert math.isnan(call())
        assert record[0].filename == __file__


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_grouped_auc_on_a_gpu():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5000, generator=generator).round(decimals=2)
    y, g = torch.rand(5000, generator=generator) < 0.2, torch.arange(5000) % 50
    for w in (None, torch.rand(5000, generator=generator)):
        on_gpu = grouped_auc(x.cuda(), y.cuda(), g.cuda(), None if w is None else w.cuda())
        assert on_gpu == close(grouped_auc(x, y, g, w))
        assert grouped_auc(x.cuda(), y.cuda(), g.numpy()) == close(grouped_auc(x, y, g))
