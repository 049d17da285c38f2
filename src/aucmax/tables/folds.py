"""Which rows each of several fits is trained on, and which it is judged by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Folds:
    """Rows of several fits of the same model; a fit is judged by rows that it is not trained on.

    Attributes:
        used: (N, fits), whether a row is trained on.
        held: (N, fits), whether it is judged; never both.
    """

    used: NDArray[np.bool_]
    held: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """How many fits there are."""
        return int(self.held.shape[1])

    @property
    def judged(self) -> NDArray[np.int64]:
        """Numbers of the rows that some fit is judged by."""
        return np.flatnonzero(self.held.any(axis=1))
