"""The final test AUC by ratio: a panel per dataset and protocol, a line per method."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aucmax.paper import panels
from aucmax.paper.style import Look, dataset_name, looks, protocol_name, ratios_in_order
from aucmax.paper.summary import Row
from aucmax.report import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.6, 3.1)  # inches
DODGE = 0.11  # how far the lines of a ratio stand apart; ratios are 1 apart


class Panel(NamedTuple):
    """The ratios of a panel, the rows that it shows, by line, and what it does not show."""

    ratios: list[str]
    lines: dict[str, list[Row]]
    notes: list[str]


def summary_figure(rows: Sequence[Row]) -> Figure:
    """Final test AUC against the ratio, of the iterate that the curves show.

    A row of panels per dataset, a column per protocol, a line per method as in
    :func:`aucmax.paper.figure`; where there are more than six, those with the highest mean over
    the ratios at which they have one. Bars reach from the lowest seed to the highest. The points
    of a ratio stand side by side, in the order of the legend. Readings of the paper's protocol
    share one scale, other protocols have their own.

    Args:
        rows: from :func:`aucmax.paper.summarize`.

    Returns:
        A figure that belongs to no window; :func:`aucmax.report.drawing.svg` turns it into text.
    """
    if not rows:
        raise ValueError("rows must hold at least one row, found none")
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    protocols = list(dict.fromkeys(row.protocol for row in rows))
    filled = {
        (dataset, protocol): _panel(own)
        for dataset in datasets
        for protocol in protocols
        if (own := [row for row in rows if (row.dataset, row.protocol) == (dataset, protocol)])
    }
    drawn = {line for panel in filled.values() for line in panel.lines}
    look = {line: x for line, x in looks(row.line for row in rows).items() if line in drawn}
    names = {row.line: row.label for row in rows}
    with drawing.plot_style():
        fig = panels.empty_figure(len(datasets), len(protocols), look, names, panel=PANEL)
        for k, dataset in enumerate(datasets):
            axes = dict(zip(protocols, fig.axes[k * len(protocols) :], strict=False))
            for protocol in [x for x in protocols if (dataset, x) not in filled]:
                axes.pop(protocol).set_axis_off()
            for protocol, ax in axes.items():
                _draw(ax, filled[dataset, protocol], look)
            _share_height([ax for x, ax in axes.items() if x.startswith("paper")])
            panels.annotate(
                {ax: (protocol_name(x), filled[dataset, x].notes) for x, ax in axes.items()}
            )
            next(iter(axes.values())).set_ylabel(f"{dataset_name(dataset)}\n\nfinal test AUC")
    return fig


def _panel(rows: Sequence[Row]) -> Panel:
    """What is shown of the rows of one dataset and protocol."""
    ratios = ratios_in_order(row.ratio for row in rows)
    by_line: dict[str, list[Row]] = {}
    for row in rows:
        by_line.setdefault(row.line, []).append(row)
    known = {line: [row for row in own if row.shown.n] for line, own in by_line.items()}
    means = {
        line: statistics.fmean(row.shown.mean for row in own) for line, own in known.items() if own
    }
    best = panels.best_lines(means)
    said: list[str] = []
    for line, own in by_line.items():
        lost, runs = sum(row.diverged for row in own), sum(row.seeds for row in own)
        said += panels.not_shown(own[0].label, lost, runs, "" if known[line] else "values")
    left = [by_line[line][0].label for line in means if line not in best]
    lines = {line: sorted(known[line], key=lambda row: ratios.index(row.ratio)) for line in best}
    return Panel(ratios, lines, panels.notes(said, left, PANEL[0]))


def _share_height(axes: Sequence[Axes]) -> None:
    """Give them one scale, on which the points of one can be compared with those of another."""
    limits = [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _draw(ax: Axes, panel: Panel, look: Mapping[str, Look]) -> None:
    ends = []
    for k, (line, rows) in enumerate(panel.lines.items()):
        shift = DODGE * (k - (len(panel.lines) - 1) / 2)
        x = [panel.ratios.index(row.ratio) + shift for row in rows]
        seeds = [row.shown.by_seed.values() for row in rows]
        low, high = [min(values) for values in seeds], [max(values) for values in seeds]
        ax.vlines(x, low, high, color=look[line].colour, linewidth=1.2, zorder=2)
        style = panels.line_style(look[line]) | {"linewidth": 1.0}
        ax.plot(x, [row.shown.mean for row in rows], zorder=3, **style)
        ends += low + high
    ax.set_ylim(*panels.padded(min(ends), max(ends)) if ends else (0.5, 1.0))
    ax.set_xlim(-0.5, len(panel.ratios) - 0.5)
    ax.set_xticks(range(len(panel.ratios)), panel.ratios)
    ax.set_xlabel("ratio of positives to negatives")
    ax.set_xticks([k + 0.5 for k in range(len(panel.ratios) - 1)], minor=True)
    ax.tick_params(axis="x", which="minor", length=0)
    ax.grid(visible=False, axis="x")
    ax.grid(visible=True, axis="x", which="minor")  # between the ratios
