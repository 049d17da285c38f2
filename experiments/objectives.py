"""The objectives side by side on CIFAR-10 91/9, strong protocol: AUC, partial AUC, precision.

From the root of the repository, with the official files in a folder::

    PYTHONPATH=src python experiments/objectives.py --data DIR --json objectives.json

``--images FILE.npz`` takes arrays x_train, y_train, x_test and y_test instead; if negatives were
removed from them already, with ``--removed 0``. It needs torch, NumPy, safetensors and rich alone.
``--tiny --device cpu`` tries the code on scikit-learn's digits.

All lines share optimizer, stages, batches, augmentation and seeds, and differ in the objective. But
PPD-SG has the paper's prox and restarts as well, the saddle form of the partial AUC begins with a
step size of 0.03 for 0.1, since a tenth of the negatives makes its gradients, and pairs see scores
times 0.1. The rare classes are positive. What is measured is the last stage's average. The test set
is whole, and its positives weigh so that they have the training data's share, on which average
precision depends.

The top of the list cannot be trained for as long as the hardest negatives score above most
positives: then equal scores are better than what there is, and the lines that begin with it end
there. So lines named "then" begin from what half of the steps on cross-entropy have come to, and
take the other half on their own objective, with the step size of :data:`STEP_SIZES` that does best
by the line's own metric on the validation rows of seed 0. One of them stays with cross-entropy, and
has the same choice. Nothing else is chosen, and nothing by the test rows.

The file is written as runs end, and the same command goes on. ``--page`` writes the table of the
site from ``experiments/results/objectives-cifar10.json``.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aucmax
from aucmax import metrics
from aucmax.disk import write_json
from aucmax.paper import datasets
from aucmax.paper.datasets import ImageData
from aucmax.paper.provenance import provenance
from aucmax.paper.settings import Run, make_plan
from aucmax.paper.training import Parts, fit_arguments, make_model, make_parts

MAX_FPR = 0.1
RESULT = Path(__file__).parent / "results" / "objectives-cifar10.json"
TABLE = Path(__file__).parent.parent / "docs" / "_tables" / "objectives.rst"


@dataclass(frozen=True)
class Line:
    """An objective, the options of its loss, its first step size, and the line that trains it.

    Attributes:
        chosen_by: the measure that chooses the step size of a line that begins from cross-entropy;
            empty for one that begins from nothing.
    """

    objective: str
    options: dict[str, Any] = field(default_factory=dict)
    lr: float = 0.1
    line: str = "ppd-sg-no-prox"
    chosen_by: str = ""


TOP = {"max_fpr": MAX_FPR}
SMALL = {"scale": 0.1}  # of scores times 1 the squares diverge at such step sizes
LINES = {
    "cross-entropy": Line("ce"),
    "AUC saddle, momentum, no prox": Line("auc"),
    "PPD-SG": Line("auc", line="ppd-sg"),
    "AUC, pairs": Line("pairwise", SMALL),
    "partial AUC, saddle": Line("partial", TOP, lr=0.03),
    "partial AUC, pairs": Line("pairwise", {**SMALL, **TOP}),
    "average precision, squared hinge": Line("ap", {"surrogate": "squared_hinge"}),
    "AUC, pairs + cross-entropy": Line("pairwise+ce", SMALL),
    "then cross-entropy": Line("ce", chosen_by="auc"),
    "then partial AUC, saddle": Line("partial", TOP, chosen_by="partial_auc"),
    "then partial AUC, pairs": Line("pairwise", {**SMALL, **TOP}, chosen_by="partial_auc"),
    "then partial AUC, pairs + cross-entropy": Line(
        "pairwise+ce", {**SMALL, **TOP}, chosen_by="partial_auc"
    ),
    "then average precision": Line("ap", chosen_by="average_precision"),
    "then average precision + cross-entropy": Line("ap+ce", chosen_by="average_precision"),
}
STEP_SIZES = (0.03, 0.01, 0.003)
MEASURES = {
    "auc": "AUC",
    "partial_auc": f"partial AUC, FPR <= {MAX_FPR:g}",
    "partial_auc_standardized": "the same, standardized",
    "average_precision": "average precision",
}


class Study:
    """The runs, and the file that their results are kept in.

    Args:
        given: the arguments of the command.
        images: what to train on and to judge by.
    """

    def __init__(self, given: argparse.Namespace, images: ImageData) -> None:
        self.given, self.images = given, images
        self.found: dict[str, Any] = {"lines": {}, "seconds_per_step": {}}
        self.settings = {"dataset": given.dataset, "removed": given.removed, "steps": given.steps}
        if given.json.exists():
            self.found = json.loads(given.json.read_text(encoding="utf-8"))
            if self.found["settings"] != self.settings:
                raise SystemExit(f"{given.json} is of other settings: {self.found['settings']}")
        self.found.setdefault("step_sizes", {})
        self.parts: dict[int, Parts] = {}
        self.models: dict[int, torch.nn.Module] = {}
        self.begun: dict[int, torch.nn.Module] = {}

    def run(self) -> None:
        """Train what is missing, several at once; then time each line alone."""
        missing = [
            (name, seed)
            for seed in range(self.given.seeds)
            for name in self.given.lines
            if str(seed) not in self.found["lines"].get(name, {})
        ]
        first = [(name, seed) for name, seed in missing if not LINES[name].chosen_by]
        self.train(first)
        if then := [which for which in missing if which not in first]:
            self.begin(sorted({seed for _, seed in then} | {0}))
            self.choose_step_sizes(list(dict.fromkeys(name for name, _ in then)))
            self.train(then)
        self.time_lines()

    def sweep(self, configs: list[dict[str, Any]], on_end: Any = None) -> list[Any]:
        """Runs of the configs, several at once."""
        at_once, device = self.given.at_once, self.given.device
        return aucmax.sweep(configs, at_once=at_once, device=device, on_end=on_end, progress=False)

    def train(self, runs: list[tuple[str, int]]) -> None:
        """Train lines with seeds, and keep what each does on the test set."""

        def keep(number: int, outcome: Any) -> None:
            name, seed = runs[number]
            found = self.measured(outcome, seed)
            self.found["lines"].setdefault(name, {})[str(seed)] = found
            self.save()
            print(f"{name}, seed {seed}: {found}", flush=True)

        self.sweep([self.arguments(*which) for which in runs], keep)

    def begin(self, seeds: list[int]) -> None:
        """What half of the steps on cross-entropy come to, for the lines that begin there."""
        half = self.given.steps // 2
        outcomes = self.sweep([self.arguments("cross-entropy", seed, half) for seed in seeds])
        self.begun = {k: outcome.model for k, outcome in zip(seeds, outcomes, strict=True)}

    def choose_step_sizes(self, names: list[str]) -> None:
        """Of each line the step size that does best on the validation rows of seed 0."""
        names = [name for name in names if name not in self.found["step_sizes"]]
        tries = [(name, lr) for name in names for lr in STEP_SIZES]
        outcomes = self.sweep([self.arguments(name, 0, lr=lr) for name, lr in tries])
        for name in names:
            values = {
                str(lr): self.measured(outcome, 0, "valid").get(LINES[name].chosen_by, 0.0)
                for (other, lr), outcome in zip(tries, outcomes, strict=True)
                if other == name
            }
            best = max(values, key=lambda lr: values[lr])
            self.found["step_sizes"][name] = {"chosen": float(best), "validation": values}
            print(f"{name}: {self.found['step_sizes'][name]}", flush=True)
        self.save()

    def time_lines(self) -> None:
        """How long a step of each line takes while nothing else runs."""
        for name in self.given.lines:
            if name not in self.found["seconds_per_step"]:
                self.found["seconds_per_step"][name] = self.seconds_alone(name)
                self.save()

    def arguments(
        self, name: str, seed: int, steps: int | None = None, lr: float | None = None
    ) -> dict[str, Any]:
        """Those of fit for a line and a seed, as the strong protocol has them."""
        line, given = LINES[name], self.given
        steps = steps or (given.steps // 2 if line.chosen_by else given.steps)
        if lr is None:
            lr = self.found["step_sizes"].get(name, {}).get("chosen", line.lr)
        (run,) = (
            run
            for run in make_plan(
                "figure1", given.dataset, protocols=["strong"], removed=[given.removed],
                lines=[line.line], seeds=seed + 1, steps=steps,
            ).runs
            if run.seed == seed
        )  # fmt: skip
        run = run.with_options(lr=lr)
        self.prepare(run)
        begun = self.begun if line.chosen_by and self.begun else self.models
        model = copy.deepcopy(begun[seed])
        return {
            **fit_arguments(run, model, given.device),
            "model": model,
            "train": self.parts[seed].train,
            "objective": line.objective,
            "loss_options": line.options,
            "eval_every": steps,
        }

    def prepare(self, run: Run) -> None:
        """A seed's rows, the rare classes positive, and its first weights, for all its lines."""
        if run.seed not in self.parts:
            parts = make_parts(run, self.images)
            self.parts[run.seed] = Parts(*((x, 1.0 - y) for x, y in parts))
            self.models[run.seed] = make_model(run, parts.train[0])

    def measured(self, outcome: Any, seed: int, part: str = "test") -> dict[str, Any]:
        """What a model does on the test set, or on another part."""
        if isinstance(outcome, aucmax.DivergedError):
            return {"error": str(outcome)}
        parts = self.parts[seed]
        x, y = getattr(parts, part)
        share = parts.train[1].mean().item()
        positives = y.sum().item()
        weight = share / (1.0 - share) * (len(y) - positives) / positives
        with torch.no_grad():
            model = outcome.model
            scores = torch.cat([model(part.to(self.given.device)) for part in x.split(1000)])
        scores = scores.reshape(-1).cpu()
        return {
            "auc": metrics.roc_auc(scores, y),
            "partial_auc": metrics.partial_auc(scores, y, max_fpr=MAX_FPR),
            "partial_auc_standardized": metrics.partial_auc(
                scores, y, max_fpr=MAX_FPR, standardized=True
            ),
            "average_precision": metrics.average_precision(
                scores, y, torch.where(y > 0, weight, 1.0)
            ),
            "iterate": outcome.iterate,
            "loss": outcome.history[-1]["loss"],
        }

    def seconds_alone(self, name: str) -> float | None:
        """A step's time while nothing else runs, by the difference of two runs; None: diverged."""
        seconds = []
        for steps in (self.given.timed // 4, self.given.timed):
            arguments = self.arguments(name, 0) | {"steps": steps, "eval_every": steps, "probe": 0}
            begun = time.perf_counter()
            try:
                aucmax.fit(**arguments, device=self.given.device, progress=False)
            except aucmax.DivergedError:
                return None
            seconds.append(time.perf_counter() - begun)
        return (seconds[1] - seconds[0]) / (self.given.timed - self.given.timed // 4)

    def save(self) -> None:
        """Write what is found so far."""
        content = {"settings": self.settings, **provenance(self.given.device), **self.found}
        write_json(self.given.json, content)

    def table(self) -> Iterator[str]:
        """A line for each objective: mean and standard deviation over the seeds."""
        head = [*MEASURES.values(), "ms per step"]
        width = max(map(len, LINES))
        yield " ".join([f"{'':{width}}", *(f"{title:>24}" for title in head)])
        for name, seeds in self.found["lines"].items():
            ended = [result for result in seeds.values() if "error" not in result]
            cells = [spread([result[key] for result in ended]) for key in MEASURES]
            seconds = self.found["seconds_per_step"].get(name)
            cells.append("" if seconds is None else f"{1000 * seconds:.3f}")
            diverged = f" {len(seeds) - len(ended)} diverged" if len(ended) < len(seeds) else ""
            yield " ".join([f"{name:{width}}", *(f"{cell:>24}" for cell in cells)]) + diverged


def page(found: dict[str, Any]) -> str:
    """The table of the site."""
    measures = {key: title for key, title in MEASURES.items() if "standardized" not in key}
    titles = ["", *measures.values(), "ms per step"]
    rows = [titles]
    for name, line in LINES.items():
        if name in found["lines"]:
            seeds = found["lines"][name].values()
            values = [spread([result[key] for result in seeds]) for key in measures]
            rows.append([name, *values, f"{1000 * found['seconds_per_step'][name]:.2f}"])
            size = found["step_sizes"].get(name)
            rows[-1][0] += f" (step size {size['chosen']:g})" if line.chosen_by and size else ""
    cells = ["   * - " + "\n     - ".join(row) for row in rows]
    seeds = {len(results) for results in found["lines"].values()}
    about = (
        f"CIFAR-10 91/9, {found['settings']['steps']:,} steps, mean and standard deviation of "
        f"{max(seeds)} seeds; {found['hardware']}, torch {found['versions']['torch']}, "
        f"{found['date']}, commit {found['commit']}: ``experiments/objectives.py``."
    )
    head = ".. list-table::\n   :header-rows: 1\n   :widths: 34 18 18 18 12\n"
    return "\n".join([head, *cells, "", about, ""]).replace(" +- ", " ± ")


def spread(values: list[float]) -> str:
    """Mean and standard deviation."""
    if len(values) < 2:
        return f"{values[0]:.4f}" if values else ""
    return f"{statistics.mean(values):.4f} +- {statistics.stdev(values):.4f}"


def read_images(given: argparse.Namespace) -> ImageData:
    """The images of the file or folder that was named."""
    if given.images is None:
        return datasets.load(given.dataset, given.data)
    with np.load(given.images) as arrays:
        x_train, y_train, x_test, y_test = (
            arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")
        )
    names = tuple(map(str, range(1 + int(y_train.max()))))
    return ImageData(x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), names)


def parse() -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of the official files")
    parser.add_argument("--images", type=Path, help=".npz file in place of them")
    parser.add_argument("--json", type=Path, default=Path("objectives.json"))
    parser.add_argument("--removed", type=float, default=0.9, help="share of the rare classes")
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES), metavar="LINE")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--timed", type=int, default=2_000, help="steps to time each line by")
    parser.add_argument("--at-once", type=int, default=8, help="runs that share the GPU")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--page", action="store_true", help="write the table of the site")
    parser.add_argument("--tiny", action="store_true", help="digits, few steps, one seed")
    given = parser.parse_args()
    given.dataset = "digits" if given.tiny else "cifar10"
    if given.tiny:
        given.steps, given.timed, given.seeds = min(given.steps, 40), 16, 1
    return given


if __name__ == "__main__":
    arguments = parse()
    if arguments.page:
        TABLE.write_text(page(json.loads(RESULT.read_text(encoding="utf-8"))), encoding="utf-8")
        raise SystemExit
    study = Study(arguments, read_images(arguments))
    study.run()
    print(*study.table(), sep="\n")
