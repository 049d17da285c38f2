"""Time everything, write a dated JSON file and the table of the site's performance page.

``make bench`` runs it and, with an interpreter that has LibAUC 2.0.1, times that beside us:
``python benchmarks/run.py --libauc .venv-libauc/bin/python``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import bench_auc
import bench_fit
import bench_import
import bench_loss
import bench_optim
import torch

HERE = Path(__file__).parent
TABLE = HERE.parent / "docs" / "_tables" / "performance.rst"


class Row(NamedTuple):
    """A line of the table: what is timed, where its ratio is, the goal, where LibAUC's is."""

    title: str
    place: tuple[str, str, str]
    goal: float | None
    peer: tuple[str, str, str] | None = None


BY_HAND = "by hand, AUCLoss + PPDSG"
BCE, ADAMW = "over ``BCEWithLogitsLoss``", "over ``AdamW(fused=True)``"
LOSS_PEER = "AUCMLoss"
ROWS = [
    Row(f"``AUCLoss`` {BCE}, N = 128", ("loss", "N = 128", "AUCLoss"), 3.0,
        ("loss", "N = 128", LOSS_PEER)),
    Row(f"``AUCLoss`` {BCE}, N = 8,192", ("loss", "N = 8,192", "AUCLoss"), 2.7,
        ("loss", "N = 8,192", LOSS_PEER)),
    Row(f"``AUCLoss()``, prior unknown, {BCE}, N = 128",
        ("loss", "N = 128", "AUCLoss, prior unknown"), None),
    *(
        Row(f"``PPDSG`` step {ADAMW}, {model}", ("optimizer", model, "PPDSG"), goal,
            ("optimizer", model, "PESG"))
        for model, goal in zip(bench_optim.SHAPES, (1.0, 1.2, 1.7), strict=True)
    ),
    *(
        Row(f"``PPDAdaGrad`` step {ADAMW}, {model}", ("optimizer", model, "PPDAdaGrad"), goal)
        for model, goal in zip(bench_optim.SHAPES, (2.5, 5.5, 4.0), strict=True)
    ),
    Row(f"``PPDAdaGrad`` step compiled {ADAMW}, one tensor of 25 M",
        ("optimizer", "one tensor of 25 M", "PPDAdaGrad, compiled"), 2.0),
    Row("``roc_auc`` over scikit-learn's, N = 1,000,000", ("metric", "N = 1,000,000", "roc_auc"),
        0.15, ("metric", "N = 1,000,000", "auc_roc_score")),
    Row("``roc_auc`` with weights over scikit-learn's",
        ("metric", "N = 1,000,000, weighted", "roc_auc"), None),
    Row("``roc_auc_interval`` over scikit-learn's AUC",
        ("metric", "N = 1,000,000", "roc_auc_interval"), None),
    *(
        Row(f"step of ``fit`` over the same loop by hand, {task}", ("fit", task, "aucmax.fit"),
            1 / 0.95)
        for task in bench_fit.TASKS
    ),
    *(
        Row(f"step of BCE + SGD by hand over that loop, {task}",
            ("fit", task, "by hand, BCE + SGD"), None)
        for task in bench_fit.TASKS
    ),
    Row("``import aucmax`` over ``import torch``", ("import", "import", "aucmax"), 1.05,
        ("import", "import", "libauc.losses.auc, libauc.optimizers.pesg")),
]  # fmt: skip


def machine() -> dict[str, Any]:
    """Where and with what the figures were measured."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].split(":", 1)[1].strip() if names else processor
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True
    )
    changed = subprocess.run(
        ["git", "status", "--porcelain", "src", "benchmarks/*.py"],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
    )
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit.stdout.strip() + ("-dirty" if changed.stdout.strip() else ""),
    }


def measure(libauc: str | None) -> dict[str, Any]:
    """Everything, by group; LibAUC's figures under "libauc" if there is an interpreter for it."""
    found: dict[str, Any] = {
        "loss": bench_loss.measure(),
        "optimizer": bench_optim.measure(),
        "metric": bench_auc.measure(),
        "fit": bench_fit.measure(),
        "import": bench_import.measure(),
        "libauc": None,
    }
    if libauc:
        command = [libauc, str(HERE / "peer_libauc.py")]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found["libauc"] = json.loads(output.splitlines()[-1])
    return found


def ratio(found: dict[str, Any] | None, place: tuple[str, str, str] | None) -> str:
    """The ratio at a place, or nothing where there is none."""
    if not found or not place:
        return ""
    group, workload, name = place
    return f"{found[group][workload][name]['ratio']:.3g}"


def table(found: dict[str, Any], where: dict[str, Any], date: str) -> str:
    """The performance page's table in reStructuredText."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 60 12 14 14",
        "",
        "   * - ratio",
        "     - aucmax",
        "     - to reach",
        "     - [LibAUC 2.0.1]",
    ]
    for row in ROWS:
        peer = ratio(found["libauc"], row.peer)
        lines += [
            f"   * - {row.title}",
            f"     - {ratio(found, row.place)}",
            f"     - {'' if row.goal is None else f'<= {row.goal:g}'}",
            f"     - {f'[{peer}]' if peer else ''}",
        ]
    lines += [
        "",
        f"Measured on {date}: {where['processor']}, {where['cores']} cores, Python "
        f"{where['python']}, torch {where['torch']}, commit {where['commit']}. Medians of "
        "alternating rounds in one process; the loss on one thread with its checks on.",
        "",
    ]
    return "\n".join(lines)


def gpu_table() -> str:
    """What ``bench_fit.py --device cuda`` measured last, in reStructuredText."""
    files = sorted((HERE / "results").glob("*-cuda.json"))
    if not files:
        return ""
    content = json.loads(files[-1].read_text())
    lines = ["", "On a GPU", "--------", "", ".. list-table::", "   :header-rows: 1", ""]
    for workload, rows in content["fit"].items():
        lines += [f"   * - a training step, {workload}", "     - milliseconds", "     - ratio"]
        for name, row in rows.items():
            cells = (name, f"{1e3 * row['seconds']:.2f}", f"{row['ratio']:.3f}")
            lines += [f"   {'* -' if k == 0 else '  -'} {cell}" for k, cell in enumerate(cells)]
    lines += [
        "",
        f"Measured on {content['date']}: {content['device']}, Python {content['python']}, torch "
        f"{content['torch']}, images in NCHW order. Each loop ran at two lengths, in turn in one "
        "process; the difference is that of its steps. "
        "``benchmarks/bench_fit.py`` says how to run it.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libauc", help="an interpreter whose environment has LibAUC 2.0.1")
    arguments = parser.parse_args()
    date, where = datetime.date.today().isoformat(), machine()
    found = measure(arguments.libauc)
    results = HERE / "results" / f"{date}-cpu.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps({"date": date, "machine": where, **found}, indent=2) + "\n")
    TABLE.write_text(table(found, where, date) + gpu_table())
    for row in ROWS:
        goal = "" if row.goal is None else f"  (to reach: {row.goal:g})"
        print(f"{ratio(found, row.place):>8}  {row.title.replace('``', '')}{goal}")
    print(f"\nwrote {results} and {TABLE}")


if __name__ == "__main__":
    main()
