"""Where batches come from: arrays on the device, a Dataset, a DataLoader, a stream.

A :class:`BatchSource` hands out training batches without end, and can say and be told where it
stands. :func:`evaluation_batches` goes once through data of the same kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate
from torch.utils.data.distributed import DistributedSampler

from aucmax import distributed, random_state
from aucmax.data import labels as _labels
from aucmax.data.augment import Chain, CropAndFlip, change
from aucmax.data.groups import number_groups
from aucmax.data.sampling import BatchSampler, derive
from aucmax.processes import end_with_parent

PARTS = (
    "(inputs, labels), (inputs, labels, weights) or (inputs, labels, weights, groups), "
    "weights None if there are none"
)
"""What data and batches are made of, for messages."""


class Batch(NamedTuple):
    """Inputs (a tensor, or a tuple or dict of them), labels, and what else rows may carry.

    Attributes:
        weight: how much each row counts.
        group: an integer per row; rows are ranked within groups.
        rows: their numbers in the training data, where a loss asks for them.
    """

    x: Any
    y: Tensor
    weight: Tensor | None = None
    group: Tensor | None = None
    rows: Tensor | None = None

    def pick(self, rows: Tensor, x: Any = None) -> Batch:
        """The batch of some of the rows; with other inputs if they are given."""

        def pick(values: Tensor) -> Tensor:
            return values.index_select(0, rows)

        if x is None:
            x = pick(self.x) if isinstance(self.x, Tensor) else tree_map(pick, self.x)
        weight, group = (None if part is None else pick(part) for part in self[2:4])
        return Batch(x, pick(self.y), weight, group)


class Place(NamedTuple):
    """Where batches go, and as what."""

    device: torch.device
    dtype: torch.dtype
    task: str

    def put(self, batch: Batch) -> Batch:
        """The batch on the device, its real numbers in the model's precision."""
        x = tree_map(self._put, batch.x)
        y = batch.y.to(self.device, non_blocking=True)
        y = y.long() if self.task == "multiclass" else y.to(torch.float32)  # what the losses take
        more = (None if part is None else self._put(part) for part in batch[2:])
        return Batch(x, y, *more)

    def _put(self, x: Tensor) -> Tensor:
        dtype = self.dtype if x.is_floating_point() else x.dtype
        return x.to(self.device, dtype, non_blocking=True)


class BatchSource:
    """Training batches without end.

    :meth:`draw` does what the host must do and gives tensors of constant shape; :meth:`load` turns
    them into a batch with work on the device alone, which can be captured in a graph.

    Attributes:
        weight: of every row, where it is known.
        weighted: whether the batches have weights.
        numbered: whether batches shall have the numbers of their rows.
        apart: whether each rank's part of a batch is all that it compares.
    """

    weight: Tensor | None = None
    weighted = False
    numbered = False
    apart = False
    _iterator: Iterator[Any] | None = None

    def draw(self) -> tuple[Any, ...]:
        """What :meth:`load` needs for the next batch; StopIteration if there is no more."""
        raise NotImplementedError

    def load(self, drawn: tuple[Any, ...], augment: Callable[..., Any] | None = None) -> Batch:
        """The batch, on the device, augmented."""
        batch = Batch(*drawn)
        return batch if augment is None else batch._replace(x=change(augment, batch.x, batch.y))

    def put_back(self, drawn: tuple[Any, ...]) -> None:
        """Give back what was drawn last, to be drawn again; those that never end need not."""

    def position(self, ago: int = 0) -> str:
        """The last batch in words, or one that many before it."""
        raise NotImplementedError

    def close(self) -> None:
        """End a loader's workers now, not when the garbage is collected."""
        end_workers = getattr(self._iterator, "_shutdown_workers", None)
        if end_workers is not None:
            with suppress(RuntimeError):  # which torch raises for workers that are dead already
                end_workers()
        self._iterator = None

    def state_dict(self) -> dict[str, Any]:
        """Where the source stands."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved place; it may use up random numbers: restore those afterwards."""
        raise NotImplementedError


class _SampledSource(BatchSource):
    """A source whose batches a sampler makes; each is handed out in ``parts``."""

    sampler: BatchSampler
    parts = 1
    batch = 0

    def rows(self, k: int) -> Tensor:
        """Part k of the sequence; parts interleave the rows of a batch, so that all are alike."""
        batch, part = divmod(k, self.parts)
        rows = self.sampler.rows(batch)
        grouped = self.sampler.grouped  # of which each should stay whole where it is compared
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
    """Arrays that live on the device; a batch is one gather there."""

    def __init__(self, arrays: Batch, sampler: BatchSampler, place: Place, parts: int) -> None:
        self.arrays, self.sampler, self.parts = place.put(arrays), sampler, parts
        self.weight = self.arrays.weight
        self.weighted = self.weight is not None
        sampler.to(place.device)

    def draw(self) -> tuple[Any, ...]:
        """The rows."""
        rows = self.rows(self.batch)
        self.batch += 1
        return (rows,)

    def load(self, drawn: tuple[Any, ...], augment: Callable[..., Any] | None = None) -> Batch:
        """A gather; an augmentation that takes rows gathers by itself."""
        (rows,) = drawn
        first, *others = augment.parts if type(augment) is Chain else (augment,)
        if type(first) is CropAndFlip:  # a subclass may take a batch alone
            batch = self.arrays.pick(rows, first(self.arrays.x, rows))
            batch = super().load(batch, Chain(*others)) if others else batch
        else:
            batch = super().load(self.arrays.pick(rows), augment)
        return batch._replace(rows=rows) if self.numbered else batch


class DatasetSource(_SampledSource):
    """A map-style Dataset, loaded by worker processes.

    The random numbers that an item's transforms draw depend on the seed and the batch alone, so
    the number of workers changes nothing, nor does an interruption.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: BatchSampler,
        place: Place,
        parts: int,
        workers: int,
        seed: int,
    ) -> None:
        self.sampler, self.place, self.parts, self.seed = sampler, place, parts, seed
        with random_state.Isolated(seed):
            self.weighted = len(dataset[0]) > 2
        self.loader = DataLoader(
            _SeededBatches(dataset),
            batch_size=None,
            sampler=self,
            num_workers=workers,
            pin_memory=place.device.type == "cuda",
            generator=torch.Generator(),
            worker_init_fn=end_with_parent,
        )

    def draw(self) -> tuple[Any, ...]:
        """The next batch of the workers."""
        if self._iterator is None:
            self._iterator = iter(self.loader)
        batch = as_batch(_next(self._iterator))
        if self.numbered:
            batch = batch._replace(rows=self.rows(self.batch))
        self.batch += 1
        return tuple(self.place.put(batch))

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """Seed and rows of each batch from where the source stands, as the loader's sampler."""
        k = self.batch
        while True:
            yield derive(self.seed, k, distributed.rank()), self.rows(k).tolist()
            k += 1

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Workers begin anew, at the saved batch."""
        super().load_state_dict(state)
        self._iterator = None


class IterableSource(BatchSource):
    """A DataLoader or any other iterable of batches, taken from its beginning over and over.

    Nothing in it can be asked where it stands, so the way back is to begin the round again with
    the random numbers it began with and pass over the batches that were used.
    """

    def __init__(self, data: Iterable[Any], place: Place) -> None:
        self.data, self.place = data, place
        self.round, self.used = 0, 0  # the batches of this round
        self.generators = generators_of(data)
        self._began: dict[str, Any] | None = None
        self._returned: tuple[Any, ...] | None = None

    def put_back(self, drawn: tuple[Any, ...]) -> None:
        """A stream's batch may not come again."""
        self._returned, self.used = drawn, self.used - 1

    def draw(self) -> tuple[Any, ...]:
        """The next batch, of the next round if this one is over."""
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
        return tuple(self.place.put(as_batch(item)))

    def _items(self) -> Iterator[Any]:
        if self._iterator is None:
            states = [generator.get_state() for generator in self.generators]
            self._began = {"global": random_state.get_state(), "own": states}
            sampler: Any = getattr(self.data, "sampler", None)
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self.round)
            self._iterator = iter(self.data)
        return self._iterator

    def position(self, ago: int = 0) -> str:
        """Round and batch."""
        return f"batch {self.used - 1 - ago} of round {self.round}"

    def state_dict(self) -> dict[str, Any]:
        """The round, how it began, and how far it is."""
        return {"round": self.round, "used": self.used, "began": self._began}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the round again and pass over what was used."""
        self.round, self.used, self._iterator = int(state["round"]), 0, None
        self._returned = None
        if state["began"] is None:
            return
        random_state.set_state(state["began"]["global"])
        for generator, saved in zip(self.generators, state["began"]["own"], strict=True):
            generator.set_state(saved)
        for _ in range(int(state["used"])):
            if _next(self._items()) is None:
                raise ValueError(
                    f"train must give the batches it gave before, found {self.used} "
                    f"where {state['used']} had been used"
                )
            self.used += 1


def as_data(name: str, data: Any) -> Any:
    """Arrays as a :class:`Batch` of tensors; a Dataset or an iterable of batches as it is."""
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
    """Whether arrays carry groups; of a Dataset or a stream nobody knows."""
    parts = data.tensors if isinstance(data, TensorDataset) else data
    return isinstance(parts, tuple) and len(parts) > 3 and parts[3] is not None


def as_batch(item: Any) -> Batch:
    """What a loader or a stream gave, as a batch."""
    if isinstance(item, tuple | list) and len(item) in (2, 3, 4):
        x = tree_map(lambda v: v if isinstance(v, Tensor) else torch.as_tensor(v), item[0])
        rest = [
            None if part is None else _labels.as_tensor(f"the {name} of batches", part)
            for name, part in zip(("labels", "weights", "groups"), item[1:], strict=False)
        ]
        return Batch(x, *rest)  # type: ignore[arg-type]
    what = f"{len(item)} parts" if isinstance(item, tuple | list) else type(item).__name__
    raise ValueError(
        f"batches must be {PARTS}, found {what}; whole arrays are passed as a tuple (x, y)"
    )


def evaluation_batches(
    data: Any, place: Place, batch_size: int, workers: int = 0
) -> Iterator[Batch]:
    """Each row of :func:`as_data`'s once, in order; of a process group's ranks, this one's part."""
    if isinstance(data, Batch):
        rows = own_part(torch.arange(len(data.y), device=data.y.device))
        yield from (place.put(data.pick(part)) for part in torch.split(rows, batch_size))
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
            yield place.put(as_batch(item))


def own_part(rows: Tensor) -> Tensor:
    """This rank's share of a batch that all ranks make up together."""
    size = distributed.world_size()
    return rows if size == 1 else rows[distributed.rank() :: size]


class _SeededBatches(Dataset[Any]):
    """Whole batches of a dataset, each with random numbers of its own.

    One that has ``read_batch`` gives them itself, another is asked for items, which are stacked.
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
    """The next batch, None at the end; one error, whichever way a worker's death shows."""
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
    """The generators that a DataLoader and its samplers were given."""
    sampler, batches = getattr(data, "sampler", None), getattr(data, "batch_sampler", None)
    holders = [data, sampler, batches, getattr(batches, "sampler", None)]
    generators = {id(g): g for x in holders if (g := getattr(x, "generator", None)) is not None}
    return [g for g in generators.values() if isinstance(g, torch.Generator)]
