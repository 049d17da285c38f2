"""Train the runs of an experiment that are not done: in processes, on a GPU by turns."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import torch

from aucmax import history
from aucmax.paper.datasets import ImageData
from aucmax.paper.folder import Folder
from aucmax.paper.progress import RunsBar
from aucmax.paper.provenance import provenance
from aucmax.paper.results import Chosen, Reached, RunResult, number, read_result, settings_of
from aucmax.paper.settings import Run
from aucmax.paper.training import Parts, fit_arguments, make_model, make_parts
from aucmax.processes import WorkerPool, configure_torch
from aucmax.threads import cores
from aucmax.train import DivergedError, Outcome, Sweep, fit
from aucmax.train.metrics import ITERATES, ROC_AUC

Finished: TypeAlias = Generator[tuple[Run, RunResult], None, None]
"""Runs and their results, as they end."""
KEPT = 4
"""Runs' rows that are kept for runs to come: those of other lines follow each other."""


@dataclass
class Runner:
    """Trains what is missing in a folder.

    Attributes:
        folder: of the experiment.
        device: of all runs.
        workers: how many runs share it at a time: in processes, but on a GPU in this one.
        bar: shows how far they are.
        deadline: of time.monotonic(), after which no run begins; None for none.
        images: what the runs train on; None if they are stored already.
        reuse: a folder of results, of which those of the same runs are copied.
    """

    folder: Folder
    device: str
    workers: int
    bar: RunsBar
    deadline: float | None = None
    images: ImageData | None = None
    reuse: Folder | None = None

    def train(self, what: str, runs: Sequence[Run]) -> None:
        """Train those of the runs that are not done; the bar says what that is for."""
        if self.reuse is not None:
            self.folder.copy_results(self.reuse, runs, self.device)
        missing = [run for run in runs if not self.is_done(run)]
        self.bar.begin_runs(what, runs, missing)
        if not missing:
            return
        self.store_images()
        on_gpu = self.device.startswith("cuda")
        with closing(self._by_turns(missing) if on_gpu else self._in_processes(missing)) as ended:
            for run, result in ended:
                self.bar.finished(run, result)

    def is_done(self, run: Run) -> bool:
        """Whether its result is there; an error if it is one of other settings."""
        path = self.folder.result_file(run)
        if not path.exists():
            return False
        if other := read_result(path).differences(run, self.device):
            raise ValueError(
                f"out must be an empty folder or one of the same settings, found {path} "
                f"with another {', '.join(other)}: choose another folder"
            )
        return True

    def store_images(self) -> None:
        """Put the images where the workers find them."""
        if self.images is not None:
            self.folder.store_images(self.images)

    def _in_processes(self, missing: list[Run]) -> Finished:
        about = (self.folder, self.device, self.workers)
        tasks = ((run, train_run, (run, *about)) for run in self._until_deadline(missing))
        threads = max(1, cores() // self.workers)  # however few are missing
        with WorkerPool(min(self.workers, len(missing)), threads, self.bar.tick) as pool:
            yield from pool.run(tasks)

    def _by_turns(self, missing: list[Run]) -> Finished:
        configure_torch(cores())
        runs, about = self._until_deadline(missing), (self.folder, self.device, self.workers)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an AUC that is nan is in the result
            yield from train_by_turns(runs, *about, self.bar.tick)

    def _until_deadline(self, missing: list[Run]) -> Iterator[Run]:
        """The runs, each as it begins."""
        for run in missing:
            if self.deadline is not None and time.monotonic() > self.deadline:
                self.bar.say("the time limit is reached: the same command goes on")
                return
            self.bar.started(run)
            yield run


def train_run(run: Run, folder: Folder, device: str, at_once: int) -> RunResult:
    """Train as the run says, going on where it was left, and save what came of it.

    The folder has the images. ``at_once`` runs share the machine, which their times tell.
    """
    parts = make_parts(run, folder.stored_images())
    outcome: Outcome
    try:
        outcome = fit(**_arguments(run, parts, folder, device), device=device, progress=False)
    except DivergedError as error:
        outcome = error
    return _save(outcome, run, parts, folder, device, at_once)


def train_by_turns(
    runs: Iterable[Run],
    folder: Folder,
    device: str,
    at_once: int,
    tick: Callable[[], object] = lambda: None,
    *,
    others: int = 0,
) -> Finished:
    """The same in this process for many runs, which take turns on a GPU.

    Each comes with its result as it ends; the next is asked for when there is room for it. Runs of
    the same images have them on the device but once. ``tick`` is called a few times a second.
    ``others`` runs of other processes share the GPU, which times tell, too.
    """
    images, under_way = folder.stored_images(), dict[int, tuple[Run, Parts]]()

    def configs() -> Iterator[dict[str, Any]]:
        known = dict[Any, Parts]()
        for index, run in enumerate(runs):
            o = run.options
            rows = (run.partition, run.removed, run.seed, o["valid"], o["hold_out"])
            if rows not in known:
                if len(known) == KEPT:
                    del known[next(iter(known))]
                known[rows] = make_parts(run, images)
            under_way[index] = run, known[rows]
            yield _arguments(run, known[rows], folder, device)

    sweep = Sweep(configs(), torch.device(device), at_once)
    sweep.tick = tick
    with closing(iter(sweep)) as ended:
        for index, outcome in ended:
            run, parts = under_way.pop(index)
            yield run, _save(outcome, run, parts, folder, device, at_once + others)


def _arguments(run: Run, parts: Parts, folder: Folder, device: str) -> dict[str, Any]:
    """Those of fit, the model made, but for device and progress."""
    model = make_model(run, parts.train[0])
    arguments = fit_arguments(run, model, device)
    return {"model": model, **parts._asdict(), "out": folder.checkpoints(run), **arguments}


def _save(
    outcome: Outcome, run: Run, parts: Parts, folder: Folder, device: str, at_once: int
) -> RunResult:
    """Save what came of a run; of one that diverged, how, and its history until then."""
    reached = None
    if isinstance(outcome, DivergedError):
        path = folder.checkpoints(run) / "history.jsonl"
        records = history.read(path) if path.exists() else []
    else:
        records = outcome.history
        keys = {which: ROC_AUC.history_key("test", which) for which in ITERATES}
        final = {which: number(records[-1][key], key) for which, key in keys.items()}
        at, key = {r["step"]: r for r in records}[outcome.step], keys[outcome.iterate]
        chosen = Chosen(outcome.step, outcome.iterate, outcome.auc, number(at[key], key))
        reached = Reached(final, None if parts.valid is None else chosen)
    speeds = [record["steps_per_second"] for record in records if record["steps_per_second"]]
    result = RunResult(
        **settings_of(run, device),
        error=str(outcome) if isinstance(outcome, DivergedError) else None,
        history=records,
        result=reached,
        seconds_per_step=1 / median(speeds) if speeds else math.nan,
        seconds=records[-1]["seconds"] if records else 0.0,
        counts=parts.counts(),
        at_once=at_once,
        **provenance(device),
    )
    folder.save(run, result)
    return result
