"""A table from a file, with its target apart."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax.tables.columns import Columns, columns_of
from aucmax.tables.files import read_table

POSITIVE = ("1", "true", "yes", "y", "positive")
"""Labels that say by themselves that they are the positive one."""


class Labeled(NamedTuple):
    """Rows whose target is known.

    Attributes:
        table: all columns but the target.
        classes: each row's place among the labels.
        labels: as text; of two the negative first.
        notes: what a person should know of how they came about.
    """

    table: Columns
    classes: NDArray[np.int64]
    labels: list[str]
    notes: list[str]

    def select(self, rows: NDArray[np.int64]) -> Labeled:
        """Some of the rows, by their numbers."""
        return self._replace(table=self.table.select(rows), classes=self.classes[rows])


def read_labeled(
    path: str | Path,
    target: str,
    *,
    positive: str | None = None,
    drop: Sequence[str] = (),
    labels: Sequence[str] | None = None,
    text: Sequence[str] = (),
) -> Labeled:
    """Read a file and take its target apart.

    Args:
        path: CSV, Parquet or Arrow.
        target: the target's column.
        positive: the label of the positive class; None finds it.
        drop: columns to leave out.
        labels: those of a model, where it exists already; others are an error.
        text: columns of a CSV that are text for that model.
    """
    notes: list[str] = []
    table, words = without_target(
        columns_of(read_table(path, text=[target, *text])), target, drop, str(path)
    )
    there = np.flatnonzero(words != "")
    if len(there) < table.rows:
        notes.append(f"{table.rows - len(there):,} rows have no {target!r} and are left out")
        table, words = table.select(there), words[there]
    known = list(labels) if labels else choose_labels(words, target, positive, notes)
    return Labeled(table, label_numbers(words, known, target), known, notes)


def without_target(
    table: Columns, target: str, drop: Sequence[str], path: str
) -> tuple[Columns, NDArray[Any]]:
    """The other columns but for those to drop, and the target as words."""
    for option, name in (("target", target), *(("drop", name) for name in drop)):
        if name not in table.names:
            near = difflib.get_close_matches(name, table.names, n=1)
            known = [*near, *(other for other in table.names if other not in near)]
            some = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            raise ValueError(f"{option} must be a column of {path}, found {name!r}, not in {some}")
    if target in drop:
        raise ValueError(f"drop must leave the target, found {target!r}")
    names = [name for name in table.names if name != target and name not in drop]
    kept = Columns(names, [table.values[table.names.index(name)] for name in names], table.rows)
    return kept, as_words(table.values[table.names.index(target)])


def as_words(values: NDArray[Any]) -> NDArray[Any]:
    """Values as text: whole numbers without a point, missing ones empty."""
    if values.dtype == object:
        return np.array(["" if x is None else str(x) for x in values], dtype=object)

    def word(x: Any) -> str:
        if x is None or x != x:
            return ""
        return str(int(x)) if isinstance(x, float) and x.is_integer() else str(x)

    distinct, place = np.unique(values, return_inverse=True)
    words = np.array([word(x) for x in distinct.tolist()], dtype=object)
    return np.asarray(words[place.reshape(-1)])


def choose_labels(
    words: NDArray[Any], target: str, positive: str | None, notes: list[str]
) -> list[str]:
    """The distinct labels; of two the positive last. What was guessed is added to the notes."""
    distinct, counts = np.unique(words.astype(str), return_counts=True)
    some = ", ".join(map(repr, distinct[:10].tolist())) + (", ..." if len(distinct) > 10 else "")
    if len(distinct) < 2:
        raise ValueError(f"target must have two classes or more, found {some or 'none'} alone")
    if len(distinct) > 100:
        raise ValueError(f"target must have at most 100 classes, found {len(distinct)}: {some}")
    labels: list[str] = distinct.tolist()
    if len(labels) > 2:
        if positive is None:
            return labels
        raise ValueError(
            f"target must have two classes where positive is given, found {len(labels)}: {some}"
        )
    if positive is None:
        said = [label for label in labels if label.lower() in POSITIVE]
        positive = said[0] if len(said) == 1 else labels[int(np.argmin(counts))]
        notes.append(f"{positive!r} is taken as the positive label of {target!r}")
    elif positive not in labels:
        same = [label for label in labels if label.lower() == positive.lower()]
        if len(same) != 1:
            raise ValueError(f"positive must be one of {some}, found {positive!r}")
        positive = same[0]
    return [label for label in labels if label != positive] + [positive]


def label_numbers(words: NDArray[Any], labels: Sequence[str], target: str) -> NDArray[np.int64]:
    """Each word's place among the labels; a word that is none of them is an error."""
    place = {label: i for i, label in enumerate(labels)}
    try:
        return np.array([place[word] for word in words.tolist()], np.int64)
    except KeyError as error:
        some = ", ".join(map(repr, labels[:10]))
        raise ValueError(f"{target} must hold {some}, found {error.args[0]!r}") from None
