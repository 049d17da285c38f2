"""How long it takes to predict a million rows of 20 numeric columns, beside LightGBM.

``python benchmarks/tables_predict.py`` trains both on 20,000 rows at their defaults and lets them
predict in turn; it prints the ratio of the medians, and where our time goes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification

from aucmax import AUCClassifier


def seconds(work: Callable[[], Any]) -> float:
    """Of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Train, then time in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    x, y = make_classification(20_000, 20, n_informative=10, weights=[0.9], random_state=0)
    ours = AUCClassifier(random_state=0, max_steps=200).fit(x, y)
    theirs = LGBMClassifier(verbose=-1).fit(x, y)
    new = np.random.default_rng(0).normal(size=(given.rows, 20))
    times: dict[str, list[float]] = {"aucmax": [], "LightGBM": [], "of ours, encoding": []}
    for _ in range(given.rounds):
        times["aucmax"].append(seconds(lambda: ours.predict_proba(new)))
        times["LightGBM"].append(seconds(lambda: theirs.predict_proba(new)))
        times["of ours, encoding"].append(seconds(lambda: ours.encoder_.transform(new)))
    middle = {name: statistics.median(values) for name, values in times.items()}
    for name, value in middle.items():
        print(f"{name}: {value:.2f} s")
    print(f"ratio: {middle['aucmax'] / middle['LightGBM']:.2f}")


if __name__ == "__main__":
    main()
