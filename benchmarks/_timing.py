"""Alternating timings in one process: the only way two things are compared here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def alternate(
    functions: dict[str, Callable[[], object]], *, rounds: int = 15, calls: int = 1
) -> dict[str, float]:
    """Median seconds per call of each function, their rounds taken in turn.

    Whatever slows the machine for a while slows all of them alike.

    Args:
        functions: what to time, by name.
        rounds: how often each is timed; the median is over these.
        calls: calls per round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(max(3, calls // 10)):
            function()
    for _ in range(rounds):
        for name, function in functions.items():
            begun = time.perf_counter()
            for _ in range(calls):
                function()
            seconds[name].append((time.perf_counter() - begun) / calls)
    return {name: statistics.median(times) for name, times in seconds.items()}


def against(peer: str, medians: dict[str, float]) -> dict[str, dict[str, float]]:
    """Seconds of each function, and their ratio to the peer's."""
    return {
        name: {"seconds": t, "ratio": t / medians[peer]}
        for name, t in medians.items()
        if name != peer
    } | {peer: {"seconds": medians[peer], "ratio": 1.0}}
