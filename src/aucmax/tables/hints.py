"""What is odd about a table, for people whose files are messy: said, never acted upon."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.data.labels import has_pairs
from aucmax.tables.columns import Columns
from aucmax.tables.formats import CURRENCY, is_date, is_number, spelling_key
from aucmax.tables.labeled import Labeled
from aucmax.tables.samples import fair_sample

MOST_ROWS = 20_000
"""Rows that are looked at."""
LEAST_ROWS, LEAST_OF_CLASS = 100, 10
"""Of smaller tables nothing is said: there a column may look odd by chance."""
MOSTLY = 0.5
"""The share of a category's values that are numbers, or differ, from which on it looks odd."""
TELLING = 0.995
"""An AUC from which on a column is suspected to be known after the outcome only."""
MANY_DIGITS = 1e9
"""Whole numbers from here on are no counts: phone numbers, accounts."""
LEAST_REPEATS = 5
"""Of a category that has a code of its own."""
MOST_NAMED = 10

Values = NDArray[Any]
MEASURE = re.compile(rf"\s*[<>~]?\s*[-+]?(?:{CURRENCY}\s?)?\d[\d.,]*\s?(?:\D|$)")


def one_label_groups(
    group: NDArray[np.int64], classes: NDArray[np.int64], option: str = ""
) -> str | None:
    """Warn if most groups have rows of one label only, within which no rows are compared.

    Args:
        group: the number of each row's group.
        classes: each row's class.
        option: the name of the argument without which all pairs would be compared, if there is one.
    """
    _, group = np.unique(group, return_inverse=True)
    compared = has_pairs(group, classes)
    count, lone = len(compared), int((~compared).sum())
    if 2 * lone <= count:
        return None
    rows = int((~compared)[group].sum())
    return (
        f"only pairs within a group are compared, and {lone:,} of {count:,} groups hold rows of "
        f"one label only: {rows:,} of {len(group):,} rows are compared with no other"
        + (f"; without {option} all pairs are, but splits may cut groups" if option else "")
    )


def hints(rows: Labeled, target: str) -> list[str]:
    """Notes on columns that a person should look at.

    Args:
        rows: all rows, in the file's order.
        target: the name of the target.
    """
    notes = []
    for name, values in zip(rows.table.names, rows.table.values, strict=True):
        notes += _about_categories(name, values)
        notes += _about_spellings(name, values)
    if keys := _columns_where(is_key, rows.table):
        notes.append(
            f"{_listed(keys)} {_verb(keys, 'has', 'have')} another value in every row, as row "
            f"numbers and keys have: --drop {shlex.join(keys)} leaves {_verb(keys, 'it', 'them')} "
            f"out" + (f", --id {shlex.join(keys)} carries it into predictions" * (len(keys) == 1))
        )
    telling = []
    if rows.table.rows >= LEAST_ROWS and np.bincount(rows.classes).min() >= LEAST_OF_CLASS:
        sample = rows.select(fair_sample(rows.classes, MOST_ROWS, np.random.default_rng(0)))
        telling = _columns_where(lambda values: tells(values, sample.classes), sample.table)
    if telling := [name for name in telling if name not in keys]:
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


def _about_categories(name: str, values: Values) -> list[str]:
    """Of a text: whether most of its values are numbers or dates, or most differ."""
    if values.dtype != object or len(values) < LEAST_ROWS:
        return []
    counts = Counter(text for text in values[:MOST_ROWS].tolist() if text is not None)
    repeated = any(count >= LEAST_REPEATS for count in counts.values())
    # The encoder leaves out what has rare categories alone, with no missing value beside them.
    taken = "is taken as a category" if repeated or None in values else "is not used"
    numbers = sum(count for text, count in counts.items() if is_number(text.strip()))
    if numbers > MOSTLY * counts.total():
        others = [repr(text) for text, _ in counts.most_common() if not is_number(text.strip())]
        return [
            f"column {name!r} {taken}, though {numbers / counts.total():.0%} of its values are "
            f"numbers: the others are {', '.join(others[:5])}{', ...' if len(others) > 5 else ''}; "
            f"--na-values says which stand for missing ones"
        ]
    dates = [text for text, _ in counts.most_common() if is_date(text.strip())]
    if sum(counts[text] for text in dates) > MOSTLY * counts.total():
        return [
            f"column {name!r} {taken}, though most of its values are dates, such as "
            f"{' and '.join(map(repr, dates[:2]))}: no one order of day and month reads them all"
        ]
    measured = [text for text, _ in counts.most_common() if MEASURE.match(text)]
    if sum(counts[text] for text in measured) > MOSTLY * counts.total():
        return [
            f"column {name!r} {taken}, though most of its values begin with a number or a "
            f"currency, such as {' and '.join(map(repr, measured[:2]))}: write the numbers alone"
        ]
    words = sum(" " in text.strip() for text in counts) > MOSTLY * len(counts)
    if len(counts) > MOSTLY * counts.total() and taken != "is not used" and (repeated or words):
        text = "; it looks like free text, whose words are not read: make columns of what they say"
        return [
            f"column {name!r} is taken as a category and has {len(counts):,} different values in "
            f"{counts.total():,} rows: those in few rows count as one{text if words else ''}"
        ]
    return []


def _about_spellings(name: str, values: Values) -> list[str]:
    """Of a text: categories that differ in case or blanks alone."""
    if values.dtype != object:
        return []
    spellings: dict[str, set[str]] = {}
    for text in {text for text in values[:MOST_ROWS].tolist() if text is not None}:
        spellings.setdefault(spelling_key(text), set()).add(text)
    alike = sorted(sorted(group) for group in spellings.values() if len(group) > 1)
    if not alike:
        return []
    more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
    return [
        f"column {name!r} has categories that differ in case or blanks alone, and are kept apart: "
        f"{', '.join(map(repr, alike[0][:5]))}{more}"
    ]


def is_key(values: Values) -> bool:
    """Whether they are whole numbers that all differ, without large gaps or of many digits.

    Texts that all differ are not used, and :class:`TableEncoder` says so.
    """
    if len(values) < LEAST_ROWS:
        return False
    some = values[:MOST_ROWS]
    if values.dtype.kind != "f" or not (some == np.floor(some)).all():
        return False
    span = values.max() - values.min() + 1
    dense = len(values) <= span <= 2 * len(values)
    return bool(dense or values.min() >= MANY_DIGITS) and _all_differ(values)


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
