"""Gradient boosting: LightGBM's if that is installed, else scikit-learn's."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from aucmax.tables.ensemble.base import CrossFitted, LeftOutError, Setting
from aucmax.tables.ensemble.cross_fit import Refitted, Savable, all_used, cross_fit
from aucmax.tables.ensemble.trees import MOST_CODES, Trees
from aucmax.tables.folds import Folds
from aucmax.tables.scoring import Rows

TREES = 200
RATE = 0.05
LEAVES = 15
SHARE = 0.8
"""Of the rows for each tree, and of the columns."""

MANY = 500_000
"""With so many values a fit gains by threads; with fewer they mostly wait for one another."""


class Boosting(Refitted):
    """Boosted trees."""

    kind: ClassVar[str] = "boosting"
    fit_type: ClassVar[type[Savable]] = Trees


def fit_boosting(rows: Rows, folds: Folds, setting: Setting) -> CrossFitted:
    """Fit it to each fold, with settings that serve tables of any size, and to all rows.

    It is never stopped early, so that rows held out have no part in it. LightGBM's is the mean of
    two, of which the other tries one threshold of each column, drawn at random: together they rank
    new rows better than either.

    Raises:
        LeftOutError: if there is too little time.
    """
    began = time.monotonic()
    to_do = iter(range(folds.count + (folds.count > 1), 0, -1))
    fits, scores = cross_fit(lambda part: _fit(part, setting, next(to_do)), rows, folds, setting)
    whole = fits[0] if folds.count == 1 else _fit(all_used(rows, folds), setting, next(to_do))
    return CrossFitted(Boosting("boosting", whole, fits), scores, time.monotonic() - began)


def _fit(rows: Rows, setting: Setting, to_do: int) -> Trees:
    """One of so many fits that are to be done in the time that is left."""
    now = time.monotonic()
    ends = now + (setting.deadline - now) / to_do

    def check_time(_: Any) -> None:
        if time.monotonic() > ends:
            raise LeftOutError(f"a fit takes longer than {ends - now:.1f} seconds, its share")

    columns = np.concatenate([rows.numeric.numpy(), rows.codes.numpy().astype(np.float32)], 1)
    weight = None if rows.weight is None else rows.weight / rows.weight.mean()
    numeric = rows.numeric.shape[1]
    least = int(np.clip(len(rows) // 10, 2, 20))  # rows in a leaf
    threads = torch.get_num_threads() if columns.size >= MANY else 1
    try:
        import lightgbm
    except (ImportError, OSError):  # not there, or it lacks a library of the system
        from sklearn.ensemble import HistGradientBoostingClassifier

        is_category = np.arange(columns.shape[1]) >= numeric
        columns[:, is_category] = columns[:, is_category].clip(max=MOST_CODES - 1)
        model = HistGradientBoostingClassifier(
            max_iter=TREES, learning_rate=RATE, max_leaf_nodes=LEAVES, max_features=SHARE,
            min_samples_leaf=least, categorical_features=is_category,
            early_stopping=False, random_state=setting.seed,
        )  # fmt: skip
        with threadpool_limits(threads):
            model.fit(columns, rows.classes, sample_weight=weight)
        return Trees.of_scikit_learn(model, numeric, setting.cardinalities)
    given = {
        "objective": "binary" if setting.outputs == 1 else "multiclass",
        "num_class": setting.outputs,
        "learning_rate": RATE,
        "num_leaves": LEAVES,
        "min_data_in_leaf": least,
        "feature_fraction": SHARE,
        "bagging_fraction": SHARE,
        "bagging_freq": 1,
        "seed": setting.seed,
        "num_threads": threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbose": -1,
    }
    codes = list(range(numeric, columns.shape[1]))
    data = lightgbm.Dataset(columns, rows.classes, weight=weight, categorical_feature=codes)
    boosters = [
        lightgbm.train({**given, "extra_trees": extra}, data, TREES, callbacks=[check_time])
        for extra in (False, True)
    ]
    return Trees.of_lightgbm(boosters, numeric, setting.cardinalities)
