"""Labels: tensors of any container, tasks, checks, counts per class and group."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from errors import assert_names
from torch.utils.data import TensorDataset

from aucmax.data import count_classes, number_groups
from aucmax.data.labels import (
    as_tensor,
    check_labels,
    find_task,
    has_pairs,
    known_labels,
    shares,
    warn_of_single_rows,
)

NAMES, NAN = ["b", "a", "b", "c"], float("nan")


# ---- Labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (torch.tensor([0, 1]), "binary"),
        (torch.tensor([0.0, 2.0]), "binary"),
        (torch.tensor([True, False]), "binary"),
        (torch.tensor([0, 1, 2]), "multiclass"),
        (torch.tensor([[0, 1], [1, 0]]), "multilabel"),
        (None, "binary"),
    ],
)
def test_the_task_follows_from_the_labels(labels, task):
    assert find_task("auto", labels) == task
    assert find_task("multilabel", labels) == "multilabel"
    assert_names("task", find_task, "regression", labels)


def test_known_labels_are_found_without_reading_the_data():
    x, y = torch.zeros(3, 2), torch.tensor([0, 1, 1])
    for data in ((x, y), (x, y[:, None]), (x, y.tolist()), TensorDataset(x, y)):
        assert torch.equal(known_labels(data), y)
    assert known_labels([(x, y)]) is None
    assert torch.equal(known_labels([(x, y)], y.numpy()), y)


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (torch.tensor([0, 1, 1]), "binary"),
        (torch.tensor([0, 1, 1]).bfloat16(), "binary"),
        (torch.tensor([True, False]), "binary"),
        (torch.tensor([0, 2, 1]), "multiclass"),
        (torch.tensor([0, 1, 1]), "multiclass"),
        (torch.tensor([[0, 1], [1, NAN], [NAN, 0]]), "multilabel"),
    ],
)
def test_good_labels_pass(labels, task):
    check_labels("train", labels, task)


@pytest.mark.parametrize(
    ("labels", "task", "message"),
    [
        (torch.tensor([]), "binary", "train must have rows, found none"),
        (torch.zeros(2, 2), "binary", r"binary targets must have shape \(N,\), found \(2, 2\)"),
        (torch.zeros(3), "binary", "train must hold both classes, found 0 positives and 3 neg"),
        (torch.tensor([0, 1, 2]), "binary", "train: .* 0 and 1 only, found 0, 1, 2"),
        (torch.tensor([-1, 1]), "binary", r"turn labels -1/\+1 into 0/1"),
        (torch.tensor([0, NAN]), "binary", "train: .* 0 and 1 only"),
        (torch.tensor([0.0, 1.0]), "multiclass", "must be integers of shape"),
        (torch.tensor([-1, 1]), "multiclass", "must be 0 or more, found -1"),
        (torch.tensor([0, 0]), "multiclass", r"every class from 0 on.* counts \[2\]"),
        (torch.tensor([0, 2]), "multiclass", r"every class from 0 on.* counts \[1, 0, 1\]"),
        (torch.tensor([0, 1]), "multilabel", r"must have shape \(N, L\), found \(2,\)"),
        (torch.tensor([[0, 1], [1, 1]]), "multilabel", "label 1 of train must hold both classes"),
        (torch.tensor([[0, 1], [1, 3]]), "multilabel", "label 1 of train: .* found 1, 3"),
    ],
)
def test_bad_labels_raise(labels, task, message):
    with pytest.raises(ValueError, match=message):
        check_labels("train", labels, task)


def test_evaluation_labels_need_not_hold_every_class():
    check_labels("valid", torch.zeros(3), "binary", complete=False)
    check_labels("valid", torch.tensor([0, 2]), "multiclass", complete=False)
    with pytest.raises(ValueError, match=r"valid: .* 0 and 1 only"):
        check_labels("valid", torch.tensor([0, 2]), "binary", complete=False)


def test_a_class_of_one_row_is_warned_of():
    with pytest.warns(UserWarning, match="valid has one row of class 1 among 3"):
        warn_of_single_rows("valid", torch.tensor([0, 1, 0]), "binary")
    warn_of_single_rows("valid", torch.tensor([0, 1, 0, 1]), "binary")


def test_shares_count_rows_or_their_weights():
    y, w = torch.tensor([0, 1, 1, 0, 0]), torch.tensor([1.0, 2.0, 0.0, 1.0, 4.0])
    assert shares(y, None, "binary") == 0.4
    assert shares(y, w, "binary") == 0.25
    assert shares(torch.tensor([0, 1, 2, 2, 2]), w, "multiclass") == [0.125, 0.25, 0.625]
    table = torch.tensor([[0, 1], [1, NAN], [1, 0], [0, 0], [0, 1]])
    assert shares(table, None, "multilabel") == [0.4, 0.5]
    assert shares(table, w, "multilabel") == [0.25, 5 / 6]


def test_what_is_no_number_raises():
    with pytest.raises(ValueError, match="labels must hold numbers, found dtype <U1"):
        as_tensor("labels", ["a", "b"])


# ---- Groups ------------------------------------------------------------------------------------


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
def test_groups_are_numbered_in_the_order_of_their_values(values):
    numbers = number_groups(values, rows=4)
    assert numbers.dtype == torch.int64
    assert numbers.tolist() == [1, 0, 1, 2]


def test_values_without_an_order_are_numbered_as_they_come():
    assert number_groups([1, "1", (2, "x"), 1.0]).tolist() == [0, 1, 2, 0]
    assert number_groups([3, -1, 1 << 60, -1]).tolist() == [1, 0, 2, 0]


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ([1, None, 2], 1),
        (["a", "", None], 2),
        (["a", NAN, "b"], 1),
        (np.array([1.0, np.nan, np.nan]), 2),
        (torch.tensor([1.0, NAN]), 1),
        (pd.Series([1, None, 3], dtype="Int64"), 1),
        (pd.Series(["a", None], dtype="category"), 1),
        (np.array(["2020-01-01", "NaT"], "datetime64[D]"), 1),
    ],
    ids=str,
)
def test_missing_groups_are_counted(values, missing):
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


def test_groups_and_labels_to_count_are_tensors():
    with pytest.raises(ValueError, match="group must be a tensor, found list: number_groups"):
        count_classes(["a", "b"], torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"labels must be a tensor, found ndarray$"):
        count_classes(torch.tensor([0, 0]), np.array([0, 1]))


def test_a_group_has_pairs_if_two_of_its_rows_differ_in_a_label():
    group = np.array([0, 1, 0, 1, 3])
    assert has_pairs(group, np.array([2, 1, 0, 1, 0])).tolist() == [True, False, False, False]
    several = np.array([[0, 1], [1, 1], [0, NAN], [1, 0], [NAN, NAN]])
    assert has_pairs(group, several).tolist() == [False, True, False, False]
