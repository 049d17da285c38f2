"""Which labels the probabilities of rows contradict more than chance explains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BY_CHANCE = 1 / 3
"""The largest share of the rows found that right labels may bring; pages say a third."""


def contradicted(
    probability: Floats, classes: NDArray[np.int64], weight: Floats | None = None
) -> NDArray[np.int64]:
    r"""Numbers of the rows whose labels are least to be believed, the least likely label first.

    If the labels of rows are drawn by their probabilities :math:`p_{ik}`, those with a label of
    probability q or less are expected to number :math:`E(q) = \sum_{ik} p_{ik} [p_{ik} \le q]`.
    Rows are found up to the largest q at which they number :math:`E(q)` / :data:`BY_CHANCE` at
    least (Benjamini and Hochberg's rule, with what is expected in place of its bound). So a rare
    label is not doubtful because it is rare: among many rows with 1 % some have it. What is found
    is a label in places where the probabilities, right on average, leave hardly any room for it.

    Args:
        probability: of the second of two classes, (N,), or of each, (N, c), calibrated, and by
            models that were not trained on the row.
        classes: of the rows.
        weight: how much each counts.

    Example:
        >>> import numpy as np
        >>> likely = np.r_[np.full(98, 0.002), 0.004, 0.9]
        >>> contradicted(likely, np.r_[np.zeros(98, int), 1, 1]).tolist()
        [98]
        >>> contradicted(np.full(100, 0.01), np.r_[np.zeros(99, int), 1]).tolist()
        []
    """
    p = np.stack([1 - probability, probability], axis=1) if probability.ndim == 1 else probability
    w = np.ones(len(p)) if weight is None else weight
    given = p[np.arange(len(p)), classes]
    order = np.argsort(given, kind="stable")
    by_size = np.argsort(p, axis=None)
    expected = (p * w[:, None]).ravel()[by_size].cumsum()
    below = np.searchsorted(p.ravel()[by_size], given[order], "right") - 1
    enough = expected[below] <= BY_CHANCE * w[order].cumsum()
    found = order[: np.flatnonzero(enough).max(initial=-1) + 1]
    return np.asarray(found[given[found] < p[found].max(axis=1)])
