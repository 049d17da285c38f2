"""The folder of a model: all its files or none, and nothing of anybody else's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from aucmax import disk
from aucmax.judge.evaluation import Evaluation
from aucmax.judge.multilabel import LabelEvaluations

FILES = {
    "model.json", "model.safetensors", "evaluation.json", "evaluation.safetensors", "report.html",
    "tuning.json", "pictures.json", "pictures.safetensors",
}  # fmt: skip
"""All that is ever in a model's folder; with others in it, it is not replaced."""


class Fitted(NamedTuple):
    """What a command has written.

    Attributes:
        folder: of the model.
        model: as it is in the folder.
        evaluation: how good it is on rows kept apart, an
            :class:`~aucmax.judge.evaluation.Evaluation`; of several labels
            :class:`~aucmax.judge.multilabel.LabelEvaluations`.
        report: the page that shows it.
        replaced: whether the folder held a model before.
    """

    folder: Path
    model: Any
    evaluation: Any
    report: Path
    replaced: bool


def check_free(folder: Path) -> None:
    """Raise unless the folder is free, or holds nothing but a model to be replaced."""
    _check_content(folder)
    for path in _beside(folder):
        if path.exists():
            raise ValueError(
                f"out must leave {path.name} free, found it beside {folder}: remove it"
            )
    folder.parent.mkdir(parents=True, exist_ok=True)


def _check_content(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, found the file {folder}")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if names - FILES or (names and not holds_model(folder)):
        other = sorted(names - FILES or names)[0]
        raise ValueError(
            f"out must be empty or a model's folder, found {other!r} in {folder}: move it elsewhere"
        )


def holds_model(folder: Path) -> bool:
    """Whether ``model.json`` is a classifier's: other programs write files of this name too."""
    try:
        content = json.loads((folder / "model.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "classifier" in content


def write(
    folder: Path,
    model: Any,
    evaluation: Evaluation | LabelEvaluations,
    write_more: Callable[[Path], object] = lambda fresh: None,
) -> Fitted:
    """Write all files or none: they are made beside the folder, which then takes their place.

    Args:
        folder: see :func:`check_free`.
        model: fitted; it saves itself into a folder.
        evaluation: of the model.
        write_more: writes further files into a folder, which may be ``report.html`` itself.

    Raises:
        ValueError: if somebody has put something there while the model was trained.
    """
    from aucmax.report.page import write_model_page

    check_free(folder)
    fresh, _ = _beside(folder)
    try:
        model.save(fresh)
        evaluation.write(fresh)
        write_more(fresh)
        if isinstance(evaluation, Evaluation) and not (fresh / "report.html").exists():
            write_model_page(fresh / "report.html", evaluation)
        _check_content(folder)  # just before it is replaced
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    replaced = holds_model(folder)
    disk.replace_folder(folder, fresh)
    return Fitted(folder, model, evaluation, folder / "report.html", replaced)


def recover(folder: Path) -> None:
    """Put right what a process left that was killed within :func:`write`."""

    def is_ours(path: Path) -> bool:
        return path.is_dir() and {x.name.removesuffix(".tmp") for x in path.iterdir()} <= FILES

    fresh, before = _beside(folder)
    if is_ours(before) and not folder.exists():
        before.rename(folder)
    if is_ours(fresh):
        shutil.rmtree(fresh)
    if is_ours(before) and not holds_model(before):  # a whole one may be somebody's copy
        shutil.rmtree(before)


def _beside(folder: Path) -> tuple[Path, Path]:
    return folder.with_name(f"{folder.name}.partial"), folder.with_name(f"{folder.name}.before")
