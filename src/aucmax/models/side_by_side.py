"""Networks of one shape, trained in step as one network: a fit of each fold of the rows."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

Inputs = tuple[Tensor, ...]


class SideBySide(nn.Module):
    """Several networks of one shape, each of which learns from rows of its own.

    The last of the inputs says, row by row, which networks it concerns, (N, networks). While they
    train, all give their scores, (N networks k, outputs) if each gives k of a row, and
    :meth:`score_weights` says which of them count: those of the networks that the row concerns.
    Otherwise a row's score is the mean over the networks that it concerns, of which there must be
    one: in training those that learn from the row, to judge them those that it is held out of.
    """

    count: int
    per_network: int

    @abstractmethod
    def networks(self) -> list[nn.Module]:
        """Each of the networks, by itself."""

    @abstractmethod
    def _score_all(self, inputs: Inputs, concerned: Tensor) -> Tensor:
        """The scores of each network, in the first dimension; any of rows that it need not know."""

    @abstractmethod
    def _score(self, number: int, inputs: Inputs) -> Tensor:
        """The scores of one network."""

    @property
    def scores_per_row(self) -> int:
        """How many scores it gives for each output and row while it trains."""
        return self.count * self.per_network

    def score_weights(self, x: Inputs) -> Tensor:
        """(N, networks k), how much each score counts in training: one or nothing."""
        return x[-1].float().repeat_interleave(self.per_network, dim=1)

    def forward(self, x: Inputs) -> Tensor:
        """Raw scores of rows."""
        inputs, concerned = x[:-1], x[-1]
        rows = len(concerned)
        if self.training:
            scores = self._score_all(inputs, concerned)
            scores = scores.reshape(self.count, rows, self.per_network, -1)
            return scores.transpose(0, 1).reshape(rows * self.scores_per_row, -1)
        total: Any = 0.0
        for number in range(self.count):
            own = concerned[:, number].nonzero()[:, 0]
            if len(own):
                scores = self._score(number, tuple(part[own] for part in inputs))
                scores = scores.reshape(len(own), -1)
                whole = scores.new_zeros(rows, scores.shape[1])
                total = total + whole.index_copy_(0, own, scores)
        return total / concerned.sum(1, keepdim=True)  # type: ignore[no-any-return]


class Stacked(SideBySide):
    """Networks whose weights are multiplied in one go.

    For small networks and batches that takes little more time than one of them. They must have no
    buffers that training changes, and do the same with all rows, whatever their values.

    Args:
        networks: that differ in their weights alone.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.count = len(networks)
        self.per_network = int(getattr(networks[0], "scores_per_row", 1))
        self._any = (copy.deepcopy(networks[0]),)  # in a tuple: its weights are nobody's
        self.names = [name for name, _ in networks[0].named_parameters()]
        own = [dict(network.named_parameters()) for network in networks]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.stack([each[name].detach() for each in own])) for name in self.names
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._any[0]._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call,no-any-return]

    def _call(self, weights: Sequence[Tensor], inputs: Inputs) -> Tensor:
        named = dict(zip(self.names, weights, strict=True))
        if self._any[0].training != self.training:  # which knows nothing of modes that are set
            self._any[0].train(self.training)
        scores: Tensor = functional_call(self._any[0], named, (inputs,))
        return scores

    def _score_all(self, inputs: Inputs, concerned: Tensor) -> Tensor:
        each: Callable[..., Tensor] = torch.vmap(self._call, (0, None), randomness="same")
        return each(list(self.weights), inputs)

    def _score(self, number: int, inputs: Inputs) -> Tensor:
        return self._call([weight[number] for weight in self.weights], inputs)

    @torch.no_grad()
    def networks(self) -> list[nn.Module]:
        """Each of the networks, with a copy of its weights."""
        separate = []
        for number in range(self.count):
            network = copy.deepcopy(self._any[0])
            for name, weight in zip(self.names, self.weights, strict=True):
                network.get_parameter(name).copy_(weight[number])
            separate.append(network.eval())
        return separate


class Separate(SideBySide):
    """Networks of any kind, one after the other, none of which sees rows that do not concern it.

    Args:
        networks: of one shape.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.count = len(networks)
        self.per_network = int(getattr(networks[0], "scores_per_row", 1))
        self.each = nn.ModuleList(networks)

    def _score_all(self, inputs: Inputs, concerned: Tensor) -> Tensor:
        each = []
        for number in range(self.count):
            own = concerned[:, number].nonzero()[:, 0]
            scores = self._score(number, tuple(part[own] for part in inputs))
            scores = scores.reshape(len(own), self.per_network, -1)
            each.append(
                scores.new_zeros(len(concerned), *scores.shape[1:]).index_copy(0, own, scores)
            )
        return torch.stack(each)

    def _score(self, number: int, inputs: Inputs) -> Tensor:
        scores: Tensor = self.each[number](inputs)
        return scores

    def networks(self) -> list[nn.Module]:
        """Each of the networks."""
        return [network.eval() for network in self.each]
