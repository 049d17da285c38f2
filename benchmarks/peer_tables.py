"""Fit one peer on one table, with an interpreter of the peers' own environment.

``python peer_tables.py FOLDER METHOD SEED SECONDS`` is called by ``tables.py``. It reads
``train.parquet``, with a column ``target``, and ``test.parquet`` in FOLDER, and leaves
``scores.npy`` and ``about.json`` there. SECONDS is the time limit of peers that have one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

METHODS = {"XGBoost": "xgboost", "CatBoost": "catboost", "AutoGluon": "autogluon.tabular"}
TOO_SHORT = (
    "No models were trained successfully",
    "Not enough time left to train models",
    "Learner is already fit",  # AutoGluon's message after a first part of the time without a model
)


def with_categories(
    x: pd.DataFrame, test: pd.DataFrame, most: int | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return text as pandas' categories, those of the training rows, under plain column names."""
    x, test = x.copy(), test.copy()
    x.columns = test.columns = [f"x{i}" for i in range(x.shape[1])]
    for name in x.columns:
        if not pd.api.types.is_numeric_dtype(x[name]):
            kind = pd.CategoricalDtype(x[name].value_counts().index[:most].sort_values())
            x[name], test[name] = x[name].astype(kind), test[name].astype(kind)
    return x, test


def xgboost(x: pd.DataFrame, y: pd.Series, test: pd.DataFrame, seed: int) -> Any:
    """Return the scores of XGBoost at its defaults."""
    from xgboost import XGBClassifier

    x, test = with_categories(x, test)
    model = XGBClassifier(enable_categorical=True, random_state=seed).fit(x, y)
    return model.predict_proba(test)[:, 1]


def catboost(x: pd.DataFrame, y: pd.Series, test: pd.DataFrame, seed: int) -> Any:
    """Return the scores of CatBoost at its defaults; it takes categories as text."""
    from catboost import CatBoostClassifier

    texts = [name for name in x if not pd.api.types.is_numeric_dtype(x[name])]
    x, test = (table.astype(dict.fromkeys(texts, str)) for table in (x, test))
    model = CatBoostClassifier(
        cat_features=texts, random_seed=seed, verbose=False, allow_writing_files=False
    )
    return model.fit(x, y).predict_proba(test)[:, 1]


def autogluon(
    x: pd.DataFrame, y: pd.Series, test: pd.DataFrame, seconds: float, folder: Path
) -> tuple[Any, dict[str, Any]]:
    """Return the scores of AutoGluon's best quality; the limit doubles until it has a model."""
    from autogluon.tabular import TabularPredictor

    limit = seconds
    while True:
        predictor = TabularPredictor(
            "target",
            problem_type="binary",
            eval_metric="roc_auc",
            verbosity=1,
            path=str(folder / f"models-{limit}"),
        )
        try:
            predictor.fit(x.assign(target=y), presets="best_quality", time_limit=limit)
            break
        except (AssertionError, RuntimeError) as error:
            if not any(text in str(error) for text in TOO_SHORT):
                raise
            limit *= 2
    scores = predictor.predict_proba(test)[predictor.positive_class]
    return scores, {"limit": limit, "models": predictor.model_names()}


def main() -> None:
    """Fit one peer and score the test rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("seed", type=int)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    x = pd.read_parquet(given.folder / "train.parquet")
    y, test = x.pop("target"), pd.read_parquet(given.folder / "test.parquet")
    about: dict[str, Any] = {}
    importlib.import_module(METHODS[given.method])  # the import is not timed
    began = time.perf_counter()
    if given.method == "AutoGluon":
        scores, about = autogluon(x, y, test, given.seconds, given.folder)
    else:
        scores = {"XGBoost": xgboost, "CatBoost": catboost}[given.method](x, y, test, given.seed)
    about["seconds"] = round(time.perf_counter() - began, 3)
    np.save(given.folder / "scores.npy", np.asarray(scores, dtype=np.float64))
    (given.folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


if __name__ == "__main__":
    main()
