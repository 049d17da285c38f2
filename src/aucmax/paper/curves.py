"""What is drawn of a line: the mean over its seeds at each step, a band around it, its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aucmax.paper.results import RunResult, number
from aucmax.train.metrics import ROC_AUC

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


def curve(group: Sequence[RunResult]) -> Curve:
    """The curve of runs that differ in their seed alone; diverged ones are left out."""
    finished = [run for run in group if not run.has_diverged]
    if not finished:
        none = np.empty(0)
        return Curve(none, none, none, none, math.nan)
    by_step = [auc_by_step(run) for run in finished]
    steps = sorted(set.intersection(*map(set, by_step)))
    if all(by_step) and not steps:
        raise ValueError(
            f"seeds of a line must be evaluated at the same steps, those of "
            f"{finished[0].line!r} have no step in common"
        )
    values = np.array([[aucs[step] for step in steps] for aucs in by_step], dtype=np.float64)
    times = [x for run in finished if not math.isnan(x := run.seconds_per_step)]
    # The band reaches from seed to seed: a standard deviation of few could pass an AUC of 1.
    edges = values if len(values) > 1 else np.full_like(values, np.nan)
    return Curve(
        np.array(steps, dtype=np.float64),
        values.mean(0),
        edges.min(0),
        edges.max(0),
        seconds_per_step=math.fsum(times) / len(times) if times else math.nan,
    )


def auc_by_step(run: RunResult) -> dict[int, float]:
    """Test AUC by step; a pretraining that has no average shows its last iterate."""
    key, key_of_last = (ROC_AUC.history_key("test", which) for which in (run.iterate, "last"))
    main = run.history[-1].get("phase") if run.history else None
    aucs = {}
    for record in run.history:
        value = record.get(key)
        if value is None and record.get("phase") != main:
            value = record.get(key_of_last)
        aucs[record["step"]] = number(value, key)
    return {step: value for step, value in aucs.items() if not math.isnan(value)}
