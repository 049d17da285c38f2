"""Rows on their way through the network, and what the scores decide."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aucmax import checks
from aucmax.judge import calibration
from aucmax.judge.calibration import Platt, Temperature
from aucmax.judge.threshold import Rule
from aucmax.models.tabular import TabularEnsemble
from aucmax.tables.encoder import Encoded

CHUNK = 512
"""Rows scored at once, always as many: hidden units stay near the processor."""


class Rows(NamedTuple):
    """Rows as numbers, with their classes, weights and groups."""

    numeric: Tensor
    codes: Tensor
    classes: NDArray[np.int64]
    weight: NDArray[np.float32] | None
    group: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def encoded(self) -> Encoded:
        """Their columns, sharing the memory."""
        return Encoded(self.numeric.numpy(), self.codes.numpy())

    @classmethod
    def of(
        cls,
        encoded: Encoded,
        classes: NDArray[np.int64],
        weight: NDArray[np.float32] | None,
        group: NDArray[np.int64] | None = None,
    ) -> Rows:
        """Share the memory of an encoded table."""
        numeric, codes = (torch.from_numpy(part) for part in encoded)
        return cls(numeric, codes, classes, weight, group)

    def select(self, rows: NDArray[np.int64]) -> Rows:
        """Some of the rows, by their numbers."""
        index = torch.from_numpy(rows)
        weight = None if self.weight is None else self.weight[rows]
        group = None if self.group is None else self.group[rows]
        return Rows(self.numeric[index], self.codes[index], self.classes[rows], weight, group)

    def followed_by(self, other: Rows) -> Rows:
        """These and other rows; a weight that is not given is 1, and no group has rows of both."""
        weight, group = None, None
        if self.weight is not None or other.weight is not None:
            each = (
                np.ones(len(x), np.float32) if x.weight is None else x.weight for x in (self, other)
            )
            weight = np.concatenate([*each])
        if self.group is not None and other.group is not None:
            group = np.concatenate([self.group, self.group.max() + 1 + other.group])
        return Rows(
            torch.cat([self.numeric, other.numeric]), torch.cat([self.codes, other.codes]),
            np.concatenate([self.classes, other.classes]), weight, group,
        )  # fmt: skip

    def for_fit(self) -> tuple[Any, ...]:
        """As :func:`aucmax.fit` and a stream take them: no place for weights that are not there."""
        more = [None if x is None else torch.from_numpy(x) for x in self[3:]]
        while more and more[-1] is None:
            more.pop()
        return (self.numeric, self.codes), torch.from_numpy(self.classes), *more


@torch.no_grad()
def score_rows(network: nn.Module, rows: Rows, device: torch.device) -> NDArray[np.float64]:
    """Raw scores (N, outputs); a row's do not depend on its neighbours or on how many there are.

    A product of matrices rounds otherwise with other numbers of rows. So TabM, in single precision,
    always gets as many, some of them empty; other networks compute in double precision.
    """
    dtype = torch.float32 if isinstance(network, TabularEnsemble) else torch.float64
    scorer = copy.deepcopy(network).to(device, dtype).eval()
    chunks = []
    for start in range(0, len(rows), CHUNK):
        parts = (column[start : start + CHUNK] for column in (rows.numeric, rows.codes))
        numeric, codes = (torch.cat([x, x.new_zeros(CHUNK - len(x), x.shape[1])]) for x in parts)
        chunk = scorer((numeric.to(device, dtype), codes.to(device)))
        chunks.append(chunk.reshape(CHUNK, -1).cpu().double().numpy())
    scores = np.concatenate(chunks)[: len(rows)]
    checks.check_finite("scores", scores)
    return scores


def fit_calibration(scores: NDArray[np.float64], rows: Rows) -> Platt | Temperature:
    """The map from raw scores to log-odds that the rows give."""
    if scores.shape[1] > 1:
        return calibration.fit_temperature(scores, rows.classes, rows.weight)
    return calibration.fit_platt(scores[:, 0], rows.classes, rows.weight)


def calibrate(
    scores: NDArray[np.float64], rows: Rows, rule: str | float
) -> tuple[Platt | Temperature, float]:
    """The map from raw scores to probabilities that the rows give, and the threshold."""
    fitted = fit_calibration(scores, rows)
    if scores.shape[1] > 1:
        return fitted, 0.5
    return fitted, Rule.read(rule).threshold(fitted(scores[:, 0]), rows.classes, rows.weight)
