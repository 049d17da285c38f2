"""By how much a number falls that a model is judged by when a column is shuffled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from aucmax.tables.encoder import Encoded, TableEncoder

REPEATS = 3
"""How often each column is shuffled."""


def drops_by_column(
    encoder: TableEncoder,
    encoded: Encoded,
    judge: Callable[[Encoded], float],
    random: np.random.Generator,
    seconds: float = math.inf,
) -> dict[str, NDArray[np.float64]]:
    """Of each raw column that is used, by how much the number falls in each of several shuffles.

    Args:
        encoder: that knows which encoded columns are whose.
        encoded: the rows to judge by.
        judge: gives the number for rows as they are, and with a column shuffled.
        random: of the shuffles.
        seconds: after which no more columns are begun.
    """
    whole, began, drops = judge(encoded), time.perf_counter(), {}
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
