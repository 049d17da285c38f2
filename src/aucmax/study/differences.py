"""Differences with intervals: over data sets, over splits of the same rows, of shares."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy import stats

LEVEL = 0.95
FEWEST = 6
"""With fewer differences Wilcoxon's p cannot be below 0.05, whatever they are."""


class Difference(NamedTuple):
    """A mean difference, its interval, and the p-value of there being none; nan is not known."""

    mean: float
    low: float
    high: float
    p: float


def share_of(count: int, of: int) -> Difference:
    """A share and its exact binomial interval."""
    found = stats.binomtest(count, of)
    low, high = found.proportion_ci(LEVEL)
    return Difference(count / of, float(low), float(high), math.nan)


def reached(x: Difference, least: float) -> str:
    """Whether so much was reached, by the interval."""
    return "confirmed" if x.low >= least else "refuted" if x.high < least else "open"


def over_datasets(differences: Sequence[float]) -> Difference:
    """Their mean, its t interval, and of six or more Wilcoxon's signed-rank test.

    Those that are nan count nothing.
    """
    differences = [x for x in differences if not math.isnan(x)]
    mean = mean_of(differences)
    if len(differences) < 2:
        return Difference(mean, math.nan, math.nan, math.nan)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    half = error * float(stats.t.ppf((1 + LEVEL) / 2, len(differences) - 1))
    p = math.nan
    if len(differences) >= FEWEST:
        p = float(stats.wilcoxon(differences).pvalue) if any(differences) else 1.0
    return Difference(mean, mean - half, mean + half, p)


def resampled(differences: Sequence[float], ratio: float) -> Difference:
    r"""The corrected resampled t test (Nadeau and Bengio, 2003), of splits of the same rows.

    Training rows of two splits overlap, so their differences vary together: with :math:`s^2` their
    variance and :math:`\rho` test rows per training row, that of the mean of n is taken to be
    :math:`(1/n + \rho) s^2`.

    Example:
        >>> [round(x, 4) for x in resampled([0.01, 0.02, 0.03], ratio=3 / 7)]
        [0.02, -0.0176, 0.0576, 0.149]
    """
    mean, n = mean_of(differences), len(differences)
    if n < 2:
        return Difference(mean, math.nan, math.nan, math.nan)
    error = math.sqrt((1 / n + ratio) * statistics.variance(differences))
    if error == 0:
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    half = error * float(stats.t.ppf((1 + LEVEL) / 2, n - 1))
    p = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
    return Difference(mean, mean - half, mean + half, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected for their number (Holm, 1979).

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda k: (math.isnan(p_values[k]), p_values[k]))
    corrected, least = [math.nan] * len(p_values), 0.0
    for rank, k in enumerate(order):
        if not math.isnan(p_values[k]):
            least = max(least, min(1.0, (len(p_values) - rank) * p_values[k]))
            corrected[k] = least
    return corrected


def mean_of(values: Sequence[float]) -> float:
    """Their mean, nan of none."""
    return statistics.fmean(values) if values else math.nan
