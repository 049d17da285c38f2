r"""Exact ranking metrics: AUC, whole, in part and within groups, and precision at the top.

Scores are raw outputs of a model: tensors of any device and real dtype, NumPy arrays or lists.
They are compared in the precision they came in, and pairs are counted in integers: no tie is made
or lost, and a tied pair counts one half. A weight counts a row as often as it says. Without rows of
both classes the answer is ``nan``, with a ``UserWarning``; wrong input is a ``ValueError``.
"""

from aucmax.metrics.delong import delong_test, roc_auc_interval
from aucmax.metrics.grouped import grouped_auc, grouped_auc_interval, grouped_auc_test
from aucmax.metrics.multiclass import hand_till, hand_till_interval, hand_till_test
from aucmax.metrics.partial import (
    partial_auc,
    partial_auc_interval,
    partial_auc_test,
    tpr_at_fpr,
    tpr_at_fpr_interval,
    tpr_at_fpr_test,
)
from aucmax.metrics.precision import (
    average_precision,
    average_precision_interval,
    average_precision_test,
    precision_at,
    precision_at_interval,
    precision_at_test,
)
from aucmax.metrics.roc import ROCCurve, roc_auc, roc_curve
from aucmax.metrics.streaming import StreamingAUC
from aucmax.metrics.uncertainty import ConfidenceInterval, PairedTest

AUCInterval, DeLongTest = ConfidenceInterval, PairedTest

__all__ = [
    "AUCInterval",
    "ConfidenceInterval",
    "DeLongTest",
    "PairedTest",
    "ROCCurve",
    "StreamingAUC",
    "average_precision",
    "average_precision_interval",
    "average_precision_test",
    "delong_test",
    "grouped_auc",
    "grouped_auc_interval",
    "grouped_auc_test",
    "hand_till",
    "hand_till_interval",
    "hand_till_test",
    "partial_auc",
    "partial_auc_interval",
    "partial_auc_test",
    "precision_at",
    "precision_at_interval",
    "precision_at_test",
    "roc_auc",
    "roc_auc_interval",
    "roc_curve",
    "tpr_at_fpr",
    "tpr_at_fpr_interval",
    "tpr_at_fpr_test",
]
