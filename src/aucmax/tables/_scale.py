"""Numbers of any distribution as about normal ones, by their ranks."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax.tables._values import Numbers

LIMIT = 5.0
"""No score is beyond it."""

CLOSEST = 1e-290
"""Knots are no closer, so that no slope between them overflows."""


@dataclass(frozen=True)
class Scale:
    """A line from value to score through some of the training values, flat beyond its ends.

    Attributes:
        knots: values, increasing.
        scores: what each knot becomes.
        fill: what a missing value becomes: the score of the median.
    """

    knots: Numbers
    scores: Numbers
    fill: float

    @classmethod
    def fit(cls, values: Numbers, quantiles: int) -> Scale | None:
        """The normal quantile of each value's rank, about unit; None if only one value occurs.

        A value's rank is the middle of its ties. Columns with a few rare values would need scores
        beyond the limit to have unit variance: they get as near as it lets them.
        """
        values = np.sort(values[~np.isnan(values)])
        knots = _knots(values, quantiles)
        if len(knots) < 2:
            return None
        ranks = (np.searchsorted(values, knots) + np.searchsorted(values, knots, "right")) / 2
        normal = NormalDist()
        scores = np.array([normal.inv_cdf(p) for p in (ranks / len(values)).tolist()])
        scores = scores.clip(-LIMIT, LIMIT)
        spread = np.interp(values, knots, scores).std()
        scores *= min(1 / spread, LIMIT / np.abs(scores).max())
        # Of float32's precision, so that rounding to it cannot put a value above the next knot.
        scores = scores.astype(np.float32).astype(np.float64)
        return cls(knots, scores, _fill(values, knots, scores))

    @classmethod
    def flag(cls, values: Numbers) -> Scale | None:
        """0 and 1 as they are; None if only one of them occurs."""
        ends = np.array([0.0, 1.0])
        if values.min() == values.max():
            return None
        return cls(ends, ends, _fill(np.sort(values), ends, ends))

    def encode(self, values: Numbers, missing: NDArray[np.bool_] | None) -> Numbers:
        """The score of each value."""
        scores: Numbers = np.interp(values, self.knots, self.scores)
        if missing is not None:
            scores[missing] = self.fill
        return scores

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"knots": self.knots.tolist(), "scores": self.scores.tolist(), "fill": self.fill}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Scale:
        """From JSON."""
        knots, scores = (np.array(d[key], dtype=np.float64) for key in ("knots", "scores"))
        return cls(knots, scores, float(d["fill"]))


def _knots(ordered: Numbers, quantiles: int) -> Numbers:
    """The distinct values, or if they are too many those among evenly spaced quantiles."""
    knots = _distinct(ordered)
    if len(knots) > quantiles:
        knots = _distinct(ordered[np.linspace(0, len(ordered) - 1, quantiles).round().astype(int)])
    with np.errstate(over="ignore"):
        apart = np.diff(knots) > CLOSEST
    return np.delete(knots, 1 + np.flatnonzero(~apart))


def _distinct(ordered: Numbers) -> Numbers:
    return np.delete(ordered, 1 + np.flatnonzero(ordered[1:] == ordered[:-1]))


def _fill(ordered: Numbers, knots: Numbers, scores: Numbers) -> float:
    """The score of the median."""
    half = len(ordered) // 2
    median = ordered[half] / 2 + ordered[-half - 1] / 2  # halved first: the sum may overflow
    return float(np.interp(median, knots, scores))
