"""Tables from files: CSV, Parquet, Arrow. What is wrong with one is said in a line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from aucmax import checks
from aucmax.disk import atomic_write
from aucmax.tables._values import to_text
from aucmax.tables.columns import arrow_values
from aucmax.tables.csv_files import check_names, is_text, read_csv, wrong
from aucmax.tables.formats import Format, as_categories, is_number, kind_of_type, understand
from aucmax.tables.formats import notes as format_notes
from aucmax.tables.read_options import ReadOptions
from aucmax.tables.several import Paths, check_columns, files_of, put_together, texts_of_some

__all__ = ["read_table"]

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".parquet", ".arrow", ".feather")


class FileContent(NamedTuple):
    """A table from a file.

    Attributes:
        table: its columns with their types.
        formats: how the texts of each column were read; of Parquet and Arrow, of those that are
            text.
        notes: what a person should know of how it was read.
    """

    table: pa.Table
    formats: dict[str, Format]
    notes: list[str]


def read_table(
    path: str | Path,
    text: Sequence[str] = (),
    *,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    na_values: Sequence[str] = (),
) -> pa.Table:
    r"""Read a table from a file, by its suffix: .csv, .csv.gz, .tsv, .parquet, .arrow or .feather.

    How a CSV is written is found from the file: separator, quotes, encoding, decimal commas. So
    is what its columns hold: whole numbers, numbers (also with thousands, a currency or per cent),
    true or false, dates and times (ISO, and as people write them), else text. An empty field is
    missing, as are NA, NaN, null and the like in every column, and in a column of numbers or
    dates what else is there instead, if at least 90 % of the values are such and the others are at
    most five different texts. A text in quotes may hold line breaks. What was guessed is said in a
    warning.

    Args:
        path: of the file.
        text: columns of a CSV that are text whatever they look like: keys such as 00123.
        separator: of the values; None finds it: comma, semicolon, tab or bar.
        decimal: of the numbers, ``"."`` or ``","``; None finds it.
        encoding: of the text, such as ``"latin-1"``; None finds UTF-8, UTF-16 or Windows-1252.
        na_values: texts that stand for a missing value, besides those above.

    Raises:
        ValueError: if the file is not there, is empty, damaged or of no known kind, two columns
            have one name, or a line has more or fewer values than there are columns; the message
            names the file and, where there is one, the line.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.csv"
        >>> _ = path.write_text("age;day;paid\n31;1.5.2024;1.200,50\nNA;31.5.2024;3,20\n")
        >>> read_table(path).schema.types
        [DataType(int64), TimestampType(timestamp[us]), DataType(double)]
    """
    content = read(path, ReadOptions(separator, decimal, encoding, tuple(na_values)), text=text)
    for note in content.notes:
        warnings.warn(note, stacklevel=2)
    return content.table


def read(
    data: Paths,
    options: ReadOptions | None = None,
    *,
    text: Sequence[str] = (),
    formats: Mapping[str, Format] | None = None,
    beside: Sequence[str] = (),
) -> FileContent:
    """Read a table from a file, see :func:`read_table`, and say what was understood.

    What a column of several files is, all of them decide together, as if they were one.

    Args:
        data: the file, or several with the same columns, a folder of them or a pattern.
        options: how they are written.
        text: columns that stay as they are written.
        formats: those of a model that exists: it reads the texts, so they stay as they are written.
        beside: columns that are not for that model to read, but meant as in training: weights.
    """
    options, beginning = options or ReadOptions(), list[str]()
    paths, notes = files_of(data, beginning), beginning.copy()
    tables, decimals = _read_each(paths, options, {*text}, formats, notes)
    check_columns(paths, tables)
    if mixed := texts_of_some(tables):
        notes = beginning.copy()
        tables, decimals = _read_each(paths, options, {*text, *mixed}, formats, notes)
    table, notes = put_together(paths, tables), list(dict.fromkeys(notes))
    for name in options.categories:
        checks.choice("categories", name, tuple(table.column_names))
    decimal = "," if "," in decimals else "."
    stay = {*text} if formats is None else {*table.column_names} - {*beside}
    return _understand(table, stay, decimal, options, notes)


def _read_each(
    paths: Sequence[str],
    options: ReadOptions,
    text: set[str],
    formats: Mapping[str, Format] | None,
    notes: list[str],
) -> tuple[list[pa.Table], list[str]]:
    """The files' tables with the types that Arrow finds, and their decimal points."""
    found = [_read_one(Path(path), options, text, formats, notes) for path in paths]
    tables, decimals = [table for table, _ in found], [decimal for _, decimal in found]
    if formats is not None:  # columns that the model does not need may be in some files alone
        both = set.intersection(*({*table.column_names} for table in tables))
        tables = [table.select([x for x in table.column_names if x in both]) for table in tables]
    return tables, decimals


def _read_one(
    path: Path,
    options: ReadOptions,
    text: set[str],
    formats: Mapping[str, Format] | None,
    notes: list[str],
) -> tuple[pa.Table, str]:
    suffix = next((s for s in reversed(SUFFIXES) if path.name.lower().endswith(s)), None)
    if suffix is None:
        raise ValueError(f"the file must end in {', '.join(SUFFIXES)}, found {str(path)!r}")
    if not path.is_file():
        found = "is a folder, no file" if path.is_dir() else "is not there"
        raise wrong(path, found)
    if path.stat().st_size == 0:
        raise wrong(path, "is empty")
    decimal = "."
    if suffix == ".parquet":
        table = _read_parquet(path)
    elif suffix in (".arrow", ".feather"):
        table = _read_arrow(path)
    else:
        table, decimal = read_csv(path, suffix, options, text, formats, notes)
    if table.num_rows == 0:
        raise wrong(path, "has no rows" if table.column_names else "is empty")
    return table, decimal


def _understand(
    table: pa.Table, text: set[str], decimal: str, options: ReadOptions, notes: list[str]
) -> FileContent:
    """Columns of text become what they stand for, but for some that stay as they are written."""
    na_values = options.na_values
    marks = dict.fromkeys(na_values, 0)
    numbers = pa.array([float(mark) for mark in na_values if is_number(mark)], pa.float64())

    def read_column(place: int) -> tuple[Any, Format | None]:
        column, kind = table.column(place), table.schema.field(place).type
        name = table.field(place).name
        if name in text or pa.types.is_dictionary(kind):
            return column, None
        if name in options.categories:
            texts = pa.array(to_text(arrow_values(name, column)), pa.string())
            return as_categories(texts, na_values)
        if is_text(kind):
            return understand(column, decimal, na_values)
        written = Format(kind_of_type(kind), marks=marks)
        if written.kind != "number":
            return column, written
        if len(numbers) and not pa.types.is_duration(kind):  # such as -999
            gone = pc.is_in(column.cast(pa.float64(), safe=False), numbers)
            column = pc.if_else(gone, pa.scalar(None, kind), column)
        return column, replace(written, decimal=decimal)

    with ThreadPoolExecutor() as pool:  # Arrow computes without Python's lock
        columns = list(pool.map(read_column, range(table.num_columns)))
    names = table.column_names
    known = {name: x for name, (_, x) in zip(names, columns, strict=True) if x is not None}
    understood = pa.table([column for column, _ in columns], names=names)
    return FileContent(understood, known, [*notes, *format_notes(known)])


def write_demo_table(path: Path) -> Path:
    """Write scikit-learn's breast cancer data as CSV: 569 tumours, 30 measurements each."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    columns = dict(zip(map(str, data.feature_names), data.data.T, strict=True))
    malignant = np.where(data.target == 0, "yes", "no")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        pyarrow.csv.write_csv(pyarrow.table({**columns, "malignant": malignant}), temporary)
    return path


# ---- Parquet and Arrow ---------------------------------------------------------------------------


def _read_parquet(path: Path) -> pa.Table:
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            check_names(path, file.schema_arrow.names)
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise wrong(path, f"is no Parquet file, cut off or damaged: {error}") from None
    return without_index(table)


def without_index(table: pa.Table) -> pa.Table:
    """Without the row numbers that pandas adds to what it writes."""
    index = [name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)]
    return table.drop_columns(index)


def _read_arrow(path: Path) -> pa.Table:
    try:
        with pa.OSFile(str(path)) as file:
            kind = file.read(4)
            file.seek(0)
            if kind in (b"ARRO", b"FEA1"):
                table = pa.feather.read_table(file)
            else:
                table = pa.ipc.open_stream(file).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise wrong(path, f"is no Arrow file, cut off or damaged: {error}") from None
    check_names(path, table.column_names)
    return without_index(table)
