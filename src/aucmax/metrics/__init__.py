"""Exact ranking metrics: AUC with interval and test, Hand and Till's M, average precision."""

from aucmax.metrics.auc import (
    AUCInterval,
    DeLongTest,
    ROCCurve,
    StreamingAUC,
    average_precision,
    delong_test,
    hand_till,
    hand_till_interval,
    hand_till_test,
    roc_auc,
    roc_auc_interval,
    roc_curve,
)

__all__ = [
    "AUCInterval",
    "DeLongTest",
    "ROCCurve",
    "StreamingAUC",
    "average_precision",
    "delong_test",
    "hand_till",
    "hand_till_interval",
    "hand_till_test",
    "roc_auc",
    "roc_auc_interval",
    "roc_curve",
]
