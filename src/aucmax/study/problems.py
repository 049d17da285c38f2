"""The rows of a setting and a seed: read, thinned, split, encoded, some labels made wrong."""

from __future__ import annotations

from collections.abc import Mapping
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
from aucmax.study.settings import plan
from aucmax.tables.encoder import TableEncoder

Part = tuple[Tensor, Tensor]
Labels = NDArray[np.int64]
RARE = 0.1
"""Of a table that is cut, positives up to this share of what is left all stay."""


class Problem(NamedTuple):
    """Numbers of each row, and labels 0 and 1; those of the test rows are right."""

    train: Part
    valid: Part
    test: Part

    def counts(self) -> dict[str, list[int]]:
        """Positives and negatives of each part."""
        sums = {name: (int(y.sum()), len(y)) for name, (_, y) in self._asdict().items()}
        return {name: [positives, rows - positives] for name, (positives, rows) in sums.items()}


def make_problem(folder: Path, dataset: str, condition: Mapping[str, Any], seed: int) -> Problem:
    """The rows that every line of the setting is given; exact repeats are dropped.

    Args:
        folder: that holds ``NAME.csv`` or ``NAME.csv.gz``, the last column named "target".
        dataset: the table's name.
        condition: of the regime.
        seed: of the split and of what is done to the rows.
    """
    content = plan()
    table, y = _read(folder, dataset)
    rest, test = split(y, content["test"], seed)
    if "most" in condition:
        rest = _with_positives(rest, y, condition["most"], seed)
    known = y.copy()
    if "wrong" in condition:
        known[rest] = mislabel(y[rest], _wrong_shares(y[rest], condition), seed)
    parts = [rest[rows] for rows in split(known[rest], content["valid"], seed)]
    encoder = TableEncoder().fit(table.take(parts[0]))

    def encode(rows: Labels, labels: Labels) -> Part:
        numbers = one_hot(*encoder.transform(table.take(rows)), encoder.cardinalities).toarray()
        x = np.array(numbers, dtype=np.float32)
        return torch.from_numpy(x), torch.from_numpy(labels[rows]).float()

    return Problem(encode(parts[0], known), encode(parts[1], known), encode(test, y))


def _wrong_shares(y: Labels, condition: Mapping[str, Any]) -> tuple[float, float]:
    """Of the negatives and of the positives."""
    wrong, positives = condition["wrong"], int(y.sum())
    even = condition["negatives"] == "even"
    return (wrong * positives / (len(y) - positives) if even else 0.0), wrong


def _with_positives(rows: Labels, y: Labels, most: int, seed: int) -> Labels:
    """The rows with so many of their positives, and all negatives."""
    positives = np.random.RandomState(seed).permutation(rows[y[rows] == 1])[:most]
    return np.sort(np.concatenate([positives, rows[y[rows] == 0]]))


@lru_cache(maxsize=2)
def _read(folder: Path, name: str) -> tuple[Any, Labels]:
    """A table without its repeats, and its labels; a large one is cut."""
    paths = [folder / f"{name}{end}" for end in (".csv", ".csv.gz")]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise ValueError(f"data must hold the tables, found no {paths[0]} and no {paths[1].name}")
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
