"""How long does AUCClassifier take to fit 50,000 rows and to score a million, against LightGBM?

python benchmarks/tables_predict.py
"""

from __future__ import annotations

import numpy as np
from _timing import Bench, main
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification

from aucmax import AUCClassifier


def measure(bench: Bench) -> None:
    """Time fits once, and scoring in alternation; 20 numeric columns, defaults."""
    train_rows, rows = bench.size((50_000, 1_000_000), (200, 400))
    steps = {"max_steps": 10} if bench.tiny else {}
    x, y = make_classification(train_rows, 20, n_informative=10, weights=[0.9], random_state=0)
    new = np.random.default_rng(0).normal(size=(rows, 20))
    qualities = bench.size(("good", "fast"), ("fast",))
    models = {"LightGBM": LGBMClassifier(verbose=-1, random_state=0)} | {
        f"aucmax, {quality}": AUCClassifier(quality=quality, random_state=0, **steps)
        for quality in qualities
    }
    for name, model in models.items():
        seconds = bench.seconds(lambda model=model: model.fit(x, y))
        bench.record(f"fit, {train_rows:,} rows", name, seconds=seconds)
    works = {name: lambda model=model: model.predict_proba(new) for name, model in models.items()}
    bench.compare(f"score, {rows:,} rows", works, rounds=3)


if __name__ == "__main__":
    main(measure, __doc__)
