"""Paired differences with an interval and a test that agree, and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Difference:
    """A difference, its confidence interval and the p-value of no difference.

    The interval excludes zero exactly where ``p < 1 - level``: both come from one test.

    Attributes:
        value: the estimate.
        low: lower end of the interval; nan with fewer than two differences.
        high: upper end.
        p: two-sided p-value.
        n: number of differences.
    """

    value: float
    low: float
    high: float
    p: float
    n: int

    @classmethod
    def paired(cls, differences: Sequence[float], level: float = 0.95) -> Difference:
        """Student's t for independent pairs, for example one per data set.

        Example:
            >>> Difference.paired([0.01, 0.02, 0.03]).p.__round__(4)
            0.0742
        """
        return cls.resampled(differences, 0.0, level)

    @classmethod
    def resampled(
        cls, differences: Sequence[float], ratio: float, level: float = 0.95
    ) -> Difference:
        r"""Corrected resampled t (Nadeau and Bengio, 2003), for repeated splits of the same rows.

        The training rows of two splits overlap, so their differences are correlated. The variance
        of the mean of n differences with variance :math:`s^2` is taken as
        :math:`(1/n + \rho) s^2`.

        Args:
            differences: one per split.
            ratio: :math:`\rho`, test rows per training row.
            level: of the interval.
        """
        d = _finite(differences)
        n = len(d)
        mean = float(d.mean()) if n else math.nan
        if n < 2:
            return cls(mean, math.nan, math.nan, math.nan, n)
        error = math.sqrt((1 / n + ratio) * d.var(ddof=1))
        if error == 0:  # all differences are equal
            return cls(mean, mean, mean, float(mean == 0), n)
        half = error * float(stats.t.ppf((1 + level) / 2, n - 1))
        p = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
        return cls(mean, mean - half, mean + half, p, n)

    @classmethod
    def stratified(cls, strata: Sequence[Sequence[float]], level: float = 0.95) -> Difference:
        """Mean over strata, each with its own variance and number (Welch and Satterthwaite).

        Args:
            strata: the differences of each stratum, for example one per seed of each data set.
            level: of the interval.

        Example:
            >>> d = Difference.stratified([[0.01, 0.02, 0.03], [0.05, 0.05, 0.08, 0.06]])
            >>> round(d.value, 4), round(d.p, 6), d.n
            (0.04, 0.000342, 7)
        """
        d = [_finite(own) for own in strata]
        n = sum(map(len, d))
        mean = float(np.mean([own.mean() if len(own) else math.nan for own in d]))
        if min(map(len, d)) < 2:
            return cls(mean, math.nan, math.nan, math.nan, n)
        variances = np.array([own.var(ddof=1) / len(own) for own in d])
        error = math.sqrt(variances.sum()) / len(d)
        if error == 0:
            return cls(mean, mean, mean, float(mean == 0), n)
        free = variances.sum() ** 2 / sum(
            v**2 / (len(own) - 1) for v, own in zip(variances, d, strict=True)
        )
        half = error * float(stats.t.ppf((1 + level) / 2, free))
        return cls(
            mean, mean - half, mean + half, 2 * float(stats.t.sf(abs(mean) / error, free)), n
        )

    @classmethod
    def signed_rank(cls, differences: Sequence[float], level: float = 0.95) -> Difference:
        """Wilcoxon's signed-rank test and the interval that inverts it (Hodges and Lehmann).

        The estimate is the median of the Walsh averages, the means of all pairs of differences.
        The null distribution is exact without ties. A Walsh average of zero counts against a
        difference. With fewer than six differences, p cannot be below 0.05 and a 95 % interval is
        unbounded.
        """
        d = _finite(differences)
        n = len(d)
        if n == 0:
            return cls(math.nan, math.nan, math.nan, math.nan, 0)
        walsh = np.sort(((d[:, None] + d) / 2)[np.triu_indices(n)])
        weights = np.ones(1)  # of the sum of the positive ranks: each rank counts or does not
        for rank in range(1, n + 1):
            weights = np.convolve(weights, np.r_[1.0, np.zeros(rank - 1), 1.0]) / 2
        tail = np.cumsum(weights)  # tail[k] = P(sum <= k)
        # the number of positive Walsh averages is the sum of the positive ranks
        p = min(1.0, 2 * float(tail[min(np.sum(walsh <= 0), np.sum(walsh >= 0))]))
        cut = int(np.searchsorted(tail, (1 - level) / 2, side="left"))
        low, high = (walsh[cut - 1], walsh[-cut]) if cut else (-math.inf, math.inf)
        return cls(float(np.median(walsh)), float(low), float(high), p, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for their number (Holm, 1979); nan stays and does not count.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # nan comes last
    corrected = np.full(len(p), math.nan)
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)).clip(max=1)
    return corrected.tolist()


def _finite(differences: Sequence[float]) -> np.ndarray:
    d = np.asarray(differences, dtype=float)
    if not np.isfinite(d).all():
        raise ValueError(f"differences must be finite, found {d.tolist()}")
    return d
