"""What scikit-learn's users pass, checked as scikit-learn does, as columns and class numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

from aucmax.tables._values import are_missing, check_times, plain
from aucmax.tables.columns import Columns, columns_of, understood


def is_frame(x: Any) -> bool:
    """Whether it is a table with named columns: pandas, polars, Arrow."""
    return hasattr(x, "columns") or hasattr(x, "column_names")


def checked_columns(estimator: Any, x: Any, *, reset: bool) -> Columns:
    """The table's columns, their number and names set or compared with those of fit."""
    if isinstance(x, Columns):  # the encoder matches their names
        if reset:
            estimator.n_features_in_ = len(x.names)
            estimator.feature_names_in_ = np.array(x.names, dtype=object)
        return x
    if is_frame(x):
        table = columns_of(x)  # first, for it says in our words what is wrong with a table
        validate_data(estimator, x, skip_check_array=True, reset=reset)
        if not hasattr(estimator, "feature_names_in_"):  # fitted without names: by position
            table = table._replace(named=False)
    else:
        first = x[0] if isinstance(x, list) and x else None
        if isinstance(first, (list, tuple)) and any(isinstance(cell, str) for cell in first):
            x = np.array(x, dtype=object)  # as text, numbers would be no numbers any more
        allowed = {"accept_sparse": "csc", "dtype": None, "ensure_all_finite": "allow-nan"}
        table = columns_of(validate_data(estimator, x, reset=reset, **allowed))
    if not table.rows:
        raise ValueError("X must have rows, found 0 sample(s)")
    return table


def class_numbers(y: Any, rows: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The distinct labels, sorted, and each row's place among them."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    labels = _labels(y, rows)
    check_classification_targets(labels)
    classes, numbers = np.unique(labels, return_inverse=True)
    if not len(classes):
        raise ValueError("y must have rows, found none")
    if len(classes) < 2:
        raise ValueError(f"y must have at least two classes, found one class: {classes[0]!r}")
    return classes, numbers.reshape(-1).astype(np.int64)


def numbers_of(y: Any, classes: NDArray[Any], rows: int) -> NDArray[np.int64]:
    """Each row's place among classes that are known."""
    labels = _labels(y, rows)
    order = np.argsort(classes)
    places = order[np.searchsorted(classes, labels, sorter=order).clip(max=len(classes) - 1)]
    unknown = np.flatnonzero(classes[places] != labels)
    if len(unknown):
        raise ValueError(
            f"y must hold the classes {classes.tolist()}, found {labels[unknown[0]]!r} in row "
            f"{unknown[0]}"
        )
    return np.asarray(places, np.int64)


def _labels(y: Any, rows: int) -> NDArray[Any]:
    labels: NDArray[Any] = column_or_1d(np.asarray(y) if is_frame(y) else y, warn=True)
    if len(labels) != rows:
        raise ValueError(f"y must have as many rows as X, {rows}, found {len(labels)}")
    gone = are_missing(labels.tolist()) if labels.dtype == object else labels != labels
    if missing := np.flatnonzero(gone).tolist():
        raise ValueError(
            f"y must have a label in every row, found {len(missing):,} missing, the first in row "
            f"{missing[0]}"
        )
    return labels


def row_weights(weight: Any, table: Columns) -> NDArray[np.float32] | None:
    """The rows' weights, none of them negative; None if all are alike."""
    if weight is None:
        return None
    rows = np.empty((table.rows, 1))
    weights = _check_sample_weight(weight, rows, dtype=np.float64, ensure_non_negative=True)
    _, power = np.frexp(weights.max())
    if abs(power) > 60:  # beyond single precision they would vanish; their scale means nothing
        weights = np.ldexp(weights, -power)
    return np.asarray(weights, np.float32)


def check_every_class(
    must: str, numbers: NDArray[np.int64], weight: NDArray[Any] | None, labels: NDArray[Any]
) -> None:
    """Raise unless every class has rows that weigh something; ``must`` begins the message."""
    counted = numbers if weight is None else numbers[weight > 0]
    counts = np.bincount(counted, minlength=len(labels))
    if not counts.all():
        absent = labels[int(counts.argmin())]
        raise ValueError(f"{must} rows of every class, found none of {absent!r}")


def row_times(time: Any, rows: int) -> NDArray[Any] | None:
    """When each row was, as numbers or dates, none of them missing; None if that is not given."""
    if time is None:
        return None
    values = np.asarray(time)
    if values.shape != (rows,):
        raise ValueError(f"time must have a value for each of {rows} rows, found {values.shape}")
    table, _ = understood(Columns(["time"], [plain("time", values)], rows))
    check_times("time", table.values[0], np.arange(rows))
    return table.values[0]


def parts_of_eval_set(eval_set: Any) -> tuple[Any, Any, Any, Any]:
    """Table, labels, weights and groups of rows to stop by, the last two perhaps None."""
    sets = eval_set if isinstance(eval_set, list) else [eval_set]  # in a list as LightGBM has it
    if len(sets) != 1 or not isinstance(sets[0], tuple) or not 2 <= len(sets[0]) <= 4:
        each = (f"tuple of {len(x)}" if isinstance(x, tuple) else type(x).__name__ for x in sets)
        raise ValueError(
            f"eval_set must be one tuple (X, y), (X, y, weight) or (X, y, weight, groups), found "
            f"{', '.join(each) or 'an empty list'}"
        )
    return (*sets[0], None, None)[:4]
