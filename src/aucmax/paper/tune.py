"""A grid searched on validation AUC: eta0, gamma and the length of the first stage."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from aucmax import checks
from aucmax.disk import write_json
from aucmax.paper.runner import Runner
from aucmax.paper.settings import Run
from aucmax.search import open_journal, require_optuna
from aucmax.train.metrics import ROC_AUC

OPTIONS = ("lr", "gamma", "first_stage")
TUNED = "tuned.json"
"""By a line's name, where it was searched, what was best and how to search again."""
Grid: TypeAlias = Mapping[str, Sequence[Any]]
"""Values of the options to choose from."""


def plan_trials(
    runs: Sequence[Run], grids: Mapping[str, Grid], steps: int | None, trials: int | None
) -> dict[str, list[Run]]:
    """The trials for each line, by its name: shorter runs of the first seed at a grid's points.

    They are of ``steps``, or a sixteenth of a run's, for each line at most ``trials``, and of the
    runs' most imbalanced ratio alone: the other ratios take over what is best there. The grids are
    by protocol.
    """
    for grid in grids.values():
        if not grid or set(grid) - set(OPTIONS) or not all(grid.values()):
            raise ValueError(
                f"tune must be a grid of {', '.join(OPTIONS)}, with values for each, found {grid}"
            )
    require_optuna()
    steps = None if steps is None else checks.count("tune_steps", steps)
    trials = None if trials is None else checks.count("trials", trials)
    most = max(run.removed for run in runs)
    return {
        run.key.file_name: _trials(
            run, grids[run.protocol], steps or max(1, run.options["steps"] // 16)
        )[:trials]
        for run in runs
        if run.seed == 0 and run.removed == most
    }


def _trials(run: Run, grid: Grid, steps: int) -> list[Run]:
    """The points of the grid in the options that the line has, its own values among them.

    First come all step sizes with everything else as it is, then points that differ in one thing,
    then in two; those that differ in as many are in one random order for all lines.
    """
    own = run.options
    names = [name for name in grid if name in own and own[name] != "inf"]  # no prox stays so
    values = {name: list(dict.fromkeys([own[name], *grid[name]])) for name in names}
    points = [dict(zip(names, point, strict=True)) for point in product(*values.values())]
    random.Random(0).shuffle(points)
    points.sort(key=lambda point: sum(point[name] != own[name] for name in names if name != "lr"))
    trials = []
    for point in points:
        name = "-".join([f"{steps}steps", *(f"{key}{value}" for key, value in point.items())])
        shorter = {**own, **point, "steps": steps, "eval_every": max(1, steps // 2)}
        trials.append(replace(run, options=shorter, trial=name))
    return trials


def tune_runs(
    runs: Sequence[Run], studies: Mapping[str, list[Run]], runner: Runner, how: str
) -> list[Run]:
    """The runs with the best options of a search for each line and protocol.

    A trial's result is a file in ``out/trials``: a search that was interrupted goes on. Judged is
    the validation AUC at the trial's end, of the iterate that the line shows. The best are written
    to ``out/tuned.json``, all for Optuna's tools to ``out/studies.log``. ``studies`` are those of
    :func:`plan_trials`; ``how`` are the options of the command that ask for this search. A line of
    which no trial ended well keeps its options.
    """
    alternated = [run for row in zip_longest(*studies.values()) for run in row if run is not None]
    runner.train("tuning", alternated)
    ended = {name: _ended(trials, runner) for name, trials in studies.items()}
    _write_studies(runner.folder.path / "studies.log", ended)
    best = {
        name: {**studies[name][0].key._asdict(), **_best(trials), "how": how}
        for name, trials in ended.items()
        if trials
    }
    of_other_calls = runner.folder.read(TUNED)
    write_json(runner.folder.path / TUNED, {**of_other_calls, **best})
    found = {(b["protocol"], b["line"]): {**b["options"], "tuned": b["how"]} for b in best.values()}
    return [run.with_options(**found.get((run.protocol, run.line), {})) for run in runs]


class Trial(NamedTuple):
    """A trial that ended well: how long it was, what it tried and what it reached."""

    steps: int
    options: dict[str, Any]
    valid_auc: float


def _ended(trials: list[Run], runner: Runner) -> list[Trial]:
    """Those that are done and did not diverge."""
    ended = []
    for run in filter(runner.is_done, trials):
        result = runner.folder.result(run)
        key = ROC_AUC.history_key("valid", result.iterate)
        if not result.has_diverged and (value := result.history[-1][key]) is not None:
            tried = {name: run.options[name] for name in OPTIONS if name in run.options}
            ended.append(Trial(result.steps, tried, value))
    return ended


def _best(trials: list[Trial]) -> dict[str, Any]:
    """The best trial's options and what it reached."""
    best = max(trials, key=lambda trial: trial.valid_auc)
    return {
        "options": best.options,
        "valid_auc": best.valid_auc,
        "trials": len(trials),
        "steps": best.steps,
    }


def _write_studies(path: Path, studies: Mapping[str, list[Trial]]) -> None:
    """All trials as Optuna studies, for its dashboard and its plots."""
    optuna = require_optuna()
    categorical = optuna.distributions.CategoricalDistribution
    create_trial, storage = optuna.trial.create_trial, open_journal(path)
    for name, trials in studies.items():
        if name in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=name, storage=storage)
        study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
        for trial in trials:
            kinds = {
                key: categorical(sorted({x.options[key] for x in trials})) for key in trial.options
            }
            study.add_trial(
                create_trial(params=trial.options, distributions=kinds, value=trial.valid_auc)
            )


def command_options(tune: bool | Grid, steps: int | None, trials: int | None) -> str:
    """What to type to search again."""
    own = {} if isinstance(tune, bool) else tune
    grid = {f"--tune-{key.replace('_', '-')}": own[key] for key in own} or {"--tune": []}
    options = {**grid, "--tune-steps": [steps], "--trials": [trials]}
    return " ".join(" ".join(map(str, [k, *v])) for k, v in options.items() if [*v] != [None])
