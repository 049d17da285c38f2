"""A forest: the mean of many trees, each grown on all rows with thresholds drawn at random."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble.base import CrossFitted, Scores, Setting
from aucmax.tables.ensemble.cross_fit import Refitted, Savable, all_used, cross_fit
from aucmax.tables.ensemble.others import NEVER
from aucmax.tables.ensemble.trees import Trees, down_to_single, in_blocks
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows

TREES = 200
LEAVES = 1024
"""Of a tree at most, so that files and scoring stay small however many rows there are."""

MANY = 50_000
"""With so many values a fit gains by threads."""

STEPS = 4
"""Down a tree before rows that have come to a leaf are left alone."""

NEAR = 16_384
"""So many rows, each counted once for each tree, stay near the processor."""


@dataclass(frozen=True, eq=False)
class Averaged(Trees):
    """Trees whose leaves hold shares of classes; codes are numbers to them.

    Attributes:
        value: (nodes, outputs) of a leaf, over the number of trees.
    """

    @classmethod
    def of_forest(cls, model: Any, numeric: int, outputs: int) -> Self:
        """Those of scikit-learn's ExtraTreesClassifier."""
        parts, roots, count = [], [], 0
        for tree in (estimator.tree_ for estimator in model.estimators_):
            order = _first_to_last(tree.children_left.tolist(), tree.children_right.tolist())
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            is_leaf = tree.children_left[order] < 0
            value = tree.value[order, 0, -outputs:] / len(model.estimators_)
            parts.append((
                np.where(is_leaf, -1, tree.feature[order]),
                np.where(is_leaf, 0, tree.threshold[order]),
                np.where(is_leaf, 0, place[tree.children_right[order]] + count),
                np.where(is_leaf[:, None], value, 0),
            ))  # fmt: skip
            roots.append(count)
            count += len(order)
        column, threshold, right, value = map(np.concatenate, zip(*parts, strict=True))
        return cls(
            column.astype(np.int32), down_to_single(threshold), np.full(count, -1, np.int32),
            right.astype(np.int32), value, np.array(roots, np.int32), np.empty((0, 0), bool),
            np.zeros(outputs), numeric,
        )  # fmt: skip

    def score(self, rows: Encoded) -> Scores:
        """Log-odds, of several classes log-probabilities."""
        shares = in_blocks(partial(self._descend, self._steps), rows, len(self.base))
        return _logarithms(torch.from_numpy(shares)).numpy()

    def _descend(self, steps: _Steps, rows: Encoded, scores: Scores) -> None:
        """Go down a few trees at a time, which stay near the processor, with all rows."""
        columns = np.concatenate([rows.numeric, rows.categorical], 1, dtype=np.float32)
        starts = np.arange(len(columns)) * columns.shape[1]
        flat = columns.ravel()
        count = max(1, NEAR // len(scores))
        scores[:] = 0
        for first in range(0, len(self.roots), count):
            roots = self.roots[first : first + count].astype(np.int64)
            at, start = roots.repeat(len(scores)), np.tile(starts, len(roots))
            leaf, going = np.empty_like(at), np.arange(len(at))
            while going.size:
                for _ in range(STEPS):
                    asked = flat.take(start + steps.column.take(at))
                    at = at + 1 + (asked > steps.threshold.take(at)) * steps.further.take(at)
                leaf[going] = at
                on = np.flatnonzero(steps.further.take(at) >= 0)
                going, at, start = going[on], at[on], start[on]
            for values in self.value.take(leaf, axis=0).reshape(len(roots), *scores.shape):
                scores += values  # one after the other, whatever their number at a time

    @cached_property
    def _steps(self) -> _Steps:
        is_leaf = self.column < 0
        return _Steps(
            self.column.clip(0).astype(np.int64),
            np.where(is_leaf, np.float32(-np.inf), self.threshold),
            np.where(is_leaf, -1, self.right - np.arange(1, len(is_leaf) + 1)),
        )

    def as_module(self) -> nn.Module:
        """The same from (numeric, codes)."""
        return nn.Sequential(super().as_module(), _Logarithms())


class _Steps(NamedTuple):
    """What a step down needs of each node.

    Attributes:
        column: that it asks.
        threshold: beyond it a row goes right.
        further: how much further on the right child is than the left one; -1 in a leaf, whose
            threshold all rows are beyond: they stay.
    """

    column: NDArray[np.int64]
    threshold: NDArray[np.float32]
    further: NDArray[np.int64]


def _first_to_last(left: list[int], right: list[int]) -> NDArray[np.int64]:
    """A tree's nodes, each before those below it on its left, these before those on its right."""
    order, waiting = [], [0]
    while waiting:
        order.append(at := waiting.pop())
        if left[at] >= 0:
            waiting += right[at], left[at]
    return np.array(order)


class _Logarithms(nn.Module):
    def forward(self, shares: Tensor) -> Tensor:
        """Scores (N, outputs)."""
        return _logarithms(shares)


def _logarithms(shares: Tensor) -> Tensor:
    logs = torch.log(shares + NEVER)
    return logs - torch.log(1 - shares + NEVER) if shares.shape[1] == 1 else logs


class Forest(Refitted):
    """Trees that are averaged."""

    kind: ClassVar[str] = "forest"
    fit_type: ClassVar[type[Savable]] = Averaged


def fit_forest(rows: Rows, folds: Folds, setting: Setting) -> CrossFitted:
    """Fit it to each fold and to all rows.

    Where the folds are cut several times, the fits that judge a row share the number of trees.

    Raises:
        LeftOutError: if there is too little time.
    """
    began = time.monotonic()
    trees = TREES // max(1, int(folds.held.sum(1).max()))
    fits, scores = cross_fit(partial(_fit, setting, trees), rows, folds, setting)
    whole = fits[0] if folds.count == 1 else _fit(setting, TREES, all_used(rows, folds))
    return CrossFitted(Forest("forest", whole, fits), scores, time.monotonic() - began)


def _fit(setting: Setting, trees: int, rows: Rows) -> Averaged:
    from sklearn.ensemble import ExtraTreesClassifier

    columns = np.concatenate([rows.numeric.numpy(), rows.codes.numpy()], 1, dtype=np.float32)
    model = ExtraTreesClassifier(
        trees, min_samples_leaf=2, max_leaf_nodes=LEAVES, max_features="sqrt",
        min_weight_fraction_leaf=1e-9,  # rows that do not count make no leaf, which had no shares
        n_jobs=torch.get_num_threads() if columns.size >= MANY else 1, random_state=setting.seed,
    ).fit(columns, rows.classes, sample_weight=rows.weight)  # fmt: skip
    return Averaged.of_forest(model, rows.numeric.shape[1], setting.outputs)
