"""A forest plot: by setting, how much better ranking objectives are, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aucmax.report import drawing
from aucmax.report.style import COLOURS
from aucmax.study.differences import Difference, over_datasets
from aucmax.study.settings import made, plan
from aucmax.study.summary import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.2  # inches
WIDTH = 2.9
ACROSS = 3
WIDEST, NARROWEST = 0.12, 0.01  # of what is shown on either side of zero
LOOKS = {
    "ahead": (COLOURS[0][0], "o", "ahead"),
    "level": ("#777777", "|", "no clear difference"),
    "behind": (COLOURS[1][0], "s", "behind"),
}


def forest(comparisons: Sequence[Comparison], titles: dict[str, str], goal: float) -> Figure:
    """A panel per model and condition, a row per data set, and below them their mean.

    Args:
        comparisons: from :meth:`aucmax.study.summary.Results.comparisons`.
        titles: of the models, and of the conditions.
        goal: a dotted line.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    if not comparisons:
        raise ValueError("comparisons must hold at least one, found none")
    kinds = list(dict.fromkeys((x.setting.model, x.setting.condition) for x in comparisons))
    known = [name for part in ("choosing", "confirming", "made") for name in plan()["data"][part]]
    datasets = sorted({x.setting.dataset for x in comparisons}, key=known.index)
    columns = min(ACROSS, len(kinds))
    rows = -(-len(kinds) // columns)
    span = _span(comparisons)
    with drawing.plot_style():
        size = (1.6 + WIDTH * columns, 0.5 + rows * (ROW * (len(datasets) + 3) + 0.7))
        fig = Figure(figsize=size, layout="constrained")
        grid = fig.subplots(rows, columns, squeeze=False, sharey=True, sharex=True)
        for ax in grid.flat[len(kinds) :]:
            ax.set_axis_off()
        for ax, kind in zip(grid.flat, kinds, strict=False):
            own = [x for x in comparisons if (x.setting.model, x.setting.condition) == kind]
            _draw(ax, {x.setting.dataset: x for x in own}, datasets, goal, span)
            ax.set_title(", ".join(titles[x] for x in kind if titles[x]), fontsize="medium")
        for ax in grid[:, 0]:
            names = [x.replace("_", " ") for x in datasets]
            ax.set_yticks([*range(len(datasets)), len(datasets) + 0.8], [*names, "mean"])
            ax.set_ylim(len(datasets) + 1.5, -0.7)
        marks = [
            Line2D([], [], color=colour, marker=marker, linestyle="-", label=label)
            for colour, marker, label in LOOKS.values()
        ]
        for ax in grid[-1]:
            ax.set_xlabel("ranking objective minus likelihood")
        fig.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False)
    return fig


def _span(comparisons: Sequence[Comparison]) -> float:
    """What is shown on either side of zero: nearly all means and most of the intervals."""
    ends = sorted(
        max(abs(x.difference.low), abs(x.difference.high))
        for x in comparisons
        if not math.isnan(x.difference.low)
    )
    usual = ends[len(ends) * 3 // 4] if ends else 0.0
    return min(WIDEST, max(NARROWEST, 1.2 * usual))


def _draw(
    ax: Axes,
    by_dataset: dict[str, Comparison],
    datasets: Sequence[str],
    goal: float,
    span: float,
) -> None:
    ax.axvline(0, color="#999999", linewidth=0.8, zorder=1)
    ax.axvline(goal, color="#999999", linewidth=0.8, linestyle=":", zorder=1)
    for y, name in enumerate(datasets):
        if name in by_dataset and not math.isnan(by_dataset[name].difference.mean):
            x = by_dataset[name]
            _interval(ax, x.difference, y, x.verdict, span)
    mean = over_datasets([x.difference.mean for k, x in by_dataset.items() if k not in made()])
    ax.axhline(len(datasets) - 0.1, color="#cccccc", linewidth=0.6)
    if not math.isnan(mean.low):
        verdict = "ahead" if mean.low > 0 else "behind" if mean.high < 0 else "level"
        _interval(ax, mean, len(datasets) + 0.8, verdict, span, 2.2)
    ax.set_xlim(-span, span)
    ax.locator_params(axis="x", nbins=5)
    ax.grid(visible=False, axis="y")


def _interval(
    ax: Axes, x: Difference, y: float, verdict: str, span: float, width: float = 1.1
) -> None:
    """What lies beyond the span is drawn at its edge, a mean as an arrow."""
    colour, marker, _ = LOOKS[verdict]
    low, mean, high = (min(max(value, -span), span) for value in (x.low, x.mean, x.high))
    ax.plot([low, high], [y, y], color=colour, linewidth=width, zorder=2)
    marker = marker if mean == x.mean else "<" if mean < 0 else ">"
    ax.plot([mean], [y], color=colour, marker=marker, markersize=4 + width, zorder=3)
