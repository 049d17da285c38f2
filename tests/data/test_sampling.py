"""Batches of row numbers: each row once a round, exact shares, a function of seed and number."""

import itertools

import numpy as np
import pytest
import torch
from errors import assert_names
from fit_data import binary, fit, linear
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from aucmax import BatchSampler

LABELS = torch.arange(23) % 5 == 0  # 5 positives among 23
GROUP = ["c", "a", "b", "b", "a", "c", "c", "d", "d"] * 2 + ["a", "b", "c", "d", "e"]
EVERY_KIND = pytest.mark.parametrize(
    "options",
    [
        {},
        {"positives": 0.5},
        {"replacement": True},
        {"positives": 0.3, "replacement": True},
        {"group": GROUP},
    ],
    ids=lambda options: ", ".join(options),
)


def drawn(sampler, batches, first=0):
    return [sampler.rows(k).tolist() for k in range(first, first + batches)]


def rounds(rows, length):
    """The stream of rows cut into rounds; the last may be short."""
    return [rows[i : i + length] for i in range(0, len(rows), length)]


# ---- Without replacement -----------------------------------------------------------------------


@given(n=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 2**70))
def test_every_row_comes_once_before_any_comes_again(n, size, seed):
    sampler = BatchSampler(torch.zeros(n), size, seed=seed)
    rows = list(itertools.chain(*drawn(sampler, 3 * n // size + 2)))
    for part in rounds(rows, n):
        assert len(set(part)) == len(part)
        assert set(part) <= set(range(n))


@given(
    n=st.integers(2, 40),
    ones=st.data(),
    size=st.integers(2, 50),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 9),
)
def test_with_a_fixed_share_each_class_goes_round_on_its_own(n, ones, size, share, seed):
    positives = ones.draw(st.integers(1, n - 1))
    labels = np.random.default_rng(seed).permutation(np.arange(n) < positives)
    sampler = BatchSampler(labels, size, positives=share, seed=seed)
    rows = np.concatenate(drawn(sampler, 3 * n // size + 3))
    for value in (True, False):
        own = rows[labels[rows] == value].tolist()
        for part in rounds(own, int((labels == value).sum())):
            assert len(set(part)) == len(part)


def test_a_round_is_in_random_order_and_rounds_differ():
    first, second = drawn(BatchSampler(torch.zeros(100), 100), 2)
    assert first != sorted(first)
    assert first != second


def test_a_batch_may_hold_the_end_of_one_round_and_the_beginning_of_the_next():
    rows = drawn(BatchSampler(torch.zeros(5), 4), 5)
    assert [len(batch) for batch in rows] == [4] * 5
    assert [sorted(part) for part in rounds(list(itertools.chain(*rows)), 5)] == [
        [0, 1, 2, 3, 4]
    ] * 4


def test_a_batch_larger_than_the_data_holds_whole_rounds():
    (batch,) = drawn(BatchSampler(torch.zeros(3), 9), 1)
    assert sorted(batch) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


# ---- Every kind --------------------------------------------------------------------------------


@EVERY_KIND
def test_every_batch_has_the_same_size(options):
    assert {len(rows) for rows in drawn(BatchSampler(LABELS, 7, **options), 60)} == {7}


@EVERY_KIND
def test_the_seed_decides(options):
    def first(seed):
        return drawn(BatchSampler(LABELS, 7, seed=seed, **options), 4)

    assert first(3) == first(3)
    assert first(3) != first(4)


@EVERY_KIND
def test_a_batch_depends_on_its_number_alone(options):
    in_order = drawn(BatchSampler(LABELS, 7, **options), 30)
    backwards = BatchSampler(LABELS, 7, **options)
    assert [backwards.rows(k).tolist() for k in range(29, -1, -1)] == in_order[::-1]
    assert BatchSampler(LABELS, 7, **options).rows(17).tolist() == in_order[17]


@EVERY_KIND
def test_torchs_random_numbers_are_neither_used_nor_changed(options):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = drawn(BatchSampler(LABELS, 7, **options), 3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert drawn(BatchSampler(LABELS, 7, **options), 3) == first


@EVERY_KIND
def test_iterating_goes_on_from_a_saved_state(options):
    sampler = BatchSampler(LABELS, 7, **options)
    list(itertools.islice(sampler, 5))
    state = sampler.state_dict()
    expected = list(itertools.islice(sampler, 3))
    other = BatchSampler(LABELS, 7, **options)
    other.load_state_dict(state)
    assert list(itertools.islice(other, 3)) == expected == drawn(sampler, 3, first=5)


@EVERY_KIND
def test_it_is_a_batch_sampler_for_a_data_loader(options):
    x = torch.arange(23.0)
    sampler = BatchSampler(LABELS, 7, **options)
    loader = DataLoader(TensorDataset(x, LABELS), batch_sampler=sampler)
    for k, (values, labels) in enumerate(itertools.islice(loader, 10)):
        rows = sampler.rows(k)
        assert torch.equal(values, x[rows])
        assert torch.equal(labels, LABELS[rows])


def test_a_seed_of_numpy_is_the_seed_it_equals():
    plain, other = BatchSampler(LABELS, 7, seed=3), BatchSampler(LABELS, 7, seed=np.int64(3))
    assert drawn(plain, 3) == drawn(other, 3)


# ---- With replacement --------------------------------------------------------------------------


def test_rows_are_drawn_independently_of_each_other():
    """As many coincidences within a batch as independent draws have."""
    n, size, batches = 50, 10, 2000
    sampler = BatchSampler(torch.zeros(n), size, replacement=True)
    rows = np.array(drawn(sampler, batches))
    pairs = sum((rows[:, i] == rows[:, j]).sum() for i in range(size) for j in range(i))
    expected = batches * size * (size - 1) / 2 / n
    assert abs(pairs - expected) < 5 * expected**0.5
    counts = np.bincount(rows.ravel(), minlength=n)
    chi_square = ((counts - rows.size / n) ** 2 / (rows.size / n)).sum()
    assert chi_square < n + 5 * (2 * n) ** 0.5


def test_long_runs_do_not_repeat_themselves():
    sampler = BatchSampler(torch.zeros(1000), 64, replacement=True)
    assert len({tuple(rows) for rows in drawn(sampler, 1000)}) == 1000


# ---- The share of positives --------------------------------------------------------------------


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(
    ("size", "share", "expected"),
    [(8, 0.5, 4), (7, 0.3, 2), (10, 0.25, 2), (128, 0.1, 13), (64, 0.001, 1), (64, 0.999, 63)],
)
def test_every_batch_has_the_exact_share(size, share, expected, replacement):
    sampler = BatchSampler(LABELS, size, positives=share, replacement=replacement)
    for rows in drawn(sampler, 20):
        assert LABELS[rows].sum() == expected
        assert LABELS[rows[:expected]].all()  # positives first
    assert sampler.prior == expected / size


def test_natural_batches_have_no_share_of_their_own():
    assert BatchSampler(LABELS, 7).prior is None


@pytest.mark.parametrize(("size", "share"), [(10, 0.25), (64, 0.01)])
def test_fit_gives_the_samplers_share_to_the_loss(size, share):
    x, y = binary()
    result = fit(linear(), (x, y), positives=share, batch_size=size, steps=2)
    assert result.loss.prior == BatchSampler(y, size, positives=share).prior


def test_fit_gives_the_datas_share_to_the_loss_if_batches_are_natural():
    x, y = binary(400, share=0.2575)
    assert fit(linear(), (x, y), steps=2).loss.prior == 103 / 400


def test_working_in_parts_leaves_the_share_as_it_is():
    x, y = binary()
    parts = fit(linear(), (x, y), accumulate=4, positives=0.1, batch_size=64, steps=2)
    assert parts.loss.prior == BatchSampler(y, 64, positives=0.1).prior


@pytest.mark.parametrize("replacement", [False, True])
def test_the_two_classes_are_drawn_independently(replacement):
    """With as many of each, the k-th positive does not always come with the k-th negative."""
    labels = torch.arange(200) < 100
    rows = BatchSampler(labels, 100, positives=0.5, replacement=replacement).rows(0)
    assert (rows[:50] == rows[50:] - 100).sum() < 10


# ---- Whole groups ------------------------------------------------------------------------------


@given(
    n=st.integers(2, 40),
    groups=st.integers(1, 8),
    size=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_the_rows_of_a_group_come_one_after_the_other(n, groups, size, seed):
    rng = np.random.default_rng(seed)
    group, labels = rng.integers(groups, size=n), rng.integers(2, size=n)
    group[:2], labels[:2] = 0, (0, 1)
    sampler = BatchSampler(labels, size, group=group, seed=seed)
    paired = [g for g in range(groups) if len(set(labels[group == g])) == 2]
    rows = np.flatnonzero(np.isin(group, paired))
    assert sampler.left_out == n - len(rows)
    stream = np.concatenate(drawn(sampler, 3 * n // size + 2))
    for part in rounds(stream, len(rows)):
        runs = [g for g, _ in itertools.groupby(group[part])]
        assert len(set(runs)) == len(runs)  # no group comes twice
        if len(part) == len(rows):
            assert set(part) == set(rows)


def test_groups_and_their_rows_are_in_random_order():
    group = np.repeat(np.arange(30), 6)
    sampler = BatchSampler(np.arange(180) % 2, 180, group=group)
    first, second = (np.array(rows) for rows in drawn(sampler, 2))
    for rows in (first, second):
        assert (np.diff(group[rows[::6]]) < 0).sum() > 5
        assert (np.diff(rows.reshape(30, 6)) < 0).sum() > 30
    assert (group[first] != group[second]).any()


def test_groups_of_one_class_are_left_out():
    sampler = BatchSampler([1, 0, 1, 1, 0], 3, group=["a", "a", "b", "b", "c"])
    assert sampler.left_out == 3
    assert set(itertools.chain(*drawn(sampler, 5))) == {0, 1}


def test_groups_of_several_classes_or_labels_have_pairs_if_any_has_two():
    group = [0, 0, 1, 1, 2, 2]
    assert BatchSampler([2, 2, 0, 1, 1, 1], 2, group=group).left_out == 4
    nan = float("nan")
    several = [[0, 1], [0, nan], [1, 1], [1, 0], [nan, nan], [1, nan]]
    assert BatchSampler(several, 2, group=group).left_out == 4


# ---- Labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        LABELS.float(),
        LABELS.numpy(),
        LABELS.tolist(),
        LABELS.to(torch.uint8),
        LABELS.numpy().astype("int8"),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}",
)
def test_labels_of_any_kind(labels):
    sampler = BatchSampler(labels, 7, positives=0.5)
    assert drawn(sampler, 5) == drawn(BatchSampler(LABELS, 7, positives=0.5), 5)


@pytest.mark.parametrize(
    ("argument", "labels", "options"),
    [
        ("labels", [], {}),
        ("labels", [0, 0, 0], {"positives": 0.5}),
        ("labels", [1, 1], {"positives": 0.5}),
        ("labels", [-1, 1], {"positives": 0.5}),
        ("target", [0, 1, 2], {"positives": 0.5}),
        ("labels", [[0], [1]], {"positives": 0.5}),
        ("batch_size", [0, 1], {"batch_size": 0}),
        ("batch_size", [0, 1], {"batch_size": 2.5}),
        ("batch_size", [0, 1], {"positives": 0.5, "batch_size": 1}),
        ("positives", [0, 1], {"positives": 0.0}),
        ("positives", [0, 1], {"positives": 1.0}),
        ("positives", [0, 1], {"positives": "half"}),
        ("positives", [0, 1], {"group": [0, 0], "positives": 0.5}),
        ("replacement", [0, 1], {"group": [0, 0], "replacement": True}),
        ("group", [0, 1], {"group": [0, 0, 0]}),
        ("group", [0, 1], {"group": [0, None]}),
        ("group", [0, 1], {"group": [0, 1]}),
    ],
)
def test_bad_arguments_are_named(argument, labels, options):
    assert_names(argument, BatchSampler, labels, **{"batch_size": 2, **options})
