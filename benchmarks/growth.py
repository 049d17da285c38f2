"""Does cost grow in proportion to the rows: of the loss, the metric and an epoch of ``fit``?

    python benchmarks/growth.py

Times from 1e4 to 1e7 rows are fitted by c + k n^e, for the metric by c + k n^e log n. The constant
c is the cost of a call as such, measured on 16 rows. An exponent e near one means linear growth.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from _timing import Bench, Work, main
from _workloads import batch, forward_backward
from scipy.optimize import least_squares

import aucmax

BATCH = 256


def loss(n: int) -> Work:
    """Return forward and backward of AUCLoss on n scores."""
    scores, target = batch(n)
    return forward_backward(aucmax.AUCLoss(0.1), scores, target)


def metric(n: int) -> Work:
    """Return the AUC of n scores."""
    scores, target = (x.detach().numpy() for x in batch(n))
    target[:2] = 0, 1
    return lambda: aucmax.metrics.roc_auc(scores, target)


def epoch(n: int) -> Work:
    """Return a call of fit on n rows, in batches of 256, with a linear model."""
    _, y = batch(n)
    y[:2] = torch.tensor([0.0, 1.0])
    generator = torch.Generator().manual_seed(0)
    x, model, steps = (
        torch.randn(n, 4, generator=generator),
        torch.nn.Linear(4, 1),
        max(1, n // BATCH),
    )
    stages = aucmax.stages.geometric(lr=0.01, steps=steps, stages=1)

    def run() -> None:
        aucmax.fit(
            model,
            (x, y),
            steps=steps,
            batch_size=min(n, BATCH),
            eval_every=steps,
            probe=0,
            stages=stages,
            progress=False,
            device="cpu",
        )

    return run


def exponent(seconds: dict[int, float], by_log: bool) -> float:
    """Return e of the curve that is nearest in logarithms."""
    n, t = np.array(list(seconds), float), np.log(list(seconds.values()))
    factor = np.log(n) if by_log else np.ones_like(n)

    def distance(curve: np.ndarray) -> np.ndarray:
        constant, per_row, e = curve
        return np.logaddexp(constant, per_row + e * np.log(n) + np.log(factor)) - t

    begin = [t[0], t[-1] - np.log(n[-1] * factor[-1]), 1.0]
    return float(least_squares(distance, begin).x[2])


def measure(bench: Bench) -> None:
    """Time the three at each size; one thread."""
    torch.set_num_threads(1)
    sizes = bench.size([round(10 ** (k / 2)) for k in range(8, 15)], [100, 1000, 3000])
    tasks: dict[str, tuple[Callable[[int], Work], int, bool]] = {
        "AUCLoss": (loss, 16, False),
        "roc_auc": (metric, 16, True),
        "epoch of fit": (epoch, BATCH, False),
    }
    for name, (make, few, by_log) in tasks.items():
        works = {f"{n:,} rows": make(n) for n in [few, *sizes]}
        medians = bench.compare(name, works, rounds=5)
        seconds = dict(zip([few, *sizes], medians.values(), strict=True))
        e = exponent(seconds, by_log)
        bench.record(name, "exponent", exponent=e if math.isfinite(e) else None)


if __name__ == "__main__":
    main(measure, __doc__)
