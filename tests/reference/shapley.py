"""Shapley values by their definition: over all sets of columns."""

from itertools import combinations
from math import factorial

import numpy as np


def shapley(score, row, background):
    """What each column adds to score(row), compared with the mean over the background's rows.

    score takes a table, one row after the other, and gives one number per row.
    """
    d = len(row)

    def value(columns):
        mixed = np.array(background, copy=True)
        mixed[:, list(columns)] = row[list(columns)]
        return np.mean(score(mixed))

    phi = np.zeros(d)
    for j in range(d):
        others = [k for k in range(d) if k != j]
        for size in range(d):
            share = factorial(size) * factorial(d - size - 1) / factorial(d)
            for columns in combinations(others, size):
                phi[j] += share * (value((*columns, j)) - value(columns))
    return phi
