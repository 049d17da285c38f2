"""A column's values as one of four kinds: numbers, true or false, dates, text.

====== ============== ============================================
kind   dtype          missing
====== ============== ============================================
number float64        NaN
bool   bool           none: with missing values it is 0, 1 and NaN
date   datetime64[us] NaT
text   object of str  None
====== ============== ============================================

:func:`plain` and :func:`objects` bring there whatever a library holds; ``to_...`` turn one kind
into another, for a table that comes with other kinds than the one an encoder was fitted on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Complex, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Numbers = NDArray[np.float64]

KINDS = {"f": "number", "b": "bool", "M": "date", "O": "text"}
"""The kind of a column by the letter of its dtype."""

WANTED = {"number": "numbers", "bool": "true or false", "date": "dates", "text": "text"}


def kind_of(values: Values) -> str:
    """Which of the four kinds they are."""
    return KINDS[values.dtype.kind]


# ---- From what a library holds -------------------------------------------------------------------


def plain(name: str, values: Values) -> Values:
    """An array of any dtype as one of the four kinds.

    Raises:
        ValueError: if they are complex or nested.
    """
    kind = values.dtype.kind
    if kind in "iuf":
        with np.errstate(over="ignore"):  # a long double may become infinite, which is found later
            return values.astype(np.float64, copy=False)
    if kind == "M":
        return values.astype("datetime64[us]", copy=False)
    if kind == "m":
        return np.asarray(values / np.timedelta64(1, "s"), dtype=np.float64)
    if kind in "USOT":
        return objects(name, values.tolist())
    if kind != "b":
        raise refused(name, f"dtype {values.dtype}")
    return values


def objects(name: str, values: Sequence[Any]) -> Values:
    """Python objects as one of the four kinds: what all that are not missing have in common."""
    kinds = {each: _kind_of_type(each) for each in dict.fromkeys(map(type, values))}
    for each, kind in kinds.items():
        if kind == "refused":
            raise refused(name, f"values of type {each.__name__}")
    missing = are_missing(values)
    present = [v for v, gone in zip(values, missing, strict=True) if not gone]
    left = {kinds[each] for each in set(map(type, present))}
    if left == {"bool"} and len(present) == len(values):
        return np.array(values, dtype=bool)
    if left <= {"bool", "number"}:
        return _spread(list(map(_number, present)), missing, np.nan, "float64")
    if left == {"duration"}:
        return _spread(list(map(_seconds, present)), missing, np.nan, "float64")
    if left == {"date"}:
        return _spread(list(map(_utc, present)), missing, "NaT", "datetime64[us]")
    return _spread(list(map(_text, present)), missing, None, "object")


def are_missing(values: Sequence[Any]) -> list[bool]:
    """Which Python objects stand for no value."""
    none = {each for each in set(map(type, values)) if _kind_of_type(each) == "missing"}
    return [type(v) in none or bool(v != v) for v in values]


def check_times(what: str, values: Values, rows: NDArray[np.int64]) -> None:
    """Raise unless values have an order in time and none is missing; ``rows`` number them."""
    if kind_of(values) not in ("number", "date"):
        raise ValueError(f"{what} must hold numbers or dates, found {WANTED[kind_of(values)]}")
    if len(gone := np.flatnonzero(values != values)):
        raise ValueError(
            f"{what} must have no missing values, found {len(gone):,}, the first in row "
            f"{rows[gone[0]]:,}: leave these rows out"
        )


def refused(name: str, found: str) -> ValueError:
    """The error for a column that is none of the four kinds."""
    return ValueError(
        f"column {name!r} must hold numbers, true or false, dates or text, found {found}"
    )


def _spread(present: list[Any], missing: list[bool], empty: object, dtype: str) -> Values:
    """The values in their rows, and ``empty`` in the others."""
    values = np.full(len(missing), empty, dtype=dtype)
    values[~np.array(missing, dtype=bool)] = np.array(present, dtype=dtype)
    return values


def _kind_of_type(each: type) -> str:
    if each.__name__ in ("NoneType", "NAType", "NaTType", "MaskedConstant"):
        return "missing"  # pandas' own are told by name, for pandas may not be there
    if issubclass(each, (bool, np.bool_)):
        return "bool"
    if issubclass(each, (timedelta, np.timedelta64, time)):  # before numbers: timedelta64 is one
        return "duration"
    if issubclass(each, (Real, Decimal)):
        return "number"
    if issubclass(each, (date, np.datetime64)):
        return "date"
    if issubclass(each, (str, bytes)):
        return "text"
    return "refused" if issubclass(each, (Complex, Iterable)) else "text"


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # refused with its row when it is encoded


def _seconds(value: Any) -> float:
    if isinstance(value, time):
        value = timedelta(0, value.second, value.microsecond, 0, value.minute, value.hour)
    return float(np.timedelta64(value) / np.timedelta64(1, "s"))


def _utc(value: Any) -> np.datetime64:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(value, "us")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, (float, np.floating)) and value.is_integer() and abs(float(value)) < 1e16:
        return str(int(value))  # 3.0 is the category 3 of a table in which no value is missing
    return str(value)


# ---- From one kind to another --------------------------------------------------------------------


def to_numbers(name: str, values: Values, kind: str = "number") -> Numbers:
    """The values of a column that was numbers when the encoder was fitted."""
    if kind_of(values) == "date":
        _check_each(kind, name, values, np.isnat(values))
        return np.full(len(values), np.nan)
    return values.astype(np.float64, copy=False)


def to_flags(name: str, values: Values) -> Numbers:
    """The values of a column that was true or false: 0, 1 or NaN."""
    numbers = to_numbers(name, values, kind="bool")
    _check_each("bool", name, values, (numbers == 0) | (numbers == 1) | np.isnan(numbers))
    return numbers


def to_dates(name: str, values: Values) -> Values:
    """The values of a column that was dates."""
    if kind_of(values) == "date":
        return values
    _check_each("date", name, values, np.isnan(values))
    return np.full(len(values), "NaT", dtype="datetime64[us]")


def to_text(values: Values) -> Values:
    """The values of a column that was text; every kind has one."""
    given = kind_of(values)
    if given == "text":
        return values
    texts = np.array(list(map(_text, values.tolist())), dtype=object)
    if given == "date":
        texts[:] = [text.removesuffix(" 00:00:00") for text in texts]  # midnight: the day alone
    texts[np.isnat(values) if given == "date" else np.isnan(values)] = None
    return texts


def _check_each(kind: str, name: str, values: Values, good: NDArray[np.bool_]) -> None:
    """Raise for the first row that is not good."""
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(
            f"column {name!r} must hold {WANTED[kind]} as in training, "
            f"found {_text(values[row])!r} in row {row}"
        )
