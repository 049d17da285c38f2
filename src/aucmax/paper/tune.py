"""The paper's grid, searched on validation AUC: eta0, gamma and the length of the first stage."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from aucmax import checks
from aucmax.disk import read_json, write_json
from aucmax.paper.plan import STAGED, Run
from aucmax.paper.workshop import Workshop
from aucmax.search import open_journal, require_optuna

PLACE = "trials"
TUNED = ("lr", "gamma", "first_stage")


def plan_trials(
    runs: Sequence[Run], grid: dict[str, list[Any]], steps: int | None, trials: int | None
) -> dict[str, list[Run]]:
    """The trials of each study: shorter runs of the first seed at the grid's points.

    Args:
        runs: the experiment's.
        grid: values of the options to choose from.
        steps: of each trial; None for a sixteenth of a run's.
        trials: at most so many for each study.
    """
    unknown = set(grid) - set(TUNED)
    if unknown or not grid or not all(grid.values()):
        raise ValueError(
            f"tune must be a grid of {', '.join(TUNED)}, with values for each, found {grid}"
        )
    require_optuna()
    steps = None if steps is None else checks.count("tune_steps", steps)
    first = {run.study: run for run in runs if run.seed == 0}
    return {
        name: _trial_runs(run, grid, steps or max(1, run.options["steps"] // 16), trials)
        for name, run in first.items()
    }


def tuned(
    runs: Sequence[Run],
    studies: dict[str, list[Run]],
    grid: dict[str, list[Any]],
    workshop: Workshop,
    how: str,
) -> list[Run]:
    """The runs with the best options of a search for each line, ratio and protocol.

    A trial's result is a file in ``out/trials``: a search that was interrupted goes on. Judged is
    the validation AUC at the trial's end, of the iterate that the line shows. The studies are
    written for Optuna's tools as ``out/studies.log``.

    Args:
        runs: the experiment's.
        studies: from :func:`plan_trials`.
        grid: values of the options to choose from.
        workshop: does the trials.
        how: the options of the command that ask for this search.
    """
    in_turn = [run for row in zip_longest(*studies.values()) for run in row if run is not None]
    workshop.perform("tuning", in_turn, PLACE)
    best = {name: _best(asked, grid, workshop) for name, asked in studies.items()}
    _record(studies, grid, workshop)
    _add_to(workshop.folder / "tuned.json", best)
    return [run.with_options(**best[run.study].get("options", {}), tuned=how) for run in runs]


def _add_to(path: Path, best: dict[str, Any]) -> None:
    """To what calls for other lines, ratios and protocols have found."""
    before = read_json(path) if path.exists() else {}
    write_json(path, {**before, **best})


def _trial_runs(run: Run, grid: dict[str, list[Any]], steps: int, trials: int | None) -> list[Run]:
    """The grid's points, in the options that the line's method has, in a seeded random order."""
    names = [n for n in grid if n == "lr" or run.options["method"] in STAGED]
    points = list(product(*(grid[name] for name in names)))
    random.Random(run.study).shuffle(points)
    wanted = len(points) if trials is None else checks.count("trials", trials)
    evaluate = max(1, min(run.options["eval_every"], steps // 10))
    found = []
    for values in points[:wanted]:
        options = dict(zip(names, values, strict=True))
        tag = "-".join([f"{steps}steps", *(f"{name}{value}" for name, value in options.items())])
        shorter = run.with_options(**options, steps=steps, eval_every=evaluate)
        found.append(replace(shorter, tag=tag))
    return found


def _best(asked: list[Run], grid: dict[str, list[Any]], workshop: Workshop) -> dict[str, Any]:
    """The best trial's options and what it reached; nothing if none ended well."""
    values = {run.name: _value(run, workshop) for run in asked}
    done = [run for run in asked if values[run.name] is not None]
    if not done:
        return {}
    best = max(done, key=lambda run: values[run.name] or 0.0)
    return {
        "options": _options(best, grid),
        "valid_auc": values[best.name],
        "trials": len(done),
        "steps": best.options["steps"],
    }


def _value(run: Run, workshop: Workshop) -> float | None:
    """The trial's last validation AUC; None if it is not done or diverged."""
    if not workshop.is_done(run, PLACE):
        return None
    result = workshop.result(run, PLACE)
    if result["result"] is None:
        return None
    found: float | None = result["history"][-1][f"valid_auc_{run.options['iterate']}"]
    return found


def _options(run: Run, grid: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: run.options[name] for name in grid if name in run.options}


def _record(studies: dict[str, list[Run]], grid: dict[str, list[Any]], workshop: Workshop) -> None:
    """All trials as Optuna studies, for its dashboard and its plots."""
    optuna = require_optuna()
    storage = open_journal(workshop.folder / "studies.log")
    for name, asked in studies.items():
        if name in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=name, storage=storage)
        study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
        for run in asked:
            if (value := _value(run, workshop)) is not None:
                options = _options(run, grid)
                kinds = {
                    key: optuna.distributions.CategoricalDistribution(grid[key]) for key in options
                }
                study.add_trial(
                    optuna.trial.create_trial(params=options, distributions=kinds, value=value)
                )


def command_options(
    tune: bool | Mapping[str, Sequence[Any]], steps: int | None, trials: int | None
) -> str:
    """What to type to search again."""
    own = {} if isinstance(tune, bool) else tune
    grid = {f"--tune-{key.replace('_', '-')}": own[key] for key in own} or {"--tune": []}
    given = {"--tune-steps": [steps], "--trials": [trials]}
    options = {**grid, **given}
    return " ".join(" ".join(map(str, [k, *v])) for k, v in options.items() if [*v] != [None])
