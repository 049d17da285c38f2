"""The paper's grid, searched on validation AUC: eta0, gamma and the length of the first stage."""

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
    runs: Sequence[Run], grid: Grid, steps: int | None, trials: int | None
) -> dict[str, list[Run]]:
    """The trials for each line, by its name: shorter runs of the first seed at the grid's points.

    They are of ``steps``, or a sixteenth of a run's, for each line at most ``trials``, and of the
    runs' most imbalanced ratio alone: the other ratios take over what is best there.
    """
    if not grid or set(grid) - set(OPTIONS) or not all(grid.values()):
        raise ValueError(
            f"tune must be a grid of {', '.join(OPTIONS)}, with values for each, found {grid}"
        )
    require_optuna()
    steps = None if steps is None else checks.count("tune_steps", steps)
    trials = None if trials is None else checks.count("trials", trials)
    most = max(run.removed for run in runs)
    return {
        run.key.file_name: _trials(run, grid, steps or max(1, run.options["steps"] // 16))[:trials]
        for run in runs
        if run.seed == 0 and run.removed == most
    }


def _trials(run: Run, grid: Grid, steps: int) -> list[Run]:
    """The grid's points, in the options that the line's method has, in a seeded random order."""
    names = [name for name in grid if name == "lr" or run.method_settings.stages is not None]
    if run.options.get("gamma") == "inf":  # a line without prox stays one
        names = [name for name in names if name != "gamma"]
    points = list(product(*(grid[name] for name in names)))
    random.Random(run.key.file_name).shuffle(points)
    rest = {key: value for key, value in run.options.items() if key != "tuned"}
    trials = []
    for values in points:
        options = dict(zip(names, values, strict=True))
        name = "-".join([f"{steps}steps", *(f"{key}{value}" for key, value in options.items())])
        shorter = {**rest, **options, "steps": steps, "eval_every": max(1, steps // 2)}
        trials.append(replace(run, options=shorter, trial=name))
    return trials


def tune_runs(
    runs: Sequence[Run], studies: Mapping[str, list[Run]], grid: Grid, runner: Runner, how: str
) -> list[Run]:
    """The runs with the best options of a search for each line and protocol.

    A trial's result is a file in ``out/trials``: a search that was interrupted goes on. Judged is
    the validation AUC at the trial's end, of the iterate that the line shows. The best are written
    to ``out/tuned.json``, all for Optuna's tools to ``out/studies.log``. ``studies`` are those of
    :func:`plan_trials`; ``how`` are the options of the command that ask for this search.
    """
    alternated = [run for row in zip_longest(*studies.values()) for run in row if run is not None]
    runner.train("tuning", alternated)
    ended = {name: _ended(trials, grid, runner) for name, trials in studies.items()}
    _write_studies(runner.folder.path / "studies.log", ended, grid)
    best = {
        name: {**trials[0].key._asdict(), **_best(ended[name]), "how": how}
        for name, trials in studies.items()
    }
    of_other_calls = runner.folder.read(TUNED)
    write_json(runner.folder.path / TUNED, {**of_other_calls, **best})
    found = {(b["protocol"], b["line"]): b.get("options", {}) for b in best.values()}
    return [run.with_options(**found[run.protocol, run.line], tuned=how) for run in runs]


class Trial(NamedTuple):
    """A trial that ended well: how long it was, what it tried and what it reached."""

    steps: int
    options: dict[str, Any]
    valid_auc: float


def _ended(trials: list[Run], grid: Grid, runner: Runner) -> list[Trial]:
    """Those that are done and did not diverge."""
    ended = []
    for run in filter(runner.is_done, trials):
        result = runner.folder.result(run)
        key = ROC_AUC.history_key("valid", result.iterate)
        if not result.has_diverged and (value := result.history[-1][key]) is not None:
            options = {
                name: run.options[name] for name in grid if run.options.get(name) in grid[name]
            }
            ended.append(Trial(result.steps, options, value))
    return ended


def _best(trials: list[Trial]) -> dict[str, Any]:
    """The best trial's options and what it reached; nothing if none ended well."""
    if not trials:
        return {}
    best = max(trials, key=lambda trial: trial.valid_auc)
    return {
        "options": best.options,
        "valid_auc": best.valid_auc,
        "trials": len(trials),
        "steps": best.steps,
    }


def _write_studies(path: Path, studies: Mapping[str, list[Trial]], grid: Grid) -> None:
    """All trials as Optuna studies, for its dashboard and its plots."""
    optuna = require_optuna()
    categorical = optuna.distributions.CategoricalDistribution
    create_trial, storage = optuna.trial.create_trial, open_journal(path)
    for name, trials in studies.items():
        if name in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=name, storage=storage)
        study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
        for trial in trials:
            kinds = {key: categorical(grid[key]) for key in trial.options}
            study.add_trial(
                create_trial(params=trial.options, distributions=kinds, value=trial.valid_auc)
            )


def command_options(tune: bool | Grid, steps: int | None, trials: int | None) -> str:
    """What to type to search again."""
    own = {} if isinstance(tune, bool) else tune
    grid = {f"--tune-{key.replace('_', '-')}": own[key] for key in own} or {"--tune": []}
    options = {**grid, "--tune-steps": [steps], "--trials": [trials]}
    return " ".join(" ".join(map(str, [k, *v])) for k, v in options.items() if [*v] != [None])
