"""Train from disk on more rows than memory would hold: rows per second, peak memory, a kill.

``python benchmarks/streaming.py --rows 20000000`` writes Parquet files, runs ``aucmax fit
--streaming`` on them, kills it once with SIGKILL, starts the same command again, and prints what
the operating system says of both processes' memory. What the rows were drawn from is known, so the
AUC that no model can pass is printed beside the model's.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from aucmax import metrics
from aucmax.disk import write_json
from aucmax.judge.evaluation import Evaluation
from aucmax.paper.provenance import provenance

FILE_ROWS, GROUP_ROWS, NUMERIC = 1_000_000, 100_000, 12
CITIES = np.array([f"city {i}" for i in range(50)])


def draw(rows: int, seed: int) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Columns with a target of about one positive in twenty, and its true log-odds."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, NUMERIC)).astype(np.float32)
    city = random.integers(0, len(CITIES), rows)
    truth = x[:, 0] + np.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3] + 0.8 * np.cos(city) - 4.2
    y = random.random(rows) < 1 / (1 + np.exp(-truth))
    columns: dict[str, Any] = {f"x{i}": x[:, i] for i in range(NUMERIC)}
    return {**columns, "city": CITIES[city], "target": y.astype(np.int8)}, truth


def generate(folder: Path, rows: int) -> None:
    """Files of a million rows."""
    folder.mkdir(parents=True)
    for part in range(-(-rows // FILE_ROWS)):
        columns, _ = draw(min(FILE_ROWS, rows - part * FILE_ROWS), seed=part)
        pq.write_table(
            pa.table(columns), folder / f"part-{part:04}.parquet", row_group_size=GROUP_ROWS
        )


def best_possible() -> float:
    """The AUC of the true odds, on rows of their own."""
    columns, truth = draw(FILE_ROWS, seed=10**6)
    return metrics.roc_auc(truth, columns["target"])


def run(command: list[str], kill_after: float | None) -> dict[str, Any]:
    """Seconds and peak memory of a process, killed after so many seconds or left to its end."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = round(time.perf_counter() - began, 1)
    peak = round(usage.ru_maxrss / 2**20, 3)
    return {"seconds": seconds, "peak_gib": peak, "exit": os.waitstatus_to_exitcode(status)}


def main() -> None:
    """Generate, train with a kill, and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--kill-after", type=float, default=60.0, help="seconds")
    parser.add_argument("--folder", type=Path, default=Path("streaming-data"))
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    if given.folder.exists():
        parser.error(f"--folder must be new, found {given.folder}")
    generate(given.folder, given.rows)
    model = given.folder / "model"
    files = str(given.folder / "part-*.parquet")
    command = [sys.executable, "-m", "aucmax", "fit", files, "--target", "target"]
    command += ["--streaming", "--out", str(model)]
    runs = [run(command, given.kill_after), run(command, None)]
    if [part["exit"] for part in runs] != [-signal.SIGKILL, 0]:
        raise SystemExit(f"the first run must be killed and the second end well, found {runs}")
    print(runs, flush=True)
    seconds = sum(part["seconds"] for part in runs)
    found = {
        "rows": given.rows, "rows_per_second": round(given.rows / seconds), "runs": runs,
        "auc": asdict(Evaluation.read(model).auc), "best_possible_auc": best_possible(),
        **provenance("cpu"),
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    if given.json:
        write_json(given.json, found)


if __name__ == "__main__":
    main()
