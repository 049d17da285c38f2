"""The metrics that models are chosen, stopped and reported by.

To add one, write its function in :mod:`aucmax.metrics`, give it a row in
:data:`aucmax.metrics.named.METRICS`, and one in :data:`LABELS`.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from aucmax import metrics
from aucmax.metrics import named

ITERATES = ("last", "average")
SIGNIFICANCE = 0.05
"""The p-value below which a paired test sees a difference."""

LABELS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "roc_auc": ("AUC", {}),
    "average_precision": ("average precision", {}),
    "grouped_auc": ("AUC within groups", {"mean": "mean of groups"}),
    "partial_auc": ("partial AUC", {"max_fpr": "FPR <= {}", "min_tpr": "TPR >= {}"}),
    "tpr_at_fpr": ("TPR", {"fpr": "FPR <= {}"}),
    "precision_at": ("precision", {"share": "top {}", "k": "top {}"}),
}
"""The label of each metric, and the words for its options."""
FORMS = tuple(named.METRICS[name].form for name in LABELS)
"""How their names are written."""
MetricName: TypeAlias = (
    Literal[
        "roc_auc",
        "average_precision",
        "grouped_auc",
        "partial_auc@0.1",
        "tpr_at_fpr@0.1",
        "precision_at@0.1",
    ]
    | str
)
"""Names to offer; the numbers may be others."""


class Scored(NamedTuple):
    """Scores, labels and, if there are any, weights and groups of the same rows."""

    scores: Tensor
    target: Tensor
    weight: Tensor | None
    group: Tensor | None = None


@dataclass(frozen=True)
class Metric:
    """One number that says how good scores are; higher is better.

    Attributes:
        name: In options, with its numbers: "roc_auc", "partial_auc@0.1".
        label: For people to read.
        key: In the records of a history: ``valid_<key>_last``.
        function: Of scores, labels and weights of two classes; of scores, labels, groups and
            weights if it needs groups.
        multiclass: The same of one row of probabilities per example; None is the mean over the
            classes, each against the rest.
        needs_group: Whether it compares rows of one group alone.
        options: The numbers that the name gives, by the arguments of the function.
        has_test: Whether two models may be compared: not where the rows are no independent draws.
    """

    name: str
    label: str
    key: str
    function: Callable[..., float]
    multiclass: Callable[..., float] | None = None
    needs_group: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)
    has_test: bool = True

    def history_key(self, part: str, iterate: str) -> str:
        """Return the key of the value in a record: part is "train", "valid" or "test"."""
        return f"{part}_{self.key}_{iterate}"

    @property
    def range(self) -> Mapping[str, float]:
        """The rates between which a partial AUC counts; none of any other metric."""
        return self.options if self.name.startswith("partial_auc@") else {}

    @property
    def is_known(self) -> bool:
        """Whether its name alone tells which it is: not that of a user's own function."""
        return self.name.partition("@")[0] in LABELS

    def __call__(self, scored: Scored, task: str) -> float:
        """Return the value for rows of a task; nan, with a warning, where it is not defined.

        Several labels get the mean of each one's value over the rows that know it.
        """
        scores, target, weight, group = scored
        if not bool(scores.isfinite().all()):
            warnings.warn(
                "the result is nan: scores hold NaN or infinity", UserWarning, stacklevel=2
            )
            return math.nan
        if task == "binary":
            if scores.numel() == target.numel():  # (N, 1) would spread against labels (N,)
                scores = scores.reshape(target.shape)
            return self._of_two_classes(Scored(scores, target, weight, group))
        if task == "multilabel":
            columns = [_rows_that_know(scored, label) for label in range(target.shape[1])]
        else:
            probabilities = scores.double().softmax(-1)
            if self.multiclass is not None:
                return float(self.multiclass(probabilities, target, weight))
            columns = [
                Scored(share, (target == number).double(), weight, group)
                for number, share in enumerate(probabilities.unbind(-1))
            ]
        return math.fsum(map(self._of_two_classes, columns)) / len(columns)

    def test(
        self,
        scores_a: Tensor,
        scores_b: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        group: Tensor | None = None,
    ) -> metrics.PairedTest | None:
        """Compare two models that score the same rows of two classes; None without a test."""
        if not (self.is_known and self.has_test):
            return None
        within = self._group(group) if self.needs_group else None
        return metrics.compare(
            scores_a, scores_b, target, self.name, weight=weight, rank_within=within
        )

    def compare(self, scored: Scored, others: Tensor, task: str) -> int | None:
        """Return 1 if a paired test sees the scores ahead of others of the same rows, -1 if behind.

        0 if it sees neither, None if there is no test for the metric and the task.
        """
        if task != "binary":
            return None
        scores, target, weight, group = scored
        models = scores.reshape(-1), others.to(scores.device).reshape(-1)
        test = self.test(*models, target, weight, group)
        if test is None or math.isnan(test.p_value):
            return None
        return 0 if test.p_value >= SIGNIFICANCE else int(math.copysign(1, test.difference))

    def _of_two_classes(self, scored: Scored) -> float:
        scores, target, weight, group = scored
        groups = [self._group(group)] if self.needs_group else []
        return float(self.function(scores, target, *groups, weight))

    def _group(self, group: Tensor | None) -> Tensor:
        if group is None:
            raise ValueError(f"rows must have groups for the metric {self.name}, found none")
        return group


def _rows_that_know(scored: Scored, label: int) -> Scored:
    scores, target, weight, group = scored
    known = ~torch.isnan(target[:, label])
    if weight is not None:
        weight = (weight if weight.ndim == 1 else weight[:, label])[known]
    group = None if group is None else group[known]
    return Scored(scores[known, label], target[known, label], weight, group)


def _metric(name: str, options: Mapping[str, Any]) -> Metric:
    """Return the metric of the table with these options."""
    label, words = LABELS[name]
    if options:
        limits = [words[option].format(value) for option, value in options.items()]
        label = f"{label} ({', '.join(limits)})"
    whole = named.write_name(name, options)
    function = named.METRICS[name].function
    return Metric(
        whole,
        label,
        "auc" if name == "roc_auc" else whole,
        partial(function, **options) if options else function,
        metrics.hand_till if name == "roc_auc" else None,
        name == "grouped_auc",
        options,
    )


METRICS = {name: _metric(name, {}) for name in LABELS}
ROC_AUC = METRICS["roc_auc"]


def default_metric(grouped: bool) -> str:
    """Return the name of the metric where none is named: of rows with or without groups."""
    return "grouped_auc" if grouped else ROC_AUC.name


def find_metric(metric: str | Callable[..., float] | Metric) -> Metric:
    """Return the metric of that name, or one made of a function of scores, labels and weights.

    Some names have a number after "@": "partial_auc@0.1", or "partial_auc@0.1,0.5" with the least
    true positive rate, "tpr_at_fpr@0.01", "precision_at@0.05" (a share of the rows) or
    "precision_at@k=100". A function of one's own is called by its name in records:
    ``valid_<name>_last``. For several classes it gets a row of probabilities per example.
    """
    if isinstance(metric, Metric):
        return metric
    for name, row in METRICS.items():
        if metric is row.function:
            metric = name
    if isinstance(metric, str) and metric.partition("@")[0] in LABELS:
        return _metric(*named.read_name(metric))
    if callable(metric):
        name = str(getattr(metric, "__name__", type(metric).__name__)).strip("<>")
        if any(name in (row.name, row.key) for row in METRICS.values()):
            raise ValueError(f"metric must have a name of its own, found a function named {name!r}")
        _check_arguments(metric, name)
        return Metric(name, name.replace("_", " "), name, metric, metric)
    raise ValueError(
        f"metric must be one of {', '.join(FORMS)} or a function of scores, labels and weights, "
        f"found {metric!r}"
    )


def metric_in_records(name: str) -> Metric:
    """Return the metric that records call so; of a user's own function they know the name alone.

    Records of 0.2 have "precision_at@100" for 100 rows.
    """
    metric, _, number = name.partition("@")
    if metric == "precision_at" and number.isdecimal():
        return replace(find_metric(f"precision_at@k={number}"), name=name, key=name)
    if metric in LABELS:
        return find_metric(name)
    return Metric(name, name.replace("_", " "), name, lambda *_, **__: math.nan)


def _check_arguments(metric: Callable[..., float], name: str) -> None:
    """Raise unless it can be called with scores, labels and weights."""
    try:
        signature = inspect.signature(metric)
    except (TypeError, ValueError):  # one written in C may not tell
        return
    try:
        signature.bind(None, None, None)
    except TypeError:
        raise ValueError(
            f"metric must be a function of scores, labels and weights, found {name}{signature}"
        ) from None


def best_value(record: dict[str, Any], metric: Metric, part: str = "valid") -> float:
    """Return the higher value of the two iterates in a record; nan if neither has one."""
    values = [record.get(metric.history_key(part, iterate)) for iterate in ITERATES]
    return max((x for x in values if x is not None and math.isfinite(x)), default=math.nan)
