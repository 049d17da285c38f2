"""Draw a part of the plan by steps and by ratio, without training.

::

    python -m experiments.figures experiments/paper.toml figure1-digits --records runs/paper.jsonl

The records are those that ``experiments.run`` wrote with the code as it is, or a frozen part
(Parquet). With ``--frozen`` CIFAR-10 at 91/9 from the frozen study of the claims stands beside it.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # draws into files, needs no display

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.freeze import as_row, part_records
from experiments.provenance import code
from experiments.run import read_records

FROZEN = Path(__file__).parent / "results" / "claims-A.parquet"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ECECEC",
    "legend.frameon": False,
    "svg.hashsalt": "aucmax",  # the same records give the same bytes
}
# Okabe and Ito's colours, which colour-blind readers tell apart; cross-entropy is dashed.
LOOKS = {
    "ppd-sg": ("#D55E00", "-"),
    "ppd-adagrad": ("#CC79A7", "-"),
    "pga": ("#009E73", "-"),
    "oauc": ("#E69F00", "-"),
    "ppd-sg-pretrained": ("#000000", "-"),
    "sgd": ("#0072B2", "--"),
    "adagrad": ("#56B4E9", "--"),
    "adagrad-cosine": ("#56B4E9", "--"),
}
OTHER_LOOK = ("#333333", ":")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m experiments.figures", description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("part")
    parser.add_argument("--records", type=Path, required=True, help="JSONL, or a frozen Parquet")
    parser.add_argument("--frozen", action="store_true", help="draw frozen CIFAR-10 runs beside it")
    parser.add_argument("--out", type=Path, default=Path("runs/figures"))
    options = parser.parse_args(arguments)
    if options.records.suffix == ".parquet":
        runs = pd.read_parquet(options.records)
    else:
        records = part_records(options.plan, options.part, read_records(options.records), code())
        runs = pd.DataFrame([as_row(record) for record in records])
    content = tomllib.loads(options.plan.read_text(encoding="utf-8"))
    part = content["parts"][options.part]
    dataset = content["datasets"][part["set"]["dataset"]]["title"]
    runs = finished(runs, content["lines"])
    labels = {line: about["label"] for line, about in content["lines"].items()}
    frozen = reports(FROZEN) if options.frozen else None
    with mpl.rc_context(STYLE):
        figures = {
            "step": by_step(runs, labels, f"{part['title']}: {dataset}", frozen),
            "ratio": by_ratio(runs, labels, f"{dataset}, end of training"),
        }
    for name, figure in figures.items():
        for path in save(figure, options.out, f"{options.part}-by-{name}"):
            print(f"figure: {path}")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG, and return where."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with mpl.rc_context(STYLE):
        figure.savefig(paths[0], dpi=160)
        figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


def finished(runs: pd.DataFrame, lines: Mapping[str, Any]) -> pd.DataFrame:
    """Return the runs that did not diverge, with their panel, iterate and final test AUC."""
    runs = runs[runs.error.isna()]
    panel = runs.ratio
    if runs.protocol.nunique() > 1:
        panel = panel + ", " + runs.protocol
    iterate = runs.line.map(lambda line: lines[line]["returns"])
    final = runs.final_last.where(iterate == "last", runs.final_average)
    return runs.assign(panel=panel, iterate=iterate, final=final)


def reports(path: Path) -> pd.DataFrame:
    """Return the runs of a frozen search that report: each line's chosen settings, fresh seeds."""
    runs = pd.read_parquet(path)
    return runs[runs.roles.map(lambda roles: "report" in roles)]


def by_step(
    runs: pd.DataFrame, labels: Mapping[str, str], title: str, frozen: pd.DataFrame | None = None
) -> Figure:
    """Draw test AUC of the iterate that each line returns, a panel for each ratio and protocol."""
    panels = runs.groupby("panel", sort=False)
    columns = -(-len(panels) // 2)
    width = 3.1 * columns
    if frozen is None:
        figure = grid_figure = plt.figure(figsize=(width, 5.6), layout="constrained")
    else:
        figure = plt.figure(figsize=(4.2 + width, 5.6), layout="constrained")
        frozen_figure, grid_figure = figure.subfigures(1, 2, width_ratios=[4.2, width])
        axes = frozen_figure.subplots()
        curves(axes, frozen, labels)
        axes.set(title="CIFAR-10, 91/9: the paper's comparison", ylabel="test AUC")
        about = (
            f"Frozen records from a GPU: {frozen.seed.nunique()} seeds;\nothers chose the settings."
        )
        frozen_figure.suptitle(about, fontsize=9)
        title += ", trained now.\nNo evidence: digits do not show the claim."
    grid = grid_figure.subplots(min(2, len(panels)), columns, squeeze=False)
    for axes, (panel, group) in zip(grid.flat, panels, strict=False):
        curves(axes, group, labels)
        axes.set_title(panel)
    for axes in figure.axes:
        axes.set_xlabel("steps")
        axes.locator_params(axis="x", nbins=5)
    grid_figure.suptitle(title, fontsize=9)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure


def curves(axes: Axes, runs: pd.DataFrame, labels: Mapping[str, str]) -> None:
    """Draw test AUC by step of each line: mean over seeds, band from the lowest to the highest."""
    for line, label in labels.items():
        own = runs[runs.line == line]
        if own.empty:
            continue
        step = np.unique(np.concatenate([*own.history_step]))
        auc = [
            np.interp(step, run.history_step, run[f"history_test_auc_{run.iterate}"])
            for _, run in own.iterrows()
        ]
        color, style = LOOKS.get(line, OTHER_LOOK)
        axes.fill_between(step, np.min(auc, 0), np.max(auc, 0), color=color, alpha=0.12, lw=0)
        axes.plot(step, np.mean(auc, 0), style, color=color, label=label)


def by_ratio(runs: pd.DataFrame, labels: Mapping[str, str], title: str) -> Figure:
    """Draw the final test AUC of each line by ratio: mean and standard deviation over seeds."""
    final = runs.pivot_table("final", "panel", "line", ["mean", "std"], sort=False)
    names = [line for line in labels if line in final["mean"]]
    figure, axes = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
    for number, line in enumerate(names):
        x = np.arange(len(final)) + 0.06 * (number - len(names) / 2)
        color, style = LOOKS.get(line, OTHER_LOOK)
        mean, sd = final["mean", line], final["std", line].fillna(0.0)
        label = labels[line]
        axes.errorbar(x, mean, sd, fmt=f"o{style}", color=color, label=label, ms=3, lw=1)
    axes.set_xticks(range(len(final)), list(final.index))
    axes.set(title=title, xlabel="ratio", ylabel="test AUC")
    axes.legend(fontsize=7)
    return figure


if __name__ == "__main__":
    main()
