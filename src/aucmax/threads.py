"""No more threads than help: as many as there are cores to use, which give way to other processes.

OpenMP's threads spin while they wait for each other, since waking up takes long. Where another
process has a core, they spin in the place of the thread that they wait for, and a step may take
thirty times as long. Fewer threads would be no answer in the middle of a training, for sums are
rounded otherwise with another number and a run would not end with the same bits again; so the
number stays, and threads that have to wait for a core sleep instead of spinning.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from aucmax import checks

LOOK_EVERY, SLEEP_FOR = 0.1, 1.0
"""Seconds after which threads that spin are looked at, and those that sleep."""
CONTENDED = 0.3
"""Seconds in a second that threads, taken together, wait for a core where others want it too: half
a second and more beside one busy process, next to none alone."""

_being_watched = threading.Lock()


def cores() -> int:
    """How many this process may use: by its affinity, and by the quota of its container."""
    affinity = getattr(os, "sched_getaffinity", None)  # of Linux alone
    allowed = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(allowed, math.ceil(min(quota(), allowed))))


@functools.cache
def quota(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float:
    """The cores' worth of time that control groups leave to this process; inf without a limit.

    A group is limited by those around it too. In a container the groups' paths may be those of the
    machine, and the container's own group is the root.

    Args:
        groups: the file that names the groups of the process, by lines "number:controllers:path".
        root: where the groups' files are, of version 2, or in a folder per controller of version 1.
    """
    found = [math.inf]
    for line in groups.read_text().splitlines() if groups.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / controllers
        group = top / path.lstrip("/")
        around = (folder for folder in group.parents if folder.is_relative_to(top))
        found += map(_quota_in, (group, *around))
    return min(found)


def _quota_in(folder: Path) -> float:
    """Of version 2 "MAX PERIOD", or of version 1 in two files; "max" or -1 is no limit."""
    try:
        if (folder / "cpu.max").is_file():
            most, period = (folder / "cpu.max").read_text().split()
        else:
            most, period = ((folder / f"cpu.cfs_{x}_us").read_text() for x in ("quota", "period"))
        return int(most) / int(period) if int(most) > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads in the block, which give way to other processes.

    Args:
        count: -1 for all cores that may be used, None for no more than these of the threads that
            torch is set to.
    """
    before = torch.get_num_threads()
    if count is None:
        number = min(before, cores())
    else:
        number = cores() if count == -1 else checks.count("n_jobs", count)
    torch.set_num_threads(number)
    try:
        with _giving_way(number):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _giving_way(count: int) -> Iterator[None]:
    """Look, while the block lasts, whether threads have to wait for a core, and let them sleep."""
    if count == 1 or not _can_tell_waits() or not _being_watched.acquire(blocking=False):
        yield
        return
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(count, ended), daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
        _being_watched.release()


def _watch(count: int, ended: threading.Event) -> None:
    if ended.wait(LOOK_EVERY):  # scoring a few rows is over by then
        return
    waits = _Waits()
    while not ended.wait(LOOK_EVERY):
        if waits.share() > CONTENDED:
            with sleeping_threads(count):
                while not ended.wait(SLEEP_FOR) and waits.share() > CONTENDED:
                    pass


def _can_tell_waits() -> bool:
    return Path("/proc/self/task").is_dir() and Path("/proc/self/schedstat").is_file()


class _Waits:
    """How long the process's threads were ready to run, and had no core."""

    def __init__(self) -> None:
        self.seconds, self.at = self._sum(), time.perf_counter()

    def share(self) -> float:
        """Seconds in a second since the last look, of all threads together."""
        seconds, at = self._sum(), time.perf_counter()
        share = (seconds - self.seconds) / (at - self.at)
        self.seconds, self.at = seconds, at
        return share

    @staticmethod
    def _sum() -> float:
        nanoseconds = 0
        for task in os.listdir("/proc/self/task"):
            try:
                said = Path("/proc/self/task", task, "schedstat").read_text()
            except OSError:  # it has just ended
                continue
            nanoseconds += int(said.split()[1])
        return nanoseconds / 1e9


@contextmanager
def sleeping_threads(count: int) -> Iterator[None]:
    """Let each libgomp's threads spin for microseconds in the block instead of milliseconds.

    How long they spin can be set before libgomp is loaded alone, but they hardly do where there are
    more of them than cores. So a thread of ours has a team of its own that does nothing: each of
    the team calls ``free(NULL)`` once, and sleeps until the block ends.

    Args:
        count: threads that work; the idle team makes them more than there are cores.
    """
    has_team, ended = threading.Event(), threading.Event()

    def keep_team() -> None:
        free = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
        size = max(2, (os.cpu_count() or 1) - count + 2)  # this thread is one of them
        for path in _loaded("libgomp"):
            with suppress(OSError, AttributeError):  # what cannot be reached goes on spinning
                ctypes.CDLL(path).GOMP_parallel(free, None, size, 0)
        has_team.set()
        ended.wait()

    keeper = threading.Thread(target=keep_team, name="idle team", daemon=True)
    keeper.start()
    has_team.wait()
    try:
        yield
    finally:
        ended.set()
        keeper.join()


def _loaded(name: str) -> set[str]:
    """The files of libraries of this name that the process has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = (line.split(maxsplit=5)[5] for line in lines if name in line)
    return {path for path in paths if Path(path).name.startswith(name) and Path(path).is_file()}
