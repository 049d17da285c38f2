"""Predictions for pictures."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from aucmax import checks
from aucmax.disk import atomic_write, make_folder
from aucmax.images.classifier import ImageClassifier, in_words
from aucmax.images.listing import list_unlabeled
from aucmax.images.split import Rows
from aucmax.judge.calibration import are_alike
from aucmax.judge.evaluation import Evaluation
from aucmax.judge.multilabel import read_evaluation
from aucmax.judge.threshold import Rule
from aucmax.report.words import plural


def predict_images(
    folder: str | Path,
    source: str | Path,
    out: str | Path | None = None,
    *,
    threshold: str | float | None = None,
    skip_broken: bool = False,
    device: str = "auto",
) -> tuple[str | None, list[str]]:
    """Probabilities and labels for the pictures of a folder at any depth, or for one picture.

    A model of several columns of labels gives a probability, and a prediction of 1 or 0, for each.

    Args:
        folder: of the model.
        source: of the pictures.
        out: a .csv or .parquet file; None gives CSV as text.
        threshold: as in :class:`aucmax.ImageClassifier`, instead of the model's own. "balanced",
            "recall=" and "precision=" are looked up on the pictures that judged the model: new ones
            may have less than these.
        skip_broken: whether files that cannot be read get an empty prediction; otherwise they are
            an error.
        device: "auto" is the GPU if there is one.

    Returns:
        The text, if ``out`` is None, and notes, the last of how many have which prediction.
    """
    if out is not None:
        checks.choice("out", Path(out).suffix, (".csv", ".parquet"))
        make_folder(Path(out).resolve().parent, "out, that is, its folder,")
    model = ImageClassifier.load(folder)
    model.device = device
    if threshold is not None:
        model.threshold_ = _threshold(model, Path(folder), threshold)
    files, names, skipped = list_unlabeled(Path(source))
    scores, broken = model.score_files(files)
    if broken and not skip_broken:
        named = in_words({Path(names[k]): reason for k, reason in broken.items()})
        raise ValueError(
            f"source must hold pictures that can be read, found {named}: --skip-broken leaves "
            f"their predictions empty"
        )
    good = np.setdiff1d(np.arange(len(files)), [*broken])
    table = _table(model, names, scores, good)
    notes = [*skipped]
    if broken:
        notes.append(in_words({Path(names[k]): reason for k, reason in broken.items()}))
    if len(good) > 1 and are_alike(model.calibration_(scores)):
        notes.append(
            "all pictures get nearly the same probability: their order alone says something"
        )
    predicted = model.labels_of(scores)
    if model.task_ == "multilabel":
        counts = dict(zip(model.classes_.tolist(), predicted.sum(axis=0).tolist(), strict=True))
    else:
        counts = Counter(predicted.tolist())
    told = ", ".join(f"{counts[label]:,} {str(label)!r}" for label in model.classes_.tolist())
    notes.append(f"{plural(len(good), 'picture')}: {told}")
    if out is None:
        buffer = io.BytesIO()
        pa.csv.write_csv(table, buffer)
        return buffer.getvalue().decode(), notes
    write = pa.csv.write_csv if Path(out).suffix == ".csv" else pa.parquet.write_table
    with atomic_write(Path(out)) as temporary:
        write(table, temporary)
    return None, notes


def _threshold(model: ImageClassifier, folder: Path, threshold: str | float) -> Any:
    """The probability that a rule comes to, of several columns of labels for each."""
    rule = Rule.read(threshold)
    if model.task_ == "multiclass":
        raise ValueError(
            f"threshold must go with a model of two labels, found {threshold!r} with "
            f"{len(model.classes_)}"
        )
    if not rule.needs_rows:
        fixed = rule.threshold(np.empty(0), np.empty(0, np.int64))
        return np.full(len(model.classes_), fixed) if model.task_ == "multilabel" else fixed
    judged = read_evaluation(folder)
    if isinstance(judged, Evaluation):
        return rule.threshold(judged.probability, judged.classes, judged.weight)
    return np.array([rule.threshold(x.probability, x.classes, x.weight) for x in judged.by_label])


def _table(model: ImageClassifier, names: Sequence[str], scores: Any, good: Rows) -> pa.Table:
    """A row per file; what was not read has no prediction."""

    def column(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
        whole: list[Any] = [None] * len(names)
        for row, value in zip(good.tolist(), values.tolist(), strict=True):
            whole[row] = value
        return pa.array(whole, kind)

    columns, predicted = {"file": pa.array(names)}, model.labels_of(scores)
    binary, several = model.task_ == "binary", model.task_ == "multilabel"
    for k, (label, p) in enumerate(zip(model.classes_, model.probabilities(scores).T, strict=True)):
        if k or not binary:
            columns[f"probability of {label}"] = column(p, pa.float64())
        if several:
            columns[f"prediction of {label}"] = column(predicted[:, k], pa.int64())
    if not several:
        columns["prediction"] = column(predicted.astype(str), pa.string())
    return pa.table(columns)
