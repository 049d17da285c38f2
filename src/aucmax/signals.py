"""Ctrl-C and SIGTERM as an exception, and the one line that is said of it."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

LISTENED = (signal.SIGINT, signal.SIGTERM)
ASKED_AGAIN = 0.02
"""Seconds after which a signal that has come in an import comes again."""
SAME_WISH = 1.0
"""Seconds within which another signal does not disturb what the first one has set going."""

_within: ContextVar[bool] = ContextVar("_within", default=False)


class Stopped(SystemExit):
    """A signal has ended what was under way.

    The exit code is what a shell reports of a process that a signal ended.

    Args:
        number: of the signal.
        at: what it has come to, such as " after step 100".
        how: to go on.
        silent: whether another process says it.
    """

    def __init__(self, number: int, at: str = "", how: str = "", silent: bool = False) -> None:
        super().__init__(128 + number)
        self.number, self.at, self.how, self.silent = number, at, how, silent

    def in_words(self) -> str:
        """One line."""
        end = f"; {self.how}" if self.how else ""
        return f"stopped by {signal.Signals(self.number).name}{self.at}{end}"


@contextmanager
def saying_so(how: str = "") -> Iterator[None]:
    """Say it on standard error when a signal ends the block; of blocks in one another, the outer.

    Args:
        how: to go on, if whoever raises it does not know.
    """
    is_outer, token = not _within.get(), _within.set(True)
    try:
        yield
    except Stopped as stopped:
        stopped.how = how or stopped.how
        if is_outer and not stopped.silent:
            # A terminal shows Ctrl-C as ^C where the cursor is.
            start = "\n" if stopped.number == signal.SIGINT and sys.stderr.isatty() else ""
            print(f"{start}aucmax: {stopped.in_words()}", file=sys.stderr)
        raise
    finally:
        _within.reset(token)


def listen(heard: Callable[[int, FrameType | None], Any]) -> dict[int, Any]:
    """Let a function hear the signals, and give the handlers that it takes the place of.

    Signals belong to the main thread: in another nothing is changed. One that is ignored stays so,
    as for a program under nohup.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = [n for n in LISTENED if signal.getsignal(n) is not signal.SIG_IGN]
    return {number: signal.signal(number, heard) for number in numbers}


@contextmanager
def raising() -> Iterator[None]:
    """Within the block a signal raises :class:`Stopped`, wherever it comes but in an import.

    There it waits for the end: extension modules make other errors of what they are interrupted by.
    """
    outside, raised_at = _imports_under_way(sys._getframe()), -math.inf

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal raised_at
        if _imports_under_way(frame) > outside:
            later = threading.Timer(ASKED_AGAIN, os.kill, (os.getpid(), number))
            later.daemon = True
            later.start()
        elif time.monotonic() - raised_at > SAME_WISH:
            raised_at = time.monotonic()
            raise Stopped(number)

    before = listen(stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _imports_under_way(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename == "<frozen importlib._bootstrap>"
        frame = frame.f_back
    return count
