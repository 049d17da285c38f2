"""What is drawn of a line: the mean over its seeds at each step, a band around it, its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aucmax.paper.results import Run, has_diverged, number

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The mean over seeds at each step; ``low`` and ``high`` bound the band, nan if there is none.

    Attributes:
        steps: those at which every seed has a value.
        seconds_per_step: mean over seeds, nan if it is not known.
    """

    steps: Array
    mean: Array
    low: Array
    high: Array
    seconds_per_step: float

    def x(self, by: str) -> Array:
        """Where the points lie on the horizontal axis."""
        return self.steps if by == "step" else self.steps * self.seconds_per_step

    def can_be_drawn(self, by: str) -> bool:
        """Whether there are points, and a time for them if they are drawn by seconds."""
        return len(self.steps) > 0 and (by == "step" or not math.isnan(self.seconds_per_step))


def curve(group: Sequence[Run]) -> Curve:
    """The curve of runs that differ in their seed alone.

    Args:
        group: the runs; diverged ones are left out.
    """
    finished = [run for run in group if not has_diverged(run)]
    known = [_values(run) for run in finished]
    steps = sorted(set.intersection(*map(set, known))) if known else []
    if all(known) and known and not steps:
        raise ValueError(
            f"seeds of a line must be evaluated at the same steps, those of "
            f"{finished[0]['line']!r} have no step in common"
        )
    values = np.array([[found[step] for step in steps] for found in known], dtype=np.float64)
    values = values.reshape(len(known), len(steps))
    times = [number(run.get("seconds_per_step"), "seconds_per_step") for run in finished]
    timed = [x for x in times if not math.isnan(x)]
    seconds = math.fsum(timed) / len(timed) if timed else math.nan
    return Curve(np.array(steps, dtype=np.float64), *_mean_and_band(values), seconds)


def _values(run: Run) -> dict[int, float]:
    """Test AUC by step; a pretraining that has no average shows its last iterate."""
    main = run["history"][-1].get("phase") if run["history"] else None
    found = {}
    for record in run["history"]:
        value = record.get(f"test_auc_{run['iterate']}")
        if value is None and record.get("phase") != main:
            value = record.get("test_auc_last")
        found[record["step"]] = number(value, f"test_auc_{run['iterate']}")
    return {step: value for step, value in found.items() if not math.isnan(value)}


def _mean_and_band(values: Array) -> tuple[Array, Array, Array]:
    """The band reaches from seed to seed: a standard deviation of few could pass an AUC of 1."""
    if not values.size:
        none: Array = np.empty(0)
        return none, none, none
    mean = values.mean(0)
    if len(values) == 1:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    return mean, values.min(0), values.max(0)
