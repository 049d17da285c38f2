"""A table from a file, with its target apart."""

from __future__ import annotations

import difflib
import math
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aucmax.data import number_groups
from aucmax.tables._values import check_times
from aucmax.tables.columns import Columns, columns_of
from aucmax.tables.files import read
from aucmax.tables.formats import MISSING, Format
from aucmax.tables.read_options import ReadOptions
from aucmax.tables.several import Paths, listed

POSITIVE = ("1", "true", "yes", "y", "positive")
"""Labels that say by themselves that they are the positive one."""

NO_LABEL = (
    "", "nan", "-nan", "<na>", "#n/a", "#na", "na", "n/a", "null", "?", "??", "--", "\u2014",
    "\u2013", ".", "-",
)  # fmt: skip
"""What stands for a missing label, in lower case, the surest first: "-" may be the other of "+",
and "none" is one: of none, mild and severe."""

WHOLE_AND_FRACTION = re.compile(r"\+?(-?(?:0|[1-9]\d*))(?:\.(\d*?)0*)?")
MOST_SHOWN = 10


class Labeled(NamedTuple):
    """Rows whose target is known.

    Attributes:
        table: all columns but the target.
        classes: each row's place among the labels.
        labels: as text; of two the negative first.
        notes: what a person should know of how they came about.
        weight: of each row; None if they count alike.
        group: the number of each row's group; None if they have none.
        time: when each row was, in numbers or dates; None if that is not known.
        places: of the rows in the file, from 0 on; None if unknown.
        names: what the column that names rows holds, in every place; None if there is none.
        warnings: why results may mislead.
    """

    table: Columns
    classes: NDArray[np.int64]
    labels: list[str]
    notes: list[str]
    weight: NDArray[np.float64] | None = None
    group: NDArray[np.int64] | None = None
    time: NDArray[Any] | None = None
    places: NDArray[np.int64] | None = None
    names: pa.ChunkedArray | None = None
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> list[int]:
        """How many rows have each label."""
        counted: list[int] = np.bincount(self.classes, minlength=len(self.labels)).tolist()
        return counted

    def select(self, rows: NDArray[np.int64]) -> Labeled:
        """Some of the rows, by their numbers."""
        weight = None if self.weight is None else self.weight[rows]
        group = None if self.group is None else self.group[rows]
        time = None if self.time is None else self.time[rows]
        places = None if self.places is None else self.places[rows]
        own = self._replace(weight=weight, group=group, time=time, places=places)
        return own._replace(table=self.table.select(rows), classes=self.classes[rows])


def read_labeled(
    data: Paths,
    target: str,
    *,
    positive: str | None = None,
    drop: Sequence[str] = (),
    weight: str | None = None,
    group: str | None = None,
    time: str | None = None,
    id_column: str | None = None,
    exact_labels: bool = False,
    reading: ReadOptions | None = None,
    labels: Sequence[str] = (),
    formats: Mapping[str, Format] | None = None,
    group_may_lack: bool = False,
) -> Labeled:
    """Read a file and take its target apart.

    Args:
        data: CSV, Parquet or Arrow, one file or several.
        target: the target's column.
        positive: the label of the positive class; None finds it.
        drop: columns to leave out.
        weight: the column of the rows' weights; rows that weigh 0 are left out.
        group: the column of the rows' groups, none missing; it is left out.
        time: the column of the rows' times, none missing; it is left out.
        id_column: the column that names a row; it is left out.
        exact_labels: whether labels that differ in case, blanks or the like are kept apart.
        reading: how the file is written.
        labels: those of a model, where it exists already; others are an error.
        formats: of that model's columns, which it reads by itself.
        group_may_lack: whether files without that column are read without groups.
    """
    left = [target, *drop, *(name for name in (id_column, group) if name)]
    content = read(
        data, reading, text=left, formats=formats, beside=[] if weight is None else [weight]
    )
    notes = content.notes
    if group_may_lack and group not in content.table.column_names:
        group = None
    columns = columns_of(content.table)
    columns = columns._replace(formats={**columns.formats, **content.formats})
    others = {"weight": weight, "group": group, "time": time, "id": id_column}
    table, words = without_target(columns, target, drop, listed(data), others)
    missing = reading.na_values if reading else ()
    words = join_spellings(words, target, notes, exact=exact_labels, known=labels, missing=missing)
    there, weights = np.flatnonzero(words != ""), None
    if weight is not None:
        weights = row_weights(columns, weight, there)
        if not weights.any():
            raise ValueError(f"weight must be above 0 in some rows, found 0 in all of {weight!r}")
        if weightless := int((weights == 0).sum()):
            notes.append(f"{weightless:,} rows weigh 0 and are left out")
            there, weights = there[weights > 0], weights[weights > 0]
        where = "in every AUC and share" if labels else "in training and in every AUC and share"
        notes.append(f"rows weigh as {weight!r} says, {where}")
    if len(there) < table.rows:
        table, words = table.select(there), words[there]
    known = list(labels) or choose_labels(words, target, positive, notes)
    groups = None if group is None else row_groups(content.table[group], group, there, missing)
    times = None if time is None else row_times(columns, time, there)
    names = None if id_column is None else content.table[id_column]
    numbers = label_numbers(words, known, target)
    return Labeled(table, numbers, known, notes, weights, groups, times, there, names)


def without_target(
    table: Columns,
    target: str,
    drop: Sequence[str],
    path: str,
    others: Mapping[str, str | None] | None = None,
) -> tuple[Columns, NDArray[Any]]:
    """The other columns but for those to drop, and the target as words.

    ``others`` are left out too: a column by the option that says what it is for, if not to train.
    """
    apart = {option: name for option, name in (others or {}).items() if name is not None}
    for one, other in combinations({"target": target, **apart}.items(), 2):
        if one[1] == other[1]:
            raise ValueError(
                f"{other[0]} must be another column than the {one[0]}, found {one[1]!r} for both"
            )
    asked = ("target", target), *(("drop", name) for name in drop), *apart.items()
    for option, name in asked:
        if name not in table.names:
            near = difflib.get_close_matches(name, table.names, n=1)
            known = [*near, *(other for other in table.names if other not in near)]
            some = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")
            raise ValueError(f"{option} must be a column of {path}, found {name!r}, not in {some}")
    if target in drop:
        raise ValueError(f"drop must leave the target, found {target!r}")
    kept = table.without({target, *drop, *apart.values()})
    return kept, as_words(table.values[table.names.index(target)])


def row_weights(table: Columns, name: str, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The weights of some rows; one that is no number, or below 0, is an error."""
    given = table.values[table.names.index(name)][rows]
    weights = np.array([_number(x) for x in given.tolist()])
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        value = given[wrong[0]]
        found = "none" if value is None or value != value else f"{value!s}"
        raise ValueError(
            f"weight must be a column of numbers of at least 0, found {found} in row "
            f"{rows[wrong[0]] + 1:,} of {name!r}, the first being 1"
        )
    return weights


def row_times(table: Columns, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
    """When some rows were; a time that is missing, or neither number nor date, is an error."""
    values: NDArray[Any] = table.values[table.names.index(name)][rows]
    check_times(f"time, the column {name!r},", values, 1 + rows)
    return values


def row_groups(
    column: pa.ChunkedArray, name: str, rows: NDArray[np.int64], missing: Sequence[str] = ()
) -> NDArray[np.int64]:
    """The groups of some rows as numbers; one that is missing is an error."""
    texts = column.cast(pa.string()).take(pa.array(rows)).to_pylist()
    words = ["" if text is None else text.strip() for text in texts]
    none = {*MISSING, *missing}
    if wrong := [place for place, word in enumerate(words) if word in none]:
        raise ValueError(
            f"group must be a column without missing values, found {len(wrong):,} in {name!r}, the "
            f"first in row {rows[wrong[0]] + 1:,}: leave these rows out, or give each a group of "
            f"its own"
        )
    return number_groups(words, "group").numpy()


def _number(value: Any) -> float:
    """NaN if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


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


def join_spellings(
    words: NDArray[Any],
    target: str,
    notes: list[str],
    *,
    exact: bool = False,
    known: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> NDArray[Any]:
    """Each row's label by its name, empty where there is none; what was joined or left is noted.

    ``yes``, `` Yes`` and ``YES`` are one label, named as most rows have it, and so are 1 and 1.0.
    What stands for a missing label, such as ``?``, is none as long as two labels remain.

    Args:
        words: of the rows, empty where one is missing.
        target: the name of the target.
        notes: to add to.
        exact: whether to join nothing, and leave only blanks out.
        known: labels of a model, which keep their names.
        missing: words that stand for no label, whatever remains.
    """
    counts = Counter(words.tolist())
    if exact:
        names = {word: word if _clean(word) else "" for word in counts}
    else:
        names = _names(counts, known)
    names |= {word: "" for word in counts if _clean(word) in map(_clean, missing)}
    spellings: dict[str, list[str]] = {}
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        spellings.setdefault(names[word], []).append(word)

    def counted(found: list[str]) -> str:
        some = [f"{counts[word]:,} {word!r}" for word in found[:MOST_SHOWN]]
        return ", ".join([*some, "..."] if len(found) > MOST_SHOWN else some)

    if none := spellings.pop("", []):
        rows, said = sum(counts[word] for word in none), [word for word in none if word]
        verbs = "row has no {!r} and is" if rows == 1 else "rows have no {!r} and are"
        option = "; --exact-labels keeps them" if any(map(_clean, none)) and not known else ""
        marks = f" ({counted(said)}{option})" if said else ""
        notes.append(f"{rows:,} {verbs.format(target)} left out{marks}")
    joined = [
        f"{counted(found)} as {name!r}"
        for name, found in spellings.items()
        if len(found) > 1 or (name in known and found != [name])
    ]
    if joined:
        option = "" if known else "; --exact-labels keeps them apart"
        notes.append(
            f"labels of {target!r} that differ in case, blanks or the like are joined: "
            f"{'; '.join(joined[:MOST_SHOWN])}{option}"
        )
    return np.array([names[word] for word in words.tolist()], dtype=object)


def _names(counts: Counter[str], known: Sequence[str]) -> dict[str, str]:
    """The label of each word, empty for those that stand for none."""
    spellings: dict[str, Counter[str]] = {}
    for word, count in counts.items():
        spellings.setdefault(_key(word), Counter())[_clean(word)] += count
    names = {key: min(s, key=lambda word: (-s[word], word)) for key, s in spellings.items()}
    keys = Counter(map(_key, known))
    # Labels that were kept apart in training cannot tell which of them another spelling is.
    names |= {_key(label): label for label in known if keys[_key(label)] == 1}
    left = len(spellings)
    for mark in NO_LABEL:
        if mark in spellings and mark not in keys and (mark == "" or known or left > 2):
            names[mark], left = "", left - 1
    return {word: word if word in known else names[_key(word)] for word in counts}


def _clean(word: str) -> str:
    """Without NUL bytes and blanks around it; a number as short as can be."""
    word = " ".join(unicodedata.normalize("NFC", word.replace("\0", "")).split())
    if number := WHOLE_AND_FRACTION.fullmatch(word):
        whole, fraction = number.groups()
        word = f"{whole}.{fraction}" if fraction else whole
    return "0" if word == "-0" else word


def _key(word: str) -> str:
    """The same for all spellings of a label."""
    return _clean(word).casefold()


def choose_labels(
    words: NDArray[Any], target: str, positive: str | None, notes: list[str]
) -> list[str]:
    """The distinct labels; of two the positive last. What was guessed is added to the notes."""
    distinct, counts = np.unique(words.astype(str), return_counts=True)
    some = ", ".join(map(repr, distinct[:10].tolist())) + (", ..." if len(distinct) > 10 else "")
    if len(distinct) < 2:
        why = "".join(f"; {note}" for note in notes)
        raise ValueError(f"target must have two classes or more, found {some or 'none'} alone{why}")
    if len(distinct) > 100:
        raise ValueError(f"target must have at most 100 classes, found {len(distinct)}: {some}")
    labels: list[str] = distinct.tolist()
    if len(labels) > 2:
        if positive is None:
            rare = labels[int(np.argmin(counts))]
            notes.append(
                f"{target!r} has {len(labels)} labels, which are told apart: {some}; --na-values "
                f"{shlex.quote(rare)} would leave out the {counts.min():,} rows of {rare!r}"
            )
            return labels
        raise ValueError(
            f"target must have two classes where positive is given, found {len(labels)}: {some}"
        )
    if positive is None:
        said = [label for label in labels if label.lower() in POSITIVE]
        positive = said[0] if len(said) == 1 else labels[int(np.argmin(counts))]
        notes.append(f"{positive!r} is taken as the positive label of {target!r}")
    elif positive not in labels:
        same = [label for label in labels if _key(label) == _key(positive)]
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
        raise ValueError(f"column {target!r} must hold {some}, found {error.args[0]!r}") from None
