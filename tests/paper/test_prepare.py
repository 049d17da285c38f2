"""Partition, thin, split, drop repeats: the counts, the shares, and rows that never change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aucmax.paper.prepare import binarize, distinct, halves, mislabel, random_halves, split, thin

CIFAR = np.arange(50_000) % 10  # as many of each class
SEEDS = st.integers(0, 2**32 - 1)


def labels(negatives, positives, seed=0):
    return np.random.default_rng(seed).permutation([0] * negatives + [1] * positives)


# ---- Classes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "expected"),
    [(2, [1]), (3, [1, 2]), (10, [5, 6, 7, 8, 9]), (100, [*range(50, 100)])],
)
def test_the_second_half_is_positive(classes, expected):
    assert halves(classes).tolist() == expected


@pytest.mark.parametrize(
    ("classes", "seed", "expected"),
    [
        (10, 0, [0, 3, 5, 6, 7]),
        (10, 1, [1, 3, 5, 7, 8]),
        (10, 2, [2, 3, 6, 8, 9]),
        (7, 2, [0, 2, 5, 6]),
    ],
)
def test_a_seed_has_its_own_half_for_ever(classes, seed, expected):
    assert random_halves(classes, seed).tolist() == expected


@given(classes=st.integers(2, 120), seed=SEEDS)
def test_a_random_half_is_a_half(classes, seed):
    found = random_halves(classes, seed)
    assert len(set(found.tolist())) == len(found) == len(halves(classes))
    assert set(found.tolist()) <= set(range(classes))
    assert found.tolist() == sorted(found.tolist())


def test_every_class_gets_its_turn():
    counts = np.bincount(np.concatenate([random_halves(10, seed) for seed in range(400)]))
    assert (abs(counts - 200) < 5 * 10).all()  # five deviations of 400 throws of a coin


def test_labels_of_any_kind_become_zero_and_one():
    assert binarize(["cat", "dog", "cat"], ["dog"]).tolist() == [0, 1, 0]
    found = binarize(np.array([9, 0, 5, 4], np.uint8), halves(10))
    assert found.tolist() == [1, 0, 1, 0]
    assert found.dtype == np.int64


# ---- Thin --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("removed", "kept"), [(0, 25_000), (0.6, 10_000), (0.8, 5_000), (0.9, 2_500), (0.95, 1_250)]
)
def test_the_papers_counts(removed, kept):
    y = binarize(CIFAR, halves(10))
    rows = thin(y, removed)
    assert np.bincount(y[rows]).tolist() == [kept, 25_000]


def test_a_seed_keeps_the_same_negatives_for_ever():
    y = binarize(CIFAR, halves(10))
    rows = thin(y, 0.9, seed=0)
    assert rows[y[rows] == 0][:6].tolist() == [33, 42, 61, 90, 93, 124]
    other = thin(y, 0.9, seed=7)
    assert other[y[other] == 0][:6].tolist() == [2, 14, 103, 120, 153, 174]


@given(
    negatives=st.integers(1, 60), positives=st.integers(0, 60), removed=st.floats(0, 0.99),
    seed=SEEDS,
)  # fmt: skip
def test_every_positive_stays_and_so_many_negatives(negatives, positives, removed, seed):
    y = labels(negatives, positives)
    wanted = round(negatives * (1 - removed))
    if wanted == 0:
        with pytest.raises(ValueError, match=f"found {removed} of {negatives}"):
            thin(y, removed, seed)
        return
    rows = thin(y, removed, seed).tolist()
    assert rows == sorted(set(rows))
    assert set(np.flatnonzero(y).tolist()) <= set(rows)
    assert (y[rows] == 0).sum() == wanted
    assert rows == thin(y, removed, seed).tolist()


def test_every_negative_is_as_likely_to_stay():
    y = labels(20, 5)
    counts = sum(np.isin(np.flatnonzero(y == 0), thin(y, 0.75, seed)) for seed in range(400))
    assert (abs(counts - 100) < 5 * (400 * 0.25 * 0.75) ** 0.5).all()


def test_other_seeds_keep_others():
    y = labels(1000, 10)
    assert not np.array_equal(thin(y, 0.5, seed=1), thin(y, 0.5, seed=2))


@pytest.mark.parametrize("kind", [bool, np.uint8, np.float32, list])
def test_thin_and_split_take_labels_of_any_kind(kind):
    y = labels(40, 20)
    same = y.tolist() if kind is list else y.astype(kind)
    assert thin(same, 0.5, 3).tolist() == thin(y, 0.5, 3).tolist()
    assert split(same, 12, 3)[1].tolist() == split(y, 12, 3)[1].tolist()


# ---- Split -------------------------------------------------------------------------------------


def test_a_seed_splits_the_same_rows_for_ever():
    y = binarize(CIFAR, halves(10))
    train, valid = split(y[thin(y, 0.9, seed=7)], 5_000, seed=0)
    assert (len(train), len(valid)) == (22_500, 5_000)
    assert valid[:8].tolist() == [5, 6, 9, 20, 24, 33, 38, 45]
    assert valid[-3:].tolist() == [27_494, 27_496, 27_499]


@given(
    negatives=st.integers(2, 80), positives=st.integers(2, 80), size=st.integers(1, 160), seed=SEEDS
)
def test_the_parts_share_no_row_and_leave_none_out(negatives, positives, size, seed):
    y = labels(negatives, positives)
    share = size * negatives / len(y)
    try:
        train, valid = split(y, size, seed)
    except ValueError as error:  # right when there is no way to give both sides of both classes
        counts = min(max(1, round(share)), size - 1)
        assert not (0 < counts < negatives and 0 < size - counts < positives)
        assert f"found {size} of {len(y)} rows" in str(error)  # noqa: PT017
        return
    assert len(valid) == size
    assert sorted([*train.tolist(), *valid.tolist()]) == list(range(len(y)))
    assert train.tolist() == sorted(train.tolist())
    assert valid.tolist() == sorted(valid.tolist())
    assert abs((y[valid] == 0).sum() - share) <= 1
    assert set(y[train]) == set(y[valid]) == {0, 1}
    assert split(y, size, seed)[1].tolist() == valid.tolist()


@pytest.mark.parametrize(("size", "negatives"), [(200, 20), (5, 1), (3, 1), (55, 6)])
def test_each_class_has_its_share_to_rounding(size, negatives):
    y = labels(100, 900)
    for seed in range(5):
        assert (y[split(y, size, seed)[1]] == 0).sum() == negatives


def test_below_one_a_size_is_a_share():
    y = np.repeat([0, 1], [2_500, 25_000])
    train, valid = split(y, 0.1, seed=3)
    assert valid.tolist() == split(y, 2_750, seed=3)[1].tolist()
    assert ((y[train] == 0).sum(), (y[valid] == 0).sum()) == (2_250, 250)


def test_other_seeds_split_otherwise():
    y = labels(100, 900)
    assert split(y, 100, seed=1)[1].tolist() != split(y, 100, seed=2)[1].tolist()


def test_every_row_is_as_likely_to_be_validated():
    y = labels(12, 36)
    counts = sum(np.isin(np.arange(48), split(y, 12, seed)[1]) for seed in range(400))
    assert (abs(counts - 100) < 5 * (400 * 0.25 * 0.75) ** 0.5).all()


# ---- Repeats -----------------------------------------------------------------------------------


def distinct_plainly(x_train, x_test):
    """Row by row, with a set of the bytes that were seen."""
    seen, kept = set(), {"test": [], "train": []}
    for name, x in (("test", x_test), ("train", x_train)):
        for number, row in enumerate(x):
            if row.tobytes() not in seen:
                seen.add(row.tobytes())
                kept[name].append(number)
    return kept["train"], kept["test"]


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2, 1)])
@given(data=st.data())
def test_distinct_is_what_a_set_of_bytes_says(dtype, shape, data):
    """Few values, so that rows repeat within each part and across; -0.0 is not 0.0."""
    rng = np.random.default_rng(data.draw(SEEDS))
    n_train, n_test = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))
    x_train, x_test = (rng.integers(0, 3, (n, *shape)).astype(dtype) for n in (n_train, n_test))
    if dtype.startswith("float"):
        x_train, x_test = (
            x * rng.choice([1, -1], x.shape).astype(dtype) for x in (x_train, x_test)
        )
    train, test = distinct(x_train, x_test)
    assert (train.tolist(), test.tolist()) == distinct_plainly(x_train, x_test)


def test_repeats_within_each_part_and_across():
    x = np.arange(40, dtype=np.uint8).reshape(10, 4)
    train, test = distinct(x[[0, 1, 0, 2, 3, 3]], x[[4, 2, 4, 5]])
    assert train.tolist() == [0, 1, 4]  # row 3 is tested
    assert test.tolist() == [0, 1, 3]


def test_one_different_bit_makes_a_row_another():
    x = np.zeros((1, 32, 32, 3), np.uint8)
    other = x.copy()
    other[0, 31, 31, 2] = 1
    assert [len(part) for part in distinct(x, other)] == [1, 1]


def test_the_order_in_memory_does_not_matter():
    x = np.random.default_rng(0).integers(0, 2, (50, 2, 3)).astype(np.uint8)
    train, test = distinct(np.asfortranarray(x), x[::-1][:20])
    assert (train.tolist(), test.tolist()) == distinct_plainly(x, x[::-1][:20])


# ---- What is wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: halves(1), "classes must be an integer >= 2, found 1"),
        (lambda: halves(2.0), r"classes must be an integer >= 2, found 2\.0"),
        (lambda: random_halves(True), "classes must be an integer >= 2, found True"),
        (lambda: random_halves(10, -1), "seed must be an integer >= 0, found -1"),
        (lambda: random_halves(10, 1.5), r"seed must be an integer >= 0, found 1\.5"),
        (lambda: binarize([0, 1], [0, 1]), r"positive must be .*found \[0, 1\] for"),
        (lambda: binarize([0, 1], [7]), r"positive must be .*found \[7\] for labels \[0, 1\]"),
        (lambda: binarize([], [7]), r"positive must be .*found \[7\] for labels \[\]"),
        (lambda: thin([0, 1], 1.0), r"removed must be .*up to but not 1, found 1\.0"),
        (lambda: thin([0, 1], -0.1), r"removed must be .*from 0 .*, found -0\.1"),
        (lambda: thin([0, 1], "most"), "removed must be .*, found 'most'"),
        (lambda: thin([0, 1], float("nan")), "removed must be .*, found nan"),
        (lambda: thin([0, 0, 1], 0.9), r"removed must leave a negative, found 0\.9 of 2"),
        (lambda: thin([0, 1, 2], 0.5), "0 and 1 only, found 0, 1, 2"),
        (lambda: thin([-1, 1], 0.5), "0 and 1 only, found -1, 1"),
        (lambda: split([0, 1] * 4, 0), "size must be an integer >= 1, found 0"),
        (lambda: split([0, 1] * 4, 2.5), r"size must be an integer >= 1, found 2\.5"),
        (lambda: split([0, 1] * 4, 1), "both classes on both sides, found 1 of 8 rows"),
        (lambda: split([0, 1] * 4, 8), "both classes on both sides, found 8 of 8 rows"),
        (lambda: split([0, 1, 1, 1, 1], 2), "found 2 of 5 rows with 1 of label 0"),
        (lambda: split([0, 0, 0], 2), "found 2 of 3 rows with 0 of label 1"),
        (lambda: split([0, 1, 2], 2), "0 and 1 only, found 0, 1, 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("y", [[], [[0, 1], [1, 0]], 1], ids=["none", "a table", "a number"])
@pytest.mark.parametrize("function", [lambda y: thin(y, 0.5), lambda y: split(y, 2)])
def test_labels_are_a_list_that_is_not_empty(function, y):
    shape = str(np.shape(y)).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ValueError, match=f"labels.*found .*{shape}"):
        function(y)


@pytest.mark.parametrize(
    "x_test",
    [np.zeros((2, 3), np.uint8), np.zeros((2, 2, 1), np.uint8), np.zeros((2, 2), np.int8)],
    ids=["wider", "another shape", "another dtype"],
)
def test_parts_that_are_not_alike_are_not_compared(x_test):
    with pytest.raises(ValueError, match="x_train and x_test must have"):
        distinct(np.zeros((3, 2), np.uint8), x_test)


def test_an_empty_part_has_nothing_to_drop():
    x = np.array([[1, 2], [1, 2]], np.uint8)
    assert [part.tolist() for part in distinct(x[:0], x)] == [[], [0]]
    assert [part.tolist() for part in distinct(x, x[:0])] == [[0], []]


@pytest.mark.parametrize("wrong", [(0.2, 0.06), (0, 0), (0.5, 0)])
def test_wrong_labels_are_as_many_as_asked_for_on_either_side_of_a_split(wrong):
    y = np.array([0] * 400 + [1] * 2000)
    found = mislabel(y, wrong, seed=3)
    assert [(found[y == value] != value).mean() for value in (0, 1)] == [*wrong]
    train, valid = split(y, size=600, seed=3)
    for rows in (train, valid):
        shares = [(found[rows] != y[rows])[y[rows] == value].mean() for value in (0, 1)]
        assert shares == pytest.approx([*wrong], abs=0.1)
