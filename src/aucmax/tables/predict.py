"""Predictions for the rows of a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aucmax import checks
from aucmax.disk import atomic_write
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import columns_of
from aucmax.tables.files import ReadOptions, read


def predict_file(
    folder: str | Path,
    data: str | Path,
    out: str | Path | None = None,
    keep: Sequence[str] = (),
    reading: ReadOptions | None = None,
) -> tuple[str | None, list[str]]:
    """Probabilities and labels for the rows of a file, in its order.

    Columns are matched by name. Categories that training has not seen count as rare ones.

    Args:
        folder: of the model.
        data: CSV, Parquet or Arrow.
        out: a .csv or .parquet file; None gives CSV as text.
        keep: columns of the data to copy, such as a key.
        reading: how the file is written.

    Returns:
        The text, if ``out`` is None, and notes.
    """
    import pyarrow.csv
    import pyarrow.parquet

    if out is not None:
        checks.choice("out", Path(out).suffix, (".csv", ".parquet"))
        if Path(out).resolve() == Path(data).resolve():
            raise ValueError(f"out must be another file than the data, found {out} for both")
    model = AUCClassifier.load(folder)
    content = read(data, reading, text=keep, formats=model.encoder_.formats)
    table = content.table
    for name in keep:
        checks.choice("keep", name, tuple(table.column_names))
    columns = columns_of(table)
    scores = model.score_encoded(model.encoder_.transform(columns))
    probabilities = model._probabilities(scores)
    labels = [str(label) for label in model.classes_]
    shown = range(1, 2) if len(labels) == 2 else range(len(labels))
    predicted: dict[str, Any] = {f"probability of {labels[k]}": probabilities[:, k] for k in shown}
    predicted["prediction"] = [str(label) for label in model._labels(scores)]
    if clash := sorted({*keep} & predicted.keys()):
        raise ValueError(f"keep must leave the names of what is predicted, found {clash[0]!r}")
    predictions = pyarrow.table({**{name: table[name] for name in keep}, **predicted})
    notes = [*content.notes, *model.encoder_.notes(columns)]
    if out is None:
        buffer = io.BytesIO()
        pyarrow.csv.write_csv(predictions, buffer)
        return buffer.getvalue().decode(), notes
    as_csv = Path(out).suffix == ".csv"
    write = pyarrow.csv.write_csv if as_csv else pyarrow.parquet.write_table
    with atomic_write(Path(out)) as temporary:
        write(predictions, temporary)
    return None, notes
