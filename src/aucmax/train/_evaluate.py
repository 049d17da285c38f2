"""The AUC of a model on data, exact over all ranks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aucmax import metrics
from aucmax.checks import count
from aucmax.data.labels import find_task, known_labels
from aucmax.data.sources import Batch, Place, as_data, evaluation_batches
from aucmax.distributed import concat_over_ranks, gather_objects, total
from aucmax.optim.averaged import keeping_modes
from aucmax.sharding import mesh_of
from aucmax.train._options import AMP, find_device


def evaluate(
    model: nn.Module,
    data: Any,
    *,
    task: str = "auto",
    batch_size: int = 1024,
    workers: int = 0,
    device: str | torch.device = "auto",
    amp: str | None = None,
) -> float:
    """The AUC of a model on data of any kind that :func:`aucmax.fit` takes.

    For several classes it is Hand and Till's M of the softmax, for several labels the mean of
    their AUCs. Under a process group each rank scores its part, and the AUC is that of all rows
    together, not a mean of AUCs.

    Args:
        model: gives raw scores; it is scored in evaluation mode and left in the mode it was in.
        data: ``(x, y)``, a Dataset, a DataLoader or another iterable of batches.
        task: "auto", "binary", "multiclass" or "multilabel".
        batch_size: rows at a time, for arrays and Datasets.
        workers: processes that load a Dataset.
        device: where to score; "auto" is the GPU if there is one. The model goes there.
        amp: "bf16" or "fp16" for mixed precision.

    Returns:
        The AUC; nan, with a warning, if a class is missing or scores are not finite.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(1, 1)
        >>> _ = torch.nn.init.ones_(model.weight)
        >>> aucmax.evaluate(model, (torch.tensor([[0.1], [0.4], [0.3], [0.8]]), [0, 0, 1, 1]))
        0.75
    """
    where = find_device(device)
    data = as_data("data", data)
    count("batch_size", batch_size)
    if amp not in (None, *AMP):
        raise ValueError(f"amp must be one of None, 'bf16', 'fp16', found {amp!r}")
    model.to(where)
    place = Place(where, model_dtype(model), find_task(task, known_labels(data)))
    context = nullcontext() if amp is None else torch.autocast(where.type, AMP[amp])
    with context:
        scored = score(model, evaluation_batches(data, place, batch_size, workers))
    return auc(scored, place.task)


def model_dtype(model: nn.Module) -> torch.dtype:
    """The precision of the model's real parameters."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


class Scored(NamedTuple):
    """Scores, labels and, if there are any, weights of the same rows."""

    scores: Tensor
    target: Tensor
    weight: Tensor | None

    def with_more(self, more: Scored) -> Scored:
        """These rows and others."""
        return Scored(*map(_joined, zip(self, more, strict=True)))  # type: ignore[arg-type]


@torch.no_grad()
def score(model: nn.Module, batches: Iterable[Batch]) -> Scored:
    """All rows of all ranks, scored in evaluation mode."""
    if mesh_of(model) is not None:
        batches = _in_step(batches)
    with keeping_modes(model):
        model.eval()
        parts = [(model(batch.x)[: len(batch.y)], batch.y, batch.weight) for batch in batches]
    if not all(counts := gather_objects(len(parts))):
        raise ValueError(f"the data must have rows for every process, found batches {counts}")
    columns = map(_joined, zip(*parts, strict=True))
    return Scored(*(None if x is None else concat_over_ranks(x) for x in columns))  # type: ignore[arg-type]


def auc(scored: Scored, task: str) -> float:
    """The AUC that fits the task; nan with a warning where a class is missing."""
    scores, target, weight = scored
    if not bool(scores.isfinite().all()):
        warnings.warn("the result is nan: scores hold NaN or infinity", UserWarning, stacklevel=2)
        return math.nan
    if task == "binary":
        return metrics.roc_auc(scores, target, weight)
    if task == "multiclass":
        return metrics.hand_till(scores.double().softmax(-1), target, weight)
    columns = [_known(scored, j) for j in range(target.shape[1])]
    return math.fsum(metrics.roc_auc(*column) for column in columns) / len(columns)


def _in_step(batches: Iterable[Batch]) -> Iterator[Batch]:
    """As many batches on every rank, for a sharded model computes on all of them together.

    A rank that has no more gives its last inputs again, with no labels: rows that do not count.
    """
    source, last = iter(batches), None
    while True:
        batch = next(source, None)
        if total(batch is not None) == 0:
            return
        if batch is None and last is None:
            raise ValueError("the data must have rows for every process, found none")
        last = batch or last
        yield batch or Batch(last.x, last.y[:0], None if last.weight is None else last.weight[:0])  # type: ignore[union-attr]


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return torch.cat(known) if known else None


def _known(scored: Scored, label: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """The rows that know a label."""
    scores, target, weight = scored
    known = ~target[:, label].isnan()
    if weight is not None:
        weight = (weight if weight.ndim == 1 else weight[:, label])[known]
    return scores[known, label], target[known, label], weight
