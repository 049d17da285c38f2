"""One fit for each fold, judged by rows that it has not seen, and one of all for new rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aucmax import checkpoint
from aucmax.tables.encoder import Encoded
from aucmax.tables.ensemble.base import (
    CrossFitted,
    LeftOutError,
    Scores,
    Setting,
    TableModel,
    arrays_of,
)
from aucmax.tables.folds import Folds, scores_out_of_fold
from aucmax.tables.scoring import Rows


class Scorer(Protocol):
    """What one fit gives at least."""

    def score(self, rows: Encoded) -> Scores:
        """Raw scores (N, outputs)."""


class Savable(Scorer, Protocol):
    """What one fit gives that can be saved, as :class:`TableModel` has it."""

    def to_plain(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What JSON can hold, and arrays."""

    @classmethod
    def from_plain(cls, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """What :meth:`to_plain` was called on."""

    def as_module(self) -> nn.Module:
        """The same scores from (numeric, codes)."""


T = TypeVar("T", bound=Scorer)

NAME = "done"
"""Of the files of a model that is done, while others are not."""


class Refitted(TableModel):
    """A model whose fit of all rows scores new ones; the folds' are kept till it is saved.

    Attributes:
        fit_type: of the fits.
    """

    fit_type: ClassVar[type[Savable]]

    def __init__(self, name: str, whole: Savable, fits: list[Any]) -> None:
        self.name, self.whole, self.fits = name, whole, fits

    def score(self, rows: Encoded, fold: int | None = None) -> Scores:
        """Raw scores of rows, log-odds but for calibration."""
        if fold is None:
            return self.whole.score(rows)
        if not self.fits:
            raise ValueError(f"fold must be None: a saved {self.name} has no fits of folds")
        scores: Scores = self.fits[fold].score(rows)
        return scores

    def to_plain(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The fit of all rows."""
        about, arrays = self.whole.to_plain()
        return {"name": self.name, **about}, arrays

    @classmethod
    def from_plain(cls, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The model that :meth:`to_plain` was called on."""
        return cls(about["name"], cls.fit_type.from_plain(about, arrays), [])

    def as_module(self) -> nn.Module:
        """The fit of all rows."""
        return self.whole.as_module()


def keep(fitted: CrossFitted, folder: Path) -> None:
    """Write a model with the fits of its folds and the scores, for :func:`kept` to find."""
    assert isinstance(fitted.model, Refitted)
    arrays, about = {"scores": fitted.scores}, []
    for number, fit in enumerate((fitted.model.whole, *fitted.model.fits)):
        own, more = fit.to_plain()
        about.append(own)
        arrays |= {f"{number}.{name}": array for name, array in more.items()}
    notes = {"name": fitted.model.name, "fits": about, "seconds": fitted.seconds}
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    checkpoint.save_tensors(folder, NAME, tensors, notes)


def kept(kind: type[Refitted], folder: Path) -> CrossFitted | None:
    """What :func:`keep` wrote, if it did."""
    if not (folder / f"{NAME}.json").exists():
        return None
    tensors, notes = checkpoint.load_tensors(folder, NAME)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    whole, *of_folds = (
        kind.fit_type.from_plain(about, arrays_of(number, arrays))
        for number, about in enumerate(notes["fits"])
    )
    return CrossFitted(kind(notes["name"], whole, of_folds), arrays["scores"], notes["seconds"])


def all_used(rows: Rows, folds: Folds) -> Rows:
    """Those that the fit for new rows is trained on."""
    return rows.select(folds.whole)


def cross_fit(
    train: Callable[[Rows], T], rows: Rows, folds: Folds, setting: Setting
) -> tuple[list[T], Scores]:
    """The fits of all folds, and of each row the mean score by those that it was held out of.

    Raises:
        LeftOutError: if a fit has no rows of a class to train on, or gives scores that are no
            numbers, or if these fits and one of all rows would not be done in time.
    """
    began = time.monotonic()
    table, classes = rows.encoded, max(2, setting.outputs)
    fits: list[T] = []
    scores: list[Scores] = []
    for fold in range(folds.count):
        used, judged = folds.rows(fold)
        if (missing := classes - len(np.unique(rows.classes[used]))) > 0:
            raise LeftOutError(f"{missing} of {classes} classes have no rows to train a fold on")
        now = time.monotonic()
        needed = (now - began) / max(1, len(fits)) * (folds.count - len(fits) + 1)
        if (over := now + needed - setting.deadline) > 0:
            raise LeftOutError(f"it would have taken {over:.1f} seconds more than were left")
        fits.append(train(rows.select(used)))
        scores.append(
            fits[-1].score(table.select(judged)) if len(judged) else np.empty((0, setting.outputs))
        )
        if not np.isfinite(scores[-1]).all():
            raise LeftOutError("its scores are not finite")
    return fits, scores_out_of_fold(folds.held, setting.outputs, lambda fold, _: scores[fold])
