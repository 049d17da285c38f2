"""The paper's claims, judged by the runs: differences seed by seed, their intervals, verdicts."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from aucmax.paper.curves import curve
from aucmax.paper.results import RunResult, number
from aucmax.paper.sentences import contest
from aucmax.paper.settings import LineKey
from aucmax.paper.style import AUC_METHODS, CROSS_ENTROPY, is_a, positives_share
from aucmax.paper.summary import Row, by_setting, grouped, summarize

JUDGED = ("paper", "strong")
"""The protocols under which claims are judged, each on its own."""
OWN_DATASETS = ("digits",)
"""Data sets that the paper does not have: no claim is judged by them."""
PPD = ("ppd-sg", "ppd-adagrad")
BASELINES = ("pga", "oauc", *CROSS_ENTROPY)
LONGEST_FIRST_STAGE = 2000
"""The end of the range in which the paper searches T0."""
ALPHA = 0.05
"""An interval misses its mean this often."""

HOLDS = "holds"
IN_PART = "holds in part"
NOT_HERE = "does not hold here"
NOT_MEASURED = "not measured here"
VERDICTS = (HOLDS, IN_PART, NOT_HERE, NOT_MEASURED)

RATE = "PPD-SG, stage average"
"""What ``examples/pl_rates.py`` calls the rate that the theory speaks of."""
RATE_OF_PGA = "PGA, stage drawn at random"
RATE_OF_LAST_PGA = "PGA, last stage average"
STEEP_ENOUGH = -0.9
"""1/epsilon is a slope of -1, which logarithms flatten."""


class Choice(NamedTuple):
    """What is compared of the lines, and which of them.

    Attributes:
        title: as the head of a table's column.
        kept: whether the weights count that validation kept of a run, not those at its end.
        variants: whether variants of AUC methods count under the paper's protocol, too.
    """

    title: str
    kept: bool = False
    variants: bool = False


AS_JUDGED = Choice("As judged")
OTHERWISE = (
    Choice("Weights that validation kept", kept=True),
    Choice("Variants count", variants=True),
    Choice("Both", kept=True, variants=True),
)
"""Choices that could have been made for the verdicts, too."""

Needs = Literal["some", "most", "all"]
LinePairs = Callable[[Sequence[Row], Choice], list[tuple[Row, Row]]]
Gain = Callable[[RunResult, RunResult], float]


class Difference(NamedTuple):
    """Mean of ``n`` paired differences and its t interval, endless if there are too few."""

    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float], alpha: float = ALPHA) -> Difference:
        """Sum up the differences; the interval's level is 1 - ``alpha``."""
        n = len(values)
        mean = statistics.fmean(values) if values else math.nan
        if n < 2:
            return cls(mean, -math.inf, math.inf, n)
        half = float(stdtrit(n - 1, 1 - alpha / 2)) * statistics.stdev(values) / math.sqrt(n)
        return cls(mean, mean - half, mean + half, n)

    @property
    def is_above_zero(self) -> bool:
        """Whether the whole interval is."""
        return self.low > 0


@dataclass(frozen=True)
class Comparison:
    """Two lines under one protocol, on one data set, at one ratio.

    Attributes:
        line: the name of the line that the claim is for.
        rival: the name of the one that it is compared with.
        by_seed: by how much the line is above its rival.
        seeds: how many either line was run with, those that make no pair among them.
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

    def difference(self, alpha: float = ALPHA) -> Difference:
        """Over the seeds of this setting."""
        return Difference.of(list(self.by_seed.values()), alpha)


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
        needs: in how many settings it must be so: "some" for "in certain cases", "all" for
            "consistently".
        to_measure: commands for a reader who has the files, if that is all that is missing.
    """

    quote: str
    place: str
    measured: str
    lines: LinePairs
    gain: Gain
    figures: tuple[str, ...] = ("figure1", "figure1-long", "figure3")
    balanced: bool | None = None
    datasets: tuple[str, ...] = ()
    timed: bool = False
    needs: Needs = "most"
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

    def compare(self, runs: Iterable[RunResult], choice: Choice = AS_JUDGED) -> list[Comparison]:
        """Its two lines in each setting that has both, in the order in which they are shown."""
        runs = [run for run in runs if self.is_about(run)]
        by_figure = ([run for run in runs if run.experiment == figure] for figure in self.figures)
        return [x for some in by_figure if some for x in self._compare(some, choice)]

    def _compare(self, runs: Sequence[RunResult], choice: Choice) -> list[Comparison]:
        groups = grouped(runs)
        gain = kept_gain if choice.kept and self.gain is final_gain else self.gain
        found = []
        for row, rival in self.lines(summarize(runs), choice):
            if row.steps != rival.steps:
                raise ValueError(
                    f"steps must be the same for lines that are compared, found {row.steps:,} of "
                    f"{row.line} and {rival.steps:,} of {rival.line} ({', '.join(row.setting)})"
                )
            ones, others = (
                {run.seed: run for run in groups[LineKey(*x.setting, x.line)]} for x in (row, rival)
            )
            gains = {seed: gain(ones[seed], others[seed]) for seed in ones if seed in others}
            known = {seed: gain for seed, gain in gains.items() if not math.isnan(gain)}
            names, seeds = (row.label, rival.label), len(ones.keys() | others.keys())
            found.append(Comparison(*row.setting, *names, known, seeds, row.steps))
        return found


class Judgement(NamedTuple):
    """What the settings of a claim say together.

    Attributes:
        verdict: one of :data:`VERDICTS`.
        settings: how many have a pair.
        above: in how many of them the mean difference is above zero.
        difference: over the seeds of each data set, or that of the setting that decides, at a level
            that allows for the number of settings.
        decided_by: the setting with the highest interval, for a claim that needs but one.
    """

    verdict: str
    settings: int = 0
    above: int = 0
    difference: Difference = Difference.of([])
    decided_by: Comparison | None = None


def judge(comparisons: Sequence[Comparison], needs: Needs = "most") -> Judgement:
    """The verdict on a claim under one protocol.

    Args:
        comparisons: one per setting.
        needs: in how many settings it must be so.
    """
    measured = [x for x in comparisons if x.by_seed]
    if not measured:
        return Judgement(NOT_MEASURED)
    own, count = [x.difference() for x in measured], len(measured)
    above = sum(x.mean > 0 for x in own)
    difference, decided_by = _pooled(measured), None
    is_clear = difference.is_above_zero or any(x.is_above_zero for x in own)
    is_enough = 3 * above >= (3 if needs == "all" else 2) * count
    if needs == "some":
        decided_by = max(measured, key=lambda x: x.difference(ALPHA / count).low)
        difference, is_enough = decided_by.difference(ALPHA / count), True
    verdict = IN_PART if is_clear else NOT_HERE
    if difference.is_above_zero and is_enough:
        verdict = HOLDS
    return Judgement(verdict, count, above, difference, decided_by)


def _pooled(comparisons: Iterable[Comparison]) -> Difference:
    """Over the seeds of each data set, whose ratios share weights, split and images: their mean."""
    units: dict[tuple[str, int], list[float]] = defaultdict(list)
    for x in comparisons:
        for seed, gain in x.by_seed.items():
            units[x.dataset, seed].append(gain)
    return Difference.of(list(map(statistics.fmean, units.values())))


def long_first_stages(runs: Iterable[RunResult]) -> dict[str, int]:
    """The lines whose first stage is longer than the paper's longest, under its own protocol.

    Returns:
        The longest of each, in steps.
    """
    found: dict[str, int] = {}
    for run in runs:
        wanted = run.configuration.get("first_stage", 0)
        first = math.ceil(wanted if wanted >= 1 else wanted * run.steps)
        is_judged = run.protocol == "paper" and any(claim.is_about(run) for claim in CLAIMS)
        if is_judged and run.line in AUC_METHODS and first > LONGEST_FIRST_STAGE:
            found[run.label] = max(first, found.get(run.label, 0))
    return found


# ---- The theory ----------------------------------------------------------------------------------


class Rate(NamedTuple):
    """A slope of log gap against log iterations, its 95 % interval, and what it was measured on.

    Attributes:
        pga: the slope of what PGA returns; nan if it is not known, like the next.
        last_pga: that of the average of PGA's last stage.
    """

    slope: float
    low: float
    high: float
    iterations: int
    runs: int
    pga: float = math.nan
    last_pga: float = math.nan

    @property
    def verdict(self) -> str:
        """It holds if the whole interval is steep enough; a wide one is no help."""
        return HOLDS if self.high < STEEP_ENOUGH else NOT_HERE


def parse_rate(content: Mapping[str, Any], where: str) -> Rate:
    """The rate of PPD-SG in what ``examples/pl_rates.py --json`` has written to ``where``."""
    rates = {rate.get("name"): rate for rate in content.get("rates", ())}
    if RATE not in rates:
        raise ValueError(f"{where} must have a rate of {RATE!r}, found {', '.join(rates) or None}")
    rate = rates[RATE]
    numbers = {name: number(rate.get(name), name) for name in ("slope", "low", "high")}
    if missing := [name for name, x in numbers.items() if math.isnan(x)]:
        raise ValueError(f"{missing[0]} must be a number, {where} has {rate.get(missing[0])!r}")
    for name, other in (("pga", RATE_OF_PGA), ("last_pga", RATE_OF_LAST_PGA)):
        numbers[name] = number(rates.get(other, {}).get("slope"), "slope")
    return Rate(**numbers, iterations=rate["iterations"], runs=content["runs"])


# ---- Which lines are compared --------------------------------------------------------------------


def _best_of(names: tuple[str, ...], rivals: tuple[str, ...]) -> LinePairs:
    """Of each side the line that validation prefers."""

    def lines(rows: Sequence[Row], choice: Choice) -> list[tuple[Row, Row]]:
        judged = [row for row in rows if choice.variants or _is_judged(row)]
        return contest(judged, names, rivals, by="valid" if choice.kept else "final_valid")

    return lines


def _is_judged(row: Row) -> bool:
    """Not if it is a variant of an AUC method under the paper's protocol, which has none."""
    is_variant = is_a(row.line, AUC_METHODS) and row.line not in AUC_METHODS
    return row.protocol != "paper" or not is_variant


def _two(line: str, rival: str) -> LinePairs:
    def lines(rows: Sequence[Row], _: Choice) -> list[tuple[Row, Row]]:
        groups = ({row.line: row for row in group} for group in by_setting(rows))
        return [(group[line], group[rival]) for group in groups if {line, rival} <= group.keys()]

    return lines


# ---- What is measured of them --------------------------------------------------------------------


def final_gain(run: RunResult, rival: RunResult) -> float:
    """Of the final test AUC, of the iterate that each line's curve shows."""
    one, other = (x.result.final[x.iterate] if x.result else math.nan for x in (run, rival))
    return one - other


def kept_gain(run: RunResult, rival: RunResult) -> float:
    """Of the test AUC of the weights that validation data kept."""
    kept = [x.result.chosen if x.result else None for x in (run, rival)]
    one, other = (math.nan if x is None else x.test_auc for x in kept)
    return one - other


def course_gain(run: RunResult, rival: RunResult, by: str = "step") -> float:
    """Of the mean test AUC over the steps, or seconds, that both runs took.

    It begins when both have been evaluated once and ends with the shorter run. Between evaluations
    curves are straight lines, whose mean is exact on a grid of both runs' evaluations.
    """
    curves = [curve([x]) for x in (run, rival)]
    places = [x.x(by) for x in curves]
    if not all(map(len, places)):
        return math.nan
    first, last = max(x[0] for x in places), min(x[-1] for x in places)
    if last <= first:
        return math.nan
    grid = np.unique(np.clip(np.concatenate(places), first, last))
    one, other = (np.interp(grid, x, y.mean) for x, y in zip(places, curves, strict=True))
    gaps = one - other
    return float(((gaps[1:] + gaps[:-1]) / 2 * np.diff(grid)).sum() / (last - first))


CLAIMS = (
    Claim(
        quote="For imbalanced settings, AUC maximization based methods are more advantageous than "
        "SGD in most cases",
        place="Section 5",
        measured="Final test AUC on imbalanced data: the AUC method that validation data prefers, "
        "minus the cross-entropy line that it prefers.",
        lines=_best_of(AUC_METHODS, CROSS_ENTROPY),
        gain=final_gain,
        balanced=False,
    ),
    Claim(
        quote="PPD-SG and PPD-AdaGrad are mostly better than other baseline algorithms",
        place="Section 5",
        measured="Final test AUC on imbalanced data: the better of PPD-SG and PPD-AdaGrad on "
        "validation data, minus the best baseline there: PGA, OAUC, or SGD or AdaGrad on "
        "cross-entropy.",
        lines=_best_of(PPD, BASELINES),
        gain=final_gain,
        balanced=False,
    ),
    Claim(
        quote="SGD performs consistently better than other methods on C2 and CIFAR10 data",
        place="Section 5, of balanced settings",
        measured="Final test AUC on balanced Cat & Dog (C2) and CIFAR-10: the cross-entropy line "
        "that validation data prefers, minus the AUC method that it prefers; in all settings, as "
        "it says consistently.",
        lines=_best_of(CROSS_ENTROPY, AUC_METHODS),
        gain=final_gain,
        balanced=True,
        datasets=("catdog", "cifar10"),
        needs="all",
        to_measure=(
            "aucmax reproduce figure1 --dataset catdog --data DIR --removed 0",
            "aucmax reproduce figure1 --dataset cifar10 --data DIR --removed 0",
        ),
    ),
    Claim(
        quote="In certain cases, PPD-AdaGrad can be faster than PPD-SG",
        place="Section 5",
        measured="Mean test AUC over the course of training, by iteration: PPD-AdaGrad minus "
        "PPD-SG. One setting is enough; shown is the one with the highest interval, at a level "
        "that allows for the number of settings (Bonferroni).",
        lines=_two("ppd-adagrad", "ppd-sg"),
        gain=course_gain,
        needs="some",
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
        to_measure=(
            "aucmax reproduce figure2 --dataset catdog --data DIR",
            "aucmax reproduce figure2 --dataset cifar10 --data DIR",
        ),
    ),
    Claim(
        quote="our algorithms converge faster than other baselines",
        place="Section 6; here by iterations",
        measured="Mean test AUC over the course of training, by iteration: the better of PPD-SG "
        "and PPD-AdaGrad on validation data, minus the best baseline there, as in claim 2.",
        lines=_best_of(PPD, BASELINES),
        gain=course_gain,
    ),
    Claim(
        quote="PPD-Adagrad and PPD-SG converge faster than other baselines",
        place="Appendix, Additional Experiments; here by seconds",
        measured="The same by seconds, as long as both lines train, where each was timed alone on "
        "the machine.",
        lines=_best_of(PPD, BASELINES),
        gain=partial(course_gain, by="seconds"),
        timed=True,
        to_measure=("aucmax reproduce figure3 --dataset cifar10 --data DIR --time-alone",),
    ),
    Claim(
        quote="it [SGD] is worse than AUC optimization based methods on CIFAR100 and STL10",
        place="Section 5, of balanced settings",
        measured="Final test AUC on balanced CIFAR-100 and STL-10: the AUC method that validation "
        "data prefers, minus the cross-entropy line that it prefers.",
        lines=_best_of(AUC_METHODS, CROSS_ENTROPY),
        gain=final_gain,
        balanced=True,
        datasets=("cifar100", "stl10"),
        to_measure=(
            "aucmax reproduce figure1 --dataset cifar100 --data DIR --removed 0",
            "aucmax reproduce figure1 --dataset stl10 --data DIR --removed 0",
        ),
    ),
)
"""Those that runs can judge, in the order in which they are shown; the theory's comes after."""
