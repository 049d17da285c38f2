"""What every metric of a threshold is made of: how many of each class are at or above it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from aucmax.metrics import _gpu
from aucmax.metrics._rows import Rows, Values, has_both_classes, read_rows

ROUNDING = 1e-12
"""Relative: sums of weights that exceed a bound by less do not exceed it."""


class Curve(NamedTuple):
    """The weight of positives and of negatives at or above each distinct score, highest first.

    In float64, on the GPU if the rows are there.
    """

    hits: Tensor
    alarms: Tensor
    unit: float  # the largest weight, by which both are divided


def read_curve(scores: Values, target: Values, weight: Values | None = None) -> Curve | None:
    """That of the rows, checked; None, and a warning, if a class is missing."""
    tensors = _gpu.tensors_on_gpu(scores, target, weight)
    if tensors is not None and (counts := _gpu.counts_above(*tensors)) is not None:
        return Curve(*counts, 1.0 if tensors[2] is None else float(tensors[2].max()))
    rows = read_rows(scores, target, weight)
    return curve_of(rows) if has_both_classes(rows.positive) else None


def curve_of(rows: Rows) -> Curve:
    """That of rows on the CPU."""
    hits, alarms, _ = rows.counts_above()
    unit = 1.0 if rows.weight is None else float(rows.weight.max())
    return Curve(torch.from_numpy(hits), torch.from_numpy(alarms), unit)
