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
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from typing import Any

import torch

REFRESH = 0.5
"""Seconds between two looks at how far the runs are."""


class WorkerDiedError(RuntimeError):
    """Something ended a worker process: a signal, or the system for want of memory."""


class Pool:
    """Hands tasks to worker processes, a few ahead of those at work.

    Args:
        executor: of the processes.
        workers: how many there are.
        tick: called a few times a second while tasks are at work.
    """

    def __init__(self, executor: ProcessPoolExecutor, workers: int, tick: Callable[[], None]):
        self.executor, self.workers, self.tick = executor, workers, tick

    def run(
        self, tasks: Iterable[tuple[Any, Callable[..., Any], tuple[Any, ...]]]
    ) -> Iterator[Any]:
        """Each task's key and result, in the order in which they end.

        ``tasks`` are (key, function, arguments); the next is asked for when a worker is free, so
        what it is may depend on the results so far.
        """
        source, at_work = iter(tasks), dict[Future[Any], Any]()
        while True:
            while len(at_work) < self.workers and (task := next(source, None)) is not None:
                key, function, arguments = task
                at_work[self.executor.submit(_work, function, arguments)] = key
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


@contextmanager
def pool(workers: int, threads: int, tick: Callable[[], None]) -> Iterator[Pool]:
    """Worker processes for the block; they save what they do and end if it is left by an error."""
    others = multiprocessing.active_children()
    executor = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(threads,),
    )
    try:
        yield Pool(executor, workers, tick)
    except BaseException:
        for process in set(multiprocessing.active_children()) - set(others):
            process.terminate()  # on which fit saves its state
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _work(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the bar's lines are the parent's
            return function(*arguments)
    except SystemExit as error:  # a signal: the state is saved, and this process is to end
        os._exit(error.code if isinstance(error.code, int) else 1)


def settle(threads: int) -> None:
    """Let torch use so many threads, and choose the fastest convolutions."""
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True


def _begin(threads: int) -> None:
    settle(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who then tells us
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Whatever ended the parent: a worker that went on would stand in the next one's way."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os._exit(1)
