"""The AUC that was promised against the test AUC, on tables with 10 to 50 positives.

``python benchmarks/few_positives.py --data DIR`` runs what is missing and adds a line per table,
split and method to ``results/few-positives.jsonl``; stopped, it goes on. ``tables.py --publish``
puts the table on the documentation's page; ``--print`` shows it.

Of a table without its repeats so many positives, and negatives in their share, are drawn to train
on, at most MOST_ROWS rows; the others are the test set.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tables import METHODS, RESULTS, Cell, Task, judge, perform, read, records
from tables_page import few_positives

OUT = RESULTS / "few-positives.jsonl"
POSITIVES = {
    "mammography": 10, "ecoli_imu": 15, "oil_spill": 20, "keel_yeast4": 25,
    "stroke": 30, "satimage_2": 35, "haberman": 40, "abalone_7": 50,
}  # fmt: skip
MOST_ROWS = 1_000
SPLITS = 20
COMPARED = ("aucmax", "aucmax fast", "LightGBM", "LightGBM, regularised bag")


def run(task: Task, folder: Path) -> dict[str, Any]:
    """One method on one split of one table."""
    seed, name, method = task
    x, y = read(folder, name)
    x = x.drop_duplicates()
    y = y[x.index]
    positives = POSITIVES[name]
    rows = min(MOST_ROWS, round(positives / y.mean()))
    random = np.random.default_rng(seed)
    train = np.concatenate(
        [
            random.choice(np.flatnonzero(y == 1), positives, replace=False),
            random.choice(np.flatnonzero(y == 0), rows - positives, replace=False),
        ]
    )
    random.shuffle(train)
    test = np.setdiff1d(np.arange(len(y)), train)
    cell = Cell(x.iloc[train], y[train], x.iloc[test], seed, peers=Path(), limit=0.0)
    return {"table": name, "split": seed, **judge(method, cell, y[test])}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of NAME.csv.gz")
    parser.add_argument("--tables", nargs="+", choices=POSITIVES, default=list(POSITIVES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(COMPARED))
    parser.add_argument("--splits", nargs="+", type=int, default=range(SPLITS), help="from 0")
    parser.add_argument("--workers", type=int, default=1, help="runs at once")
    parser.add_argument("--print", action="store_true", help="show what was found")
    given = parser.parse_args()
    if given.print:
        print(few_positives(records(OUT)))
        return
    if given.data is None:
        parser.error("--data must name the folder of the tables")
    wanted = [(s, t, m) for s in given.splits for t in given.tables for m in given.methods]
    work = partial(run, folder=given.data)
    sys.exit(0 if perform(work, wanted, OUT, given.workers) else 1)


if __name__ == "__main__":
    main()
