"""How well ``aucmax fit-images`` ranks Cat & Dog at 91/9, beside the strong protocol of figure 1.

From the root of the repository, with the photos in a folder as ``aucmax reproduce`` reads them::

    PYTHONPATH=src python benchmarks/image_quality.py --data DIR

For each seed the same nine tenths of the cats are removed as in the experiment. What is left is
written as PNG files, a folder per class, and the command is run as a user types it::

    aucmax fit-images train --test test --quality best --seed SEED

Beside it stands the line of the experiment that validation images prefer, of the same seeds. Both
go to ``results/image-quality.json`` and, as a paragraph, to the site's page on pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from PIL import Image

from aucmax.paper import datasets
from aucmax.paper.prepare import distinct, thin
from aucmax.paper.provenance import provenance
from aucmax.paper.results import read_results
from aucmax.train.options import find_device

ROOT = Path(__file__).parent.parent
OUT = ROOT / "benchmarks" / "results" / "image-quality.json"
TEXT = ROOT / "docs" / "_tables" / "image_quality.rst"
STRONG = ROOT / "experiments" / "results" / "figure1-catdog"
REMOVED, MOST_BEHIND = 0.9, 0.005


def write_folders(folder: Path, x: Any, y: Any, names: tuple[str, ...]) -> None:
    """A folder per class, a file per picture."""
    for label, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for row in np.flatnonzero(y == label):
            Image.fromarray(x[row]).save(folder / name / f"{row:05}.png")


def fitted(folder: Path, quality: str, seed: int, device: str) -> tuple[float, float]:
    """The test AUC that the command says, and its seconds."""
    options = ["--test", "test", "--quality", quality, "--seed", str(seed), "--device", device]
    command = [sys.executable, "-m", "aucmax", "fit-images", f"train{seed}", *options, "--quiet"]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ)
    said = re.search(r"AUC (\d\.\d+)", done.stdout)
    if done.returncode or said is None:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    return float(said[1]), time.perf_counter() - began


def strong_line(results: Path, seeds: int) -> tuple[str, list[float]]:
    """The line that validation images prefer at 91/9, and its test AUC by seed."""
    by_line: dict[str, dict[int, Any]] = defaultdict(dict)
    for result in read_results(results / "runs"):
        strongly = result.protocol == "strong" and result.ratio == "91/9"
        if strongly and result.result is not None and result.result.chosen is not None:
            by_line[result.label][result.seed] = result.result.chosen
    whole = {label: runs for label, runs in by_line.items() if set(range(seeds)) <= set(runs)}
    best = max(whole, key=lambda label: mean(run.valid_auc for run in whole[label].values()))
    return best, [whole[best][seed].test_auc for seed in range(seeds)]


def measure(
    images: datasets.ImageData, seeds: int, quality: str, device: str, results: Path = STRONG
) -> dict[str, Any]:
    """The command's AUC by seed, the experiment's, and their mean difference."""
    kept, tested = distinct(images.x_train, images.x_test)
    x, y = images.x_train[kept], images.y_train[kept]
    aucs, seconds = [], []
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        write_folders(folder / "test", images.x_test[tested], images.y_test[tested], images.classes)
        for seed in range(seeds):
            rows = thin(y, REMOVED, seed)
            write_folders(folder / f"train{seed}", x[rows], y[rows], images.classes)
            auc, took = fitted(folder, quality, seed, device)
            print(f"seed {seed}: AUC {auc:.4f} in {took:.0f} s", flush=True)
            aucs.append(auc)
            seconds.append(round(took, 1))
    line, strong = strong_line(results, seeds)
    return {
        "quality": quality, "auc": aucs, "seconds": seconds, "line": line, "strong": strong,
        "difference": mean(aucs) - mean(strong), **provenance(device),
    }  # fmt: skip


def text(found: dict[str, Any]) -> str:
    """What was found, for the site."""
    ours, theirs = (", ".join(f"{x:.4f}" for x in found[name]) for name in ("auc", "strong"))
    return f"""\
On Cat & Dog with nine tenths of the cats removed
``aucmax fit-images train --test test --quality {found["quality"]}`` reached a test AUC of
{mean(found["auc"]):.4f} on an {found["hardware"]} (mean of {len(found["auc"])} seeds: {ours}).
On the same pictures the line of :doc:`figure 1 <results/figure1-catdog>` that validation pictures
prefer, "{found["line"]}", has {mean(found["strong"]):.4f} ({theirs}).
"""


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quality", default="best")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, default=OUT)
    given = parser.parse_args()
    images, device = datasets.load("catdog", given.data), str(find_device(given.device))
    found = measure(images, given.seeds, given.quality, device)
    says = "within" if found["difference"] >= -MOST_BEHIND else "NOT within"
    print(f"{found['difference']:+.4f} from {found['line']}, {says} {MOST_BEHIND}")
    given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if given.json == OUT:
        TEXT.write_text(text(found), encoding="utf-8")


if __name__ == "__main__":
    main()
