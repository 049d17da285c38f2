"""How often do 95 % intervals hold the truth, and how often do tests at 5 % err?

    python benchmarks/metric_coverage.py

Scores are normal with variance one in both classes. Two models share half of their noise. Rows are
independent, or drawn in clusters of one label ("patients": half of the variance is the cluster's)
or of both ("sites": a tenth is), two positives each. The AUC within groups is of groups with two
positives and an offset of their own, which differ in how easy they are. For the AUC alone, more
class sizes and true values are drawn.
"""

from __future__ import annotations

import math
import warnings
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from _timing import Results, parser, show
from numpy.typing import NDArray

from aucmax import metrics

POSITIVES = (10, 30, 100, 1000)
NEGATIVES = 10  # to a positive
PER_CLUSTER = 2  # positives
SHIFT = math.sqrt(2) * NormalDist().inv_cdf(0.9)
SPREAD = 0.5  # of the shift over groups
DESIGNS = {"rows": 0.0, "patients": 0.5, "sites": 0.1}  # the share of variance of a cluster
GROUPED = "AUC within groups"
METRICS = {
    "AUC": "roc_auc",
    "partial AUC, FPR <= 0.1": "partial_auc@0.1",
    "and TPR >= 0.3": "partial_auc@0.1,0.3",
    "TPR at FPR 0.1": "tpr_at_fpr@0.1",
    "precision, top 5 %": "precision_at@0.05",
    "average precision": "average_precision",
    GROUPED: "grouped_auc",
    "Hand and Till's M": "hand_till",
}
MAX_FPR, MIN_TPR, SHARE = 0.1, 0.3, 0.05
SIZES = ((10, 10), (10, 100), (10, 1000), (25, 250), (100, 100))
AUCS = (0.7, 0.8, 0.9, 0.95, 0.99)


class Coverage(NamedTuple):
    """What was counted for a metric and a number of positives.

    ``error_over_sd`` is the root mean square of the standard errors over the spread of the values.
    """

    metric: str
    design: str
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
    auc = normal.cdf(SHIFT / math.sqrt(2))
    values = (
        auc,
        MAX_FPR * heights.mean(),
        MAX_FPR * (heights - MIN_TPR).clip(min=0).mean(),
        np.interp(MAX_FPR, fpr, tpr),
        positives * np.interp(room, taken, tpr) / room,
        np.diff(tpr) @ precision,
        normal.cdf(SHIFT / math.sqrt(2 + SPREAD**2)),
        auc,
    )
    return dict(zip(METRICS, map(float, values), strict=True))


def draw(
    design: str, positives: int, rng: np.random.Generator
) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_], NDArray[np.int64]]:
    """Return the scores of two models, labels and clusters."""
    rows = positives * (1 + NEGATIVES)
    if design == "patients":
        target = np.arange(rows) < positives
        cluster = np.arange(rows) // PER_CLUSTER
    else:
        target = np.arange(rows) % (1 + NEGATIVES) == 0
        cluster = np.arange(rows) // (PER_CLUSTER * (1 + NEGATIVES))
    part = DESIGNS[design]
    shared, *own = (
        math.sqrt(part) * rng.standard_normal(cluster[-1] + 1)[cluster]
        + math.sqrt(1 - part) * rng.standard_normal(rows)
        for _ in range(3)
    )
    return [math.sqrt(0.5) * (shared + noise) + SHIFT * target for noise in own], target, cluster


def simulate(metric: str, design: str, positives: int, repetitions: int, seed: int) -> Coverage:
    """Draw data sets with a known truth; count intervals that hold it and tests that err."""
    rng = np.random.default_rng([seed, positives, list(DESIGNS).index(design)])
    truth, name = truths(positives)[metric], METRICS[metric]
    covered, values, errors, erred = 0, [], [], 0
    for _ in range(repetitions):
        (a, b), target, cluster = draw(design, positives, rng)
        options: dict[str, Any] = {} if design == "rows" else {"groups": cluster}
        if metric == GROUPED:
            group = np.arange(len(a)) // (PER_CLUSTER * (1 + NEGATIVES))
            offset, easier = rng.standard_normal((2, group[-1] + 1))
            ease = SPREAD * easier[group] * target
            a, b = a + offset[group] + ease, b + offset[group] + ease
            options = {"rank_within": group}
        if name == "hand_till":
            a, b = (np.stack([-x, x], axis=1) for x in (a, b))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of clusters with both labels
            found = metrics.interval(a, target, name, **options)
            test = metrics.compare(a, b, target, name, **options)
        covered += found.low <= truth <= found.high
        erred += test.p_value < 0.05
        values.append(found.value)
        errors.append(found.standard_error)
    ratio = math.sqrt(np.mean(np.square(errors))) / (float(np.std(values)) or math.nan)
    counts = covered / repetitions, ratio, erred / repetitions
    return Coverage(metric, design, positives, truth, *counts)


def simulate_auc(positives: int, negatives: int, auc: float, repetitions: int, seed: int) -> Any:
    """Draw data sets with a known AUC; count intervals that hold it."""
    rng = np.random.default_rng([seed, positives, negatives, round(1000 * auc)])
    target = np.arange(positives + negatives) < positives
    shift = math.sqrt(2) * NormalDist().inv_cdf(auc)
    intervals = [
        metrics.interval(rng.standard_normal(len(target)) + shift * target, target)
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
    options.add_argument("--positives", type=int, nargs="+", default=POSITIVES)
    given = options.parse_args()
    count, seed = (2 if given.tiny else given.repetitions), given.seed
    results, rows = Results(given), []
    of_metrics = (
        simulate(metric, design, positives, count, seed)
        for metric in METRICS
        for design in (["rows"] if metric == GROUPED else DESIGNS)
        for positives in given.positives
    )
    of_auc = (simulate_auc(*size, auc, count, seed) for size in SIZES for auc in AUCS)
    for title, found in (("metrics", of_metrics), ("AUC", of_auc)):
        for row in found:
            values = row._asdict()
            print("  ".join(f"{name} {show(value)}" for name, value in values.items()), flush=True)
            rows.append({"title": title, "repetitions": count, "seed": seed, **values})
    results.add(rows=rows)


if __name__ == "__main__":
    main()
