"""Time the library on a GPU; needs nothing but torch, numpy and safetensors.

From the root of the repository::

    PYTHONPATH=src python benchmarks/gpu.py --json results.json

LibAUC, torchmetrics and scikit-learn are timed beside it if they can be imported. Kept as
``benchmarks/results/DATE-cuda.json``, the file becomes part of the performance page. With
``--only`` some sections are measured anew, and the others stay in the file as they are.
``--device cpu --tiny`` tries the code where there is no GPU, without graphs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpu_pairs
import gpu_parts
import gpu_steps
import torch
from _device import Device
from _machine import machine

SECTIONS: dict[str, Callable[[Device], Iterator[tuple[str, Any]]]] = {
    "optimizer": gpu_parts.optimizer,
    "loss": gpu_parts.loss,
    "pairs": gpu_pairs.losses,
    "pair_bounds": gpu_pairs.bounds,
    "metric": gpu_parts.metric,
    "step": gpu_steps.step,
    "at_once": gpu_steps.at_once,
    "profile": gpu_steps.profile,
}


def measure(device: Device, section: str) -> dict[str, Any]:
    """A section's tables; what fails is noted under "errors", and the tables before it stay."""
    found: dict[str, Any] = {}
    device.errors = {}

    def collect() -> None:
        for title, table in SECTIONS[section](device):
            found[title] = table
            show(title, table)

    device.attempt("the rest", collect)
    return {**found, "errors": device.errors}


def show(title: str, table: Any) -> None:
    """Print a table."""
    if not isinstance(table, dict):
        print(f"{title}: {table}")
        return
    for what, row in table.items():
        if what == "longest":
            for x in row:
                print(f"  {x['microseconds']:8.1f} us {x['count']:6.1f} x  {x['name'][:90]}")
        elif isinstance(row, dict):
            said = "  ".join(_said(key, x) for key, x in row.items())
            print(f"{title + ': ' + what:<60} {said}")
        else:
            print(f"{title}: {what} {row}")


def _said(key: str, x: float) -> str:
    if key == "seconds":
        return f"{1e3 * x:10.4f} ms"
    return f"{x / 1e12:10.3f} TB/s" if key == "bytes_per_second" else f"{x:8.3f}"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that only try the code")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--commit", help="of the library, where git cannot say it")
    given = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    device = Device(torch.device(given.device), given.tiny)
    if device.is_cuda:
        torch.backends.cudnn.benchmark = True
    about = machine(device.device, given.commit)
    kept = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    for name in given.only:
        begun = time.perf_counter()
        print(f"== {name}")
        kept[name] = {"machine": about, **measure(device, name)}
        show("errors", kept[name]["errors"])
        print(f"took {time.perf_counter() - begun:.0f} s")
        if given.json:
            given.json.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
