"""How often do 95 % intervals hold the truth, and how often do tests at 5 % err?

    python benchmarks/metric_coverage.py

Scores are normal with variance one in both classes. Two models share half of their noise. Groups
have two positives each and an offset of their own, and differ in how easy they are. For the AUC
alone, more class sizes and true values are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from _timing import Results, parser, show

from aucmax import metrics

POSITIVES = (10, 30, 100, 1000)
NEGATIVES = 10  # to a positive
SHIFT = math.sqrt(2) * NormalDist().inv_cdf(0.9)
SPREAD = 0.5  # of the shift over groups
MAX_FPR, MIN_TPR, SHARE = 0.1, 0.3, 0.05
METRICS: dict[str, tuple[str, dict[str, float]]] = {
    "AUC": ("roc_auc", {}),
    "partial AUC, FPR <= 0.1": ("partial_auc", {"max_fpr": MAX_FPR}),
    "and TPR >= 0.3": ("partial_auc", {"max_fpr": MAX_FPR, "min_tpr": MIN_TPR}),
    "TPR at FPR 0.1": ("tpr_at_fpr", {"fpr": MAX_FPR}),
    "precision, top 5 %": ("precision_at", {"share": SHARE}),
    "average precision": ("average_precision", {}),
    "AUC within groups": ("grouped_auc", {}),
}
SIZES = ((10, 10), (10, 100), (10, 1000), (25, 250), (100, 100))
AUCS = (0.7, 0.8, 0.9, 0.95, 0.99)


class Coverage(NamedTuple):
    """What was counted for a metric and a number of positives.

    ``error_over_sd`` is the root mean square of the standard errors over the spread of the values.
    """

    metric: str
    positives: int
    truth: float
    coverage: float
    error_over_sd: float
    test_size: float


class AUCCoverage(NamedTuple):
    """What was counted for the AUC."""

    positives: int
    negatives: int
    auc: float
    coverage: float
    median_width: float


def truths(positives: int) -> dict[str, float]:
    """Return the metrics' values for infinitely many rows."""
    normal = NormalDist()
    t = np.linspace(-8, 8 + SHIFT, 4001)[::-1]
    fpr, tpr = (np.array([1 - normal.cdf(x - shift) for x in t]) for shift in (0, SHIFT))
    rates = np.linspace(0, MAX_FPR, 4001)
    heights = np.interp((rates[1:] + rates[:-1]) / 2, fpr, tpr)
    taken = positives * (tpr + NEGATIVES * fpr)
    room = SHARE * positives * (1 + NEGATIVES)
    precision = positives * (tpr[1:] + tpr[:-1]) / (taken[1:] + taken[:-1])
    values = (
        normal.cdf(SHIFT / math.sqrt(2)),
        MAX_FPR * heights.mean(),
        MAX_FPR * (heights - MIN_TPR).clip(min=0).mean(),
        np.interp(MAX_FPR, fpr, tpr),
        positives * np.interp(room, taken, tpr) / room,
        np.diff(tpr) @ precision,
        normal.cdf(SHIFT / math.sqrt(2 + SPREAD**2)),
    )
    return dict(zip(METRICS, map(float, values), strict=True))


def functions(metric: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a metric's interval and its paired test, with their numbers."""
    name, numbers = METRICS[metric]
    test = "delong_test" if name == "roc_auc" else f"{name}_test"
    interval = partial(getattr(metrics, f"{name}_interval"), **numbers)
    return interval, partial(getattr(metrics, test), **numbers)


def simulate(metric: str, positives: int, repetitions: int, seed: int) -> Coverage:
    """Draw data sets with a known truth; count intervals that hold it and tests that err."""
    interval, test = functions(metric)
    rng = np.random.default_rng([seed, positives])
    rows = positives * (1 + NEGATIVES)
    target = np.arange(rows) % (1 + NEGATIVES) == 0
    group = np.arange(rows) // (2 + 2 * NEGATIVES)
    grouped, truth = METRICS[metric][0] == "grouped_auc", truths(positives)[metric]
    more = (group,) if grouped else ()
    covered, values, errors, erred = 0, [], [], 0
    for _ in range(repetitions):
        shared, *own = rng.standard_normal((3, rows)) * math.sqrt(0.5)
        a, b = (shared + noise + SHIFT * target for noise in own)
        if grouped:
            offset, easier = rng.standard_normal((2, group[-1] + 1))
            ease = SPREAD * easier[group] * target
            a, b = a + offset[group] + ease, b + offset[group] + ease
        found = interval(a, target, *more)
        covered += found.low <= truth <= found.high
        erred += test(a, b, target, *more).p_value < 0.05
        values.append(found.value)
        errors.append(found.standard_error)
    ratio = math.sqrt(np.mean(np.square(errors))) / float(np.std(values))
    return Coverage(metric, positives, truth, covered / repetitions, ratio, erred / repetitions)


def simulate_auc(positives: int, negatives: int, auc: float, repetitions: int, seed: int) -> Any:
    """Draw data sets with a known AUC; count intervals that hold it."""
    rng = np.random.default_rng([seed, positives, negatives, round(1000 * auc)])
    target = np.arange(positives + negatives) < positives
    shift = math.sqrt(2) * NormalDist().inv_cdf(auc)
    intervals = [
        metrics.roc_auc_interval(rng.standard_normal(len(target)) + shift * target, target)
        for _ in range(repetitions)
    ]
    covered = sum(interval.low <= auc <= interval.high for interval in intervals)
    width = float(np.median([interval.high - interval.low for interval in intervals]))
    return AUCCoverage(positives, negatives, auc, covered / repetitions, width)


def main() -> None:
    """Simulate, print and save."""
    options = parser(__doc__)
    options.add_argument("--repetitions", type=int, default=2000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    count, seed = (2 if given.tiny else given.repetitions), given.seed
    results, rows = Results(given), []
    for title, found in (
        ("metrics", (simulate(m, p, count, seed) for m in METRICS for p in POSITIVES)),
        ("AUC", (simulate_auc(*size, auc, count, seed) for size in SIZES for auc in AUCS)),
    ):
        for row in found:
            values = row._asdict()
            print("  ".join(f"{name} {show(value)}" for name, value in values.items()), flush=True)
            rows.append({"title": title, "repetitions": count, "seed": seed, **values})
    results.add(rows=rows)


if __name__ == "__main__":
    main()
