"""How good a model is on other pictures."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from aucmax.images import sheets
from aucmax.images.classifier import ImageClassifier, in_words
from aucmax.images.duplicates import file_digest
from aucmax.images.listing import list_source
from aucmax.images.split import join
from aucmax.judge.evaluation import Evaluation, Part, versions
from aucmax.judge.interval import Interval
from aucmax.report.words import plural


def evaluate_images(
    folder: str | Path,
    source: str | Path,
    *,
    images: str | Path | None = None,
    path: str = "file",
    target: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    skip_broken: bool = False,
    device: str = "auto",
) -> Evaluation:
    """How good a model is on pictures that have its labels.

    Args:
        folder: of the model.
        source: a folder with a folder per class, or a table of files and their labels.
        images: the folder that the table's files are in; None for that of the table.
        path: the table's column of files.
        target: the table's column of labels; None for that of ``fit_images``.
        group: the table's column of groups, such as patients, which the interval takes as drawn
            whole, as it does copies of a file.
        weight: the table's column of how much each picture counts; None counts them alike.
        skip_broken: whether files that cannot be read are left out; otherwise they are an error.
        device: "auto" is the GPU if there is one.

    Returns:
        A record with the AUC and its interval (``auc.value``, ``auc.low``, ``auc.high``), the
        counts of the labels (``rows.counts``), ``notes`` and, of two labels,
        ``average_precision``, ``recall`` and ``specificity`` at the model's threshold.

    Raises:
        ValueError: for what cannot be right, such as a label that the model does not know.
    """
    folder, source = Path(folder), Path(source)
    model = ImageClassifier.load(folder)
    model.device = device
    before = Evaluation.read(folder)
    if target is None and source.is_file():
        target = before.target
    listed = list_source(
        source, images=None if images is None else Path(images), path=path, target=target,
        group=group, weight=weight, classes=before.labels,
    )  # fmt: skip
    notes = [*listed.notes]
    scores, broken = model.score_files(listed.files)
    if broken:
        named = in_words({Path(listed.names[k]): reason for k, reason in broken.items()})
        if not skip_broken:
            raise ValueError(
                f"source must hold pictures that can be read, found {named}: skip_broken leaves "
                f"them out"
            )
        notes.append(f"left out: {named}")
    used, weights = np.setdiff1d(np.arange(len(listed.files)), [*broken]), None
    if listed.weight is not None:
        counted = listed.weight[used] > 0
        if not counted.all():
            notes.append(f"{plural(int((~counted).sum()), 'picture')} of weight 0 left out")
        used, scores = used[counted], scores[counted]
        weights = listed.weight[used]
    elif before.weight_column is not None:
        notes.append(
            f"all pictures count alike here; in training they weighed as {before.weight_column!r} "
            f"said: --weight {shlex.quote(before.weight_column)}"
        )
    place = {label: number for number, label in enumerate(before.labels)}
    classes = np.array([place[listed.labels[k]] for k in used], np.int64)
    counts = np.bincount(classes, minlength=len(place))
    if not counts.all():
        raise ValueError(
            f"source must have pictures of every label that can be read and count, found none of "
            f"{before.labels[int(counts.argmin())]!r} in {source}"
        )
    digests = [file_digest(listed.files[k].read_bytes()) for k in used]
    together = join(digests, None if listed.group is None else [listed.group[k] for k in used])
    known = sheets.read(folder).fitted_to
    if again := sum(digest in known for digest in digests):
        notes.append(
            f"{again:,} of {plural(len(used), 'picture')} are among those that the model was "
            f"fitted to: it knows them, and looks better than it is"
        )
    probability = model.calibration_(scores)
    ranking = scores if scores.ndim == 1 else probability
    return Evaluation(
        target=before.target,
        labels=before.labels,
        parts={"test": Part(len(used), tuple(counts.tolist()))},
        probability=probability,
        classes=classes,
        auc=Interval.of_auc(ranking, classes, weight=weights, group=together),
        threshold=before.threshold,
        threshold_rule=before.threshold_rule,
        notes=tuple(notes),
        versions=versions(),
        weight=weights,
        weight_column=weight,
        metric=before.metric,
        noun=before.noun,
    )
