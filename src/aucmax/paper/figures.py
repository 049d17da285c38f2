"""Curves of the test AUC: a panel per setting, a line per method, a band over seeds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aucmax.checks import choice
from aucmax.paper.curves import Curve, curve
from aucmax.paper.results import RunResult
from aucmax.paper.style import Look, dataset_name, looks, positives_share, protocol_name
from aucmax.paper.summary import grouped, labels, timed_alike
from aucmax.report import drawing
from aucmax.report.drawing import short
from aucmax.report.style import PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = ("step", "seconds")
MARKERS_PER_LINE = 6
LONGEST_NAME = 40  # letters of a line in the legend
EARLY = 0.1  # the share of a curve whose values may be cut off below
LOW = 0.25  # the quantile of a curve's later values that is still shown
TOP = 0.95  # the quantile of a band's upper edge that is still shown
LEAST_SPAN = 0.004  # of a panel's AUC axis: less would magnify noise
SHARED_SPAN = 1.25  # panels of a row share an axis that is at most so many times longer


def figure(runs: Sequence[RunResult], by: str = "step") -> Figure:
    """Test AUC against iterations or seconds.

    A row of panels per protocol and dataset, a column per ratio, a line per method. The band
    reaches from the lowest seed to the highest; one seed has none. Runs that diverged are left
    out of the means, and each panel names them. A point is drawn where every other seed has a
    value.

    Args:
        runs: results of one experiment.
        by: "step", or "seconds" for the step times the line's mean seconds per step, of those
            lines of a panel whose times can be compared.

    Returns:
        A figure that belongs to no window; :func:`aucmax.report.drawing.svg` turns it into text.
    """
    choice("by", by, AXES)
    runs = runs if by == "step" else timed_alike(runs)
    groups = grouped(runs)
    rows = list(dict.fromkeys((key.protocol, key.dataset) for key in groups))
    columns = sorted({key.ratio for key in groups}, key=lambda x: (positives_share(x), x))
    look, names = looks(key.line for key in groups), labels(runs)
    with drawing.plot_style():
        fig = _empty_figure(len(rows), len(columns), look, names)
        for k, row in enumerate(rows):
            axes = dict(zip(columns, fig.axes[k * len(columns) :], strict=False))
            panels = {
                ratio: {
                    key.line: group for key, group in groups.items() if key[:3] == (*row, ratio)
                }
                for ratio in columns
            }
            _draw_row(axes, panels, look, names, by)
            first = next(ax for ax in axes.values() if ax.axison)
            first.set_ylabel(f"{dataset_name(row[1])}, {protocol_name(row[0])}\n\ntest AUC")
    return fig


def _empty_figure(rows: int, columns: int, look: dict[str, Look], names: dict[str, str]) -> Figure:
    """Panels with nothing in them, and below them a legend of all lines."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    width = max(5.0, 2.7 * columns + 0.6)
    inches_of_a_name = 0.9 + 0.08 * min(LONGEST_NAME, max(map(len, names.values())))
    across = max(1, min(3, int(width / inches_of_a_name)))
    height = 2.5 * rows + 0.18 * -(-len(names) // across) + 0.4
    fig = Figure((width, height), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06))
    fig.subplots(rows, columns)
    legend = fig.legend(
        [Line2D([], [], **_line_style(x)) for x in look.values()],
        ["" for _ in look],
        loc="outside lower left",  # where a phone shows it first
        ncols=across,
        handlelength=4.2,
        frameon=False,
    )
    for text, line in zip(legend.get_texts(), look, strict=True):
        # Set here, for a label with an underscore first would be left out above.
        text.set_text(textwrap.fill(names[line], LONGEST_NAME))
    return fig


def _draw_row(
    axes: dict[str, Axes],
    panels: dict[str, dict[str, list[RunResult]]],
    look: dict[str, Look],
    names: dict[str, str],
    by: str,
) -> None:
    """The panels of one protocol and dataset."""
    limits, notes = {}, {}
    for ratio, ax in axes.items():
        if not panels[ratio]:
            ax.set_axis_off()
            continue
        curves = {line: curve(group) for line, group in panels[ratio].items()}
        drawn = {line: c for line, c in curves.items() if c.can_be_drawn(by)}
        for line, c in drawn.items():
            _draw(ax, c, look[line], by)
        notes[ratio] = _notes(panels[ratio], curves, names, by)
        limits[ratio] = _limits(drawn.values())
    most = max(map(len, notes.values()))
    for ratio, (low, high) in _shared(limits).items():
        axes[ratio].set_ylim(low, high)
        axes[ratio].set_title(ratio, fontweight="bold", pad=6 + 11 * most)
        _annotate(axes[ratio], notes[ratio], by)


def _draw(ax: Axes, c: Curve, look: Look, by: str) -> None:
    x, points = c.x(by), len(c.steps)
    every = max(1, points // MARKERS_PER_LINE)
    first = (look.slot * 2 + 1) * every // 12 % every  # lines have their markers at other places
    ax.plot(x, c.mean, markevery=(min(first, points - 1), every), zorder=3, **_line_style(look))
    if not np.isnan(c.low).all():
        ax.fill_between(x, c.low, c.high, color=look.colour, alpha=0.16, linewidth=0, zorder=2)


def _line_style(look: Look) -> dict[str, Any]:
    return {
        "color": look.colour,
        "linestyle": (0, look.dashes) if look.dashes else "-",
        "marker": look.marker,
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.6,
    }


def _annotate(ax: Axes, notes: list[str], by: str) -> None:
    """Notes under the title, and the axes."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if notes:
        ax.annotate(
            "\n".join(notes), (0.5, 1), xytext=(0, 4), xycoords="axes fraction",
            textcoords="offset points", ha="center", va="bottom", fontsize=8, annotation_clip=False,
        )  # fmt: skip
    ax.set_xlabel("iteration" if by == "step" else "seconds")
    ax.set_xlim(left=0)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def _notes(
    panel: dict[str, list[RunResult]], curves: dict[str, Curve], names: dict[str, str], by: str
) -> list[str]:
    """What a panel does not show, in lines that fit above it."""
    said = []
    for line, group in panel.items():
        lost = sum(run.has_diverged for run in group)
        if lost:
            said.append(f"{names[line]} diverged ({lost} of {len(group)})")
        if lost < len(group) and not curves[line].can_be_drawn(by):
            said.append(f"{names[line]}: no {'values' if not len(curves[line].steps) else 'times'}")
    return textwrap.wrap("; ".join(said), 38)


def _limits(curves: Iterable[Curve]) -> tuple[float, float]:
    """A range that shows all later values well; the first, noisy ones may be cut off."""
    lows, highs = [], []
    for c in curves:
        late = c.steps > EARLY * c.steps[-1]
        mean, band = c.mean[late], c.high[late]
        lows.append(float(np.quantile(mean, LOW)))
        top = mean.max() if np.isnan(band).all() else np.quantile(band, TOP)
        highs.append(max(float(top), float(mean.max())))
    if not lows:
        return 0.5, 1.0
    low, high = min(lows), max(highs)
    margin = 0.06 * max(high - low, LEAST_SPAN)
    return min(low, high - LEAST_SPAN) - margin, high + margin


def _shared(limits: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """One range for all panels of a row, unless it would press one of them flat."""
    low, high = min(x for x, _ in limits.values()), max(x for _, x in limits.values())
    shortest = min(top - bottom for bottom, top in limits.values())
    fits = high - low <= SHARED_SPAN * shortest
    return {ratio: (low, high) if fits else own for ratio, own in limits.items()}
