"""Several files with the same columns as one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from aucmax.tables.csv_files import is_text

Paths: TypeAlias = str | Path | Sequence[str | Path]
"""A file, or several with the same columns."""


def as_paths(data: Paths) -> tuple[str, ...]:
    """The files' names; at least one."""
    paths = (data,) if isinstance(data, (str, Path)) else tuple(data)
    if not paths:
        raise ValueError("data must be a file or several, found none")
    return tuple(map(str, paths))


def listed(data: Paths) -> str:
    """The files in a sentence."""
    return " and ".join(as_paths(data))


def check_columns(paths: Sequence[str], tables: Sequence[pa.Table]) -> None:
    """Raise unless all files have the same columns, in whatever order."""
    names = dict.fromkeys(tables[0].column_names)
    for path, table in zip(paths[1:], tables[1:], strict=True):
        others = dict.fromkeys(table.column_names)
        missing = [name for name in names if name not in others]
        extra = [name for name in others if name not in names]
        parts = (("without", missing), ("with", extra))
        if other := " and ".join(f"{word} {_some(some)}" for word, some in parts if some):
            raise ValueError(
                f"data must be files with the same columns, found {path!r} {other}, unlike "
                f"{paths[0]!r}"
            )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def texts_of_some(tables: Sequence[pa.Table]) -> set[str]:
    """The columns that are text in some of the files and something else in others."""
    texts = [{field.name for field in table.schema if is_text(field.type)} for table in tables]
    return set.union(*texts) - set.intersection(*texts)


def put_together(paths: Sequence[str], tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all files, one file after the other, columns in the order of the first.

    Whole numbers of one file become numbers with those of another; types that do not fit are an
    error that names the file and the column.
    """
    if len(tables) == 1:
        return tables[0]
    fields = [field.remove_metadata() for field in tables[0].schema]
    for path, table in zip(paths[1:], tables[1:], strict=True):
        others = {field.name: field.remove_metadata() for field in table.schema}
        for place, field in enumerate(fields):
            pair = [pa.schema([field]), pa.schema([others[field.name]])]
            try:
                fields[place] = pa.unify_schemas(pair, promote_options="permissive").field(0)
            except pa.ArrowException:
                raise ValueError(
                    f"data must be files with columns of one kind, found {field.name!r} as "
                    f"{others[field.name].type} in {path!r} and as {field.type} in {paths[0]!r}"
                ) from None
    kinds = pa.schema(fields)
    return pa.concat_tables([table.select(kinds.names).cast(kinds) for table in tables])
