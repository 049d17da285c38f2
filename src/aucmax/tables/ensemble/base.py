"""What models of a table have in common, whatever they are inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aucmax.tables.encoder import Encoded
from aucmax.train.metrics import Metric

Scores = NDArray[np.float64]
"""Raw scores (N, outputs): of two classes one, the higher the likelier the second."""


class TableModel(ABC):
    """A fitted model that scores encoded rows; one of several in an ensemble.

    Attributes:
        kind: what :data:`aucmax.tables.ensemble.kinds.KINDS` knows it by.
        name: what it is called among the others.
        device: where it scores, if it can choose.
    """

    kind: ClassVar[str]
    name: str
    device = torch.device("cpu")

    @abstractmethod
    def score(self, rows: Encoded, fold: int | None = None) -> Scores:
        """Raw scores of rows; of one fold's fit alone, if that is asked for and still there."""

    @abstractmethod
    def to_plain(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All that scoring needs: what JSON can hold, and arrays by name.

        Raises:
            ValueError: if that cannot be without pickle.
        """

    @classmethod
    @abstractmethod
    def from_plain(cls, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The model that :meth:`to_plain` was called on."""

    @abstractmethod
    def as_module(self) -> nn.Module:
        """The same scores from (numeric, codes) in operations of torch that ONNX has, in double.

        Raises:
            ValueError: if it cannot be.
        """


def arrays_of(part: int, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Those of one of several parts that were joined as "PART.NAME", by their own names."""
    start = f"{part}."
    return {name.removeprefix(start): x for name, x in arrays.items() if name.startswith(start)}


class Setting(NamedTuple):
    """What every model is told beside rows and folds.

    Attributes:
        cardinalities: how many codes each categorical column has.
        outputs: scores per row: 1 for two classes, else one for each.
        metric: what they are judged by.
        seed: of all that is drawn.
        device: for those that can use one.
        deadline: of :func:`time.monotonic`, at which fits must be done; infinity without one.
        work: a folder to go on from, for what takes long; None keeps nothing.
        progress: whether to show a bar.
    """

    cardinalities: list[int]
    outputs: int
    metric: Metric
    seed: int
    device: torch.device
    deadline: float
    work: Path | None
    progress: bool


class CrossFitted(NamedTuple):
    """A model, and how its fits score rows that they have not seen.

    Attributes:
        model: scores new rows.
        scores: (N, outputs), of each row by fits that it was held out of; NaN where none was.
        seconds: that it took.
    """

    model: TableModel
    scores: Scores
    seconds: float


class LeftOutError(Exception):
    """A model cannot be had of this table or in this time; the message says why."""
