"""How sure a metric is, and whether two differ: what all intervals and tests are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aucmax import checks
from aucmax.metrics._rows import Array, Floats


class ConfidenceInterval(NamedTuple):
    """The value of a metric, its confidence interval and its standard error.

    Example:
        >>> from aucmax import metrics
        >>> found = metrics.roc_auc_interval([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        >>> found.value == found.auc, found.low < found.value < found.high, found.level
        (True, True, 0.95)
    """

    value: float
    low: float
    high: float
    standard_error: float
    level: float

    @property
    def auc(self) -> float:
        """The value, of an AUC."""
        return self.value


class PairedTest(NamedTuple):
    """Two models' values, their difference a - b, and how surprising it is if the truth is zero.

    Example:
        >>> from aucmax import metrics
        >>> y = [0, 0, 0, 1, 1, 1]
        >>> found = metrics.delong_test([1, 2, 4, 3, 5, 6], [2, 1, 5, 4, 3, 6], y)
        >>> round(found.auc_a, 2), round(found.auc_b, 2), round(found.difference, 2)
        (0.89, 0.78, 0.11)
    """

    value_a: float
    value_b: float
    difference: float
    standard_error: float
    z: float
    p_value: float

    @property
    def auc_a(self) -> float:
        """The value of the first, of AUCs."""
        return self.value_a

    @property
    def auc_b(self) -> float:
        """The value of the second, of AUCs."""
        return self.value_b


NO_TEST = PairedTest(*[math.nan] * 6)


def no_interval(level: float) -> ConfidenceInterval:
    """That of rows that lack a class."""
    return ConfidenceInterval(math.nan, math.nan, math.nan, math.nan, level)


def check_level(level: float) -> float:
    """Return the level of confidence if it is one."""
    return checks.number("level", level, "a number strictly between 0 and 1", lambda x: 0 < x < 1)


def quantile(level: float) -> float:
    """As many standard deviations to both sides hold so much of a normal distribution."""
    from statistics import NormalDist  # here, for it takes longer to import than the rest

    return -NormalDist().inv_cdf((1 - level) / 2)


def interval(
    value: float, variance: float | None, k: float, level: float, largest: float = 1.0
) -> ConfidenceInterval:
    """The interval of :func:`roc_auc_interval`, with k the rows of the smallest class.

    Without a variance, which one row of a class cannot give, Hoeffding's bound serves.

    Args:
        value: of the metric, from 0 to ``largest``, which takes the place of 1.
        variance: of the value.
        k: as many independent rows tell about as much.
        level: of confidence.
        largest: that the metric can be.
    """
    tail, share = (1 - level) / 2, value / largest
    if abs(share - round(share)) < 1e-12:  # sums of a perfect ranking may end beside 1
        share = float(round(share))
        value = share * largest
    bound = share * (1 - share) / k
    relative = bound if variance is None else variance / largest**2
    error = largest * math.sqrt(relative)
    if share in (0, 1):
        edge = tail ** (1 / k)
        low, high = (edge, 1.0) if share else (0.0, 1 - edge)
        return ConfidenceInterval(value, low * largest, high * largest, error, level)
    centre, sigma = math.log(share / (1 - share)), math.sqrt((k * relative + bound) / (k + 1))
    half = quantile(level) * sigma / (share * (1 - share))
    low, high = (largest * (1 + math.tanh((centre + side) / 2)) / 2 for side in (-half, half))
    return ConfidenceInterval(value, min(low, value), max(high, value), error, level)


def comparison(
    value_a: float, value_b: float, variance: float | None, k: float, largest: float = 1.0
) -> PairedTest:
    """The test of :func:`delong_test`, with arguments as of :func:`interval`."""
    difference, error = value_a - value_b, math.sqrt(variance or 0.0)
    if difference == 0:
        return PairedTest(value_a, value_b, 0.0, error, z=0.0, p_value=1.0)
    error = error or largest * math.sqrt(1 / k)
    z = difference / error
    return PairedTest(value_a, value_b, difference, error, z, math.erfc(abs(z) / math.sqrt(2)))


def effective_rows(weight: Floats) -> float:
    """As many rows of one weight would tell as much (Kish)."""
    return float(weight.sum() ** 2 / (weight @ weight))


def variance_by_group(
    placed: Sequence[Floats], weights: Sequence[Floats] | None, groups: Sequence[Array]
) -> tuple[float | None, float]:
    r"""Of the sum of the classes' means, if groups of rows were drawn (Obuchowski, 1997).

    With :math:`u_i` for a row's share of its class, group g has
    :math:`D_{gk} = \sum_i u_i (p_i - \bar p_k)` over its rows of class k, and

    .. math::
        V = \sum_k \frac{G_k}{G_k - 1} \sum_g D_{gk}^2
            + \frac{G}{G - 1} \sum_{k \ne l} \sum_g D_{gk} D_{gl},

    G being the number of groups, and :math:`G_k` that of those which have rows of class k. Groups
    of one row each give the sample variances over n.

    Args:
        placed: of each class, its rows' placements.
        weights: likewise; None counts rows alike.
        groups: likewise, numbers from 0.

    Returns:
        The variance, None if all rows of a class are of one group, and the effective number of
        groups (Kish) of the class that has the fewest.
    """
    count = 1 + max(int(x.max()) for x in groups)
    sums, shares, there = np.zeros((3, len(placed), count))
    for k, (values, group) in enumerate(zip(placed, groups, strict=True)):
        share = np.full(len(values), 1 / len(values))
        if weights is not None:
            share = weights[k] / weights[k].sum()
        values = values - values[0]
        sums[k] = np.bincount(group, share * (values - share @ values), count)
        shares[k] = np.bincount(group, share, count)
        there[k] = np.bincount(group, minlength=count) > 0
    effective = float((1 / np.square(shares).sum(axis=1)).min())
    of_class, of_all = there.sum(axis=1), there.any(axis=0).sum()
    if of_class.min() == 1:
        return None, effective
    factors, factor = of_class / (of_class - 1), of_all / (of_all - 1)
    within = (factors - factor) @ np.square(sums).sum(axis=1)
    return float(within + factor * np.square(sums.sum(axis=0)).sum()), effective


def variance_of_mean(values: Floats, weight: Floats) -> float:
    """Of a weighted mean; equal values give zero, equal weights the sample variance over n."""
    shares, n = weight / weight.sum(), len(values)
    values = values - values[0]
    return float(n / (n - 1) * np.sum((shares * (values - shares @ values)) ** 2))
