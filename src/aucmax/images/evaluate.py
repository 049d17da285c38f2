"""How good a model is on other pictures."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax.images import sheets
from aucmax.images.classifier import ImageClassifier, in_words
from aucmax.images.duplicates import file_digest
from aucmax.images.fit import check_labels, one_or_several
from aucmax.images.listing import Listed, list_source
from aucmax.images.split import Rows, join, kinds
from aucmax.judge.evaluation import Evaluation, Part, versions
from aucmax.judge.interval import Interval
from aucmax.judge.multilabel import LabelEvaluations, evaluate_labels, read_evaluation
from aucmax.report.words import plural


def evaluate_images(
    folder: str | Path,
    source: str | Path,
    *,
    images: str | Path | None = None,
    path: str = "file",
    target: str | Sequence[str] | None = None,
    group: str | None = None,
    weight: str | None = None,
    skip_broken: bool = False,
    device: str = "auto",
) -> Evaluation | LabelEvaluations:
    """How good a model is on pictures that have its labels.

    Args:
        folder: of the model.
        source: a folder with a folder per class, or a table of files and their labels.
        images: the folder that the table's files are in; None for that of the table.
        path: the table's column of files.
        target: the table's column of labels; None for that of ``fit_images``. Of a model of several
            columns, some of these; None for all.
        group: the table's column of groups, such as patients, which the interval takes as drawn
            whole, as it does copies of a file.
        weight: the table's column of how much each picture counts; None counts them alike.
        skip_broken: whether files that cannot be read are left out; otherwise they are an error.
        device: "auto" is the GPU if there is one.

    Returns:
        A record with the AUC and its interval (``auc.value``, ``auc.low``, ``auc.high``), the
        counts of the labels (``rows.counts``), ``notes`` and, of two labels,
        ``average_precision``, ``recall`` and ``specificity`` at the model's threshold. Of several
        columns of labels such a record of each (``by_label``) and ``mean_auc``.

    Raises:
        ValueError: for what cannot be right, such as a label that the model does not know.
    """
    folder, source = Path(folder), Path(source)
    model = ImageClassifier.load(folder)
    model.device = device
    judged = read_evaluation(folder)
    several = isinstance(judged, LabelEvaluations)
    before = judged.by_label[0] if isinstance(judged, LabelEvaluations) else judged
    listed = list_source(
        source, images=None if images is None else Path(images), path=path,
        target=_target(model, before, source, target), group=group, weight=weight,
        classes=() if several else before.labels,
    )  # fmt: skip
    notes = [*listed.notes]
    used, scores = _scored(model, listed, skip_broken, notes)
    weights = None
    if listed.weight is not None:
        weights = listed.weight[used]
    elif before.weight_column is not None:
        notes.append(
            f"all pictures count alike here; in training they weighed as {before.weight_column!r} "
            f"said: --weight {shlex.quote(before.weight_column)}"
        )
    classes = listed.numbers[used]
    has, labels = kinds(classes, listed.classes)
    check_labels("source", "that can be read and count", has, labels)
    digests = [file_digest(listed.files[k].read_bytes()) for k in used]
    together = join(digests, None if listed.group is None else [listed.group[k] for k in used])
    known = sheets.read_fitted_to(folder)
    if again := sum(digest in known for digest in digests):
        notes.append(
            f"{again:,} of {plural(len(used), 'picture')} are among those that the model was "
            f"fitted to: it knows them, and looks better than it is"
        )
    probability = model.calibration_(scores)
    about: dict[str, Any] = {
        "threshold_rule": before.threshold_rule,
        "notes": tuple(notes),
        "versions": versions(),
        "weight_column": weight,
        "metric": before.metric,
        "noun": before.noun,
    }
    if several:
        places = [model.classes_.tolist().index(label) for label in listed.classes]
        return evaluate_labels(
            listed.classes, scores[:, places], probability[:, places], classes,
            thresholds=np.asarray(model.threshold_)[places].tolist(),
            rows={"test": len(used)}, weight=weights, group=together, **about,
        )  # fmt: skip
    ranking = scores if scores.ndim == 1 else probability
    return Evaluation(
        target=before.target,
        labels=before.labels,
        parts={"test": Part(len(used), tuple(has.sum(axis=0).tolist()))},
        probability=probability,
        classes=classes,
        auc=Interval.of_auc(ranking, classes, weight=weights, group=together),
        threshold=before.threshold,
        weight=weights,
        **about,
    )


def _target(
    model: ImageClassifier, before: Evaluation, source: Path, target: str | Sequence[str] | None
) -> str | tuple[str, ...] | None:
    """The column of labels; of a model of several those that were asked for, or all."""
    if model.task_ == "multilabel":
        labels = model.classes_.tolist()
        if source.is_dir():
            raise ValueError(
                f"source must be a table, for the model has several labels, found the folder "
                f"{source}"
            )
        asked = (target,) if isinstance(target, str) else tuple(target or labels)
        if wrong := [name for name in asked if name not in labels]:
            raise ValueError(f"target must be labels of the model, {labels}, found {wrong[0]!r}")
        return asked
    column = one_or_several(target) or (before.target if source.is_file() else None)
    if isinstance(column, tuple):
        raise ValueError(f"target must be one column, as the model's is, found {[*column]}")
    return column


def _scored(
    model: ImageClassifier, listed: Listed, skip_broken: bool, notes: list[str]
) -> tuple[Rows, NDArray[np.float64]]:
    """The pictures that can be read and count, and their raw scores."""
    scores, broken = model.score_files(listed.files)
    if broken:
        named = in_words({Path(listed.names[k]): reason for k, reason in broken.items()})
        if not skip_broken:
            raise ValueError(
                f"source must hold pictures that can be read, found {named}: --skip-broken leaves "
                f"them out"
            )
        notes.append(f"left out: {named}")
    used = np.setdiff1d(np.arange(len(listed.files)), [*broken])
    if listed.weight is None:
        return used, scores
    counted = listed.weight[used] > 0
    if not counted.all():
        notes.append(f"{plural(int((~counted).sum()), 'picture')} of weight 0 left out")
    return used[counted], scores[counted]
