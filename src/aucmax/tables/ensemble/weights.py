"""How much each of several models counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from aucmax.judge.calibration import softmax
from aucmax.tables.ensemble.base import Scores

PULL = 10.0
"""Towards equal weights: as much as some dozens of rows of the rarer class have to say."""


def likeliest_weights(
    scores: Sequence[Scores], classes: NDArray[Any], weight: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    r"""The weights under which the labels are likeliest, drawn towards equal ones.

    Of M models with log-odds :math:`z_m` they are those of least

    .. math:: \sum_i w_i \log \big(1 + e^{-y_i (\sum_m a_m z_{mi} + b)}\big)
              + \text{PULL} \cdot M \sum_m (a_m - 1/M)^2, \qquad a_m \ge 0,

    with labels :math:`y_i = \pm 1` and weights of rows :math:`w_i` of mean 1, over their sum; of
    several classes the first part is cross-entropy, with a shift b for each. Few rows leave the
    weights near equal, where following them closely would be following chance; many move them.

    Args:
        scores: of each model, (N, 1) log-odds or (N, c) logarithms of probabilities.
        classes: of the rows, from 0.
        weight: of the rows.

    Example:
        >>> import numpy as np
        >>> from aucmax.tables.ensemble.weights import likeliest_weights
        >>> y = np.arange(1000) % 2
        >>> good, noise = np.random.default_rng(0).normal(size=(2, 1000, 1))
        >>> likeliest_weights([good + 2 * y[:, None] - 1, noise], y).round(1).tolist()
        [1.0, 0.0]
    """
    z = np.stack(scores)
    models, rows, outputs = z.shape
    equal, each = np.full(models, 1 / models), np.arange(rows)
    w = np.ones(rows) if weight is None else weight / weight.mean(dtype=np.float64)

    def surprise(found: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """What is to be least, and its gradient."""
        a, shifts = found[:models], found[models:]
        total = np.tensordot(a, z, 1) + shifts
        if outputs == 1:  # the first class has the score 0
            total = np.concatenate([np.zeros_like(total), total], axis=1)
        p, away = softmax(total), a - equal
        value = PULL * models * (away @ away) - w @ np.log(np.maximum(p[each, classes], 1e-300))
        p[each, classes] -= 1
        rest = p[:, -outputs:] * w[:, None]
        slopes = np.tensordot(z, rest, 2) + 2 * PULL * models * away
        return value, np.append(slopes, rest.sum(axis=0))

    start = np.append(equal, np.zeros(outputs))
    limits = [(0.0, None)] * models + [(None, None)] * outputs
    found = minimize(surprise, start, jac=True, method="L-BFGS-B", bounds=limits).x[:models]
    return np.asarray(found / found.sum()) if found.any() else equal
