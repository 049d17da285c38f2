"""What is odd about a table, for people whose files are messy: said, never acted upon."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.tables.columns import Columns
from aucmax.tables.labeled import Labeled
from aucmax.tables.split import fair_sample

MOST_ROWS = 20_000
"""Rows that are looked at."""
LEAST_ROWS, LEAST_OF_CLASS = 100, 10
"""Of smaller tables nothing is said: there a column may look odd by chance."""
MOSTLY = 0.8
"""The share of a column's texts that must be numbers with commas."""
TELLING = 0.995
"""An AUC from which on a column is suspected to be known after the outcome only."""
MOST_NAMED = 10

Values = NDArray[Any]
WITH_COMMA = re.compile(r"\s*[-+]?(\d+|\d{1,3}([. ]\d{3})+),\d+\s*")
THOUSANDS = re.compile(r"\s*[-+]?\d{1,3}(,\d{3})+\s*")


def hints(rows: Labeled, target: str) -> list[str]:
    """Notes on columns that a person should look at.

    Args:
        rows: all rows, in the file's order.
        target: the name of the target.
    """
    notes = []
    if commas := _columns_where(has_decimal_commas, rows.table):
        values = rows.table.values[rows.table.names.index(commas[0])]
        example = next(text.strip() for text in _texts(values) if WITH_COMMA.fullmatch(text))
        notes.append(
            f"{_listed(commas)} {_verb(commas, 'holds', 'hold')} numbers with a decimal comma, "
            f"such as {example!r}, and {_verb(commas, 'is', 'are')} taken as text: write them with "
            f"a point"
        )
    if keys := _columns_where(is_key, rows.table):
        notes.append(
            f"{_listed(keys)} {_verb(keys, 'has', 'have')} another value in every row, as row "
            f"numbers and keys have: --drop {shlex.join(keys)} leaves {_verb(keys, 'it', 'them')} "
            f"out"
        )
    telling = []
    if rows.table.rows >= LEAST_ROWS and np.bincount(rows.classes).min() >= LEAST_OF_CLASS:
        sample = rows.select(fair_sample(rows.classes, MOST_ROWS, np.random.default_rng(0)))
        telling = _columns_where(lambda values: tells(values, sample.classes), sample.table)
    if telling := [name for name in telling if name not in {*commas, *keys}]:
        notes.append(
            f"{_listed(telling)} alone {_verb(telling, 'tells', 'tell')} {target!r} almost "
            f"perfectly and may be known only after the outcome: if so, --drop "
            f"{shlex.join(telling)}"
        )
    return notes


def _columns_where(check: Callable[[Values], bool], table: Columns) -> list[str]:
    return [name for name, values in zip(table.names, table.values, strict=True) if check(values)]


def _listed(names: list[str]) -> str:
    some = ", ".join(map(repr, names[:MOST_NAMED]))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{_verb(names, 'column', 'columns')} {some}{more}"


def _verb(names: list[str], one: str, several: str) -> str:
    return one if len(names) == 1 else several


def has_decimal_commas(values: Values) -> bool:
    """Whether a column is text because its numbers have a comma where a point is read."""
    texts = _texts(values)
    numbers = [text for text in texts if WITH_COMMA.fullmatch(text)]
    if not numbers or len(numbers) < MOSTLY * len(texts):
        return False
    return not all(map(THOUSANDS.fullmatch, numbers))


def _texts(values: Values) -> list[str]:
    if values.dtype != object:
        return []
    return [text for text in values[:MOST_ROWS].tolist() if isinstance(text, str) and text.strip()]


def is_key(values: Values) -> bool:
    """Whether all values differ, as texts or as whole numbers without large gaps."""
    if len(values) < LEAST_ROWS:
        return False
    if values.dtype == object:
        return not has_decimal_commas(values) and _all_differ(values)
    some = values[:MOST_ROWS]
    if values.dtype.kind != "f" or not (some == np.floor(some)).all():
        return False
    span = values.max() - values.min() + 1
    return bool(len(values) <= span <= 2 * len(values)) and _all_differ(values)


def _all_differ(values: Values) -> bool:
    """Some first, for most columns repeat there; none is missing."""
    for some in (values[:MOST_ROWS].tolist(), values.tolist()):
        if len(set(some)) < len(some) or None in some:
            return False
    return True


def tells(values: Values, classes: NDArray[np.int64]) -> bool:
    """Whether a column ranks every pair of classes almost perfectly, one way or the other."""
    if values.dtype == object:
        return _texts_tell(values, classes)
    scores = np.nan_to_num(values.astype(np.float64), nan=-1e300)  # the missing below all others
    for one, other in combinations(range(int(classes.max()) + 1), 2):
        rows = (classes == one) | (classes == other)
        auc = metrics.roc_auc(scores[rows], classes[rows] == other)
        if max(auc, 1 - auc) <= TELLING:
            return False
    return True


def _texts_tell(values: Values, classes: NDArray[np.int64]) -> bool:
    """Whether each class's share among a text's rows tells the class of other rows."""
    places: dict[object, int] = {}
    codes = np.array([places.setdefault(text, len(places)) for text in values.tolist()])
    half = np.random.default_rng(1).random(len(codes)) < 0.5
    for k in range(int(classes.max()) + 1):
        scores, truth = np.empty(len(codes)), classes == k
        for there in (half, ~half):
            rows = np.bincount(codes[there], minlength=len(places))
            hits = np.bincount(codes[there], truth[there], len(places))
            # Of a text that is not there, the share of all.
            shares = np.where(rows > 0, hits / np.maximum(rows, 1), truth[there].mean())
            scores[~there] = shares[codes[~there]]
        if metrics.roc_auc(scores, truth) <= TELLING:
            return False
    return True
