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
    commas = _named(rows.table, has_decimal_commas)
    keys = _named(rows.table, is_key)
    found = [_on_commas(commas, rows.table), _on_keys(keys)]
    return [*filter(None, [*found, _on_telling(rows, target, {*commas, *keys})])]


def _named(table: Columns, check: Callable[[Values], bool]) -> list[str]:
    return [name for name, values in zip(table.names, table.values, strict=True) if check(values)]


# ---- Decimal commas ------------------------------------------------------------------------------


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


def _on_commas(names: list[str], table: Columns) -> str:
    if not names:
        return ""
    values = table.values[table.names.index(names[0])]
    example = next(text.strip() for text in _texts(values) if WITH_COMMA.fullmatch(text))
    return (
        f"{_columns(names)} {_verb(names, 'holds', 'hold')} numbers with a decimal comma, such as "
        f"{example!r}, and {_verb(names, 'is', 'are')} taken as text: write them with a point"
    )


# ---- Keys ----------------------------------------------------------------------------------------


def is_key(values: Values) -> bool:
    """Whether all values differ, as texts or as whole numbers without large gaps."""
    if len(values) < LEAST_ROWS:
        return False
    if values.dtype == object:
        return not has_decimal_commas(values) and _all_differ(values)
    if values.dtype.kind != "f" or not _are_whole(values[:MOST_ROWS]):
        return False
    span = values.max() - values.min() + 1
    return bool(len(values) <= span <= 2 * len(values)) and _all_differ(values)


def _are_whole(values: Values) -> bool:
    return bool((values == np.floor(values)).all())


def _all_differ(values: Values) -> bool:
    """Some first, for most columns repeat there; none is missing."""
    for some in (values[:MOST_ROWS].tolist(), values.tolist()):
        if len(set(some)) < len(some) or None in some:
            return False
    return True


def _on_keys(names: list[str]) -> str:
    if not names:
        return ""
    return (
        f"{_columns(names)} {_verb(names, 'has', 'have')} another value in every row, as row "
        f"numbers and keys have: {_drop(names)} leaves {_verb(names, 'it', 'them')} out"
    )


# ---- Columns that tell the target ----------------------------------------------------------------


def _on_telling(rows: Labeled, target: str, known: set[str]) -> str:
    counts = np.bincount(rows.classes)
    if rows.table.rows < LEAST_ROWS or counts.min() < LEAST_OF_CLASS:
        return ""
    chosen = fair_sample(rows.classes, MOST_ROWS, np.random.default_rng(0))
    table, classes = rows.table.select(chosen), rows.classes[chosen]
    names = [x for x in _named(table, lambda values: tells(values, classes)) if x not in known]
    if not names:
        return ""
    return (
        f"{_columns(names)} alone {_verb(names, 'tells', 'tell')} {target!r} almost perfectly and "
        f"may be known only after the outcome: if so, {_drop(names)}"
    )


def tells(values: Values, classes: NDArray[np.int64]) -> bool:
    """Whether a column ranks every pair of classes almost perfectly, one way or the other."""
    if values.dtype == object:
        return _texts_tell(values, classes)
    scores = np.nan_to_num(values.astype(np.float64), nan=-1e300)  # the missing below all others
    parts = [scores[classes == k] for k in range(int(classes.max()) + 1)]
    return all(_apart(one, other) for one, other in combinations(parts, 2))


def _apart(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    truth = np.repeat([0, 1], (len(one), len(other)))
    auc = metrics.roc_auc(np.concatenate([one, other]), truth)
    return max(auc, 1 - auc) > TELLING


def _texts_tell(values: Values, classes: NDArray[np.int64]) -> bool:
    """Whether each class's share among a text's rows tells the class of other rows."""
    places: dict[object, int] = {}
    codes = np.array([places.setdefault(text, len(places)) for text in values.tolist()])
    half = np.random.default_rng(1).random(len(codes)) < 0.5
    for k in range(int(classes.max()) + 1):
        scores, truth = np.empty(len(codes)), classes == k
        for there in (half, ~half):
            scores[~there] = _shares(codes[there], truth[there], len(places))[codes[~there]]
        if metrics.roc_auc(scores, truth) <= TELLING:
            return False
    return True


def _shares(codes: NDArray[np.int64], hits: NDArray[np.bool_], count: int) -> NDArray[np.float64]:
    """The share of hits of each code; of one that is not there, that of all."""
    rows = np.bincount(codes, minlength=count)
    share: NDArray[np.float64] = np.bincount(codes, hits, count) / np.maximum(rows, 1)
    return np.where(rows > 0, share, hits.mean())


# ---- Words ---------------------------------------------------------------------------------------


def _columns(names: list[str]) -> str:
    some = ", ".join(map(repr, names[:MOST_NAMED]))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{_verb(names, 'column', 'columns')} {some}{more}"


def _verb(names: list[str], one: str, several: str) -> str:
    return one if len(names) == 1 else several


def _drop(names: list[str]) -> str:
    return f"--drop {shlex.join(names)}"
