"""By how much a number falls that a model is judged by when a column is shuffled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax.tables.encoder import Encoded, TableEncoder
from aucmax.tables.ensemble.base import Scores
from aucmax.tables.folds import Folds, scores_out_of_fold
from aucmax.tables.samples import representative
from aucmax.tables.scoring import Rows

REPEATS = 3
"""How often each column is shuffled."""
MOST_JUDGED = 1000
"""Rows that columns are shuffled in, out of fold."""


def drops_by_column(
    encoder: TableEncoder,
    encoded: Encoded,
    judge: Callable[[Encoded], float],
    whole: float,
    random: np.random.Generator,
    seconds: float = math.inf,
) -> dict[str, NDArray[np.float64]]:
    """Of each raw column that is used, by how much the number falls in each of several shuffles.

    Args:
        encoder: that knows which encoded columns are whose.
        encoded: the rows to judge by.
        judge: gives the number for rows with a column shuffled.
        whole: the number for rows as they are.
        random: of the shuffles.
        seconds: after which no more columns are begun.
    """
    began, drops = time.perf_counter(), {}
    for name, numeric, codes in encoder.places():
        if time.perf_counter() - began > seconds:
            break
        values = np.empty(REPEATS)
        for k in range(REPEATS):
            order = random.permutation(len(encoded.numeric))
            other = Encoded(encoded.numeric.copy(), encoded.categorical.copy())
            other.numeric[:, numeric] = encoded.numeric[order][:, numeric]
            other.categorical[:, codes] = encoded.categorical[order][:, codes]
            values[k] = whole - judge(other)
        drops[name] = values
    return drops


class JudgedRows(NamedTuple):
    """Some rows that fits were judged by, to be judged by again.

    Attributes:
        rows: with their classes, weights and groups.
        held: (N, fits), whether a fit was judged by the row, and so not trained on it.
    """

    rows: Rows
    held: NDArray[np.bool_]

    @classmethod
    def sample(cls, rows: Rows, folds: Folds, seed: int) -> JudgedRows:
        """At most :data:`MOST_JUDGED` of the rows, fair to rare classes, or whole groups."""
        judged = folds.judged
        some = representative(rows.select(judged), MOST_JUDGED, seed)
        return cls(some.rows, folds.held[judged[some.places]])

    def importances(
        self,
        encoder: TableEncoder,
        outputs: int,
        score: Callable[[Encoded, int], Scores],
        judge: Callable[[Scores, Rows], float],
    ) -> NDArray[np.float64]:
        """By how much the number falls when a raw column is shuffled, in the order of the columns.

        Args:
            encoder: of the rows.
            outputs: scores per row.
            score: by the fits of one fold.
            judge: gives the number for the scores of rows.
        """

        def number_of(encoded: Encoded) -> float:
            scores = scores_out_of_fold(
                self.held, outputs, lambda fold, rows: score(encoded.select(rows), fold)
            )
            return judge(scores, self.rows)

        whole, random = number_of(self.rows.encoded), np.random.default_rng(0)
        drops = drops_by_column(encoder, self.rows.encoded, number_of, whole, random)
        means = {name: float(x.mean()) for name, x in drops.items()}
        return np.array([means.get(name, 0.0) for name in encoder.names])
