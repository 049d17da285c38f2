"""Predictions for the rows of a file."""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from aucmax import checks
from aucmax.disk import atomic_write
from aucmax.judge.binary import BinaryRows
from aucmax.judge.evaluation import Evaluation
from aucmax.judge.threshold import Rule
from aucmax.report.words import plural, short
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import columns_of
from aucmax.tables.encoder import Encoded
from aucmax.tables.evaluate import load_for_scoring
from aucmax.tables.explain import explain_encoded
from aucmax.tables.files import read
from aucmax.tables.read_options import ReadOptions
from aucmax.tables.several import Paths, files_of

MOST_COUNTED = 5
"""Labels whose predictions are counted in words."""


def predict_file(
    folder: str | Path,
    data: Paths,
    out: str | Path | None = None,
    keep: Sequence[str] = (),
    reading: ReadOptions | None = None,
    *,
    id_column: str | None = None,
    threshold: str | float | None = None,
    explain: int = 0,
    device: str = "auto",
) -> tuple[str | None, list[str]]:
    """Probabilities and labels for the rows of a file, in its order.

    Columns are matched by name. Categories that training has not seen count as rare ones.

    Args:
        folder: of the model.
        data: CSV, Parquet or Arrow, as in ``fit_file``.
        out: a .csv or .parquet file; None gives CSV as text.
        keep: columns of the data to copy, as they are written.
        reading: how the file is written.
        id_column: names a row, and comes first; None is that of ``fit_file``, if it is there.
        threshold: as in :class:`AUCClassifier`, instead of the model's own. "balanced", "recall="
            and "precision=" are looked up on the rows that judged the model in ``fit_file``, which
            chooses by others itself: new rows may have less than these.
        explain: so many columns that moved a row's log-odds most are named beside it, see
            :func:`aucmax.tables.explain_rows`; 0 for none.
        device: "auto" is the GPU if there is one.

    Returns:
        The text, if ``out`` is None, and notes, the last of how many rows have which prediction.
    """
    if out is not None:
        checks.choice("out", Path(out).suffix, (".csv", ".parquet"))
        if Path(out).resolve() in [Path(path).resolve() for path in files_of(data)]:
            raise ValueError(f"out must be another file than the data, found {out} for both")
    model = load_for_scoring(folder, device)
    known = id_column or _id_of_training(Path(folder))
    copied = [known, *keep] if known else [*keep]
    formats = model.encoder_.formats
    extra = [name for name in copied if name not in formats]
    content = read(data, reading, text=extra, formats=formats)
    table, notes = content.table, content.notes
    # What the model reads as numbers or dates is copied as it is written all the same.
    as_written = table
    if len(extra) < len(copied):
        as_written = read(data, reading, text=copied, formats=formats).table
    if known and id_column is None and known not in table.column_names:
        notes.append(f"the predictions carry no {known!r}, which named the rows of training")
        copied.remove(known)
    if threshold is not None:
        model.threshold_, note = _other_threshold(model, threshold, Path(folder))
        notes.append(note)
    for name in copied:
        checks.choice("id" if name == id_column else "keep", name, tuple(table.column_names))
    columns = columns_of(table)
    encoded = model.encoder_.transform(columns)
    scores = model.score_encoded(encoded)
    probabilities = model._probabilities(scores)
    labels = [str(label) for label in model.classes_]
    shown = range(1, 2) if len(labels) == 2 else range(len(labels))
    predicted: dict[str, Any] = {f"probability of {labels[k]}": probabilities[:, k] for k in shown}
    predicted["prediction"] = [str(label) for label in model._labels(scores)]
    if explain:
        columns_that_move, note = _because(model, encoded, table, explain)
        predicted |= columns_that_move
        notes.append(note)
    if clash := sorted({*copied} & predicted.keys()):
        raise ValueError(f"keep must leave the names of what is predicted, found {clash[0]!r}")
    predictions = pa.table({**{name: as_written[name] for name in copied}, **predicted})
    notes += model.encoder_.notes(columns.without([*extra, *_not_trained_on(Path(folder))]))
    notes.append(_counted(predicted["prediction"], model))
    if out is None:
        buffer = io.BytesIO()
        pa.csv.write_csv(predictions, buffer)
        return buffer.getvalue().decode(), notes
    as_csv = Path(out).suffix == ".csv"
    write = pa.csv.write_csv if as_csv else pa.parquet.write_table
    with atomic_write(Path(out)) as temporary:
        write(predictions, temporary)
    return None, notes


def _counted(predictions: Sequence[str], model: AUCClassifier) -> str:
    """How many rows have which prediction."""
    rows, counts = plural(len(predictions), "row"), Counter(predictions)
    if len(model.classes_) == 2:
        yes = str(model.classes_[1])
        are = "is" if 1 in (counts[yes], len(predictions)) else "are"
        return f"{counts[yes]:,} of {rows} {are} predicted {yes!r}, from {model.threshold_:.4g} on"
    most = [f"{count:,} {label!r}" for label, count in counts.most_common(MOST_COUNTED)]
    more = len(counts) - len(most)
    return f"{rows} predicted: {', '.join(most)}{f' and {more} other labels' if more else ''}"


def _because(
    model: AUCClassifier, encoded: Encoded, table: pa.Table, most: int
) -> tuple[dict[str, list[str]], str]:
    """The columns that moved each row most, as columns of the predictions, and what it took."""
    began, most = time.perf_counter(), checks.count("explain", most)
    found = explain_encoded(model, encoded)
    order = np.argsort(-np.abs(found.values), axis=1, kind="stable")[:, :most]
    shown = {name: _in_words(table[name]) for name in found.names}
    because = {
        f"because {rank + 1}": [
            f"{name}{shown[name][row]} ({found.values[row, place]:+.2f})"
            for row, place in enumerate(places.tolist())
            for name in [found.names[place]]
        ]
        for rank, places in enumerate(order.T)
    }
    of = f"of {str(model.classes_[1])!r}" if len(model.classes_) == 2 else "of the predicted label"
    base = f", {found.base[0]:+.2f}," if len(model.classes_) == 2 else ""
    return because, (
        f"what a column adds to a row's log-odds {of}, compared with the mean{base} of some rows "
        f"of the file: by {found.samples} orders of columns for each row, {found.scorings:,} "
        f"scorings in {time.perf_counter() - began:,.1f} s"
    )


def _in_words(column: pa.ChunkedArray) -> list[str]:
    """The values of a column, to stand behind its name."""

    def word(value: Any) -> str:
        if value is None or value != value:
            return " missing"
        return f"={value:.6g}" if isinstance(value, float) else f"={short(value)}"

    return list(map(word, column.to_pylist()))


def _other_threshold(
    model: AUCClassifier, threshold: str | float, folder: Path
) -> tuple[float, str]:
    """The threshold that a rule says, and what is known of it."""
    rule, known = Rule.read(threshold), Evaluation.is_in(folder)
    if len(model.classes_) > 2:
        raise ValueError(f"threshold must be left to two classes, found {str(rule)!r} for more")
    if rule.needs_rows and not known:
        raise ValueError(
            f"threshold must be a number or cost=R for a model saved from Python, which has no "
            f"rows to look {str(rule)!r} up on"
        )
    if not known:
        none = np.empty(0)
        cut = rule.threshold(none, none.astype(np.int64))
        return cut, f"rows are {str(model.classes_[1])!r} from {cut:.4g} on"
    found = Evaluation.read(folder)
    cut = rule.threshold(found.probability, found.classes, found.weight)
    rows = replace(found, threshold=cut).rows
    assert isinstance(rows, BinaryRows)  # there are two labels
    at = rows.at_threshold
    precision = "none flagged" if at.precision is None else f"precision {at.precision:.3f}"
    chosen = ", which chose it: new rows may have less" if rule.needs_rows else ""
    return cut, (
        f"rows are {found.labels[1]!r} from {cut:.4g} on ({rule}): recall {at.recall:.3f}, "
        f"{precision} of the {len(found.classes):,} rows that judged the model{chosen}"
    )


def _not_trained_on(folder: Path) -> list[str]:
    """Columns that ``aucmax fit`` was told are none to train on: of weights, groups and times."""
    if not Evaluation.is_in(folder):
        return []
    known = Evaluation.read(folder)
    groups = None if known.groups is None else known.groups.column
    return [name for name in (known.weight_column, known.time_column, groups) if name is not None]


def _id_of_training(folder: Path) -> str | None:
    """The column that ``aucmax fit --id`` was told; a model saved from Python has none."""
    return Evaluation.read(folder).id_column if Evaluation.is_in(folder) else None
