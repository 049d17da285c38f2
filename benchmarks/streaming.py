"""Train from disk on more rows than memory holds: rows per second, peak memory, a kill.

    python benchmarks/streaming.py --rows 20000000

Parquet files are written and trained on by ``aucmax fit --streaming``. The command is killed once
with SIGKILL and started again. The operating system says how much memory both processes used. The
rows are drawn from known odds, whose AUC no model can exceed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _timing import Results, parser

from aucmax import metrics

FILE_ROWS, GROUP_ROWS, NUMERIC = 1_000_000, 100_000, 12
CITIES = np.array([f"city {i}" for i in range(50)])


def draw(rows: int, seed: int) -> tuple[dict[str, Any], np.ndarray]:
    """Return columns with about one positive in twenty rows, and the true log-odds."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, NUMERIC)).astype(np.float32)
    city = random.integers(0, len(CITIES), rows)
    truth = x[:, 0] + np.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3] + 0.8 * np.cos(city) - 4.2
    y = random.random(rows) < 1 / (1 + np.exp(-truth))
    columns: dict[str, Any] = {f"x{i}": x[:, i] for i in range(NUMERIC)}
    return {**columns, "city": CITIES[city], "target": y.astype(np.int8)}, truth


def write(folder: Path, rows: int) -> None:
    """Write files of a million rows."""
    for part in range(-(-rows // FILE_ROWS)):
        columns, _ = draw(min(FILE_ROWS, rows - part * FILE_ROWS), seed=part)
        path = folder / f"part-{part:04}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=GROUP_ROWS)


def run(command: list[str], kill_after: float | None) -> dict[str, Any]:
    """Return seconds, peak memory and output of a process, killed after a while or left alone."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        said.seek(0)
        return {
            "seconds": round(time.perf_counter() - began, 1),
            "peak_gib": round(usage.ru_maxrss / 2**20, 3),
            "exit": os.waitstatus_to_exitcode(status),
            "output": said.read(),
        }


def measure(folder: Path, rows: int, kill_after: float | None) -> list[dict[str, Any]]:
    """Write the rows, train with a kill, and return what was measured."""
    write(folder, rows)
    command = [sys.executable, "-m", "aucmax", "fit", str(folder / "part-*.parquet")]
    command += ["--target", "target", "--streaming", "--out", str(folder / "model")]
    runs = [run(command, kill_after)] if kill_after is not None else []
    runs.append(run(command, None))
    codes = [each["exit"] for each in runs]
    if codes != [-signal.SIGKILL, 0][-len(runs) :]:
        raise SystemExit(f"the last run must succeed and one before it be killed, found {codes}")
    found = re.search(r"AUC (\d\.\d+)", runs[-1].pop("output"))
    columns, truth = draw(min(rows, FILE_ROWS), seed=10**6)
    return [
        *({key: x for key, x in each.items() if key != "output"} for each in runs),
        {
            "rows": rows,
            "rows_per_second": round(rows / sum(each["seconds"] for each in runs)),
            "auc": float(found[1]) if found else None,
            "best_possible_auc": metrics.roc_auc(truth, columns["target"]),
        },
    ]


def main() -> None:
    """Measure, print and save."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--kill-after", type=float, default=60.0, help="seconds")
    given = options.parse_args()
    results = Results(given)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        size = (3000, None) if given.tiny else (given.rows, given.kill_after)
        rows = measure(Path(folder), *size)
    for row in rows:
        print(row)
    results.add(rows=rows)


if __name__ == "__main__":
    main()
