"""How far an experiment is: a bar over the steps of all runs, or a line per run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from aucmax.paper.folder import Folder
from aucmax.paper.results import RunResult
from aucmax.paper.settings import Run
from aucmax.progress import ProgressBar


class RunsBar(ProgressBar):
    """Counts steps, of finished runs all and of others as many as their history says."""

    def __init__(self, folder: Folder, show: bool) -> None:
        super().__init__(show, "percentage", "time left", "note", width=24)
        self.folder = folder
        self.under_way: list[Run] = []
        self.steps = self.done = self.runs = 0

    def begin_runs(self, what: str, runs: Sequence[Run], missing: Sequence[Run]) -> None:
        """A part of the work begins: these runs, of which those that are missing are trained."""
        self.runs, self.done, self.steps = len(runs), len(runs) - len(missing), 0
        self.under_way = []
        self.begin(what, sum(run.options["steps"] for run in missing), note=self._note())
        if self.done and not self.live:
            self.say(f"{self.done} of {self.runs} runs were done before")

    def started(self, run: Run) -> None:
        """A worker has begun it."""
        self.under_way.append(run)

    def tick(self) -> None:
        """Look how far the runs under way are."""
        if self.live:
            recorded = sum(_last_step(self.folder.checkpoints(run)) for run in self.under_way)
            self.update(self.steps + recorded, note=self._note())

    def finished(self, run: Run, result: RunResult) -> None:
        """A run is done: say how it went."""
        self.under_way.remove(run)
        self.steps += run.options["steps"]
        self.done += 1
        self.tick()
        said = str(result.error)
        if result.result is not None:
            aucs = ", ".join(f"{which} {x:.4f}" for which, x in result.result.final.items())
            said = f"test AUC {aucs}, {result.seconds:,.0f} s"
        self.say(f"{self.done:>4}/{self.runs}  {run.name}: {said}")

    def _note(self) -> str:
        return f"{self.done} of {self.runs} runs done"


def _last_step(checkpoints: Path) -> int:
    """The last recorded step of a run that may not have begun."""
    try:
        lines = (checkpoints / "history.jsonl").read_bytes().splitlines()
        return int(json.loads(lines[-1])["step"]) if lines else 0
    except (OSError, ValueError, KeyError):
        return 0
