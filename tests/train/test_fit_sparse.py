"""fit with sparse gradients of the saddle variables of many groups."""

import numpy as np
import pytest
import torch
from fit_data import assert_same_weights, binary, fit, hidden, one_thread  # noqa: F401

import aucmax
from aucmax.train._guards import HostGuard

X, Y = binary(n=300)
GROUP = np.random.default_rng(0).integers(25, size=300)
TRAIN = (X, Y, torch.ones(300), GROUP)
OPTIONS = {"steps": 40, "batch_size": 16, "eval_every": 20, "probe": 32, "objective": "auc"}


def run(sparse, train=TRAIN, **options):
    options = {"loss_options": {"sparse": sparse}, **OPTIONS, **options}
    return fit(hidden().double(), train, TRAIN, **options)


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"clip_norm": 0.05}], ids=str)
def test_it_trains_as_with_dense_ones(options):
    sparse, dense = (run(which, **options) for which in (True, False))
    assert sparse.loss.sparse
    for p, q in zip(sparse.model.parameters(), dense.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-10)


class Stopping:
    """Inputs as they are, and an error in the place of a given batch."""

    def __init__(self, at=None):
        self.at, self.batches = at, 0

    def __call__(self, x):
        self.batches += 1
        if self.batches == self.at:
            raise RuntimeError("stopped")
        return x


def test_what_was_saved_goes_on_to_the_same_bits(tmp_path):
    options = {"save_every": 7, "optimizer_options": {"gamma": 5.0}}
    whole = run(True, augment=Stopping(), **options)
    with pytest.raises(RuntimeError, match="stopped"):
        run(True, augment=Stopping(33), out=tmp_path, **options)
    again = run(True, augment=Stopping(), out=tmp_path, **options)
    assert_same_weights(again.model, whole.model)
    for name, value in whole.loss.state_dict().items():
        assert torch.equal(again.loss.state_dict()[name], value)


def test_a_gradient_that_is_not_finite_is_noticed():
    loss = aucmax.GroupedAUCLoss([1.0, 1.0], [1.0, 1.0], sparse=True)
    guard = HostGuard(dict(loss.named_parameters()))
    loss(torch.zeros(2), torch.tensor([0, 1]), group=torch.tensor([0, 0])).backward()
    guard.check(0.0)
    loss.b.grad._values()[0] = float("nan")
    with pytest.raises(aucmax.DivergedError, match=r"gradients are not finite in b$"):
        guard.check(0.0)
