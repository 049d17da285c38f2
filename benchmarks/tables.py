"""How well does AUCClassifier rank the rows of tables, against boosting and AutoGluon?

    python benchmarks/tables.py --data DIR                  # every method that is quick
    python benchmarks/tables.py --data DIR --part confirm   # 8,000 rows, slow peers too, alone
    python benchmarks/tables.py --data DIR --part few       # 10 to 50 positives, 20 splits
    python benchmarks/tables.py --print                     # the table of what was measured

DIR holds NAME.csv.gz. What is missing is run and appended to ``benchmarks/results/tables.jsonl``,
so a stopped run resumes. Peers in another environment are made by ``make peers``.
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
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from _timing import RESULTS, ROOT, Results, parser
from experiments.stats import Difference
from peer_tables import with_categories
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from aucmax import AUCClassifier, metrics

OUT = RESULTS / "tables.jsonl"
PEERS = ROOT / ".venv-peers" / "bin" / "python"
CHOSEN_ON = (
    *("abalone_7", "adult", "annthyroid", "coil_2000", "german_credit", "haberman"),
    *("keel_yeast4", "letter_z", "oil_spill", "online_shoppers", "phoneme", "stroke"),
)
CONFIRMED_ON = (
    *("ai4i_2020", "bank_marketing", "covtype_4v2", "credit_default_taiwan", "ecoli_imu"),
    *("htru2_pulsar", "keel_page_blocks0", "mammography", "pendigits_5", "satimage_2", "w8a"),
)
LEAKS = {"bank_marketing": ["duration"]}  # known only after the call whose outcome is predicted
FEW = {
    "mammography": 10,
    "ecoli_imu": 15,
    "oil_spill": 20,
    "keel_yeast4": 25,
    "stroke": 30,
    "satimage_2": 35,
    "haberman": 40,
    "abalone_7": 50,
}
"""Positives to train on in the part "few"; at most MOST_FEW rows in all."""
MOST_FEW = 1_000
OFTEN = 0.01  # rows repeated more often than this share are always trained on
RARE = 0.1

Task = tuple[int, str, str]
"""Split, table, method."""


class Cell(NamedTuple):
    """What a method is given: training rows, labels, test rows, a seed, and a peer's limits."""

    x: pd.DataFrame
    y: np.ndarray
    test: pd.DataFrame
    seed: int
    peers: Path
    limit: float


Found = tuple[np.ndarray, dict[str, Any]]
"""Scores of the test rows, and what else to record."""


def ours(cell: Cell, **options: Any) -> Found:
    """Score by AUCClassifier; record the AUC that it estimates from its own rows."""
    model = AUCClassifier(random_state=cell.seed, **options).fit(cell.x, cell.y)
    return model.decision_function(cell.test), {"promised": model.validation_auc_}


def logistic(cell: Cell) -> Found:
    """Score by scikit-learn's logistic regression on standardized and one-hot columns."""
    encoder = make_column_transformer(
        (
            make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
            make_column_selector(dtype_include="number"),
        ),
        (
            OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=50),
            make_column_selector(dtype_exclude="number"),
        ),
    )
    model = make_pipeline(encoder, LogisticRegression(max_iter=1000)).fit(cell.x, cell.y)
    return model.decision_function(cell.test), {}


def boosting(cell: Cell) -> Found:
    """Score by scikit-learn's histogram gradient boosting."""
    x, test = with_categories(cell.x, cell.test, most=255)
    model = HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=cell.seed
    )
    return model.fit(x, cell.y).decision_function(test), {}


def lightgbm(cell: Cell, bags: int = 1, **options: Any) -> Found:
    """Score by LightGBM, the mean over bags with a seed each."""
    from lightgbm import LGBMClassifier

    x, test = with_categories(cell.x, cell.test)
    options |= {"n_jobs": 0, "verbose": -1}  # as many threads as OMP_NUM_THREADS says
    seeds = range(cell.seed * bags, (cell.seed + 1) * bags)
    models = [LGBMClassifier(random_state=s, **options).fit(x, cell.y) for s in seeds]
    return np.mean([model.predict_proba(test)[:, 1] for model in models], axis=0), {}


def peer(cell: Cell, method: str) -> Found:
    """Score by a peer of the other environment."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cell.x.assign(target=cell.y).to_parquet(folder / "train.parquet")
        cell.test.to_parquet(folder / "test.parquet")
        script = ROOT / "benchmarks" / "peer_tables.py"
        command = [cell.peers, script, folder, method, cell.seed, cell.limit]
        subprocess.run([str(x) for x in command], check=True, env=os.environ | {"PYTHONPATH": ""})
        return np.load(folder / "scores.npy"), json.loads((folder / "about.json").read_text())


REGULARISED = {
    "bags": 3,
    "n_estimators": 200,
    "learning_rate": 0.05,
    "num_leaves": 15,
    "subsample": 0.8,
    "subsample_freq": 1,
    "colsample_bytree": 0.8,
}
METHODS: dict[str, Callable[[Cell], Found]] = {
    "aucmax": ours,
    "aucmax fast": partial(ours, quality="fast"),
    "aucmax best": partial(ours, quality="best"),
    "TabM, cross-entropy": partial(ours, models=["ce-network"]),
    "AutoGluon": partial(peer, method="AutoGluon"),
    "CatBoost": partial(peer, method="CatBoost"),
    "XGBoost": partial(peer, method="XGBoost"),
    "LightGBM": lightgbm,
    "LightGBM, regularised bag": partial(lightgbm, **REGULARISED),
    "HistGradientBoosting": boosting,
    "logistic regression": logistic,
}
SLOW = ("aucmax best", "TabM, cross-entropy", "AutoGluon", "CatBoost")
BRIEF = ("aucmax", "aucmax fast", "LightGBM", "LightGBM, regularised bag")


class Part(NamedTuple):
    """Tables, the most rows of one, methods, splits, and whether runs are timed alone."""

    tables: tuple[str, ...]
    rows: int
    methods: tuple[str, ...]
    splits: int
    alone: bool


PARTS = {
    "all": Part(
        (*CHOSEN_ON, *CONFIRMED_ON), 50_000, tuple(m for m in METHODS if m not in SLOW), 3, False
    ),
    "confirm": Part(CONFIRMED_ON, 8_000, tuple(METHODS), 3, True),
    "few": Part(tuple(FEW), sys.maxsize, BRIEF, 20, False),
}


def read(folder: Path, name: str, most: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table and its target; cut, positives up to a tenth of the rows are all kept."""
    table = pd.read_csv(folder / f"{name}.csv.gz").drop(columns=LEAKS.get(name, []))
    if len(table) > most:
        positive = table["target"] == 1
        kept = max(round(most * positive.mean()), min(positive.sum(), round(most * RARE)))
        parts = (
            table[positive].sample(kept, random_state=0),
            table[~positive].sample(most - kept, random_state=0),
        )
        table = pd.concat(parts).sort_index().reset_index(drop=True)
    return table, table.pop("target").to_numpy()


def split(x: pd.DataFrame, y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return training rows and test rows, a quarter; stratified, repeated rows together.

    A row that makes up more than a hundredth of the table is always trained on. With its repeats it
    would be most of a test set.
    """
    groups = pd.util.hash_pandas_object(x, index=False)
    often = groups.map(groups.value_counts()).to_numpy() > OFTEN * len(x)
    rows = np.flatnonzero(~often)
    folds = StratifiedGroupKFold(4, shuffle=True, random_state=seed)
    _, test = next(iter(folds.split(rows, y[rows], groups.to_numpy()[rows])))
    return np.setdiff1d(np.arange(len(x)), rows[test]), rows[test]


def few_positives(
    x: pd.DataFrame, y: np.ndarray, positives: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return so many positives with negatives in their share to train on; the rest are test rows.

    Repeated rows are in neither.
    """
    first = np.flatnonzero(~x.duplicated())
    rows = min(MOST_FEW, round(positives / y[first].mean()))
    random = np.random.default_rng(seed)
    drawn = [
        random.choice(first[y[first] == label], count, replace=False)
        for label, count in ((1, positives), (0, rows - positives))
    ]
    train = random.permutation(np.concatenate(drawn))
    return train, np.setdiff1d(first, train)


def run(task: Task, name: str, folder: Path, peers: Path) -> dict[str, Any]:
    """Fit one method on one split of one table, and return what to record."""
    seed, table, method = task
    x, y = read(folder, table, PARTS[name].rows)
    if name == "few":
        train, test = few_positives(x, y, FEW[table], seed)
    else:
        train, test = split(x, y, seed)
    limit = 0.0
    if method == "AutoGluon":  # it may take as long as we did
        mine = [
            r for r in records(OUT) if (r["part"], r["table"], r["split"]) == (name, table, seed)
        ]
        limit = next(r["seconds"] for r in mine if r["method"] == "aucmax")
    cell = Cell(x.iloc[train], y[train], x.iloc[test], seed, peers, limit)
    began = time.perf_counter()
    scores, about = METHODS[method](cell)
    return {
        "part": name,
        "table": table,
        "split": seed,
        "method": method,
        "auc": metrics.roc_auc(scores, y[test]),
        "seconds": round(time.perf_counter() - began, 3),
        "rows": [len(train), len(test)],
        "positives": [int(y[train].sum()), int(y[test].sum())],
        "test": hashlib.sha256(test.tobytes()).hexdigest()[:16],
        **about,
    }


def attempt(task: Task, **options: Any) -> tuple[Task, dict[str, Any]]:
    """Run a task; an exception becomes an error in its record."""
    try:
        return task, run(task, **options)
    except Exception as error:
        return task, {"error": f"{type(error).__name__}: {error}"}


def records(path: Path | None) -> list[dict[str, Any]]:
    """Read results; a last line cut off by a kill does not count."""
    text = path.read_text(encoding="utf-8") if path and path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def perform(given: argparse.Namespace, results: Results) -> int:
    """Run what is missing; return the number of failures."""
    part = PARTS[given.part]
    splits = range(part.splits) if given.splits is None else given.splits
    tables, methods = given.tables or part.tables, given.methods or part.methods
    done = {
        (r["split"], r["table"], r["method"])
        for r in records(results.path)
        if r["part"] == given.part and r.get("code") == results.about.get("code")
    }
    missing = [
        task for s in splits for t in tables for m in methods if (task := (s, t, m)) not in done
    ]
    threads = max(1, (os.cpu_count() or 1) // given.workers)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # each process keeps to its own cores
    work = partial(attempt, name=given.part, folder=given.data, peers=given.peers)
    failed = 0
    with ExitStack() as stack:
        outcomes = map(work, missing)
        if given.workers > 1:
            pool = multiprocessing.get_context("spawn").Pool(given.workers)
            outcomes = stack.enter_context(pool).imap_unordered(work, missing)
        for (seed, table, method), found in outcomes:
            if "error" in found:
                failed += 1
                print(f"{table} {seed} {method}: {found['error']}", flush=True)
                continue
            results.add(**found, threads=threads, at_once=given.workers)
            said = f"AUC {found['auc']:.4f}, {found['seconds']:.1f} s"
            print(f"{table} {seed} {method}: {said}", flush=True)
    return failed


def summary(rows: list[dict[str, Any]]) -> str:
    """Return a table of mean test AUC, difference from aucmax over tables, and seconds."""
    cells: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = defaultdict(dict)
    for r in rows:
        cells[r["part"], r["method"]].setdefault(r["table"], []).append(r)
    lines = [f"{'part':8} {'method':26} tables   AUC     minus aucmax (95 %)          seconds"]
    for (part, method), by_table in cells.items():
        auc = {table: fmean(r["auc"] for r in each) for table, each in by_table.items()}
        base = cells.get((part, "aucmax"), {})
        differences = [auc[t] - fmean(r["auc"] for r in base[t]) for t in auc if t in base]
        d = Difference.signed_rank(differences)
        seconds = fmean(r["seconds"] for each in by_table.values() for r in each)
        lines.append(
            f"{part:8} {method:26} {len(auc):6} {fmean(auc.values()):.4f} "
            f"{d.value:+.4f} ({d.low:+.4f} to {d.high:+.4f}) {seconds:10.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, or print what was measured."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, help="folder of NAME.csv.gz")
    options.add_argument("--part", choices=PARTS, default="all")
    options.add_argument("--tables", nargs="+", help="these alone")
    options.add_argument("--methods", nargs="+", choices=METHODS, help="these alone")
    options.add_argument("--splits", nargs="+", type=int, help="these alone, from 0")
    options.add_argument("--workers", type=int, default=1, help="runs at once")
    options.add_argument("--peers", type=Path, default=PEERS, help="Python with AutoGluon etc.")
    options.add_argument("--print", action="store_true", help="print what was measured")
    given = options.parse_args()
    if given.print:
        print(summary(records(given.json or OUT)))
        return
    if given.data is None:
        options.error("--data must name the folder of the tables")
    if PARTS[given.part].alone and given.workers > 1:
        options.error(f"--workers must be 1: the runs of the part {given.part} are timed")
    sys.exit(1 if perform(given, Results(given)) else 0)


if __name__ == "__main__":
    main()
