"""How good a classifier is on rows that it has not seen, as one record that is kept in a file."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from aucmax import checkpoint
from aucmax.checks import check_finite, check_weights, number
from aucmax.judge.binary import BinaryRows
from aucmax.judge.interval import Interval, are_enough, rows_needed
from aucmax.judge.multiclass import MulticlassRows
from aucmax.judge.training import Point
from aucmax.train import Candidate
from aucmax.train.metrics import Scored, metric_in_records
from aucmax.version import __version__

NAME, ARRAYS = "evaluation", ("probability", "classes", "weight")
SIGNIFICANT = 0.05
"""A p value below it counts as a difference."""


@dataclass(frozen=True)
class Part:
    """One part of the data: how many rows, and how many of each label if that is known."""

    rows: int
    counts: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Groups:
    """Test rows in groups, within which alone they are compared.

    Attributes:
        column: that names a row's group.
        count: how many groups there are.
        compared: how many of them have rows of several labels.
        auc: the share of pairs within groups that are ranked right; None of several labels.
    """

    column: str
    count: int
    compared: int
    auc: Interval | None


@dataclass(frozen=True)
class Peer:
    """Another model on the same test rows.

    Attributes:
        name: of the model.
        auc: on the test rows.
        p_value: of a paired test against the model that is judged; None if the test rows are too
            few to compare models by.
        seconds: to fit it; None if unknown.
        score: on the test rows, by the metric of the evaluation; None of several labels, or if
            unknown.
        grouped_auc: on the test rows, within groups; None if the model is not judged so.
        reliable: whether it is a baseline that a model can be shown to be better than.
    """

    name: str
    auc: Interval
    p_value: float | None
    seconds: float | None = None
    score: float | None = None
    grouped_auc: Interval | None = None
    reliable: bool = True

    @property
    def compared_auc(self) -> Interval:
        """That of the test: within groups, if the model is judged so."""
        return self.grouped_auc or self.auc

    def comparison(self, ours: float) -> Literal["better", "same", "worse"] | None:
        """Compare a model of this AUC with the peer.

        None if the peer is not reliable; that it is ahead all the same, still counts.
        """
        found = compare_aucs(ours, self.compared_auc.value, self.p_value)
        return found if self.reliable or found == "worse" else None


@dataclass(frozen=True)
class Model:
    """One of the models that scores are averaged over.

    Attributes:
        name: of the model.
        weight: its share in what moves the average; 0 if it was left out.
        auc: out of fold, within groups if models are compared so; None if it was not fitted.
        p_value: of a paired test against the best; None of the best, or if there is none.
        seconds: to fit it; None if unknown.
        left_out: why; empty if it was not.
        score: out of fold, by the metric of the evaluation; None if unknown.
    """

    name: str
    weight: float
    auc: Interval | None
    p_value: float | None = None
    seconds: float | None = None
    left_out: str = ""
    score: float | None = None

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Model:
        """What :func:`dataclasses.asdict` gave."""
        return cls(**{**content, "auc": _interval(content["auc"])})


@dataclass(frozen=True)
class Doubtful:
    """A row that was trained on, and whose label the other rows contradict.

    Attributes:
        row: its number in the file, the first being 1.
        label: that it has.
        probability: of that label, by fits that were not trained on the row.
        likelier: the label that they take for the likeliest.
        name: what is in the column that names rows; None if there is no such column.
    """

    row: int
    label: str
    probability: float
    likelier: str
    name: str | None = None


@dataclass(frozen=True)
class Importance:
    """By how much the AUC falls when a column is shuffled, and the spread over shuffles."""

    column: str
    drop: float
    sd: float


@dataclass(frozen=True)
class Column:
    """A raw column.

    Attributes:
        name: of the column.
        kind: such as "number".
        missing: the share of values that are.
        distinct: how many values there are.
        typical: the most frequent one; empty if all differ.
        written: an example, if it is written in another way than programs do.
    """

    name: str
    kind: str
    missing: float
    distinct: int
    typical: str
    written: str = ""


def compare_aucs(
    ours: float, theirs: float, p_value: float | None
) -> Literal["better", "same", "worse"]:
    """How our AUC compares with another's: the same unless a paired test tells them apart.

    Without a p value, for the rows are too few, nothing does.
    """
    if p_value is None or p_value >= SIGNIFICANT:
        return "same"
    return "better" if ours > theirs else "worse"


def score_by(
    metric: str,
    scores: NDArray[np.float64],
    classes: NDArray[np.int64],
    weight: NDArray[np.float64] | None,
) -> float | None:
    """The metric of that name of rows of two classes; None if more than these is needed."""
    known = metric_in_records(metric)
    if not known.is_known or known.needs_group:
        return None
    columns = (None if x is None else torch.from_numpy(x) for x in (scores, classes, weight))
    return known(Scored(*columns), "binary")  # type: ignore[arg-type]


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
        threshold_rule: how it was chosen, such as "balanced" or "recall=0.9".
        peers: other models on the same test rows.
        importance: of the columns, the most important first.
        columns: of the table.
        history: the records of the training.
        metric: by which the weights were chosen, a name in ``history``.
        steady: the point of ``history`` whose weights were kept by ``choose="steady"``; None if
            the best were kept.
        candidates: the objectives that were chosen from, the best first; none if one was given.
        notes: what a person should know.
        warnings: why results may mislead, shown beside them.
        seconds: of the training; None if unknown.
        command: what was typed.
        versions: of the software, and the day.
        weight: of the test rows, all above 0; None if they count alike.
        weight_column: that held it; None if there was none.
        groups: of the test rows; None if they have none.
        id_column: that names a row, which predictions carry; None if there is none.
        time_column: by which the past was trained on and the future judges; None if there is none.
        files: SHA-256 of the files that the model was fitted to, empty if unknown.
        models: that scores are averaged over, and those that were left out, the best first; none
            if unknown.
        promised: the AUC out of fold, before the test rows were looked at; within groups if models
            are compared so; None if rows were not scored by fits that had not seen them.
        promised_score: the same by the metric; None if unknown.
        doubtful: labels worth checking, the least likely first; None if nobody looked.
        noun: what a row is to people, such as a picture.
    """

    target: str
    labels: tuple[str, ...]
    parts: Mapping[str, Part]
    probability: NDArray[np.float64]
    classes: NDArray[np.int64]
    auc: Interval
    threshold: float | None = None
    threshold_rule: str = "balanced"
    peers: tuple[Peer, ...] = ()
    importance: tuple[Importance, ...] = ()
    columns: tuple[Column, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    metric: str = "roc_auc"
    steady: Point | None = None
    candidates: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float | None = None
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    weight: NDArray[np.float64] | None = None
    weight_column: str | None = None
    groups: Groups | None = None
    id_column: str | None = None
    time_column: str | None = None
    files: str = ""
    models: tuple[Model, ...] = ()
    promised: Interval | None = None
    promised_score: float | None = None
    doubtful: tuple[Doubtful, ...] | None = None
    noun: str = "row"

    def __post_init__(self) -> None:
        of_models = {f"auc of {model.name}": model.auc for model in self.models}
        aucs = {"auc": self.auc, "auc within groups": self.compared_auc, "promised": self.promised}
        for about, auc in {**aucs, **of_models}.items():
            for name in ("value", "low", "high") if auc else ():
                value = getattr(auc, name)
                number(f"{about}.{name}", value, "a number from 0 to 1", lambda x: 0 <= x <= 1)
        weights = [model.weight for model in self.models]
        if weights and not (min(weights) >= 0 and math.isclose(math.fsum(weights), 1)):
            raise ValueError(f"models must have weights that add up to 1, found {weights}")
        inside = "a number strictly between 0 and 1"
        number("auc.level", self.auc.level, inside, lambda x: 0 < x < 1)
        p, y, count = self.probability, self.classes, len(self.labels)
        if count < 2 or len(set(self.labels)) < count:
            raise ValueError(f"labels must be two or more that differ, found {list(self.labels)}")
        if y.ndim != 1 or p.shape != ((len(y),) if count == 2 else (len(y), count)):
            raise ValueError(
                f"probability must have a number per row, of several labels one for each, found "
                f"{p.shape} for {y.shape} classes and {count} labels"
            )
        check_finite("probability", p)
        if p.min() < 0 or p.max() > 1:
            raise ValueError(f"probability must be from 0 to 1, found {p.min():g} to {p.max():g}")
        if p.ndim == 2 and not np.allclose(p.sum(axis=1), 1, atol=1e-6):
            raise ValueError("probability must add up to 1 in every row, found other sums")
        there, counts = np.unique(y, return_counts=True)
        if there.tolist() != list(range(count)):
            raise ValueError(f"classes must hold 0 to {count - 1}, found {there.tolist()[:9]}")
        test = Part(len(y), tuple(counts.tolist()))
        if self.parts.get("test") != test:
            raise ValueError(
                f"parts must have the rows of classes in 'test', {test}, found "
                f"{self.parts.get('test')}"
            )
        if self.weight is not None:
            check_weights(self.weight)
            if self.weight.shape != y.shape or self.weight.min() == 0:
                raise ValueError("weight must have a number above 0 per row of classes")
        if count == 2:
            number("threshold", self.threshold, "a number from 0 to 1", lambda x: 0 <= x <= 1)

    @cached_property
    def rows(self) -> BinaryRows | MulticlassRows:
        """The test rows, to compute from."""
        level, weight = self.auc.level, self.weight
        weight = None if weight is None else weight * (len(weight) / weight.sum())
        if self.threshold is None or len(self.labels) > 2:
            return MulticlassRows(self.probability, self.classes, level, self.labels, weight)
        no, yes = self.labels
        about = self.threshold, level, no, yes, weight
        return BinaryRows(self.probability, self.classes == 1, *about)

    @property
    def is_cross_fitted(self) -> bool:
        """Whether the rows that were trained on have judged too, by fits that do not know them."""
        return self.promised is not None and not self.parts.get("valid", Part(0)).rows

    @property
    def compared_auc(self) -> Interval:
        """What models are compared by: the AUC, within groups if rows have some."""
        return (self.groups and self.groups.auc) or self.auc

    @property
    def is_enough(self) -> bool:
        """Whether the test rows can tell models apart: ten of every label at least.

        Compared within groups, ten groups with both labels too.
        """
        return are_enough(self.rows.counts) and self.has_groups_enough

    @property
    def has_groups_enough(self) -> bool:
        """Whether groups, where models are compared within them, can tell models apart."""
        groups = self.groups
        return groups is None or groups.auc is None or are_enough([groups.compared])

    @property
    def rows_needed(self) -> int:
        """About how many test rows of the rarest label make the AUC's interval narrow."""
        return rows_needed(self.auc, self.rows.counts)

    @property
    def score(self) -> float | None:
        """On the test rows, by the metric; None of several labels, or if more is needed."""
        if not isinstance(self.rows, BinaryRows):
            return None
        return score_by(self.metric, self.probability, self.classes, self.weight)

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
        plain = {
            "target": self.target,
            "labels": list(self.labels),
            "rows": {part: about.rows for part, about in self.parts.items()},
            "probability": self.probability,
            "classes": self.classes,
            "auc": asdict(self.auc),
            "peers": [
                {"name": x.name, "auc": x.auc.value, "low": x.auc.low, "high": x.auc.high}
                | {"p_value": x.p_value, "seconds": x.seconds}
                | {"score": x.score, "reliable": x.reliable}
                | ({"grouped_auc": asdict(x.grouped_auc)} if x.grouped_auc else {})
                for x in self.peers
            ],
            "importance": [asdict(column) for column in self.importance],
            "columns": [asdict(column) for column in self.columns],
            "history": [dict(record) for record in self.history],
            "metric": self.metric,
            "steady": self.steady and self.steady._asdict(),
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "seconds": self.seconds,
            "command": self.command,
            "made": dict(self.versions),
            "weight_column": self.weight_column,
            "groups": self.groups and asdict(self.groups),
            "id_column": self.id_column,
            "time_column": self.time_column,
            "files": self.files,
            "models": [asdict(model) for model in self.models],
            "promised": self.promised and asdict(self.promised),
            "promised_score": self.promised_score,
            "doubtful": None if self.doubtful is None else [asdict(x) for x in self.doubtful],
            "noun": self.noun,
        }
        if self.weight is not None:
            plain["weight"] = self.weight
        counts = {part: list(about.counts) for part, about in self.parts.items() if about.counts}
        if isinstance(self.rows, MulticlassRows):
            return {**plain, "counts": counts}
        positives = {part: each[1] for part, each in counts.items()}
        own = {"threshold": self.threshold, "threshold_rule": self.threshold_rule}
        return {**plain, "positives": positives, **own}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Evaluation:
        """The record of what :meth:`to_dict` gave.

        A file of an earlier version may lack some of it, and have p values of too few rows.
        """
        several = len(content["labels"]) > 2
        parts = {}
        for part, rows in content["rows"].items():
            counts = content["counts" if several else "positives"].get(part)
            if not several and counts is not None:
                counts = (rows - counts, counts)
            parts[part] = Part(rows, tuple(counts) if counts else None)
        groups, doubtful = content.get("groups"), content.get("doubtful")
        by_precision = content.get("metric") == "average_precision"
        compared = are_enough(np.bincount(content["classes"], minlength=2).tolist())
        return cls(
            target=content["target"],
            labels=tuple(content["labels"]),
            parts=parts,
            probability=content["probability"],
            classes=content["classes"],
            auc=Interval(**content["auc"]),
            threshold=content.get("threshold"),
            threshold_rule=content.get("threshold_rule", "balanced"),
            peers=tuple(
                Peer(
                    x["name"],
                    Interval(x["auc"], x["low"], x["high"]),
                    x["p_value"] if compared else None,
                    x["seconds"],
                    x.get("score", x.get("average_precision") if by_precision else None),
                    _interval(x.get("grouped_auc")),
                    x.get("reliable", True),
                )
                for x in content["peers"]
            ),
            importance=tuple(Importance(**column) for column in content["importance"]),
            columns=tuple(Column(**column) for column in content["columns"]),
            history=tuple(content["history"]),
            metric=content.get("metric", "roc_auc"),
            steady=Point(**content["steady"]) if content.get("steady") else None,
            candidates=tuple(map(Candidate.from_dict, content.get("candidates", ()))),
            notes=tuple(content["notes"]),
            warnings=tuple(content.get("warnings", ())),
            seconds=content["seconds"],
            command=content["command"],
            versions=content["made"],
            weight=content.get("weight"),
            weight_column=content.get("weight_column"),
            groups=groups and Groups(**{**groups, "auc": _interval(groups["auc"])}),
            id_column=content.get("id_column"),
            time_column=content.get("time_column"),
            files=content.get("files", ""),
            models=tuple(map(Model.from_dict, content.get("models", ()))),
            promised=_interval(content.get("promised")),
            promised_score=content.get("promised_score"),
            doubtful=None if doubtful is None else tuple(Doubtful(**row) for row in doubtful),
            noun=content.get("noun", "row"),
        )

    def to_tree(self) -> dict[str, Any]:
        """The same with tensors, as checkpoints have them."""
        content = self.to_dict()
        tensors = {name: torch.from_numpy(content[name]) for name in ARRAYS if name in content}
        return {**content, **tensors}

    @classmethod
    def from_tree(cls, content: Mapping[str, Any]) -> Evaluation:
        """The record of what :meth:`to_tree` gave."""
        arrays = {name: content[name].numpy() for name in ARRAYS if name in content}
        return cls.from_dict({**content, **arrays})

    def write(self, folder: Path) -> None:
        """Keep it beside the model of a folder."""
        checkpoint.save(folder, NAME, self.to_tree())

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a model's folder holds one: a model saved from Python has none."""
        return (folder / f"{NAME}.json").exists()

    @classmethod
    def read(cls, folder: Path) -> Evaluation:
        """The evaluation of a model's folder.

        Raises:
            ValueError: if there is none, or its files are not those that were written.
        """
        if not cls.is_in(folder):
            raise ValueError(
                f"folder must be one that aucmax fit or fit-images made, found no {NAME}.json in "
                f"{folder}: a model saved from Python is judged there, by its score(X, y)"
            )
        return cls.from_tree(checkpoint.load(folder, NAME))


def versions() -> dict[str, str]:
    """Of the software, and the day."""
    return {
        "aucmax": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }


def _interval(content: Mapping[str, float] | None) -> Interval | None:
    return None if content is None else Interval(**content)
