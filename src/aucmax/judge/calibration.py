"""From scores that rank to probabilities that mean something, without changing the ranking."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEAST_SLOPE = 1e-6
"""Of standardized scores: where the classes are ranked the wrong way round, nearly flat."""


@dataclass(frozen=True)
class Platt:
    r"""Platt scaling: :math:`P(y = 1 | s) = 1 / (1 + e^{-(\text{slope} \cdot s + \text{shift})})`.

    The slope is positive, so that probabilities rank as the scores do; unlike isotonic regression
    it makes no ties.

    Example:
        >>> import numpy as np
        >>> from aucmax.judge.calibration import fit_platt
        >>> scores, y = np.array([-2.0, -1.0, 0.5, 0.0, 1.0, 3.0]), np.array([0, 0, 0, 1, 1, 1])
        >>> platt = fit_platt(scores, y)
        >>> platt.slope > 0, platt(scores).round(2).tolist()
        (True, [0.2, 0.32, 0.54, 0.47, 0.62, 0.85])
    """

    slope: float
    shift: float

    def __call__(self, scores: Floats) -> Floats:
        """The probabilities of the positive class."""
        return np.asarray(np.exp(-np.logaddexp(0.0, -self.logit(scores))))

    def logit(self, scores: Floats) -> Floats:
        """Their log-odds."""
        return self.slope * np.asarray(scores, np.float64) + self.shift

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers."""
        return {"kind": "platt", **asdict(self)}


@dataclass(frozen=True)
class Temperature:
    r"""Softmax of ``slope`` times the scores plus a shift for each class; slope is 1 / T > 0.

    The AUC leaves open at which level each class's scores lie, so that without the shifts the
    largest score would not be the likeliest class.

    Example:
        >>> import numpy as np
        >>> Temperature(slope=2.0, shifts=(0.0, 0.0, 1.0))(np.zeros((1, 3))).round(2).tolist()
        [[0.21, 0.21, 0.58]]
    """

    slope: float
    shifts: tuple[float, ...]

    def __call__(self, scores: Floats) -> Floats:
        """The classes' probabilities (N, c)."""
        return softmax(self.logit(scores))

    def logit(self, scores: Floats) -> Floats:
        """Their logarithms, each row's up to a constant."""
        return self.slope * np.asarray(scores, np.float64) + np.asarray(self.shifts, np.float64)

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers."""
        return {"kind": "temperature", "slope": self.slope, "shifts": list(self.shifts)}


@dataclass(frozen=True)
class PerLabel:
    """Platt scaling of each of several labels."""

    labels: tuple[Platt, ...]

    def __call__(self, scores: Floats) -> Floats:
        """The labels' probabilities (N, L)."""
        columns = zip(self.labels, np.asarray(scores, np.float64).T, strict=True)
        return np.stack([platt(column) for platt, column in columns], axis=1)

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers."""
        return {"kind": "labels", "labels": [asdict(platt) for platt in self.labels]}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> PerLabel:
        """What ``to_dict`` gave."""
        return cls(tuple(Platt(**numbers) for numbers in state["labels"]))


def are_alike(probability: Floats) -> bool:
    """Whether all rows get nearly the same, so that the odds differ by a hundredth at most.

    That is what scores come to that rank the rows to calibrate by no better than chance.
    """
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    odds = p / (1 - p)
    return bool((odds.max(axis=0) <= 1.01 * odds.min(axis=0)).all())


def from_dict(state: dict[str, Any]) -> Platt | Temperature:
    """What ``to_dict`` gave."""
    if state["kind"] == "platt":
        return Platt(state["slope"], state["shift"])
    return Temperature(state["slope"], tuple(state["shifts"]))


def fit_platt(scores: Floats, target: NDArray[Any], weight: NDArray[Any] | None = None) -> Platt:
    r"""The slope and shift of the largest likelihood, by Newton's method in double precision.

    Targets are Platt's own: :math:`(n_+ + 1) / (n_+ + 2)` for positives and
    :math:`1 / (n_- + 2)` for negatives, so that classes which do not overlap stay finite.

    Args:
        scores: of rows that the model was not trained on.
        target: 0 or 1, both of them there.
        weight: of the rows.

    Example:
        >>> import numpy as np
        >>> scores, y = np.linspace(-3, 3, 100), np.arange(100) % 3 == 0
        >>> fit_platt(scores, y)(scores).mean().round(2)  # probabilities come true on average
        np.float64(0.34)
    """
    s, positive = np.asarray(scores, np.float64), np.asarray(target) == 1
    w = np.ones(len(s)) if weight is None else np.asarray(weight, np.float64)
    w = w * (len(w) / w.sum())
    n_plus, n_minus = w[positive].sum(), w[~positive].sum()
    t = np.where(positive, (n_plus + 1) / (n_plus + 2), 1 / (n_minus + 2))
    center, spread = float(np.average(s, weights=w)), float(s.std()) or 1.0
    slope, shift = _logistic((s - center) / spread, t, w)
    if slope < LEAST_SLOPE:
        share = float(np.average(t, weights=w))
        slope, shift = LEAST_SLOPE, math.log(share / (1 - share))
    return Platt(slope / spread, shift - slope * center / spread)


def fit_temperature(
    scores: Floats, target: NDArray[Any], weight: NDArray[Any] | None = None
) -> Temperature:
    """The temperature and shifts of the largest likelihood: a convex problem.

    A target is smoothed by one row's share over the classes, so that classes which do not overlap
    stay finite.

    Args:
        scores: (N, c) of rows that the model was not trained on.
        target: 0 to c - 1.
        weight: of the rows.

    Example:
        >>> import numpy as np
        >>> scores, y = np.eye(3)[np.arange(90) % 3], np.arange(90) // 2 % 3
        >>> fit_temperature(scores, y)(scores).mean(axis=0).round(2).tolist()
        [0.33, 0.33, 0.33]
    """
    s, c = np.asarray(scores, np.float64), np.shape(scores)[1]
    w = np.ones(len(s)) if weight is None else np.asarray(weight, np.float64)
    w = w * (len(w) / w.sum())
    t = (np.eye(c)[np.asarray(target)] * len(s) + 1) / (len(s) + c)
    spread = float(s.std()) or 1.0
    slope, shifts = _multinomial(s / spread, t, w)
    if slope < LEAST_SLOPE:
        slope, shifts = LEAST_SLOPE, np.log(np.average(t, axis=0, weights=w))
    return Temperature(slope / spread, tuple(shifts.tolist()))


def fit_labels(
    scores: Floats, target: NDArray[Any], weight: NDArray[Any] | None = None
) -> PerLabel:
    """Platt scaling of each label, by the rows that know it.

    Args:
        scores: (N, L) of rows that the model was not trained on.
        target: (N, L), 0 or 1, NaN where missing.
        weight: of the rows.
    """
    return PerLabel(tuple(fit_platt(*rows) for rows in columns_known(scores, target, weight)))


def columns_known(
    scores: Floats, target: NDArray[Any], weight: NDArray[Any] | None = None
) -> Iterator[tuple[Floats, NDArray[np.int64], NDArray[Any] | None]]:
    """Of each label the scores, 0 or 1, and weights of the rows that know it."""
    for own, labels in zip(np.asarray(scores).T, np.asarray(target).T, strict=True):
        known = ~np.isnan(labels)
        kept = None if weight is None else np.asarray(weight)[known]
        yield own[known], labels[known].astype(np.int64), kept


def softmax(z: Floats) -> Floats:
    """Of each row."""
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def _logistic(s: Floats, t: Floats, w: Floats) -> tuple[float, float]:
    """Slope and shift of logistic regression on one column."""
    x = np.stack([s, np.ones_like(s)], axis=1)

    def surprise(beta: Floats) -> float:
        return float(w @ (np.logaddexp(0.0, x @ beta) - t * (x @ beta)))

    def derivatives(beta: Floats) -> tuple[Floats, Floats]:
        p = np.exp(-np.logaddexp(0.0, -(x @ beta)))
        curvature = (x * (w * p * (1 - p))[:, None]).T @ x + 1e-12 * np.eye(2)
        return x.T @ (w * (p - t)), curvature

    slope, shift = _newton(np.zeros(2), surprise, derivatives)
    return float(slope), float(shift)


def _multinomial(s: Floats, t: Floats, w: Floats) -> tuple[float, Floats]:
    """A slope for all classes and a shift for each, whose common part a tiny ridge holds."""
    c = t.shape[1]

    def surprise(theta: Floats) -> float:
        z = theta[0] * s + theta[1:]
        top = z.max(axis=1)
        return float(w @ (top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - (t * z).sum(axis=1)))

    def derivatives(theta: Floats) -> tuple[Floats, Floats]:
        p = softmax(theta[0] * s + theta[1:])
        mean = (p * s).sum(axis=1)
        gradient = np.append(w @ ((p - t) * s).sum(axis=1), w @ (p - t))
        curvature = 1e-9 * len(s) * np.eye(1 + c)
        curvature[0, 0] += w @ ((p * s**2).sum(axis=1) - mean**2)
        cross = w @ (p * (s - mean[:, None]))
        curvature[0, 1:] += cross
        curvature[1:, 0] += cross
        curvature[1:, 1:] += np.diag(w @ p) - (p * w[:, None]).T @ p
        return gradient, curvature

    theta = _newton(np.zeros(1 + c), surprise, derivatives)
    return float(theta[0]), theta[1:] - theta[1:].mean()


def _newton(
    at: Floats,
    surprise: Callable[[Floats], float],
    derivatives: Callable[[Floats], tuple[Floats, Floats]],
) -> Floats:
    """The least of a convex function by Newton steps, halved until they do not climb."""
    loss = surprise(at)
    for _ in range(100):
        gradient, curvature = derivatives(at)
        step, size = np.linalg.solve(curvature, gradient), 1.0
        while size > 1e-10 and surprise(at - size * step) > loss:
            size /= 2
        at = at - size * step
        before, loss = loss, surprise(at)
        if before - loss <= 1e-13 * abs(before):
            break
    return at
