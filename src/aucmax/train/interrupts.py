"""Ctrl-C and SIGTERM: noted when they come, heeded when a step is done."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from aucmax import distributed
from aucmax.signals import listen

ASKED_EVERY = 16
"""Steps between the ranks' asking each other whether one was told to stop."""


class Interrupts:
    """Within its blocks a first signal is noted; a second one acts as it did before.

    Runs that take turns share one, and their blocks may overlap.

    Args:
        meets_every: steps between the ranks' averages; they ask each other at one of these.
    """

    def __init__(self, meets_every: int = 1) -> None:
        self.received = 0
        self.asked_every = -(-ASKED_EVERY // meets_every) * meets_every
        self._blocks = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self._blocks += 1
        if self._blocks == 1:
            self._before = listen(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._blocks -= 1
        if not self._blocks:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = number
        self._restore()

    def heed(self, step: int) -> int:
        """The signal to stop for, the same on every rank; 0 for none."""
        if distributed.world_size() == 1:
            return self.received
        if step % self.asked_every:
            return 0
        told = distributed.gather_objects(self.received)
        self.received = max(told)
        return self.received
