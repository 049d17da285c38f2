"""Any table, column by column.

Tables are told by the library their type comes from, so that none but Arrow is imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from aucmax.tables import _values, formats
from aucmax.tables._values import Values
from aucmax.tables.formats import Format

LIBRARIES = ("pandas", "polars", "pyarrow", "scipy")


class Columns(NamedTuple):
    """Any table, column by column.

    Attributes:
        names: of the columns; ``x0``, ``x1``, ... if the table has none.
        values: float64 with NaN for missing, bool, datetime64[us] with NaT, or object with str
            and None. True or false with missing values is float64: 0, 1 and NaN.
        rows: how many there are.
        named: whether the names are the table's own; if not, columns are told by their position.
        formats: how the texts of a column were read, by its name; one that is text and has none
            holds texts as they are written.
    """

    names: list[str]
    values: list[Values]
    rows: int
    named: bool = True
    formats: Mapping[str, Format] = {}

    def without(self, names: Collection[str | None]) -> Columns:
        """All columns but some."""
        pairs = zip(self.names, self.values, strict=True)
        kept = {name: values for name, values in pairs if name not in names}
        return self._replace(names=[*kept], values=[*kept.values()])

    def select(self, rows: NDArray[Any]) -> Columns:
        """Some of the rows, by their numbers."""
        return self._replace(values=[column[rows] for column in self.values], rows=len(rows))


def rows_in(table: Columns, other: Columns, names: Collection[str]) -> NDArray[np.bool_]:
    """Mark the rows of a table that have the same values as a row of another in some columns.

    Missing values are equal. Rows are compared by hashes of 64 bits.

    Args:
        table: whose rows are looked up.
        other: where they are looked up, with values of the same kinds.
        names: of the columns to compare.

    Example:
        >>> table = columns_of([[1, "a"], [2, "b"], [1, "b"]])
        >>> rows_in(table, table.select(np.array([0, 1])), table.names)
        array([ True,  True, False])
    """
    return np.isin(_row_hashes(table, names), _row_hashes(other, names))


def _row_hashes(table: Columns, names: Collection[str]) -> NDArray[np.uint64]:
    """A hash of each row, the same in this process for rows with equal values."""
    hashes = np.zeros(table.rows, np.uint64)
    for name, values in zip(table.names, table.values, strict=True):
        if name not in names:
            continue
        if values.dtype == object:
            bits = np.fromiter(map(hash, values.tolist()), np.int64, table.rows).view(np.uint64)
        elif values.dtype == bool:
            bits = values.astype(np.uint64)
        elif values.dtype.kind == "M":
            bits = values.view(np.uint64)
        else:
            bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64)  # no -0.0
        hashes = (hashes ^ bits) + np.uint64(0x9E3779B97F4A7C15)
        hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes ^= hashes >> np.uint64(31)  # SplitMix64
    return hashes


def columns_of(X: Any) -> Columns:
    """Read a table column by column.

    Objects that are all numbers become numbers, all bools true or false, all dates dates, else
    text by ``str``; categories of every type are text. Dates with a time zone are moved to UTC,
    durations and times of day are seconds.

    Args:
        X: a NumPy array or torch tensor of two dimensions, a list of rows, a DataFrame of pandas
            or polars, a pyarrow Table or RecordBatch, a sparse matrix or array of SciPy, or
            :class:`Columns`, which are returned as they are.

    Raises:
        ValueError: if X is no table, two columns have one name, or a column holds complex numbers,
            lists or other nested values.

    Example:
        >>> columns_of([[1, "a"], [None, "b"]]).values
        [array([ 1., nan]), array(['a', 'b'], dtype=object)]
    """
    if isinstance(X, Columns):
        return X
    # The library that the table, or what it derives from, comes from.
    roots = (each.__module__.partition(".")[0] for each in type(X).__mro__)
    library = next((root for root in roots if root in LIBRARIES), "")
    if library == "pandas" and hasattr(X, "iloc") and hasattr(X, "columns"):
        series = [X.iloc[:, j] for j in range(X.shape[1])]
        return _named(X.columns, series, len(X), _of_pandas)
    if library == "polars" and hasattr(X, "get_columns"):
        return _named(X.columns, X.get_columns(), X.height, _of_polars)
    if library == "pyarrow" and hasattr(X, "schema") and hasattr(X, "columns"):
        return _named(X.schema.names, X.columns, X.num_rows, arrow_values)
    if library == "scipy" and hasattr(X, "tocsc") and X.ndim == 2:
        return _unnamed(X.tocsc(), lambda table, j: table[:, [j]].toarray()[:, 0])
    return _unnamed(_array(X), lambda table, j: table[:, j])


def _named(names: Any, values: Any, rows: int, read: Any) -> Columns:
    texts = [str(name) for name in names]
    if (again := repeated(texts)) is not None:
        raise ValueError(f"X must have a name of its own for each column, found {again!r} twice")
    columns = list(zip(texts, values, strict=True))
    categories = {name: Format("text") for name, column in columns if _is_category(column)}
    return Columns(texts, [read(*pair) for pair in columns], rows, formats=categories)


def _is_category(column: Any) -> bool:
    """Whether a column was declared to hold categories, whatever they look like."""
    dtype = getattr(column, "dtype", getattr(column, "type", None))
    return type(dtype).__name__ in ("CategoricalDtype", "DictionaryType", "Categorical", "Enum")


def understood(
    table: Columns,
    decimal: str = ".",
    na_values: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> tuple[Columns, list[str]]:
    """The table with texts as what they stand for, and notes of what a person should know.

    Columns whose format is known are left as they are.

    Args:
        table: to be learned from.
        decimal: what numbers are more likely to be written with.
        na_values: further texts that stand for a missing value.
        categories: columns that are text whatever they look like.
    """
    values, known, notes = list(table.values), dict(table.formats), []
    for place, name in enumerate(table.names):
        if name in known:
            continue
        if name in categories:
            values[place] = _values.to_text(values[place])
            known[name] = Format("text", marks=dict.fromkeys(na_values, 0))
            continue
        if values[place].dtype != object:
            known[name] = Format(_values.kind_of(values[place]))
            continue
        try:
            texts = pa.array(values[place], pa.string())
        except UnicodeEncodeError:  # halves of characters, which no file can hold
            known[name] = Format("text")
            continue
        meant, known[name] = formats.understand(texts, decimal, na_values)
        if known[name].kind == "number" and (note := formats.zeros_note(name, texts)):
            notes.append(note)
        values[place] = arrow_values(name, meant)
    new = {name: written for name, written in known.items() if name not in table.formats}
    return table._replace(values=values, formats=known), [*notes, *formats.notes(new)]


def repeated(names: list[str]) -> str | None:
    """A name that more than one column has, if any."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _unnamed(table: Any, column: Any) -> Columns:
    rows, count = table.shape
    names = [f"x{j}" for j in range(count)]
    values = [_values.plain(name, column(table, j)) for j, name in enumerate(names)]
    return Columns(names, values, rows, named=False)


def _array(X: Any) -> Values:
    """An array, a tensor or a list of rows as an array of two dimensions."""
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu()
        X = X.double().numpy() if X.is_floating_point() else X.numpy()  # NumPy has no bfloat16
    if isinstance(X, np.ma.MaskedArray):
        X = np.where(np.ma.getmaskarray(X), np.array(None), X.data.astype(object))
    if isinstance(X, (list, tuple)):
        X = np.array(X, dtype=object)
    if not isinstance(X, np.ndarray):
        raise ValueError(
            "X must be an array, a list of rows, a DataFrame of pandas or polars, a pyarrow Table "
            f"or a sparse matrix, found {type(X).__name__}"
        )
    if X.ndim != 2:
        raise ValueError(
            f"X must have rows and columns, every row of one length, found shape {X.shape}"
        )
    return np.asarray(X)


def _of_pandas(name: str, series: Any) -> Values:
    dtype = type(series.dtype).__name__
    if dtype == "ArrowDtype":
        return arrow_values(name, series.array.__arrow_array__())
    if dtype == "CategoricalDtype":
        names = _values.to_text(_values.plain(name, series.cat.categories.to_numpy()))
        codes: Values = series.cat.codes.to_numpy()
        return np.append(names, np.array([None]))[codes]  # a missing value's code is -1
    kind = series.dtype.kind
    if kind in "iuf":
        return _values.plain(name, series.to_numpy(np.float64, na_value=np.nan))
    if kind == "M":
        return _values.plain(name, series.to_numpy("datetime64[us]"))  # in UTC
    return _values.plain(name, series.to_numpy())


def _of_polars(name: str, series: Any) -> Values:
    if series.dtype.is_nested():
        raise _values.refused(name, f"dtype {series.dtype}")
    try:
        values = series.to_numpy()
    except Exception:  # integers of 128 bits
        return _values.objects(name, series.to_list())
    return _values.plain(name, values)


def arrow_values(name: str, column: Any) -> Values:
    """The values of a pyarrow Array or ChunkedArray."""
    kind, types = column.type, pa.types
    if types.is_nested(kind):
        raise _values.refused(name, f"type {kind}")
    if types.is_dictionary(kind):
        return _values.to_text(arrow_values(name, column.cast(kind.value_type)))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return _arrow_array(column.cast(pa.float64(), safe=False))
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return _values.plain(name, _arrow_array(column))  # in UTC
    if types.is_time(kind):
        return _arrow_array(column.cast(pa.time64("us")).cast(pa.int64()).cast(pa.float64())) / 1e6
    if types.is_string(kind) or types.is_large_string(kind):
        return _arrow_array(column)
    if types.is_boolean(kind) and column.null_count == 0:
        return _arrow_array(column)
    return _values.objects(name, column.to_pylist())


def _arrow_array(column: Any) -> Values:
    """A pyarrow Array or ChunkedArray as an array."""
    chunked = hasattr(column, "chunks")
    values: Values = column.to_numpy() if chunked else column.to_numpy(zero_copy_only=False)
    return values
