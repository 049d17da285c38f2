"""The command line: parse, call, print."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import tyro

from aucmax._version import __version__
from aucmax.experiments.pool import WorkerDiedError

Experiment = Literal["figure1", "figure2", "figure3"]
DataSet = Literal["digits", "cifar10", "cifar100", "stl10", "catdog"]
Protocol = Literal["paper", "strong"]
# Options that need not be given: their help says what is done then.
Count = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")]
Seconds = Annotated[float | None, tyro.conf.arg(metavar="SECONDS", help_behavior_hint="")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]
Fractions = Annotated[tuple[float, ...], tyro.conf.arg(metavar="F ...", help_behavior_hint="")]
Numbers = Annotated[tuple[float, ...], tyro.conf.arg(metavar="X ...", help_behavior_hint="")]
Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")]


def reproduce(
    experiment: Annotated[Experiment, tyro.conf.Positional],
    dataset: DataSet = "digits",
    protocol: tuple[Protocol, ...] = ("paper", "strong"),
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
    workers: Count = None,
    device: str = "auto",
    time_limit: Seconds = None,
    time_alone: bool = False,
) -> None:
    """Run an experiment of the paper and draw its figure.

    Killed or stopped, the same command goes on where it was.

    Args:
        experiment: The figure.
        dataset: The data; digits needs no files, the others theirs in --data.
        protocol: The paper's own way to train, a strong present-day one, or both.
        removed: Fractions of the training negatives to remove, instead of the experiment's.
        lines: Some of the curves, such as ppd-sg pga sgd, instead of the experiment's.
        seeds: How many seeds, instead of three.
        steps: Steps of each run, instead of the data set's.
        tune: First search the paper's grid of step sizes, gamma and T0 on validation AUC.
        tune_lr: Search these step sizes, and of gamma and T0 only what is given likewise.
        tune_gamma: Search these values of gamma.
        tune_first_stage: Search these shares of the steps for the first stage, T0.
        tune_steps: Steps of each trial of that search, instead of a sixteenth of a run's.
        trials: At most so many trials for each curve.
        data: The folder that holds the data sets' folders; default $AUCMAX_DATA, or "data".
        download: Fetch the data from its own page if it is not there.
        out: A folder for the results; default runs/EXPERIMENT-DATASET.
        workers: Runs at once; default one per core, or eight on a GPU.
        device: cpu, cuda, or auto, which takes the GPU if there is one.
        time_limit: Begin no more runs after so many seconds.
        time_alone: Then time steps of every curve alone, for the figure by seconds.
    """
    from aucmax.experiments import reproduce as run

    grid = {"lr": tune_lr, "gamma": tune_gamma, "first_stage": tune_first_stage}
    page = run(
        experiment, dataset=dataset, protocols=protocol, removed=removed or None,
        lines=lines or None, seeds=seeds, steps=steps, tune_steps=tune_steps,
        tune={name: values for name, values in grid.items() if values} or tune,
        trials=trials, data=data, download=download, out=out, workers=workers, device=device,
        time_limit=time_limit, time_alone=time_alone,
    )  # fmt: skip
    print((page.parent / "table.txt").read_text(encoding="utf-8"))
    print(f"\nThe figures are on {page}")


COMMANDS: dict[str, Callable[..., None]] = {"reproduce": reproduce}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command of the shell; what cannot be right is one line and exit code 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["-h"], ["--help"]) or not given:
        print(_usage())
        return
    if given == ["--version"]:
        print(f"aucmax {__version__}")
        return
    name, *rest = given
    if name not in COMMANDS:
        _fail(f"command must be one of {', '.join(COMMANDS)}, found {name!r}")
    try:
        options = _parse(name, rest)
        COMMANDS[name](**options)
    except (ValueError, OSError) as error:
        _fail(str(error))
    except WorkerDiedError as error:
        _fail(str(error), code=1)
    except KeyboardInterrupt:
        print("\naucmax: stopped; the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None


def _parse(name: str, arguments: list[str]) -> dict[str, Any]:
    """The command's options; what tyro says of a wrong one in a box becomes one line."""

    @functools.wraps(COMMANDS[name])
    def collect(*given: Any, **options: Any) -> dict[str, Any]:
        return {**dict(zip(inspect.signature(collect).parameters, given, strict=False)), **options}

    _check_values(arguments)
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found: dict[str, Any] = tyro.cli(
                collect, prog=f"aucmax {name}", args=arguments, config=config
            )
    except SystemExit as end:
        if end.code == 2:
            _fail(_unboxed(said.getvalue()))
        raise
    return found


def _unboxed(text: str) -> str:
    """The message in a box: its lines above the rule, without the frame and the title."""
    lines = [line.strip("│ ") for line in text.splitlines() if line.startswith("│")]
    rule = next((i for i, line in enumerate(lines) if line.startswith("──")), len(lines))
    message = " ".join(lines[:rule]) or text
    return message.split(" Got errors:")[0].replace("{None}|", "")


def _check_values(arguments: list[str]) -> None:
    """An option of several values with none would pass for one that was not given."""
    for option, value in pairwise([*arguments, "--"]):
        if option in ("--removed", "--lines", "--protocol") and value.startswith("--"):
            raise ValueError(f"{option} must have a value, found none")


def _usage() -> str:
    rows = [f"  {name:<12} {_first_line(command)}" for name, command in COMMANDS.items()]
    return "\n".join(
        ["usage: aucmax COMMAND [OPTIONS]", "", *rows, "", "aucmax COMMAND --help says more."]
    )


def _first_line(command: Callable[..., None]) -> str:
    return (command.__doc__ or "").splitlines()[0]


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"aucmax: error: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(code)
