"""The first two tables of the performance page: what a fit costs, and how long peers take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

Found = dict[str, Any]
RESNET = "ResNet-20, captured"


class Cost(NamedTuple):
    """A thing that users do: how long it takes here, and what they know beside it."""

    what: str
    ours: str
    beside: str


def costs(results: Path, cpu: Found, gpu: Found) -> list[Cost]:
    """What was measured of it."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in results.glob("*.json*")}
    found = list(of_tables(files))
    if "pictures" in files:
        found.append(of_pictures(json.loads(files["pictures"])))
    if "gpu-pictures" in files:
        found.append(of_stored_pictures(json.loads(files["gpu-pictures"])))
    return [*found, *of_steps(cpu, gpu)]


def of_tables(files: dict[str, str]) -> Iterator[Cost]:
    """Fits of tables, and scoring."""
    if "tables-times" in files:
        by_method: dict[str, list[float]] = {}
        for line in files["tables-times"].splitlines():
            record = json.loads(line)
            by_method.setdefault(record["method"], []).append(record["seconds"])
        typical = {method: time(median(values)) for method, values in by_method.items()}
        count = len(by_method["aucmax"])
        what = f"A table with the defaults, median of {count} tables up to 50,000 rows"
        yield Cost(what, typical.pop("aucmax"), listed(typical))
    if "tables-predict" in files:
        scoring = json.loads(files["tables-predict"])
        fit, score = (
            {method: time(x[part]) for method, x in scoring["methods"].items()}
            for part in ("fit", "score")
        )
        rows = f"{scoring['train_rows']:,} rows of 20 columns of numbers"
        yield Cost(f"A fit of {rows}", fit.pop("aucmax"), listed(fit))
        what = f"Scoring {scoring['rows']:,} such rows"
        yield Cost(what, score.pop("aucmax"), listed(score))
    if "streaming" in files:
        streamed = json.loads(files["streaming"])
        seconds = streamed["rows"] / streamed["rows_per_second"]
        peak = max(run["peak_gib"] for run in streamed["runs"])
        what = f"{streamed['rows']:,} rows from disk, ``--streaming``"
        yield Cost(what, time(seconds), f"{peak:.1f} GiB of memory at most")


def of_pictures(found: Found) -> Cost:
    """Decoding."""
    ours, theirs = (1000 / found[name]["per second"] for name in ("store", "Pillow"))
    what = "1,000 photos of 500 x 400 pixels decoded for ``fit-images``, once"
    return Cost(what, time(ours), f"a loop of Pillow in one process {time(theirs)}")


def of_stored_pictures(found: Found) -> Cost:
    """Training as it is done where a GPU's memory would not take all pictures."""
    stored, near = (1000 * found["seconds"][name] for name in ("from the store", "on the device"))
    pictures = f"{found['batch']} pictures of {found['size']} x {found['size']} pixels"
    where = f"read from a store that the system's cache holds, {found['machine']['device']}"
    what = f"1,000 steps of ResNet-50 on {pictures}, {where}"
    return Cost(what, time(stored), f"pictures that are on the device {time(near)}")


def of_steps(cpu: Found, gpu: Found) -> Iterator[Cost]:
    """Training steps of networks."""
    steps = gpu.get("step", {}).get(RESNET)
    if steps:
        ours, theirs = (
            steps[name]["seconds"] * 20_000 for name in ("PPD-SG by fit", "BCE + SGD by hand")
        )
        device = gpu["step"]["machine"]["device"]
        what = f"20,000 steps of ResNet-20 by ``fit``, batches of 128, {device}"
        yield Cost(what, time(ours), f"cross-entropy by hand, in a CUDA graph too, {time(theirs)}")
    for task, title in (
        ("MLP, batch 256", "a plain network, batches of 256,"),
        ("ResNet-20, batch 128", "ResNet-20, batches of 128,"),
    ):
        if task in cpu.get("fit", {}):
            ours, theirs = (
                cpu["fit"][task][name]["seconds"] * 1000
                for name in ("aucmax.fit", "by hand, BCE + SGD")
            )
            what = f"1,000 steps of {title} by ``fit``, on a CPU"
            yield Cost(what, time(ours), f"cross-entropy by hand {time(theirs)}")


def time(seconds: float) -> str:
    """Seconds in words."""
    if seconds >= 100:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


def listed(said: dict[str, str]) -> str:
    """Methods and their times."""
    names = {method: f'"{method}"' if "," in method else method for method in said}
    return "; ".join(f"{names[method]} {text}" for method, text in said.items())
