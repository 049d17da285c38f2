"""Which rows make up batch number k: a function of the seed and k alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aucmax import checks
from aucmax.data.labels import check_both_classes
from aucmax.row_groups import number_groups

DRAWN_AT_ONCE = 1 << 14


class BatchSampler:
    r"""Endless batches of row numbers: natural, with a fixed share of positives, or by groups.

    Batch k depends on the seed and k alone, so its place in the sequence is all there is to save,
    and any batch can be asked for without the ones before it (:meth:`rows`). Without replacement
    every row comes once before any comes again; a batch may hold the end of one round and the
    beginning of the next, so all batches have the same size. With ``positives`` the two classes go
    round on their own. With ``group`` the groups come in random order, each with all its rows one
    after the other, so that at most the first and the last group of a batch are cut; what is left
    of a group comes in the next batch. Groups of one class, which have no pairs to compare, are
    left out.

    It is a batch sampler for :class:`torch.utils.data.DataLoader` too.

    Args:
        labels: one label per row; 0 and 1 if ``positives`` is given.
        batch_size: rows per batch.
        positives: share of positives in every batch, in (0, 1), rounded to whole rows and at least
            one of each class; None takes rows as they come.
        replacement: draw rows independently of each other.
        group: the group of each row, of any kind that :func:`aucmax.data.number_groups` takes; in
            place of ``positives`` and ``replacement``.
        seed: of the order.

    Attributes:
        left_out: how many rows are in no batch, since all rows of their group are of one class.

    Example:
        >>> import torch
        >>> from aucmax.data import BatchSampler
        >>> labels = torch.tensor([1, 0, 0, 0, 0, 0, 1, 0, 0, 0])
        >>> sampler = BatchSampler(labels, batch_size=4, positives=0.5)
        >>> labels[sampler.rows(0)].sum().item(), sampler.prior
        (2, 0.5)
    """

    def __init__(
        self,
        labels: Tensor | npt.ArrayLike,
        batch_size: int,
        *,
        positives: float | None = None,
        replacement: bool = False,
        group: Any = None,
        seed: int = 0,
    ) -> None:
        y = torch.as_tensor(np.asarray(labels) if not isinstance(labels, Tensor) else labels)
        if len(y) == 0:
            raise ValueError("labels must not be empty")
        self.batch_size = batch_size = checks.count("batch_size", batch_size)
        seed = checks.count("seed", seed, least=0)
        self.positives = positives
        self.batch = self.left_out = 0
        self.grouped = group is not None
        if group is not None:
            if positives is not None or replacement:
                raise ValueError(
                    f"positives must be None and replacement False for batches of whole groups, "
                    f"found {positives!r} and {replacement!r}"
                )
            numbers = number_groups(group, rows=len(y)).cpu()
            rows = _rows_with_pairs(y.cpu(), numbers)
            self.left_out = len(y) - len(rows)
            self._streams = [_RowStream(rows, batch_size, False, seed, 3, numbers[rows])]
            return
        if positives is None:
            self._streams = [_RowStream(len(y), batch_size, replacement, seed, 0)]
            return
        if y.ndim != 1:
            raise ValueError(
                f"positives is for labels of shape (N,) in two classes, found {tuple(y.shape)}"
            )
        check_both_classes("labels", y)
        ones = y == 1
        first = round(checks.share("positives", positives) * batch_size)
        first = min(max(first, 1), batch_size - 1)
        if first < 1:
            raise ValueError(
                f"batch_size must be 2 or more to hold both classes, found {batch_size}"
            )
        self._streams = [
            _RowStream(ones.nonzero().flatten(), first, replacement, seed, 1),
            _RowStream((~ones).nonzero().flatten(), batch_size - first, replacement, seed, 2),
        ]

    @property
    def prior(self) -> float | None:
        """The share of positives in every batch, exactly; None if batches are natural."""
        return None if self.positives is None else self._streams[0].size / self.batch_size

    def rows(self, k: int) -> Tensor:
        """The rows of batch ``k``, counted from 0; positives first if they have a fixed share."""
        if len(self._streams) == 1:
            return self._streams[0].part(k)
        return torch.cat([stream.part(k) for stream in self._streams])

    def to(self, device: torch.device) -> None:
        """Keep the row numbers on a device."""
        for stream in self._streams:
            stream.to(device)

    def __iter__(self) -> Iterator[list[int]]:
        """Go on from batch number ``batch``, which is counted up."""
        while True:
            rows = self.rows(self.batch)
            self.batch += 1
            yield rows.tolist()

    def state_dict(self) -> dict[str, Any]:
        """The place in the sequence."""
        return {"batch": self.batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved place."""
        self.batch = int(state["batch"])


class _RowStream:
    """Rows, given ones or the first so many, in random order, over and over, in parts of a size.

    Those of a group stay together, if there are groups.
    """

    def __init__(
        self,
        rows: Tensor | int,
        size: int,
        replacement: bool,
        seed: int,
        stream: int,
        group: Tensor | None = None,
    ) -> None:
        self.group = group
        self.rows = None if isinstance(rows, int) else rows
        self.count = rows if isinstance(rows, int) else len(rows)
        self.size, self.replacement, self.seed, self.stream = size, replacement, seed, stream
        self.length = DRAWN_AT_ONCE if replacement else self.count  # of a round
        self.device = torch.device("cpu")
        self._round, self._order = -1, torch.empty(0)

    def part(self, k: int) -> Tensor:
        """Rows k size to (k + 1) size - 1 of the stream."""
        number, offset = divmod(k * self.size, self.length)
        if offset + self.size <= self.length:
            return self._ordered(number).narrow(0, offset, self.size)
        missing, parts = self.size, []
        while missing:  # the end of one round, and the beginning of the next
            part = self._ordered(number)[offset : offset + missing]
            parts.append(part)
            missing -= len(part)
            number, offset = number + 1, 0
        return torch.cat(parts)

    def _ordered(self, number: int) -> Tensor:
        """All rows in the order of one round; the latest is kept."""
        if number != self._round:
            generator = torch.Generator().manual_seed(derive(self.seed, self.stream, number))
            if self.replacement:
                shape = (DRAWN_AT_ONCE,)
                order = torch.randint(self.count, shape, generator=generator, device="cpu")
            else:
                order = torch.randperm(self.count, generator=generator, device="cpu")
            if self.group is not None:
                groups = int(self.group.max()) + 1
                places = torch.randperm(groups, generator=generator, device="cpu")
                order = order[places[self.group[order]].argsort(stable=True)]
            if self.device.type == "cuda":  # a copy that does not wait for the steps before it
                order = order.pin_memory()
            order = order.to(self.device, non_blocking=True)
            self._order = order if self.rows is None else self.rows.index_select(0, order)
            self._round = number
        return self._order

    def to(self, device: torch.device) -> None:
        """Keep the order on a device, where parts of it are cut without a copy."""
        self.rows = None if self.rows is None else self.rows.to(device)
        self.device, self._round = device, -1


def _rows_with_pairs(labels: Tensor, group: Tensor) -> Tensor:
    """Rows of groups with two classes, or of several labels with both values of one."""
    groups, table = int(group.max()) + 1, labels.double().reshape(len(labels), -1)
    place, lowest = group[:, None].expand_as(table), table.new_full((groups, table.shape[1]), inf)
    low = lowest.scatter_reduce(0, place, table.nan_to_num(nan=inf), "amin")
    high = lowest.neg().scatter_reduce(0, place, table.nan_to_num(nan=-inf), "amax")
    paired = (low < high).any(1)
    if not bool(paired.any()):
        raise ValueError(f"a group must hold both classes, found none among {groups} groups")
    return paired[group].nonzero().flatten()


def derive(*numbers: int) -> int:
    """A seed that mixes several numbers; equal everywhere, for ever."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
