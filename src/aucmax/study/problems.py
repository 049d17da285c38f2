"""The rows of a setting and a seed: read, thinned, split, encoded, some labels made wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pyarrow import csv
from torch import Tensor

from aucmax.judge.peers import one_hot
from aucmax.paper.prepare import mislabel, split
from aucmax.study.settings import made, plan
from aucmax.study.simulation import simulate
from aucmax.tables.encoder import TableEncoder

Labels = NDArray[np.int64]
RARE = 0.1
"""Of a table that is cut, positives up to this share of what is left all stay."""


class Part(NamedTuple):
    """Rows: their numbers, labels 0 and 1, and groups if they are ranked within these."""

    x: Tensor
    y: Tensor
    weight: None = None
    group: Tensor | None = None

    @property
    def for_fit(self) -> tuple[Any, ...]:
        """As :func:`aucmax.fit` takes them."""
        return self[:2] if self.group is None else tuple(self)


class Problem(NamedTuple):
    """What every line of a setting is given; the labels of the test rows are right."""

    train: Part
    valid: Part
    test: Part

    def counts(self) -> dict[str, list[int]]:
        """Positives and negatives of each part."""
        sums = {name: (int(part.y.sum()), len(part.y)) for name, part in self._asdict().items()}
        return {name: [positives, rows - positives] for name, (positives, rows) in sums.items()}


def make_problem(
    folder: Path, dataset: str, condition: Mapping[str, Any], seed: int, column: str | None = None
) -> Problem:
    """The rows of a setting and a seed; exact repeats are dropped.

    Args:
        folder: whose folder "tables" holds ``NAME.csv`` or ``NAME.csv.gz`` with a column "target".
        dataset: the table's name.
        condition: of the regime.
        seed: of the split and of what is done to the rows.
        column: that has the groups and is no input; None without groups.
    """
    shares = plan()["test"], plan()["valid"]
    table, y = _read(folder, dataset)
    group = None
    if column is not None:
        if column not in table.column_names:
            raise ValueError(f"{dataset} must have a column {column}, found {table.column_names}")
        group = np.unique(table[column].to_numpy(zero_copy_only=False), return_inverse=True)[1]
        table = table.drop_columns([column])
    whole = group if condition.get("unseen") else None
    rest, test = _split(np.arange(len(y)), y, shares[0], seed, whole)
    if "most" in condition:
        rest = _with_positives(rest, y, condition["most"], seed)
    known = y.copy()
    if "wrong" in condition:
        known[rest] = mislabel(y[rest], wrong_shares(y[rest], condition), seed)
    train, valid = _split(rest, known, shares[1], seed, whole)
    encoder = TableEncoder().fit(table.take(train))

    def part(rows: Labels, labels: Labels) -> Part:
        numbers = one_hot(*encoder.transform(table.take(rows)), encoder.cardinalities).toarray()
        x = torch.from_numpy(np.array(numbers, dtype=np.float32))
        groups = None if group is None else torch.from_numpy(group[rows])
        return Part(x, torch.from_numpy(labels[rows]).float(), group=groups)

    return Problem(part(train, known), part(valid, known), part(test, y))


def _split(
    rows: Labels, y: Labels, share: float, seed: int, group: Labels | None
) -> tuple[Labels, Labels]:
    """Two parts of the rows, that share in the second: of each class, or nearly, whole groups."""
    if group is None:
        first, second = split(y[rows], share, seed)
        return rows[first], rows[second]
    names = np.random.RandomState(seed).permutation(np.unique(group[rows]))
    sizes = np.array([(group[rows] == name).sum() for name in names])
    nearest = int(np.abs(sizes.cumsum() - share * len(rows)).argmin()) + 1
    count = min(len(names) - 1, nearest)
    apart = np.isin(group[rows], names[:count])
    return rows[~apart], rows[apart]


def wrong_shares(y: Labels, condition: Mapping[str, Any]) -> tuple[float, float]:
    """Of the negatives and of the positives."""
    wrong, positives = condition["wrong"], int(y.sum())
    even = condition["negatives"] == "even"
    return (wrong * positives / (len(y) - positives) if even else 0.0), wrong


def _with_positives(rows: Labels, y: Labels, most: int, seed: int) -> Labels:
    """The rows with so many of their positives, and all negatives."""
    positives = np.random.RandomState(seed).permutation(rows[y[rows] == 1])[:most]
    return np.sort(np.concatenate([positives, rows[y[rows] == 0]]))


def find_tables(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """The files of tables, by their names."""
    found, missing = {}, []
    for name in names:
        paths = [folder / "tables" / f"{name}{end}" for end in (".csv", ".csv.gz")]
        if path := next((path for path in paths if path.exists()), None):
            found[name] = path
        else:
            missing.append(name)
    if missing:
        raise ValueError(
            f"data must hold NAME.csv or NAME.csv.gz of all tables in {folder / 'tables'}, found "
            f"none of {', '.join(missing)}"
        )
    return found


@lru_cache(maxsize=2)
def _read(folder: Path, name: str) -> tuple[Any, Labels]:
    """A table without its repeats, and its labels; a large one is cut."""
    if name in made():
        table = simulate()
        return table.drop_columns(["target"]), table["target"].to_numpy()
    path = find_tables(folder, [name])[name]
    table = csv.read_csv(path).drop_columns(plan()["data"]["without"].get(name, []))
    if "target" not in table.column_names:
        raise ValueError(f"{path} must have a column named target, found {table.column_names}")
    numbered = table.append_column("row number", pa.array(np.arange(len(table))))
    alike = numbered.group_by(table.column_names, use_threads=False)
    rows = np.sort(alike.aggregate([("row number", "min")])["row number_min"].to_numpy())
    y = table["target"].to_numpy().astype(np.int64)
    rows = rows[_some(y[rows], plan()["rows"])]
    return table.take(rows).drop_columns(["target"]), y[rows]


def _some(y: Labels, most: int) -> Labels:
    """So many rows at most, in order."""
    if len(y) <= most:
        return np.arange(len(y))
    random, positives = np.random.RandomState(0), int(y.sum())
    kept = max(round(most * positives / len(y)), min(positives, round(most * RARE)))
    parts = [
        random.permutation(np.flatnonzero(y == value))[:count]
        for value, count in ((1, kept), (0, most - kept))
    ]
    return np.sort(np.concatenate(parts))
