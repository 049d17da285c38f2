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
from aucmax.study.settings import find_regime, made, plan
from aucmax.study.summary import Comparison, Difference, Recommendation, Results, over_datasets
from aucmax.train.metrics import find_metric


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
    titles = {name: about["title"] for name, about in regime.models.items()}
    if len(regime.conditions) > 1:
        titles = dict.fromkeys(regime.models, "") | {x: x for x in regime.conditions}
    else:
        titles |= dict.fromkeys(regime.conditions, "")
    return svg(forest(results.comparisons(), titles, regime.goal))


def sentences(results: Results) -> list[str]:
    """What came out: of each model, and of what is recommended."""
    said = []
    comparisons = results.comparisons()
    for model, about in results.regime.models.items():
        own = [x for x in comparisons if x.setting.model == model]
        if own:
            said.append(f"{capitalized(about['title'])}: {_counts(own, results.regime.goal)}")
    said += [
        f"{x.setting.dataset}, {x.setting.condition}, made so that ranking can gain: "
        f"{_text(x.difference)}."
        for x in comparisons
        if x.setting.dataset in made()
    ]
    said += [_recommended(results, x) for x in results.recommendations() if x.datasets]
    return said


def _counts(own: Sequence[Comparison], goal: float) -> str:
    """Of a model: simulations count in none of it."""
    real = [x for x in own if x.setting.dataset not in made()]
    verdicts = Counter(x.verdict for x in real)
    by_dataset: dict[str, list[float]] = {}
    for x in real:
        if x.seeds:
            by_dataset.setdefault(x.setting.dataset, []).append(x.difference.mean)
    mean = over_datasets([statistics.fmean(values) for values in by_dataset.values()])
    above = sum(x.difference.mean > 0 for x in real)
    return (
        f"in {plural(len(real), 'setting')} the ranking objective is clearly ahead in "
        f"{verdicts['ahead']} and clearly behind in {verdicts['behind']}; its mean is higher in "
        f"{above}. Over {plural(len(by_dataset), 'data set')} the mean difference is {_text(mean)}"
        f"{_aim(mean, goal)}."
    )


def _aim(mean: Difference, goal: float) -> str:
    """Whether the aim was reached, by the interval over data sets."""
    if math.isnan(mean.low):
        return ""
    reached = "is met" if mean.low >= goal else "is missed" if mean.high < goal else "is open"
    return f"; the aim, {signed(goal, 3)} or more, {reached}"


def _recommended(results: Results, x: Recommendation) -> str:
    ours, theirs = (f'"{results.title(x.model, line)}"' for line in (x.ours, x.theirs))
    return (
        f"The best of either kind on the data sets for choosing, tested on the others, "
        f"{results.regime.models[x.model]['title']}: {ours} minus {theirs} is "
        f"{_text(x.difference)}, and above zero on {x.ahead} of {x.datasets}."
    )


def _text(x: Difference) -> str:
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
{_setting_table(results)}
To repeat it::

    aucmax reproduce study --regime {regime.name} --data DIR
"""


def _share(results: Results) -> str:
    return "" if results.most == 1 else ", as a share of what a perfect ranking has"


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
    return _table(
        "Mean over settings and seeds, of data sets for choosing and for confirming", rows
    )


def _mean(results: Results, model: str, line: str, part: str) -> str:
    known = [
        statistics.fmean(lines[line].test.values())
        for setting, lines in results.values.items()
        if setting.model == model and setting.dataset in plan()["data"][part]
        if line in lines and lines[line].test
    ]
    return f"{statistics.fmean(known):.4f}" if known else "–"


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
        shown = [*setting, *lines, str(x.seeds), signed(d.mean, 4), interval, x.verdict]
        rows.append([text.replace("_", " ") for text in shown])
    return _table("Setting by setting", rows)


def _table(title: str, rows: Sequence[Sequence[str]]) -> str:
    items = ["   * - " + "\n     - ".join(map(rst_text, row)) for row in rows]
    return "\n".join([f".. list-table:: {title}", "   :header-rows: 1", "", *items]) + "\n"
