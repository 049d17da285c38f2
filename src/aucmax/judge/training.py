"""How the training of a judged model went, from the records of its history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aucmax.train.metrics import ITERATES, metric_in_records


class Point(NamedTuple):
    """An evaluation during training, of the latest or of the averaged weights."""

    step: float
    score: float
    iterate: str


class Training(NamedTuple):
    """The validation scores of each iterate that has some.

    Attributes:
        label: of the metric, for people to read.
        steps: of the whole training.
        curves: by iterate.
        steady: the point whose weights were kept by ``choose="steady"``; None for the best.
    """

    label: str
    steps: int
    curves: dict[str, list[Point]]
    steady: Point | None = None

    @property
    def evaluations(self) -> int:
        """How many there are."""
        return sum(map(len, self.curves.values()))

    @property
    def kept(self) -> Point | None:
        """The point whose weights were kept: the best, the first of equals, unless it is known."""
        if self.steady is not None:
            return self.steady
        every = [point for curve in self.curves.values() for point in curve]
        return min(every, key=lambda x: (-x.score, x.step, ITERATES.index(x.iterate)), default=None)


def training(
    history: Sequence[Mapping[str, Any]], metric: str, steady: Point | None = None
) -> Training:
    """The validation scores of a history, by the metric of that name."""
    chosen = metric_in_records(metric)
    curves: dict[str, list[Point]] = {}
    for record in history:
        for iterate in ITERATES:
            score = record.get(chosen.history_key("valid", iterate))
            if score is not None and math.isfinite(score):
                curves.setdefault(iterate, []).append(Point(record["step"], score, iterate))
    steps = max((int(record["step"]) for record in history), default=0)
    return Training(chosen.label, steps, curves, steady)
