"""Compare the time of functions in one process, in alternation, and keep what was measured.

A script defines ``measure(bench)`` and calls :func:`main`, which reads ``--device`` and ``--tiny``.
Results are appended to ``benchmarks/results/SCRIPT.jsonl``, which git ignores.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path.append(str(ROOT))

from experiments import provenance  # noqa: E402

Work = Callable[[], object]
T = TypeVar("T")
ROUND_SECONDS = 0.05
"""A round repeats a fast function until it takes about this long."""


class Bench:
    """A device, a size and the rows measured so far.

    Attributes:
        device: CPU or GPU.
        tiny: use sizes that only try the code.
        rows: one dictionary per comparison and competitor.
    """

    def __init__(self, device: str = "cpu", tiny: bool = False) -> None:
        self.device = torch.device(device)
        self.tiny = tiny
        self.rows: list[dict[str, Any]] = []

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU with graphs and streams."""
        return self.device.type == "cuda"

    def size(self, full: T, tiny: T) -> T:
        """Return the full size, or the tiny one if only the code is tried."""
        return tiny if self.tiny else full

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.cuda:
            torch.cuda.synchronize()

    def seconds(self, work: Work, calls: int = 1) -> float:
        """Seconds per call, the device's work included."""
        self.wait()
        begun = time.perf_counter()
        for _ in range(calls):
            work()
        self.wait()
        return (time.perf_counter() - begun) / calls

    def capture(self, work: Work, times: int = 1) -> Work:
        """Return a replay of a CUDA graph that holds the work several times; plain calls on a CPU.

        Timing a captured graph leaves out the host's share of each call.
        """
        if not self.cuda:
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
        return lambda _held=work: graph.replay()  # type: ignore[misc]  # keeps its memory alive

    def compare(
        self, title: str, works: dict[str, Work], *, captured: int = 0, rounds: int = 15
    ) -> dict[str, float]:
        """Time functions in alternation; return and record the median seconds of each.

        Args:
            title: of the comparison.
            works: by name; the first is the peer that ratios refer to.
            captured: 0 times plain calls. Otherwise a graph holds this many in a row.
            rounds: per function, of which the median is taken.
        """
        ready, calls = {}, {}
        for name, work in works.items():
            ready[name] = self.capture(work, captured) if captured else work
            ready[name]()  # warm-up
            once = self.seconds(ready[name])
            calls[name] = 1 if self.tiny else max(1, round(ROUND_SECONDS / once))
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(self.size(rounds, 1)):
            for name, work in ready.items():
                times[name].append(self.seconds(work, calls[name]) / max(1, captured))
        return self._record_times(title, times)

    def per_step(
        self,
        title: str,
        runs: dict[str, Callable[[int], object]],
        lengths: tuple[int, int],
        rounds: int = 5,
    ) -> dict[str, float]:
        """Time runs of two lengths in alternation; record the seconds of one further step.

        The difference of both lengths does not include the set-up.

        Args:
            title: of the comparison.
            runs: functions that take a number of steps, by name; the first is the peer.
            lengths: the smaller and the larger number of steps.
            rounds: per run, of which the median is taken.
        """
        short, long = lengths
        for run in runs.values():
            run(short)  # warm-up
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(self.size(rounds, 1)):
            for name, run in runs.items():
                whole = self.seconds(lambda run=run: run(long))
                part = self.seconds(lambda run=run: run(short))
                times[name].append((whole - part) / (long - short))
        return self._record_times(title, times)

    def _record_times(self, title: str, times: dict[str, list[float]]) -> dict[str, float]:
        medians = {name: statistics.median(x) for name, x in times.items()}
        peer = next(iter(medians))
        for name, x in times.items():
            ratio = medians[name] / medians[peer] if medians[peer] else math.nan
            spread = {"fastest": min(x), "slowest": max(x)}
            self.record(title, name, seconds=medians[name], ratio=ratio, peer=peer, **spread)
        return medians

    def record(self, title: str, name: str, **values: Any) -> None:
        """Keep one row, and print it."""
        self.rows.append({"title": title, "name": name, **values})
        if "seconds" in values:
            said = f"{1e3 * values['seconds']:12.4f} ms {values.get('ratio', math.nan):9.3f}"
        else:
            said = "  ".join(f"{key} {show(x)}" for key, x in values.items())
        print(f"{title:<36} {name:<34} {said}", flush=True)

    def peak_memory(self, work: Work) -> float:
        """Bytes that a call adds to the memory in use, at most."""
        if self.cuda:
            self.wait()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            work()
            self.wait()
            return float(torch.cuda.max_memory_allocated() - before)
        ctypes.CDLL(None).malloc_trim(0)  # freed memory would be reused unseen
        Path("/proc/self/clear_refs").write_text("5")  # restarts the kernel's count of the peak
        before = _kibibytes("VmRSS")
        work()
        return 1024.0 * (_kibibytes("VmHWM") - before)


def show(value: Any) -> str:
    """Format a value of a row."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _kibibytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


class Results:
    """A file of results; what they were measured with is looked up when a script starts.

    Args:
        given: the command line, with ``tiny`` and ``json``.
        device: that is timed.
    """

    def __init__(self, given: argparse.Namespace, device: str = "cpu") -> None:
        self.name = Path(sys.argv[0]).stem
        self.about: dict[str, Any] = {"benchmark": self.name}
        self.path = given.json
        if not given.tiny:
            self.path = given.json or RESULTS / f"{self.name}.jsonl"
            self.about["code"] = provenance.code()
            self.about["commit"] = provenance.commit()
            self.about |= provenance.describe(device)

    def add(self, **values: Any) -> None:
        """Append a line; without a path, that is with ``--tiny`` alone, nothing is written."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**self.about, **values}) + "\n")


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every script."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--tiny", action="store_true", help="use sizes that only try the code")
    made.add_argument("--json", type=Path, help="append results here, not to benchmarks/results")
    return made


def main(measure: Callable[[Bench], None], description: str | None) -> None:
    """Read the command line, measure and save."""
    options = parser(description)
    options.add_argument("--device", default="cpu")
    given = options.parse_args()
    results = Results(given, given.device)
    bench = Bench(given.device, given.tiny)
    measure(bench)
    results.add(rows=bench.rows)
