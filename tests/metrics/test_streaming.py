"""The AUC of batches equals that of their rows."""

import math

import numpy as np
import pytest
import torch
from curve_cases import rows
from hypothesis import given
from hypothesis import strategies as st

from aucmax.metrics import StreamingAUC, roc_auc


def close(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


@given(rows(), st.lists(st.integers(0, 32), max_size=4), st.booleans())
def test_batches_equal_their_concatenation(case, cuts, weighted):
    x, y = case
    w = np.linspace(0.5, 2, len(x)) if weighted else None
    metric = StreamingAUC()
    for part in np.split(np.arange(len(x)), sorted(min(cut, len(x)) for cut in cuts)):
        metric.update(torch.tensor(x[part]), y[part], None if w is None else w[part])
    assert metric.compute() == close(roc_auc(x, y, w))
    assert metric.compute() == close(roc_auc(x, y, w))  # and again


def test_batches_with_and_without_weights():
    metric = StreamingAUC()
    metric.update([1.0, 2.0], [0, 1], [3.0, 2.0])
    metric.update([3.0, 0.0], [0, 1])
    assert metric.compute() == close(roc_auc([1.0, 2.0, 3.0, 0.0], [0, 1, 0, 1], [3, 2, 1, 1]))


def test_batches_are_copied():
    metric = StreamingAUC()
    scores, labels = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([0, 1])
    metric.update(scores * 1, labels)
    shared, weight = np.array([3.0, 0.0]), np.ones(2)
    metric.update(shared, labels.numpy(), weight)
    assert metric.compute() == 0.25
    shared[:], weight[:] = [-1.0, 9.0], 7.0
    labels[:] = 1 - labels
    assert metric.compute() == 0.25
    assert all(isinstance(batch, np.ndarray) and batch.base is None for batch in metric._batches)
    metric.reset()
    metric.update([1.0, 2.0], [1, 0])
    assert metric.compute() == 0.0


def test_inexact_scores_raise():
    metric = StreamingAUC()
    metric.update(np.array([2**53, -(2**53)]), [0, 1])
    for value in (2**53 + 1, 2**63 - 1):
        with pytest.raises(ValueError, match="scores must fit float64, found int64"):
            metric.update(np.array([value]), [1])
    assert metric.compute() == 0.0


def test_no_rows_and_one_class():
    metric = StreamingAUC()
    metric.update(torch.empty(0), torch.empty(0), torch.empty(0))
    with pytest.raises(ValueError, match="scores must have at least one row, found none"):
        metric.compute()
    metric.update([0.1, 0.2], [1, 1])
    with pytest.warns(UserWarning, match="2 positives and 0 negatives") as record:
        assert math.isnan(metric.compute())
    assert record[0].filename == __file__
