"""Timings on a GPU: in turn, in one process, waiting for the device around every round.

Everything also runs on the CPU, without graphs: so the code is tried where there is no GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from _timing import Work, against, alternate, at_two_lengths, nothing, repeated

T = TypeVar("T")
Table = dict[str, dict[str, float]]

ROUND_SECONDS = 0.02  # a round of a fast function is as many calls as take about so long
ONCE = 1.0  # what takes longer than so many seconds is timed once


@dataclass
class Device:
    """Where things are timed.

    Attributes:
        device: a GPU, or the CPU to try the code.
        tiny: sizes that take no time and say nothing.
        errors: what could not be timed, and why.
    """

    device: torch.device
    tiny: bool = False
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def is_cuda(self) -> bool:
        """Whether there are graphs and streams."""
        return self.device.type == "cuda"

    @property
    def wait(self) -> Work:
        """Until all that was asked of the device is done."""
        return torch.cuda.synchronize if self.is_cuda else nothing

    def size(self, full: T, tiny: T) -> T:
        """One of the two."""
        return tiny if self.tiny else full

    def attempt(self, what: str, make: Callable[[], T]) -> T | None:
        """What is made, or None and a note of the error."""
        try:
            return make()
        except Exception as error:  # one that fails must not end the others
            self.errors[what] = f"{type(error).__name__}: {error}"
            return None

    def capture(self, work: Work, times: int = 1) -> Work:
        """A replay of a graph that holds the work so many times; on the CPU just that work."""
        if not self.is_cuda:
            return lambda: [work() for _ in range(times)]
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                work()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(times):
                work()
        return lambda _held=work: graph.replay()  # type: ignore[misc]  # its memory must live on

    def compare(
        self, title: str, works: dict[str, Work], peer: str, *, captured: int = 0, rounds: int = 9
    ) -> Table:
        """Seconds and ratios to the peer's.

        Args:
            title: of these works among the errors.
            works: by name; one that fails is left out.
            peer: the one to compare with.
            captured: 0 calls them one after the other, with the host's time; otherwise a graph
                holds so many in a row, and what is left is the device's.
            rounds: of which the median is taken.
        """
        times = captured or 1
        calls: dict[str, int] = {}
        ready: dict[str, Work] = {}
        slow: dict[str, float] = {}
        for name, work in works.items():
            made = self.attempt(f"{title}: {name}", lambda w=work: self._prepared(w, captured))
            if made is None:
                continue
            call, seconds = made
            if seconds > ONCE:
                slow[name] = seconds / times
            else:
                calls[name] = max(1, round(self.size(ROUND_SECONDS, 0.0) / max(seconds, 1e-6)))
                ready[name] = repeated(call, calls[name])
        medians = alternate(ready, rounds=self.size(rounds, 1), warm_up=1, wait=self.wait)
        return against(peer, {n: t / calls[n] / times for n, t in medians.items()} | slow)

    def _prepared(self, work: Work, captured: int) -> tuple[Work, float]:
        """What is called in a round, warmed up, and about how long it takes."""
        call = self.capture(work, captured) if captured else work
        call()
        self.wait()
        begun = time.perf_counter()
        call()
        self.wait()
        return call, time.perf_counter() - begun

    def per_step(
        self,
        title: str,
        makers: dict[str, Callable[[], Callable[[int], object]]],
        lengths: tuple[int, int],
        rounds: int = 3,
    ) -> dict[str, float]:
        """Seconds per step of runs that take a number of steps, from two lengths.

        Args:
            title: of these runs among the errors.
            makers: of the runs, by name; one that fails is left out.
            lengths: the two numbers of steps.
            rounds: of which the median is taken.
        """
        runs = {}
        for name, make in makers.items():
            run = self.attempt(f"{title}: {name}", lambda m=make: _tried(m, lengths[0]))
            if run is not None:
                runs[name] = run
        rounds = self.size(rounds, 1)
        steps, _ = at_two_lengths(runs, lengths, rounds=rounds, wait=self.wait)
        return steps


def _tried(make: Callable[[], Callable[[int], object]], steps: int) -> Callable[[int], object]:
    run = make()
    run(steps)
    return run
