"""The folder of a run: its configuration, its checkpoints, its result, one process group at a time.

::

    config.json              what decides the result
    history.jsonl            a line per evaluation
    checkpoints/step-*       the last two states of the run
    checkpoints/best-*       the best weights that these states know of
    model.safetensors/.json  the result, once the run is over
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from aucmax import checkpoint, disk, distributed
from aucmax.checkpoint import DamagedError
from aucmax.train._fingerprint import FORMAT, differences
from aucmax.train._result import FitResult
from aucmax.train._state import Best, RunState

KEPT = 2


class RunFolder:
    """Reads and writes the files of a run; the first rank writes.

    Args:
        path: the ``out`` of the run.
        config: what decides the result.
        note: is told what is skipped.
        mesh: that of the model if it is sharded over ranks, which then all write; else None.
    """

    def __init__(
        self, path: Path, config: dict[str, Any], note: Callable[[str], None], mesh: Any
    ) -> None:
        self.path, self.config, self.note, self.mesh = path, config, note, mesh
        self.checkpoints = path / "checkpoints"
        self.kept: list[tuple[str, str]] = []
        self._lock: IO[str] | None = None
        self._new = False

    @property
    def history(self) -> Path:
        """The file of the records."""
        return self.path / "history.jsonl"

    def open(self) -> None:
        """Lock the folder for this run, and see that no other configuration is in it."""
        error: Exception | None = None
        if distributed.rank() == 0:
            try:
                self.checkpoints.mkdir(parents=True, exist_ok=True)
                at_work = f"found another process at work in {self.path}"
                refusal = f"out must be a folder of one run, {at_work}"
                self._lock = disk.lock_folder(self.path, refusal)
                self._check_config()
            except (FileExistsError, NotADirectoryError):
                error = ValueError(f"out must be a folder, found the file {self.path}")
            except (ValueError, OSError) as caught:
                error = caught
        error = distributed.broadcast_object(error)  # none waits for a rank that has failed
        if error is not None:
            raise error

    def _check_config(self) -> None:
        path, config = self.path / "config.json", json.loads(json.dumps(self.config))
        if not path.exists():
            disk.write_json(path, config)
            self._new = True
            return
        try:
            there = disk.read_json(path)
            differing = differences(there, config)
        except (ValueError, AttributeError):
            raise DamagedError(f"{path} is cut off or altered: it is no whole JSON") from None
        if there.get("format") != FORMAT:
            raise ValueError(
                f"out must be a new folder, found {self.path} with a run that another version of "
                f"aucmax began (format {there.get('format', 1)}, this one writes {FORMAT}): "
                + (
                    "it is over, and aucmax.load_weights reads its result"
                    if self.is_finished()
                    else "finish it with that version, or name another folder"
                )
            )
        if differing:
            raise ValueError(
                f"out must be a new folder or hold the same configuration, found {self.path} "
                f"with another: {'; '.join(differing)}"
            )

    def close(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            self._lock.close()

    def abandon(self) -> None:
        """Leave nothing behind if this call began the run and nothing came of it."""
        if not self._new or any(self.checkpoints.glob("step-*.json")):
            return
        for name in ("config.json", "history.jsonl", ".lock"):
            (self.path / name).unlink(missing_ok=True)
        for folder in (self.checkpoints, self.path):
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()

    def is_finished(self) -> bool:
        """Whether the run is over."""
        return (self.path / "model.json").exists()

    def latest(self) -> tuple[RunState, Best] | None:
        """The newest whole state and the best weights it knows of; None if none was saved.

        Raises:
            DamagedError: if there are states and none is whole.
        """
        names = sorted((p.stem for p in self.checkpoints.glob("step-*.json")), reverse=True)
        reasons = []
        for name in names:
            try:
                state = checkpoint.load(self.checkpoints, name, self.mesh)
                best = checkpoint.load(self.checkpoints, state["best"], self.mesh)
            except DamagedError as error:
                reasons.append(str(error))
                self.note(f"skipped a checkpoint: {error}")
                continue
            self.kept = [(name, state["best"])]
            return RunState.from_dict(state), Best(**best)
        if reasons:
            raise DamagedError(
                f"out must hold a whole checkpoint to go on from, found none: "
                f"{'; '.join(reasons)}. Nothing was changed; to begin anew use another folder"
            )
        return None

    def save(self, state: RunState, best: Best) -> None:
        """Write the state, and the best weights before it if they are not there yet."""
        if distributed.rank() != 0 and self.mesh is None:
            return
        if best.name not in {known for _, known in self.kept}:
            checkpoint.save(self.checkpoints, best.name, dict(vars(best)))
        checkpoint.save(self.checkpoints, state.name, state.to_dict())
        others = [pair for pair in self.kept if pair[0] != state.name]
        self.kept = [*others, (state.name, best.name)][-KEPT:]
        if distributed.rank() == 0:
            self._prune()

    def save_result(self, result: FitResult) -> None:
        """Write the chosen weights, and how they came about."""
        names = ("step", "iterate", "steps", "reason", "metric")
        notes = {name: getattr(result, name) for name in names}
        for name in ("score", "auc"):
            value = getattr(result, name)
            notes[name] = None if math.isnan(value) else value
        checkpoint.save_weights(self.path, "model", result.model, notes)

    def _prune(self) -> None:
        kept = {name for pair in self.kept for name in pair}
        names = {p.name.split(".")[0] for p in self.checkpoints.iterdir()}
        own = {name for name in names if re.fullmatch(r"(step|best)-\d{10}", name)}
        for name in sorted(own - kept):
            checkpoint.remove(self.checkpoints, name)
