"""The figures of a classifier's page, each an ``<svg>`` that follows the page's colours.

Lines differ in their dashes and areas in their lightness: nothing is told by colour alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aucmax.judge.binary import BinaryRows, Curves, Group
from aucmax.judge.evaluation import Evaluation, Importance
from aucmax.judge.interval import Floats, Interval
from aucmax.judge.training import Training
from aucmax.report import drawing
from aucmax.report.drawing import Drawing
from aucmax.report.style import COLOURS, INK, PAPER
from aucmax.report.words import quoted, short_name, threshold_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH, SQUARE, FLAT = 4.3, 4.1, 3.0  # inches: a phone shows it whole
BLUE, VERMILION = COLOURS[0][0], COLOURS[1][0]
REFERENCE: Any = {"color": INK, "linewidth": 1.0, "dashes": (3, 3)}
LEAST, BINS = 1e-4, 30  # the smallest probability with a place of its own; bars
COARSE = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
FINE = (0.0002, 0.0005, 0.002, 0.005, 0.02, 0.05, 0.2, 0.3, 0.7, 0.8, 0.95, 0.98, 0.995, 0.998)
ROOT_TICKS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1)
MOST_BARS, MOST_LETTERS = 20, 22
ITERATES = {"last": "latest weights", "average": "averaged weights"}


def draw(
    name: str,
    label: str,
    paint: Callable[..., None],
    *args: Any,
    height: float = SQUARE,
    width: float = WIDTH,
) -> Drawing:
    """A figure for a page that ``paint(figure, *args)`` fills.

    Args:
        name: makes its ids its own.
        label: what is read aloud in its place.
        paint: a function of this module.
        args: what it shows.
        height: in inches.
        width: in inches.
    """
    from matplotlib.figure import Figure

    with drawing.plot_style(), warnings.catch_warnings():
        # The browser draws the text, with fonts that have what matplotlib's lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support")
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure, *args)
        return drawing.for_page(drawing.svg(figure), name, label)


def roc(figure: Figure, rows: BinaryRows, curves: Curves) -> None:
    """The ROC curve with its band, the diagonal and the model's threshold."""
    ax = _square(figure)
    _roc_lines(ax, curves)
    counts = rows.at_threshold
    _spot(ax, 1 - counts.specificity, counts.recall, "its threshold")
    ax.set_xlabel(f"share of {quoted(rows.no, 16)} flagged by mistake\n(false positive rate)")
    ax.set_ylabel(f"share of {quoted(rows.yes, 16)} found\n(recall, true positive rate)")
    _legend(figure)


def small_roc(figure: Figure, curves: Curves) -> None:
    """The ROC curve with its band, as one of several panels."""
    ax = _square(figure)
    ticks = (0, 0.5, 1)
    ax.set(xticks=ticks, yticks=ticks, xlabel="flagged by mistake", ylabel="found")
    _roc_lines(ax, curves)


def _roc_lines(ax: Axes, curves: Curves) -> None:
    x = np.concatenate([[0], curves.fpr_low, [1], curves.fpr_high[::-1]])
    y = np.concatenate([[0], curves.tpr_high, [1], curves.tpr_low[::-1]])
    ax.fill(x, y, color=BLUE, alpha=0.16, linewidth=0)
    ax.plot([0, 1], [0, 1], label="guessing", **REFERENCE)
    ax.plot(curves.fpr, curves.tpr, color=BLUE, label="this model")


def precision_recall(figure: Figure, rows: BinaryRows, curves: Curves) -> None:
    """Precision against recall, with the base rate and the model's threshold."""
    ax = _square(figure)
    ax.plot([0, 1], [rows.base_rate] * 2, label="guessing", **REFERENCE)
    ax.plot(curves.recall, curves.precision, drawstyle="steps-pre", color=BLUE, label="this model")
    counts = rows.at_threshold
    if counts.precision is not None:
        _spot(ax, counts.recall, counts.precision, "its threshold")
    ax.set_xlabel(f"share of {quoted(rows.yes, 16)} found\n(recall)")
    ax.set_ylabel(f"share of {quoted(rows.yes, 16)} among the flagged\n(precision)")
    _legend(figure)


def histogram(figure: Figure, rows: BinaryRows, noun: str) -> None:
    """A panel of probabilities per class; what is not flagged is pale."""
    from matplotlib.ticker import MaxNLocator

    by_odds = is_by_odds(rows.probability)
    place = _log_odds if by_odds else np.asarray
    x, cut = place(rows.probability), float(place(np.array(rows.threshold)))
    edges = _edges(x, cut)
    flagged = edges[:-1] >= cut
    counts = rows.at_threshold
    top, bottom = figure.subplots(2, 1, sharex=True)
    positives = f"{counts.missed:,.0f} missed", f"{counts.hits:,.0f} found"
    negatives = f"{counts.left_alone:,.0f} left alone", f"{counts.false_alarms:,.0f} false alarms"
    panels = (
        (top, rows.positive, VERMILION, rows.yes, positives),
        (bottom, ~rows.positive, BLUE, rows.no, negatives),
    )
    for ax, of_class, colour, label, (below, above) in panels:
        weight = None if rows.weight is None else rows.weight[of_class]
        heights = np.histogram(x[of_class], edges, weights=weight)[0]
        for bars, alpha in ((~flagged, 0.3), (flagged, None)):
            look: Any = {"color": colour, "edgecolor": colour, "linewidth": 0.7, "alpha": alpha}
            ax.bar(edges[:-1][bars], heights[bars], np.diff(edges)[bars], align="edge", **look)
        ax.axvline(cut, color=INK, linewidth=1.3, dashes=(6, 2))
        ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.yaxis.set_major_formatter(lambda value, _: drawing.short(value))
        ax.set_title(f"{quoted(label, 12)}: {below}", loc="left", fontsize=9)
        ax.set_title(above, loc="right", fontsize=9)
        ax.set_ylabel(f"{noun}s" if weight is None else f"{noun}s by weight")
    if by_odds:
        _probability_ticks(bottom, edges)
    else:
        _in_percent(bottom.xaxis)
    bottom.set_xlabel(f"predicted probability (dashed: threshold {threshold_text(rows.threshold)})")


def is_by_odds(probability: Floats) -> bool:
    """Whether most probabilities crowd at one end, where only log-odds show them apart."""
    return is_crowded(probability) or is_crowded(1 - probability)


def is_crowded(probability: Floats) -> bool:
    """Whether most probabilities are small."""
    return float(np.median(probability)) < 0.1


def calibration(
    figure: Figure, rows: BinaryRows, groups: Sequence[Group], observed: str, noun: str
) -> None:
    """Observed shares against predicted ones, with intervals, and where they would be equal."""
    ax = figure.subplots()
    x, y, low, high, *_ = np.array(groups).T
    end = min(1.0, 1.05 * max(*high, *x, 0.01))
    ax.plot([0, end], [0, end], label="as it should be", **REFERENCE)
    look: Any = {"color": BLUE, "capsize": 2.5, "elinewidth": 1.0, "label": f"test {noun}s"}
    ax.errorbar(x, y, yerr=np.maximum([y - low, high - y], 0), fmt="o", clip_on=False, **look)
    if is_crowded(rows.probability):
        _stretch(ax, end)
    else:
        ax.set(xlim=(0, end), ylim=(0, end))
        _in_percent(ax.xaxis, ax.yaxis)
    ax.set(aspect="equal", xlabel="predicted probability, mean of a group", ylabel=observed)
    _legend(figure)


def training(figure: Figure, scores: Training, judged: str = "validation rows") -> None:
    """Validation score by step, the kept weights marked."""
    looks: dict[str, Any] = {
        "last": {"color": VERMILION, "dashes": (5, 2), "marker": "s", "markersize": 3},
        "average": {"color": BLUE, "marker": "o", "markersize": 3},
    }
    ax = figure.subplots()
    for iterate, curve in scores.curves.items():
        steps, values = [x.step for x in curve], [x.score for x in curve]
        every = max(1, len(curve) // 12)
        ax.plot(steps, values, label=ITERATES[iterate], markevery=every, **looks[iterate])
    if (kept := scores.kept) is not None:
        _spot(ax, kept.step, kept.score, "kept")
    ax.set(xlabel="training step", ylabel=f"{scores.label} on the {judged}")
    ax.xaxis.set_major_formatter(lambda value, _: drawing.short(value))
    _legend(figure)


def models(figure: Figure, evaluation: Evaluation) -> None:
    """The AUC of this model, promised and come, and of each in it; what was left out is hollow."""
    ax = figure.subplots()
    shown: list[tuple[str, Interval, Any]] = []
    held_out: Any = {"fmt": "o", "color": BLUE}
    if (promised := evaluation.promised) is not None:
        ax.axvline(promised.value, **REFERENCE)
        judged = "out of fold" if evaluation.is_cross_fitted else "validation rows"
        shown.append(("this model", promised, {**held_out, "label": judged}))
    test: Any = {"fmt": "D", "color": INK, "label": "test rows"}
    shown.append(("on the test rows", evaluation.compared_auc, test))
    shown += [
        (x.name, x.auc, {**held_out, "mfc": BLUE if x.weight else PAPER})
        for x in evaluation.models
        if x.auc is not None
    ]
    for place, (_, auc, look) in enumerate(shown):
        sides = np.maximum([[auc.value - auc.low], [auc.high - auc.value]], 0)
        ax.errorbar([auc.value], [place], xerr=sides, capsize=2.5, elinewidth=1.0, **look)
    ax.set_yticks(range(len(shown)), [short_name(name, MOST_LETTERS) for name, *_ in shown])
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel("AUC within groups" if evaluation.compared_auc is not evaluation.auc else "AUC")
    _legend(figure)


def importance(figure: Figure, columns: Sequence[Importance]) -> None:
    """A bar per column with its spread, the longest on top."""
    ax = figure.subplots()
    places = np.arange(len(columns))[::-1]
    drops, spread = [x.drop for x in columns], [x.sd for x in columns]
    look: Any = {"ecolor": INK, "capsize": 2, "error_kw": {"elinewidth": 1.0}}
    ax.barh(places, drops, 0.62, xerr=spread, color=BLUE, alpha=0.7, **look)
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_yticks(places, [short_name(x.column, MOST_LETTERS) for x in columns])
    ax.set_ylim(-0.6, len(columns) - 0.4)
    ax.grid(axis="y", visible=False)
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel("loss of test AUC\nwhen the column is shuffled")  # room for long names beside


def _square(figure: Figure) -> Axes:
    ax: Axes = figure.subplots()
    quarters = np.linspace(0, 1, 5)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=quarters, yticks=quarters, aspect="equal")
    _in_percent(ax.xaxis, ax.yaxis)
    return ax


def _in_percent(*axes: Axis) -> None:
    for axis in axes:
        axis.set_major_formatter(lambda value, _: f"{100 * value:.4g} %")


def _stretch(ax: Axes, end: float) -> None:
    """Both axes by the root, which leaves the diagonal straight and has a zero."""

    def root(x: Floats) -> Any:
        return np.sqrt(np.maximum(x, 0))

    ticks = _spaced([x for x in ROOT_TICKS if x <= end], math.sqrt, 0.115 * math.sqrt(end))
    for axis in ("x", "y"):
        getattr(ax, f"set_{axis}scale")("function", functions=(root, np.square))
        getattr(ax, f"set_{axis}lim")(0, end)
        getattr(ax, f"set_{axis}ticks")(ticks, [f"{100 * x:g} %" for x in ticks])


def _spaced(ticks: Sequence[float], place: Callable[[float], float], least: float) -> list[float]:
    """The first and those after it that leave room for each other's labels."""
    spaced = list(ticks[:1])
    for tick in ticks[1:]:
        if place(tick) - place(spaced[-1]) > least:
            spaced.append(tick)
    return spaced


def _legend(figure: Figure) -> None:
    """Below the panel, where it hides nothing."""
    look: Any = {"handlelength": 2.6, "columnspacing": 1.2, "frameon": False}
    figure.legend(loc="outside lower center", ncols=3, **look)


def _spot(ax: Axes, x: float, y: float, label: str) -> None:
    """A marked point on a line."""
    look: Any = {"markeredgecolor": PAPER, "markeredgewidth": 0.8, "zorder": 5}
    ax.plot([x], [y], "D", color=INK, markersize=7, label=label, clip_on=False, **look)


def _log_odds(probability: Floats) -> Floats:
    p = np.clip(probability, LEAST, 1 - LEAST)
    return np.asarray(np.log(p / (1 - p)))


def _edges(x: Floats, cut: float) -> Floats:
    """Of equal bars that hold all of ``x``; the cut is one of them."""
    low, high = min(float(x.min()), cut), max(float(x.max()), cut)
    width = (high - low) / BINS or 0.05
    first, last = np.floor((low - cut) / width), np.floor((high - cut) / width) + 1
    edges: Floats = cut + width * np.arange(first, last + 1)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    return edges


def _probability_ticks(ax: Axes, edges: Floats) -> None:
    """The axis is in log-odds and labelled in probabilities."""
    low, high = (1 / (1 + math.exp(-x)) for x in (edges[0] - 1e-9, edges[-1] + 1e-9))
    ticks = [p for p in COARSE if low <= p <= high]
    if len(ticks) < 4:
        ticks = sorted(p for p in (*COARSE, *FINE) if low <= p <= high)
    ticks = ticks if len(ticks) > 1 else [low, high]
    ticks = _spaced(ticks, lambda p: math.log(p / (1 - p)), 0.1 * float(edges[-1] - edges[0]))
    places = [math.log(p / (1 - p)) for p in ticks]
    ax.set_xticks(places, [f"{100 * p:.4g} %" for p in ticks])
