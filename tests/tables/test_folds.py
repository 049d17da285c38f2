"""Which rows are trained on and which judge: whole classes, repeats, groups and times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aucmax.data.labels import has_pairs
from aucmax.tables.encoder import Encoded
from aucmax.tables.folds import held_out, judged_by, make_folds


def encoded(values):
    numeric = np.asarray(values, np.float32).reshape(len(values), -1)
    return Encoded(numeric, np.zeros((len(values), 0), np.int64))


def sides(*arguments, **more):
    """Rows to train on and rows held out, of one fit."""
    return held_out(*arguments, **more).rows(0)


def test_held_out_rows_are_the_share_of_each_class_and_never_repeats():
    numeric = np.random.default_rng(0).integers(0, 900, (1000, 1)).astype(np.float32)
    table = encoded(numeric)
    classes = (numeric[:, 0] < 200).astype(np.int64)
    train, valid = sides(table, classes, None, 0.2, 0)
    assert sorted([*train, *valid]) == list(range(1000))
    assert not set(numeric[train, 0]) & set(numeric[valid, 0])
    for k in (0, 1):
        held = np.unique(numeric[valid][classes[valid] == k])
        assert len(held) == round(0.2 * len(np.unique(numeric[classes == k])))
    assert sides(table, classes, None, 0.2, 0)[1].tolist() == valid.tolist()
    assert sides(table, classes, None, 0.2, 1)[1].tolist() != valid.tolist()


def test_too_few_rows_of_a_class_hold_out_nothing():
    table = encoded(np.arange(40))
    for positives, held in ((3, 0), (4, 9)):
        classes = (np.arange(40) < positives).astype(np.int64)
        assert len(sides(table, classes, None, 0.225, 0)[1]) == held


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 3), st.sampled_from([0.15, 0.3]))
def test_no_split_cuts_a_group(seed, groups, count, share):
    random = np.random.default_rng(seed)
    group = random.integers(groups, size=200) ** 2 % 67
    classes = random.integers(count, size=200)
    values = random.integers(150, size=200)  # some rows are repeats
    weight = random.integers(2, size=200)
    train, valid = sides(encoded(values), classes, weight, share, seed, group)
    assert sorted([*train, *valid]) == np.flatnonzero(weight).tolist()
    if not len(valid):
        return
    assert not {*group[train]} & {*group[valid]}
    assert len(valid) <= len(train)
    for side in (train, valid):
        assert {*classes[side]} == {*classes[weight > 0]}
        assert has_pairs(group[side], classes[side]).any()


def test_whole_groups_come_near_the_share_of_each_class():
    random = np.random.default_rng(0)
    group = random.integers(300, size=3000)
    rates = random.random(300) ** 3
    classes = (random.random(3000) < rates[group]).astype(np.int64)
    _, valid = sides(encoded(np.arange(3000)), classes, None, 0.2, 0, group)
    for number in range(2):
        assert abs((classes[valid] == number).sum() / (classes == number).sum() - 0.2) < 0.01
    both = has_pairs(group, classes)
    assert abs(both[np.unique(group[valid])].sum() / both.sum() - 0.2) < 0.02


def test_groups_with_repeats_in_common_stay_together_if_they_can():
    values, classes = np.arange(80), np.arange(80) % 2
    group = np.arange(80) // 8
    values[8:16] = values[:8]
    with_first = []
    for seed in range(20):
        _, valid = sides(encoded(values), classes, None, 0.2, seed, group)
        held = {*group[valid]}
        assert len(held) == 2
        assert (0 in held) == (1 in held)
        with_first.append(0 in held)
    assert {*with_first} == {True, False}
    values = np.arange(80)
    values[8::8] = values[7:-1:8]  # each group has a row in common with the next
    train, valid = sides(encoded(values), classes, None, 0.2, 0, group)
    assert len(valid) == 16
    assert not {*group[train]} & {*group[valid]}


def test_few_groups_are_held_out_if_half_the_rows_remain():
    classes = np.arange(40) % 2
    for groups, held in ((1, 0), (2, 20), (4, 10)):
        group = np.arange(40) * groups // 40
        _, valid = sides(encoded(np.arange(40)), classes, None, 0.15, 0, group)
        assert len(valid) == held
    rare = np.repeat([1, 0, 1, 0], [12, 7, 3, 18])  # the larger group is nearer to the share
    _, valid = sides(encoded(np.arange(40)), rare, None, 0.15, 0, 1 * (np.arange(40) > 18))
    assert 0 < len(valid) <= 20
    for seed in range(12, 24):  # of three folds the last two are halves, neither of them exactly
        random = np.random.default_rng(seed)
        group, rare = random.integers(40, size=301), 1 * (random.random(301) < 0.3)
        _, valid = sides(encoded(np.arange(301)), rare, None, 0.5, seed, group)
        assert 120 < len(valid) <= 150
    one_sided = np.where(np.arange(40) < 20, 0, 1 + classes)  # pairs in one group alone
    assert len(sides(encoded(np.arange(40)), classes, None, 0.15, 0, one_sided)[1]) == 0


# ---- folds ---------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 3), st.integers(2, 3))
def test_folds_are_parts_of_the_rows_with_every_class_in_each(seed, count, repeats, kinds):
    random = np.random.default_rng(seed)
    values = random.integers(150, size=200)  # some rows are repeats
    weight = random.integers(3, size=200)
    classes = random.integers(kinds, size=150)[values]
    folds = make_folds(encoded(values), classes, weight, count=count, repeats=repeats, seed=seed)
    assert folds.count == count * repeats
    assert np.array_equal(folds.used | folds.held, np.repeat(weight[:, None] > 0, folds.count, 1))
    assert not (folds.used & folds.held).any()
    for cut in np.split(folds.held, repeats, axis=1):
        assert np.array_equal(cut.sum(axis=1), weight > 0)
        for k in range(kinds):
            each = [len({*values[part & (classes == k)]}) for part in cut.T]
            assert 1 <= max(each) <= min(each) + 1
    for k in range(folds.count):
        used, held = folds.rows(k)
        assert not {*values[used]} & {*values[held]}


def test_each_repeat_of_folds_is_another_cut_and_a_seed_makes_all():
    classes = np.arange(60) % 2
    made = [
        make_folds(encoded(np.arange(60)), classes, None, count=3, repeats=2, seed=seed).held
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])
    assert not np.array_equal(made[0][:, :3], made[0][:, 3:])


@pytest.mark.parametrize(("positives", "count"), [(3, 0), (4, 4), (5, 5), (9, 5)])
def test_few_rows_of_a_class_make_fewer_folds(positives, count):
    values = np.arange(60)
    values[-30:] = values[0]  # repeats, which are one row
    classes = (np.arange(60) < positives).astype(np.int64)
    folds = make_folds(encoded(values), classes, None, count=5, seed=0)
    assert folds.count == count
    assert len(folds.judged) == (60 if count else 0)


def test_where_most_rows_are_repeats_rows_are_taken_one_by_one():
    classes = np.arange(90) % 2
    folds = make_folds(encoded(np.arange(90) % 3), classes, None, count=3, seed=0)
    assert folds.held.sum(axis=0).tolist() == [30, 30, 30]


@given(st.integers(0, 10**6), st.integers(1, 40))
def test_no_fold_cuts_a_group(seed, groups):
    random = np.random.default_rng(seed)
    group = random.integers(groups, size=200)
    classes = (random.random(200) < 0.3).astype(np.int64)
    weight = random.integers(2, size=200)
    folds = make_folds(encoded(np.arange(200)), classes, weight, count=5, seed=seed, group=group)
    assert folds.count <= min(5, groups)
    assert folds.count >= 2 or groups < 6
    for k in range(folds.count):
        used, held = folds.rows(k)
        assert len(used) + len(held) == np.count_nonzero(weight)
        assert not {*group[used]} & {*group[held]}
        assert has_pairs(group[held], classes[held]).any()
        assert {*classes[held]} == {0, 1}


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([3, 40, 300]))
def test_by_time_a_fit_knows_the_past_and_is_judged_by_what_follows(seed, count, times):
    random = np.random.default_rng(seed)
    time, weight = random.permutation(300) % times, random.integers(2, size=300)
    classes = random.integers(2, size=300)
    # Of two rows in succession one is positive, so that no block has rows of one class only.
    in_order = np.flatnonzero(weight)[np.argsort(time[weight > 0], kind="stable")]
    classes[in_order[1::2]] = 1 - classes[in_order[: len(in_order) // 2 * 2 : 2]]
    table = encoded(random.integers(50, size=300))  # what comes again may be known
    folds = make_folds(table, classes, weight, count=count, repeats=2, seed=0, time=time)
    assert 1 <= folds.count <= min(count, times - 1)
    assert folds.count == count or times == 3
    before = weight < 0
    for k in range(folds.count):
        used, held = folds.rows(k)
        assert time[used].max() < time[held].min()
        assert {*classes[used]} == {*classes[held]} == {0, 1}
        assert not k or np.array_equal(folds.used[:, k], before)
        before = folds.used[:, k] | folds.held[:, k]
        if times == 300:
            assert abs(len(held) - np.count_nonzero(weight) / (2 * count)) <= 1
    assert np.array_equal(before, weight > 0)  # the last block is the end of time
    assert np.array_equal(folds.whole, np.flatnonzero(weight))
    used, held = sides(table, classes, weight, 0.3, 0, time=time)
    assert time[used].max() < time[held].min()
    assert times < 300 or abs(len(held) - 0.3 * np.count_nonzero(weight)) <= 0.5


def test_by_time_a_block_of_one_class_makes_fewer_folds():
    """All 14 rows of the fifth block from the end are of class 0, so that four blocks are made."""
    random = np.random.default_rng(1)
    time, weight = random.permutation(300), random.integers(2, size=300)
    classes = random.integers(2, size=300)
    counted = np.flatnonzero(weight)
    latest_first = classes[counted[np.argsort(-time[counted])]]
    begin, end = round(0.4 * len(counted)), round(0.5 * len(counted))
    assert not latest_first[begin:end].any()
    folds = make_folds(encoded(time), classes, weight, count=5, seed=0, time=time)
    assert folds.count == 4
    for k in range(folds.count):
        used, held = folds.rows(k)
        assert time[used].max() < time[held].min()
        assert {*classes[used]} == {*classes[held]} == {0, 1}


def test_rows_that_are_given_to_judge_by_are_never_trained_on():
    folds = judged_by(np.arange(6) > 3, np.array([1, 0, 1, 1, 0, 1]))
    assert [x.tolist() for x in (*folds.rows(0), folds.whole)] == [[0, 2, 3], [5], [0, 2, 3]]


def test_a_time_without_positives_makes_fewer_blocks():
    time = np.arange(100)
    classes = np.isin(time, [10, 20, 30, 60, 70]).astype(np.int64)
    folds = make_folds(encoded(time), classes, None, count=5, seed=0, time=time)
    assert [len(folds.rows(k)[1]) for k in range(folds.count)] == [50]
    assert len(sides(encoded(time), classes, None, 0.2, 0, time=time)[1]) == 0
    late = make_folds(encoded(time), (time > 90).astype(np.int64), None, count=5, seed=0, time=time)
    assert late.count == 0
