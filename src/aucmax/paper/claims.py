"""The paper's claims, judged by the runs: differences seed by seed, their intervals, verdicts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from aucmax.paper.curves import auc_by_step, curve
from aucmax.paper.results import RunResult, number
from aucmax.paper.settings import LineKey
from aucmax.paper.style import positives_share
from aucmax.paper.summary import Row, by_setting, grouped, summarize
from aucmax.paper.verdicts import contest

JUDGED = ("paper", "strong")
"""The protocols under which claims are judged, each on its own."""
OWN_DATASETS = ("digits",)
"""Data sets that the paper does not have: no claim is judged by them."""
PPD = ("ppd-sg", "ppd-adagrad")
BASELINES = ("pga", "oauc")

HOLDS = "holds"
IN_PART = "holds in part"
NOT_HERE = "does not hold here"
NOT_MEASURED = "not measured here"
VERDICTS = (HOLDS, IN_PART, NOT_HERE, NOT_MEASURED)

RATE = "PPD-SG, stage average"
"""What ``examples/pl_rates.py`` calls the rate that the theory speaks of."""

LinePairs = Callable[[Sequence[Row]], list[tuple[Row, Row]]]
Gain = Callable[[RunResult, RunResult], float]


class Difference(NamedTuple):
    """Mean of ``n`` paired differences and its 95 % t interval; nan where there are too few."""

    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Difference:
        """Sum up the differences."""
        n = len(values)
        mean = statistics.fmean(values) if values else math.nan
        if n < 2:
            return cls(mean, math.nan, math.nan, n)
        half = float(stdtrit(n - 1, 0.975)) * statistics.stdev(values) / math.sqrt(n)
        return cls(mean, mean - half, mean + half, n)

    @property
    def is_above_zero(self) -> bool:
        """Whether the whole interval is; no if there is none."""
        return self.low > 0


@dataclass(frozen=True)
class Comparison:
    """Two lines under one protocol, on one data set, at one ratio.

    Attributes:
        line: the name of the line that the claim is for.
        rival: the name of the one that it is compared with.
        by_seed: by how much the line is above its rival.
        seeds: how many both lines were run with, diverged runs among them.
        steps: of each run.
    """

    protocol: str
    dataset: str
    ratio: str
    line: str
    rival: str
    by_seed: Mapping[int, float]
    seeds: int
    steps: int

    @property
    def difference(self) -> Difference:
        """Over the seeds of this setting."""
        return Difference.of(list(self.by_seed.values()))


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how it is measured.

    Attributes:
        quote: in the paper's words.
        place: in the paper.
        measured: what is compared, in a sentence.
        lines: the two lines to compare, in each setting that has both.
        gain: by how much a run is above its rival of the same seed; nan if one has diverged.
        figures: the experiments whose runs are compared.
        balanced: whether it is about ratios of 50/50 alone, or about others alone; None for all.
        datasets: those that it is about; none stands for all that the paper has.
        timed: whether runs must have been timed alone on their machine.
        existential: whether one setting is enough ("in certain cases").
        to_measure: commands for a reader who has the files, if that is all that is missing.
    """

    quote: str
    place: str
    measured: str
    lines: LinePairs
    gain: Gain
    figures: tuple[str, ...] = ("figure1", "figure3")
    balanced: bool | None = None
    datasets: tuple[str, ...] = ()
    timed: bool = False
    existential: bool = False
    to_measure: tuple[str, ...] = ()

    def is_about(self, run: RunResult) -> bool:
        """Whether a run can speak for or against it."""
        return (
            run.experiment in self.figures
            and run.protocol in JUDGED
            and run.dataset not in OWN_DATASETS
            and (not self.datasets or run.dataset in self.datasets)
            and self.balanced in (None, positives_share(run.ratio) == 0.5)
            and (not self.timed or (run.at_once == 1 and not math.isnan(run.seconds_per_step)))
        )

    def compare(self, runs: Iterable[RunResult]) -> list[Comparison]:
        """Its two lines in each setting that has both, in the order in which they are shown."""
        runs = [run for run in runs if self.is_about(run)]
        by_figure = ([run for run in runs if run.experiment == figure] for figure in self.figures)
        return [comparison for some in by_figure if some for comparison in self._compare(some)]

    def _compare(self, runs: Sequence[RunResult]) -> list[Comparison]:
        groups = grouped(runs)
        found = []
        for row, rival in self.lines(summarize(runs)):
            if row.steps != rival.steps:
                raise ValueError(
                    f"steps must be the same for lines that are compared, found {row.steps:,} of "
                    f"{row.line} and {rival.steps:,} of {rival.line} ({', '.join(row.setting)})"
                )
            ones, others = (
                {run.seed: run for run in groups[LineKey(*x.setting, x.line)]} for x in (row, rival)
            )
            gains = {seed: self.gain(ones[seed], others[seed]) for seed in ones if seed in others}
            known = {seed: gain for seed, gain in gains.items() if not math.isnan(gain)}
            names = row.label, rival.label
            found.append(Comparison(*row.setting, *names, known, len(gains), row.steps))
        return found


class Judgement(NamedTuple):
    """What the settings of a claim say together.

    Attributes:
        difference: over the pairs of all settings.
        settings: how many have a pair.
        above: in how many of them the mean difference is above zero.
        verdict: one of :data:`VERDICTS`.
    """

    difference: Difference
    settings: int
    above: int
    verdict: str


def judge(comparisons: Sequence[Comparison], existential: bool = False) -> Judgement:
    """The verdict on a claim under one protocol.

    Args:
        comparisons: one per setting.
        existential: whether one setting is enough for the claim to hold.
    """
    measured = [x.difference for x in comparisons if x.by_seed]
    difference = Difference.of([gain for x in comparisons for gain in x.by_seed.values()])
    above = sum(x.mean > 0 for x in measured)
    is_clear_somewhere = any(x.is_above_zero for x in measured)
    holds = (
        is_clear_somewhere
        if existential
        else difference.is_above_zero and 3 * above >= 2 * len(measured)
    )
    if not measured:
        verdict = NOT_MEASURED
    elif holds:
        verdict = HOLDS
    else:
        verdict = IN_PART if is_clear_somewhere or difference.mean > 0 else NOT_HERE
    return Judgement(difference, len(measured), above, verdict)


# ---- The theory ----------------------------------------------------------------------------------


class Rate(NamedTuple):
    """A slope of log gap against log iterations, its 95 % interval, and what it was measured on."""

    slope: float
    low: float
    high: float
    iterations: int
    runs: int

    @property
    def verdict(self) -> str:
        """It holds if the slope is -1 or steeper, as far as the interval can tell."""
        return HOLDS if self.low <= -1 else NOT_HERE


def parse_rate(content: Mapping[str, Any], where: str) -> Rate:
    """The rate of PPD-SG in what ``examples/pl_rates.py --json`` has written to ``where``."""
    rates = {rate.get("name"): rate for rate in content.get("rates", ())}
    if RATE not in rates:
        raise ValueError(f"{where} must have a rate of {RATE!r}, found {', '.join(rates) or None}")
    rate = rates[RATE]
    numbers = {name: number(rate.get(name), name) for name in ("slope", "low", "high")}
    if missing := [name for name, x in numbers.items() if math.isnan(x)]:
        raise ValueError(f"{missing[0]} must be a number, {where} has {rate.get(missing[0])!r}")
    return Rate(**numbers, iterations=rate["iterations"], runs=content["runs"])


# ---- Which lines are compared --------------------------------------------------------------------


def _cross_entropy_first(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    return [(plain, auc) for auc, plain in contest(rows)]


def _ppd_first(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The algorithms as the paper has them, without their variants."""
    return contest([row for row in rows if row.line in PPD + BASELINES], PPD, BASELINES)


def _two(line: str, rival: str) -> LinePairs:
    def lines(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
        groups = ({row.line: row for row in group} for group in by_setting(rows))
        return [(group[line], group[rival]) for group in groups if {line, rival} <= group.keys()]

    return lines


# ---- What is measured of them --------------------------------------------------------------------


def final_gain(run: RunResult, rival: RunResult) -> float:
    """Of the final test AUC, of the iterate that each line's curve shows."""
    one, other = (x.result.final[x.iterate] if x.result else math.nan for x in (run, rival))
    return one - other


def course_gain(run: RunResult, rival: RunResult) -> float:
    """Of the mean test AUC over the evaluations that both runs have."""
    if run.has_diverged or rival.has_diverged:
        return math.nan
    one, other = auc_by_step(run), auc_by_step(rival)
    steps = sorted(one.keys() & other.keys())
    if not steps:
        raise ValueError(
            f"lines must be evaluated at the same steps to be compared, {run.key} and {rival.key} "
            f"have no step in common"
        )
    return statistics.fmean(one[step] - other[step] for step in steps)


def course_gain_by_seconds(run: RunResult, rival: RunResult) -> float:
    """Of the mean test AUC over the seconds that both runs took, from evaluation to evaluation.

    It begins when both have been evaluated once and ends with the shorter run. Between evaluations
    curves are straight lines, whose mean is exact on a grid of both runs' evaluations.
    """
    if run.has_diverged or rival.has_diverged:
        return math.nan
    curves = [curve([x]) for x in (run, rival)]
    times = [x.x("seconds") for x in curves]
    if not all(map(len, times)):
        return math.nan
    first, last = max(x[0] for x in times), min(x[-1] for x in times)
    if last <= first:
        return math.nan
    grid = np.unique(np.clip(np.concatenate(times), first, last))
    one, other = (np.interp(grid, x, y.mean) for x, y in zip(times, curves, strict=True))
    gaps = one - other
    return float(((gaps[1:] + gaps[:-1]) / 2 * np.diff(grid)).sum() / (last - first))


CLAIMS = (
    Claim(
        quote="For imbalanced settings, AUC maximization based methods are more advantageous than "
        "SGD in most cases",
        place="Section 5",
        measured="Final test AUC: the AUC method, or variant of one, that validation data prefers, "
        "minus the cross-entropy line that it prefers.",
        lines=contest,
        gain=final_gain,
        balanced=False,
    ),
    Claim(
        quote="PPD-SG and PPD-AdaGrad are mostly better than other baseline algorithms",
        place="Section 5",
        measured="Final test AUC on imbalanced data: the better of PPD-SG and PPD-AdaGrad on "
        "validation data, minus the better of PGA and OAUC there. (Claim 1 is about SGD, the "
        "third baseline.)",
        lines=_ppd_first,
        gain=final_gain,
        balanced=False,
    ),
    Claim(
        quote="SGD performs consistently better than other methods on C2 and CIFAR10 data",
        place="Section 5, of balanced settings",
        measured="Final test AUC on balanced Cat & Dog (C2) and CIFAR-10: the cross-entropy line "
        "that validation data prefers, minus the AUC method that it prefers.",
        lines=_cross_entropy_first,
        gain=final_gain,
        balanced=True,
        datasets=("catdog", "cifar10"),
    ),
    Claim(
        quote="In certain cases, PPD-AdaGrad can be faster than PPD-SG",
        place="Section 5",
        measured="Mean test AUC over the course of training, by iteration: PPD-AdaGrad minus "
        "PPD-SG. One setting whose own interval is above zero is enough.",
        lines=_two("ppd-adagrad", "ppd-sg"),
        gain=course_gain,
        existential=True,
    ),
    Claim(
        quote="pretraining model helps the convergence of model and it can achieve the better "
        "performance in terms of AUC in most cases",
        place="Appendix, More Experiments",
        measured="Final test AUC after as many steps in all: SGD on cross-entropy, then PPD-SG, "
        "minus PPD-SG from the start.",
        lines=_two("ppd-sg-pretrained", "ppd-sg"),
        gain=final_gain,
        figures=("figure2",),
    ),
    Claim(
        quote="our algorithms converge faster than other baselines",
        place="Section 6; here by iterations",
        measured="Mean test AUC over the course of training, by iteration: the better of PPD-SG "
        "and PPD-AdaGrad on validation data, minus the better of PGA and OAUC there.",
        lines=_ppd_first,
        gain=course_gain,
    ),
    Claim(
        quote="PPD-Adagrad and PPD-SG converge faster than other baselines",
        place="Appendix, Additional Experiments; here by seconds",
        measured="The same by seconds, as long as both lines train, where each was timed alone on "
        "the machine.",
        lines=_ppd_first,
        gain=course_gain_by_seconds,
        timed=True,
        to_measure=("aucmax reproduce figure3 --dataset cifar10 --data DIR --time-alone",),
    ),
    Claim(
        quote="it [SGD] is worse than AUC optimization based methods on CIFAR100 and STL10",
        place="Section 5, of balanced settings",
        measured="Final test AUC on balanced CIFAR-100 and STL-10: the AUC method that validation "
        "data prefers, minus the cross-entropy line that it prefers.",
        lines=contest,
        gain=final_gain,
        balanced=True,
        datasets=("cifar100", "stl10"),
        to_measure=(
            "aucmax reproduce figure1 --dataset cifar100 --data DIR",
            "aucmax reproduce figure1 --dataset stl10 --data DIR",
        ),
    ),
)
"""Those that runs can judge, in the order in which they are shown; the theory's comes after."""
