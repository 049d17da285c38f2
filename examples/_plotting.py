"""What the example figures share: colours, style, labels at the curves' ends, saving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # draws into files, needs no display

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Three of Okabe and Ito's colours, which stay apart for colour-blind readers and in print.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
INK, FAINT = "#333333", "#D9D9D9"

STYLE = {
    "font.size": 11,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 30,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ECECEC",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.hashsalt": "aucmax",  # the same run writes the same bytes
}


def new_figure(title: str, subtitle: str) -> tuple[Figure, Axes]:
    """An empty pair of axes under a title that says what is shown."""
    with mpl.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(8.4, 4.8), layout="constrained")
        ax.set_title(title)
        ax.text(0, 1.03, subtitle, transform=ax.transAxes, fontsize=10, va="bottom")
    return fig, ax


def label_ends(
    ax: Axes, heights: Sequence[float], texts: Sequence[str], colors: Sequence[str]
) -> None:
    """Write each curve's name to the right of its end, moved apart where they would overlap.

    Call it once the limits are final.
    """
    points = [ax.transAxes.inverted().transform(ax.transData.transform((1, y)))[1] for y in heights]
    lines = max(text.count("\n") + 1 for text in texts)
    gap = 0.055 * lines
    order = sorted(range(len(points)), key=lambda i: points[i])
    placed: dict[int, float] = {}
    for i in order:
        placed[i] = max(points[i], placed[order[len(placed) - 1]] + gap if placed else -1.0)
    shift = sum(placed[i] - points[i] for i in order) / len(order)
    for i in order:
        height = placed[i] - shift
        ax.text(
            1.015,
            height,
            texts[i],
            transform=ax.transAxes,
            color=colors[i],
            va="center",
            fontsize=10,
        )


def save(fig: Figure, folder: Path, name: str) -> list[Path]:
    """Write the figure as PNG and SVG, and say where."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with mpl.rc_context(STYLE):
        fig.savefig(paths[0], dpi=160)
        fig.savefig(paths[1], metadata={"Date": None})
    plt.close(fig)
    return paths
