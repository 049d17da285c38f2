"""How far training is: a live bar in a terminal, plain lines elsewhere, TensorBoard if asked."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from aucmax import distributed
from aucmax.progress import ProgressBar
from aucmax.train._result import DivergedError, FitResult

REFRESH = 0.2
"""Seconds between two updates of the bar."""


class Reporter:
    """Says what happens on standard error; nothing on ranks other than the first.

    Args:
        name: of the method.
        total: steps of the whole run.
        step: those that are done.
        show: False is silent, notes included.
        tensorboard: a folder for TensorBoard's files, or None.
        seconds: after so many training ends at the latest.
    """

    def __init__(
        self,
        name: str,
        total: int,
        step: int,
        show: bool,
        tensorboard: Path | None,
        seconds: float = math.inf,
    ) -> None:
        self.name, self.total, self.first = name, total, step
        self.show = show and distributed.rank() == 0
        self.begun = self.refreshed = time.perf_counter()
        self.deadline = self.begun + seconds
        self.stage, self.auc = "", math.nan
        self.writer = _summary_writer(tensorboard, step) if distributed.rank() == 0 else None
        self.bar = ProgressBar(self.show, "count", "note", redraw=False)
        self.bar.begin(name, total, step)

    def tick(self, step: int) -> None:
        """One more step; the bar is drawn anew a few times a second."""
        if self.bar.live and time.perf_counter() - self.refreshed > REFRESH:
            self._draw(step)

    def evaluation(self, record: dict[str, Any]) -> None:
        """A record of the history."""
        self.name, self.stage, self.auc = record["phase"], str(record["stage"]), better_auc(record)
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
        self._draw(step)
        self.bar.close()
        if self.writer is not None:
            self.writer.close()

    def _speed(self, step: int) -> float:
        return (step - self.first) / max(time.perf_counter() - self.begun, 1e-9)

    def _left(self, step: int, speed: float) -> str:
        """Until all steps are taken, or the time is over."""
        return _clock(min((self.total - step) / speed, self.deadline - time.perf_counter()))

    def _line(self, record: dict[str, Any]) -> str:
        step, speed = record["step"], self._speed(record["step"])
        left = self._left(step, speed) if speed else "?"
        aucs = ", ".join(
            f"{which} {record[f'valid_auc_{which}']:.4f}"
            for which in ("last", "average")
            if not math.isnan(record[f"valid_auc_{which}"])
        )
        return (
            f"{self.name}: step {step:,} of {self.total:,}, stage {record['stage']}, "
            f"loss {record['loss']:.4f}{f', valid AUC {aucs}' if aucs else ''}, "
            f"{speed:,.0f} steps/s, {left} left"
        )

    def _draw(self, step: int) -> None:
        speed = self._speed(step)
        parts = [f"stage {self.stage}"] if self.stage else []
        parts += [] if math.isnan(self.auc) else [f"AUC {self.auc:.4f}"]
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
    auc = "" if math.isnan(outcome.auc) else f", validation AUC {outcome.auc:.4f}"
    return f"{outcome.steps:,} steps{auc}"


def better_auc(record: dict[str, Any]) -> float:
    """The higher validation AUC of the two iterates; nan if neither has one."""
    found = [record[f"valid_auc_{which}"] for which in ("last", "average")]
    return max((x for x in found if not math.isnan(x)), default=math.nan)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _summary_writer(folder: Path | None, step: int) -> Any:
    if folder is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(f"tensorboard=True needs the package tensorboard: {error}") from None
    # What an interrupted run wrote after its last checkpoint is not shown twice.
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)
