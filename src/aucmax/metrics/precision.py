"""Average precision, the area under the precision-recall curve."""

from __future__ import annotations

import math

import numpy as np

from aucmax.metrics._rows import Values, has_both_classes, read_rows


def average_precision(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""The mean of precision over the recall gained, :math:`\sum_k (R_k - R_{k-1}) P_k`.

    Precision :math:`P_k` and recall :math:`R_k` are those of the rows at or above the k-th highest
    distinct score. Scores at random get the share of positives. Arguments as in :func:`roc_auc`.

    Example:
        >>> from aucmax.metrics import average_precision
        >>> round(average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
        0.8333
    """
    rows = read_rows(scores, target, weight)
    if not has_both_classes(rows.positive):
        return math.nan
    hits, alarms, _ = rows.counts_above()
    precision, recall = hits / (hits + alarms), hits / hits[-1]
    return float(np.diff(recall, prepend=0) @ precision)
