"""How a line looks and what things are called, the same in every figure and table of the paper.

A line is told apart by its dashes, by its markers and by the lightness of its colour, so that a
figure can be read in print without colour and by people who see few colours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from aucmax.paper.settings import dataset_titles
from aucmax.report.style import COLOURS

LINES = ("ppd-sg", "ppd-adagrad", "pga", "oauc", "sgd", "adagrad")
"""Lines with a place and a look of their own; others follow as they come."""

AUC_METHODS = LINES[:4]
CROSS_ENTROPY = LINES[4:]

DATASETS = dataset_titles()
PROTOCOLS = {
    "paper": "paper's protocol",
    "paper-after": "held out after thinning",
    "paper-none": "nothing held out",
    "strong": "strong protocol",
}

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
MARKER_SIZES = {"^": 6.0, "v": 6.0, "<": 6.0, "X": 6.5, "P": 7.0, "*": 9.0}
"""In points, of those that would look smaller than others of 5."""


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
    names = list(dict.fromkeys(lines))
    own = {name: LINES.index(name) for name in names if name in LINES}
    free = (slot for slot in range(len(LINES) + len(names)) if slot not in own.values())
    chosen = {}
    for name in names:
        slot = own[name] if name in own else next(free)
        colour = COLOURS[slot % len(COLOURS)][0]
        dashes, marker = DASHES[slot % len(DASHES)], MARKERS[slot % len(MARKERS)]
        chosen[name] = Look(colour, dashes, marker, slot)
    return chosen


def in_order(lines: Iterable[str]) -> list[str]:
    """The known lines in their order, then the others as they come."""
    names = list(dict.fromkeys(lines))
    return [name for name in LINES if name in names] + [x for x in names if x not in LINES]


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


def ratios_in_order(ratios: Iterable[str]) -> list[str]:
    """Each ratio once, from few positives to many."""
    return sorted(set(ratios), key=lambda ratio: (positives_share(ratio), ratio))
