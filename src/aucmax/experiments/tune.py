"""The paper's grid, searched on validation AUC with Optuna: eta0, T0 and gamma."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from aucmax import _checks
from aucmax.experiments.job import perform, write_json
from aucmax.experiments.plan import STAGED, Plan, Run
from aucmax.experiments.pool import Pool
from aucmax.experiments.progress import Bar

PLACE = "trials"
TUNED = ("lr", "T0", "gamma")


def tuned(
    plan: Plan,
    grid: dict[str, list[Any]],
    workforce: Pool,
    bar: Bar,
    task: tuple[Path, str, int],
    steps: int | None,
    trials: int | None,
    deadline: float | None,
) -> list[Run]:
    """The plan's runs with the best options of a search for each line, ratio and protocol.

    Every trial's result is a file in ``out/trials``, and the studies are in ``out/studies.log``:
    a search that was interrupted goes on.

    Args:
        plan: the experiment's.
        grid: values of the options to choose from.
        workforce: runs the trials.
        bar: shows them.
        task: the folder of the experiment, the device, and how many runs share it.
        steps: of each trial; None for a sixteenth of a run's.
        trials: at most so many for each study.
        deadline: of time.monotonic(), after which no trial begins.
    """
    folder = task[0]
    studies = [
        Study(run, grid, folder, steps or max(1, run.options["steps"] // 16), trials)
        for run in plan.runs
        if run.seed == 0
    ]
    left = [len(study.left) for study in studies]
    steps_left = sum(n * s.pattern.options["steps"] for n, s in zip(left, studies, strict=True))
    bar.begin("tuning", sum(left), steps_left, place=PLACE)

    asked: dict[str, tuple[Study, Any]] = {}

    def tasks() -> Iterator[Any]:
        for study in _in_turn(studies):
            if deadline is not None and time.monotonic() > deadline:
                return
            trial, run = study.ask()
            bar.started(run)
            asked[run.name] = study, trial
            yield run, perform, (run, *task, PLACE)

    for run, path in workforce.run(tasks()):
        study, trial = asked.pop(run.name)
        study.tell(trial, path)
        bar.finished(run, path)
    found = {study.pattern.study: study.best() for study in studies}
    write_json(folder / "tuned.json", {name: best for name, best in found.items() if best})
    return [run.with_options(**found[run.study].get("options", {})) for run in plan.runs]


class Study:
    """The search for one line's options: an Optuna study kept in a file.

    The grid's points are tried in random order, each once. A trial that an interruption cut off
    is recorded as failed and made again; one that diverged is recorded as pruned.
    """

    def __init__(
        self, run: Run, grid: dict[str, list[Any]], folder: Path, steps: int, trials: int | None
    ) -> None:
        self.optuna = _optuna()
        evaluate = max(1, min(run.options["eval_every"], _checks.count("tune_steps", steps) // 10))
        self.pattern = run.with_options(steps=steps, eval_every=evaluate)
        storage = self.optuna.storages
        backend = storage.journal.JournalFileBackend(str(folder / "studies.log"))
        self.study = self.optuna.create_study(
            study_name=f"{run.study}-{steps}",
            storage=storage.JournalStorage(backend),
            direction="maximize",
            load_if_exists=True,
        )
        self.points = _points(run, grid)
        done = self._forget_cut_off_trials()
        left = [point for point in self.points if point not in done]
        wanted = len(self.points) if trials is None else _checks.count("trials", trials)
        self.left = left[: max(0, wanted - len(done))]

    def _forget_cut_off_trials(self) -> list[dict[str, Any]]:
        """Let trials that nobody works on fail; returns the points of those that ended."""
        state = self.optuna.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False):
            if not trial.state.is_finished():
                self.study.tell(trial.number, state=state.FAIL)
        ended = self.study.get_trials(deepcopy=False, states=(state.COMPLETE, state.PRUNED))
        return [trial.params for trial in ended]

    def ask(self) -> tuple[Any, Run]:
        """The next trial and its run."""
        options = self.left.pop(0)
        self.study.enqueue_trial(options)
        trial = self.study.ask()
        for name, value in options.items():
            trial.suggest_categorical(name, sorted({point[name] for point in self.points}))
            assert trial.params[name] == value
        tag = "-".join(f"{name}{value}" for name, value in options.items())
        return trial, replace(self.pattern.with_options(**options), tag=tag)

    def tell(self, trial: Any, path: Path) -> None:
        """Its validation AUC, or that it diverged."""
        result = json.loads(path.read_text(encoding="utf-8"))["result"]
        if result is None:
            self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)
        else:
            self.study.tell(trial, result["chosen"]["valid_auc"])

    def best(self) -> dict[str, Any]:
        """The options of the best trial with what it reached; nothing if none ended well."""
        done = [t for t in self.study.get_trials(deepcopy=False) if t.value is not None]
        if not done:
            return {}
        best = max(done, key=lambda trial: (trial.value, -trial.number))
        return {"options": best.params, "valid_auc": best.value, "trials": len(done)}


def _in_turn(studies: list[Study]) -> Iterator[Study]:
    """One trial of each, over and over, until all have had theirs."""
    while any(study.left for study in studies):
        yield from (study for study in studies if study.left)


def _points(run: Run, grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The grid's points in the options that the line's method has, in a seeded random order."""
    unknown = set(grid) - set(TUNED)
    if unknown or not grid:
        raise ValueError(f"tune must be a grid of {', '.join(TUNED)}, found {sorted(grid)}")
    names = [n for n in TUNED if n in grid and (n == "lr" or run.options["method"] in STAGED)]
    points = [
        dict(zip(names, values, strict=True)) for values in product(*(grid[n] for n in names))
    ]
    random.Random(run.study).shuffle(points)
    return points


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ValueError(
            f"tune needs the package optuna: pip install 'aucmax[tune]' ({error})"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
