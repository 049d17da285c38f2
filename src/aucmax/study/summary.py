"""What came of a regime: ranking objectives against likelihoods, paired and with intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from aucmax.history import Record
from aucmax.study.differences import (
    LEVEL,
    Difference,
    holm,
    mean_of,
    over_datasets,
    reached,
    resampled,
    share_of,
)
from aucmax.study.experiment import best_runs, read_records
from aucmax.study.settings import Regime, Setting, made, plan
from aucmax.train.metrics import find_metric


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
    """Of one model: what ``objective="auto"`` comes to, worked out from the runs of its lines.

    Attributes:
        model: whose lines it chooses from.
        best: the line with the highest mean over data sets, test rows looked at.
        from_best: the mean over data sets of what is chosen minus that line.
        from_ce: the same minus cross-entropy.
        verdict: "confirmed", "refuted" or "open": not far behind the best.
        datasets: how many there are.
        chosen: how often it chose each line.
    """

    model: str
    best: str
    from_best: Difference
    from_ce: Difference
    verdict: str
    datasets: int
    chosen: dict[str, int]


class Beside(NamedTuple):
    """A line that stands beside those that are compared, and one of these.

    Attributes:
        model: whose lines they are.
        line: the one beside.
        other: one of these.
        is_best: whether that is the one with the highest mean, test rows looked at.
        difference: the mean over data sets of the line minus the other.
        ahead: on how many data sets the line is.
        datasets: how many there are.
        confirming: the mean over those that confirm.
        diverged: how many of the line's runs did; they make no pairs.
    """

    model: str
    line: str
    other: str
    is_best: bool
    difference: Difference
    ahead: int
    datasets: int
    confirming: Difference
    diverged: int


class Aim(NamedTuple):
    """What the plan hoped for, and what came out.

    Attributes:
        title: what was hoped for.
        verdict: "confirmed", "refuted" or "open".
        difference: the mean over data sets.
        ahead: on how many data sets the mean is above zero.
        datasets: how many there are.
        worst: the lowest mean of a setting.
    """

    title: str
    verdict: str
    difference: Difference
    ahead: int
    datasets: int
    worst: float


class Values(NamedTuple):
    """Of a line in a setting, by seed: the metric on validation rows and on test rows.

    ``judged`` has every metric on test rows, by its name.
    """

    valid: dict[int, float]
    test: dict[int, float]
    judged: dict[str, dict[int, float]]


class Results:
    """The runs of a regime that are compared: of settings that are done, all lines and seeds.

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
            trials = {run.key for run in regime.trials(dataset)}
            if trials - done.keys():
                continue  # lines would be compared that had fewer trials
            wanted = best_runs(regime, dataset, done)
            unfinished = {run.setting for run in wanted if run.key not in done}
            runs = {run.key: run for run in wanted if run.setting not in unfinished}
            if not runs:
                continue
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
                        if value is not None:
                            values.judged.setdefault(metric, {})[run.seed] = value / most(metric)

    @property
    def datasets(self) -> list[str]:
        """Those of which some settings are done."""
        return list(dict.fromkeys(setting.dataset for setting in self.values))

    @property
    def missing(self) -> list[Setting]:
        """The settings of which not every line and seed is done."""
        regime = self.regime
        each = product(regime.datasets, regime.conditions, regime.models)
        return [setting for x in each if (setting := Setting(*x)) not in self.values]

    def covers(self, others: Results) -> bool:
        """Whether all models are done where any of the others' are, and some are."""
        places = {(setting.dataset, setting.condition) for setting in others.values}
        lacking = {(setting.dataset, setting.condition) for setting in self.missing}
        return bool(places) and not places & lacking

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
            names = (
                self._of_kind(setting.model, lines, ranks) if line is None else [line]
                for line, ranks in ((ours, True), (theirs, False))
            )
            one, other = (_best(lines, [x for x in some if x in lines]) for some in names)
            if one is None or other is None:
                continue
            pairs = _pairs(*(_judged(lines[x], metric) for x in (one, other)))
            difference = resampled(pairs, self._test_rows_per_other[setting])
            found.append(Comparison(setting, one, other, len(pairs), difference, "level"))
        # For the number of all that are planned: more of them make no difference clear later.
        corrected = holm([x.difference.p for x in found] + [1.0] * len(self.missing))
        return [
            x._replace(verdict=_verdict(x.difference.mean, p))
            for x, p in zip(found, corrected, strict=False)
        ]

    def means(self, model: str) -> dict[str, dict[str, float]]:
        """By line and data set, that of all settings and seeds; simulations are left out.

        A line of which any run diverged is not there.
        """
        own = {
            setting: lines
            for setting, lines in self.values.items()
            if setting.model == model and setting.dataset not in made()
        }
        found = {}
        for line in self.regime.lines[model]:
            tests = {s: lines[line].test for s, lines in own.items() if line in lines}
            if tests and [*map(len, tests.values())] == [self.regime.seeds] * len(own):
                found[line] = _by_dataset({s: _mean(test) for s, test in tests.items()})
        return found

    def recommendations(self) -> list[Recommendation]:
        """For each model, from the data sets for choosing to those for confirming."""
        return [x for model in self.regime.models if (x := self._recommend(model)) is not None]

    def _recommend(self, model: str) -> Recommendation | None:
        means = self.means(model)
        ranking, likelihoods = (self._of_kind(model, means, ranks) for ranks in (True, False))
        known = next(iter(means.values()), {})
        choosing, confirming = (
            [x for x in known if x in plan()["data"][part]] for part in ("choosing", "confirming")
        )
        if not choosing or len(confirming) < 2 or not ranking or not likelihoods:
            return None

        def best(lines: Sequence[str], datasets: Sequence[str]) -> str:
            return max(lines, key=lambda line: mean_of([means[line][x] for x in datasets]))

        ours, theirs = best(ranking, choosing), best(likelihoods, choosing)
        strongest = best(likelihoods, confirming)
        gains, from_strongest = (
            [means[ours][x] - means[other][x] for x in confirming] for other in (theirs, strongest)
        )
        return Recommendation(
            model, ours, theirs, over_datasets(gains), sum(x > 0 for x in gains), len(gains),
            strongest, over_datasets(from_strongest),
        )  # fmt: skip

    def aims(self) -> list[Aim]:
        """What the plan says was hoped for, each with what came out; simulations count in none."""
        return [x for about in self.regime.aims if (x := self._aim(about)) is not None]

    def _aim(self, about: Mapping[str, Any]) -> Aim | None:
        def concerns(setting: Setting) -> bool:
            return (
                setting.dataset not in made()
                and about.get("model") in (None, setting.model)
                and about.get("condition") in (None, setting.condition)
            )

        named = (about.get(name) for name in ("metric", "ours", "theirs"))
        found = [x for x in self.comparisons(*named) if x.seeds and concerns(x.setting)]
        if not found:
            return None
        by_dataset = _by_dataset({x.setting: x.difference.mean for x in found})
        mean, ahead = over_datasets([*by_dataset.values()]), sum(x > 0 for x in by_dataset.values())
        below = [x for x in found if x.difference.mean < about.get("worst", -math.inf)]
        verdicts = [reached(mean, about["least"])] if "least" in about else []
        if "share" in about:
            verdicts.append(reached(share_of(ahead, len(by_dataset)), about["share"]))
        if below:
            verdicts.append("refuted" if any(x.verdict == "behind" for x in below) else "open")
        if any(map(concerns, self.missing)):
            verdicts.append("open")
        verdict = next((x for x in ("refuted", "open") if x in verdicts), "confirmed")
        worst = min(x.difference.mean for x in found)
        return Aim(about["title"], verdict, mean, ahead, len(by_dataset), worst)

    def autos(self) -> list[Auto]:
        """For each model that has the lines that "auto" chooses from."""
        return [x for model in self.regime.models if (x := self._auto(model)) is not None]

    def _auto(self, model: str) -> Auto | None:
        """For every seed, of the lines to choose from the one that its validation rows prefer."""
        means = self.means(model)
        known = self.regime.lines[model]
        names = [x for x in plan()["auto"]["lines"][self.regime.metric] if x in known]
        if "ce" not in means or len(names) < 2:
            return None
        chosen: Counter[str] = Counter()
        own: dict[Setting, float] = {}
        for setting, lines in self.values.items():
            if setting.model == model and setting.dataset not in made():
                picked = {
                    seed: max(
                        (x for x in names if x in lines and seed in lines[x].valid),
                        key=lambda name: lines[name].valid[seed],
                    )
                    for seed in range(self.regime.seeds)
                }
                chosen.update(picked.values())
                own[setting] = mean_of([lines[x].test[seed] for seed, x in picked.items()])
        auto = _by_dataset(own)
        best = max(means, key=lambda line: _mean(means[line]))
        from_best, from_ce = (
            over_datasets([auto[x] - means[line][x] for x in auto]) for line in (best, "ce")
        )
        verdict = reached(from_best, plan()["auto"]["least"])
        counts = dict(chosen.most_common())
        return Auto(model, best, from_best, from_ce, verdict, len(auto), counts)

    def besides(self) -> list[Beside]:
        """The lines that the plan has beside the others, each with those that it names."""
        return [
            self._beside(model, line, other)
            for model, lines in self.regime.lines.items()
            for line, about in lines.items()
            for other in about.get("beside", ())
        ]

    def _beside(self, model: str, line: str, other: str) -> Beside:
        is_best = other == "best"
        if is_best:
            means = self.means(model)
            among = [x for x in means if "beside" not in self.regime.lines[model][x]]
            other = max(among, key=lambda x: _mean(means[x]))
        own = {
            setting: _pairs(lines[line].test, lines[other].test)
            for setting, lines in self.values.items()
            if setting.model == model and setting.dataset not in made()
        }
        gains = _by_dataset({setting: mean_of(pairs) for setting, pairs in own.items() if pairs})
        diverged = sum(self.regime.seeds - len(self.values[setting][line].test) for setting in own)
        ahead = sum(x > 0 for x in gains.values())
        mean = over_datasets([*gains.values()])
        confirming = over_datasets([gains[x] for x in gains if x in plan()["data"]["confirming"]])
        return Beside(model, line, other, is_best, mean, ahead, len(gains), confirming, diverged)

    def _of_kind(self, model: str, lines: Iterable[str], ranks: bool) -> list[str]:
        return [line for line in lines if self.ranks(model, line) == ranks]


def most(metric: str) -> float:
    """What the metric of a perfect ranking is: values on test rows are shares of it."""
    return float(find_metric(metric).range.get("max_fpr", 1.0))


def mean_over_datasets(comparisons: Iterable[Comparison]) -> Difference:
    """Of the means of the data sets' settings."""
    means = {x.setting: x.difference.mean for x in comparisons if x.seeds}
    return over_datasets([*_by_dataset(means).values()])


def _by_dataset(values: Mapping[Setting, float]) -> dict[str, float]:
    """The mean of each data set's settings."""
    found: dict[str, list[float]] = {}
    for setting, value in values.items():
        found.setdefault(setting.dataset, []).append(value)
    return {dataset: mean_of(x) for dataset, x in found.items()}


def _verdict(mean: float, p: float) -> str:
    if not p < 1 - LEVEL:
        return "level"
    return "ahead" if mean > 0 else "behind"


def _best(lines: Mapping[str, Values], names: Sequence[str]) -> str | None:
    """The best mean on validation rows, of the lines that diverged for the fewest seeds."""
    order = {name: (len(lines[name].valid), _mean(lines[name].valid)) for name in names}
    return max(order, key=order.__getitem__, default=None)


def _judged(values: Values, metric: str | None) -> dict[int, float]:
    return values.test if metric is None else values.judged.get(metric, {})


def _pairs(one: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    return [one[seed] - other[seed] for seed in one if seed in other]


def _mean(values: Mapping[Any, float]) -> float:
    return mean_of(list(values.values()))
