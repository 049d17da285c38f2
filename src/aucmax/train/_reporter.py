"""How far training is: a live bar in a terminal, plain lines elsewhere, TensorBoard if asked."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from aucmax import distributed
from aucmax.extras import needed
from aucmax.progress import ProgressBar
from aucmax.train._result import DivergedError, FitResult
from aucmax.train.metrics import ITERATES, Metric, best_value, metric_in_records

REFRESH = 0.2
"""Seconds between two updates of the bar."""


class Reporter:
    """Says what happens on standard error; nothing on ranks other than the first.

    Args:
        total: steps of the whole run.
        metric: by which its weights are chosen.
        show: False is silent, notes included.
        tensorboard: a folder for TensorBoard's files, or None.
    """

    def __init__(self, total: int, metric: Metric, show: bool, tensorboard: Path | None) -> None:
        self.total, self.metric, self.tensorboard = total, metric, tensorboard
        self.is_first = distributed.rank() == 0
        self.bar = ProgressBar(show and self.is_first, "count", "note", redraw=False)
        self.name = self.stage = ""
        self.score = math.nan
        self.writer: Any = None
        self.begun: float | None = None

    def begin(self, name: str, step: int, seconds: float = math.inf) -> None:
        """Training begins, or goes on.

        Args:
            name: of the method.
            step: those that are done.
            seconds: after so many training ends at the latest.
        """
        self.name, self.first = name, step
        self.begun = self.refreshed = time.perf_counter()
        self.deadline = self.begun + seconds
        if self.tensorboard is not None and self.is_first:
            self.writer = _summary_writer(self.tensorboard, step)
        self.bar.begin(name, self.total, step)

    def tick(self, step: int) -> None:
        """One more step; the bar is drawn anew a few times a second."""
        if self.bar.live and time.perf_counter() - self.refreshed > REFRESH:
            self._draw(step)

    def evaluation(self, record: dict[str, Any]) -> None:
        """A record of the history."""
        self.name, self.stage = record["phase"], str(record["stage"])
        self.score = best_value(record, self.metric)
        if self.writer is not None:
            for key, value in record.items():
                if key != "step" and isinstance(value, float) and math.isfinite(value):
                    self.writer.add_scalar(key, value, record["step"])
            self.writer.flush()
        if self.bar.live:
            self._draw(record["step"])
        else:
            self.bar.say(self._line(record))

    def note(self, text: str) -> None:
        """A line of its own."""
        self.bar.say(f"aucmax: {text}")

    def close(self, step: int) -> None:
        """Leave the bar as it is and close the files."""
        if self.begun is not None:
            self._draw(step)
        self.bar.close()
        if self.writer is not None:
            self.writer.close()

    def _speed(self, step: int) -> float:
        return (step - self.first) / max(time.perf_counter() - (self.begun or 0.0), 1e-9)

    def _left(self, step: int, speed: float) -> str:
        """Until all steps are taken, or the time is over."""
        return _clock(min((self.total - step) / speed, self.deadline - time.perf_counter()))

    def _line(self, record: dict[str, Any]) -> str:
        step, speed = record["step"], self._speed(record["step"])
        left = self._left(step, speed) if speed else "?"
        values = {which: record[self.metric.history_key("valid", which)] for which in ITERATES}
        known = [f"{which} {x:.4f}" for which, x in values.items() if not math.isnan(x)]
        scores = f", valid {self.metric.label} {', '.join(known)}" if known else ""
        return (
            f"{self.name}: step {step:,} of {self.total:,}, stage {record['stage']}, "
            f"loss {record['loss']:.4f}{scores}, "
            f"{speed:,.0f} steps/s, {left} left"
        )

    def _draw(self, step: int) -> None:
        speed = self._speed(step)
        parts = [f"stage {self.stage}"] if self.stage else []
        parts += [] if math.isnan(self.score) else [f"{self.metric.label} {self.score:.4f}"]
        parts += [f"{speed:,.0f} steps/s", f"{self._left(step, speed)} left"] if speed else []
        self.bar.update(step, name=self.name, note="  ".join(parts))
        self.refreshed = time.perf_counter()


class SweepReporter:
    """How far a sweep is: one bar over its runs in a terminal, elsewhere a line as each ends.

    Args:
        total: how many runs there will be; None if nobody knows.
        show: False is silent.
    """

    def __init__(self, total: int | None, show: bool) -> None:
        self.total, self.done = total, 0
        self.begun = time.perf_counter()
        self.bar = ProgressBar(show, "count", "note", redraw=False)

    def __enter__(self) -> SweepReporter:
        self.bar.begin("sweep", self.total)
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def tick(self, steps: int) -> None:
        """So many steps have been taken in all."""
        self.bar.update(self.done, note=self._speed(steps))

    def ended(self, number: int, outcome: Any, steps: int) -> None:
        """One more run is over: say how it went."""
        self.done += 1
        if self.bar.live:
            self.tick(steps)
        else:
            of = "" if self.total is None else f"/{self.total}"
            said = f"config {number}: {_in_words(outcome)}, {self._speed(steps)}"
            self.bar.say(f"{self.done:>4}{of}  {said}")

    def _speed(self, steps: int) -> str:
        return f"{steps / max(time.perf_counter() - self.begun, 1e-9):,.0f} steps/s in all"


def _in_words(outcome: FitResult | DivergedError) -> str:
    if isinstance(outcome, DivergedError):
        return str(outcome)
    if math.isnan(outcome.score):
        return f"{outcome.steps:,} steps"
    label = metric_in_records(outcome.metric).label
    return f"{outcome.steps:,} steps, validation {label} {outcome.score:.4f}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _summary_writer(folder: Path, step: int) -> Any:
    with needed("tensorboard=True", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    # What an interrupted run wrote after its last checkpoint is not shown twice.
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)
