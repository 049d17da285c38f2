r"""Exact ranking metrics: AUC, whole, in part and within groups, and precision at the top.

Scores are raw outputs of a model: tensors of any device and real dtype, NumPy arrays or lists.
They are compared in the precision they came in, and pairs are counted in integers: no tie is made
or lost, and a tied pair counts one half. A weight counts a row as often as it says. Without rows of
both classes the answer is ``nan``, with a ``UserWarning``; wrong input is a ``ValueError``.
"""

from aucmax.metrics.delong import AUCInterval, DeLongTest, delong_test, roc_auc_interval
from aucmax.metrics.grouped import grouped_auc
from aucmax.metrics.multiclass import hand_till, hand_till_interval, hand_till_test
from aucmax.metrics.partial import partial_auc, tpr_at_fpr
from aucmax.metrics.precision import average_precision, precision_at
from aucmax.metrics.roc import ROCCurve, roc_auc, roc_curve
from aucmax.metrics.streaming import StreamingAUC

__all__ = [
    "AUCInterval",
    "DeLongTest",
    "ROCCurve",
    "StreamingAUC",
    "average_precision",
    "delong_test",
    "grouped_auc",
    "hand_till",
    "hand_till_interval",
    "hand_till_test",
    "partial_auc",
    "precision_at",
    "roc_auc",
    "roc_auc_interval",
    "roc_curve",
    "tpr_at_fpr",
]
