"""How good a classifier of several labels is: an evaluation of each, by the rows that know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax import checkpoint
from aucmax.judge.evaluation import NAME, Evaluation, Part
from aucmax.judge.interval import Floats, Interval


@dataclass(frozen=True, eq=False)
class LabelEvaluations:
    """How good a classifier of several labels is on its test rows.

    Attributes:
        by_label: of each label, its name the ``target``, by the test rows that know it. What is
            said of the model as a whole, such as ``notes``, all of them have alike.
        rows: how many the model was fitted to ("fit") and is judged by ("test").

    Example:
        >>> p = np.array([[0.9, 0.2], [0.6, 0.7], [0.3, 0.8], [0.1, 0.5]])
        >>> y = np.array([[1, 0], [0, np.nan], [1, 1], [0, 0]])
        >>> judged = evaluate_labels(
        ...     ["edema", "nodule"], p, p, y, thresholds=[0.5, 0.5], rows={"test": 4}
        ... )
        >>> [(x.target, x.auc.value) for x in judged.best_first], judged.mean_auc
        ([('nodule', 1.0), ('edema', 0.75)], 0.875)
    """

    by_label: tuple[Evaluation, ...]
    rows: Mapping[str, int]

    @property
    def mean_auc(self) -> float:
        """The mean of the labels' AUCs."""
        return fmean(x.auc.value for x in self.by_label)

    @property
    def best_first(self) -> list[Evaluation]:
        """By their AUC."""
        return sorted(self.by_label, key=lambda x: -x.auc.value)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know."""
        return self.by_label[0].notes

    def write(self, folder: Path) -> None:
        """Keep it beside the model of a folder."""
        by_label = [x.to_tree() for x in self.by_label]
        checkpoint.save(folder, NAME, {"by_label": by_label, "rows": dict(self.rows)})


def read_evaluation(folder: Path) -> Evaluation | LabelEvaluations:
    """The evaluation of a model's folder, by label if it has several.

    Raises:
        ValueError: see :meth:`~aucmax.judge.evaluation.Evaluation.read`.
    """
    if Evaluation.is_in(folder) and "by_label" in (content := checkpoint.load(folder, NAME)):
        by_label = tuple(map(Evaluation.from_tree, content["by_label"]))
        return LabelEvaluations(by_label, content["rows"])
    return Evaluation.read(folder)


def evaluate_labels(
    labels: Sequence[str],
    scores: Floats,
    probability: Floats,
    target: NDArray[Any],
    *,
    thresholds: Sequence[float],
    rows: Mapping[str, int],
    counts: Mapping[str, Sequence[int]] = MappingProxyType({}),
    weight: Floats | None = None,
    group: NDArray[np.int64] | None = None,
    **about: Any,
) -> LabelEvaluations:
    """Judge each label by the test rows that know it.

    Args:
        labels: L names.
        scores: (N, L) of the test rows.
        probability: likewise.
        target: (N, L), 0 or 1, NaN where that is not known; both are there of each label.
        thresholds: of each label.
        rows: see :class:`LabelEvaluations`.
        counts: of other parts than the test rows the positives of each label, then the negatives.
        weight: of the test rows.
        group: of the test rows, which the intervals take as drawn whole.
        about: more of :class:`~aucmax.judge.evaluation.Evaluation`, the same of all labels.
    """
    found = []
    for k, label in enumerate(labels):
        known = ~np.isnan(target[:, k])
        classes = target[known, k].astype(np.int64)
        own, drawn = (None if x is None else x[known] for x in (weight, group))
        parts = {part: (each[len(labels) + k], each[k]) for part, each in counts.items()}
        parts["test"] = int((classes == 0).sum()), int((classes == 1).sum())
        found.append(
            Evaluation(
                target=label,
                labels=(f"no {label}", label),
                parts={part: Part(sum(each), each) for part, each in parts.items()},
                probability=probability[known, k],
                classes=classes,
                auc=Interval.of_auc(scores[known, k], classes, weight=own, group=drawn),
                threshold=thresholds[k],
                weight=own,
                **about,
            )
        )
    return LabelEvaluations(tuple(found), rows)
