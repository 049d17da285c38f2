"""Tables of raw columns, turned into the numbers that a network takes.

:func:`columns_of` reads any table column by column, :class:`TableEncoder` learns to encode them.
What it has learned is plain JSON: nothing is pickled, nothing is run when it is read.

Needs NumPy and torch alone. pandas, polars, pyarrow and SciPy are never imported unless the table
at hand is one of theirs.
"""

from aucmax.data.tables._columns import Columns, columns_of
from aucmax.data.tables._encoder import Encoded, TableEncoder

__all__ = ["Columns", "Encoded", "TableEncoder", "columns_of"]
