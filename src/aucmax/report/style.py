"""How a line looks and what things are called, the same in every figure and table.

A line is told apart by its dashes, by its markers and by the lightness of its colour, so that a
figure can be read in print without colour and by people who see few colours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

LINES = ("ppd-sg", "ppd-adagrad", "pga", "oauc", "sgd", "adagrad")
"""Lines with a place and a look of their own; others follow as they come."""

AUC_METHODS = LINES[:4]
CROSS_ENTROPY = LINES[4:]

DATASETS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "stl10": "STL-10",
    "catdog": "Cat & Dog",
}
PROTOCOLS = {"paper": "paper's protocol", "strong": "strong protocol"}

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

# Lengths of strokes and gaps in line widths; none is a solid line.
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 2),
    (7, 2, 1.5, 2),
    (1.2, 1.3),
    (3, 1.5),
    (7, 2, 1.5, 2, 1.5, 2),
    (11, 3),
)
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "*", "<")

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


class Look(NamedTuple):
    """How one line is drawn."""

    colour: str
    dashes: tuple[float, ...]
    marker: str
    slot: int


def looks(lines: Iterable[str]) -> dict[str, Look]:
    """A look for each line; known ones keep theirs, others take what is free.

    Seven dashes and nine markers have no common divisor: 63 lines differ in one or the other.
    """
    found = list(dict.fromkeys(lines))
    taken = {line: LINES.index(line) for line in found if line in LINES}
    free = (slot for slot in range(len(LINES) + len(found)) if slot not in taken.values())
    slots = {line: taken[line] if line in taken else next(free) for line in found}
    return {line: _look(slot) for line, slot in slots.items()}


def _look(slot: int) -> Look:
    colour = COLOURS[slot % len(COLOURS)][0]
    return Look(colour, DASHES[slot % len(DASHES)], MARKERS[slot % len(MARKERS)], slot)


def in_order(lines: Iterable[str]) -> list[str]:
    """The known lines in their order, then the others as they come."""
    found = list(dict.fromkeys(lines))
    return [line for line in LINES if line in found] + [x for x in found if x not in LINES]


def is_a(line: str, names: tuple[str, ...]) -> bool:
    """Whether a line is one of these or a variant, such as "ppd-sg-t0-500" of "ppd-sg"."""
    return any(line == name or line.startswith((f"{name}-", f"{name} ")) for name in names)


def dataset_name(dataset: str) -> str:
    """As people write it."""
    return DATASETS.get(dataset, dataset)


def protocol_name(protocol: str) -> str:
    """As people say it."""
    return PROTOCOLS.get(protocol, f"{protocol} protocol")


def positives_share(ratio: str) -> float:
    """The share of positives in "91/9" or "20:1"; infinity if it is neither, to sort it last."""
    try:
        positives, negatives = map(float, ratio.replace(":", "/").split("/"))
        return positives / (positives + negatives)
    except (ValueError, ZeroDivisionError):
        return float("inf")
