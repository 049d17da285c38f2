"""How much memory something takes, without aucmax, so that peers are measured by the same."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

from _timing import Work


def peak(work: Work) -> float:
    """Bytes that it adds at most to the memory of this process."""
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before goes back, else it would be used first
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
    before = _kibibytes("VmRSS")
    work()
    return 1024.0 * (_kibibytes("VmHWM") - before)


def _kibibytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def grown(make: Callable[[int], Work], sizes: tuple[int, int]) -> dict[str, float]:
    """Bytes per row at two sizes, and the exponent of the memory in the rows between them."""
    small, large = (peak(make(n)) for n in sizes)
    few, many = sizes
    return {
        f"bytes per row, N = {few:,}": small / few,
        f"bytes per row, N = {many:,}": large / many,
        "exponent": math.log(large / small) / math.log(many / few),
    }
