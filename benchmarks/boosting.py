"""What does LightGBM cost with our objectives, against its own binary objective?

python benchmarks/boosting.py
"""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
from _timing import Bench, main

from aucmax.boosting import AUCObjective

OBJECTIVES: dict[str, Any] = {
    "binary": "binary",
    "AUCObjective": AUCObjective(),
    "AUCObjective, hinge": AUCObjective("hinge"),
    "AUCObjective, max_fpr 0.1": AUCObjective(max_fpr=0.1),
}


def measure(bench: Bench) -> None:
    """Time whole trainings at LightGBM's defaults; the data are binned beforehand."""
    rows, trees = bench.size((100_000, 100), (300, 2))
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 20))
    logit = x[:, :5].sum(1) + np.abs(x[:, 5:8]).sum(1) - 6.0
    data = lightgbm.Dataset(x, random.random(rows) < 1 / (1 + np.exp(-logit))).construct()

    def train(objective: Any) -> None:
        lightgbm.train({"objective": objective, "verbosity": -1}, data, trees)

    works = {name: lambda of=objective: train(of) for name, objective in OBJECTIVES.items()}
    bench.compare(f"{rows:,} rows, {trees} trees", works, rounds=5)


if __name__ == "__main__":
    main(measure, __doc__)
