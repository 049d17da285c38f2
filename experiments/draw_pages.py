"""Draw the figures of docs/results from the frozen records, training nothing.

python -m experiments.draw_pages

A forest plot shows the rows of its page's table, as quotes.toml defines them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.check import ROOT, compute, merged
from experiments.figure_forest import forest
from experiments.figures import LOOKS, STYLE

RECORDS, PAGES = ROOT / "experiments" / "results", ROOT / "docs" / "results"
LABELS = {
    "ppd-adagrad": "PPD-AdaGrad",
    "ppd-sg": "PPD-SG",
    "pga": "PGA",
    "adagrad": "AdaGrad on cross-entropy",
    "sgd": "SGD on cross-entropy",
    "oauc": "OAUC",
}
LAST_ITERATE = ("sgd", "adagrad")
"""Methods that return their last iterate; the others return an average."""


def curves(axes: Axes) -> None:
    """Draw test AUC by step on CIFAR-10 at 91/9 under the paper's protocol, 20,000 steps."""
    runs = pd.read_parquet(RECORDS / "figures.parquet")
    runs = runs[runs.figures.map(lambda names: "figure1" in names) & (runs.protocol == "paper")]
    runs = runs[(runs.dataset == "cifar10") & (runs.ratio == "91/9")]
    for line, label in LABELS.items():
        chosen = runs[runs.line == line]
        if chosen.empty:
            continue
        name = "history_test_auc_" + ("last" if line in LAST_ITERATE else "average")
        step = np.unique(np.concatenate([*chosen.history_step]))
        auc = [np.interp(step, run.history_step, run[name]) for _, run in chosen.iterrows()]
        color, style = LOOKS[line]
        axes.fill_between(step, np.min(auc, 0), np.max(auc, 0), color=color, alpha=0.12, lw=0)
        axes.plot(step, np.mean(auc, 0), style, color=color, label=label)
    axes.set(xlabel="training step", ylabel="test AUC", xticks=range(0, 20_001, 5_000))
    axes.set(xlim=(0, 20_000))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def step_sizes(axes: Axes) -> None:
    """Draw the pilot's final test AUC by first step size, at the best T0 of each, seed 3."""
    runs = pd.read_parquet(RECORDS / "pilot.parquet")
    runs = runs[(runs.seed == 3) & runs.error.isna() & (runs.gamma.isna() | (runs.gamma == 2000))]
    for line, label in LABELS.items():
        best = runs[runs.line == line].groupby("eta0").final.max()
        color, style = LOOKS[line]
        axes.plot(best.index, best, style, marker="o", ms=4, color=color, label=label)
    axes.axvspan(0.005, 0.1, color="#dddddd", alpha=0.6, lw=0, zorder=0)
    axes.text(0.0055, 0.83, "grid printed in the paper", color="#555555")
    axes.set(xlabel="first step size", ylabel="final test AUC", xscale="log", ylim=(0.5, 0.85))
    axes.set(xlim=(0.005, 15), xticks=[0.01, 0.1, 1, 10], xticklabels=["0.01", "0.1", "1", "10"])


def quoted(page: str, which: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    """Yield name, difference, low and high of each row of a page's table of differences.

    Args:
        page: name of the page.
        which: places of mean, low and high among the values of a row.
    """
    quotes = tomllib.loads((ROOT / "experiments" / "quotes.toml").read_text(encoding="utf-8"))
    for quote in quotes["quote"]:
        if quote["page"] != f"docs/results/{page}.rst" or "({} to {})" not in quote["text"]:
            continue
        first_cell = quote["text"].removeprefix("* - ").split(" - ")[0]
        for name, row in quote.get("rows", {first_cell: {}}).items():
            values = [x if isinstance(x, dict) else {"stat": x} for x in quote["values"]]
            specs = [merged(quote, row, values[k]) for k in which]
            mean, low, high = map(compute, specs)
            n = int(compute({**specs[0], "stat": "n", "scale": 1}))
            yield {"name": name.strip("`"), "difference": mean, "low": low, "high": high, "n": n}


def save(name: str, figure: Figure) -> None:
    """Write docs/results/NAME.svg."""
    figure.savefig(PAGES / f"{name}.svg", facecolor="white", metadata={"Date": None})


def main() -> None:
    """Write all figures."""
    mpl.rcParams.update(STYLE | {"svg.fonttype": "none", "font.family": "sans-serif"})
    for name, draw in {"paper-steps": curves, "paper-pilot": step_sizes}.items():
        figure = Figure(figsize=(7.6, 3.6), layout="constrained")
        draw(figure.subplots())
        figure.legend(loc="outside right center")
        save(name, figure)
    figure = forest([row for row in quoted("when", (0, 1, 2)) if "*" not in row["name"]])
    figure.axes[0].set(xlabel="ranking loss minus likelihood", xlim=(-0.05, 0.05))
    save("when", figure)
    figure = forest([*quoted("tables", (2, 3, 4))])
    figure.axes[0].set(xlabel="lead of AUCClassifier in test AUC", xlim=(-0.01, 0.07))
    save("tables", figure)


if __name__ == "__main__":
    main()
