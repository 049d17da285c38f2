"""Test AUC on 23 imbalanced tables, beside what people use otherwise.

``python benchmarks/tables.py --data DIR --part PART`` runs what is missing of a part and adds a
line per table, split and method to a file in ``results``; stopped, it goes on. DIR holds
``NAME.csv.gz`` with a last column ``target``. The parts:

- all: every table, up to 50,000 rows, with what is quick;
- confirm: the tables that no default was chosen on, up to 8,000 rows, with the slow peers too,
  one run at a time, as AutoGluon is given the seconds that we took;
- time: fits one after the other on all cores.

``--publish`` writes the page of the documentation from these, ``few_positives.py`` and
``tables_predict.py``.

Defaults were chosen on the tables in CHOSEN_ON; the others confirm them. A quarter of the rows is
the test set, three times; rows that are alike in all columns are never on both sides.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from peer_tables import with_categories
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from tables_page import page

from aucmax import AUCClassifier, metrics
from aucmax.judge.peers import one_hot
from aucmax.paper.provenance import provenance
from aucmax.tables.encoder import TableEncoder

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "tables_results.rst"
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
CHOSEN_ON = (
    "abalone_7", "adult", "annthyroid", "coil_2000", "german_credit", "haberman", "keel_yeast4",
    "letter_z", "oil_spill", "online_shoppers", "phoneme", "stroke",
)  # fmt: skip
CONFIRMED_ON = (
    "ai4i_2020", "bank_marketing", "covtype_4v2", "credit_default_taiwan", "ecoli_imu",
    "htru2_pulsar", "keel_page_blocks0", "mammography", "pendigits_5", "satimage_2", "w8a",
)  # fmt: skip
LEAKS = {"bank_marketing": ["duration"]}  # known only after the call whose outcome is predicted
OFTEN = 0.01
RARE = 0.1
SPLITS = 3

Scores = NDArray[np.float64]
Task = tuple[int, str, str]


# ---- Methods: a cell in, scores of its test rows and what else is to be known out ----------------


class Cell(NamedTuple):
    """What a method is given.

    Attributes:
        x: rows to train on.
        y: their labels.
        test: rows to score.
        seed: of what the method draws.
        peers: the Python of the peers' environment.
        limit: seconds for a peer that takes a time limit.
    """

    x: pd.DataFrame
    y: NDArray[Any]
    test: pd.DataFrame
    seed: int
    peers: Path
    limit: float


Found = tuple[Scores, dict[str, Any]]


def ours(cell: Cell, **options: Any) -> Found:
    """AUCClassifier, with the AUC that its own rows promise."""
    model = AUCClassifier(random_state=cell.seed, **options).fit(cell.x, cell.y)
    about = {"promised": model.validation_auc_, "weights": model.weights_}
    return model.decision_function(cell.test), about


def logistic(cell: Cell) -> Found:
    """Logistic regression on our encoding of the columns, categories one-hot."""
    encoder = TableEncoder().fit(cell.x)
    tables = (encoder.transform(rows) for rows in (cell.x, cell.test))
    train, test = (one_hot(*rows, encoder.cardinalities) for rows in tables)
    return LogisticRegression(max_iter=1000).fit(train, cell.y).decision_function(test), {}


def boosting(cell: Cell) -> Found:
    """scikit-learn's histogram gradient boosting."""
    x, test = with_categories(cell.x, cell.test, most=255)
    model = HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=cell.seed
    )
    return model.fit(x, cell.y).decision_function(test), {}


def lightgbm(cell: Cell, bags: int = 1, **options: Any) -> Found:
    """LightGBM; of several bags, each with a seed of its own, the mean."""
    from lightgbm import LGBMClassifier

    x, test = with_categories(cell.x, cell.test)
    seeds = range(cell.seed * bags, (cell.seed + 1) * bags)
    options |= {"n_jobs": 0, "verbose": -1}  # as many threads as OMP_NUM_THREADS says
    models = [LGBMClassifier(random_state=s, **options).fit(x, cell.y) for s in seeds]
    return np.mean([model.predict_proba(test)[:, 1] for model in models], axis=0), {}


def peer(cell: Cell, method: str) -> Found:
    """One of another environment."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cell.x.assign(target=cell.y).to_parquet(folder / "train.parquet")
        cell.test.to_parquet(folder / "test.parquet")
        command = [cell.peers, HERE / "peer_tables.py", folder, method, cell.seed, cell.limit]
        subprocess.run([str(x) for x in command], check=True, env=os.environ | {"PYTHONPATH": ""})
        return np.load(folder / "scores.npy"), json.loads((folder / "about.json").read_text())


BAG = {
    "bags": 3, "n_estimators": 200, "learning_rate": 0.05, "num_leaves": 15,
    "subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8,
}  # fmt: skip
METHODS: dict[str, Callable[[Cell], Found]] = {
    "aucmax": ours,
    "aucmax fast": partial(ours, quality="fast"),
    "aucmax best": partial(ours, quality="best"),
    "TabM, cross-entropy": partial(ours, models=["ce-network"]),
    "AutoGluon": partial(peer, method="AutoGluon"),
    "CatBoost": partial(peer, method="CatBoost"),
    "XGBoost": partial(peer, method="XGBoost"),
    "LightGBM": lightgbm,
    "LightGBM, regularised bag": partial(lightgbm, **BAG),
    "HistGradientBoosting": boosting,
    "logistic regression": logistic,
}
SLOW = ("aucmax best", "TabM, cross-entropy", "AutoGluon", "CatBoost")


class Part(NamedTuple):
    """What is run.

    Attributes:
        file: of its results.
        tables: names.
        rows: the most of a table.
        methods: names.
        splits: how many.
        alone: whether runs are one after the other on all cores.
    """

    file: Path
    tables: tuple[str, ...]
    rows: int
    methods: tuple[str, ...]
    splits: int
    alone: bool


QUICK = tuple(name for name in METHODS if name not in SLOW)
TIMED = ("aucmax", "aucmax fast", "LightGBM", "LightGBM, regularised bag")
TABLES = CHOSEN_ON + CONFIRMED_ON
PARTS = {
    "all": Part(RESULTS / "tables.jsonl", TABLES, 50_000, QUICK, SPLITS, alone=False),
    "confirm": Part(
        RESULTS / "tables-confirm.jsonl", CONFIRMED_ON, 8_000, tuple(METHODS), SPLITS, alone=True
    ),
    "time": Part(RESULTS / "tables-times.jsonl", TABLES, 50_000, TIMED, 1, alone=True),
}


# ---- Runs ----------------------------------------------------------------------------------------


def read(folder: Path, name: str, most: int | None = None) -> tuple[pd.DataFrame, NDArray[Any]]:
    """A table and its target; cut to so many rows, positives up to a tenth of them all kept."""
    table = pd.read_csv(folder / f"{name}.csv.gz").drop(columns=LEAKS.get(name, []))
    if most is not None and len(table) > most:
        positive = table["target"] == 1
        kept = max(round(most * positive.mean()), min(positive.sum(), round(most * RARE)))
        parts = (table[positive].sample(kept, random_state=0),
                 table[~positive].sample(most - kept, random_state=0))  # fmt: skip
        table = pd.concat(parts).sort_index().reset_index(drop=True)
    return table, table.pop("target").to_numpy()


def split(x: pd.DataFrame, y: NDArray[Any], seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows to train on and to test on, a quarter; of each class its share, repeats together.

    A row that is there a hundredth of the time is always trained on: with its repeats it would be
    most of a test set, which then told nothing of the others.
    """
    groups = pd.util.hash_pandas_object(x, index=False)
    often = groups.map(groups.value_counts()).to_numpy() > OFTEN * len(x)
    rows = np.flatnonzero(~often)
    folds = StratifiedGroupKFold(4, shuffle=True, random_state=seed)
    _, test = next(iter(folds.split(rows, y[rows], groups.to_numpy()[rows])))
    return np.setdiff1d(np.arange(len(x)), rows[test]), rows[test]


def judge(method: str, cell: Cell, truth: NDArray[Any]) -> dict[str, Any]:
    """The test AUC of a method, and the seconds that it took."""
    began = time.perf_counter()
    scores, about = METHODS[method](cell)
    seconds = time.perf_counter() - began
    return {
        "method": method, "auc": metrics.roc_auc(scores, truth), "seconds": round(seconds, 3),
        "rows": [len(cell.y), len(truth)], "positives": [int(cell.y.sum()), int(truth.sum())],
        **provenance("cpu"), **about,
    }  # fmt: skip


def run(task: Task, part: Part, folder: Path, peers: Path) -> dict[str, Any]:
    """One method on one split of one table."""
    seed, name, method = task
    x, y = read(folder, name, part.rows)
    train, test = split(x, y, seed)
    limit = seconds_of_ours(part, seed, name) if method == "AutoGluon" else 0.0
    cell = Cell(x.iloc[train], y[train], x.iloc[test], seed, peers, limit)
    digest = hashlib.sha256(test.tobytes()).hexdigest()[:16]
    return {"table": name, "split": seed, "test": digest, **judge(method, cell, y[test])}


def seconds_of_ours(part: Part, seed: int, name: str) -> float:
    """How long we took on that split of that table."""
    for r in records(part.file):
        if (r["split"], r["table"], r["method"]) == (seed, name, "aucmax"):
            return float(r["seconds"])
    raise ValueError(f"aucmax must be run first on split {seed} of {name}: its seconds are needed")


def perform(
    work: Callable[[Task], dict[str, Any]], wanted: list[Task], out: Path, workers: int
) -> bool:
    """Run what is not in the file yet, and add it; whether none failed."""
    done = {(r["split"], r["table"], r["method"]) for r in records(out)}
    missing = [task for task in wanted if task not in done]
    threads = max(1, (os.cpu_count() or 1) // workers)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # each process keeps to its own cores
    context = multiprocessing.get_context("spawn")
    failed = 0
    with ProcessPoolExecutor(workers, context) as pool:
        tasks = {pool.submit(work, task): task for task in missing}
        for number, task in enumerate(as_completed(tasks), len(wanted) - len(missing) + 1):
            at = f"{number}/{len(wanted)} {tasks[task][1]} {tasks[task][0]} {tasks[task][2]}"
            if error := task.exception():
                failed += 1
                print(f"{at}: failed: {type(error).__name__}: {error}", flush=True)
                continue
            found = {**task.result(), "threads": threads, "at_once": workers}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{at}: AUC {found['auc']:.4f}, {found['seconds']:.1f} s", flush=True)
    return failed == 0


def records(path: Path) -> list[dict[str, Any]]:
    """The results in a file; a line that was cut off when the run was killed is none."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if len(whole) < len(text):
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def published() -> str:
    """The page of the documentation, from the files of results."""
    found = {name: records(part.file) for name, part in PARTS.items()}
    few, predict = records(RESULTS / "few-positives.jsonl"), RESULTS / "tables-predict.json"
    scoring = json.loads(predict.read_text(encoding="utf-8")) if predict.exists() else {}
    return page(found["all"], found["confirm"], found["time"], few, scoring, CHOSEN_ON)


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of NAME.csv.gz")
    parser.add_argument("--part", choices=PARTS, default="all")
    parser.add_argument("--tables", nargs="+", choices=TABLES, help="these alone")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="these alone")
    parser.add_argument("--splits", nargs="+", type=int, help="these alone, from 0")
    parser.add_argument("--workers", type=int, default=1, help="runs at once, of the part all")
    parser.add_argument(
        "--peers", type=Path, default=PEERS, help="Python with AutoGluon and others"
    )
    parser.add_argument("--publish", action="store_true", help="write the documentation's page")
    given = parser.parse_args()
    if given.publish:
        PAGE.write_text(published(), encoding="utf-8")
        return
    if given.data is None:
        parser.error("--data must name the folder of the tables")
    part = PARTS[given.part]
    if part.alone and given.workers > 1:
        parser.error(f"--workers must be 1: the runs of the part {given.part} are timed")
    splits = range(part.splits) if given.splits is None else given.splits
    tables, methods = given.tables or part.tables, given.methods or part.methods
    wanted = [(s, t, m) for s in splits for t in tables for m in methods]
    work = partial(run, part=part, folder=given.data, peers=given.peers)
    sys.exit(0 if perform(work, wanted, part.file, given.workers) else 1)


if __name__ == "__main__":
    main()
