"""How a user's file is written."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from aucmax import checks


@dataclass(frozen=True)
class ReadOptions:
    """How a file is written, where that cannot be found from the file.

    Args:
        separator: Between a CSV's values; by default found: comma, semicolon, tab or bar.
        decimal: Of a CSV's numbers, "." or ","; by default found.
        encoding: Of a CSV's text, such as latin-1; by default found: UTF-8, UTF-16, Windows-1252.
        na_values: What stands for a missing value, besides NA, NaN, null and the like.
        categories: Columns to take as categories, whatever they look like, such as 007.

    Example:
        >>> ReadOptions(decimal=",", na_values=("-999",)).decimal
        ','
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    na_values: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '\r\n"'):
            raise ValueError(f"separator must be a character, found {self.separator!r}")
        if self.decimal is not None:
            checks.choice("decimal", self.decimal, (".", ","))
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ValueError(
                    f"encoding must be one that Python knows, such as 'utf-8' or 'latin-1', found "
                    f"{self.encoding!r}"
                ) from None
