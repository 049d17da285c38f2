"""Runs in several processes at once, which end with the process that began them."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import Any

import torch

REFRESH = 0.5
"""Seconds between two looks at how far the runs are."""


class WorkerDiedError(RuntimeError):
    """Something ended a worker process: a signal, or the system for want of memory."""


class WorkerPool:
    """Worker processes, as long as a block lasts.

    If the block is left by an error they are told to end, on which :func:`aucmax.fit` saves its
    state. They also end with the process that began them, whatever ended that.

    Args:
        workers: how many there are.
        threads: that torch uses in each.
        tick: called a few times a second while tasks are at work.
    """

    def __init__(self, workers: int, threads: int, tick: Callable[[], None]) -> None:
        self.workers, self.tick = workers, tick
        self._others = multiprocessing.active_children()
        self._executor = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(threads,),
        )

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            for process in set(multiprocessing.active_children()) - set(self._others):
                process.terminate()
        self._executor.shutdown(cancel_futures=True)

    def run(
        self, tasks: Iterable[tuple[Any, Callable[..., Any], tuple[Any, ...]] | None]
    ) -> Iterator[Any]:
        """Each task's key and result, in the order in which they end.

        ``tasks`` are (key, function, arguments); the next is asked for when a worker is free, so
        what it is may depend on the results so far. None says that there is none at the moment.
        """
        waiting, at_work = iter(tasks), dict[Future[Any], Any]()
        while True:
            while len(at_work) < self.workers and (task := next(waiting, None)) is not None:
                key, function, arguments = task
                at_work[self._executor.submit(_run, function, arguments)] = key
            if not at_work:
                return
            done, _ = wait(at_work, timeout=REFRESH, return_when=FIRST_COMPLETED)
            self.tick()
            for future in done:
                key = at_work.pop(future)
                try:
                    yield key, future.result()
                except BrokenProcessPool:
                    raise WorkerDiedError(
                        f"a worker process died during {key}; the same command goes on from there"
                    ) from None


def configure_torch(threads: int) -> None:
    """Let torch use so many threads, and choose the fastest convolutions."""
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True


def end_with_parent(_: int = 0) -> None:
    """Let this process end with the one that began it, whatever ended that.

    As ``worker_init_fn`` it is for a DataLoader's workers too: those look whether their parent is
    another than at first, but one whose parent is killed before that first look would never end.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _start_worker(threads: int) -> None:
    configure_torch(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who then tells us
    end_with_parent()  # or it would stand in the way of the next one's workers


def _run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the bar's lines are the parent's
            return function(*arguments)
    except SystemExit as error:  # a signal: the state is saved, and this process is to end
        os._exit(error.code if isinstance(error.code, int) else 1)
