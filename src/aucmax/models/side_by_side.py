"""Networks of one shape, trained in step as one network: a fit of each fold of the rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

Inputs = tuple[Tensor, ...]
"""What each network takes, and last which of the networks a row concerns, (N, networks)."""


class SideBySide(nn.Module):
    """Several networks of one shape, each of which learns from rows of its own.

    The last input says, row by row, which networks it concerns. While they train, all give their
    scores, (N networks k, outputs) if each gives k of a row, and :meth:`score_weights` says which
    of them count: those of the networks that train on the row. Otherwise a row's score is the mean
    over the networks that it concerns, of which there must be one at least: those that it was held
    out of, if the fits of folds are judged.

    The weights lie side by side and are multiplied in one go, which for small networks and batches
    takes little more time than one of them.

    Args:
        networks: that differ in their weights alone.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.count = len(networks)
        self._one = (copy.deepcopy(networks[0]),)  # in a tuple: its weights are nobody's
        self.names = [name for name, _ in networks[0].named_parameters()]
        own = [dict(network.named_parameters()) for network in networks]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.stack([each[name].detach() for each in own])) for name in self.names
        )

    @property
    def scores_per_row(self) -> int:
        """How many scores it gives for each output and row while it trains."""
        return self.count * self._per_network

    @property
    def _per_network(self) -> int:
        return int(getattr(self._one[0], "scores_per_row", 1))

    def train(self, mode: bool = True) -> Self:
        """Train or score, as every module."""
        self._one[0].train(mode)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._one[0]._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call,no-any-return]

    def _scores(self, weights: Sequence[Tensor], inputs: Inputs) -> Tensor:
        """Of one network."""
        scores: Tensor = functional_call(
            self._one[0], dict(zip(self.names, weights, strict=True)), (inputs,)
        )
        return scores

    def forward(self, x: Inputs) -> Tensor:
        """Raw scores of rows."""
        *inputs, concerned = x
        if not self.training:
            return self._judged(tuple(inputs), concerned)
        each: Callable[..., Any] = torch.vmap(self._scores, (0, None), randomness="same")
        scores: Tensor = each(list(self.weights), tuple(inputs))
        rows = len(concerned)
        scores = scores.reshape(self.count, rows, self._per_network, -1)
        return scores.transpose(0, 1).reshape(rows * self.scores_per_row, -1)

    def _judged(self, inputs: Inputs, concerned: Tensor) -> Tensor:
        total: Any = None
        for k in range(self.count):
            rows = concerned[:, k].nonzero()[:, 0]
            if len(rows):
                own = [weight[k] for weight in self.weights]
                scores = self._scores(own, tuple(part[rows] for part in inputs))
                if total is None:
                    total = scores.new_zeros(len(concerned), scores.shape[1])
                total.index_add_(0, rows, scores)
        return total / concerned.sum(1, keepdim=True)  # type: ignore[no-any-return]

    def score_weights(self, x: Inputs) -> Tensor:
        """(N, networks k), how much each score counts in training: one or nothing."""
        counted = x[-1].to(self.weights[0].dtype)
        return counted.repeat_interleave(self._per_network, dim=1)

    @torch.no_grad()
    def networks(self) -> list[nn.Module]:
        """Each of the networks, by itself."""
        separate = []
        for k in range(self.count):
            network = copy.deepcopy(self._one[0])
            for name, weight in zip(self.names, self.weights, strict=True):
                network.get_parameter(name).copy_(weight[k])
            separate.append(network.eval())
        return separate
