"""Learning from rows as they come: once each, the classes' shares unknown."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aucmax import checks
from aucmax.judge.calibration import Platt, Temperature
from aucmax.loss import AUCLoss, CrossEntropy, MulticlassAUCLoss, minmax_groups
from aucmax.tables.scoring import Rows, calibrate, score_rows
from aucmax.train.methods import METHODS
from aucmax.train.metrics import Metric, Scored
from aucmax.train.objectives import ModelWithLoss

REMEMBERED = 20_000
"""Rows, the latest, whose scores before they were learned are judged."""
CALIBRATED_ON = 2_000
"""Rows, the latest, that calibrate the probabilities, by their scores now."""


class Online:
    """One pass over a stream with AdamW on the AUC objective and cross-entropy.

    Of two classes the share is estimated as labels come (Algorithm 4); of more by counting.

    Args:
        network: is trained in place.
        classes: how many there are.
        lr: step size.
        weight_decay: of the network's weights.
        metric: of the scores that rows get before they are learned from.
    """

    def __init__(
        self, network: nn.Module, classes: int, lr: float, weight_decay: float, metric: Metric
    ) -> None:
        self.network, self.metric = network, metric
        self.counts, self.rows = np.ones(classes), 0
        auc: Any = AUCLoss(link="identity")
        if classes > 2:
            auc = MulticlassAUCLoss([1 / classes] * classes)
        self.auc = auc
        self.loss = auc + CrossEntropy("multiclass" if classes > 2 else "binary")
        self.objective = ModelWithLoss(network, self.loss)
        saddle_lr = lr * METHODS["adamw"].saddle_lr
        groups = minmax_groups(network, self.loss, lr=lr, saddle_lr=saddle_lr)
        self.optimizer = torch.optim.AdamW(groups, weight_decay=weight_decay)
        self.history: list[dict[str, Any]] = []
        self.seen: deque[tuple[NDArray[np.float64], int]] = deque(maxlen=REMEMBERED)
        self.latest: Rows | None = None

    def learn(self, rows: Rows, batch_size: int) -> None:
        """Score the rows, then learn from them, batch by batch in the order they come."""
        with torch.random.fork_rng(devices=[]):  # dropout's, the same for the same rows
            torch.manual_seed(self.rows)
            for start in range(0, len(rows), batch_size):
                part = rows.select(np.arange(start, min(start + batch_size, len(rows))))
                self.network.eval()
                with torch.no_grad():
                    scores = self.network((part.numeric, part.codes)).double()
                each = scores.reshape(len(part), -1).numpy()
                self.seen.extend(zip(each, part.classes.tolist(), strict=True))
                self._step(part)
        self.latest = _last(self.latest, rows)
        self.rows += len(rows)
        self.history.append({"rows": self.rows, f"valid_{self.metric.key}": self.score()})

    def _step(self, rows: Rows) -> None:
        self.network.train()
        self.counts += np.bincount(rows.classes, minlength=len(self.counts))
        if isinstance(self.auc, MulticlassAUCLoss):
            self.auc.priors.copy_(torch.from_numpy(self.counts / self.counts.sum()))
        if rows.weight is not None and not rows.weight.any():
            return
        loss = self.objective(*rows.for_fit())
        checks.check_finite("loss", loss.numpy(force=True))
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()

    def score(self) -> float:
        """Of the latest rows, each scored before it was learned from; NaN if a class is missing."""
        scores, classes = zip(*self.seen, strict=True)
        if len(set(classes)) < len(self.counts):
            return math.nan
        rows = torch.from_numpy(np.stack(scores))
        binary = rows.shape[1] == 1
        scored = Scored(rows[:, 0] if binary else rows, torch.tensor(classes), None)
        return self.metric(scored, "binary" if binary else "multiclass")

    def calibrated(self, rule: str | float) -> tuple[Platt | Temperature, float]:
        """The map to probabilities that the latest rows give now, and the threshold."""
        assert self.latest is not None
        scores = score_rows(self.network, self.latest, torch.device("cpu"))
        return calibrate(scores, self.latest, rule)


def _last(before: Rows | None, rows: Rows) -> Rows:
    """The latest rows of both, at most CALIBRATED_ON; those without weights weigh one."""
    rows = rows.select(np.arange(max(0, len(rows) - CALIBRATED_ON), len(rows)))
    if before is None or len(rows) >= CALIBRATED_ON:
        return rows
    before = before.select(np.arange(max(0, len(before) + len(rows) - CALIBRATED_ON), len(before)))
    weights = [
        np.ones(len(x), np.float32) if x.weight is None else x.weight for x in (before, rows)
    ]
    weighed = before.weight is not None or rows.weight is not None
    return Rows(
        torch.cat([before.numeric, rows.numeric]),
        torch.cat([before.codes, rows.codes]),
        np.concatenate([before.classes, rows.classes]),
        np.concatenate(weights) if weighed else None,
    )
