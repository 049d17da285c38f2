"""A regime's results in words and tables, as plain text and as a page of the site."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aucmax.paper.text_tables import rst_text
from aucmax.report.drawing import svg
from aucmax.report.words import capitalized, listed, p_text, plural, signed
from aucmax.study.differences import FEWEST, Difference, reached
from aucmax.study.forest import forest
from aucmax.study.settings import Setting, find_regime, made, plan
from aucmax.study.summary import (
    Aim,
    Auto,
    Beside,
    Comparison,
    Recommendation,
    Results,
    mean_over_datasets,
    most,
)
from aucmax.study.training import JUDGED
from aucmax.train.metrics import find_metric

LEFT = "What is refuted was left as it is."
ADDED = """\
What follows was added when all of that was known, on the data sets for confirming too, and so
proves less:"""
BESIDE = """\
Beside these, each compared with one of them, with as many trials, steps and seeds; "auto" has runs
of its own here and trains every objective that it tries for as many steps:"""


class RegimeResults(NamedTuple):
    """The results of a regime: of what was planned, and with what was added, if that is there.

    ``whole`` has the lines beside those that are compared, too.
    """

    planned: Results
    later: Results | None = None
    whole: Results | None = None

    @classmethod
    def read(cls, name: str, folder: Path) -> RegimeResults:
        """Those in the regime's folder."""
        whole = find_regime(name)
        regimes = whole.planned, whole.objectives, whole
        planned, *others = (Results(regime, folder) for regime in regimes)
        more = [
            results if regime.lines != less.lines and results.covers(planned) else None
            for less, regime, results in zip(regimes[:-1], regimes[1:], others, strict=True)
        ]
        return cls(planned, *more)

    def later_recommendations(self) -> list[Recommendation]:
        """Of the models that were added, or of which more lines change what is compared."""
        if self.later is None:
            return []
        known = {(x.model, x.ours, x.strongest) for x in self.planned.recommendations()}
        return [
            x for x in self.later.recommendations() if (x.model, x.ours, x.strongest) not in known
        ]


def write_report(regime: str, folder: Path) -> Path:
    """Write what came of a regime so far into its folder: ``summary.txt`` and ``forest.svg``.

    The figure is there as soon as a data set is done.

    Returns:
        The text's path.
    """
    found = RegimeResults.read(regime, folder)
    path = folder / "summary.txt"
    path.write_text(text_page(found), encoding="utf-8")
    if found.planned.values:
        (folder / "forest.svg").write_text(svg_forest(found.planned), encoding="utf-8")
    return path


def svg_forest(results: Results) -> str:
    """The forest plot as an ``<svg>`` element."""
    regime = results.regime
    several = len(regime.conditions) > 1  # of models there are then not
    titles = {name: "" if several else x["title"] for name, x in regime.models.items()}
    titles |= {name: x["title"] if several else "" for name, x in regime.conditions.items()}
    return svg(forest(results.comparisons(), titles, regime.goal))


def sentences(results: Results) -> list[str]:
    """What came out: of what was hoped for, of each model, and of what is recommended."""
    said = [_hoped(x) for x in results.aims()]
    comparisons = results.comparisons()
    for model, about in results.regime.models.items():
        own = [x for x in comparisons if x.setting.model == model]
        if own:
            said.append(f"{capitalized(about['title'])}: {_counts(own)}")
    said += [
        f"{x.setting.dataset}, {_condition(results, x.setting)}, made so that ranking can gain: "
        f"{difference_text(x.difference)}."
        for x in comparisons
        if x.setting.dataset in made()
    ]
    said += [_recommended(results, x) for x in results.recommendations()]
    said += [_auto(results, x) for x in results.autos()]
    return said


def later_sentences(found: RegimeResults) -> list[str]:
    """What came out of what was added: its aims, and what is recommended where there is more."""
    planned, later = found.planned, found.later
    if later is None:
        return []
    known = {aim["title"] for aim in planned.regime.aims}
    said = [_hoped(x) for x in later.aims() if x.title not in known]
    said += [_recommended(later, x) for x in found.later_recommendations()]
    every = [(model, line) for model, lines in later.regime.lines.items() for line in lines]
    return said + [changed for x in every if (changed := change_of(later, *x))]


def change_of(results: Results, model: str, line: str) -> str:
    """What was changed of a line when its own results were known; nothing if nothing was."""
    about = results.regime.lines[model][line]
    return f'"{about["title"]}": {about["changed"]}' if "changed" in about else ""


def beside_sentences(found: RegimeResults) -> list[str]:
    """What came out of the lines beside those that are compared."""
    whole = found.whole
    return [] if whole is None else [_beside(whole, x) for x in whole.besides()]


def _beside(results: Results, x: Beside) -> str:
    line, other = (f'"{results.title(x.model, name)}"' for name in (x.line, x.other))
    best = ", the best line of all" if x.is_best else ""
    lost = f" Of it {plural(x.diverged, 'run')} diverged." if x.diverged else ""
    alone = ""
    if "added" in results.regime.lines[x.model][x.other]:  # which was tried on the others
        alone = f", and {difference_text(x.confirming)} on those for confirming alone"
    said = [
        f"{line} minus {other}{best}, {results.regime.models[x.model]['title']}, is "
        f"{difference_text(x.difference)}, and above zero on {x.ahead} of "
        f"{plural(x.datasets, 'data set')}{alone}.{lost}",
        change_of(results, x.model, x.other),
        _by_its_own_runs(results, x) if x.line == "auto" else "",
    ]
    return " ".join(filter(None, said))


def _by_its_own_runs(results: Results, x: Beside) -> str:
    """Whether "auto" is as good as the best line, by the runs that it has."""
    least = plan()["auto"]["least"]
    verdict = reached(x.difference, least)
    return f"Not more than {-least:.3f} behind: {verdict}.{_changed(results)}"


def _mending(found: RegimeResults) -> list[str]:
    """What was tried where an aim was refuted; nothing if none was."""
    is_refuted = any(x.verdict == "refuted" for x in found.planned.aims())
    return [found.planned.regime.tried or LEFT] if is_refuted else []


def _hoped(x: Aim) -> str:
    return (
        f"{capitalized(x.verdict)}: {x.title}. The mean difference is "
        f"{difference_text(x.difference)}, above zero on {x.ahead} of "
        f"{plural(x.datasets, 'data set')}, and {signed(x.worst, 4)} in the worst setting."
    )


def _counts(own: Sequence[Comparison]) -> str:
    """Of a model: simulations count in none of it."""
    real = [x for x in own if x.setting.dataset not in made()]
    verdicts = Counter(x.verdict for x in real)
    above = sum(x.difference.mean > 0 for x in real)
    datasets = len({x.setting.dataset for x in real})
    return (
        f"in {plural(len(real), 'setting')} the ranking objective is clearly ahead in "
        f"{verdicts['ahead']} and clearly behind in {verdicts['behind']}; its mean is higher in "
        f"{above}. Over {plural(datasets, 'data set')} the mean difference is "
        f"{difference_text(mean_over_datasets(real))}."
    )


def _recommended(results: Results, x: Recommendation) -> str:
    ours, theirs = (f'"{results.title(x.model, line)}"' for line in (x.ours, x.theirs))
    return (
        f"The best of either kind on the data sets for choosing, tested on the others, "
        f"{results.regime.models[x.model]['title']}: {ours} minus {theirs} is "
        f"{difference_text(x.difference)}, and above zero on {x.ahead} of {x.datasets}"
        f"{_from_strongest(results, x)}."
    )


def _from_strongest(results: Results, x: Recommendation) -> str:
    """The strongest baseline, where another was chosen."""
    if x.strongest == x.theirs:
        return ""
    name = results.title(x.model, x.strongest)
    return (
        f'; from the likelihood that is best there, "{name}", {difference_text(x.from_strongest)}'
    )


def _auto(results: Results, x: Auto) -> str:
    """Whether it is as good as the best line, looked for afterwards."""
    beside = f", and {difference_text(x.from_ce)} from cross-entropy" if x.best != "ce" else ""
    times = [f'{count} times "{results.title(x.model, name)}"' for name, count in x.chosen.items()]
    return (
        f"{capitalized(x.verdict)}, as far as the other lines' runs tell: on average "
        f'objective="auto" is not more than {-plan()["auto"]["least"]:.3f} behind the best line of '
        f"all, {results.regime.models[x.model]['title']}. If it chose among these runs, in which "
        f"every line has settings of its own, it would be {difference_text(x.from_best)} from "
        f'"{results.title(x.model, x.best)}" over {plural(x.datasets, "data set")}{beside}. '
        f"It would choose {', '.join(times)}.{_changed(results)}"
    )


def _changed(results: Results) -> str:
    """Of what "auto" chooses from."""
    if results.regime.metric not in plan()["auto"]["later"]:
        return ""
    return " What it chooses from was changed when results were known."


def _condition(results: Results, setting: Setting) -> str:
    return str(results.regime.conditions[setting.condition]["title"])


def difference_text(x: Difference) -> str:
    """With its interval and p-value, if there are."""
    if math.isnan(x.low):
        return signed(x.mean, 4)
    test = ""
    if not math.isnan(x.p):
        test = f"; p {p_text(x.p)}" if x.p < 0.001 else f"; p = {p_text(x.p)}"
    return f"{signed(x.mean, 4)} ({signed(x.low, 4)} to {signed(x.high, 4)}{test})"


def title_of(results: Results) -> str:
    """With what is missing."""
    done = how_much(results)
    return f"{results.regime.title} — {done}" if done else results.regime.title


def how_much(results: Results) -> str:
    """Is done of what was planned; nothing if all is."""
    missing = results.missing
    if not missing:
        return ""
    if any(setting.dataset in results.datasets for setting in missing):
        return f"{len(results.values)} of {len(results.values) + len(missing)} settings"
    return f"{len(results.datasets)} of {len(results.regime.datasets)} data sets"


def text_page(found: RegimeResults) -> str:
    """What a terminal shows."""
    said = sentences(found.planned) or ["No data set is done yet: the same command goes on."]
    said += _mending(found)
    said += [ADDED, *added] if (added := later_sentences(found)) else []
    said += [BESIDE, *beside] if (beside := beside_sentences(found)) else []
    return "\n\n".join([title_of(found.planned), *said]) + "\n"


def rst_page(found: RegimeResults, name: str) -> str:
    """A page of the site, beside ``NAME.svg``."""
    results, regime, title = found.planned, found.planned.regime, title_of(found.planned)
    said = "\n\n".join([list_items(sentences(results)), *map(rst_text, _mending(found))])
    if added := later_sentences(found):
        said += f"\n\n{ADDED}\n\n{list_items(added)}"
    if beside := beside_sentences(found):
        said += f"\n\n{BESIDE}\n\n{list_items(beside)}"
    whole = found.whole or found.later or results
    versions = listed(dict.fromkeys(x["versions"]["torch"] for x in whole.records))
    commits = listed(dict.fromkeys(str(x["commit"]) for x in whole.records))
    first = next(iter(regime.conditions.values()))["title"]
    split, cut = _rows(results)
    left_out = cut + _missing(results)
    return f"""\
.. Generated by experiments/publish.py from experiments/study/{regime.name}.

{title}
{"=" * len(title)}

{said}

A setting is a data set with what was done to its rows and a model. Compared there is the
{find_metric(regime.metric).label} on test rows{_share(results)}: that of the ranking objective
that validation rows prefer, minus that of the likelihood that they prefer; focal loss and
generalized cross-entropy count as likelihoods. Every objective had {_trials(results)} trials, with
seed 0 and the same validation rows, in the condition "{first}"; what was found serves all seeds and
conditions. There are {regime.seeds} seeds, each with a split of its own of
{split} Some
data sets are for choosing: of either kind the line with the highest mean on their test rows is then
compared on the others, those for confirming.{left_out}

Intervals and tests over seeds are those for splits of the same rows (Nadeau and Bengio, 2003).
"Ahead" and "behind" are corrected for the number of settings (Holm), which asks much of
{regime.seeds} seeds: "level" is no proof of equality. Over data sets they are t intervals and,
where these are {FEWEST} or more, Wilcoxon's test. {_diverged(results)}
{len(whole.records):,} runs and {whole.trials:,} trials, some of which are runs too, with torch
{versions}, commit {commits}{_cost(whole)}.

.. figure:: {name}.svg
   :alt: Differences by data set

   By data set, those for choosing first: the mean difference and its 95 % interval, which is not
   corrected for the number of settings; colours are. The dotted line is the aim,
   {signed(regime.goal, 3)}.

{_line_table(whole)}
{_metric_table(results)}{_setting_table(results)}
To repeat it::

    aucmax reproduce study --regime {regime.name} --data DIR
"""


def list_items(said: Sequence[str]) -> str:
    """Sentences as a list for Sphinx."""
    return "\n".join(f"- {rst_text(text)}" for text in said)


def _rows(results: Results) -> tuple[str, str]:
    """What a seed splits, and what is left out."""
    if results.regime.of_pictures:
        removed = f"{100 * plan()['removed']:g} %"
        return (
            f"the pictures to train and to validate with, {removed} of the positives left out;\n"
            f"test pictures are the official ones, so that intervals over seeds say nothing of\n"
            f"other test pictures. Both data sets of CIFAR-10 have the same pictures, other labels."
        ), ""
    split = "the same rows, so that a row may validate in one and test in another, for all"
    cut = f" Large\ntables are cut to {plan()['rows']:,} rows, the rare class first."
    return f"{split} objectives alike.", cut


def _missing(results: Results) -> str:
    """What is not done: data sets, and of others conditions and models."""
    regime = results.regime
    names = [x for x in regime.datasets if x not in results.datasets]
    lacking: dict[str, list[str]] = {}
    for setting in results.missing:
        if setting.dataset not in names:
            what = f'"{_condition(results, setting)}"'
            if len(regime.models) > 1:
                what += f" with {regime.models[setting.model]['title']}"
            lacking.setdefault(what, []).append(setting.dataset)
    names += [
        what if len(where) == len(results.datasets) else f"{what} of {listed(where)}"
        for what, where in lacking.items()
    ]
    return f" Not complete: {rst_text('; '.join(names))}." if names else ""


def _diverged(results: Results) -> str:
    count = sum(record["test"][results.regime.metric] is None for record in results.records)
    what = "makes no pair, and its line is not recommended"
    return f"{plural(count, 'run')} diverged; such a run {what}. " if count else ""


def _cost(results: Results) -> str:
    """The hours of one core or, where many runs shared a GPU, how many were made where."""
    on_cpu = [record for record in results.records if "CPU" in record["hardware"]]
    if len(on_cpu) == len(results.records):
        seconds = sum(record["seconds"] for record in on_cpu)
        return f"; the runs without the trials took {seconds / 3600:.1f} hours of one\ncore"
    gpus = listed(dict.fromkeys(x["hardware"] for x in results.records if x not in on_cpu))
    said = f"; on {gpus},\nmany at a time, in bfloat16"
    if on_cpu:
        lines = dict.fromkeys(results.title(x["model"], x["line"]) for x in on_cpu)
        said += f"; but on a CPU, in float32, {plural(len(on_cpu), 'run')} of {listed(lines)}"
    return said


def _share(results: Results) -> str:
    return "" if most(results.regime.metric) == 1 else ", as a share of what a perfect ranking has"


def _trials(results: Results) -> str:
    lines = (line for lines in results.regime.lines.values() for line in lines.values())
    counts = {math.prod(map(len, line["grid"].values())) for line in lines}
    return listed(sorted(counts))


def _line_table(results: Results) -> str:
    """Every line's mean over settings, apart for choosing and confirming."""
    rows = [["Model", "Objective", "Ranks", "Choosing", "Confirming"]]
    for model, about in results.regime.models.items():
        for line in results.regime.lines[model]:
            means = [_mean(results, model, line, part) for part in ("choosing", "confirming")]
            own = results.regime.lines[model][line]
            ranks = "yes" if results.ranks(model, line) else "no"
            ranks += ", added" if "added" in about or "added" in own else ""
            ranks = "beside" if "beside" in own else ranks
            rows.append([about["title"], results.title(model, line), ranks, *means])
    return list_table(
        "Mean over settings and seeds, of data sets for choosing and for confirming", rows
    )


def _mean(results: Results, model: str, line: str, part: str, metric: str = "") -> str:
    """With the number of runs if some of them diverged."""
    settings = [
        setting
        for setting in results.values
        if setting.model == model and setting.dataset in plan()["data"][part]
    ]
    judged = [
        results.values[x][line].judged.get(metric or results.regime.metric, {})
        for x in settings
        if line in results.values[x]
    ]
    known = [statistics.fmean(values.values()) for values in judged if values]
    if not known:
        return "–"
    runs, wanted = sum(map(len, judged)), len(settings) * results.regime.seeds
    return f"{statistics.fmean(known):.4f}{f' ({runs} of {wanted} runs)' if runs < wanted else ''}"


def _metric_table(results: Results) -> str:
    """Every line by the metrics that it was not chosen by; nothing but for the top of the list."""
    regime = results.regime
    if most(regime.metric) == 1:
        return ""
    others = [x for x in JUDGED if x != regime.metric]
    rows = [["Objective", *(find_metric(x).label for x in others)]]
    for model, lines in regime.lines.items():
        for line in lines:
            means = [_mean(results, model, line, "confirming", x) for x in others]
            rows.append([results.title(model, line), *means])
    title = "The same runs by other metrics: mean over data sets for confirming"
    return list_table(title, rows) + "\n"


def _setting_table(results: Results) -> str:
    several = {"Condition": len(results.regime.conditions), "Model": len(results.regime.models)}
    where = [name for name, count in several.items() if count > 1]
    heads = ["Verdict", "Difference", "95 % interval", "Ranking objective", "Likelihood", "Pairs"]
    rows = [["Data set", *where, *heads]]
    for x in results.comparisons():
        setting, d = x.setting, x.difference
        lines = (results.title(setting.model, line) for line in (x.ours, x.theirs))
        interval = f"{signed(d.low, 4)} to {signed(d.high, 4)}"
        model = str(results.regime.models[setting.model]["title"])
        names = {"Condition": _condition(results, setting), "Model": model}
        place = [setting.dataset.replace("_", " "), *(names[name] for name in where)]
        rows.append([*place, x.verdict, signed(d.mean, 4), interval, *lines, str(x.seeds)])
    return list_table("Setting by setting", rows)


def list_table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """A table for Sphinx; the first row is its head."""
    items = ["   * - " + "\n     - ".join(map(rst_text, row)) for row in rows]
    return "\n".join([f".. list-table:: {title}", "   :header-rows: 1", "", *items]) + "\n"
