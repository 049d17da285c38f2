"""The last scores of each class, for batches that hold few of one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aucmax.loss.base import ExactState


class ScoreMemory(ExactState):
    """The last ``size`` scores of the positives and of the negatives in each column, in rings.

    With each score stand its weight, which is zero where nothing has been written yet, and its
    group. The first batch decides how many columns there are.
    """

    follows_batches = True
    scores: Tensor
    weight: Tensor
    group: Tensor
    position: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        for name, kind in (("scores", torch.float64), ("weight", torch.float64)):
            self.register_buffer(name, torch.zeros(2, 1, size, dtype=kind))
        self.register_buffer("group", torch.zeros(2, 1, size, dtype=torch.int64))
        self.register_buffer("position", torch.zeros(2, 1, 1, dtype=torch.int64))
        self.is_empty = True

    def _resize(self, columns: int) -> None:
        for name, buffer in list(self.named_buffers()):
            setattr(self, name, buffer.new_zeros(2, columns, buffer.shape[2]))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        saved = state_dict.get(f"{prefix}position")
        if isinstance(saved, Tensor) and saved.ndim == 3:
            self._resize(saved.shape[1])
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.is_empty = not bool(self.weight.any())

    def joined(
        self, scores: Tensor, positive: Tensor, negative: Tensor, group: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The rows of a batch, (L, n), and those of the memory, (L, n + 2 size); groups too."""
        columns = len(scores)
        if self.is_empty and self.position.shape[1] != columns:
            self._resize(columns)
        self.is_empty = False
        if self.position.shape[1] != columns:
            raise ValueError(
                f"scores must have {self.position.shape[1]} columns, as those in the memory, "
                f"found {columns}"
            )
        past, (up, down) = self.scores.to(scores.dtype), self.weight.to(positive.dtype)
        none = torch.zeros_like(up)
        if group is not None:
            group = torch.cat([group.expand(columns, -1), *self.group], 1)
        return (
            torch.cat([scores, *past], 1),
            torch.cat([positive, up, none], 1),
            torch.cat([negative, none, down], 1),
            group,
        )

    def add(self, scores: Tensor, positive: Tensor, negative: Tensor, group: Tensor | None) -> None:
        """Write the rows of a batch, (L, n), over the oldest ones; of too many the last stay.

        Each slot looks up which row it gets, so that nothing is counted on the host and no two rows
        are written to one place.
        """
        weight = torch.stack([positive, negative])
        last = weight.shape[2] - 1
        count = ((weight > 0) & scores.isfinite()).cumsum(2)  # a NaN would stay for long
        total = count[:, :, -1:]
        turn = (torch.arange(self.size, device=weight.device) - self.position) % self.size
        number = turn + (total - 1 - turn).div(self.size, rounding_mode="floor") * self.size
        row = torch.searchsorted(count, number + 1).clamp(max=last)
        groups = torch.zeros_like(row[0, 0, :1]) if group is None else group
        written = {
            "scores": scores.expand_as(weight).gather(2, row),
            "weight": weight.gather(2, row),
            "group": groups.expand_as(weight).gather(2, row),
        }
        new = {
            name: torch.where(turn < total, x.to(old.dtype), old)
            for name, x in written.items()
            for old in [getattr(self, name)]
        }
        new["position"] = (self.position + total) % self.size
        for name, x in new.items():
            self._keep(name, x)

    def extra_repr(self) -> str:
        """Show the size."""
        return f"size={self.size}"
