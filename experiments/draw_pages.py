"""Draw the figures of docs/results from the frozen records.

python -m experiments.draw_pages

Nothing is trained. The same records give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.stats import Difference

ROOT = Path(__file__).resolve().parent.parent
RECORDS, PAGES = ROOT / "experiments" / "results", ROOT / "docs" / "results"
LINES = {
    "ppd-adagrad": ("PPD-AdaGrad", "#123f8c", "-"),
    "ppd-sg": ("PPD-SG", "#c9510c", "-"),
    "pga": ("PGA", "#0b9c74", "--"),
    "adagrad": ("AdaGrad on cross-entropy", "#883da0", "--"),
    "sgd": ("SGD on cross-entropy", "#222222", "-"),
    "oauc": ("OAUC", "#52a9e2", "--"),
}
LAST_ITERATE = ("sgd", "adagrad")
"""Methods that return their last iterate; the others return an average."""
CONFIRMING = (
    *("ai4i_2020", "bank_marketing", "covtype_4v2", "credit_default_taiwan", "ecoli_imu"),
    *("htru2_pulsar", "keel_page_blocks0", "mammography", "pendigits_5", "satimage_2", "w8a"),
    *("cifar10-odd", "catdog"),
)
COMPARISONS = {
    "Clean labels": ("clean", "mlp", "auc-ce", "ce"),
    "Linear model": ("small", "linear", "pairwise", "focal"),
    "One hidden layer of 16": ("small", "layer", "auc-ce", "ce"),
    "Boosted trees of depth 2": ("small", "trees", "squared-hinge", "logloss"),
    "10 to 40 % of positives mislabelled": ("noise", "mlp", "auc-ce", "ce"),
    "10 to 100 positives": ("few", "mlp", "pairwise", "gce"),
    "Partial AUC, FPR up to 5 %": ("top", "mlp", "ap", "smoothed"),
    "30 to 300 training steps": ("budget", "mlp", "pairwise", "ce"),
    "AUC within groups": ("groups", "mlp", "pairwise-logistic", "smoothed"),
    "Images, clean labels": ("pictures-clean", "resnet", "auc", "ce"),
    "Images, mislabelled": ("pictures-noise", "resnet", "auc-ce", "ce"),
    "Images, several sources": ("pictures-sources", "resnet", "auc-ce", "ce"),
}
"""The planned comparisons of docs/results/when.rst: regime, model, ranking loss, likelihood."""
METRICS = {"top": "partial_auc@0.05", "groups": "grouped_auc", "pictures-sources": "grouped_auc"}


def differences(regime: str, model: str, ours: str, theirs: str) -> pd.Series:
    """Mean difference of the test metric per confirming data set, ranking loss minus likelihood.

    A line runs with the options whose validation metric was best with seed 0, in the first
    condition. Partial AUCs are shares of their maximum.
    """
    runs = pd.read_parquet(RECORDS / "regimes.parquet")
    runs = runs[(runs.regime == regime) & (runs.model == model) & runs.line.isin([ours, theirs])]
    runs = runs[runs.dataset.isin(CONFIRMING)].assign(options=runs.options.astype(str))
    tried = runs.groupby(["dataset", "line", "condition"]).options.transform("nunique") > 1
    searched = runs[(runs.seed == 0) & tried]
    best = searched.loc[searched.groupby(["dataset", "line"]).valid.idxmax()]
    runs = runs.merge(best[["dataset", "line", "options"]])
    metric = METRICS.get(regime, "roc_auc")
    values = runs.pivot_table(metric, ["dataset", "condition", "seed"], "line")
    gains = (values[ours] - values[theirs]) / (0.05 if regime == "top" else 1)
    return gains.groupby(["dataset", "condition"]).mean().groupby("dataset").mean()


def curves(axes: Axes) -> None:
    """Test AUC by step on CIFAR-10 at 91/9, 20,000 steps, under the paper's protocol."""
    runs = pd.read_parquet(RECORDS / "figures.parquet")
    ours = runs.figures.map(lambda names: "figure1" in names)
    runs = runs[ours & (runs.dataset == "cifar10") & (runs.ratio == "91/9")]
    for line, (label, color, style) in LINES.items():
        chosen = runs[(runs.protocol == "paper") & (runs.line == line)]
        if len(chosen):
            iterate = "last" if line in LAST_ITERATE else "average"
            step = np.unique(np.concatenate([*chosen.history_step]))
            auc = [
                np.interp(step, run.history_step, run[f"history_test_auc_{iterate}"])
                for _, run in chosen.iterrows()
            ]
            axes.fill_between(step, np.min(auc, 0), np.max(auc, 0), color=color, alpha=0.12, lw=0)
            axes.plot(step, np.mean(auc, 0), style, color=color, label=label)
    axes.set(xlabel="training step", ylabel="test AUC", xlim=(0, 20_000))
    axes.set_xticks(range(0, 20_001, 5_000))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def step_sizes(axes: Axes) -> None:
    """Final test AUC of the pilot by the first step size, the best T0 of each, seed 3."""
    runs = pd.read_parquet(RECORDS / "pilot.parquet")
    runs = runs[(runs.seed == 3) & runs.error.isna() & runs.gamma.isin([2000, np.nan])]
    for line, (label, color, style) in LINES.items():
        chosen = runs[runs.line == line]
        iterate = "last" if line in LAST_ITERATE else "average"
        final = chosen[f"history_test_auc_{iterate}"].map(lambda auc: auc[-1])
        best = final.groupby(chosen.eta0).max()
        axes.plot(best.index, best, style, marker="o", ms=4, color=color, label=label)
    axes.axvspan(0.005, 0.1, color="#dddddd", alpha=0.6, lw=0, zorder=0)
    axes.text(0.0055, 0.83, "grid printed in the paper", color="#555555", fontsize=9)
    axes.set(xlabel="first step size", ylabel="final test AUC", xscale="log", ylim=(0.5, 0.85))
    axes.set(xlim=(0.005, 15), xticks=[0.01, 0.1, 1, 10], xticklabels=["0.01", "0.1", "1", "10"])


def forest(axes: Axes, rows: dict[str, pd.Series], label: str, width: float) -> None:
    """A row per comparison: mean difference and 95 % interval, cut off at ``width``."""
    for place, values in enumerate(rows.values()):
        found = Difference.paired(values.tolist())
        low, high = max(found.low, -width), min(found.high, width)
        axes.plot([low, high], [place, place], color="#123f8c")
        if found.low < -width:
            axes.plot(low, place, "<", color="#123f8c", ms=5, clip_on=False)
        if found.high > width:
            axes.plot(high, place, ">", color="#123f8c", ms=5, clip_on=False)
        axes.plot(found.value, place, "o", color="#123f8c", ms=5)
    axes.axvline(0, color="#222222", lw=0.8)
    names = [f"{name}  (n = {len(values)})" for name, values in rows.items()]
    axes.set(xlabel=label, xlim=(-width, width), yticks=range(len(rows)), yticklabels=names)
    axes.invert_yaxis()


def peers(axes: Axes) -> None:
    """Lead of AUCClassifier in test AUC on the tables that were not used for tuning."""
    runs = pd.read_parquet(RECORDS / "tables.parquet")
    runs = runs[runs.benchmark == "tables-confirm"]
    means = runs.pivot_table("auc", "table", "method")
    means = means.rename(columns={"LightGBM, regularised bag": "LightGBM, regularised"})
    leads = {name: means["aucmax"] - means[name] for name in means if not name.startswith("aucmax")}
    rows = dict(sorted(leads.items(), key=lambda item: item[1].mean()))
    forest(axes, rows, "lead of AUCClassifier in test AUC", width=0.07)
    axes.set_xlim(-0.01, 0.07)


def save(
    name: str, size: tuple[float, float], draw: Callable[[Axes], None], legend: bool = False
) -> None:
    """Draw on one pair of axes and write docs/results/NAME.svg."""
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    axes = figure.subplots()
    draw(axes)
    axes.grid(color="#e8e8e8", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        figure.legend(loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(PAGES / f"{name}.svg", metadata={"Date": None})


def main() -> None:
    """Write all figures."""
    mpl.rcParams.update({"svg.hashsalt": "aucmax", "svg.fonttype": "none", "font.size": 10})
    mpl.rcParams["font.family"] = "sans-serif"
    save("paper-steps", (7.6, 3.6), curves, legend=True)
    save("paper-pilot", (7.6, 3.6), step_sizes, legend=True)
    rows = {name: differences(*which) for name, which in COMPARISONS.items()}
    label = "ranking loss minus likelihood"
    save("when", (7.6, 4.4), lambda axes: forest(axes, rows, label, width=0.05))
    save("tables", (7.6, 3.4), peers)


if __name__ == "__main__":
    main()
