"""How far an experiment is: a bar over the steps of all runs, or a line per run."""

from __future__ import annotations

import json
from pathlib import Path

from aucmax.paper.plan import Run
from aucmax.progress import ProgressBar


class Bar:
    """Counts steps, finished ones by result and others by what their history says.

    Args:
        folder: the experiment's ``out``.
        show: False is silent.
    """

    def __init__(self, folder: Path, show: bool) -> None:
        self.folder = folder
        self.bar = ProgressBar(show, "percentage", "time left", "note", width=24)
        self.at_work: dict[str, int] = {}
        self.steps = self.done = self.runs = 0
        self.place = "runs"

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def begin(self, what: str, runs: int, steps: int, done: int = 0, place: str = "runs") -> None:
        """A part of the work begins: so many runs, ``done`` of them done, the others' steps."""
        self.runs, self.done, self.steps, self.place, self.at_work = runs, done, 0, place, {}
        self.bar.begin(what, steps, note=self._note())
        if done and not self.bar.live:
            self.note(f"{done} of {runs} runs were done before")

    def started(self, run: Run) -> None:
        """A worker has taken it on."""
        self.at_work[run.name] = run.options["steps"]

    def tick(self) -> None:
        """Look how far the runs at work are."""
        if self.bar.live:
            work = self.folder / "unfinished" / self.place
            under_way = sum(_steps(work / name / "history.jsonl") for name in self.at_work)
            self.bar.update(self.steps + under_way, note=self._note())

    def finished(self, run: Run, path: Path) -> None:
        """A run is done: say how it went."""
        self.steps += self.at_work.pop(run.name)
        self.done += 1
        self.tick()
        self.note(f"{self.done:>4}/{self.runs}  {run.name}: {_outcome(path)}")

    def _note(self) -> str:
        return f"{self.done} of {self.runs} runs done"

    def note(self, text: str) -> None:
        """A line of its own."""
        self.bar.say(text)


def _steps(path: Path) -> int:
    """The last recorded step of a run that may not have begun."""
    try:
        lines = path.read_bytes().splitlines()
        return int(json.loads(lines[-1])["step"]) if lines else 0
    except (OSError, ValueError, KeyError):
        return 0


def _outcome(path: Path) -> str:
    result = json.loads(path.read_text(encoding="utf-8"))
    if "error" in result:
        return str(result["error"])
    final, seconds = result["result"]["final"], result["seconds"]
    shown = ", ".join(f"{which} {value or float('nan'):.4f}" for which, value in final.items())
    return f"test AUC {shown}, {seconds:,.0f} s"
