"""Tables whose rows carry groups: only rows of the same one are compared, and none is cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aucmax import AUCClassifier
from aucmax.tables.encoder import Encoded
from aucmax.tables.split import are_compared, hold_out


def quick(**options):
    given = {"max_steps": 30, "members": 2, "width": 8, "random_state": 0, "n_jobs": 1}
    return AUCClassifier(**given | options)


def encoded(values):
    numeric = np.asarray(values, np.float32).reshape(len(values), -1)
    return Encoded(numeric, np.zeros((len(values), 0), np.int64))


# ---- the split -----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 3), st.sampled_from([0.15, 0.3]))
def test_no_split_cuts_a_group(seed, groups, count, share):
    random = np.random.default_rng(seed)
    group = random.integers(groups, size=200) ** 2 % 67
    classes = random.integers(count, size=200)
    values = random.integers(150, size=200)  # some rows are repeats
    weight = random.integers(2, size=200)
    train, valid = hold_out(encoded(values), classes, weight, share, seed, group)
    assert sorted([*train, *valid]) == np.flatnonzero(weight).tolist()
    if not len(valid):
        return
    assert not {*group[train]} & {*group[valid]}
    assert len(valid) <= len(train)
    for side in (train, valid):
        assert {*classes[side]} == {*classes[weight > 0]}
        assert are_compared(group[side], classes[side]).any()


def test_whole_groups_come_near_the_share_of_each_class():
    random = np.random.default_rng(0)
    group = random.integers(300, size=3000)
    rates = random.random(300) ** 3
    classes = (random.random(3000) < rates[group]).astype(np.int64)
    _, valid = hold_out(encoded(np.arange(3000)), classes, None, 0.2, 0, group)
    for number in range(2):
        assert abs((classes[valid] == number).sum() / (classes == number).sum() - 0.2) < 0.01
    both = are_compared(group, classes)
    assert abs(both[np.unique(group[valid])].sum() / both.sum() - 0.2) < 0.02


def test_groups_with_repeats_in_common_stay_together_if_they_can():
    values, classes = np.arange(80), np.arange(80) % 2
    group = np.arange(80) // 8
    values[8:16] = values[:8]
    sides = []
    for seed in range(20):
        _, valid = hold_out(encoded(values), classes, None, 0.2, seed, group)
        held = {*group[valid]}
        assert len(held) == 2
        assert (0 in held) == (1 in held)
        sides.append(0 in held)
    assert {*sides} == {True, False}
    values = np.arange(80)
    values[8::8] = values[7:-1:8]  # each group has a row in common with the next
    train, valid = hold_out(encoded(values), classes, None, 0.2, 0, group)
    assert len(valid) == 16
    assert not {*group[train]} & {*group[valid]}


def test_few_groups_are_held_out_if_half_the_rows_remain():
    classes = np.arange(40) % 2
    for groups, held in ((1, 0), (2, 20), (4, 10)):
        group = np.arange(40) * groups // 40
        _, valid = hold_out(encoded(np.arange(40)), classes, None, 0.15, 0, group)
        assert len(valid) == held
    one_sided = np.where(np.arange(40) < 20, 0, 1 + classes)  # pairs in one group alone
    assert len(hold_out(encoded(np.arange(40)), classes, None, 0.15, 0, one_sided)[1]) == 0


# ---- the classifier ------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(120, 3))
Y = (X[:, 0] + np.random.default_rng(1).normal(size=120) > 0.5).astype(int)
GROUPS = np.array([f"ward {i % 12}" for i in range(120)])


@pytest.mark.parametrize(
    ("groups", "options", "message"),
    [
        (GROUPS[:50], {}, "groups must have a value for each of 120 rows, found 50"),
        ([None, *GROUPS[1:]], {}, "groups must have no missing values .* found 1 among 120"),
        (Y, {}, "groups must have one with rows of two classes, found 2 with rows of one class"),
    ],
)
def test_groups_that_cannot_be(groups, options, message):
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(X, Y, groups=groups)
