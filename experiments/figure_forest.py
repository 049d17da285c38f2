"""A forest plot: differences with their intervals, one per row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

AHEAD, BEHIND, LEVEL = "#0072B2", "#D55E00", "#777777"


def forest(rows: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draw differences with "low" and "high" around zero; the other texts of a row are its name.

    What excludes zero has a colour and a larger mark. An unknown interval is left out.
    """
    if not rows:
        raise ValueError("rows must hold at least one difference, found none")
    figure = Figure(figsize=(7.0, 0.8 + 0.28 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for y, row in enumerate(rows):
        value, low, high = row["difference"], row["low"], row["high"]
        colour = AHEAD if low > 0 else BEHIND if high < 0 else LEVEL
        if math.isfinite(low) and math.isfinite(high):
            axes.plot([low, high], [y, y], color=colour, linewidth=1.5)
        axes.plot([value], [y], "o", color=colour, markersize=4 if colour == LEVEL else 6)
    axes.axvline(0, color="#333333", linewidth=0.8, zorder=0)
    names = [", ".join(x for x in row.values() if isinstance(x, str)) for row in rows]
    axes.set_yticks(
        range(len(rows)), [f"{x} (n = {r['n']})" for x, r in zip(names, rows, strict=True)]
    )
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("best ranking objective minus best likelihood")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
