"""Figures of several panels: the best lines of each, notes above it, one legend below all."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aucmax.paper.style import MARKER_SIZES, Look
from aucmax.report.style import PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 6
"""In one panel; more cannot be told apart at a glance, and are left to the table."""

LONGEST_NAME = 40  # letters of a line in the legend
LETTERS_PER_INCH = 14  # of the notes above a panel
LEAST_SPAN = 0.004  # of a panel's AUC axis: less would magnify noise


def best_lines(means: Mapping[str, float]) -> list[str]:
    """The lines of a panel that are drawn, in the order in which they came.

    Args:
        means: the final test AUC of each line that can be drawn. Of equal ones the first is the
            better, and nan is worse than any.
    """
    ranked = sorted(means, key=lambda line: math.inf if math.isnan(means[line]) else -means[line])
    return [line for line in means if line in ranked[:MOST_LINES]]


def empty_figure(
    rows: int,
    columns: int,
    look: Mapping[str, Look],
    names: Mapping[str, str],
    *,
    panel: tuple[float, float],
) -> Figure:
    """Panels with nothing in them, and below them a legend.

    Args:
        rows: of panels.
        columns: of panels.
        look: the lines that are drawn.
        names: of these, and perhaps of others.
        panel: width and height of one, in inches.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    width = max(5.0, panel[0] * columns + 0.6)
    longest = max((len(names[line]) for line in look), default=0)
    across = max(1, min(3, int(width / (0.9 + 0.08 * min(LONGEST_NAME, longest)))))
    height = panel[1] * rows + 0.18 * -(-len(look) // across) + 0.4
    fig = Figure((width, height), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06))
    fig.subplots(rows, columns)
    legend = fig.legend(
        [Line2D([], [], **line_style(x)) for x in look.values()],
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


def line_style(look: Look) -> dict[str, Any]:
    """The look in matplotlib's words."""
    return {
        "color": look.colour,
        "linestyle": (0, look.dashes) if look.dashes else "-",
        "marker": look.marker,
        "markersize": MARKER_SIZES.get(look.marker, 5.0),
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.6,
    }


def not_shown(name: str, diverged: int, runs: int, missing: str = "") -> list[str]:
    """What is said of a line in a panel that lacks runs of it, or lacks ``missing``."""
    said = [f"{name} diverged ({diverged} of {runs})"] if diverged else []
    return said + ([f"{name}: no {missing}"] if missing and diverged < runs else [])


def notes(said: Iterable[str], in_the_table: Iterable[str], width: float) -> list[str]:
    """What a panel does not show, in lines that fit above it.

    Args:
        said: of single lines, from :func:`not_shown`.
        in_the_table: names of lines that are not drawn because others are better.
        width: of the panel, in inches.
    """
    left = " and ".join(in_the_table)
    parts = [*said, *([f"{left}: in the table"] if left else [])]
    letters = int(LETTERS_PER_INCH * width)
    return textwrap.wrap("; ".join(parts), letters, break_on_hyphens=False)


def annotate(axes: Mapping[Axes, tuple[str, list[str]]]) -> None:
    """Titles, and notes below them, of the panels of one row."""
    from matplotlib.ticker import MaxNLocator

    most = max(len(lines) for _, lines in axes.values())
    for ax, (title, lines) in axes.items():
        ax.set_title(title, fontweight="bold", pad=6 + 11 * most)
        if lines:
            ax.annotate(
                "\n".join(lines), (0.5, 1), xytext=(0, 4), xycoords="axes fraction",
                textcoords="offset points", ha="center", va="bottom", fontsize=8,
                annotation_clip=False,
            )  # fmt: skip
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], min_n_ticks=3))


def padded(low: float, high: float) -> tuple[float, float]:
    """A range of the AUC axis in which these lie, a little off its ends."""
    margin = 0.06 * max(high - low, LEAST_SPAN)
    return min(low, high - LEAST_SPAN) - margin, high + margin
