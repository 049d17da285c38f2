r"""Exact ranking metrics: AUC, whole, in part and within groups, and precision at the top.

Scores are raw outputs of a model: tensors of any device and real dtype, NumPy arrays or lists.
They are compared in the precision they came in, and pairs are counted in integers: no tie is made
or lost, and a tied pair counts one half. A weight counts a row as often as it says. Without rows of
both classes the answer is ``nan``, with a ``UserWarning``; wrong input is a ``ValueError``.
:func:`interval` says how sure a value is, and :func:`compare` whether two models differ.
"""

from typing import Any

from aucmax.metrics.curve import (
    ROCCurve,
    average_precision,
    partial_auc,
    precision_at,
    roc_auc,
    roc_curve,
    tpr_at_fpr,
)
from aucmax.metrics.grouped import grouped_auc
from aucmax.metrics.multiclass import hand_till
from aucmax.metrics.streaming import StreamingAUC
from aucmax.metrics.uncertainty import ConfidenceInterval, PairedTest, compare, interval

AUCInterval, DeLongTest = ConfidenceInterval, PairedTest

__all__ = [
    "AUCInterval",
    "ConfidenceInterval",
    "DeLongTest",
    "PairedTest",
    "ROCCurve",
    "StreamingAUC",
    "average_precision",
    "compare",
    "grouped_auc",
    "hand_till",
    "interval",
    "partial_auc",
    "precision_at",
    "roc_auc",
    "roc_curve",
    "tpr_at_fpr",
]

_NAMES = {
    "roc_auc": '"roc_auc"',
    "partial_auc": '"partial_auc@0.1"',
    "tpr_at_fpr": '"tpr_at_fpr@0.1"',
    "average_precision": '"average_precision"',
    "precision_at": '"precision_at@0.1"',
    "grouped_auc": '"roc_auc", rank_within=group',
    "hand_till": '"hand_till"',
}
"""How metrics are passed to the functions that took the place of ``*_interval`` and ``*_test``."""


def __getattr__(name: str) -> Any:
    metric, _, kind = name.rpartition("_")
    metric = "roc_auc" if name == "delong_test" else metric
    if metric in _NAMES and kind in ("interval", "test") and name != "roc_auc_test":
        call = "interval(scores" if kind == "interval" else "compare(a, b"
        raise ImportError(
            f"aucmax.metrics.{name} is now aucmax.metrics.{call}, target, {_NAMES[metric]})"
        )
    raise AttributeError(f"module 'aucmax.metrics' has no attribute {name!r}")
