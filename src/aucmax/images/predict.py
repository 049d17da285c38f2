"""Predictions for pictures."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from aucmax import checks
from aucmax.disk import atomic_write, make_folder
from aucmax.images.classifier import ImageClassifier, in_words
from aucmax.images.listing import list_unlabeled
from aucmax.judge.calibration import are_alike
from aucmax.judge.evaluation import Evaluation
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
    if model.task_ == "multilabel":
        raise ValueError(
            f"model must give each picture one label, found several labels in {folder}: "
            f"aucmax.ImageClassifier.load predicts them in Python"
        )
    if threshold is not None:
        rule = Rule.read(threshold)
        if len(model.classes_) > 2:
            raise ValueError(
                f"threshold must go with a model of two labels, found {threshold!r} with "
                f"{len(model.classes_)}"
            )
        judged = Evaluation.read(Path(folder)) if rule.needs_rows else None
        known = (np.empty(0), np.empty(0, np.int64)) if judged is None else (
            judged.probability, judged.classes, judged.weight
        )  # fmt: skip
        model.threshold_ = rule.threshold(*known)
    files, names, skipped = list_unlabeled(Path(source))
    scores, broken = model.score_files(files)
    if broken and not skip_broken:
        named = in_words({Path(names[k]): reason for k, reason in broken.items()})
        raise ValueError(
            f"source must hold pictures that can be read, found {named}: skip_broken leaves their "
            f"predictions empty"
        )
    good = np.setdiff1d(np.arange(len(files)), [*broken])
    table, labels = _table(model, names, scores, good)
    notes = [*skipped]
    if broken:
        notes.append(in_words({Path(names[k]): reason for k, reason in broken.items()}))
    if len(good) > 1 and are_alike(model.calibration_(scores)):
        notes.append(
            "all pictures get nearly the same probability: their order alone says something"
        )
    counts = Counter(labels)
    told = ", ".join(f"{counts[str(label)]:,} {str(label)!r}" for label in model.classes_)
    notes.append(f"{plural(len(good), 'picture')}: {told}")
    if out is None:
        buffer = io.BytesIO()
        pa.csv.write_csv(table, buffer)
        return buffer.getvalue().decode(), notes
    write = pa.csv.write_csv if Path(out).suffix == ".csv" else pa.parquet.write_table
    with atomic_write(Path(out)) as temporary:
        write(table, temporary)
    return None, notes


def _table(
    model: ImageClassifier, names: Any, scores: Any, good: Any
) -> tuple[pa.Table, list[str]]:
    """A row per file; what was not read has no prediction."""
    probabilities = model.probabilities(scores)
    labels = [str(label) for label in model.labels_of(scores)]
    place = {int(k): i for i, k in enumerate(good)}
    which = [place.get(k) for k in range(len(names))]
    shown = range(1, 2) if len(model.classes_) == 2 else range(len(model.classes_))
    columns: dict[str, Any] = {"file": list(names)}
    for k in shown:
        values = [None if i is None else float(probabilities[i, k]) for i in which]
        columns[f"probability of {model.classes_[k]}"] = pa.array(values, pa.float64())
    predicted = [None if i is None else labels[i] for i in which]
    columns["prediction"] = pa.array(predicted, pa.string())
    return pa.table(columns), labels
