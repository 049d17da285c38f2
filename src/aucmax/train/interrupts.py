"""Ctrl-C and SIGTERM: noted when they come, heeded when a step is done."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from aucmax import distributed

LISTENED = (signal.SIGINT, signal.SIGTERM)
ASKED_EVERY = 16
"""Steps between the ranks' asking each other whether one was told to stop."""


class Interrupts:
    """Within its blocks a first signal is noted; a second one acts as it did before.

    Runs that take turns share one, and their blocks may overlap. Signals belong to the main
    thread: in another nothing is changed.

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
        if self._blocks == 1 and threading.current_thread() is threading.main_thread():
            # One that is ignored stays so, as for a program under nohup.
            heard = [n for n in LISTENED if signal.getsignal(n) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heard}
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


class Stopped(SystemExit):
    """A signal has ended a run, or a sweep of them, its state saved.

    The exit code is what a shell reports of a process that a signal ended.

    Args:
        number: of the signal.
        how: what it has come to, and how to go on; follows the signal's name.
    """

    def __init__(self, number: int, how: str) -> None:
        super().__init__(128 + number)
        self.number = number
        self.news = f"stopped by {signal.Signals(number).name}{how}"


@contextmanager
def saying_so() -> Iterator[None]:
    """Say it on standard error, in one line, when a signal ends the block; within another, once."""
    try:
        yield
    except Stopped as stopped:
        if stopped.news and distributed.rank() == 0:
            print(f"aucmax: {stopped.news}", file=sys.stderr)
        stopped.news = ""
        raise
