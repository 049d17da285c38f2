"""Rank imbalanced digits: cross-entropy against PPD-SG and PPD-AdaGrad.

The digits 5-9 are positives, 0-4 negatives, and training sees a tenth of its negatives only; the
test half keeps all of its own. Three methods train the same small network from the same start for
the same number of steps, and the test AUC says how well each of them ranks:

* SGD on cross-entropy, its step size divided by 10 after 1/2 and after 3/4 of the steps;
* PPD-SG on the AUC loss, in stages that are 3 times longer, at a third of the step size, each time;
* PPD-AdaGrad on the AUC loss, in the same stages.

Run it with ``python examples/digits.py``; ``--out FOLDER`` draws the figure. :func:`train` is the
loop to copy.

The negatives are the rare class here, which is all the same to the AUC. One split is one roll of
the dice, so three seeds run; ``--seeds 12`` runs those from 0 to 11. There the test AUC of the
stage average was, as mean and standard deviation, 0.972 and 0.008 for cross-entropy, 0.970 and
0.009 for PPD-SG, 0.980 and 0.006 for PPD-AdaGrad.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from _plotting import BLUE, FAINT, GREEN, INK, ORANGE, label_ends, new_figure, save
from matplotlib.ticker import NullLocator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import aucmax
from aucmax.metrics import delong_test, roc_auc, roc_auc_interval
from aucmax.stages import Stage, geometric

BATCH = 128
STAGES = 4

# The step sizes and delta with the highest mean AUC in cross-validation on the training half alone
# (seed 0, the default steps, 5 folds 4 times over) among step sizes 0.1, 0.2, 0.5, 1, 2, for
# cross-entropy also 5, and delta 0.01, 0.1, 1. The test half had no say.
LR_CROSS_ENTROPY = 2.0
LR_PPD_SG = 0.5
LR_PPD_ADAGRAD, DELTA = 0.2, 0.1


class Data(NamedTuple):
    """Images as rows of 64 numbers in [0, 1]; labels 1 for the digits 5-9 and 0 for 0-4."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor


class Recipe(NamedTuple):
    """A method, ready to train its own copy of the model."""

    name: str
    color: str
    model: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    stages: Sequence[Stage]
    restart: str  # where a stage begins: at the "average" of the one before or at its "last" point


def load_data(seed: int) -> Data:
    """Half of the digits to train on, with a tenth of its negatives, and the other half to test."""
    images, digits = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        torch.tensor(images / 16, dtype=torch.float32),
        torch.tensor(digits >= 5, dtype=torch.float32),
        test_size=0.5,
        stratify=digits,
        random_state=seed,
    )
    positives, negatives = y_train.nonzero().flatten(), (1 - y_train).nonzero().flatten()
    shuffled = torch.randperm(len(negatives), generator=torch.Generator().manual_seed(seed))
    kept = torch.cat([positives, negatives[shuffled[: len(negatives) // 10]]])
    return Data(x_train[kept], y_train[kept], x_test, y_test)


def make_model() -> nn.Module:
    """A network with one hidden layer, which gives one raw score per image."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))


def cross_entropy(model: nn.Module, steps: int) -> Recipe:
    """SGD on cross-entropy.

    PPD-SG without its prox is SGD. It is taken for the average that it keeps of the steps at each
    step size, so that cross-entropy has all that the other methods have.
    """
    optimizer = aucmax.PPDSG(model.parameters(), gamma=math.inf)
    parts = [steps // 2, steps // 4, steps - steps // 2 - steps // 4]
    stages = [
        Stage(index=k + 1, lr=LR_CROSS_ENTROPY / 10**k, steps=part, dual_samples=0)
        for k, part in enumerate(parts)
    ]
    loss = nn.BCEWithLogitsLoss()
    return Recipe("Cross-entropy SGD", BLUE, model, loss, optimizer, stages, restart="last")


def ppd_sg(model: nn.Module, prior: float, first: int) -> Recipe:
    """PPD-SG on the AUC loss; the first stage takes ``first`` steps."""
    loss = aucmax.AUCLoss(prior=prior)
    optimizer = aucmax.PPDSG(aucmax.minmax_groups(model, loss))
    stages = geometric(lr=LR_PPD_SG, steps=first, factor=3, stages=STAGES)
    return Recipe("PPD-SG", ORANGE, model, loss, optimizer, stages, restart="average")


def ppd_adagrad(model: nn.Module, prior: float, first: int) -> Recipe:
    """PPD-AdaGrad on the AUC loss, in the same stages."""
    loss = aucmax.AUCLoss(prior=prior)
    optimizer = aucmax.PPDAdaGrad(aucmax.minmax_groups(model, loss), delta=DELTA)
    stages = geometric(lr=LR_PPD_ADAGRAD, steps=first, factor=3, stages=STAGES)
    return Recipe("PPD-AdaGrad", GREEN, model, loss, optimizer, stages, restart="average")


def draw(data: Data, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``n`` training examples, with replacement."""
    rows = torch.randint(len(data.y_train), (n,), generator=generator)
    return data.x_train[rows], data.y_train[rows]


def train(recipe: Recipe, data: Data, seed: int, watch: Callable[[int], None]) -> None:
    """Train one method; ``watch`` is told each step. This is the loop to copy."""
    model, loss, optimizer = recipe.model, recipe.loss, recipe.optimizer
    generator = torch.Generator().manual_seed(seed)
    step = 0
    for stage in recipe.stages:
        stage.set_lr(optimizer)
        for _ in range(stage.steps):
            x, y = draw(data, BATCH, generator)
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            step += 1
            watch(step)
        optimizer.end_stage(restart=recipe.restart)
        if isinstance(loss, aucmax.AUCLoss):  # alpha begins the next stage at its best
            x, y = draw(data, stage.dual_samples, generator)
            loss.reset_dual(model(x), y)


class Watch:
    """Follows one method's test AUC, of the last iterate and of the average of its stage.

    Attributes:
        steps: the steps at which the AUC was taken.
        last: AUC of the last iterate at these steps.
        average: AUC of the running stage's average.
        scores: scores of the test images at the latest of them, by "last" and by "average".
    """

    def __init__(
        self, recipe: Recipe, data: Data, every: int, report: Callable[[int, str, bool], None]
    ) -> None:
        self.recipe, self.data, self.every, self.report = recipe, data, every, report
        self.ends = list(accumulate(stage.steps for stage in recipe.stages))
        self.steps: list[int] = []
        self.last: list[float] = []
        self.average: list[float] = []
        self.scores: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(self, step: int) -> None:
        """Take the AUC now and then, and at the end of every stage."""
        if step % self.every and step not in self.ends:
            return
        model, x, y = self.recipe.model, self.data.x_test, self.data.y_test
        self.scores["last"] = model(x)
        with aucmax.averaged(model, self.recipe.optimizer):
            self.scores["average"] = model(x)
        self.steps.append(step)
        self.last.append(roc_auc(self.scores["last"], y))
        self.average.append(roc_auc(self.scores["average"], y))
        stage = 1 + sum(step > end for end in self.ends)
        note = f"stage {stage} of {len(self.ends)}, test AUC {self.average[-1]:.3f}"
        self.report(step, note, step in self.ends)


def make_report(
    recipe: Recipe, console: Console, progress: Progress
) -> Callable[[int, str, bool], None]:
    """Say how far a method is: on a live bar or, without a terminal, in a line per stage."""
    total = sum(stage.steps for stage in recipe.stages)
    task = progress.add_task(recipe.name, total=total, note="")

    def report(step: int, note: str, stage_ends: bool) -> None:
        progress.update(task, completed=step, note=note)
        if stage_ends and not console.is_terminal:
            console.print(f"{recipe.name:<17}  step {step:>6,}, {note}")

    return report


def train_all(
    recipes: Sequence[Recipe], data: Data, seed: int, every: int, console: Console
) -> list[Watch]:
    """Train the methods one after the other."""
    columns = (
        TextColumn("{task.description:<17}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    watches = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for recipe in recipes:
            watch = Watch(recipe, data, every, make_report(recipe, console, progress))
            train(recipe, data, seed, watch)
            watches.append(watch)
    return watches


def results_table(watches: Sequence[Watch], data: Data, seed: int) -> Table:
    """Test AUC of both iterates of each method, with intervals."""
    positives = int(data.y_test.sum())
    table = Table(
        title=f"Test AUC with 95 % DeLong intervals, seed {seed}",
        caption=f"{positives} positives, {len(data.y_test) - positives} negatives",
    )
    for column in ("method", "last iterate", "stage average"):
        table.add_column(column)
    for watch in watches:
        intervals = [roc_auc_interval(watch.scores[k], data.y_test) for k in ("last", "average")]
        cells = [f"{i.auc:.3f} [{i.low:.3f}, {i.high:.3f}]".replace("[", "\\[") for i in intervals]
        table.add_row(watch.recipe.name, *cells)
    return table


def comparison(watches: Sequence[Watch], data: Data) -> Iterator[str]:
    """How far each method's average is from the first's on the same images: a paired test."""
    first, *others = watches
    for watch in others:
        test = delong_test(watch.scores["average"], first.scores["average"], data.y_test)
        p = f"p = {test.p_value:.3f}" if test.p_value >= 0.001 else "p < 0.001"
        yield f"{watch.recipe.name} - {first.recipe.name}: {test.difference:+.3f} ({p})"


def draw_figure(watches: Sequence[Watch], data: Data, out: Path) -> list[Path]:
    """Test AUC by step."""
    fig, ax = new_figure(
        "Ranking digits 5-9 above 0-4, trained on a tenth of the negatives",
        "Test AUC by step. Bold: average since the stage began. Thin: last iterate.",
    )
    for watch in watches:
        color = watch.recipe.color
        ax.plot(watch.steps, watch.last, color=color, alpha=0.4, linewidth=1)
        ax.plot(watch.steps, watch.average, color=color, linewidth=2.2)
    first, *ends = [watches[-1].steps[0], *watches[-1].ends]
    best = max(max(watch.average) for watch in watches)
    ax.set_ylim(best - 0.08, best + 0.01)
    ax.set_xscale("log")
    ax.set_xlim(first, ends[-1])
    ax.set_xticks([first, *ends], [f"{step:,}" for step in (first, *ends)])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(visible=False, axis="x")
    for k, (start, end) in enumerate(pairwise([first, *ends]), start=1):
        ax.axvline(end, color=FAINT, linewidth=1, zorder=0)
        place = (math.sqrt(start * end), best + 0.0085)
        ax.text(*place, f"PPD stage {k}", color=INK, ha="center", va="top", fontsize=9)
    ax.set_xlabel("step, logarithmic")
    ax.set_ylabel("test AUC")
    intervals = [roc_auc_interval(watch.scores["average"], data.y_test) for watch in watches]
    texts = [
        f"{watch.recipe.name}\n{i.auc:.3f} [{i.low:.3f}, {i.high:.3f}]"
        for watch, i in zip(watches, intervals, strict=True)
    ]
    label_ends(ax, [i.auc for i in intervals], texts, [watch.recipe.color for watch in watches])
    return save(fig, out, "digits")


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description="Cross-entropy against PPD-SG and PPD-AdaGrad.")
    parser.add_argument(
        "--steps", type=int, default=100, help="of the first stage; each method takes 40 times that"
    )
    parser.add_argument("--seed", type=int, default=0, help="of split, start and batches")
    parser.add_argument("--seeds", type=int, default=3, help="how many, from --seed on")
    parser.add_argument("--out", type=Path, help="folder for the figure; else none is drawn")
    return parser.parse_args(arguments)


def run(seed: int, first: int, console: Console) -> tuple[Data, list[Watch]]:
    """Train the three methods on one split, from one start."""
    data = load_data(seed)
    n, positives = len(data.y_train), int(data.y_train.sum())
    console.print(f"Seed {seed}: {positives} positives, {n - positives} negatives to train.")
    torch.manual_seed(seed)
    model = make_model()
    total = sum(stage.steps for stage in geometric(steps=first, stages=STAGES))
    recipes = [
        cross_entropy(copy.deepcopy(model), total),
        ppd_sg(copy.deepcopy(model), positives / n, first),
        ppd_adagrad(copy.deepcopy(model), positives / n, first),
    ]
    return data, train_all(recipes, data, seed, max(1, first // 5), console)


def seeds_table(runs: Sequence[list[Watch]], first_seed: int) -> Table:
    """Test AUC of the stage average, seed by seed: one split is one roll of the dice."""
    table = Table(title="Test AUC of the stage average, by seed")
    table.add_column("seed")
    for watch in runs[0]:
        table.add_column(watch.recipe.name, justify="right")
    aucs = [[watch.average[-1] for watch in watches] for watches in runs]
    for seed, row in enumerate(aucs, start=first_seed):
        table.add_row(str(seed), *(f"{auc:.3f}" for auc in row))
    table.add_section()
    for name, summary in (("mean", statistics.mean), ("std. dev.", statistics.stdev)):
        table.add_row(name, *(f"{summary(column):.3f}" for column in zip(*aucs, strict=True)))
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print the tables, draw the figure if ``--out`` says where."""
    options = parse_arguments(arguments)
    began = time.perf_counter()
    console = Console(highlight=False)
    torch.set_num_threads(1)  # the network is too small to share between cores
    console.print("Digits 5-9 above 0-4; training has a tenth of the negatives.")
    seeds = range(options.seed, options.seed + options.seeds)
    results = [run(seed, options.steps, console) for seed in seeds]
    data, watches = results[0]

    console.print("", results_table(watches, data, options.seed), sep="\n")
    console.print(f"Differences of the averages at seed {options.seed} (paired DeLong test):")
    for line in comparison(watches, data):
        console.print(f"  {line}")
    if options.seeds > 1:
        console.print("", seeds_table([watches for _, watches in results], options.seed), sep="\n")
    if options.out is not None:
        for path in draw_figure(watches, data, options.out):
            console.print(f"Figure: {path}", soft_wrap=True)
    console.print(f"Done in {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
