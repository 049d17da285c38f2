"""The AUC of rows that come in batches, on one rank or several."""

from __future__ import annotations

import numpy as np
import torch

from aucmax.distributed import concat_over_ranks, sendable, world_size
from aucmax.metrics.curve import roc_auc
from aucmax.metrics.rows import Floats, Values, read_rows


class StreamingAUC:
    """The exact AUC of batches that come one at a time, over all ranks of a process group.

    Each row is kept in 24 bytes of host memory; nothing of the graph or of a GPU is held. The AUC
    is that of all ranks' rows together, no average: a rank may lack a class, or have no rows.

    Example:
        >>> from aucmax.metrics import StreamingAUC
        >>> metric = StreamingAUC()
        >>> metric.update([0.1, 0.4], [0, 0])
        >>> metric.update([0.35, 0.8], [1, 1])
        >>> metric.compute()
        0.75
    """

    def __init__(self) -> None:
        self.reset()

    def update(self, scores: Values, target: Values, weight: Values | None = None) -> None:
        """Add a batch, with arguments as for :func:`roc_auc`; it may be of one class or empty."""
        x, positive, w, *_ = read_rows(scores, target, weight).on_host()
        exact = x.astype(np.float64)
        with np.errstate(invalid="ignore"):  # the way back may leave the integers' range
            if not (exact.astype(x.dtype) == x).all():
                raise ValueError(f"scores must fit float64, found {x.dtype} values it would round")
        self._batches.append(np.stack([exact, positive, np.ones(len(x)) if w is None else w], 1))

    def compute(self) -> float:
        """The AUC of all rows so far, of all ranks; a collective call in a process group."""
        table = torch.from_numpy(np.concatenate([np.empty((0, 3)), *self._batches]))
        if world_size() > 1:
            table = sendable(table)
        x, y, w = concat_over_ranks(table).cpu().numpy().T
        return roc_auc(x, y, None if (w == 1).all() else w)

    def reset(self) -> None:
        """Forget all rows."""
        self._batches: list[Floats] = []
