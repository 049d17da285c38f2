"""``aucmax reproduce``."""

from __future__ import annotations

import inspect
import time
from typing import Annotated, Any, Literal, get_args

import tyro

from aucmax.cli._options import Count, Folder, Seconds

Experiment = Literal["figure1", "figure1-long", "figure2", "figure3", "readings", "study"]
Regime = Literal[
    "clean", "small", "noise", "few", "top", "budget", "groups",
    "pictures-clean", "pictures-noise", "pictures-sources",
]  # fmt: skip
DataSet = Literal["digits", "cifar10", "cifar100", "stl10", "catdog"]
Protocol = Literal["paper", "paper-after", "paper-none", "strong"]
# Options that need not be given: their help says what is done then.
Fractions = Annotated[tuple[float, ...], tyro.conf.arg(metavar="F ...", help_behavior_hint="")]
Numbers = Annotated[tuple[float, ...], tyro.conf.arg(metavar="X ...", help_behavior_hint="")]
Protocols = Annotated[tuple[Protocol, ...], tyro.conf.arg(help_behavior_hint="")]
Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")]
Regimes = Annotated[tuple[Regime, ...], tyro.conf.arg(help_behavior_hint="")]


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
    regime: Regimes = (),
    beside: bool = False,
) -> None:
    """Run an experiment of the paper, or a part of the study of when it helps.

    Killed or stopped, the same command goes on where it was.

    Args:
        experiment: The figure, how the paper's text on the split can be read, or the study, which
            has of the other options --regime, --beside, --data, --out, --workers, --device and
            --time-limit.
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
        out: A folder for the results; default runs/EXPERIMENT-DATASET, of the study runs/study.
        reuse: A folder of earlier results, whose runs of the same settings are taken over.
        workers: Runs at once; default one per core, or eight on a GPU.
        device: cpu, cuda, or auto, which takes the GPU if there is one.
        time_limit: Begin no more runs after so many seconds.
        time_alone: Then time steps of every curve alone, for the figure by seconds.
        regime: The parts of the study to run.
        beside: Of the study, also LibAUC's losses, where it is installed, and objective="auto".
    """
    if experiment == "study":
        _study(locals())
        return
    for name, value in (("regime", regime), ("beside", beside)):
        if value:
            raise ValueError(f"{name} must go with study, found it with {experiment}")
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


def _study(given: dict[str, Any]) -> None:
    """The options that it has, refusing others."""
    from aucmax.study import run_study, write_report

    names = ("data", "out", "workers", "device", "time_limit", "beside")
    own = {name: given[name] for name in names}
    defaults = inspect.signature(reproduce).parameters
    others = [x for x in given if x not in own and given[x] != defaults[x].default]
    if wrong := [f"--{x.replace('_', '-')}" for x in others if x not in ("experiment", "regime")]:
        allowed = ", ".join(f"--{x.replace('_', '-')}" for x in ("regime", *own))
        raise ValueError(f"study takes {allowed}, found {', '.join(wrong)}")
    if not given["regime"]:
        allowed = ", ".join(get_args(Regime))
        raise ValueError(f"regime must be given for study, some of {allowed}, found none")
    began, limit = time.monotonic(), own["time_limit"]
    for regime in given["regime"]:
        if limit is not None:
            own["time_limit"] = max(0.0, limit - (time.monotonic() - began))
        page = write_report(regime, run_study(regime, **own))
        print(page.read_text(encoding="utf-8"))
        figure = ", a figure" if (page.parent / "forest.svg").exists() else ""
        print(f"This{figure} and all runs are in {page.parent}\n")
