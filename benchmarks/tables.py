"""Test AUC on 23 imbalanced tables, beside what people use otherwise, all at their defaults.

``python benchmarks/tables.py --data DIR`` runs what is missing and adds one line per table, split
and method to ``results/tables.jsonl``; stopped, it goes on. DIR holds ``NAME.csv.gz`` with a last
column ``target``. ``--time`` times fits one after the other on all cores, into
``results/tables-times.jsonl``; ``--publish`` writes the page of the documentation.

Defaults were chosen on the tables in CHOSEN_ON; the others confirm them. A quarter of the rows is
the test set, three times; rows that are alike in all columns are never on both sides.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from tables_page import page

from aucmax import AUCClassifier, metrics
from aucmax.judge.peers import one_hot
from aucmax.paper.provenance import provenance
from aucmax.tables.encoder import TableEncoder

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "tables.jsonl"
TIMES = HERE / "results" / "tables-times.jsonl"
PAGE = HERE.parent / "docs" / "tables_results.rst"
CHOSEN_ON = (
    "abalone_7", "adult", "annthyroid", "coil_2000", "german_credit", "haberman", "keel_yeast4",
    "letter_z", "oil_spill", "online_shoppers", "phoneme", "stroke",
)  # fmt: skip
CONFIRMED_ON = (
    "ai4i_2020", "bank_marketing", "covtype_4v2", "credit_default_taiwan", "ecoli_imu",
    "htru2_pulsar", "keel_page_blocks0", "mammography", "pendigits_5", "satimage_2", "w8a",
)  # fmt: skip
LEAKS = {"bank_marketing": ["duration"]}  # known only after the call whose outcome is predicted
MOST_ROWS = 50_000
OFTEN = 0.01
SPLITS = 3

Scores = NDArray[np.float64]
Task = tuple[int, str, str]


# ---- Methods: training rows, their labels and test rows in, scores of the test rows out ----------


def aucmax(x: pd.DataFrame, y: NDArray[Any], test: pd.DataFrame, seed: int) -> Scores:
    """Ours, at its defaults."""
    return AUCClassifier(random_state=seed).fit(x, y).decision_function(test)


def cross_entropy(x: pd.DataFrame, y: NDArray[Any], test: pd.DataFrame, seed: int) -> Scores:
    """The same network on cross-entropy, rows sampled as they are, which served it best."""
    model = AUCClassifier(objective="ce", random_state=seed)
    return model.fit(x, y).decision_function(test)


def logistic(x: pd.DataFrame, y: NDArray[Any], test: pd.DataFrame, seed: int) -> Scores:
    """Logistic regression on our encoding of the columns, categories one-hot."""
    encoder = TableEncoder().fit(x)
    train, new = (one_hot(*encoder.transform(t), encoder.cardinalities) for t in (x, test))
    scores: Scores = LogisticRegression(max_iter=1000).fit(train, y).decision_function(new)
    return scores


def boosting(x: pd.DataFrame, y: NDArray[Any], test: pd.DataFrame, seed: int) -> Scores:
    """scikit-learn's histogram gradient boosting."""
    x, test = _with_categories(x, test, most=255)
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=seed)
    scores: Scores = model.fit(x, y).decision_function(test)
    return scores


def lightgbm(x: pd.DataFrame, y: NDArray[Any], test: pd.DataFrame, seed: int) -> Scores:
    """LightGBM."""
    from lightgbm import LGBMClassifier

    x, test = _with_categories(x, test)
    model = LGBMClassifier(random_state=seed, verbose=-1).fit(x, y)
    scores: Scores = model.predict_proba(test)[:, 1]
    return scores


def xgboost(x: pd.DataFrame, y: NDArray[Any], test: pd.DataFrame, seed: int) -> Scores:
    """XGBoost."""
    from xgboost import XGBClassifier

    x, test = _with_categories(x, test)
    model = XGBClassifier(enable_categorical=True, random_state=seed).fit(x, y)
    scores: Scores = model.predict_proba(test)[:, 1].astype(np.float64)
    return scores


METHODS: dict[str, Callable[..., Scores]] = {
    "aucmax": aucmax,
    "cross-entropy": cross_entropy,
    "logistic regression": logistic,
    "HistGradientBoosting": boosting,
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
}


def _with_categories(
    x: pd.DataFrame, test: pd.DataFrame, most: int | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Text as pandas' categories, those of the training rows; names that LightGBM takes."""
    x, test = x.copy(), test.copy()
    x.columns = test.columns = [f"x{i}" for i in range(x.shape[1])]
    for name in x.columns:
        if not pd.api.types.is_numeric_dtype(x[name]):
            kind = pd.CategoricalDtype(x[name].value_counts().index[:most].sort_values())
            x[name], test[name] = x[name].astype(kind), test[name].astype(kind)
    return x, test


# ---- Runs ----------------------------------------------------------------------------------------


def read(folder: Path, name: str) -> tuple[pd.DataFrame, NDArray[Any]]:
    """A table, at most MOST_ROWS of it, and its target."""
    table = pd.read_csv(folder / f"{name}.csv.gz").drop(columns=LEAKS.get(name, []))
    if len(table) > MOST_ROWS:
        table = table.sample(MOST_ROWS, random_state=0).reset_index(drop=True)
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


def run(folder: Path, name: str, seed: int, method: str) -> dict[str, Any]:
    """One method on one split of one table."""
    x, y = read(folder, name)
    train, test = split(x, y, seed)
    began = time.perf_counter()
    scores = METHODS[method](x.iloc[train], y[train], x.iloc[test], seed)
    seconds = time.perf_counter() - began
    return {
        "table": name, "split": seed, "method": method,
        "auc": metrics.roc_auc(scores, y[test]), "seconds": round(seconds, 3),
        "rows": [len(train), len(test)], "positives": [int(y[train].sum()), int(y[test].sum())],
        "test": hashlib.sha256(test.tobytes()).hexdigest()[:16], **provenance("cpu"),
    }  # fmt: skip


def perform(wanted: list[Task], folder: Path, out: Path, workers: int) -> None:
    """Run what is not in the file yet, and add it."""
    done = {(r["split"], r["table"], r["method"]) for r in records(out)}
    missing = [task for task in wanted if task not in done]
    threads = max(1, (os.cpu_count() or 1) // workers)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # each process keeps to its own cores
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        tasks = [pool.submit(run, folder, name, seed, method) for seed, name, method in missing]
        for number, task in enumerate(as_completed(tasks), len(wanted) - len(missing) + 1):
            found = {**task.result(), "threads": threads, "at_once": workers}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            said = "{table} {split} {method}: AUC {auc:.4f}, {seconds:.1f} s".format(**found)
            print(f"{number}/{len(wanted)} {said}", flush=True)


def records(path: Path) -> list[dict[str, Any]]:
    """The results in a file; a line that was cut off when the run was killed is none."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if len(whole) < len(text):
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of NAME.csv.gz")
    parser.add_argument("--tables", nargs="+", default=[*CHOSEN_ON, *CONFIRMED_ON])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--workers", type=int, default=1, help="runs at once")
    parser.add_argument("--time", action="store_true", help="time fits alone, one split")
    parser.add_argument("--publish", action="store_true", help="write the documentation's page")
    given = parser.parse_args()
    if given.publish:
        PAGE.write_text(page(records(RESULTS), records(TIMES), CHOSEN_ON), encoding="utf-8")
        return
    if given.data is None:
        parser.error("--data must name the folder of the tables")
    splits, out = (1, TIMES) if given.time else (given.splits, RESULTS)
    wanted = [(s, t, m) for s in range(splits) for t in given.tables for m in given.methods]
    perform(wanted, given.data, out, 1 if given.time else given.workers)


if __name__ == "__main__":
    main()
