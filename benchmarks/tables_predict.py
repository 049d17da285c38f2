"""How long it takes to fit 50,000 rows of 20 numeric columns and to score a million, by LightGBM.

``python benchmarks/tables_predict.py`` fits "fast", "good" and LightGBM at their defaults, lets
them score in turn, prints seconds and the ratio to LightGBM's, and writes them to
``results/tables-predict.json``, from which ``tables.py --publish`` makes a part of its page.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from _timing import alternate
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification

from aucmax import AUCClassifier
from aucmax.paper.provenance import provenance

OUT = Path(__file__).parent / "results" / "tables-predict.json"


def main() -> None:
    """Fit, then score in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train-rows", type=int, default=50_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    x, y = make_classification(
        given.train_rows, 20, n_informative=10, weights=[0.9], random_state=0
    )
    new = np.random.default_rng(0).normal(size=(given.rows, 20))
    models = {
        "aucmax": AUCClassifier(quality="good", random_state=0),
        "aucmax fast": AUCClassifier(quality="fast", random_state=0),
        "LightGBM": LGBMClassifier(verbose=-1),
    }
    fits = {}
    for name, model in models.items():
        began = time.perf_counter()
        model.fit(x, y)
        fits[name] = time.perf_counter() - began
    works = {name: lambda model=model: model.predict_proba(new) for name, model in models.items()}
    scores = alternate(works, rounds=given.rounds, warm_up=1)
    methods = {
        name: {"fit": fits[name], "score": s, "ratio": s / scores["LightGBM"]}
        for name, s in scores.items()
    }
    for name, found in methods.items():
        print("{}: fit {fit:.1f} s, score {score:.2f} s, ratio {ratio:.2f}".format(name, **found))
    sizes = {"train_rows": given.train_rows, "rows": given.rows}
    text = json.dumps({**sizes, "methods": methods, **provenance("cpu")}, indent=2)
    OUT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
