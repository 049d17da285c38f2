"""How cost grows with the rows: the loss, the metric and an epoch of ``fit``, 1e4 to 1e7 rows.

A call costs something before it looks at the first row, c, which shows where rows are few: timed
on 16 rows too, for ``fit`` on one batch, the exponent e is that of c + k n^e, for the metric
c + k n^e log n, the nearest such curve to the times in their logarithms. Beside it stands the slope
of a line through the logarithms from 1e4 rows on, which has no c and so falls with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _timing import Work, alternate, repeated
from _workloads import batch, forward_backward
from scipy.optimize import least_squares
from torch import nn

import aucmax
from aucmax.metrics import roc_auc

SIZES = tuple(round(10 ** (k / 2)) for k in range(8, 15))
BATCH, COLUMNS = 256, 4


def loss(n: int) -> Work:
    """Forward and backward of AUCLoss on n scores."""
    scores, target = batch(n)
    return forward_backward(aucmax.AUCLoss(share(target)), scores, target)


def metric(n: int) -> Work:
    """The AUC of n scores."""
    scores, target = (x.detach().numpy() for x in batch(n))
    target[:2] = 0, 1
    return lambda: roc_auc(scores, target)


def epoch(n: int) -> Work:
    """A call of fit that sees n rows once, in batches of 256, with a linear model."""
    _, y = batch(n)
    y[:2] = torch.tensor([0.0, 1.0])
    x, model, steps = torch.randn(n, COLUMNS), nn.Linear(COLUMNS, 1), max(1, n // BATCH)

    def run() -> None:
        aucmax.fit(
            model, (x, y), steps=steps, batch_size=min(n, BATCH), eval_every=steps, probe=0,
            stages=aucmax.stages.geometric(lr=0.01, steps=steps, stages=1),
            progress=False, device="cpu",
        )  # fmt: skip

    return run


def share(target: torch.Tensor) -> float:
    """Of positives, for a loss that wants to know it; within (0, 1) whatever the rows are."""
    return min(max(target.mean().item(), 0.01), 0.99)


def grown(
    make: Callable[[int], Work],
    rounds: int,
    rows: int = 1_000_000,
    few: int = 16,
    by_log: bool = False,
) -> dict[str, Any]:
    """Median seconds by size, and the exponents.

    Args:
        make: the work on so many rows.
        rounds: of which the median is taken.
        rows: of a round; where there are fewer the work is done more often.
        few: rows of a call that costs little more than any call does.
        by_log: whether n log n is expected.
    """
    calls = {n: max(1, rows // max(n, SIZES[0])) for n in (few, *SIZES)}
    works = {n: repeated(make(n), calls[n]) for n in calls}
    medians = alternate(works, rounds=rounds, warm_up=0)
    seconds = {n: medians[n] / calls[n] for n in calls}
    return {
        "exponent": exponent(seconds, by_log),
        "slope": slope({n: seconds[n] / (math.log(n) if by_log else 1.0) for n in SIZES}),
        "seconds": {f"{n:,}": t for n, t in seconds.items()},
    }


def exponent(seconds: dict[int, float], by_log: bool) -> float:
    """The e of the curve c + k n^e, or c + k n^e log n, that is nearest in the logarithms."""
    n, t = np.array(list(seconds), float), np.log(list(seconds.values()))
    factor = np.log(n) if by_log else np.ones_like(n)

    def distance(curve: Any) -> Any:
        fixed, per_row, e = curve
        return np.logaddexp(fixed, per_row + e * np.log(n) + np.log(factor)) - t

    begin = [t[0], t[-1] - np.log(n[-1] * factor[-1]), 1.0]
    return float(least_squares(distance, begin).x[2])


def slope(times: dict[int, float]) -> float:
    """Of the line through the logarithms."""
    return float(np.polyfit(np.log(list(times)), np.log(list(times.values())), 1)[0])


def measure() -> dict[str, Any]:
    """All three; the loss and the metric on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {
        "loss": grown(loss, 9),
        "metric": grown(metric, 7, by_log=True),
        "epoch of fit": grown(epoch, 3, rows=100_000, few=BATCH),
    }
    torch.set_num_threads(threads)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
