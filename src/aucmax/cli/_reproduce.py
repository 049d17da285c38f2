"""``aucmax reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

Experiment = Literal["figure1", "figure2", "figure3", "readings"]
DataSet = Literal["digits", "cifar10", "cifar100", "stl10", "catdog"]
Protocol = Literal["paper", "paper-after", "paper-none", "strong"]
# Options that need not be given: their help says what is done then.
Count = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")]
Seconds = Annotated[float | None, tyro.conf.arg(metavar="SECONDS", help_behavior_hint="")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]
Fractions = Annotated[tuple[float, ...], tyro.conf.arg(metavar="F ...", help_behavior_hint="")]
Numbers = Annotated[tuple[float, ...], tyro.conf.arg(metavar="X ...", help_behavior_hint="")]
Protocols = Annotated[tuple[Protocol, ...], tyro.conf.arg(help_behavior_hint="")]
Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")]


def reproduce(
    experiment: Annotated[Experiment, tyro.conf.Positional],
    dataset: DataSet = "digits",
    protocol: Protocols = (),
    removed: Fractions = (),
    lines: Names = (),
    seeds: Count = None,
    steps: Count = None,
    tune: bool = False,
    tune_lr: Numbers = (),
    tune_gamma: Numbers = (),
    tune_first_stage: Numbers = (),
    tune_steps: Count = None,
    trials: Count = None,
    data: Folder = None,
    download: bool = False,
    out: Folder = None,
    reuse: Folder = None,
    workers: Count = None,
    device: str = "auto",
    time_limit: Seconds = None,
    time_alone: bool = False,
) -> None:
    """Run an experiment of the paper and draw its figure.

    Killed or stopped, the same command goes on where it was.

    Args:
        experiment: The figure, or how the paper's text on the split can be read.
        dataset: The data; digits needs no files, the others theirs in --data.
        protocol: The paper's own way to train, a strong present-day one, or the experiment's.
        removed: Fractions of the training negatives to remove, instead of the experiment's.
        lines: Some of the curves, such as ppd-sg pga sgd, instead of the experiment's.
        seeds: How many seeds, instead of the experiment's.
        steps: Steps of each run, instead of the data set's.
        tune: First search a grid of step sizes, gamma and T0 on validation AUC.
        tune_lr: Search these step sizes, and of gamma and T0 only what is given likewise.
        tune_gamma: Search these values of gamma.
        tune_first_stage: Search these shares of the steps for the first stage, T0.
        tune_steps: Steps of each trial of that search, instead of a sixteenth of a run's.
        trials: At most so many trials for each curve.
        data: The folder that holds the data sets' folders; default $AUCMAX_DATA, or "data".
        download: Fetch the data from its own page if it is not there.
        out: A folder for the results; default runs/EXPERIMENT-DATASET.
        reuse: A folder of earlier results, whose runs of the same settings are taken over.
        workers: Runs at once; default one per core, or eight on a GPU.
        device: cpu, cuda, or auto, which takes the GPU if there is one.
        time_limit: Begin no more runs after so many seconds.
        time_alone: Then time steps of every curve alone, for the figure by seconds.
    """
    from aucmax.paper import reproduce as run

    grid = {"lr": tune_lr, "gamma": tune_gamma, "first_stage": tune_first_stage}
    page = run(
        experiment, dataset=dataset, protocols=protocol or None, removed=removed or None,
        lines=lines or None, seeds=seeds, steps=steps, tune_steps=tune_steps,
        tune={name: values for name, values in grid.items() if values} or tune,
        trials=trials, data=data, download=download, out=out, reuse=reuse, workers=workers,
        device=device, time_limit=time_limit, time_alone=time_alone,
    )  # fmt: skip
    print((page.parent / "table.txt").read_text(encoding="utf-8"))
    print(f"\nThe figures are on {page}")
