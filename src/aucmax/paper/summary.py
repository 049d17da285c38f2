"""Results grouped by what they share, summed up as means and spreads."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from aucmax.paper.results import Reached, RunResult, number
from aucmax.paper.settings import LineKey
from aucmax.paper.style import PROTOCOLS, in_order, positives_share
from aucmax.train.metrics import ROC_AUC


@dataclass(frozen=True)
class Stat:
    """Mean and standard deviation (n - 1) of ``n`` numbers; nan where there are too few."""

    mean: float
    sd: float
    n: int
    by_seed: Mapping[int, float] = field(repr=False)

    @classmethod
    def of(cls, by_seed: Mapping[int, float]) -> Stat:
        """Sum up those that are not nan."""
        known = {seed: x for seed, x in by_seed.items() if not math.isnan(x)}
        values = list(known.values())
        mean = statistics.fmean(values) if values else math.nan
        sd = statistics.stdev(values) if len(values) > 1 else math.nan
        return cls(mean, sd, len(values), known)

    def over(self, seeds: Collection[int]) -> float:
        """The mean over some of its seeds, over all if none are named."""
        return statistics.fmean(self.by_seed[seed] for seed in seeds) if seeds else self.mean

    def minus(self, other: Stat) -> float:
        """By how much its mean is above another, over the seeds that both have if there are any."""
        seeds = self.by_seed.keys() & other.by_seed.keys()
        return self.over(seeds) - other.over(seeds)

    def is_near(self, best: Stat) -> bool:
        """Whether it is within one standard error of the difference; no if that is unknown.

        Lines share each seed's data, so the error is that of the differences seed by seed.
        """
        seeds = self.by_seed.keys() & best.by_seed.keys()
        if len(seeds) < 2:
            return False
        gaps = [best.by_seed[seed] - self.by_seed[seed] for seed in seeds]
        return statistics.fmean(gaps) <= statistics.stdev(gaps) / math.sqrt(len(gaps))


@dataclass(frozen=True)
class Row:
    """The seeds of one line under one protocol, on one dataset, at one ratio.

    Attributes:
        label: the line's name as it is shown.
        steps: of each run.
        seeds: how many runs there are, diverged ones among them.
        diverged: how many of them diverged; these count in no mean.
        iterate: "last" or "average", the one that the curve shows.
        last: final test AUC of the last iterate.
        average: final test AUC of the average.
        chosen: test AUC of the weights that did best on validation data.
        valid: their validation AUC.
        final_valid: final validation AUC of the iterate that the curve shows.
    """

    protocol: str
    dataset: str
    ratio: str
    line: str
    label: str
    steps: int
    seeds: int
    diverged: int
    iterate: str
    last: Stat
    average: Stat
    chosen: Stat
    valid: Stat
    final_valid: Stat

    @property
    def setting(self) -> tuple[str, str, str]:
        """What rows must share to be compared."""
        return self.protocol, self.dataset, self.ratio

    @property
    def shown(self) -> Stat:
        """The final test AUC of the iterate that the curve shows."""
        return self.last if self.iterate == "last" else self.average


def summarize(runs: Sequence[RunResult]) -> list[Row]:
    """A row per protocol, dataset, ratio and line, in the order in which they are shown.

    Args:
        runs: results of one experiment; the seeds of a row must have been run for as many steps.
    """
    names = labels(runs)
    return [_row(key, group, names[key.line]) for key, group in grouped(runs).items()]


def grouped(runs: Sequence[RunResult]) -> dict[LineKey, list[RunResult]]:
    """The results of each row, sorted by seed; what does not fit together is refused."""
    if not runs:
        raise ValueError("runs must hold at least one result, found none")
    experiments = sorted({run.experiment for run in runs})
    if len(experiments) > 1:
        raise ValueError(f"runs must be of one experiment, found {', '.join(experiments)}")
    groups: dict[LineKey, list[RunResult]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        groups.setdefault(run.key, []).append(run)
    for key, group in groups.items():
        _check_alike(key, group)
    # Known protocols and lines in their order; ratios from few positives to many.
    protocols = list(dict.fromkeys([*PROTOCOLS, *(run.protocol for run in runs)]))
    datasets = list(dict.fromkeys(run.dataset for run in runs))
    lines = in_order(run.line for run in runs)

    def place(key: LineKey) -> tuple[int, int, float, str, int]:
        where = protocols.index(key.protocol), datasets.index(key.dataset)
        return *where, positives_share(key.ratio), key.ratio, lines.index(key.line)

    return {key: groups[key] for key in sorted(groups, key=place)}


def _check_alike(key: LineKey, group: list[RunResult]) -> None:
    """A mean over seeds makes sense of different seeds that were run alike."""
    for name in ("steps", "iterate"):
        values = list(dict.fromkeys(str(getattr(run, name)) for run in group))
        if len(values) > 1:
            raise ValueError(
                f"{name} must be the same for all seeds of {key}, found {', '.join(values)}"
            )
    seeds = [run.seed for run in group]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise ValueError(f"each seed of {key} must be there once, found more of {twice}")


def _row(key: LineKey, group: list[RunResult], label: str) -> Row:
    reached = {run.seed: run.result for run in group if run.result is not None}

    def stat(value: Callable[[Reached], float]) -> Stat:
        return Stat.of({seed: value(x) for seed, x in reached.items()})

    return Row(
        *key,
        label=label,
        steps=group[0].steps,
        seeds=len(group),
        diverged=len(group) - len(reached),
        iterate=group[0].iterate,
        last=stat(lambda x: x.final["last"]),
        average=stat(lambda x: x.final["average"]),
        chosen=stat(lambda x: x.chosen.test_auc if x.chosen else math.nan),
        valid=stat(lambda x: x.chosen.valid_auc if x.chosen else math.nan),
        final_valid=Stat.of({run.seed: _final_valid(run) for run in group if run.seed in reached}),
    )


def _final_valid(run: RunResult) -> float:
    key = ROC_AUC.history_key("valid", run.iterate)
    return number(run.history[-1].get(key) if run.history else None, key)


def by_setting(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that follow each other, as far as they can be compared."""
    return [list(group) for _, group in groupby(rows, key=lambda row: row.setting)]


def labels(runs: Sequence[RunResult]) -> dict[str, str]:
    """What each line is called; two lines of one name get their keys behind it."""
    first = {run.line: run.label for run in reversed(runs)}
    names = list(first.values())
    return {
        line: name if names.count(name) == 1 else f"{name} ({line})" for line, name in first.items()
    }


def timed_alike(runs: Sequence[RunResult]) -> list[RunResult]:
    """Of each protocol, dataset and ratio the runs whose times can be compared.

    A step takes longer where runs share the machine: if some lines were timed alone on it, only
    these are left.
    """
    alone = [run for run in runs if run.at_once == 1]
    settings = {run.key.setting for run in alone}
    return alone + [run for run in runs if run.key.setting not in settings]
