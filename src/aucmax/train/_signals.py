"""Ctrl-C and SIGTERM: noted when they come, heeded when a step is done."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from aucmax import distributed

LISTENED = (signal.SIGINT, signal.SIGTERM)
ASKED_EVERY = 16
"""Steps between the ranks' asking each other whether one was told to stop."""


class Interrupts:
    """Within its block a first signal is noted; a second one acts as it did before.

    Signals belong to the main thread: in another nothing is changed.

    Args:
        asked_every: steps between the ranks' asking each other.
    """

    def __init__(self, asked_every: int = ASKED_EVERY) -> None:
        self.received, self.asked_every = 0, asked_every
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            # One that is ignored stays so, as for a program under nohup.
            heard = [n for n in LISTENED if signal.getsignal(n) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = number
        self.__exit__()

    def heed(self, step: int) -> int:
        """The signal to stop for, the same on every rank; 0 for none."""
        if distributed.world_size() == 1:
            return self.received
        if step % self.asked_every:
            return 0
        told = distributed.gather_objects(self.received)
        self.received = max(told)
        return self.received


def exit_code(number: int) -> int:
    """What a shell reports of a process that a signal ended."""
    return 128 + number
