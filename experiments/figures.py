"""Draw a part of the plan by steps and by ratio, without training.

::

    python -m experiments.figures experiments/paper.toml figure1-digits --records runs/paper.jsonl

The records are those that ``experiments.run`` wrote, or a frozen part (Parquet). With ``--pilot``
CIFAR-10 at 91/9 from the frozen pilot stands beside it.
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
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pyarrow import parquet

from experiments.freeze import as_row, part_records
from experiments.provenance import code
from experiments.run import read_records

PILOT = Path(__file__).parent / "results" / "pilot.parquet"
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
}

Rows = list[dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m experiments.figures", description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("part")
    parser.add_argument("--records", type=Path, required=True, help="JSONL, or a frozen Parquet")
    parser.add_argument("--code", help="of the records; that of the code as it is by default")
    parser.add_argument("--pilot", action="store_true", help="draw the frozen pilot beside it")
    parser.add_argument("--out", type=Path, default=Path("runs/figures"))
    options = parser.parse_args(arguments)
    if options.records.suffix == ".parquet":
        rows = parquet.read_table(options.records).to_pylist()
    else:
        records, own_code = read_records(options.records), options.code or code()
        rows = [as_row(x) for x in part_records(options.plan, options.part, records, own_code)]
    content = tomllib.loads(options.plan.read_text(encoding="utf-8"))
    lines, part = content["lines"], content["parts"][options.part]
    dataset = content["datasets"][part["set"]["dataset"]]["title"]
    pilot = parquet.read_table(PILOT).to_pylist() if options.pilot else None
    step = by_step(rows, lines, f"{part['title']}: {dataset}", pilot)
    for name, figure in (("step", step), ("ratio", by_ratio(rows, lines, dataset))):
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


def by_step(rows: Rows, lines: Mapping[str, Any], title: str, pilot: Rows | None = None) -> Figure:
    """Draw test AUC of the iterate that each line returns, a panel for each ratio and protocol."""
    panels = settings_of(rows)
    columns, more = -(-len(panels) // 2), pilot is not None
    with mpl.rc_context(STYLE):
        figure = plt.figure(
            figsize=(3.1 * columns + (4.2 if more else 0), 5.6), layout="constrained"
        )
        left, right = (
            figure.subfigures(1, 2, width_ratios=[4.2, 3.1 * columns]) if more else (None, figure)
        )
        if left is not None and pilot is not None:
            axes = left.subplots()
            curves(axes, best_of_pilot(pilot), {})
            axes.set_title("CIFAR-10, 91/9: the paper's comparison")
            axes.set_ylabel("test AUC")
            left.suptitle(
                "Frozen records: the pilot on a GPU, 1 to 3 seeds,\nwhich chose the settings, too.",
                fontsize=9,
            )
            title += ", trained now.\nNo evidence: digits do not show the claim."
        grid = right.subplots(min(2, len(panels)), columns, squeeze=False)
        for axes, (panel, group) in zip(grid.flat, panels.items(), strict=False):
            curves(axes, group, lines)
            axes.set_title(panel)
        right.suptitle(title, fontsize=9)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def curves(axes: Axes, rows: Rows, lines: Mapping[str, Any]) -> None:
    """Draw the mean over the seeds of each line, and the band from the lowest to the highest."""
    for line, group in grouped(rows, "line").items():
        returns = lines[line]["returns"] if line in lines else group[0]["iterate"]
        finished = [row for row in group if not row.get("error")]
        if not finished:
            continue
        steps = finished[0]["history_step"]
        values = np.array([row[f"history_test_auc_{returns}"] for row in finished])
        colour, style = LOOKS.get(line, ("#333333", ":"))
        label = lines[line]["label"] if line in lines else line
        axes.plot(steps, values.mean(0), style, color=colour, label=label, linewidth=1.5)
        if len(values) > 1:
            axes.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.15, lw=0)
    axes.set_xlabel("steps")
    axes.locator_params(axis="x", nbins=5)


def by_ratio(rows: Rows, lines: Mapping[str, Any], dataset: str) -> Figure:
    """Draw the final test AUC of each line by ratio: mean and standard deviation over seeds."""
    settings = settings_of([row for row in rows if not row.get("error")])
    names = [line for line in lines if line in {row["line"] for row in rows}]
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
        for number, line in enumerate(names):
            key = f"final_{lines[line]['returns']}"
            values = [[row[key] for row in x if row["line"] == line] for x in settings.values()]
            colour, style = LOOKS.get(line, ("#333333", ":"))
            x = np.arange(len(settings)) + 0.06 * (number - len(names) / 2)
            means = [np.mean(v) if v else np.nan for v in values]
            spread = [np.std(v, ddof=1) if len(v) > 1 else 0.0 for v in values]
            label = lines[line]["label"]
            axes.errorbar(x, means, spread, fmt=f"o{style}", color=colour, label=label, ms=3, lw=1)
        axes.set_xticks(range(len(settings)), list(settings))
        axes.set(title=f"{dataset}, end of training", xlabel="ratio", ylabel="test AUC")
        axes.legend(fontsize=7)
    return figure


def settings_of(rows: Rows) -> dict[str, Rows]:
    """Group rows by ratio, and by protocol where there are several."""
    groups = grouped(rows, "ratio", "protocol")
    several = len({protocol for _, protocol in groups}) > 1
    return {f"{x}, {y}" if several else x: group for (x, y), group in groups.items()}


def best_of_pilot(rows: Rows) -> Rows:
    """Return the pilot's runs at each line's best setting: by mean final AUC of most seeds."""
    best = []
    for group in grouped([row for row in rows if row["line"] in LOOKS], "line").values():
        settings = grouped(group, "eta0", "T0", "gamma").values()
        most = max(map(len, settings))
        best += max(
            (runs for runs in settings if len(runs) == most),
            key=lambda runs: np.mean([row["final"] or 0.0 for row in runs]),
        )
    return sorted(best, key=lambda row: list(LOOKS).index(row["line"]))


def grouped(rows: Rows, *keys: str) -> dict[Any, Rows]:
    """Group rows by the values of keys, or by one value, in their order."""
    groups: dict[Any, Rows] = {}
    for row in rows:
        values = tuple(str(row[key]) for key in keys)
        groups.setdefault(values if len(keys) > 1 else values[0], []).append(row)
    return groups


if __name__ == "__main__":
    main()
