"""What the losses share that compare rows with each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from aucmax import checks, distributed
from aucmax.loss._inputs import (
    DIVERGED,
    check_binary_shapes,
    check_binary_values,
    check_classes,
    check_row_numbers,
    check_table,
    check_tensors,
    computable,
    flatten,
    known_labels,
)
from aucmax.loss.base import ExactState, Loss


class Compared(NamedTuple):
    """The n rows of a batch, those of all ranks, in L columns of which each is compared by itself.

    Attributes:
        scores: (L, n), in single precision or better; the gradient reaches this rank's rows.
        positive: (L, n), each row's weight as a positive, zero for the others.
        negative: (L, n), each row's weight as a negative.
        group: (n,) integers; rows of different groups are not compared.
        rows: (n,), their numbers in the training data.
    """

    scores: Tensor
    positive: Tensor
    negative: Tensor
    group: Tensor | None
    rows: Tensor | None


class RankingLoss(Loss, ExactState):
    """A loss that compares rows with each other, so that its value is no mean over rows.

    One score per row is one column. Several labels (target of the scores' shape (N, L), NaN where
    missing), several classes (integers (N,), each class against the rest), and an ensemble's
    scores (k N of them, those of a row one after the other, perhaps with weights (N, k)) are
    several columns, whose values are averaged. Under a process group the rows of all ranks are
    compared, unless ``across_ranks`` is False; in evaluation mode a rank compares its own, and
    waits for no other.

    Args:
        debug: whether to check values on accelerators too.
    """

    compares_rows = True
    across_ranks = True

    def __init__(self, debug: bool = False) -> None:
        super().__init__()
        self.debug = bool(debug)

    @property
    def _joins_ranks(self) -> bool:
        return self.training and self.across_ranks and distributed.world_size() > 1

    def _compared(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None,
        group: Tensor | None,
        index: Tensor | None,
    ) -> Compared:
        """The rows, checked, of all ranks."""
        check_tensors(scores, target)
        rows = len(target) if target.ndim and scores.ndim else 0
        exact = scores.to(computable(scores.dtype))
        look = self._may_look(scores)
        members = len(scores) // rows if rows and len(scores) % rows == 0 else 1
        own = exact  # of the first member, to which target and weight must fit
        if members > 1:
            own = exact.reshape(rows, members, *scores.shape[1:])[:, 0]
        each = None
        if weight is not None and target.ndim == 1 and weight.shape == (rows, members) != (rows, 1):
            each, weight = weight.to(exact.dtype), None
        labels: Tensor
        if own.ndim < 2 or own.shape[1:] == (1,):
            check_binary_shapes(own, target, weight)
            labels = flatten(target, exact.dtype)
            known = torch.ones_like(labels) if weight is None else flatten(weight, exact.dtype)
            if look:
                check_binary_values(own.detach(), labels, known, zero_weights=True)
            labels, known = labels[:, None], known[:, None]
        else:
            if target.ndim == 1:
                check_classes(own, target, weight, look, zero_weights=True)
                target = _one_hot(target, own.shape[1])
            check_table(own, own.shape[1])
            labels, known = known_labels(own.detach(), target, weight, look, zero_weights=True)
        if members > 1:
            if look:
                checks.check_finite("scores", exact.numpy(force=True), hint=DIVERGED)
            labels, known = labels.repeat(1, members), known.repeat(1, members)
            if each is not None:
                known = known * each.repeat_interleave(known.shape[1] // members, dim=1)
        exact = exact.reshape(labels.shape)
        check_row_numbers("group", group, len(exact))
        check_row_numbers("index", index, len(exact))
        positive = known * labels
        if self._joins_ranks:
            counts = distributed.row_counts(exact)
            exact = _RowsOfAllRanks.apply(exact, counts)  # type: ignore[no-untyped-call]
            positive, known = (_in_turns(x, counts) for x in (positive, known))
            group, index = (None if x is None else _in_turns(x, counts) for x in (group, index))
        return Compared(exact.T, positive.T, (known - positive).T, group, index)


def _one_hot(target: Tensor, classes: int) -> Tensor:
    """Without the look at the values that torch's own takes."""
    return (target[:, None] == torch.arange(classes, device=target.device)).float()


def with_gradient(scores: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """A value whose gradient in the scores came with it."""
    if checks.tracing():  # which knows no autograd functions of ours
        return value + ((scores - scores.detach()) * gradient).sum()
    loss: Tensor = _WithGradient.apply(scores, value, gradient)  # type: ignore[no-untyped-call]
    return loss


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # else the gradient would pass for a constant
            raise RuntimeError(
                "a loss on pairs has no second derivative: call backward without create_graph=True"
            )
        (gradient,) = ctx.saved_tensors
        return grad * gradient, None, None


class _RowsOfAllRanks(torch.autograd.Function):
    """Every rank's rows; backward gives this rank's part of the gradient.

    It comes times the number of ranks, since each computes the whole loss and data-parallel
    training takes the mean of their gradients.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        return _in_turns(x, counts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        by_rank = torch.empty_like(grad)
        by_rank[_turns(ctx.counts, grad.device)] = grad
        own = torch.split(by_rank, ctx.counts)[distributed.rank()]
        return own * distributed.world_size(), None


def _in_turns(x: Tensor, counts: list[int]) -> Tensor:
    """Every rank's rows in the order in which one process would have had them: a row of each."""
    return distributed.concat_over_ranks(x, counts)[_turns(counts, x.device)]


def _turns(counts: list[int], device: torch.device) -> Tensor:
    keys = [torch.arange(n, device=device) * len(counts) + rank for rank, n in enumerate(counts)]
    return torch.cat(keys).argsort()
