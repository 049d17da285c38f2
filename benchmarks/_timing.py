"""Alternating timings in one process: the only way two things are compared here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable
from typing import TypeVar

Work = Callable[[], object]
Name = TypeVar("Name", bound=Hashable)


def nothing() -> None:
    """What there is to wait for on a CPU."""


def alternate(
    functions: dict[Name, Work],
    *,
    rounds: int = 15,
    calls: int = 1,
    warm_up: int = 3,
    wait: Work = nothing,
) -> dict[Name, float]:
    """Median seconds per call of each function, their rounds taken in turn.

    Whatever slows the machine for a while slows all of them alike.

    Args:
        functions: what to time, by name.
        rounds: how often each is timed; the median is over these.
        calls: calls per round.
        warm_up: the least number of calls before the first round.
        wait: for the device to be done, at the end of a round.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(max(warm_up, calls // 10)):
            function()
    wait()
    for _ in range(rounds):
        for name, function in functions.items():
            begun = time.perf_counter()
            for _ in range(calls):
                function()
            wait()
            seconds[name].append((time.perf_counter() - begun) / calls)
    return {name: statistics.median(times) for name, times in seconds.items()}


def at_two_lengths(
    runs: dict[str, Callable[[int], object]],
    lengths: tuple[int, int],
    *,
    rounds: int,
    warm_up: int = 0,
    wait: Work = nothing,
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds per step of runs that take a number of steps, and seconds of the long run.

    The difference of two lengths is that of the steps, without the set-up.
    """
    short, long = lengths
    works: dict[tuple[str, int], Work] = {
        (name, n): (lambda run=run, n=n: run(n)) for name, run in runs.items() for n in lengths
    }
    medians = alternate(works, rounds=rounds, warm_up=warm_up, wait=wait)
    steps = {x: (medians[x, long] - medians[x, short]) / (long - short) for x in runs}
    return steps, {x: medians[x, long] for x in runs}


def against(peer: str, medians: dict[str, float]) -> dict[str, dict[str, float]]:
    """Seconds of each function, and their ratio to the peer's."""
    return {
        name: {"seconds": t, "ratio": t / medians[peer]}
        for name, t in medians.items()
        if name != peer
    } | {peer: {"seconds": medians[peer], "ratio": 1.0}}


def repeated(function: Work, times: int) -> Work:
    """A call that makes so many calls."""

    def run() -> None:
        for _ in range(times):
            function()

    return run
