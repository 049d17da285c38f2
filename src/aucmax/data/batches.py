"""Batches: arrays on the device, a Dataset, a DataLoader or a stream as a source of them.

A :class:`BatchSource` yields training batches without end and saves its position;
:func:`evaluation_batches` passes once through data of the same kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate
from torch.utils.data.distributed import DistributedSampler

from aucmax import distributed, random_state
from aucmax.data import labels as _labels
from aucmax.data.sampling import BatchSampler, mix_seed
from aucmax.processes import end_with_parent
from aucmax.row_groups import number_groups

PARTS = (
    "(inputs, labels), (inputs, labels, weights) or (inputs, labels, weights, groups), "
    "weights None if there are none"
)
"""The forms of data and batches, for messages."""


class Batch(NamedTuple):
    """Inputs (a tensor, or a tuple or dict of them), labels, and more columns of the rows.

    Attributes:
        weight: Weight of each row.
        group: Integer of each row; rows are ranked within groups.
        rows: Row numbers in the training data, where it has numbers.
    """

    x: Any
    y: Tensor
    weight: Tensor | None = None
    group: Tensor | None = None
    rows: Tensor | None = None

    def pick(self, rows: Tensor) -> Batch:
        """Return some of the rows; inputs, labels, weights and groups."""

        def pick(values: Tensor) -> Tensor:
            return values.index_select(0, rows)

        x = pick(self.x) if isinstance(self.x, Tensor) else tree_map(pick, self.x)
        weight, group = (None if part is None else pick(part) for part in self[2:4])
        return Batch(x, pick(self.y), weight, group)


class BatchFormat(NamedTuple):
    """Device, precision of real inputs, and task, which decides the dtype of labels."""

    device: torch.device
    dtype: torch.dtype
    task: str

    def convert(self, batch: Batch) -> Batch:
        """Return the batch on the device in the precision of the model."""
        x = tree_map(self._convert, batch.x)
        y = batch.y.to(self.device, non_blocking=True)
        y = y.long() if self.task == "multiclass" else y.to(torch.float32)  # as the losses take it
        more = (None if part is None else self._convert(part) for part in batch[2:])
        return Batch(x, y, *more)

    def _convert(self, x: Tensor) -> Tensor:
        dtype = self.dtype if x.is_floating_point() else x.dtype
        return x.to(self.device, dtype, non_blocking=True)


def apply_augment(augment: Callable[..., Any], inputs: Any, labels: Tensor) -> Any:
    """Call an augmentation with the inputs, and with the labels if its ``takes_labels`` is True."""
    return augment(inputs, labels) if getattr(augment, "takes_labels", False) else augment(inputs)


class BatchSource:
    """Training batches without end.

    :meth:`draw` does the work of the host and returns tensors of constant shape; :meth:`load` turns
    them into a batch by device operations alone, which a CUDA graph can capture.

    Attributes:
        weight: Weight of each row of the data, if known before training.
        weighted: Whether batches have weights.
    """

    weight: Tensor | None = None
    weighted = False
    _iterator: Iterator[Any] | None = None

    def draw(self) -> tuple[Any, ...]:
        """Return the arguments of :meth:`load` for the next batch, or raise StopIteration."""
        raise NotImplementedError

    def load(self, drawn: tuple[Any, ...], augment: Callable[..., Any] | None = None) -> Batch:
        """Return the batch on the device, augmented."""
        batch = Batch(*drawn)
        if augment is None:
            return batch
        return batch._replace(x=apply_augment(augment, batch.x, batch.y))

    def put_back(self, drawn: tuple[Any, ...]) -> None:
        """Return the latest batch to the source, so that it is drawn again if it may be the last.

        Only data that ends needs it; other sources ignore it.
        """

    def position(self, ago: int = 0) -> str:
        """Describe the latest batch, or the one ``ago`` batches before it."""
        raise NotImplementedError

    def close(self) -> None:
        """End the workers of a loader now rather than at garbage collection."""
        end_workers = getattr(self._iterator, "_shutdown_workers", None)
        if end_workers is not None:
            with suppress(RuntimeError):  # torch raises it for workers that are already dead
                end_workers()
        self._iterator = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position.

        It may draw random numbers: restore the state of the generators afterwards.
        """
        raise NotImplementedError


class _SampledSource(BatchSource):
    """Batches of the rows that a sampler names.

    Args:
        sampler: The order of the rows.
        parts: Parts in which each of its batches is handed out.
        apart: Whether each rank compares the rows of its own share of a batch only.
    """

    def __init__(self, sampler: BatchSampler, parts: int, apart: bool) -> None:
        self.sampler, self.parts, self.apart, self.batch = sampler, parts, apart, 0

    def rows(self, k: int) -> Tensor:
        """Return this rank's rows of part k of the sequence.

        Parts and ranks take turns in the rows of a batch, so that all are alike. Where the rows of
        a group should stay together, they take consecutive rows instead.
        """
        batch, part = divmod(k, self.parts)
        rows = self.sampler.rows(batch)
        grouped = self.sampler.grouped
        if self.parts > 1:
            rows = rows.chunk(self.parts)[part] if grouped else rows[part :: self.parts]
        if grouped and self.apart:
            return rows.chunk(distributed.world_size())[distributed.rank()]
        return own_part(rows)

    def position(self, ago: int = 0) -> str:
        return f"batch {(self.batch - 1 - ago) // self.parts}"

    def state_dict(self) -> dict[str, Any]:
        return {"batch": self.batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.batch = int(state["batch"])


class ArraySource(_SampledSource):
    """Batches of arrays that are kept on the device; a batch is one gather there."""

    def __init__(
        self,
        arrays: Batch,
        sampler: BatchSampler,
        form: BatchFormat,
        parts: int = 1,
        apart: bool = False,
    ) -> None:
        super().__init__(sampler, parts, apart)
        self.arrays = form.convert(arrays)
        self.weight = self.arrays.weight
        self.weighted = self.weight is not None
        sampler.to(form.device)

    def draw(self) -> tuple[Any, ...]:
        """Return the rows of the next batch."""
        rows = self.rows(self.batch)
        self.batch += 1
        return (rows,)

    def load(self, drawn: tuple[Any, ...], augment: Callable[..., Any] | None = None) -> Batch:
        """Gather the rows."""
        (rows,) = drawn
        return super().load(self.arrays.pick(rows), augment)._replace(rows=rows)


class DatasetSource(_SampledSource):
    """Batches of a map-style Dataset, loaded by worker processes.

    Random numbers of the transforms depend on the seed and the batch number alone. So neither the
    number of workers nor an interruption changes them.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: BatchSampler,
        form: BatchFormat,
        parts: int = 1,
        apart: bool = False,
        *,
        workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(sampler, parts, apart)
        self.form, self.seed = form, seed
        with random_state.Isolated(seed):
            self.weighted = len(dataset[0]) > 2
        self.loader = DataLoader(
            _SeededBatches(dataset),
            batch_size=None,
            sampler=self,
            num_workers=workers,
            pin_memory=form.device.type == "cuda",
            generator=torch.Generator(),
            worker_init_fn=end_with_parent,
        )

    def draw(self) -> tuple[Any, ...]:
        """Return the next batch from the workers."""
        if self._iterator is None:
            self._iterator = iter(self.loader)
        batch = as_batch(_next(self._iterator))._replace(rows=self.rows(self.batch))
        self.batch += 1
        return tuple(self.form.convert(batch))

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """Yield seed and rows of each batch from the present one on, as sampler of the loader."""
        k = self.batch
        while True:
            yield mix_seed(self.seed, k, distributed.rank()), self.rows(k).tolist()
            k += 1

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the saved batch with new workers."""
        super().load_state_dict(state)
        self._iterator = None


class IterableSource(BatchSource):
    """Batches of a DataLoader or another iterable, which is iterated over and over.

    An iterable cannot tell its position. To resume, its latest round is begun again with the random
    numbers it began with, and the batches that were used are skipped.
    """

    def __init__(self, data: Iterable[Any], form: BatchFormat) -> None:
        self.data, self.form = data, form
        self.round, self.used = 0, 0  # used: batches of this round
        self.generators = generators_of(data)
        sampler = getattr(data, "batch_sampler", None)
        self.sampler = sampler if isinstance(sampler, BatchSampler) else None
        self._began: dict[str, Any] | None = None
        self._returned: tuple[Any, ...] | None = None

    def put_back(self, drawn: tuple[Any, ...]) -> None:
        """Keep a batch of a stream, which may not come again."""
        self._returned, self.used = drawn, self.used - 1

    def draw(self) -> tuple[Any, ...]:
        """Return the next batch; that of the next round if this round is over."""
        if self._returned is not None:
            drawn, self._returned = self._returned, None
            self.used += 1
            return drawn
        item = _next(self._items())
        if distributed.total(item is not None) < distributed.world_size():
            # Over for one rank is over for all: none may wait for another's batch.
            if self.used == 0 or self._iterator is self.data:
                raise StopIteration
            self.round, self.used, self._iterator = self.round + 1, 0, None
            return self.draw()
        self.used += 1
        return tuple(self.form.convert(as_batch(item)))

    def _items(self) -> Iterator[Any]:
        if self._iterator is None:
            self._began = {
                "global": random_state.get_state(),
                "own": [generator.get_state() for generator in self.generators],
                "sampler": None if self.sampler is None else self.sampler.state_dict(),
            }
            sampler: Any = getattr(self.data, "sampler", None)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self.round)
            self._iterator = iter(self.data)
        return self._iterator

    def position(self, ago: int = 0) -> str:
        """Name the round and the batch."""
        return f"batch {self.used - 1 - ago} of round {self.round}"

    def state_dict(self) -> dict[str, Any]:
        """Return the round, the random numbers it began with, and its number of used batches."""
        return {"round": self.round, "used": self.used, "began": self._began}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the saved round again and skip the batches that were used."""
        self.round, self.used, self._iterator = int(state["round"]), 0, None
        self._returned = None
        if state["began"] is None:
            return
        random_state.set_state(state["began"]["global"])
        for generator, saved in zip(self.generators, state["began"]["own"], strict=True):
            generator.set_state(saved)
        if self.sampler is not None and state["began"].get("sampler") is not None:
            self.sampler.load_state_dict(state["began"]["sampler"])
        for _ in range(int(state["used"])):
            if _next(self._items()) is None:
                raise ValueError(
                    f"train must give the batches it gave before, found {self.used} "
                    f"where {state['used']} had been used"
                )
            self.used += 1


def as_data(name: str, data: Any) -> Any:
    """Return arrays as a :class:`Batch` of tensors; a Dataset or an iterable of batches as it is.

    Args:
        name: The argument that holds the data, for messages.
        data: What :func:`aucmax.fit` takes.
    """
    bare = isinstance(data, IterableDataset)
    if bare or not (isinstance(data, Dataset) or hasattr(data, "__iter__")):
        raise ValueError(
            f"{name} must be (x, y) arrays, a Dataset, a DataLoader or an iterable of batches, "
            f"found {type(data).__name__}{': wrap it in a DataLoader' if bare else ''}"
        )
    if isinstance(data, list) and not data:
        raise ValueError(f"{name} must have rows, found none")
    parts = data.tensors if isinstance(data, TensorDataset) else data
    if not isinstance(parts, tuple):
        return data
    if len(parts) not in (2, 3, 4):
        raise ValueError(f"{name} must be {PARTS}, found {len(parts)} parts")

    def inputs(values: Any) -> Tensor:
        return _labels.as_tensor(f"{name}'s inputs", values)

    x = inputs(parts[0]) if isinstance(parts[0], list) else tree_map(inputs, parts[0])
    y, weight = (
        None if values is None else _labels.as_tensor(f"{name}'s labels and weights", values)
        for values in (*parts[1:3], None)[:2]
    )
    if weight is not None and weight.ndim == 2 and weight.shape[1] == 1:
        weight = weight.reshape(-1)
    group = None
    if len(parts) == 4 and parts[3] is not None:
        group = number_groups(parts[3], f"{name}'s groups", len(parts[1]))
    columns = [column for column in (y, weight, group) if column is not None]
    sizes = {len(leaf) for leaf in [*tree_leaves(x), *columns]}
    if y is None or len(sizes) != 1:
        raise ValueError(f"{name} must have one label per row, found lengths {sorted(sizes)}")
    return Batch(x, y, weight, group)


def has_groups(data: Any) -> bool:
    """Return whether arrays carry groups; False for a Dataset or a stream, which do not tell."""
    parts = data.tensors if isinstance(data, TensorDataset) else data
    return isinstance(parts, tuple) and len(parts) > 3 and parts[3] is not None


def as_batch(item: Any) -> Batch:
    """Return a batch of a loader or a stream as a :class:`Batch` of tensors."""
    if isinstance(item, tuple | list) and len(item) in (2, 3, 4):
        x = tree_map(lambda v: v if isinstance(v, Tensor) else torch.as_tensor(v), item[0])
        rest = [
            None if part is None else _labels.as_tensor(f"the {name} of batches", part)
            for name, part in zip(("labels", "weights", "groups"), item[1:], strict=False)
        ]
        # Sums on a CPU are rounded by the address of a tensor. Views are copied, to where any other
        # tensor begins, so that the same rows train to the same bits.
        parts = tree_map_only(Tensor, lambda v: v.clone() if v.data_ptr() % 64 else v, [x, *rest])
        return Batch(*parts)
    what = f"{len(item)} parts" if isinstance(item, tuple | list) else type(item).__name__
    raise ValueError(
        f"batches must be {PARTS}, found {what}; whole arrays are passed as a tuple (x, y)"
    )


def evaluation_batches(
    data: Any, form: BatchFormat, batch_size: int, workers: int = 0
) -> Iterator[Batch]:
    """Yield this rank's share of the rows of :func:`as_data`, each once and in order."""
    if isinstance(data, Batch):
        rows = own_part(torch.arange(len(data.y), device=data.y.device))
        yield from (form.convert(data.pick(part)) for part in torch.split(rows, batch_size))
        return
    skip = distributed.world_size()
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        rows = own_part(torch.arange(len(data)))  # type: ignore[arg-type]
        data = DataLoader(
            data,
            batch_size,
            sampler=rows.tolist(),
            num_workers=workers,
            worker_init_fn=end_with_parent,
        )
        skip = 1
    if isinstance(getattr(data, "sampler", None), DistributedSampler):
        skip = 1
    for k, item in enumerate(data):
        if k % skip == distributed.rank() % skip:
            yield form.convert(as_batch(item))


def own_part(rows: Tensor) -> Tensor:
    """Return this rank's share of the rows that all ranks divide among them."""
    size = distributed.world_size()
    return rows if size == 1 else rows[distributed.rank() :: size]


class _SeededBatches(Dataset[Any]):
    """Whole batches of a dataset, each drawn with its own seed.

    A dataset with a method ``read_batch(rows)`` returns the batch; items of another are stacked.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __getitem__(self, key: tuple[int, list[int]]) -> Any:
        seed, rows = key
        with random_state.Isolated(seed):
            if hasattr(self.dataset, "read_batch"):
                return self.dataset.read_batch(rows)
            fetch: Callable[..., Any] | None = getattr(self.dataset, "__getitems__", None)
            return default_collate(fetch(rows) if fetch else [self.dataset[i] for i in rows])


def _next(iterator: Iterator[Any]) -> Any:
    """Return the next batch, or None at the end; raise one error for a worker that died."""
    try:
        return next(iterator, None)
    except (RuntimeError, OSError, EOFError) as error:
        workers = getattr(iterator, "_workers", ())
        for worker in workers:
            worker.join(0.2)  # a connection may break a moment before its process is gone
        dead = [f"{w.pid} with exit code {w.exitcode}" for w in workers if not w.is_alive()]
        if not dead:
            raise
        raise RuntimeError(f"DataLoader worker (pid {', '.join(dead)}) died") from error


def generators_of(data: Any) -> list[torch.Generator]:
    """Return the generators of a DataLoader and its samplers, each once."""
    sampler, batches = getattr(data, "sampler", None), getattr(data, "batch_sampler", None)
    holders = [data, sampler, batches, getattr(batches, "sampler", None)]
    generators = {id(g): g for x in holders if (g := getattr(x, "generator", None)) is not None}
    return [g for g in generators.values() if isinstance(g, torch.Generator)]
