"""A CSV of a million rows to an Arrow table, against ``pyarrow.csv.read_csv`` on the same file."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from _timing import against, alternate

from aucmax.tables import read_table

MARKS = {"measure 0": "?", "measure 3": "-", "measure 7": "."}
PEAK = """
import sys, warnings
warnings.simplefilter("ignore")
import pyarrow.csv
from aucmax.tables.files import read_table

def kibibytes(name):
    return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(name))

read = {"read_table": read_table, "pyarrow": pyarrow.csv.read_csv}[sys.argv[1]]
open("/proc/self/clear_refs", "w").write("5")  # the peak is counted anew
before = kibibytes("VmRSS")
read(sys.argv[2])
print((kibibytes("VmHWM") - before) / 1024)
"""


def write_files(folder: Path, rows: int) -> dict[str, Path]:
    """Twenty columns: measures, counts, words, a date, yes or no, and a target."""
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


def peak(which: str, path: Path) -> float:
    """MiB that reading adds to the most memory of a fresh process."""
    command = [sys.executable, "-c", PEAK, which, str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(rows: int = 1_000_000) -> dict[str, Any]:
    """Seconds and ratios, and the memory of each."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, path in write_files(Path(folder), rows).items():
            works = {
                "pyarrow": lambda path=path: pyarrow.csv.read_csv(path),
                "read_table": lambda path=path: read_table(path),
            }
            of = f"{name}, {rows:,} rows"
            found[of] = against("pyarrow", alternate(works, rounds=9, warm_up=1))
            memory = {reader: peak(reader, path) for reader in works}
            for reader, mebibytes in memory.items():
                found[of][reader]["peak MiB"] = mebibytes
                found[of][reader]["peak ratio"] = mebibytes / memory["pyarrow"]
            found[of]["file"] = {"MiB": path.stat().st_size / 2**20}
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
