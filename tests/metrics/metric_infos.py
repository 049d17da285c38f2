"""The metrics in one table: how each is called, alone, with its interval and in a paired test."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aucmax import metrics

CLUSTER = 5  # rows


@dataclass(frozen=True)
class MetricInfo:
    """A metric as a function and by name.

    Attributes:
        name: Of the metric, with its options.
        function: Of scores, labels and weights.
        options: What the name says, as keywords of the function.
        bad_options: Values that must raise, by the argument that is wrong.
        grouped: Whether it ranks within groups; here they are of ``CLUSTER`` rows.
    """

    name: str
    function: Callable[..., float]
    options: dict[str, Any] = field(default_factory=dict)
    bad_options: dict[str, list[Any]] = field(default_factory=dict)
    grouped: bool = False

    def group(self, target):
        return np.arange(np.shape(target)[0] if np.ndim(target) else 1) // CLUSTER

    def value(self, scores, target, **options):
        groups = {"group": self.group(target)} if self.grouped else {}
        return self.function(scores, target, **{**self.options, **groups, **options})

    def interval(self, scores, target, **options):
        groups = {"rank_within": self.group(target)} if self.grouped else {}
        return metrics.interval(scores, target, self.name, **{**groups, **options})

    def compare(self, a, b, target, **options):
        groups = {"rank_within": self.group(target)} if self.grouped else {}
        return metrics.compare(a, b, target, self.name, **{**groups, **options})


INFOS = [
    MetricInfo("roc_auc", metrics.roc_auc),
    MetricInfo("average_precision", metrics.average_precision),
    MetricInfo(
        "partial_auc@0.2",
        metrics.partial_auc,
        {"max_fpr": 0.2},
        {"max_fpr": [0, 1.5], "min_tpr": [1, -0.1, np.nan]},
    ),
    MetricInfo("partial_auc@0.4,0.3", metrics.partial_auc, {"max_fpr": 0.4, "min_tpr": 0.3}),
    MetricInfo("tpr_at_fpr@0.2", metrics.tpr_at_fpr, {"fpr": 0.2}, {"fpr": [-0.1, 2]}),
    MetricInfo(
        "precision_at@0.15",
        metrics.precision_at,
        {"share": 0.15},
        {"share": [0, 1.5, True, None], "k": [3]},
    ),
    MetricInfo(
        "precision_at@k=60",
        metrics.precision_at,
        {"k": 60},
        {"k": [0, 2.5, True, None], "share": [0.1]},
    ),
    MetricInfo(
        "grouped_auc",
        metrics.grouped_auc,
        bad_options={"group": [[1, 1], [1, np.nan, 1, 1], ["a", None, None, "b"]]},
        grouped=True,
    ),
    MetricInfo("grouped_auc@mean", metrics.grouped_auc, {"mean": True}, grouped=True),
]
