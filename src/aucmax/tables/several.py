"""Several files with the same columns as one table."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from aucmax.tables.csv_files import is_text

Paths: TypeAlias = str | Path | Sequence[str | Path]
"""A file, a folder of files, a pattern such as ``part-*.parquet``, or several of these."""

HIDDEN = re.compile(r"[._]|.*\.crc$")
"""Names of what other programs keep for themselves, as Spark keeps _SUCCESS and .part-0.crc."""


def as_paths(data: Paths) -> tuple[str, ...]:
    """What was named, as text; at least one."""
    paths = (data,) if isinstance(data, (str, Path)) else tuple(data)
    if not paths:
        raise ValueError("data must be a file or several, found none")
    return tuple(map(str, paths))


def files_of(data: Paths, notes: list[str] | None = None) -> tuple[str, ...]:
    """The files of folders and patterns, by their names, among those that are named themselves.

    Args:
        data: what was named.
        notes: to which is added what of a folder or pattern is not read.

    Raises:
        ValueError: if a folder or pattern has no files, or files of several kinds.
    """
    said: list[str] = []
    files = [path for named in as_paths(data) for path in _files_of_one(named, said)]
    if notes is not None:
        notes += said
    return tuple(files)


def _files_of_one(named: str, notes: list[str]) -> list[str]:
    path = Path(named)
    if path.is_dir():
        found, where = [*path.iterdir()], f"in the folder {named}"
        hidden = [x for x in found if HIDDEN.match(x.name)]
    elif glob.has_magic(named) and not path.exists():
        found, where = [Path(x) for x in glob.glob(named, recursive=True)], f"like {named}"
        hidden = [x for x in found if HIDDEN.match(x.name) and not HIDDEN.match(path.name)]
    else:
        return [named]  # whoever reads it says whether it is there
    folders = sorted(x for x in found if x.is_dir() and x not in hidden)
    files = sorted(str(x) for x in found if x not in hidden and x not in folders)
    if path.is_dir():
        # What rows of a folder have in common, its name may say, and nobody has been told.
        notes += [f"the folder {x} is not looked into: a pattern can name it" for x in folders]
    else:
        files += [file for x in folders for file in _files_of_one(str(x), notes)]
    names = _some(sorted(x.name for x in hidden))
    if not files:
        but = f" but {names}" if hidden else ""
        raise ValueError(f"data must name files that are there, found none {where}{but}")
    if hidden:
        notes.append(f"what is hidden {where} is not read: {names}")
    kinds = Counter(Path(file.lower().removesuffix(".gz")).suffix for file in files)
    if len(kinds) > 1:
        some = ", ".join(f"{count:,} {kind or 'without'}" for kind, count in sorted(kinds.items()))
        raise ValueError(f"data must be files of one kind, found endings {where}: {some}")
    return files


def listed(data: Paths) -> str:
    """The files in a sentence."""
    return " and ".join(as_paths(data))


def model_folder_of(out: str | Path | None, data: str | Path) -> Path:
    """Where a model goes: if nobody says, the folder's or first file's name with "-model"."""
    if out is not None:
        return Path(out).resolve()
    named = Path(data) if Path(data).is_dir() else Path(files_of(data)[0])
    return Path(f"{named.resolve().name.split('.')[0]}-model").resolve()


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
