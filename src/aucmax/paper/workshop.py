"""The folder of an experiment, taken by one process, and the runs that are done in it."""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from aucmax import disk
from aucmax.paper.datasets import ImageData
from aucmax.paper.job import describe, perform, perform_in_turn, store_images
from aucmax.paper.plan import Run
from aucmax.paper.progress import Bar
from aucmax.processes import WorkerPool, configure_torch

Done: TypeAlias = Generator[tuple[Run, Path], None, None]
"""Runs with the files of their results, as they end."""


@dataclass
class Workshop:
    """Where results are kept, and what makes them.

    Attributes:
        folder: the ``out`` of the experiment.
        device: of all runs.
        workers: how many runs share it at a time: in processes, but on a GPU in this one.
        bar: shows how far they are.
        deadline: of time.monotonic(), after which no run begins; None for none.
        images: what the runs train on; None if they are stored already.
        reuse: a folder of results, of which those of the same runs are taken over.
    """

    folder: Path
    device: str
    workers: int
    bar: Bar
    deadline: float | None = None
    images: ImageData | None = None
    reuse: Path | None = None

    def perform(self, what: str, runs: Sequence[Run], place: str = "runs") -> None:
        """Do what is not done of the runs, as many at once as there are workers."""
        self._take_over(runs, place)
        missing = [run for run in runs if not self.is_done(run, place)]
        steps = sum(run.options["steps"] for run in missing)
        self.bar.begin(what, len(runs), steps, len(runs) - len(missing), place)
        if not missing:
            return
        self.store_images()
        on_gpu = self.device.startswith("cuda")
        with closing((self._in_turn if on_gpu else self._in_processes)(missing, place)) as done:
            for run, path in done:
                self.bar.finished(run, path)

    def _in_turn(self, missing: list[Run], place: str) -> Done:
        """On a GPU in this process, which then has the steps of several to work on."""
        configure_torch(os.cpu_count() or 1)
        about = (self.folder, self.device, self.workers, place)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an AUC that is nan is in the result
            yield from perform_in_turn(self._begun(missing), *about, self.bar.tick)

    def _in_processes(self, missing: list[Run], place: str) -> Done:
        about = (self.folder, self.device, self.workers, place)
        tasks = ((run, perform, (run, *about)) for run in self._begun(missing))
        threads = max(1, (os.cpu_count() or 1) // self.workers)  # however few are missing
        with WorkerPool(min(self.workers, len(missing)), threads, self.bar.tick) as pool:
            yield from pool.run(tasks)

    def _begun(self, missing: list[Run]) -> Iterator[Run]:
        """The runs, each as it begins, until the deadline."""
        for run in missing:
            if self.deadline is not None and time.monotonic() > self.deadline:
                self.bar.note("the time limit is reached: the same command goes on")
                return
            self.bar.started(run)
            yield run

    def store_images(self) -> None:
        """Put the images where the workers find them."""
        if self.images is not None:
            store_images(self.folder, self.images)

    def _take_over(self, runs: Sequence[Run], place: str) -> None:
        """The same runs' results from another folder; there they may belong to another figure."""
        if self.reuse is None:
            return
        source = replace(self, folder=self.reuse)
        for run in runs:
            if source._path(run, place).exists() and not self._path(run, place).exists():
                found = source.result(run, place)
                if self._differences(run, found) in ([], ["experiment"]):
                    self._path(run, place).parent.mkdir(parents=True, exist_ok=True)
                    disk.write_json(self._path(run, place), {**found, "experiment": run.experiment})

    def _differences(self, run: Run, found: dict[str, Any]) -> list[str]:
        """In which of the run's settings a result is one of other settings."""
        wanted = json.loads(json.dumps(describe(run, self.device)))
        return [key for key in wanted if found.get(key) != wanted[key]]

    def is_done(self, run: Run, place: str = "runs") -> bool:
        """Whether its result is there; an error if it is one of other settings."""
        path = self._path(run, place)
        if not path.exists():
            return False
        other = self._differences(run, self.result(run, place))
        if other:
            raise ValueError(
                f"out must be an empty folder or one of the same settings, found {path} "
                f"with another {', '.join(other)}: choose another folder"
            )
        return True

    def result(self, run: Run, place: str = "runs") -> dict[str, Any]:
        """What came of a run that is done."""
        path = self._path(run, place)
        try:
            found: dict[str, Any] = disk.read_json(path)
        except ValueError as error:
            raise ValueError(
                f"{path} must be the result of a run, found no JSON: {error}"
            ) from None
        return found

    def _path(self, run: Run, place: str) -> Path:
        return self.folder / place / f"{run.name}.json"

    def tidy(self) -> None:
        """Remove what only unfinished runs need, unless there are some, of other calls too."""
        work = self.folder / "unfinished"
        if work.exists() and not any(path.is_dir() for path in work.glob("*/*")):
            shutil.rmtree(work)


@contextmanager
def taken(folder: Path) -> Iterator[None]:
    """The folder for this process alone, as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    refusal = f"out must be the folder of one command at a time, found another in {folder}"
    with disk.lock_folder(folder, refusal):
        yield
