"""How good a model is on data, exact over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from aucmax import checks
from aucmax.data.batches import Batch, BatchFormat, as_data, evaluation_batches, has_groups
from aucmax.data.labels import find_task, known_labels
from aucmax.distributed import concat_over_ranks, gather_objects, total
from aucmax.optim.average import keeping_modes
from aucmax.sharding import mesh_of
from aucmax.train.metrics import Scored, default_metric, find_metric
from aucmax.train.options import AMP, find_device


def evaluate(
    model: nn.Module,
    data: Any,
    *,
    metric: str | Callable[..., float] | None = None,
    task: str = "auto",
    batch_size: int = 1024,
    workers: int = 0,
    device: str | torch.device = "auto",
    amp: str | None = None,
) -> float:
    """The AUC, or another metric, of a model on data of any kind that :func:`aucmax.fit` takes.

    For several classes the AUC is Hand and Till's M of the softmax, for several labels the mean of
    their AUCs. Under a process group each rank scores its part, and the AUC is that of all rows
    together, not a mean of AUCs.

    Args:
        model: gives raw scores; it is scored in evaluation mode and left in the mode it was in.
        data: arrays as in :func:`aucmax.fit`, a Dataset, a DataLoader or another iterable of
            batches.
        metric: a name such as "roc_auc" or "partial_auc@0.1", or a function, as in
            :func:`aucmax.fit`; None is "roc_auc", and "grouped_auc" for arrays that carry groups.
        task: "auto", "binary", "multiclass" or "multilabel".
        batch_size: rows at a time, for arrays and Datasets.
        workers: processes that load a Dataset.
        device: where to score; "auto" is the GPU if there is one. The model goes there.
        amp: "bf16" or "fp16" for mixed precision.

    Returns:
        Its value; nan, with a warning, if a class is missing or scores are not finite.

    Example:
        >>> import torch, aucmax
        >>> model = torch.nn.Linear(1, 1)
        >>> _ = torch.nn.init.ones_(model.weight)
        >>> aucmax.evaluate(model, (torch.tensor([[0.1], [0.4], [0.3], [0.8]]), [0, 0, 1, 1]))
        0.75
    """
    where = find_device(device)
    data = as_data("data", data)
    measure = find_metric(metric or default_metric(has_groups(data)))
    checks.count("batch_size", batch_size)
    checks.choice("amp", amp, (None, *AMP))
    model.to(where)
    form = BatchFormat(where, model_dtype(model), find_task(task, known_labels(data)))
    context = nullcontext() if amp is None else torch.autocast(where.type, AMP[amp])
    with context:
        scored = score(model, evaluation_batches(data, form, batch_size, workers))
    return measure(scored, form.task)


def model_dtype(model: nn.Module) -> torch.dtype:
    """The precision of the model's real parameters."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


@torch.no_grad()
def score(model: nn.Module, batches: Iterable[Batch]) -> Scored:
    """All rows of all ranks, scored in evaluation mode."""
    if mesh_of(model) is not None:
        batches = _in_step(batches)
    with keeping_modes(model):
        model.eval()
        parts = [
            Scored(model(batch.x)[: len(batch.y)], batch.y, batch.weight, batch.group)
            for batch in batches
        ]
    if not all(counts := gather_objects(len(parts))):
        raise ValueError(f"the data must have rows for every process, found batches {counts}")
    columns = joined(parts)
    return Scored(*(None if x is None else concat_over_ranks(x) for x in columns))  # type: ignore[arg-type]


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
        assert last is not None
        yield batch or Batch(last.x, *(None if x is None else x[:0] for x in last[1:]))  # type: ignore[arg-type]


def joined(parts: list[Scored]) -> Scored:
    """All their rows."""
    columns = ([x for x in column if x is not None] for column in zip(*parts, strict=True))
    return Scored(*(torch.cat(column) if column else None for column in columns))  # type: ignore[arg-type]
