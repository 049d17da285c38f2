"""The sections of a classifier's page that hold a figure or the thresholds."""

from __future__ import annotations

from collections.abc import Sequence

from aucmax.judge.binary import BinaryRows, Curves, Group, calibration_groups
from aucmax.judge.evaluation import Importance, Interval
from aucmax.judge.threshold import COST_RATIOS, Counts, thresholds_to_show
from aucmax.judge.training import Training
from aucmax.report import figures, words
from aucmax.report.html import Html, figure, paragraph, scrolled, table
from aucmax.report.words import percent, plural, quoted

BEST = "★"


def roc(rows: BinaryRows, curves: Curves, auc: Interval) -> str:
    """The ROC curve, and how to read it."""
    value = f"{auc.value:.{words.decimals(auc)}f}"
    caption = (
        f"Each point is a threshold: lower it and more {quoted(rows.yes)} are found, at the price "
        f"of more {quoted(rows.no)} flagged by mistake. The nearer to the upper left corner, the "
        f"better; the area under the curve is the AUC, {value}. Shaded: where the two shares of "
        f"any one threshold, taken by itself, lie with {words.percent_of_level(rows.level)} "
        "confidence (Wilson intervals of both together)."
    )
    drawn = figures.drawn(
        "roc", f"ROC curve with an area of {value}", figures.SQUARE, figures.roc(rows, curves)
    )
    return figure(drawn, caption)


def precision_recall(rows: BinaryRows, curves: Curves) -> str:
    """Precision against recall."""
    value = rows.average_precision
    caption = (
        f"The higher, the more of the flagged rows are {quoted(rows.yes)}. Average precision, the "
        f"mean height of the curve, is {value:.3f}; guessing would reach the base rate, "
        f"{rows.base_rate:.3f}, that is, {percent(rows.base_rate)} of the rows."
    )
    drawn = figures.drawn(
        "precision",
        f"Precision against recall, average precision {value:.3f}",
        figures.SQUARE,
        figures.precision_recall(rows, curves),
    )
    return figure(drawn, caption)


def histogram(rows: BinaryRows) -> str:
    """The probabilities of both classes."""
    caption = (
        f"How many test rows get which probability of {quoted(rows.yes)}: above, those that are "
        f"{quoted(rows.yes)}; below, those that are {quoted(rows.no)}. Those from the dashed line "
        "on are flagged. The better the model, the less the two overlap."
    )
    if figures.is_by_odds(rows.probability):
        caption += (
            " The axis is stretched at its ends (it is even in log-odds), so that small "
            "probabilities can be told apart; what is nearer to 0 or 100 % than "
            f"{percent(figures.LEAST)} is drawn there."
        )
    label = f"Histograms of the probabilities of {quoted(rows.yes)} and {quoted(rows.no)}"
    drawn = figures.drawn("probabilities", label, figures.SQUARE, figures.histogram(rows))
    return figure(drawn, caption)


def calibration(rows: BinaryRows) -> str:
    """Whether the probabilities are right."""
    about = f"by their probability. Of rows with 20 %, about 20 in 100 should be {quoted(rows.yes)}"
    said = (
        f"On average the model says {percent(float(rows.probability.mean()))}; "
        f"{percent(rows.base_rate)} of the rows are {quoted(rows.yes)}."
    )
    return calibrated(rows, about, said, f"share of {quoted(rows.yes, 16)} observed")


def calibrated(rows: BinaryRows, about: str, said: str, observed: str, beside: bool = False) -> str:
    """Predicted against observed shares: how rows are grouped, what is found, what is observed."""
    found = calibration_groups(rows)
    caption = (
        f"The test rows in {plural(len(found), 'group')} of about equal size, {about}: the points "
        f"should lie on the dashed line. Bars: {words.percent_of_level(rows.level)} intervals of "
        "the observed share (Wilson), for each group by itself."
    )
    if figures.is_crowded(rows.probability):
        caption += " Both axes are stretched towards 0, where most rows are."
    drawn = figures.drawn(
        "calibration",
        "Observed shares against predicted probabilities",
        figures.SQUARE,
        figures.calibration(rows, found, observed),
    )
    name = "<summary>The groups as a table</summary>"
    details = f"\n<details>\n{name}\n{_groups(rows, found)}\n</details>"
    said = f"{said} {words.on_groups(rows.level, found)}"
    return figure(drawn, caption, said, beside) + details


def _groups(rows: BinaryRows, found: Sequence[Group]) -> str:
    heads = ("Predicted", "Observed", f"{words.percent_of_level(rows.level)} interval", "Rows")
    cells = []
    for g in found:
        between = f"{percent(g.low)} to {percent(g.high)}"
        of_rows = f"{g.positives:,} of {g.rows:,}"
        cells.append((percent(g.predicted), percent(g.observed), between, of_rows))
    return scrolled(table(heads, cells))


def training(scores: Training) -> str:
    """Validation score by step, or why there is none."""
    said = words.on_training(scores)
    if scores.evaluations < 2:
        return paragraph(said)
    caption = (
        f"{words.capitalized(scores.label)} on validation rows, which the model does not learn "
        "from, while it was trained. They decide which weights are kept, so that the "
        f"{scores.label} there is a little flattering; the test rows decide nothing."
    )
    if len(scores.curves) > 1:
        caption += " Averaged weights are the mean over many steps, which is often steadier."
    drawn = figures.drawn(
        "training",
        f"Validation {scores.label} by training step",
        figures.FLAT,
        figures.training(scores),
    )
    return figure(drawn, caption, said, beside=True)


def thresholds(rows: BinaryRows) -> str:
    """What each threshold does, and what it costs."""
    said = (
        f"A row is flagged as {quoted(rows.yes)} from the threshold on. Which one is best depends "
        f"on what mistakes cost: the last columns give the cost per 1,000 rows like the test rows, "
        f"counted in false alarms, if a missed {quoted(rows.yes)} costs as much as "
        f"{_costs()} of them."
    )
    note = (
        f"Flagged: share of all rows. Precision: share of {quoted(rows.yes)} among the flagged. "
        f"Recall: share of {quoted(rows.yes)} that is flagged. Specificity: share of "
        f"{quoted(rows.no)} that is left alone. {BEST} the least in its column, found on the same "
        "test rows and so a little flattering."
    )
    return "\n".join([paragraph(said), scrolled(_threshold_table(rows)), paragraph(note, "note")])


def _costs() -> str:
    *first, last = (f"{ratio:g}" for ratio in COST_RATIOS)
    return f"{', '.join(first)} or {last}"


def _threshold_table(rows: BinaryRows) -> str:
    chosen = thresholds_to_show(rows.probability, rows.positive, rows.threshold)
    counts = [rows.counts_at(threshold) for threshold in (2.0, *chosen, -1.0)]
    own = 1 + chosen.index(rows.threshold)
    names = ["flag nothing", *map(words.threshold_text, chosen), "flag everything"]
    names[own] += " (the model's)"
    least = [min(x.cost(ratio) for x in counts) for ratio in COST_RATIOS]
    lines = [[name, *_rates(x, least)] for name, x in zip(names, counts, strict=True)]
    heads = ["Threshold", "Flagged", "Precision", "Recall", "Specificity"]
    heads += [f"Cost at {ratio}×" for ratio in COST_RATIOS]
    return table(heads, lines, own=own)


def _rates(counts: Counts, least: Sequence[float]) -> list[str]:
    rates = (counts.flagged, counts.precision, counts.recall, counts.specificity)
    cells = [percent(rate) for rate in rates]
    for ratio, best in zip(COST_RATIOS, least, strict=True):
        cost = counts.cost(ratio)
        text = f"{cost:,.1f}"
        cells.append(Html(f"<strong>{BEST} {text}</strong>") if cost == best else text)
    return cells


def importance(importance: Sequence[Importance]) -> str:
    """The columns that the model uses most."""
    found = sorted(importance, key=lambda x: -x.drop)
    if not found:
        return paragraph("How much each column matters was not measured.")
    top, rest = found[: figures.MOST_BARS], found[figures.MOST_BARS :]
    caption = (
        "How much lower the AUC on the test rows is when the values of a column are shuffled, so "
        "that they say nothing any more. Thin lines: one standard deviation over shuffles. Columns "
        "that say the same stand in for each other, and each may look unimportant. It is what the "
        "model uses, not what causes the outcome."
    )
    height, paint = figures.importance(top)
    drawn = figures.drawn("importance", "Loss of AUC by shuffled column", height, paint)
    return figure(drawn, caption, _others(rest), beside=True)


def _others(rest: Sequence[Importance]) -> str:
    """The columns that have no bar, in words."""
    if not rest:
        return ""
    drops = [x.drop for x in rest]
    low, high, added = (f"{x:.4f}".replace("-", "−") for x in (min(drops), max(drops), sum(drops)))
    if len(rest) == 1:
        said = f"One more column, {quoted(rest[0].column, 40)}, loses {high}."
    else:
        said = f"The other {len(rest):,} columns lose from {low} to {high} each, {added} added up."
    below = " A loss below zero is chance, or a column that misleads the model."
    return said + (below if min(drops) < 0 else "")
