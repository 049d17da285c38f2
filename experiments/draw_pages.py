"""Draw the figures of docs/results from the frozen records, training nothing.

python -m experiments.draw_pages

A forest plot shows the rows of its page's table, as quotes.toml defines them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import matplotlib as mpl
import pandas as pd  # type: ignore[import-untyped]
from matplotlib.figure import Figure

from experiments.check import ROOT, compute, merged, read, read_quotes
from experiments.figures import LOOKS, STYLE, curves, reports

RECORDS, PAGES = ROOT / "experiments" / "results", ROOT / "docs" / "results"
LABELS = {
    "ppd-adagrad": "PPD-AdaGrad",
    "ppd-sg": "PPD-SG",
    "pga": "PGA",
    "adagrad": "AdaGrad on cross-entropy",
    "sgd": "SGD on cross-entropy",
    "oauc": "OAUC",
}
DATASETS = {
    "cifar10": "CIFAR-10",
    "catdog": "Cat & Dog",
    "cifar100": "CIFAR-100",
    "stl10": "STL-10",
}
AHEAD, BEHIND, LEVEL = "#0072B2", "#D55E00", "#777777"


def main() -> None:
    """Write all figures."""
    mpl.rcParams.update(STYLE | {"svg.fonttype": "none", "font.family": "sans-serif"})
    when = [row for row in quoted("when", (0, 1, 2)) if "*" not in row["name"]]
    figures = {
        "paper-steps": by_step(),
        "paper-search": by_step_size(),
        "when": forest(when, xlabel="ranking loss minus likelihood", xlim=(-0.05, 0.05)),
        "tables": forest(
            quoted("tables", (2, 3, 4)),
            xlabel="lead of AUCClassifier in test AUC",
            xlim=(-0.01, 0.07),
        ),
    }
    for name, figure in figures.items():
        figure.savefig(PAGES / f"{name}.svg", facecolor="white", metadata={"Date": None})


def by_step() -> Figure:
    """Draw figure 1: test AUC by step, a panel for each data set at 91/9 that is complete."""
    names = [f"claims-{part}" for part in ("A", "B", "B-stl10")]
    paths = [RECORDS / f"{name}.parquet" for name in names]
    runs = pd.concat([reports(path) for path in paths if path.exists()])
    panels = [(name, own) for name, own in runs.groupby("dataset") if name in DATASETS]
    panels.sort(key=lambda panel: [*DATASETS].index(panel[0]))
    figure = Figure(figsize=(8.6, 3.4), layout="constrained")
    for axes, (name, own) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        curves(axes, own, LABELS)
        axes.set(title=DATASETS[name], xlabel="training step", xticks=range(0, 20_001, 10_000))
        axes.set(xlim=(0, 20_000))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    figure.axes[0].set_ylabel("test AUC")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def by_step_size() -> Figure:
    """Draw validation AUC by first step size on CIFAR-10, the best other settings of each."""
    runs = read("claims-A")
    runs = runs[runs.roles.map(lambda roles: "search" in roles) & runs.error.isna()]
    step_size = runs.settings.map(lambda text: json.loads(text)["lr"])
    figure = Figure(figsize=(7.6, 3.6), layout="constrained")
    axes = figure.subplots()
    for line, label in LABELS.items():
        own = runs.line == line
        best = runs[own].groupby(step_size[own]).final_valid.max()
        color, style = LOOKS[line]
        axes.plot(best.index, best, style, marker="o", ms=4, color=color, label=label)
    axes.axvspan(0.005, 0.1, color="#dddddd", alpha=0.6, lw=0, zorder=0)
    axes.text(0.0055, 0.83, "grid printed in the paper", color="#555555")
    ticks = ["0.01", "0.1", "1", "10"]
    axes.set(xlabel="first step size", ylabel="validation AUC", xscale="log", ylim=(0.5, 0.85))
    axes.set(xlim=(0.0025, 40), xticks=[float(tick) for tick in ticks], xticklabels=ticks)
    figure.legend(loc="outside right center")
    return figure


def quoted(page: str, which: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    """Yield name, difference, low, high and n of each row of a page's table of differences.

    Args:
        page: name of the page.
        which: places of mean, low and high among the values of a row.
    """
    for quote in read_quotes()["quote"]:
        if quote["page"] != f"docs/results/{page}.rst" or "({} to {})" not in quote["text"]:
            continue
        first_cell = quote["text"].removeprefix("* - ").split(" - ")[0]
        for name, row in quote.get("rows", {first_cell: {}}).items():
            specs = [merged(quote, row, quote["values"][k]) for k in which]
            mean, low, high = map(compute, specs)
            n = int(compute({**specs[0], "stat": "n", "scale": 1}))
            yield {"name": name.strip("`"), "difference": mean, "low": low, "high": high, "n": n}


def forest(rows: Iterable[dict[str, Any]], **axes_options: Any) -> Figure:
    """Draw differences with their intervals around zero, one per row.

    What excludes zero has a colour and a larger mark.
    """
    rows = list(rows)
    figure = Figure(figsize=(7.0, 0.8 + 0.28 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for y, row in enumerate(rows):
        low, high = row["low"], row["high"]
        color = AHEAD if low > 0 else BEHIND if high < 0 else LEVEL
        axes.plot([low, high], [y, y], color=color, linewidth=1.5)
        axes.plot([row["difference"]], [y], "o", color=color, markersize=4 if color == LEVEL else 6)
    axes.axvline(0, color="#333333", linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(rows)), [f"{row['name']} (n = {row['n']})" for row in rows])
    axes.set(ylim=(len(rows) - 0.5, -0.5), **axes_options)
    return figure


if __name__ == "__main__":
    main()
