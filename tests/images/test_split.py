"""Which pictures are kept apart: a share of every class, and nothing that belongs together."""

import numpy as np
import pytest

from aucmax.images.split import join, keep_apart


def test_join_merges_sets_that_share_a_row():
    assert join([1, 2, 3, 4, 4], ["a", "a", "b", "b", "c"]).tolist() == [0, 0, 1, 1, 1]
    assert join([3, 1, 3], None).tolist() == [0, 1, 0]


@pytest.mark.parametrize("seed", range(3))
def test_keep_apart_takes_a_share_of_every_class_and_cuts_no_set(seed):
    random = np.random.default_rng(seed)
    together = random.integers(0, 120, size=400)
    classes = (random.uniform(size=400) < 0.1).astype(int)
    train, held = keep_apart(np.eye(2, dtype=int)[classes], together, 0.25, seed, ["no", "yes"])
    assert sorted([*train, *held]) == list(range(400))
    assert not {*together[train]} & {*together[held]}
    for label in (0, 1):
        of_label = (classes == label).sum()
        assert (classes[held] == label).sum() == pytest.approx(0.25 * of_label, abs=4)


def test_keep_apart_balances_every_column_of_several_labels():
    random = np.random.default_rng(0)
    together = random.integers(0, 150, size=400)
    has = random.uniform(size=(400, 3)) < [0.05, 0.3, 1]
    train, held = keep_apart(has.astype(int), together, 0.25, 0, ["rare", "some", "all"])
    assert sorted([*train, *held]) == list(range(400))
    assert not {*together[train]} & {*together[held]}
    for label, about in enumerate((2, 8, 30)):
        assert has[held, label].sum() == pytest.approx(0.25 * has[:, label].sum(), abs=about)


def test_keep_apart_raises_for_a_class_of_one_set():
    has = np.eye(2, dtype=int)[[0, 0, 0, 1, 1]]
    with pytest.raises(ValueError, match=r"found 2 of 'yes'; copies .* count once: 1"):
        keep_apart(has, np.array([0, 1, 2, 3, 3]), 0.4, 0, ["no", "yes"])
