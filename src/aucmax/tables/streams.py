"""Tables larger than memory: read from disk, group of rows by group of rows."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax.tables.columns import Columns, columns_of

KINDS = {".parquet": "parquet", ".arrow": "feather", ".feather": "feather", ".csv": "csv"}
LARGEST_SAMPLE = 200_000
GROUPS_SAMPLED = 64
BLOCK = 65_536
"""Rows that are in memory and shuffled at a time."""


class RowGroups:
    """The rows of files with the same columns, in groups that can be read one by one.

    A sample, the first rows of groups spread over the files, is read at once: what columns look
    like is learned from it. Every tenth row of the sample is kept for validation, another tenth
    for testing; :meth:`blocks` never gives those.

    Args:
        pattern: a file, or files such as ``part-*.parquet``.
    """

    def __init__(self, pattern: str | Path) -> None:
        import pyarrow.dataset

        self.paths = sorted(glob.glob(str(pattern)))
        if not self.paths:
            raise ValueError(f"data must name files that are there, found none like {pattern}")
        kinds = {Path(path).suffix for path in self.paths}
        if len(kinds) > 1 or not kinds <= KINDS.keys():
            raise ValueError(
                f"data must be files of one kind of {', '.join(KINDS)}, found {sorted(kinds)}"
            )
        try:
            data = pyarrow.dataset.dataset(self.paths, format=KINDS[kinds.pop()])
            self.rows: int = data.count_rows()
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"data must be readable: {str(error).splitlines()[0]}") from None
        self.groups = [g for part in data.get_fragments() for g in _row_groups(part)]
        self.head = max(1, LARGEST_SAMPLE // min(len(self.groups), GROUPS_SAMPLED))
        spread = np.linspace(0, len(self.groups) - 1, min(len(self.groups), GROUPS_SAMPLED))
        self.sampled = set(spread.round().astype(int).tolist())

    def sample(self) -> tuple[Columns, NDArray[np.int64]]:
        """Rows from all over the files, and each one's part: 0 train, 1 validation, 2 test."""
        import pyarrow

        heads = [self.groups[i].head(self.head) for i in sorted(self.sampled)]
        parts = np.concatenate([_part(np.arange(len(head))) for head in heads])
        return columns_of(pyarrow.concat_tables(heads)), parts

    def blocks(self, seed: int) -> Iterator[Columns]:
        """All training rows in blocks: groups in a random order, rows of a block shuffled."""
        random = np.random.default_rng(seed)
        for index in random.permutation(len(self.groups)).tolist():
            offset = 0
            options = {"batch_size": BLOCK, "batch_readahead": 1, "fragment_readahead": 1}
            for batch in self.groups[index].to_batches(**options):
                places = offset + np.arange(len(batch))
                offset += len(batch)
                held = (index in self.sampled) & (places < self.head) & (_part(places) > 0)
                kept = random.permutation(np.flatnonzero(~held))
                if len(kept):
                    yield columns_of(batch.take(kept))


class Batches:
    """The batches of a pass after the other, for :func:`aucmax.fit`.

    Args:
        groups: of the rows.
        encode: from a block to tensors ``(x, y)``.
        batch_size: rows of a batch; a block's last one may be smaller.
        seed: of the order, with the number of the pass.
    """

    def __init__(
        self,
        groups: RowGroups,
        encode: Callable[[Columns], tuple[Sequence[Any], Any]],
        batch_size: int,
        seed: int,
    ) -> None:
        self.groups, self.encode, self.batch_size, self.seed = groups, encode, batch_size, seed
        self.sampler = self
        self.round = 0

    def set_epoch(self, number: int) -> None:
        """The pass that begins next."""
        self.round = number

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for block in self.groups.blocks(self.seed + self.round):
            x, y = self.encode(block)
            for start in range(0, len(y), self.batch_size):
                part = slice(start, start + self.batch_size)
                yield tuple(column[part] for column in x), y[part]


def _row_groups(fragment: Any) -> list[Any]:
    split = getattr(fragment, "split_by_row_group", None)
    return list(split()) if split is not None else [fragment]


def _part(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of rows of a sampled head: every tenth validates, the fifth after it tests."""
    return np.where(places % 10 == 0, 1, np.where(places % 10 == 5, 2, 0))
