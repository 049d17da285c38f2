"""Curves of the test AUC: a panel per setting, a line per method, a band over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aucmax.checks import choice
from aucmax.paper import panels
from aucmax.paper.curves import Curve, curve
from aucmax.paper.results import RunResult
from aucmax.paper.style import Look, dataset_name, looks, protocol_name, ratios_in_order
from aucmax.paper.summary import Row, grouped, summarize, timed_alike
from aucmax.report import drawing
from aucmax.report.drawing import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = ("step", "seconds")
PANEL = (2.7, 2.5)  # inches
MARKERS_PER_LINE = 6
EARLY = 0.1  # the share of a curve whose values may be cut off below
LOW = 0.25  # the quantile of a curve's later values that is still shown
TOP = 0.95  # the quantile of a band's upper edge that is still shown
SHARED_SPAN = 1.25  # panels of a row share an axis that is at most so many times longer


class Panel(NamedTuple):
    """The curves that a panel shows, by line, and what it does not show."""

    curves: dict[str, Curve]
    notes: list[str]


def figure(runs: Sequence[RunResult], by: str = "step") -> Figure:
    """Test AUC against iterations or seconds.

    A row of panels per protocol and dataset, a column per ratio, a line per method; where there
    are more than six, those with the highest final mean. The band reaches from the lowest seed to
    the highest; one seed has none. Runs that diverged are left out of the means, and each panel
    names them and the methods that it leaves to the table. A point is drawn where every other
    seed has a value.

    Args:
        runs: results of one experiment.
        by: "step", or "seconds" for the step times the line's mean seconds per step, of those
            lines of a panel whose times can be compared.

    Returns:
        A figure that belongs to no window; :func:`aucmax.report.drawing.svg` turns it into text.
    """
    choice("by", by, AXES)
    rows = summarize(runs)
    filled = _panels(rows, runs if by == "step" else timed_alike(runs), by)
    columns = ratios_in_order(ratio for _, _, ratio in filled)
    drawn = {line for panel in filled.values() for line in panel.curves}
    look = {line: x for line, x in looks(row.line for row in rows).items() if line in drawn}
    names = {row.line: row.label for row in rows}
    places = list(dict.fromkeys(setting[:2] for setting in filled))
    with drawing.plot_style():
        fig = panels.empty_figure(len(places), len(columns), look, names, panel=PANEL)
        for k, place in enumerate(places):
            axes = dict(zip(columns, fig.axes[k * len(columns) :], strict=False))
            for ratio in [ratio for ratio in columns if (*place, ratio) not in filled]:
                axes.pop(ratio).set_axis_off()
            _draw_row(axes, {ratio: filled[*place, ratio] for ratio in axes}, look, by)
            first = next(iter(axes.values()))
            where = f"{dataset_name(place[1])}\n{protocol_name(place[0])}"
            first.set_ylabel(f"{where}\n\ntest AUC")
    return fig


def _panels(
    rows: Sequence[Row], runs: Sequence[RunResult], by: str
) -> dict[tuple[str, str, str], Panel]:
    """A panel for each protocol, dataset and ratio."""
    groups: dict[tuple[str, str, str], dict[str, list[RunResult]]] = {}
    for key, group in grouped(runs).items():
        groups.setdefault(key.setting, {})[key.line] = group
    return {
        setting: _panel({row.line: row for row in rows if row.setting == setting}, lines, by)
        for setting, lines in groups.items()
    }


def _panel(rows: Mapping[str, Row], groups: Mapping[str, list[RunResult]], by: str) -> Panel:
    curves = {line: curve(group) for line, group in groups.items()}
    can_be_drawn = [line for line, c in curves.items() if c.can_be_drawn(by)]
    best = panels.best_lines({line: rows[line].shown.mean for line in can_be_drawn})
    said: list[str] = []
    for line, group in groups.items():
        missing = "" if line in can_be_drawn else "times" if len(curves[line].steps) else "values"
        lost = sum(run.has_diverged for run in group)
        said += panels.not_shown(rows[line].label, lost, len(group), missing)
    left = [rows[line].label for line in can_be_drawn if line not in best]
    return Panel({line: curves[line] for line in best}, panels.notes(said, left, PANEL[0]))


def _draw_row(
    axes: Mapping[str, Axes], row: Mapping[str, Panel], look: Mapping[str, Look], by: str
) -> None:
    """The panels of one protocol and dataset."""
    limits = _shared({ratio: _limits(panel.curves.values()) for ratio, panel in row.items()})
    for ratio, ax in axes.items():
        for line, c in row[ratio].curves.items():
            _draw(ax, c, look[line], by)
        _set_axes(ax, limits[ratio], by)
    panels.annotate({ax: (ratio, row[ratio].notes) for ratio, ax in axes.items()})


def _draw(ax: Axes, c: Curve, look: Look, by: str) -> None:
    x, points = c.x(by), len(c.steps)
    every = max(1, points // MARKERS_PER_LINE)
    first = (look.slot * 2 + 1) * every // 12 % every  # lines have their markers at other places
    style = panels.line_style(look)
    ax.plot(x, c.mean, markevery=(min(first, points - 1), every), zorder=3, **style)
    if not np.isnan(c.low).all():
        ax.fill_between(x, c.low, c.high, color=look.colour, alpha=0.16, linewidth=0, zorder=2)


def _set_axes(ax: Axes, limits: tuple[float, float], by: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax.set_ylim(*limits)
    ax.set_xlabel("iteration" if by == "step" else "seconds")
    ax.set_xlim(left=0)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def _limits(curves: Iterable[Curve]) -> tuple[float, float]:
    """A range that shows later values well and every peak; a low beginning may be cut off."""
    lows, highs = [], []
    for c in curves:
        late = c.steps > EARLY * c.steps[-1]
        band = c.high[late]
        lows.append(float(np.quantile(c.mean[late], LOW)))
        highs.append(float(c.mean.max()))
        if not np.isnan(band).all():
            highs.append(float(np.quantile(band, TOP)))
    return panels.padded(min(lows), max(highs)) if lows else (0.5, 1.0)


def _shared(limits: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """One range for all panels of a row, unless it would press one of them flat."""
    low, high = min(x for x, _ in limits.values()), max(x for _, x in limits.values())
    shortest = min(top - bottom for bottom, top in limits.values())
    fits = high - low <= SHARED_SPAN * shortest
    return {ratio: (low, high) if fits else own for ratio, own in limits.items()}
