"""How good a model is on rows that it has not seen, and the page that shows it."""

from __future__ import annotations

import datetime
import math
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aucmax import disk, metrics
from aucmax.data.labels import has_pairs
from aucmax.judge.calibration import fit_temperature, softmax
from aucmax.judge.doubtful import contradicted
from aucmax.judge.evaluation import (
    Column,
    Doubtful,
    Evaluation,
    Groups,
    Importance,
    Model,
    Part,
    versions,
)
from aucmax.judge.interval import Interval
from aucmax.tables._values import to_text
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import Columns
from aucmax.tables.encoder import Encoded, TableEncoder
from aucmax.tables.ensemble.base import Scores
from aucmax.tables.hints import one_label_groups
from aucmax.tables.importance import drops_by_column
from aucmax.tables.labeled import Labeled, read_labeled
from aucmax.tables.read_options import ReadOptions
from aucmax.tables.samples import fair_sample, some_groups
from aucmax.tables.several import Paths, files_of, listed
from aucmax.tables.store import plain_number
from aucmax.train.options import find_device

MOST_DOUBTFUL = 20
"""Labels worth checking that are listed."""
MOST_ROWS, MOST_SECONDS = 2000, 30.0
"""For the importance of columns: rows that are scored again, and when it is enough."""


class ScoredRows(NamedTuple):
    """Rows that a model has encoded and scored: once, for all that is said of them.

    Attributes:
        encoded: their columns as numbers.
        probability: of the second class, (N,), or of each of several, (N, c).
        ranking: what their AUC is of: raw scores, or the probabilities of several classes.
    """

    encoded: Encoded
    probability: NDArray[np.float64]
    ranking: NDArray[np.float64]

    @classmethod
    def of(cls, model: AUCClassifier, encoded: Encoded) -> ScoredRows:
        """Score rows that the model's encoder has encoded."""
        scores = model.score_encoded(encoded)
        probability = model.calibration_(scores)
        return cls(encoded, probability, scores if scores.ndim == 1 else probability)


def groups_of(scored: ScoredRows, rows: Labeled, column: str | None) -> Groups | None:
    """How the rows rank within their groups; None if none of these has rows of several labels."""
    if column is None or rows.group is None:
        return None
    compared, auc = int(has_pairs(rows.group, rows.classes).sum()), None
    if not compared:
        return None
    if len(rows.labels) == 2:
        auc = Interval.of_grouped_auc(scored.ranking, rows.classes, rows.group, weight=rows.weight)
    return Groups(column, len(np.unique(rows.group)), compared, auc)


def importance(
    model: AUCClassifier, scored: ScoredRows, rows: Labeled, seed: int = 0
) -> tuple[Importance, ...]:
    """By how much the AUC falls when a column is shuffled, the largest first.

    Within groups, if rows of two labels have some. Of wide tables only as many columns are asked
    as there is time for.
    """
    random, binary = np.random.default_rng(seed), len(rows.labels) == 2
    encoded, ranking = scored.encoded, scored.ranking
    if len(rows.classes) > MOST_ROWS:
        if binary and rows.group is not None:
            chosen = some_groups(rows.classes, rows.group, MOST_ROWS, random)
        else:
            chosen = fair_sample(rows.classes, MOST_ROWS, random)
        encoded, ranking, rows = encoded.select(chosen), ranking[chosen], rows.select(chosen)

    def auc_of(ranking: NDArray[np.float64]) -> float:
        if not binary:
            return metrics.hand_till(ranking, rows.classes, rows.weight)
        if rows.group is None:
            return metrics.roc_auc(ranking, rows.classes, rows.weight)
        return metrics.grouped_auc(ranking, rows.classes, rows.group, rows.weight)

    def auc_of_encoded(encoded: Encoded) -> float:
        return auc_of(ScoredRows.of(model, encoded).ranking)

    drops = drops_by_column(
        model.encoder_, encoded, auc_of_encoded, auc_of(ranking), random, MOST_SECONDS
    )
    columns = [Importance(name, float(x.mean()), float(x.std())) for name, x in drops.items()]
    return tuple(sorted(columns, key=lambda column: -column.drop))


def out_of_fold(
    model: AUCClassifier, train: Labeled, valid: Labeled | None, *, within: bool
) -> dict[str, Any]:
    """What the record of a model says by scores of rows that its fits were not trained on.

    Args:
        model: just fitted.
        train: what it was fitted to.
        valid: rows that were given to judge the fits by; None if those of ``train`` did.
        within: whether rows are compared within their groups.

    Returns:
        Arguments of :class:`Evaluation`; none if no rows have judged.
    """
    if not hasattr(model, "oof_scores_"):  # a stream's
        return {}
    rows, first = (train, 0) if valid is None else (valid, train.table.rows)
    scores = {name: x[first : first + rows.table.rows] for name, x in model.oof_scores_.items()}
    whole = model.ensemble_.combine(scores)
    judged = np.flatnonzero(~np.isnan(whole[:, 0]))
    if not len(judged):
        return {}
    classes, weight = rows.classes[judged], None if rows.weight is None else rows.weight[judged]

    def auc_of(scores: Scores) -> Interval:
        ranking = scores[:, 0] if scores.shape[1] == 1 else softmax(scores)
        if within and rows.group is not None:
            return Interval.of_grouped_auc(ranking, classes, rows.group[judged], weight=weight)
        return Interval.of_auc(ranking, classes, weight=weight)

    models = []
    for x in sorted(model.standings_, key=lambda x: (math.isnan(x.score), -x.score)):
        auc = None
        if x.name in scores:
            own = scores[x.name][judged]
            if own.shape[1] > 1:  # else the scale does not matter
                own = fit_temperature(own, classes, weight).logit(own)
            auc = auc_of(own)
        score, p_value, seconds = (plain_number(y) for y in (x.score, x.p_value, x.seconds))
        models.append(Model(x.name, x.weight, auc, p_value, seconds, x.left_out, score))
    of_whole = whole[judged, 0] if whole.shape[1] == 1 else whole[judged]
    probability = model.calibration_(of_whole)
    doubtful = None
    if rows.places is not None and valid is None:
        doubtful = _doubtful(rows, judged, probability, contradicted(probability, classes, weight))
    return {
        "models": tuple(models),
        "promised": auc_of(model.calibration_.logit(of_whole).reshape(len(judged), -1)),
        "promised_score": plain_number(model.validation_score_),
        "doubtful": doubtful,
    }


def _doubtful(
    rows: Labeled,
    judged: NDArray[np.int64],
    probability: NDArray[np.float64],
    found: NDArray[np.int64],
) -> tuple[Doubtful, ...]:
    """Some of the rows that were judged, by their place in the file."""
    assert rows.places is not None
    p = probability if probability.ndim == 2 else np.stack([1 - probability, probability], 1)
    doubtful = []
    for k in found[:MOST_DOUBTFUL].tolist():
        place, label = int(rows.places[judged[k]]), int(rows.classes[judged[k]])
        named = None if rows.names is None else rows.names[place].as_py()
        name = None if named is None else str(named)
        likelier = rows.labels[int(p[k].argmax())]
        doubtful.append(Doubtful(place + 1, rows.labels[label], float(p[k, label]), likelier, name))
    return tuple(doubtful)


def describe_columns(encoder: TableEncoder, table: Columns) -> tuple[Column, ...]:
    """Name and kind of every raw column, and what its values are like."""
    words = {"bool": "yes/no", "time": "time of day", "text": "category"}
    values, columns = dict(zip(table.names, table.values, strict=True)), []
    for field in encoder._fitted:
        used = field.kind if field.format is None else field.format.kind
        kind = "unused" if field.kind == "unused" else words.get(used, used)
        written = "" if field.format is None else field.format.example
        columns.append(replace(_describe(field.name, kind, values[field.name]), written=written))
    return tuple(columns)


def _describe(name: str, kind: str, values: NDArray[Any]) -> Column:
    """How many values are missing, how many differ, and the most frequent one."""
    if values.dtype == object:
        counts = Counter(x for x in values.tolist() if x is not None)
        typical = min(counts, key=lambda x: (-counts[x], x), default="")
        if len(counts) == counts.total() > 1:  # they all differ
            typical = ""
        return Column(name, kind, 1 - counts.total() / len(values), len(counts), typical)
    there = values[values == values]
    distinct, often = np.unique(there, return_counts=True)
    typical = ""
    if len(there) == 1 or len(distinct) < len(there):  # else they all differ
        typical = to_text(distinct[[often.argmax()]])[0]
        if kind == "time of day":  # in seconds
            midnight = datetime.datetime.min
            typical = str((midnight + datetime.timedelta(seconds=float(typical))).time())
    return Column(name, kind, 1 - len(there) / len(values), len(distinct), typical)


def evaluate_file(
    folder: str | Path,
    data: Paths,
    reading: ReadOptions | None = None,
    *,
    weight: str | None = None,
    group: str | None = None,
    device: str = "auto",
) -> Evaluation:
    """How good a model is on the rows of a file that has its target.

    Args:
        folder: of the model.
        data: CSV, Parquet or Arrow, as in ``fit_file``, with the target's column.
        reading: how the file is written.
        weight: the column of the rows' weights; None counts them alike.
        group: the column of the rows' groups; None is that of ``fit_file``, if it is there.
        device: "auto" is the GPU if there is one.

    Returns:
        A record with the AUC and its interval (``auc.value``, ``auc.low``, ``auc.high``), within
        groups too if rows have some (``groups.auc``), the
        counts of the labels (``rows.counts``), ``notes`` and, of two labels,
        ``average_precision``, ``recall`` and ``specificity`` at the model's threshold.
    """
    model = load_for_scoring(folder, device)
    before = Evaluation.read(Path(folder))
    of_training = None if before.groups is None else before.groups.column
    rows = read_labeled(
        data, before.target, reading=reading, labels=before.labels, weight=weight,
        formats=model.encoder_.formats, group=group or of_training, group_may_lack=group is None,
    )  # fmt: skip
    if of_training is not None and rows.group is None:
        rows.notes.append(
            f"rows of all groups are compared here; in training those of the same "
            f"{of_training!r} alone were: --group names the column"
        )
    if weight is None and before.weight_column is not None:
        rows.notes.append(
            f"all rows count alike here; in training they weighed as {before.weight_column!r} "
            f"said: --weight {shlex.quote(before.weight_column)}"
        )
    # Not trained with, as is known.
    apart = (before.id_column, before.weight_column, before.time_column, of_training)
    known = before.files.split()
    for path in files_of(data):
        if disk.sha256(Path(path)) in known:
            rows.notes.append(
                f"the model was fitted to {path}: it knows most of these rows, and looks better "
                f"than it is; fit has judged it by rows that it does not know"
            )
    counts = np.bincount(rows.classes, minlength=len(rows.labels))
    if counts.min() == 0:
        absent = rows.labels[int(counts.argmin())]
        raise ValueError(
            f"column {before.target!r} must hold every label, found no {absent!r} in {listed(data)}"
        )
    scored = ScoredRows.of(model, model.encoder_.transform(rows.table))
    groups = groups_of(scored, rows, group or of_training)
    warnings = []
    if rows.group is not None and (warning := one_label_groups(rows.group, rows.classes)):
        warnings.append(warning)
    if rows.group is not None and groups is None:
        rows.notes.append(
            f"no group of {group or of_training!r} has rows of several labels, so there is no AUC "
            f"within groups"
        )
    return Evaluation(
        target=before.target,
        labels=before.labels,
        parts={"test": Part(rows.table.rows, tuple(counts.tolist()))},
        probability=scored.probability,
        classes=rows.classes,
        auc=Interval.of_auc(scored.ranking, rows.classes, weight=rows.weight),
        threshold=before.threshold,
        threshold_rule=before.threshold_rule,
        notes=(*rows.notes, *model.encoder_.notes(rows.table.without(apart))),
        warnings=tuple(warnings),
        versions=versions(),
        weight=rows.weight,
        weight_column=weight,
        groups=groups,
        metric=before.metric,
    )


def load_for_scoring(folder: str | Path, device: str) -> AUCClassifier:
    """The model of a folder, on a device that need not be the one that it was trained on."""
    find_device(device)
    model = AUCClassifier.load(folder)
    model.device = device
    return model


def write_report(folder: str | Path) -> Path:
    """Write ``report.html`` of a model folder again.

    Args:
        folder: that ``aucmax fit`` made.
    """
    from aucmax.report.page import write_model_page

    path = Path(folder) / "report.html"
    write_model_page(path, Evaluation.read(Path(folder)))
    return path
