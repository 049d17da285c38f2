"""LightGBM with AUCObjective, against LightGBM with its own binary objective; its defaults."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from _timing import against, alternate

from aucmax.boosting import AUCObjective

OBJECTIVES = {
    "binary": "binary",
    "AUCObjective": AUCObjective(),
    "AUCObjective, hinge": AUCObjective("hinge"),
    "AUCObjective, max_fpr 0.1": AUCObjective(max_fpr=0.1),
}


def measure(rows: int = 100_000, trees: int = 100, rounds: int = 5) -> dict[str, Any]:
    """Seconds and ratios of whole runs, the data binned before."""
    import lightgbm  # the other groups are timed without it, too

    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 20))
    logit = x[:, :5].sum(1) + np.abs(x[:, 5:8]).sum(1) - 6.0
    data = lightgbm.Dataset(x, random.random(rows) < 1 / (1 + np.exp(-logit))).construct()

    def train(objective: Any) -> None:
        lightgbm.train({"objective": objective, "verbosity": -1}, data, trees)

    works = {name: lambda of=objective: train(of) for name, objective in OBJECTIVES.items()}
    medians = alternate(works, rounds=rounds, warm_up=1)
    return {f"{rows:,} rows, {trees} trees": against("binary", medians)}


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
