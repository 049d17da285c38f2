"""The order of rows: batch number k as a function of the seed and k."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from aucmax import checks
from aucmax.data.labels import as_tensor, check_labels, has_pairs
from aucmax.row_groups import number_groups

DRAWN_AT_ONCE = 1 << 14
"""Rows drawn at a time with replacement."""


class BatchSampler:
    r"""Batches of row numbers: natural, with a fixed share of positives, or of whole groups.

    Batch k is a function of the seed and k. The position in the sequence is therefore the whole
    state, and :meth:`rows` returns any batch without those before it. Without replacement each row
    occurs once before any row occurs again. A batch may hold the end of one pass through the rows
    and the beginning of the next, so all batches have the same size. With ``positives`` each class
    has its own passes. With ``group`` the groups come in random order, and all rows of a group
    follow each other. So at most the first and the last group of a batch are cut, and the rest of
    a group comes in the next batch. Groups of one class have no pairs to compare and are left out.

    It is a batch sampler for :class:`torch.utils.data.DataLoader`. An epoch is as many batches as
    hold all rows once, :math:`\lceil N / \text{batch\_size} \rceil`; the next epoch continues the
    sequence.

    Args:
        labels: One label per row; 0 and 1 if ``positives`` is given.
        batch_size: Rows per batch.
        positives: Share of positives in each batch, in (0, 1), rounded to whole rows and at least
            one of each class; None takes rows as they come.
        replacement: Draw rows independently of each other.
        group: Group of each row, of any kind that :func:`aucmax.data.number_groups` takes. It
            excludes ``positives`` and ``replacement``.
        endless: Iterate without end, in one epoch that has no length.
        seed: Seed of the order.

    Attributes:
        batch: Number of the next batch of an iteration.
        left_out: Number of rows that are in no batch, since their group has one class only.

    Example:
        >>> import torch
        >>> from aucmax.data import BatchSampler
        >>> labels = torch.tensor([1, 0, 0, 0, 0, 0, 1, 0, 0, 0])
        >>> sampler = BatchSampler(labels, batch_size=4, positives=0.5)
        >>> labels[sampler.rows(0)].sum().item(), sampler.prior
        (2, 0.5)
        >>> len(sampler), len(list(sampler))
        (3, 3)
    """

    def __init__(
        self,
        labels: Tensor | npt.ArrayLike,
        batch_size: int,
        *,
        positives: float | None = None,
        replacement: bool = False,
        group: Any = None,
        endless: bool = False,
        seed: int = 0,
    ) -> None:
        y = as_tensor("labels", labels)
        if y.ndim == 0 or len(y) == 0:
            raise ValueError(f"labels must have at least one row, found shape {tuple(y.shape)}")
        self.batch_size = batch_size = checks.count("batch_size", batch_size)
        seed = checks.count("seed", seed, least=0)
        self.positives, self.endless, self.grouped = positives, bool(endless), group is not None
        self.batch = self.left_out = 0
        self._epoch_end, self._is_resumed = 0, False
        if group is not None:
            if positives is not None or replacement:
                raise ValueError(
                    f"positives must be None and replacement False for batches of whole groups, "
                    f"found {positives!r} and {replacement!r}"
                )
            numbers = number_groups(group, rows=len(y)).cpu()
            paired = has_pairs(numbers.numpy(), y.double().numpy(force=True))
            if not paired.any():
                raise ValueError(
                    f"a group must hold both classes, found none among {len(paired)} groups"
                )
            rows = torch.from_numpy(paired)[numbers].nonzero().flatten()
            self.left_out = len(y) - len(rows)
            self._streams = [_RowStream(rows, batch_size, False, seed, 3, numbers[rows])]
        elif positives is None:
            self._streams = [_RowStream(len(y), batch_size, replacement, seed, 0)]
        else:
            if y.ndim != 1:
                raise ValueError(
                    f"positives is for labels of shape (N,) in two classes, found {tuple(y.shape)}"
                )
            check_labels("labels", y, "binary")
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
        self._length = -(-(len(y) - self.left_out) // batch_size)

    @property
    def prior(self) -> float | None:
        """Exact share of positives in each batch; None for natural batches."""
        return None if self.positives is None else self._streams[0].size / self.batch_size

    def rows(self, k: int) -> Tensor:
        """Return the rows of batch ``k``, counted from 0; positives first with a fixed share."""
        if len(self._streams) == 1:
            return self._streams[0].part(k)
        return torch.cat([stream.part(k) for stream in self._streams])

    def to(self, device: torch.device) -> None:
        """Keep the row numbers on a device."""
        for stream in self._streams:
            stream.to(device)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        if self.endless:
            raise TypeError("an endless BatchSampler has no length")
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of an epoch, from number ``batch`` on, which is counted up.

        After :meth:`load_state_dict` the first iteration yields the rest of the saved epoch.
        """
        if not self._is_resumed or self.batch >= self._epoch_end:
            self._epoch_end = self.batch + self._length
        self._is_resumed = False
        while self.endless or self.batch < self._epoch_end:
            rows = self.rows(self.batch)
            self.batch += 1
            yield rows.tolist()

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the sequence and in the epoch."""
        return {"batch": self.batch, "epoch_end": self._epoch_end}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position."""
        self.batch, self._is_resumed = int(state["batch"]), True
        next_multiple = -(-self.batch // self._length) * self._length
        self._epoch_end = int(state.get("epoch_end", next_multiple))


class _RowStream:
    """An endless sequence of rows, cut into parts of one size; each pass in a new random order.

    Args:
        rows: Row numbers, or how many rows there are.
        size: Rows of a part.
        replacement: Draw rows independently of each other.
        seed: Seed of the order.
        stream: Number that keeps streams of one seed apart.
        group: Group of each row; rows of a group follow each other.
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
        self.length = DRAWN_AT_ONCE if replacement else self.count  # of a pass
        self.device = torch.device("cpu")
        self._pass, self._order = -1, torch.empty(0)

    def part(self, k: int) -> Tensor:
        """Return rows k size to (k + 1) size - 1 of the sequence."""
        number, offset = divmod(k * self.size, self.length)
        if offset + self.size <= self.length:
            return self._ordered(number).narrow(0, offset, self.size)
        missing, parts = self.size, []
        while missing:  # the end of one pass, and the beginning of the next
            part = self._ordered(number)[offset : offset + missing]
            parts.append(part)
            missing -= len(part)
            number, offset = number + 1, 0
        return torch.cat(parts)

    def _ordered(self, number: int) -> Tensor:
        """Return all rows in the order of a pass; the latest order is kept."""
        if number != self._pass:
            generator = torch.Generator().manual_seed(mix_seed(self.seed, self.stream, number))
            if self.replacement:
                shape = (DRAWN_AT_ONCE,)
                order = torch.randint(self.count, shape, generator=generator, device="cpu")
            else:
                order = torch.randperm(self.count, generator=generator, device="cpu")
            if self.group is not None:
                groups = int(self.group.max()) + 1
                places = torch.randperm(groups, generator=generator, device="cpu")
                order = order[places[self.group[order]].argsort(stable=True)]
            if self.device.type == "cuda":  # a copy that does not wait for earlier steps
                order = order.pin_memory()
            order = order.to(self.device, non_blocking=True)
            self._order = order if self.rows is None else self.rows.index_select(0, order)
            self._pass = number
        return self._order

    def to(self, device: torch.device) -> None:
        """Keep the order on a device, where parts of it are cut without a copy."""
        self.rows = None if self.rows is None else self.rows.to(device)
        self.device, self._pass = device, -1


def mix_seed(*numbers: int) -> int:
    """Return a seed that depends on all numbers, the same on every platform and version."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
