"""Tables as numbers: fitted once, applied to every table that follows."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from aucmax import checks
from aucmax.tables import formats
from aucmax.tables._field import Field, Settings
from aucmax.tables._values import Values
from aucmax.tables.columns import Columns, columns_of, understood
from aucmax.tables.formats import Format, spelling_key

T = TypeVar("T")

FORMAT = 1
"""Of the dict; one that an older aucmax cannot read has a higher number."""

MANY = 1 << 20
"""With so many values columns are shared among threads, which gain nothing with few."""


class Encoded(NamedTuple):
    """A table as numbers.

    Attributes:
        numeric: (rows, numeric outputs), about unit, none missing.
        categorical: (rows, categorical outputs), codes from 0, below the cardinality.
    """

    numeric: NDArray[np.float32]
    categorical: NDArray[np.int64]

    def select(self, rows: NDArray[np.int64]) -> Encoded:
        """Some of the rows, by their numbers."""
        return Encoded(self.numeric[rows], self.categorical[rows])


class TableEncoder:
    """Turns a table of raw columns into numbers, as it has learned from a training table.

    ======= ========================================================================
    column  becomes
    ======= ========================================================================
    numbers the normal quantile of the value's rank in training, linear in between; at the
            ends, flat. Order is kept, outliers are tamed, nothing is beyond -5 to 5
    bool    0 or 1
    dates   days since 1970, year, month, day, weekday (0 is Monday) and hour, each as numbers
    text    a code: 1, 2, ... from the most frequent, 0 for those rare or never seen
    ======= ========================================================================

    A missing number or date is taken as the training median; if any was missing in training,
    another numeric output ``NAME is missing`` is 1 where it is, else 0. A missing text is a
    category of its own if it occurred in training. Columns that tell nothing (constant, without
    values, all categories rare) are not used.

    Args:
        quantiles: at most so many points describe the distribution of a column of numbers.
        max_categories: so many of a text's categories have a code, not counting the missing.
        min_count: categories in fewer training rows have none.

    Example:
        >>> encoder = TableEncoder(min_count=1).fit([[1, "a"], [2, "b"], [30, "a"], [None, "c"]])
        >>> encoder.transform([[2, "c"], [None, "?"]]).numeric.round(2).tolist()
        [[0.0, 0.0], [0.0, 1.0]]
        >>> encoder.transform([[2, "c"], [None, "?"]]).categorical.tolist()
        [[3], [0]]
        >>> encoder.numeric_names, encoder.cardinalities
        (['x0', 'x0 is missing'], [4])
    """

    def __init__(
        self, *, quantiles: int = 1000, max_categories: int = 254, min_count: int = 5
    ) -> None:
        self._settings = Settings(
            checks.count("quantiles", quantiles, least=2),
            checks.count("max_categories", max_categories),
            checks.count("min_count", min_count),
        )
        self._fields: list[Field] | None = None

    def fit(self, X: Any) -> Self:
        """Learn from a training table.

        Args:
            X: what :func:`columns_of` reads, also :class:`Columns`.

        Raises:
            ValueError: if it has no rows, a number is infinite, or no column tells anything.
        """
        columns = columns_of(X)
        if columns.rows == 0:
            raise ValueError("X must have rows, found none")
        columns, notes = understood(columns)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        written = [columns.formats[name] for name in columns.names]
        settings = [self._settings] * len(written)
        items = list(zip(columns.names, columns.values, written, settings, strict=True))
        fields = _each(Field.fit, items, columns.rows)
        if all(field.kind == "unused" for field in fields):
            why = [f"{field.name!r}: {field.why}" for field in fields[:5]] or ["no columns"]
            raise ValueError(f"X must have a column that differs by row, found {'; '.join(why)}")
        self._fields = fields
        return self

    def transform(self, X: Any) -> Encoded:
        """Encode a table.

        Columns are told by name, in any order, and those not trained with are ignored. A table
        without names (an array, a list of rows, a sparse matrix) must have as many columns as in
        training, in the same order.

        A column may come as another kind than in training if its values can be read as that:
        numbers, true or false and ISO dates in text, 0 and 1 for true or false, anything as text.

        Args:
            X: what :func:`columns_of` reads, also :class:`Columns`.

        Raises:
            ValueError: if a column is missing, or one holds what it could not in training; the
                message names column, row (from 0) and value.
        """
        columns = columns_of(X)
        fields, values = self._match(columns)
        widths = [len(field.numeric_names) for field in fields]
        texts = [field.kind == "text" for field in fields]
        numeric = np.empty((columns.rows, sum(widths)), dtype=np.float32)
        categorical = np.empty((columns.rows, sum(texts)), dtype=np.int64)
        outputs = (  # of each field, as views to be written to
            np.split(table, np.cumsum(sizes)[:-1], axis=1)
            for table, sizes in ((numeric, widths), (categorical, texts))
        )
        _each(Field.encode, list(zip(fields, values, *outputs, strict=True)), columns.rows)
        return Encoded(numeric, categorical)

    def notes(self, X: Any) -> list[str]:
        """What a user may want to know about a table.

        Which of its columns are not used, and why; which texts are taken as missing that training
        had not seen; and where numbers come instead of categories.

        Example:
            >>> encoder = TableEncoder().fit([[1, 7], [2, 7], [3, 7]])
            >>> encoder.notes([[1, 7]])
            ["column 'x1' is not used: it was constant in training"]
        """
        columns = columns_of(X)
        known = {field.name: field for field in self._fitted}
        names = columns.names if columns.named else self.names
        extra = "the model was not trained with it"
        why = {name: known[name].why if name in known else extra for name in names}
        unused = [f"column {name!r} is not used: {why[name]}" for name in names if why[name]]
        return [*unused, *self.reading_notes(columns), *self._unseen_notes(columns)]

    def _unseen_notes(self, columns: Columns) -> list[str]:
        """Which categories of a later table training has not seen."""
        given = self._by_name(columns)
        lines = []
        for field in self._fitted:
            if field.name not in given or field.name in columns.formats:
                continue
            if not (unseen := field.unseen(given[field.name])):
                continue
            known = {spelling_key(x): x for x in field.categories if x is not None}
            alike = next((x for x in unseen if spelling_key(x) in known), None)
            most = unseen.most_common(3)
            some = ", ".join(f"{text!r} ({count:,})" for text, count in most)
            more = ", ..." if len(unseen) > len(most) else ""
            hint = ""
            if alike is not None:
                hint = f"; {alike!r} is {known[spelling_key(alike)]!r} but for case or blanks"
            lines.append(
                f"column {field.name!r}: {unseen.total():,} of {columns.rows:,} values were not "
                f"seen in training: {some}{more}{hint}"
            )
        return lines

    def _by_name(self, columns: Columns) -> dict[str, Values]:
        """The values of each column; a table without names has those of training."""
        names = columns.names if columns.named else self.names
        return dict(zip(names, columns.values, strict=True))

    def reading_notes(self, columns: Columns) -> list[str]:
        """Those of the notes that say what was guessed of the values of a later table."""
        given, lines, marks = self._by_name(columns), [], {}
        for field in self._fitted:
            values = given.get(field.name)
            if values is None or field.kind == "unused" or field.name in columns.formats:
                continue
            if field.loses(values):
                lines.append(
                    f"column {field.name!r} held texts in training and comes as numbers, which "
                    f"have lost how they were written, such as zeros in front: read it as text"
                )
            elif field.takes_shares(values):
                lines.append(
                    f"column {field.name!r} was per cent in training and comes as numbers up to 1: "
                    f"if these are shares, multiply them by 100"
                )
            elif seen := field.new_marks(values):
                marks[field.name] = Format(field.kind, marks=seen)
        return [*lines, *formats.notes(marks)]

    @property
    def names(self) -> list[str]:
        """Of the raw columns, with those not used."""
        return [field.name for field in self._fitted]

    def places(self) -> list[tuple[str, list[int], list[int]]]:
        """Of each raw column that is used: its name, and which encoded columns are its own."""
        places, numeric, codes = [], 0, 0
        for field in self._fitted:
            width, text = len(field.numeric_names), int(field.kind == "text")
            if width or text:
                own = list(range(numeric, numeric + width)), list(range(codes, codes + text))
                places.append((field.name, *own))
            numeric, codes = numeric + width, codes + text
        return places

    @property
    def numeric_names(self) -> list[str]:
        """Of the numeric outputs."""
        return [name for field in self._fitted for name in field.numeric_names]

    @property
    def categorical_names(self) -> list[str]:
        """Of the categorical outputs, one for each text."""
        return [field.name for field in self._fitted if field.kind == "text"]

    @property
    def formats(self) -> dict[str, Format]:
        """How texts of the raw columns are read, by their names."""
        return {
            field.name: field.format or Format("number" if field.kind == "unused" else field.kind)
            for field in self._fitted
        }

    @property
    def cardinalities(self) -> list[int]:
        """How many codes each categorical output has, 0 with them."""
        return [len(field.categories) + 1 for field in self._fitted if field.kind == "text"]

    def to_dict(self) -> dict[str, Any]:
        """All that was learned, as JSON can hold it: to the bit."""
        fields = [field.to_dict() for field in self._fitted]
        return {"format": FORMAT, "settings": self._settings._asdict(), "columns": fields}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """The encoder that a dict was made of.

        Raises:
            ValueError: if it was made by a newer aucmax, or by something else.
        """
        version = d.get("format") if isinstance(d, Mapping) else None
        if not isinstance(version, int) or version < 1:
            raise ValueError(f"d must be a dict made by to_dict, found format {version!r}")
        if version > FORMAT:
            raise ValueError(
                f"d must have a format up to {FORMAT}, found {version}: upgrade aucmax to read it"
            )
        encoder = cls(**d["settings"])
        encoder._fields = [Field.from_dict(field) for field in d["columns"]]
        return encoder

    @property
    def _fitted(self) -> list[Field]:
        if self._fields is None:
            raise ValueError("the TableEncoder must be fitted first: call its fit")
        return self._fields

    def _match(self, columns: Columns) -> tuple[list[Field], list[Values]]:
        """The used fields, and the columns that are theirs."""
        given = dict(zip(columns.names, columns.values, strict=True))
        if not columns.named:
            if len(given) != len(self.names):
                raise ValueError(
                    f"X must have {len(self.names)} columns as in training, found {len(given)}"
                )
            given = dict(zip(self.names, columns.values, strict=True))
        used = [field for field in self._fitted if field.kind != "unused"]
        missing = [field.name for field in used if field.name not in given]
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            others = {"".join(x.casefold().split()): x for x in given if x not in self.names}

            def named(name: str) -> str:
                near = difflib.get_close_matches("".join(name.casefold().split()), others, n=1)
                return f"{name!r} (but {others[near[0]]!r})" if near else repr(name)

            raise ValueError(
                f"X must have the columns of training, found none named "
                f"{', '.join(map(named, missing[:5]))}{more}"
            )
        return used, [given[field.name] for field in used]


def _each(task: Callable[..., T], items: Sequence[tuple[Any, ...]], rows: int) -> list[T]:
    """The task's result for each item, by several threads if there are many values.

    NumPy sorts and interpolates without Python's lock.
    """
    threads = min(torch.get_num_threads(), len(items)) if rows * len(items) >= MANY else 1
    if threads < 2:
        return [task(*item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda item: task(*item), items))
