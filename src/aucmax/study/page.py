"""A regime's results in words and tables, as plain text and as a page of the site."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from aucmax.paper.text_tables import rst_text
from aucmax.report.drawing import svg
from aucmax.report.words import capitalized, listed, p_text, plural, signed
from aucmax.study.forest import forest
from aucmax.study.settings import Setting, find_regime, made, plan
from aucmax.study.summary import (
    Aim,
    Auto,
    Comparison,
    Difference,
    Recommendation,
    Results,
    mean_over_datasets,
    most,
)
from aucmax.study.training import JUDGED
from aucmax.train.metrics import find_metric

AUTO_GOAL = -0.002
"""By how much "auto" may be behind the best line of all."""


def write_report(regime: str, folder: Path) -> Path:
    """Write what came of a regime so far into its folder: ``summary.txt`` and ``forest.svg``.

    The figure is there as soon as a data set is done.

    Returns:
        The text's path.
    """
    results = Results(find_regime(regime), folder)
    path = folder / "summary.txt"
    path.write_text(text_page(results), encoding="utf-8")
    if results.values:
        (folder / "forest.svg").write_text(svg_forest(results), encoding="utf-8")
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


def _hoped(x: Aim) -> str:
    return (
        f"{capitalized(x.verdict)}: {x.title}. The mean difference over data sets is "
        f"{difference_text(x.difference)}; it is above zero in {x.ahead} of "
        f"{plural(x.settings, 'setting')}, {signed(x.worst, 4)} in the worst."
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
    times = [f'{count} times "{results.title(x.model, name)}"' for name, count in x.chosen.items()]
    often = ", ".join(times)
    kept = "is kept" if x.difference.mean >= AUTO_GOAL else "is missed"
    beyond = "" if x.difference.low >= AUTO_GOAL else ", though the interval reaches beyond it"
    return (
        f'objective="auto", {results.regime.models[x.model]["title"]}: over '
        f"{plural(x.datasets, 'data set')} it is {difference_text(x.difference)} from the best "
        f'line of all there, "{results.title(x.model, x.best)}"; the aim, on average not more than '
        f"{-AUTO_GOAL:.3f} behind, {kept}{beyond}. By the validation rows of each seed it chose "
        f"{often}."
    )


def _condition(results: Results, setting: Setting) -> str:
    return str(results.regime.conditions[setting.condition]["title"])


def difference_text(x: Difference) -> str:
    """With its interval and p-value, if there are."""
    if math.isnan(x.p):
        return signed(x.mean, 4)
    p = p_text(x.p) if x.p < 0.001 else f"= {p_text(x.p)}"
    return f"{signed(x.mean, 4)} ({signed(x.low, 4)} to {signed(x.high, 4)}; p {p})"


def title_of(results: Results) -> str:
    """With what is missing."""
    regime = results.regime
    done, wanted = len(results.datasets), len(regime.datasets)
    missing = "" if done == wanted else f" — {done} of {wanted} data sets"
    return f"{regime.title}{missing}"


def text_page(results: Results) -> str:
    """What a terminal shows."""
    said = sentences(results) or ["No data set is done yet: the same command goes on."]
    return "\n\n".join([title_of(results), *said]) + "\n"


def rst_page(results: Results, name: str) -> str:
    """A page of the site, beside ``NAME.svg``."""
    regime, title = results.regime, title_of(results)
    said = "\n".join(f"- {text}" for text in map(rst_text, sentences(results)))
    seconds = sum(record["seconds"] for record in results.records)
    versions = listed(dict.fromkeys(x["versions"]["torch"] for x in results.records))
    commits = listed(dict.fromkeys(str(x["commit"]) for x in results.records))
    return f"""\
.. Generated by experiments/publish.py from experiments/study/{regime.name}.

{title}
{"=" * len(title)}

{said}

A setting is a data set with what was done to its rows and a model. Compared there is the
{find_metric(regime.metric).label} on test rows{_share(results)}: that of the ranking objective
that validation rows prefer, minus that of the likelihood that they prefer; focal loss and
generalized cross-entropy count as likelihoods. Every objective had {_trials(results)} trials, with
seed 0 and the same validation rows. There are {regime.seeds} seeds, each with a split of its own of
the same rows, so that a row may validate in one and test in another, for all objectives alike. Some
data sets are for choosing: what is best there, on test rows too, is tested on the others. Large
tables are cut to {plan()["rows"]:,} rows, the rare class first.

Intervals and tests over seeds are those for splits of the same rows (Nadeau and Bengio, 2003).
"Ahead" and "behind" are corrected for the number of settings (Holm), which asks much of
{regime.seeds} seeds: "level" is no proof of equality. Over data sets they are t intervals and
Wilcoxon's test. {len(results.records):,} runs and {results.trials:,} trials, with torch
{versions}, commit {commits}; the runs without the trials took {seconds / 3600:.1f} hours of one
core.

.. figure:: {name}.svg
   :alt: Differences by data set

   By data set, those for choosing first: the mean difference and its 95 % interval, which is not
   corrected for the number of settings; colours are. The dotted line is the aim,
   {signed(regime.goal, 3)}.

{_line_table(results)}
{_metric_table(results)}{_setting_table(results)}
To repeat it::

    aucmax reproduce study --regime {regime.name} --data DIR
"""


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
            ranks = "yes" if results.ranks(model, line) else "no"
            rows.append([about["title"], results.title(model, line), ranks, *means])
    return list_table(
        "Mean over settings and seeds, of data sets for choosing and for confirming", rows
    )


def _mean(results: Results, model: str, line: str, part: str, metric: str = "") -> str:
    known = [
        statistics.fmean(values.values())
        for setting, lines in results.values.items()
        if setting.model == model and setting.dataset in plan()["data"][part]
        if line in lines and (values := lines[line].judged.get(metric or results.regime.metric, {}))
    ]
    return f"{statistics.fmean(known):.4f}" if known else "–"


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
    rows = [
        [
            "Data set",
            "Condition",
            "Model",
            "Ranking objective",
            "Likelihood",
            "Pairs",
            "Difference",
            "95 % interval",
            "Verdict",
        ]
    ]
    for x in results.comparisons():
        setting, d = x.setting, x.difference
        lines = (results.title(setting.model, line) for line in (x.ours, x.theirs))
        interval = f"{signed(d.low, 4)} to {signed(d.high, 4)}"
        model = str(results.regime.models[setting.model]["title"])
        where = (setting.dataset, _condition(results, setting), model)
        shown = [*where, *lines, str(x.seeds), signed(d.mean, 4), interval, x.verdict]
        rows.append([text.replace("_", " ") for text in shown])
    return list_table("Setting by setting", rows)


def list_table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """A table for Sphinx; the first row is its head."""
    items = ["   * - " + "\n     - ".join(map(rst_text, row)) for row in rows]
    return "\n".join([f".. list-table:: {title}", "   :header-rows: 1", "", *items]) + "\n"
