"""The folder of an experiment: results, what unfinished runs have left, the images they share."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from aucmax.disk import atomic_write, lock_folder, read_json
from aucmax.paper.datasets import ImageData
from aucmax.paper.prepare import distinct
from aucmax.paper.results import RunResult, read_result
from aucmax.paper.settings import Run


@dataclass(frozen=True)
class Folder:
    """Where the files of an experiment are: in its ``out``."""

    path: Path

    def result_file(self, run: Run) -> Path:
        """Of a run that is done."""
        return self.path / run.place / f"{run.name}.json"

    def checkpoints(self, run: Run) -> Path:
        """The folder of a run that is not."""
        return self.path / "unfinished" / run.place / run.name

    def result(self, run: Run) -> RunResult:
        """What came of a run that is done."""
        return read_result(self.result_file(run))

    def save(self, run: Run, result: RunResult) -> None:
        """Write the result of a run, after which its checkpoints are not needed."""
        result.write(self.result_file(run))
        shutil.rmtree(self.checkpoints(run), ignore_errors=True)

    def read(self, name: str) -> dict[str, Any]:
        """The content of another JSON file; nothing if it is not there."""
        path = self.path / name
        content: dict[str, Any] = read_json(path) if path.exists() else {}
        return content

    def copy_results(self, other: Folder, runs: Iterable[Run], device: str) -> None:
        """Those of the same runs in another folder; there they may belong to another figure."""
        for run in runs:
            if other.result_file(run).exists() and not self.result_file(run).exists():
                result = replace(other.result(run), experiment=run.experiment)
                if not result.differences(run, device):
                    result.write(self.result_file(run))

    def store_images(self, images: ImageData) -> None:
        """Put the images, without exact repeats, where every worker can map them into memory."""
        train, test = distinct(images.x_train, images.x_test)
        arrays: dict[str, NDArray[Any]] = {
            "x_train": images.x_train[train], "y_train": images.y_train[train],
            "x_test": images.x_test[test], "y_test": images.y_test[test],
            "classes": np.array(images.classes),
        }  # fmt: skip
        self._images.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            with atomic_write(self._images / f"{name}.npy") as path, path.open("wb") as file:
                np.save(file, array)

    def stored_images(self) -> ImageData:
        """The images that :meth:`store_images` has put there, read when they are looked at."""
        paths = [self._images / f"{name}.npy" for name in ImageData._fields]
        images = ImageData(*(np.load(path, mmap_mode="r") for path in paths))
        return images._replace(classes=tuple(map(str, images.classes)))

    @property
    def _images(self) -> Path:
        return self.path / "unfinished" / "images"

    def tidy(self) -> None:
        """Remove what only unfinished runs need, unless there are some, of other calls too."""
        unfinished = self.path / "unfinished"
        for path in unfinished.glob("*/*"):
            if (self.path / path.parent.name / f"{path.name}.json").exists():
                shutil.rmtree(path, ignore_errors=True)  # killed when its result was just written
        if unfinished.exists() and not any(path.is_dir() for path in unfinished.glob("*/*")):
            shutil.rmtree(unfinished)

    def lock(self) -> IO[str]:
        """The folder for this process alone until the file is closed; made if need be."""
        self.path.mkdir(parents=True, exist_ok=True)
        refusal = f"out must be the folder of one command at a time, found another in {self.path}"
        return lock_folder(self.path, refusal)
