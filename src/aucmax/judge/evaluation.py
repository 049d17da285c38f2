"""How good a classifier is on rows that it has not seen, as one record that is kept in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from aucmax import checkpoint, metrics
from aucmax.checks import number
from aucmax.judge.binary import BinaryRows
from aucmax.judge.multiclass import MulticlassRows
from aucmax.judge.training import finite_or_none

NAME = "evaluation"
SIGNIFICANT = 0.05
"""A p value below it counts as a difference."""
NEEDED = (
    "target", "labels", "rows", "probability", "classes", "auc", "peers", "history",
    "importance", "columns", "notes", "seconds", "command", "made",
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A number with its confidence interval."""

    value: float
    low: float
    high: float
    level: float = 0.95

    @classmethod
    def of_auc(cls, scores: NDArray[np.float64], classes: NDArray[np.int64]) -> Interval:
        """The AUC with DeLong's interval; of several classes, Hand and Till's."""
        of_rows = metrics.roc_auc_interval if scores.ndim == 1 else metrics.hand_till_interval
        auc = of_rows(scores, classes)
        return cls(auc.auc, auc.low, auc.high, auc.level)


@dataclass(frozen=True)
class Part:
    """One part of the data: how many rows, and how many of each label if that is known."""

    rows: int
    counts: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Peer:
    """Another model on the same test rows; what is not known is None.

    Attributes:
        name: of the model.
        auc: on the test rows.
        low: of its interval.
        high: of its interval.
        p_value: of a paired test against the model that is judged.
        seconds: to fit it.
    """

    name: str
    auc: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    seconds: float | None = None

    def verdict(self, ours: float) -> Literal["better", "same", "worse", "untested"]:
        """How our AUC compares with this model's, by the p value alone."""
        if self.p_value is None or self.auc is None:
            return "untested"
        if self.p_value >= SIGNIFICANT:
            return "same"
        return "better" if ours > self.auc else "worse"


@dataclass(frozen=True)
class Importance:
    """By how much the AUC falls when a column is shuffled, and the spread over shuffles."""

    column: str
    drop: float
    sd: float | None = None


@dataclass(frozen=True)
class Column:
    """A raw column: its kind, the share that is missing, and what its values are like."""

    name: str
    kind: str
    missing: float | None = None
    distinct: int | None = None
    typical: str | None = None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How good a classifier is on its test rows, and how it came about.

    What cannot be right is refused, so that every record can be shown.

    Attributes:
        target: the column that is predicted.
        labels: of the classes; of two, the negative first.
        parts: the rows that it was trained on ("train"), chosen by ("valid") and judged by
            ("test").
        probability: of the positive label for each test row, (rows,); of several labels
            (rows, labels).
        classes: the place of each test row's label among ``labels``.
        auc: on the test rows; of several labels Hand and Till's mean over pairs.
        threshold: the probability from which a row is flagged; None with several labels.
        peers: other models on the same test rows.
        importance: of the columns, the most important first.
        columns: of the table.
        history: the records of the training.
        metric: by which the weights were chosen, a name in ``history``.
        notes: what a person should know.
        seconds: of the training; None if unknown.
        command: what was typed.
        versions: of the software, and the day.
    """

    target: str
    labels: tuple[str, ...]
    parts: Mapping[str, Part]
    probability: NDArray[np.float64]
    classes: NDArray[np.int64]
    auc: Interval
    threshold: float | None = None
    peers: tuple[Peer, ...] = ()
    importance: tuple[Importance, ...] = ()
    columns: tuple[Column, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    metric: str = "roc_auc"
    notes: tuple[str, ...] = ()
    seconds: float | None = None
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            value = getattr(self.auc, name)
            number(f"auc[{name!r}]", value, "a number from 0 to 1", lambda x: 0 <= x <= 1)
        inside = "a number strictly between 0 and 1"
        number("auc['level']", self.auc.level, inside, lambda x: 0 < x < 1)
        counts, test = self.rows.counts, self.parts["test"]
        if test.rows != sum(counts):
            raise ValueError(
                f"rows['test'] must be that of classes, {sum(counts)}, found {test.rows}"
            )
        if test.counts != counts:
            raise ValueError(
                f"counts['test'] must be that of classes, {counts}, found {test.counts}"
            )

    @cached_property
    def rows(self) -> BinaryRows | MulticlassRows:
        """The test rows, to compute from."""
        level = self.auc.level
        if len(self.labels) > 2:
            return MulticlassRows(self.probability, self.classes, level, self.labels)
        return BinaryRows.of(self.probability, self.classes, self.threshold, level, self.labels)

    @property
    def average_precision(self) -> float | None:
        """On the test rows; None of several labels."""
        return self.rows.average_precision if isinstance(self.rows, BinaryRows) else None

    @property
    def recall(self) -> float | None:
        """The share of the positives that is flagged; None of several labels."""
        return self.rows.at_threshold.recall if isinstance(self.rows, BinaryRows) else None

    @property
    def specificity(self) -> float | None:
        """The share of the negatives that is left alone; None of several labels."""
        return self.rows.at_threshold.specificity if isinstance(self.rows, BinaryRows) else None

    def to_dict(self) -> dict[str, Any]:
        """The file's content: plain values, and arrays of the test rows."""
        counts = {part: about.counts for part, about in self.parts.items() if about.counts}
        plain = {
            "target": self.target,
            "labels": list(self.labels),
            "rows": {part: about.rows for part, about in self.parts.items()},
            "probability": self.probability,
            "classes": self.classes,
            "auc": asdict(self.auc),
            "peers": [asdict(peer) for peer in self.peers],
            "importance": [asdict(column) for column in self.importance],
            "columns": [asdict(column) for column in self.columns],
            "history": [dict(record) for record in self.history],
            "metric": self.metric,
            "notes": list(self.notes),
            "seconds": self.seconds,
            "command": self.command,
            "made": dict(self.versions),
        }
        if isinstance(self.rows, MulticlassRows):
            return {**plain, "counts": {part: list(each) for part, each in counts.items()}}
        positives = {part: each[1] for part, each in counts.items()}
        return {**plain, "positives": positives, "threshold": self.threshold}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Evaluation:
        """The record of what :meth:`to_dict` gave; a file may lack the metric."""
        several = len(content.get("labels", ())) > 2
        needed = [*NEEDED, "counts"] if several else [*NEEDED, "positives", "threshold"]
        if missing := [name for name in needed if name not in content]:
            raise ValueError(
                f"evaluation must hold {', '.join(needed)}, found no {', '.join(missing)}"
            )
        if isinstance(content["labels"], str):
            raise ValueError(f"labels must be a list of labels, found {content['labels']!r}")
        return cls(
            target=content["target"],
            labels=tuple(map(str, content["labels"])),
            parts=_parts(content, several),
            probability=np.asarray(content["probability"], np.float64),
            classes=np.asarray(content["classes"]),
            auc=Interval(**content["auc"]),
            threshold=None if several else content["threshold"],
            peers=_records(Peer, content["peers"]),
            importance=_records(
                Importance, [x for x in content["importance"] if math.isfinite(x["drop"])]
            ),
            columns=_records(Column, content["columns"]),
            history=tuple(content["history"]),
            metric=content.get("metric", "roc_auc"),
            notes=tuple(content["notes"]),
            seconds=finite_or_none(content["seconds"]),
            command=content["command"],
            versions=content["made"],
        )

    def write(self, folder: Path) -> None:
        """Keep it beside the model of a folder."""
        arrays = {"probability": self.probability, "classes": self.classes}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        checkpoint.save(folder, NAME, {**self.to_dict(), **tensors})

    @classmethod
    def read(cls, folder: Path) -> Evaluation:
        """The evaluation of a model's folder.

        Raises:
            ValueError: if there is none, or its files are not those that were written.
        """
        if not (folder / f"{NAME}.json").exists():
            raise ValueError(
                f"folder must be one that aucmax fit made, found no {NAME}.json in {folder}: a "
                f"model saved from Python does not know its target's name"
            )
        content = checkpoint.load(folder, NAME)
        arrays = {name: content[name].numpy() for name in ("probability", "classes")}
        return cls.from_dict({**content, **arrays})


Record = TypeVar("Record", Peer, Importance, Column)


def _parts(content: Mapping[str, Any], several: bool) -> dict[str, Part]:
    """How many rows each part has, and of each label where the file has it."""
    parts = {}
    for part, rows in content["rows"].items():
        counts = content["counts" if several else "positives"].get(part)
        if not several and counts is not None:
            counts = (rows - counts, counts)
        parts[part] = Part(rows, tuple(counts) if counts else None)
    return parts


def _records(kind: type[Record], contents: Sequence[Mapping[str, Any]]) -> tuple[Record, ...]:
    """Of each dictionary one record, in which None stands for numbers that are not finite."""

    def plain(value: Any) -> Any:
        return finite_or_none(value) if isinstance(value, float) else value

    return tuple(kind(**{k: plain(v) for k, v in each.items()}) for each in contents)
