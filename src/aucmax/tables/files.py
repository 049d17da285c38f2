"""Tables from files: CSV, Parquet, Arrow. What is wrong with one is said in a line.

Needs pyarrow, which loads when a file is read.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aucmax.disk import atomic_write
from aucmax.tables.columns import repeated

if TYPE_CHECKING:
    import pyarrow

__all__ = ["read_table"]

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".arrow", ".feather")
BLOCK = 1 << 28
"""Bytes of CSV parsed at once, and so the longest row."""

CHUNK = 1 << 20


def read_table(path: str | Path, text: Iterable[str] = ()) -> pyarrow.Table:
    r"""Read a table from a file, by its suffix: .csv, .csv.gz, .tsv, .parquet, .arrow or .feather.

    A CSV's values are separated by commas, or by semicolons if its header has no comma. The types
    of its columns are found from the whole file: whole numbers, numbers, true or
    false, ISO dates and times, else text. An empty field is missing; in a column of any type but
    text so are NA, NaN, null and the like. A text in quotes is never missing, and may hold line
    breaks. The encoding is UTF-8, the first line holds the names.

    Args:
        path: of the file.
        text: columns of a CSV that are text whatever they look like: keys such as 00123.

    Raises:
        ValueError: if the file is not there, is empty, damaged or of no known kind, two columns
            have one name, or a line has more or fewer values than there are columns; the message
            names the file and, where there is one, the line.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.csv"
        >>> _ = path.write_text("age,day\n31,2024-05-01\n,2024-05-02\n")
        >>> read_table(path).schema.types
        [DataType(int64), DataType(date32[day])]
    """
    path = Path(path)
    suffix = next((s for s in reversed(SUFFIXES) if path.name.lower().endswith(s)), None)
    if suffix is None:
        raise ValueError(f"path must end in {', '.join(SUFFIXES)}, found {str(path)!r}")
    if not path.is_file():
        found = "a folder" if path.is_dir() else "none there"
        raise ValueError(f"path must be a file, found {found}: {str(path)!r}")
    if path.stat().st_size == 0:
        raise _wrong(path, "is empty")
    if suffix == ".parquet":
        table = _read_parquet(path)
    elif suffix in (".arrow", ".feather"):
        table = _read_arrow(path)
    else:
        data = _bytes(path, suffix)
        header = data.split(b"\n", 1)[0]
        # Semicolons where the header has those alone, as in countries with decimal commas.
        separator = ";" if b";" in header and b"," not in header else ","
        table = _read_csv(path, data, "\t" if ".tsv" in suffix else separator, text)
    if table.num_rows == 0:
        raise _wrong(path, "has no rows" if table.column_names else "is empty")
    return table


def write_demo_table(path: Path) -> Path:
    """Write scikit-learn's breast cancer data as CSV: 569 tumours, 30 measurements each."""
    import pyarrow
    import pyarrow.csv
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    columns = dict(zip(map(str, data.feature_names), data.data.T, strict=True))
    malignant = np.where(data.target == 0, "yes", "no")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        pyarrow.csv.write_csv(pyarrow.table({**columns, "malignant": malignant}), temporary)
    return path


def _wrong(path: Path, what: str) -> ValueError:
    return ValueError(f"path {str(path)!r} {' '.join(what.split())}")


def _check_names(path: Path, names: list[str]) -> None:
    if (name := repeated(names)) is not None:
        raise _wrong(path, f"must have a name of its own for each column, found {name!r} twice")


# ---- Parquet and Arrow ---------------------------------------------------------------------------


def _read_parquet(path: Path) -> pyarrow.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check_names(path, file.schema_arrow.names)
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise _wrong(path, f"is no Parquet file, cut off or damaged: {error}") from None
    return _without_index(table)


def _without_index(table: pyarrow.Table) -> pyarrow.Table:
    """Without the row numbers that pandas adds to what it writes."""
    index = [name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)]
    return table.drop_columns(index)


def _read_arrow(path: Path) -> pyarrow.Table:
    import pyarrow as pa
    import pyarrow.feather

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
        raise _wrong(path, f"is no Arrow file, cut off or damaged: {error}") from None
    _check_names(path, table.column_names)
    return _without_index(table)


# ---- CSV -----------------------------------------------------------------------------------------


def _bytes(path: Path, suffix: str) -> bytes:
    """The file's bytes, unpacked, with what text files must have checked."""
    data = path.read_bytes()
    if suffix.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise _wrong(path, f"is no gzip file, cut off or damaged: {error}") from None
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise _wrong(path, "is empty")
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(data)
    for start in range(0, len(data), CHUNK):
        waiting = len(decoder.getstate()[0])  # bytes of a character that the last chunk began
        try:
            decoder.decode(view[start : start + CHUNK], final=start + CHUNK >= len(data))
        except UnicodeDecodeError as error:
            place = start - waiting + error.start
            line = data.count(b"\n", 0, place) + 1
            found = f"byte 0x{data[place]:02x} at {place} (line {line})"
            raise _wrong(path, f"must be text in UTF-8, found {found}") from None
    return data


def _read_csv(path: Path, data: bytes, separator: str, known: Iterable[str]) -> pyarrow.Table:
    import pyarrow as pa

    table = _parse(path, data, separator)
    _check_names(path, table.column_names)
    if not table.num_rows:
        return table
    wanted = set(known)
    texts = [f.name for f in table.schema if pa.types.is_string(f.type) or f.name in wanted]
    if not texts:
        return table
    # Once more for the texts: only now is it known in which columns NA is a text like any other.
    again = _parse(
        path, data, separator, include_columns=texts, column_types={x: pa.string() for x in texts},
        null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
    )  # fmt: skip
    _check_quotes(path, data, again.column(texts[-1]))
    for name in texts:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, again.column(name))
    return table


def _parse(path: Path, data: bytes, separator: str, **convert: Any) -> pyarrow.Table:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    try:
        return pacsv.read_csv(
            pa.py_buffer(data),
            # Threads that are still there when an error ends the process abort it.
            pacsv.ReadOptions(block_size=min(len(data) + 1, BLOCK), use_threads=len(data) > BLOCK),
            pacsv.ParseOptions(delimiter=separator, newlines_in_values=True),
            pacsv.ConvertOptions(**convert),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):  # a header that no line break ends
            raise _wrong(path, "has no rows") from None
        _check_lengths(path, data, separator)
        raise _wrong(path, f"cannot be read: {error}") from None


def _check_lengths(path: Path, data: bytes, separator: str) -> None:
    """Raise for the first line with more or fewer values than the first."""
    expected, last = None, 0
    rows = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""), delimiter=separator)
    with suppress(csv.Error):  # rows up to one that Python's reader gives up on
        for row in rows:
            expected = len(row) if expected is None and row else expected
            if row and len(row) != expected:
                raise _wrong(
                    path, f"has {len(row)} values in line {last + 1}, the header has {expected}"
                )
            last = rows.line_num


def _check_quotes(path: Path, data: bytes, column: Any) -> None:
    """Raise if the last text began with a quote that nothing closes: it may hold many rows."""
    value = column[-1].as_py()
    if value:
        raw = b'"' + value.replace('"', '""').encode()
        if data.endswith(raw):
            line = data.count(b"\n", 0, len(data) - len(raw)) + 1
            raise _wrong(path, f"has a quote in line {line} that is never closed")
