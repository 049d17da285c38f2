"""The metrics of two classes in one table: how each is called, and what it refuses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aucmax import metrics


@dataclass(frozen=True)
class MetricInfo:
    """A metric, its interval and its paired test, all with the same options.

    Attributes:
        name: of the metric, or of the options that make it another.
        function, interval, paired: the three.
        options: what they take besides scores, labels and weights.
        bad_options: values that must raise, by the argument that is wrong.
        grouped: whether it needs a group for each row.
    """

    name: str
    function: Callable[..., float]
    interval: Callable[..., metrics.ConfidenceInterval]
    paired: Callable[..., metrics.PairedTest]
    options: dict[str, Any] = field(default_factory=dict)
    bad_options: dict[str, list[Any]] = field(default_factory=dict)
    grouped: bool = False

    def _options(self, rows, own):
        group = {"group": np.zeros(rows)} if self.grouped else {}
        return {**group, **self.options, **own}

    def value(self, scores, target, rows=4, **options):
        return self.function(scores, target, **self._options(rows, options))

    def interval_of(self, scores, target, rows=4, **options):
        return self.interval(scores, target, **self._options(rows, options))

    def compare(self, a, b, target, rows=4, **options):
        return self.paired(a, b, target, **self._options(rows, options))


INFOS = [
    MetricInfo("roc_auc", metrics.roc_auc, metrics.roc_auc_interval, metrics.delong_test),
    MetricInfo(
        "average_precision",
        metrics.average_precision,
        metrics.average_precision_interval,
        metrics.average_precision_test,
    ),
    MetricInfo(
        "partial_auc",
        metrics.partial_auc,
        metrics.partial_auc_interval,
        metrics.partial_auc_test,
        {"max_fpr": 0.2},
        {"max_fpr": [0, 1.5], "min_tpr": [1, -0.1, np.nan]},
    ),
    MetricInfo(
        "two-way",
        metrics.partial_auc,
        metrics.partial_auc_interval,
        metrics.partial_auc_test,
        {"max_fpr": 0.4, "min_tpr": 0.3},
    ),
    MetricInfo(
        "tpr_at_fpr",
        metrics.tpr_at_fpr,
        metrics.tpr_at_fpr_interval,
        metrics.tpr_at_fpr_test,
        {"fpr": 0.2},
        {"fpr": [-0.1, 2]},
    ),
    MetricInfo(
        "precision_at",
        metrics.precision_at,
        metrics.precision_at_interval,
        metrics.precision_at_test,
        {"share": 0.15},
        {"share": [0, 1.5, True]},
    ),
    MetricInfo(
        "count",
        metrics.precision_at,
        metrics.precision_at_interval,
        metrics.precision_at_test,
        {"share": 60},
    ),
    MetricInfo(
        "grouped_auc",
        metrics.grouped_auc,
        metrics.grouped_auc_interval,
        metrics.grouped_auc_test,
        bad_options={"group": [[1, 1], [1, np.nan, 1, 1], ["a", None, None, "b"]]},
        grouped=True,
    ),
]
