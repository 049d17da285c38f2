"""What does reading a CSV of a million rows cost against ``pyarrow.csv.read_csv``?

    python benchmarks/reading.py

One file is clean; in the other three columns mark missing numbers by ``?``, ``-`` and ``.``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from _timing import Bench, main

from aucmax.tables import read_table

MARKS = {"measure 0": "?", "measure 3": "-", "measure 7": "."}
PEAK = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
from _timing import Bench
import pyarrow.csv
from aucmax.tables import read_table

read = {"read_table": read_table, "pyarrow": pyarrow.csv.read_csv}[sys.argv[2]]
print(Bench().peak_memory(lambda: read(sys.argv[3])))
"""


def write_files(folder: Path, rows: int) -> dict[str, Path]:
    """Write twenty columns: measures, counts, words, a date, a flag and a target."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {
        f"measure {k}": random.normal(scale=100, size=rows).round(4) for k in range(10)
    }
    columns |= {f"count {k}": random.integers(0, 100_000, rows) for k in range(4)}
    words = np.array(["red", "green", "blue", "yellow"], dtype=object)
    columns |= {f"word {k}": words[random.integers(0, 4, rows)] for k in range(3)}
    columns["day"] = np.datetime64("2020-01-01") + random.integers(0, 1500, rows)
    columns["flag"] = random.random(rows) < 0.5
    columns["target"] = random.integers(0, 2, rows)
    marked = dict(columns)
    for name, mark in MARKS.items():
        texts = np.array([repr(float(x)) for x in columns[name]], dtype=object)
        texts[random.random(rows) < 0.03] = mark
        marked[name] = texts
    plain = pyarrow.csv.WriteOptions(quoting_style="none")
    files = {"clean": columns, "marks in three columns": marked}
    for name, table in files.items():
        pyarrow.csv.write_csv(pa.table(table), folder / f"{name}.csv", plain)
    return {name: folder / f"{name}.csv" for name in files}


def peak(reader: str, path: Path) -> float:
    """Return the bytes that reading adds to the peak memory of a fresh process."""
    command = [sys.executable, "-c", PEAK, str(Path(__file__).parent), reader, str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(bench: Bench) -> None:
    """Time both files, and measure the memory of each reader."""
    rows = bench.size(1_000_000, 500)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, path in write_files(Path(folder), rows).items():
            title = f"{name}, {rows:,} rows"
            works = {
                "pyarrow": lambda path=path: pyarrow.csv.read_csv(path),
                "read_table": lambda path=path: read_table(path),
            }
            bench.compare(title, works, rounds=9)
            for reader in bench.size(tuple(works), ()):
                share = peak(reader, path) / path.stat().st_size
                bench.record(title, f"{reader}, peak memory", times_the_file=share)


if __name__ == "__main__":
    main(measure, __doc__)
