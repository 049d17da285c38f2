"""The metrics that models are chosen, stopped and reported by: one table.

To add one, write its function in :mod:`aucmax.metrics` and give it a row in :data:`METRICS`.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from aucmax import metrics

ITERATES = ("last", "average")


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
        name: in options, such as ``metric="roc_auc"``.
        label: for people to read.
        key: in the records of a history: ``valid_<key>_last``.
        binary: of scores, labels and weights of two classes.
        multiclass: the same of one row of probabilities per example; None is the mean over the
            classes, each against the rest.
    """

    name: str
    label: str
    key: str
    binary: Callable[..., float]
    multiclass: Callable[..., float] | None = None

    def history_key(self, part: str, iterate: str) -> str:
        """Where a record has the value: part is "train", "valid" or "test"."""
        return f"{part}_{self.key}_{iterate}"

    def __call__(self, scored: Scored, task: str) -> float:
        """The value for rows of a task; nan, with a warning, where it is not defined.

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
            return float(self.binary(scores, target, weight))
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
        return math.fsum(self.binary(*column[:3]) for column in columns) / len(columns)


def _rows_that_know(scored: Scored, label: int) -> Scored:
    scores, target, weight, group = scored
    known = ~torch.isnan(target[:, label])
    if weight is not None:
        weight = (weight if weight.ndim == 1 else weight[:, label])[known]
    group = None if group is None else group[known]
    return Scored(scores[known, label], target[known, label], weight, group)


ROC_AUC = Metric("roc_auc", "AUC", "auc", metrics.roc_auc, metrics.hand_till)
AVERAGE_PRECISION = Metric(
    "average_precision", "average precision", "average_precision", metrics.average_precision
)
MetricName = Literal["roc_auc", "average_precision"]
METRICS = {metric.name: metric for metric in (ROC_AUC, AVERAGE_PRECISION)}


def find_metric(metric: str | Callable[..., float] | Metric) -> Metric:
    """The metric of that name, or one made of a function of scores, labels and weights.

    A function of one's own is called by its name in records: ``valid_<name>_last``. For several
    classes it gets a row of probabilities per example.
    """
    if isinstance(metric, Metric):
        return metric
    for row in METRICS.values():
        if metric == row.name or metric is row.binary:
            return row
    if callable(metric):
        name = str(getattr(metric, "__name__", type(metric).__name__)).strip("<>")
        if any(name in (row.name, row.key) for row in METRICS.values()):
            raise ValueError(f"metric must have a name of its own, found a function named {name!r}")
        _check_arguments(metric, name)
        return Metric(name, name.replace("_", " "), name, metric, metric)
    raise ValueError(
        f"metric must be one of {', '.join(map(repr, METRICS))} or a function of scores, labels "
        f"and weights, found {metric!r}"
    )


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
    """The higher value of the two iterates in a history's record; nan if neither has one."""
    values = [record.get(metric.history_key(part, iterate)) for iterate in ITERATES]
    return max((x for x in values if x is not None and math.isfinite(x)), default=math.nan)
