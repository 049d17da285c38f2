"""What came of a regime: ranking objectives against likelihoods, paired and with intervals."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scipy import stats

from aucmax.history import Record
from aucmax.study.experiment import best_runs, read_records
from aucmax.study.settings import Regime, Setting, made, plan
from aucmax.train.metrics import find_metric

LEVEL = 0.95
AUTO = "auto"


class Difference(NamedTuple):
    """A mean difference, its interval, and the p-value of there being none."""

    mean: float
    low: float
    high: float
    p: float


class Comparison(NamedTuple):
    """In one setting: two lines that validation rows chose, and how much better the first is.

    Attributes:
        setting: where.
        ours: the ranking objective.
        theirs: the likelihood.
        seeds: how many there are pairs of.
        difference: of the metric on test rows.
        verdict: "ahead", "behind" or "level", corrected for the number of settings.
    """

    setting: Setting
    ours: str
    theirs: str
    seeds: int
    difference: Difference
    verdict: str


class Recommendation(NamedTuple):
    """Of one model: the lines that are best where lines are chosen, compared on other data.

    Attributes:
        model: whose lines they are.
        ours: the ranking objective.
        theirs: the likelihood.
        difference: the mean over confirming data sets.
        ahead: on how many of them ours is.
        datasets: how many there are.
        strongest: the likelihood that is best on the confirming data sets, looked for afterwards.
        from_strongest: the mean difference from that one.
    """

    model: str
    ours: str
    theirs: str
    difference: Difference
    ahead: int
    datasets: int
    strongest: str
    from_strongest: Difference


class Auto(NamedTuple):
    """Of one model: what ``objective="auto"`` comes to beside the best line of all.

    Attributes:
        model: whose lines it chooses from.
        best: the line with the highest mean over data sets, test rows looked at.
        difference: the mean over data sets of what is chosen minus that line.
        datasets: how many there are.
        chosen: how often it chose each line.
    """

    model: str
    best: str
    difference: Difference
    datasets: int
    chosen: dict[str, int]


class Values(NamedTuple):
    """Of a line in a setting, by seed: the metric on validation rows and on test rows.

    ``judged`` has every metric on test rows, by its name.
    """

    valid: dict[int, float]
    test: dict[int, float]
    judged: dict[str, dict[int, float]]


class Aim(NamedTuple):
    """What the plan hoped for, and what came out.

    Attributes:
        title: what was hoped for.
        verdict: "confirmed", "refuted" or "open".
        difference: the mean over data sets.
        ahead: in how many settings the mean is above zero.
        settings: how many there are.
        worst: the lowest mean of a setting.
    """

    title: str
    verdict: str
    difference: Difference
    ahead: int
    settings: int
    worst: float


class Results:
    """The runs of a regime that are compared.

    Args:
        regime: what was run.
        folder: of the regime.
    """

    def __init__(self, regime: Regime, folder: Path) -> None:
        self.regime = regime
        self.records: list[Record] = []
        self.trials = 0
        self.values: dict[Setting, dict[str, Values]] = {}
        self._test_rows_per_other: dict[Setting, float] = {}
        for dataset in regime.datasets:
            done = read_records(folder / f"{dataset}.jsonl")
            runs = {run.key: run for run in best_runs(regime, dataset, done)}
            trials = {run.key for run in regime.trials(dataset)}
            if (runs.keys() | trials) - done.keys():
                continue  # not all is there yet: lines would be compared that had fewer trials
            self.trials += len(trials)
            self.records += [done[key] for key in runs]
            for key, run in runs.items():
                counts = {part: sum(x) for part, x in done[key]["counts"].items()}
                ratio = counts["test"] / (counts["train"] + counts["valid"])
                self._test_rows_per_other.setdefault(run.setting, ratio)
                lines = self.values.setdefault(run.setting, {})
                values = lines.setdefault(run.line, Values({}, {}, {}))
                valid, test = done[key]["valid"], done[key]["test"][regime.metric]
                if valid is not None and test is not None:
                    values.valid[run.seed] = valid
                    values.test[run.seed] = test / most(regime.metric)
                    for metric, value in done[key]["test"].items():
                        values.judged.setdefault(metric, {})[run.seed] = value / most(metric)

    @property
    def datasets(self) -> list[str]:
        """Those that are done."""
        return list(dict.fromkeys(setting.dataset for setting in self.values))

    def ranks(self, model: str, line: str) -> bool:
        """Whether a line is a ranking objective, not a likelihood."""
        return bool(self.regime.lines[model][line].get("ranks"))

    def title(self, model: str, line: str) -> str:
        """Of a line."""
        return str(self.regime.lines[model][line]["title"])

    def comparisons(
        self, metric: str | None = None, ours: str | None = None, theirs: str | None = None
    ) -> list[Comparison]:
        """One for each setting, by lines that are named or that validation rows prefer there.

        The metric is that of the regime unless another is named.
        """
        found = []
        for setting, lines in self.values.items():
            if any(line is not None and line not in lines for line in (ours, theirs)):
                continue
            one, other = (
                line or _best(lines, self._of_kind(setting.model, lines, ranks))
                for line, ranks in ((ours, True), (theirs, False))
            )
            pairs = _pairs(*(_judged(lines[x], metric) for x in (one, other)))
            difference = resampled(pairs, self._test_rows_per_other[setting])
            found.append(Comparison(setting, one, other, len(pairs), difference, "level"))
        corrected = holm([x.difference.p for x in found])
        return [
            x._replace(verdict=_verdict(x.difference.mean, p))
            for x, p in zip(found, corrected, strict=True)
        ]

    def recommendations(self) -> list[Recommendation]:
        """For each model, from the data sets for choosing to those for confirming."""
        return [x for model in self.regime.models if (x := self._recommend(model)) is not None]

    def _recommend(self, model: str) -> Recommendation | None:
        own = {setting: x for setting, x in self.values.items() if setting.model == model}
        choosing = [x for s, x in own.items() if s.dataset in plan()["data"]["choosing"]]
        if not choosing:
            return None
        means = {
            line: statistics.fmean(_mean(x[line].test) for x in choosing)
            for line in choosing[0]
            if all(line in x and x[line].test for x in choosing)  # it diverged nowhere
        }
        ours, theirs = (
            max(self._of_kind(model, means, ranks), key=means.__getitem__)
            for ranks in (True, False)
        )
        others = {
            line: differences
            for line in self._of_kind(model, self.regime.lines[model], False)
            if (differences := self._confirmed(own, ours, line))
        }
        if theirs not in others:
            return None
        # Ours is the same beside all of them: the strongest is the one that leaves it the least.
        strongest = min(others, key=lambda line: _mean_of(others[line]))
        return Recommendation(
            model, ours, theirs, over_datasets(others[theirs]),
            sum(x > 0 for x in others[theirs]), len(others[theirs]),
            strongest, over_datasets(others[strongest]),
        )  # fmt: skip

    def _confirmed(
        self, own: Mapping[Setting, Mapping[str, Values]], ours: str, theirs: str
    ) -> list[float]:
        """Of each confirming data set the mean difference of two lines."""
        by_dataset: dict[str, list[float]] = {}
        for setting, lines in own.items():
            pairs = _pairs(*(lines[x].test if x in lines else {} for x in (ours, theirs)))
            if setting.dataset in plan()["data"]["confirming"] and pairs:
                by_dataset.setdefault(setting.dataset, []).append(_mean_of(pairs))
        return [_mean_of(x) for x in by_dataset.values()]

    def aims(self) -> list[Aim]:
        """What the plan says was hoped for, each with what came out; simulations count in none."""
        return [x for about in self.regime.aims if (x := self._aim(about)) is not None]

    def _aim(self, about: Mapping[str, Any]) -> Aim | None:
        lines = (about.get(name) for name in ("metric", "ours", "theirs"))
        found = [
            x
            for x in self.comparisons(*lines)
            if x.setting.dataset not in made()
            and x.seeds
            and about.get("model") in (None, x.setting.model)
            and about.get("condition") in (None, x.setting.condition)
        ]
        if not found:
            return None
        mean = mean_over_datasets(found)
        ahead = sum(x.difference.mean > 0 for x in found)
        worst = min(x.difference.mean for x in found)
        verdict = "confirmed"
        if "least" in about and not mean.low >= about["least"]:
            verdict = "refuted" if mean.high < about["least"] else "open"
        if ahead < about.get("share", 0) * len(found) or worst < about.get("worst", -math.inf):
            verdict = "refuted"
        return Aim(about["title"], verdict, mean, ahead, len(found), worst)

    def autos(self) -> list[Auto]:
        """For each model that has the lines that "auto" chooses from."""
        return [x for model in self.regime.models if (x := self._auto(model)) is not None]

    def _auto(self, model: str) -> Auto | None:
        """For every seed, of the lines to choose from the one that its validation rows prefer."""
        names = plan()["auto"][self.regime.metric]
        if not self.values or not set(names) <= self.regime.lines[model].keys():
            return None
        means: dict[str, dict[str, list[float]]] = {}  # by line and data set, those of settings
        chosen: Counter[str] = Counter()
        for setting, lines in self.values.items():
            if setting.model != model or setting.dataset in made():
                continue
            picked = _picked({name: lines[name] for name in names if name in lines})
            chosen.update(picked.values())
            test = {seed: lines[name].test[seed] for seed, name in picked.items()}
            for line, values in [*((k, x.test) for k, x in lines.items()), (AUTO, test)]:
                if len(values) == self.regime.seeds:
                    means.setdefault(line, {}).setdefault(setting.dataset, []).append(_mean(values))
        auto = {x: _mean_of(values) for x, values in means.pop(AUTO).items()}
        whole = {
            line: {x: _mean_of(values) for x, values in by_dataset.items()}
            for line, by_dataset in means.items()
            if by_dataset.keys() == auto.keys()
        }
        best = max(whole, key=lambda line: _mean(whole[line]))
        difference = over_datasets([auto[x] - whole[best][x] for x in auto])
        return Auto(model, best, difference, len(auto), dict(chosen.most_common()))

    def _of_kind(self, model: str, lines: Iterable[str], ranks: bool) -> list[str]:
        return [line for line in lines if self.ranks(model, line) == ranks]


def most(metric: str) -> float:
    """What the metric of a perfect ranking is: values on test rows are shares of it."""
    return float(find_metric(metric).range.get("max_fpr", 1.0))


def mean_over_datasets(comparisons: Iterable[Comparison]) -> Difference:
    """Of the means of the data sets' settings."""
    by_dataset: dict[str, list[float]] = {}
    for x in comparisons:
        if x.seeds:
            by_dataset.setdefault(x.setting.dataset, []).append(x.difference.mean)
    return over_datasets([_mean_of(values) for values in by_dataset.values()])


def over_datasets(differences: Sequence[float]) -> Difference:
    """Their mean, its t interval, and Wilcoxon's signed-rank test; nan counts nothing."""
    differences = [x for x in differences if not math.isnan(x)]
    mean = _mean_of(differences)
    if len(differences) < 2:
        return Difference(mean, math.nan, math.nan, math.nan)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    half = error * float(stats.t.ppf((1 + LEVEL) / 2, len(differences) - 1))
    p = float(stats.wilcoxon(differences).pvalue) if any(differences) else 1.0
    return Difference(mean, mean - half, mean + half, p)


def resampled(differences: Sequence[float], ratio: float) -> Difference:
    r"""The corrected resampled t test (Nadeau and Bengio, 2003), of splits of the same rows.

    Training rows of two splits overlap, so their differences vary together: with :math:`s^2` their
    variance and :math:`\rho` test rows per training row, that of the mean of n is taken to be
    :math:`(1/n + \rho) s^2`.

    Example:
        >>> [round(x, 4) for x in resampled([0.01, 0.02, 0.03], ratio=3 / 7)]
        [0.02, -0.0176, 0.0576, 0.149]
    """
    mean, n = _mean_of(differences), len(differences)
    if n < 2:
        return Difference(mean, math.nan, math.nan, math.nan)
    error = math.sqrt((1 / n + ratio) * statistics.variance(differences))
    if error == 0:
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    half = error * float(stats.t.ppf((1 + LEVEL) / 2, n - 1))
    p = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
    return Difference(mean, mean - half, mean + half, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected for their number (Holm, 1979).

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda k: (math.isnan(p_values[k]), p_values[k]))
    corrected, least = [math.nan] * len(p_values), 0.0
    for rank, k in enumerate(order):
        if not math.isnan(p_values[k]):
            least = max(least, min(1.0, (len(p_values) - rank) * p_values[k]))
            corrected[k] = least
    return corrected


def _verdict(mean: float, p: float) -> str:
    if not p < 1 - LEVEL:
        return "level"
    return "ahead" if mean > 0 else "behind"


def _best(lines: Mapping[str, Values], names: Sequence[str]) -> str:
    """The best mean on validation rows, of the lines that diverged for the fewest seeds."""
    return max(names, key=lambda name: (len(lines[name].valid), _mean(lines[name].valid)))


def _picked(lines: Mapping[str, Values]) -> dict[int, str]:
    """By seed the line whose value on the validation rows of that seed is the highest."""
    seeds = sorted({seed for values in lines.values() for seed in values.valid})
    return {
        seed: max(
            (name for name, values in lines.items() if seed in values.valid),
            key=lambda name: lines[name].valid[seed],
        )
        for seed in seeds
    }


def _judged(values: Values, metric: str | None) -> dict[int, float]:
    return values.test if metric is None else values.judged.get(metric, {})


def _pairs(one: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    return [one[seed] - other[seed] for seed in one if seed in other]


def _mean(values: Mapping[Any, float]) -> float:
    return _mean_of(list(values.values()))


def _mean_of(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan
