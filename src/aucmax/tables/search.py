"""A search over a classifier's options: what is tried, how it is judged, and the file it is in."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aucmax.checks import NotFiniteError
from aucmax.processes import WorkerPool
from aucmax.search import open_journal, require_optuna
from aucmax.tables.classifier import LEARNING_RATE, AUCClassifier
from aucmax.tables.columns import Columns
from aucmax.tables.encoder import Encoded, TableEncoder
from aucmax.tables.fit import Source
from aucmax.tables.holdout import hold_out
from aucmax.tables.labeled import Labeled, rows_of
from aucmax.tables.scoring import Rows
from aucmax.train import DivergedError
from aucmax.train._options import find_device
from aucmax.train._signals import Stopped
from aucmax.train._sweep import Sweep
from aucmax.train._turns import Outcome

FOLDS = 3
"""Into which the training rows are cut: each is scored by a model of the others."""
AT_RANDOM = 10
"""Trials before the sampler learns from what it has seen."""


def space_of(classes: int, fixed: dict[str, Any]) -> dict[str, Any]:
    """The options to choose, each with its distribution, but for those that are fixed."""
    kinds = require_optuna().distributions
    space = {
        "objective": kinds.CategoricalDistribution(["auc+ce", "auc", "ce"]),
        "lr": kinds.FloatDistribution(3e-4, 1e-2, log=True),
        "weight_decay": kinds.FloatDistribution(1e-3, 0.3, log=True),
        "dropout": kinds.FloatDistribution(0.0, 0.5),
        "width": kinds.CategoricalDistribution([64, 128, 256]),
        "blocks": kinds.IntDistribution(1, 3),
        "members": kinds.CategoricalDistribution([4, 8, 16]),
        "batch_size": kinds.CategoricalDistribution([64, 128, 256, 512]),
    }
    if classes == 2:
        space["balanced"] = kinds.CategoricalDistribution([False, True])
    return {name: kind for name, kind in space.items() if name not in fixed}


def defaults_of(space: dict[str, Any]) -> dict[str, Any]:
    """The classifier's own choice of the options."""
    given = {**AUCClassifier().get_params(), "lr": LEARNING_RATE}
    return {name: given[name] for name in space}


# --- judging ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def prepared(source: Source, digest: str) -> tuple[Labeled, Labeled, tuple[NDArray[np.int64], ...]]:
    """Training rows, test rows, and the folds of the training rows; read once by each process.

    Args:
        source: of the rows.
        digest: of the file, so that another one of the same name is read again.
    """
    train, test = source.parts()
    return train, test, cut(train, source.seed)


def cut(train: Labeled, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Folds with the same shares of the classes, repeats of a row together."""
    encoded = TableEncoder().fit(train.table).transform(train.table)
    left, found = np.arange(len(train.classes)), []
    for share in (1 / n for n in range(FOLDS, 1, -1)):
        rows = Encoded(encoded.numeric[left], encoded.categorical[left])
        kept, held = hold_out(rows, train.classes[left], None, share, seed)
        if not len(held):
            counts = np.bincount(train.classes)
            raise ValueError(
                f"data must have enough rows of every label to cut those to train on in {FOLDS}, "
                f"found {counts.min()} of {train.labels[int(counts.argmin())]!r} among them"
            )
        found.append(left[held])
        left = left[kept]
    return (*found, left)


def validate(source: Source, digest: str, options: dict[str, Any]) -> dict[str, Any]:
    """The AUC of each fold, scored by a model of the other folds; rows to judge by have no part.

    Args:
        source: of the rows.
        digest: of its file.
        options: of the classifier.

    Returns:
        ``folds`` or, of options with which training diverges, ``error``; and ``seconds``.
    """
    train, _, folds = prepared(source, digest)
    began, found = time.perf_counter(), dict[str, Any]()
    try:
        found["folds"] = [_fold_auc(train, fold, source.seed, options) for fold in folds]
    except (DivergedError, NotFiniteError) as error:
        found["error"] = " ".join(str(error).split())
    return {**found, "seconds": round(time.perf_counter() - began, 3)}


def _fold_auc(train: Labeled, fold: NDArray[np.int64], seed: int, options: dict[str, Any]) -> float:
    model, rows, classes = _fold(train, fold, seed, options)
    model.fit(rows, classes)
    return model.score(rows_of(train.table, fold), train.classes[fold])


def _fold(
    train: Labeled, fold: NDArray[np.int64], seed: int, options: dict[str, Any]
) -> tuple[AUCClassifier, Columns, NDArray[np.int64]]:
    """A classifier, and the rows and classes that it is to learn from: those of the other folds."""
    others = np.setdiff1d(np.arange(len(train.classes)), fold)
    model = AUCClassifier(**{**options, "random_state": seed, "n_jobs": 1, "verbose": False})
    return model, rows_of(train.table, others), train.classes[others]


class Trial:
    """The folds of one trial, as far as they are known."""

    def __init__(self, name: str) -> None:
        self.name, self.began = name, time.perf_counter()
        self.folds: dict[int, float | Exception] = {}

    def found(self) -> dict[str, Any]:
        """As of :func:`validate`."""
        folds = [self.folds[k] for k in range(FOLDS)]
        errors = [fold for fold in folds if isinstance(fold, Exception)]
        found = {"error": " ".join(str(errors[0]).split())} if errors else {"folds": folds}
        return {**found, "seconds": round(time.perf_counter() - self.began, 3)}


def validate_in_turn(
    tasks: Iterator[Any], device: torch.device, at_once: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names and results of tasks as they end, folds taking turns on a GPU in this process.

    Args:
        tasks: (name, :func:`validate`, its arguments), or None to be asked again when one ended.
        device: of all of them.
        at_once: how many folds, of several trials, share it.
    """
    under_way: dict[int, Any] = {}

    def configs() -> Iterator[dict[str, Any] | None]:
        number = 0
        for task in tasks:
            if task is None:
                yield None
                continue
            name, _, (source, digest, options) = task
            trial, (train, _, folds) = Trial(name), prepared(source, digest)
            for k, fold in enumerate(folds):
                model, rows, classes = _fold(train, fold, source.seed, options)
                arguments, judged = model._begin_fit(rows, classes)
                test = rows_of(train.table, fold), train.classes[fold]
                under_way[number] = trial, k, functools.partial(_judged, model, judged, test)
                number += 1
                yield arguments

    try:
        with closing(iter(Sweep(configs(), device, at_once))) as ended:
            for number, outcome in ended:
                trial, k, judge = under_way.pop(number)
                trial.folds[k] = judge(outcome)
                if len(trial.folds) == FOLDS:
                    yield trial.name, trial.found()
    except Stopped as stopped:
        raise Stopped(stopped.number, "; the same command goes on from its trials") from None


def _judged(
    model: AUCClassifier, rows: Rows, test: tuple[Columns, NDArray[np.int64]], outcome: Outcome
) -> float | Exception:
    """The AUC on test rows of a classifier whose training is over, or what went wrong."""
    try:
        if isinstance(outcome, DivergedError):
            return outcome
        return model._end_fit(outcome, rows).score(*test)
    except NotFiniteError as error:
        return error.with_traceback(None)


# --- the study ----------------------------------------------------------------------------------


@dataclass
class Search:
    """A study in a file, which goes on where a killed process left it.

    Attributes:
        path: of the file, Optuna's journal.
        source: of the rows.
        digest: of their file.
        fixed: options that all trials share.
        space: options to choose, see :func:`space_of`.
    """

    path: Path
    source: Source
    digest: str
    fixed: dict[str, Any]
    space: dict[str, Any]

    def __post_init__(self) -> None:
        self.optuna, self.states = require_optuna(), require_optuna().trial.TrialState
        self.study = self.optuna.create_study(
            storage=open_journal(self.path), study_name="tune",
            direction="maximize", load_if_exists=True,
        )  # fmt: skip
        self._take_up()

    def _take_up(self) -> None:
        """The defaults come first; what was running when the process died comes again."""
        if not self.study.trials:
            self.study.enqueue_trial(defaults_of(self.space))
        for trial in self.study.get_trials(states=(self.states.RUNNING,)):
            self.study.enqueue_trial({**trial.system_attrs.get("fixed_params", {}), **trial.params})
            self.study.tell(trial.number, state=self.states.FAIL)

    def begun(self) -> int:
        """How many trials are done or at work; not those that a kill ended."""
        counted = (self.states.COMPLETE, self.states.PRUNED, self.states.RUNNING)
        return len(self.study.get_trials(deepcopy=False, states=counted))

    def done(self) -> list[dict[str, Any]]:
        """Every trial's options, and what came of it, in the order in which they began."""
        ended = self.study.get_trials(states=(self.states.COMPLETE, self.states.PRUNED))
        return [
            {"options": {**self.fixed, **t.params}, "validation_auc": t.value, **t.user_attrs}
            for t in ended
        ]

    def run(self, trials: int, workers: int, deadline: float) -> Iterator[dict[str, Any]]:
        """Do what is missing of so many trials, and give what came of each as it ends.

        None begins after the deadline, of ``time.monotonic()``, but the first.
        """
        at_work: dict[str, Any] = {}

        def tasks() -> Iterator[Any]:
            while (begun := self.begun()) < trials and (not begun or time.monotonic() < deadline):
                if len(at_work) == workers:
                    yield None
                    continue
                trial = self._ask(begun)
                at_work[name := f"trial {trial.number + 1}"] = trial
                yield name, validate, (self.source, self.digest, {**self.fixed, **trial.params})

        device = find_device(self.fixed.get("device", "auto"))
        workers = min(workers, max(1, trials - self.begun()))
        with closing(_results(tasks(), device, workers)) as results:
            for name, found in results:
                self._tell(at_work.pop(name), found)
                yield found

    def _ask(self, begun: int) -> Any:
        """The next trial; a sampler that is made anew draws alike before and after a kill."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older versions call two of these experimental
            self.study.sampler = self.optuna.samplers.TPESampler(
                seed=(self.source.seed + begun * 1_000_003) % 2**32, multivariate=True,
                constant_liar=True, n_startup_trials=AT_RANDOM,
            )  # fmt: skip
        return self.study.ask(self.space)

    def _tell(self, trial: Any, found: dict[str, Any]) -> None:
        for key, value in found.items():
            trial.set_user_attr(key, value)
        if "error" in found:
            self.study.tell(trial, state=self.states.PRUNED)  # which the sampler takes as bad
        else:
            self.study.tell(trial, float(np.mean(found["folds"])))


def _results(
    tasks: Iterator[Any], device: torch.device, workers: int
) -> Generator[tuple[str, dict[str, Any]], None, None]:
    """Each task's name and result, from processes of one thread each, or from this one."""
    if device.type == "cuda":
        yield from validate_in_turn(tasks, device, FOLDS * workers)
        return
    if workers == 1:
        for name, function, arguments in tasks:
            yield name, function(*arguments)
        return
    with WorkerPool(workers, 1, lambda: None) as pool:
        yield from pool.run(tasks)
