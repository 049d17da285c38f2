"""Groups become numbers, whatever holds them, and what is missing is an error."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from errors import assert_names

from aucmax.data import count_classes, number_groups

NAMES = ["b", "a", "b", "c"]


@pytest.mark.parametrize(
    "values",
    [
        NAMES,
        tuple(NAMES),
        np.array(NAMES),
        np.array(NAMES, object),
        np.array(NAMES, "S1"),
        pd.Series(NAMES),
        pd.Series(NAMES, dtype="category"),
        pd.DataFrame({"site": NAMES}),
        [7, -3, 7, 9],
        np.array([7, -3, 7, 9]),
        np.array([7, 3, 7, 9], "uint8"),
        pd.Series([7, 3, 7, 9], dtype="Int64"),
        torch.tensor([7, -3, 7, 9], dtype=torch.int32),
        torch.tensor([[0.5], [-0.5], [0.5], [2.0]]),
        [datetime.date(2020, 1, day) for day in (2, 1, 2, 3)],
        np.array(["2020-01-02", "2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[D]"),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}",
)
def test_equal_values_have_equal_numbers_in_their_order(values):
    numbers = number_groups(values, rows=4)
    assert numbers.dtype == torch.int64
    assert numbers.tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor], ids=["list", "NumPy", "torch"])
def test_a_number_below_zero_is_a_group_like_any_other(kind):
    assert number_groups(kind([3, -1, 1 << 60, -1])).tolist() == [1, 0, 2, 0]


def test_values_of_several_kinds_are_numbered_as_they_come():
    assert number_groups([1, "1", (2, "x"), 1.0]).tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ([1, None, 2], 1),
        (["a", "", None], 2),
        (["a", float("nan"), "b"], 1),
        (np.array([1.0, np.nan, np.nan]), 2),
        (torch.tensor([1.0, float("nan")]), 1),
        (pd.Series([1, None, 3], dtype="Int64"), 1),
        (pd.Series(["a", None], dtype="category"), 1),
        (np.array(["2020-01-01", "NaT"], "datetime64[D]"), 1),
    ],
    ids=str,
)
def test_missing_values_are_counted(values, missing):
    with pytest.raises(ValueError, match=rf"site must .*found {missing} among {len(values)}:"):
        number_groups(values, "site")


@pytest.mark.parametrize("values", [[], np.zeros((2, 2)), 3, [1, 2, 3], [{"ward": 1}, {}]], ids=str)
def test_bad_groups_are_named(values):
    assert_names("group", number_groups, values, rows=2)


def test_classes_are_counted_or_weighed_by_group():
    group, labels = torch.tensor([0, 2, 2, 0, 2]), torch.tensor([True, True, False, False, True])
    positives, negatives = count_classes(group, labels)
    assert (positives.tolist(), negatives.tolist()) == ([1, 0, 2], [1, 0, 1])
    weight = torch.tensor([0.5, 2.0, 1.0, 0.25, 1.0])
    positives, negatives = count_classes(group, labels.float(), weight)
    assert (positives.tolist(), negatives.tolist()) == ([0.5, 0, 3], [0.25, 0, 1])


@pytest.mark.parametrize(
    ("argument", "group", "labels"),
    [("group", [0, 0, 1], [1, 1, 0]), ("labels", [0, 0], [1, 0, 0]), ("labels", [0, 0], [1, 2])],
)
def test_groups_without_a_pair_raise(argument, group, labels):
    assert_names(argument, count_classes, torch.tensor(group), torch.tensor(labels))
