"""Time everything on the CPU, write a dated JSON file and the site's performance page.

``make bench`` runs it and, with an interpreter that has LibAUC 2.0.1, times that beside us:
``python benchmarks/run.py --libauc .venv-libauc/bin/python``. With ``--only`` some groups are
measured anew, and the others stay as they are in the newest file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_auc
import bench_boosting
import bench_fit
import bench_growth
import bench_import
import bench_loss
import bench_optim
import bench_pairwise
import bench_reading
import performance_page
import torch
from _machine import machine
from performance_rows import CPU_ROWS

HERE = Path(__file__).parent
GROUPS: dict[str, Callable[[], dict[str, Any]]] = {
    "loss": bench_loss.measure,
    "pairwise": bench_pairwise.measure,
    "optimizer": bench_optim.measure,
    "metric": bench_auc.measure,
    "fit": bench_fit.measure,
    "boosting": bench_boosting.measure,
    "growth": bench_growth.measure,
    "import": bench_import.measure,
    "reading": bench_reading.measure,
}


def by_libauc(python: str) -> dict[str, Any]:
    """LibAUC's figures, measured by an interpreter of its own environment."""
    command = [python, str(HERE / "peer_libauc.py")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libauc", help="an interpreter whose environment has LibAUC 2.0.1")
    parser.add_argument("--only", nargs="+", choices=[*GROUPS, "libauc"])
    given = parser.parse_args()
    groups = GROUPS | ({"libauc": lambda: by_libauc(given.libauc)} if given.libauc else {})
    about = machine(torch.device("cpu"))
    results = performance_page.RESULTS / f"{about['date']}-cpu.json"
    results.parent.mkdir(exist_ok=True)
    found = performance_page.newest("cpu") if given.only else {}
    for name in given.only or groups:
        print(f"timing: {name}", file=sys.stderr, flush=True)
        found[name] = {"machine": about, **groups[name]()}
        results.write_text(json.dumps(found, indent=2) + "\n")
    performance_page.write()
    for row, value in performance_page.shown(found, CPU_ROWS):
        said = performance_page.said(value, row.place[-1])
        goal = "" if row.goal is None else f"  (to reach: {row.goal})"
        print(f"{said:>8}  {row.title.replace('``', '')}{goal}")
    print(f"\nwrote {results} and {performance_page.TABLE}")


if __name__ == "__main__":
    main()
