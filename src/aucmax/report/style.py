"""Colours and settings that every figure and page has in common."""

from __future__ import annotations

from typing import Any, NamedTuple

# On white, and on a dark ground: the same hue twice, the lightness chosen for each ground.
COLOURS = (
    ("#123f8c", "#9fd0fb"),  # blue
    ("#c9510c", "#ff9448"),  # vermilion
    ("#0b9c74", "#26b085"),  # green
    ("#52a9e2", "#4f8bdc"),  # sky
    ("#000000", "#ffffff"),  # black, or white
    ("#883da0", "#9c50bd"),  # purple
    ("#4a1030", "#a33a62"),  # wine
    ("#e3b52a", "#f3dd7c"),  # amber
)
INK, PAPER, GRID = "#222222", "#fefefe", "#dddddd"

MATPLOTLIB: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "text.parse_math": False,  # a dollar sign in a label is one
    "svg.hashsalt": "aucmax",  # the same runs give the same bytes
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
}

DARK_GROUND = {INK: "#e4e4e4", PAPER: "#15181d", GRID: "#3a3f47"}


class PageColour(NamedTuple):
    """A variable of the style sheet, and its colour in print and by day, and by night."""

    name: str
    light: str
    dark: str


PAGE_COLOURS = [
    *(PageColour(f"line-{i}", *pair) for i, pair in enumerate(COLOURS)),
    *map(PageColour, ("ink", "paper", "grid"), DARK_GROUND.keys(), DARK_GROUND.values()),
]
