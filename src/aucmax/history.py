"""Append-only records of a run, one JSON object per line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeAlias

from aucmax import disk

__all__ = ["History", "read"]

Record: TypeAlias = dict[str, Any]


def read(path: str | Path) -> list[Record]:
    """The records of a ``history.jsonl`` file; a last line that was cut off is left out.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "history.jsonl"
        >>> with History(path) as history:
        ...     history.append({"step": 100, "valid_auc_last": 0.8, "alpha": math.nan})
        >>> read(path)
        [{'step': 100, 'valid_auc_last': 0.8, 'alpha': None}]
    """
    records = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


class History:
    """The records of a run, in memory and, with a path, in a file that is flushed line by line.

    Args:
        path: the file, or None to keep the records in memory alone.
        records: those of the part of the run that is over; the file is made to hold just these.

    Example:
        >>> with History() as history:
        ...     history.append({"step": 100, "valid_auc_last": 0.8})
        >>> history.records
        [{'step': 100, 'valid_auc_last': 0.8}]
    """

    def __init__(self, path: Path | None = None, records: list[Record] | None = None) -> None:
        self.records: list[Record] = list(records or [])
        self._file = None
        if path is not None:
            disk.write_text(path, "".join(map(_line, self.records)))
            self._file = path.open("a", encoding="utf-8")

    def append(self, record: Record) -> None:
        """Add a record; NaN and infinity are written as null, which every JSON reader knows."""
        line = _line(record)
        self.records.append(json.loads(line))
        if self._file is not None:
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _line(record: Record) -> str:
    return json.dumps(_finite(record), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
