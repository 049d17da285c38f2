"""The metrics that models are chosen, stopped and reported by: one table.

To add one, write its function in :mod:`aucmax.metrics` and give it a row in :data:`METRICS`.
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
from aucmax.metrics.partial import check_fpr, check_range
from aucmax.metrics.precision import check_share

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
        name: in options, such as ``metric="roc_auc"``; with its numbers, if it has some:
            "partial_auc@0.1".
        label: for people to read.
        key: in the records of a history: ``valid_<key>_last``.
        binary: of scores, labels and weights of two classes; of scores, labels, groups and weights
            if it needs groups.
        multiclass: the same of one row of probabilities per example; None is the mean over the
            classes, each against the rest.
        needs_group: whether it compares rows of one group alone.
        numbers: the arguments that a name gives after "@", each with its words in the label; the
            first must be there.
        given: these arguments, as a name has given them.
        check: raises unless these numbers are right.
        paired: tests whether two models differ, of the scores of both and else as ``binary``; None
            if there is no such test.
    """

    name: str
    label: str
    key: str
    binary: Callable[..., float]
    multiclass: Callable[..., float] | None = None
    needs_group: bool = False
    numbers: tuple[tuple[str, str], ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict, compare=False)
    check: Callable[..., object] | None = None
    paired: Callable[..., metrics.PairedTest] | None = None

    def history_key(self, part: str, iterate: str) -> str:
        """Where a record has the value: part is "train", "valid" or "test"."""
        return f"{part}_{self.key}_{iterate}"

    @property
    def form(self) -> str:
        """How its name is written, with its numbers."""
        first, *others = (argument.upper() for argument, _ in self.numbers or [("", "")])
        return self.name + (f"@{first}" if first else "") + "".join(f"[,{x}]" for x in others)

    @property
    def range(self) -> Mapping[str, float]:
        """The rates between which a partial AUC counts; none of any other metric."""
        return self.given if self.name.startswith("partial_auc@") else {}

    @property
    def is_known(self) -> bool:
        """Whether its name alone tells which it is: not that of a user's own function."""
        return self.name.partition("@")[0] in METRICS

    def at(self, text: str) -> Metric:
        """With the numbers of that text, such as "0.1"; without any there must be none."""
        if not self.numbers and not text:
            return self
        wrong = f"metric must be written {self.form}, found {self.name + '@' * bool(text) + text!r}"
        values = [_number(part) for part in text.split(",")]
        if len(values) > len(self.numbers) or self.check is None:
            raise ValueError(wrong)
        given = {argument: x for (argument, _), x in zip(self.numbers, values, strict=False)}
        try:
            self.check(**given)
        except ValueError as error:
            raise ValueError(f"{wrong}: {error}") from None
        name = f"{self.name}@{','.join(map(str, values))}"
        words = [how.format(x) for (_, how), x in zip(self.numbers, values, strict=False)]
        label = f"{self.label} ({', '.join(words)})"
        return replace(
            self, name=name, label=label, key=name, numbers=(), given=given,
            binary=partial(_with_numbers, self.binary, given),
            paired=self.paired and partial(_with_numbers, self.paired, given),
        )  # fmt: skip

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
        """Whether two models that score the same rows of two classes differ; None if none tells."""
        if self.paired is None:
            return None
        return self.paired(scores_a, scores_b, target, *self._more(weight, group))

    def compare(self, scored: Scored, others: Tensor, task: str) -> int | None:
        """1 if a paired test sees the scores ahead of others' of the same rows, -1 if behind.

        0 if it sees neither, None if there is no test for the metric and the task.
        """
        if task != "binary":
            return None
        scores, target, weight, group = scored
        given = scores.reshape(-1), others.to(scores.device).reshape(-1)
        test = self.test(*given, target, weight, group)
        if test is None or math.isnan(test.p_value):
            return None
        return 0 if test.p_value >= SEEN else int(math.copysign(1, test.difference))

    def _of_two_classes(self, scored: Scored) -> float:
        return float(self.binary(*scored[:2], *self._more(scored.weight, scored.group)))

    def _more(self, weight: Tensor | None, group: Tensor | None) -> tuple[Tensor | None, ...]:
        """What the functions take after the labels."""
        if not self.needs_group:
            return (weight,)
        if group is None:
            raise ValueError(f"rows must have groups for the metric {self.name}, found none")
        return group, weight


def _with_numbers(
    function: Callable[..., Any], numbers: dict[str, Any], *rows_and_weight: Any
) -> Any:
    """It calls a function of which numbers stand between the rows and their weights."""
    *rows, weight = rows_and_weight
    return function(*rows, **numbers, weight=weight)


def _rows_that_know(scored: Scored, label: int) -> Scored:
    scores, target, weight, group = scored
    known = ~torch.isnan(target[:, label])
    if weight is not None:
        weight = (weight if weight.ndim == 1 else weight[:, label])[known]
    group = None if group is None else group[known]
    return Scored(scores[known, label], target[known, label], weight, group)


def _number(text: str) -> float | str:
    """Whole numbers are counts, others shares; what is no number its reader refuses."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


SEEN = 0.05
"""The p-value below which a paired test sees a difference."""
ROC_AUC = Metric(
    "roc_auc", "AUC", "auc", metrics.roc_auc, metrics.hand_till, paired=metrics.delong_test
)
METRICS = {
    metric.name: metric
    for metric in (
        ROC_AUC,
        Metric(
            "average_precision", "average precision", "average_precision",
            metrics.average_precision, paired=metrics.average_precision_test,
        ),
        Metric(
            "grouped_auc", "AUC within groups", "grouped_auc", metrics.grouped_auc,
            needs_group=True, paired=metrics.grouped_auc_test,
        ),
        Metric(
            "partial_auc", "partial AUC", "partial_auc", metrics.partial_auc,
            numbers=(("max_fpr", "FPR <= {}"), ("min_tpr", "TPR >= {}")), check=check_range,
            paired=metrics.partial_auc_test,
        ),
        Metric(
            "tpr_at_fpr", "TPR", "tpr_at_fpr", metrics.tpr_at_fpr,
            numbers=(("fpr", "FPR <= {}"),), check=check_fpr, paired=metrics.tpr_at_fpr_test,
        ),
        Metric(
            "precision_at", "precision", "precision_at", metrics.precision_at,
            numbers=(("share", "top {}"),), check=check_share, paired=metrics.precision_at_test,
        ),
    )
}  # fmt: skip
FORMS = tuple(metric.form for metric in METRICS.values())
"""How their names are written."""
MetricName: TypeAlias = (
    Literal[
        "roc_auc", "average_precision", "grouped_auc", "partial_auc@0.1", "tpr_at_fpr@0.1",
        "precision_at@0.1",
    ]
    | str
)  # fmt: skip
"""Names to offer; the numbers may be others."""


def default_metric(grouped: bool) -> str:
    """The name of the metric where none is named: of rows with or without groups."""
    return "grouped_auc" if grouped else ROC_AUC.name


def find_metric(metric: str | Callable[..., float] | Metric) -> Metric:
    """The metric of that name, or one made of a function of scores, labels and weights.

    Some names have a number after "@": "partial_auc@0.1", or "partial_auc@0.1,0.5" with the least
    true positive rate, "tpr_at_fpr@0.01", "precision_at@0.05" or "precision_at@100". A function of
    one's own is called by its name in records: ``valid_<name>_last``. For several classes it gets
    a row of probabilities per example.
    """
    if isinstance(metric, Metric):
        return metric.at("")
    if isinstance(metric, str):
        name, _, text = metric.partition("@")
        if name in METRICS:
            return METRICS[name].at(text)
    for row in METRICS.values():
        if metric is row.binary:
            return row.at("")
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
    """The metric that records call so; of a user's own function they know the name alone."""
    if name.partition("@")[0] in METRICS:
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
    """The higher value of the two iterates in a history's record; nan if neither has one."""
    values = [record.get(metric.history_key(part, iterate)) for iterate in ITERATES]
    return max((x for x in values if x is not None and math.isfinite(x)), default=math.nan)
