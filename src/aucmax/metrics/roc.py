"""The area under the ROC curve, and the curve."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from aucmax.metrics import _gpu
from aucmax.metrics._pairs import share_won
from aucmax.metrics._rows import Floats, Values, has_both_classes, read_rows


class ROCCurve(NamedTuple):
    """The points of a ROC curve, from (0, 0) at an infinite threshold to (1, 1).

    Example:
        >>> from aucmax import metrics
        >>> curve = metrics.roc_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        >>> isinstance(curve, metrics.ROCCurve), curve.tpr.tolist()
        (True, [0.0, 0.5, 0.5, 1.0, 1.0])
    """

    fpr: Floats
    tpr: Floats
    thresholds: Floats


def roc_auc(scores: Values, target: Values, weight: Values | None = None) -> float:
    r"""The probability that a random positive scores above a random negative.

    .. math::
        \mathrm{AUC} = \frac{1}{n_+ n_-} \sum_{i: y_i = 1} \sum_{j: y_j = 0}
            \Bigl(\mathbb{1}[s_i > s_j] + \tfrac12 \mathbb{1}[s_i = s_j]\Bigr),

    each pair multiplied by :math:`w_i w_j` if weights are given. On the CPU the classes are sorted
    apart and one is looked up in the other; on the GPU, if all arguments are there, one sort of all
    scores tells: :math:`O(n \log n)` both.

    Args:
        scores: Raw scores, (N,) or (N, 1).
        target: Labels 0 and 1, one per score.
        weight: Finite weights of at least 0, one per score.

    Example:
        >>> from aucmax.metrics import roc_auc
        >>> roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
        0.75
    """
    tensors = _gpu.tensors_on_gpu(scores, target, weight)
    if tensors is not None and not math.isnan(auc := _gpu.roc_auc(*tensors)):
        return auc
    rows = read_rows(scores, target, weight)
    if not has_both_classes(rows.positive):
        return math.nan
    if rows.weight is None:
        return share_won(*rows.by_class())
    hits, alarms, _ = rows.counts_above()
    area = np.diff(alarms, prepend=0) @ (hits - np.diff(hits, prepend=0) / 2)
    return min(1.0, float(area / hits[-1] / alarms[-1]))


def roc_curve(scores: Values, target: Values, weight: Values | None = None) -> ROCCurve:
    r"""The true positive rate against the false positive rate.

    These are :math:`P(s \ge t \mid y = 1)` and :math:`P(s \ge t \mid y = 0)` for the threshold t at
    infinity and at each distinct score, the highest first; ``nan`` if the class is absent.
    Arguments as in :func:`roc_auc`, which is the area under the curve.

    Example:
        >>> from aucmax.metrics import roc_curve
        >>> print(*roc_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]))
        [0.  0.  0.5 0.5 1. ] [0.  0.5 0.5 1.  1. ] [ inf 0.8  0.4  0.35 0.1 ]
    """
    rows = read_rows(scores, target, weight)
    has_both_classes(rows.positive)
    hits, alarms, thresholds = rows.counts_above()
    fpr, tpr = (np.append(0, sums) / (sums[-1] or math.nan) for sums in (alarms, hits))
    return ROCCurve(fpr, tpr, np.append(math.inf, thresholds))
