"""Predictions for the rows of a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aucmax import checks
from aucmax.disk import atomic_write
from aucmax.judge.evaluation import Evaluation
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import Columns, columns_of
from aucmax.tables.files import ReadOptions, read
from aucmax.tables.several import Paths, as_paths


def predict_file(
    folder: str | Path,
    data: Paths,
    out: str | Path | None = None,
    keep: Sequence[str] = (),
    reading: ReadOptions | None = None,
    *,
    id_column: str | None = None,
) -> tuple[str | None, list[str]]:
    """Probabilities and labels for the rows of a file, in its order.

    Columns are matched by name. Categories that training has not seen count as rare ones.

    Args:
        folder: of the model.
        data: CSV, Parquet or Arrow; several files with the same columns are one table.
        out: a .csv or .parquet file; None gives CSV as text.
        keep: columns of the data to copy.
        reading: how the file is written.
        id_column: names a row, and comes first; None is that of ``fit_file``, if it is there.

    Returns:
        The text, if ``out`` is None, and notes.
    """
    import pyarrow.csv
    import pyarrow.parquet

    if out is not None:
        checks.choice("out", Path(out).suffix, (".csv", ".parquet"))
        if Path(out).resolve() in [Path(path).resolve() for path in as_paths(data)]:
            raise ValueError(f"out must be another file than the data, found {out} for both")
    model = AUCClassifier.load(folder)
    known = id_column or _id_of_training(Path(folder))
    copied = [known, *keep] if known else [*keep]
    content = read(data, reading, text=copied, formats=model.encoder_.formats)
    table, notes = content.table, content.notes
    if known and id_column is None and known not in table.column_names:
        notes.append(f"the predictions carry no {known!r}, which named the rows of training")
        copied.remove(known)
    for name in copied:
        checks.choice("id" if name == id_column else "keep", name, tuple(table.column_names))
    columns = columns_of(table)
    scores = model.score_encoded(model.encoder_.transform(columns))
    probabilities = model._probabilities(scores)
    labels = [str(label) for label in model.classes_]
    shown = range(1, 2) if len(labels) == 2 else range(len(labels))
    predicted: dict[str, Any] = {f"probability of {labels[k]}": probabilities[:, k] for k in shown}
    predicted["prediction"] = [str(label) for label in model._labels(scores)]
    if clash := sorted({*copied} & predicted.keys()):
        raise ValueError(f"keep must leave the names of what is predicted, found {clash[0]!r}")
    predictions = pyarrow.table({**{name: table[name] for name in copied}, **predicted})
    notes += model.encoder_.notes(_without(columns, copied))
    if out is None:
        buffer = io.BytesIO()
        pyarrow.csv.write_csv(predictions, buffer)
        return buffer.getvalue().decode(), notes
    as_csv = Path(out).suffix == ".csv"
    write = pyarrow.csv.write_csv if as_csv else pyarrow.parquet.write_table
    with atomic_write(Path(out)) as temporary:
        write(predictions, temporary)
    return None, notes


def _id_of_training(folder: Path) -> str | None:
    """The column that ``aucmax fit --id`` was told; a model saved from Python has none."""
    return Evaluation.read(folder).id_column if Evaluation.is_in(folder) else None


def _without(columns: Columns, left_out: Sequence[str]) -> Columns:
    pairs = zip(columns.names, columns.values, strict=True)
    kept = {name: values for name, values in pairs if name not in left_out}
    return columns._replace(names=[*kept], values=[*kept.values()])
