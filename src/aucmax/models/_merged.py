"""A trained TabM for scoring: its members' weights multiplied out, its embeddings looked up."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class MergedEnsemble(nn.Module):
    r"""Mean scores (N, outputs) of TabM's members, in fewer and larger products.

    A member's layer is :math:`s_k \odot W (r_k \odot x) + b_k`, so its matrix is
    :math:`\mathrm{diag}(s_k)\, W\, \mathrm{diag}(r_k)`. Those of the first layer all take the same
    input and become one product. An embedding that is linear between edges is known from its values
    at the edges.

    Args:
        ensemble: the trained :class:`TabularEnsemble`.
    """

    first: Tensor
    first_bias: Tensor
    last: Tensor
    last_bias: Tensor

    @torch.no_grad()
    def __init__(self, ensemble: nn.Module) -> None:
        super().__init__()
        exact: Any = copy.deepcopy(ensemble).cpu().double().eval()
        self.features = exact.features
        if self.features.embedding is not None:
            self.features.embedding = _Pieces(self.features.embedding, self.features.bins)
        layers = [block[0] for block in exact.backbone.blocks]
        self.activations = nn.ModuleList(block[1] for block in exact.backbone.blocks)
        products = [x.s[:, :, None] * x.weight * x.r[:, None, :] for x in layers]
        self.register_buffer("first", products[0].flatten(0, 1))
        self.register_buffer("first_bias", layers[0].bias.flatten())
        self.depth, self.members = len(layers), len(layers[0].s)
        for i in range(1, self.depth):
            self.register_buffer(f"weight{i}", products[i].transpose(1, 2).contiguous())
            self.register_buffer(f"bias{i}", layers[i].bias[:, None])
        self.register_buffer("last", exact.output.weight / self.members)
        self.register_buffer("last_bias", exact.output.bias.mean(0))

    def forward(self, columns: tuple[Tensor, Tensor]) -> Tensor:
        """Scores of numeric columns and categories."""
        x = self.features(columns)
        hidden = self.activations[0](functional.linear(x, self.first, self.first_bias))
        hidden = hidden.view(len(x), self.members, self.last.shape[1]).transpose(0, 1)
        for i in range(1, self.depth):
            weight, bias = getattr(self, f"weight{i}"), getattr(self, f"bias{i}")
            hidden = self.activations[i](torch.baddbmm(bias, hidden, weight))
        return torch.bmm(hidden, self.last).sum(0) + self.last_bias


class _Pieces(nn.Module):
    """An embedding (N, d) to (N, d, e) of numbers that is linear between edges, and beyond them."""

    inner: Tensor
    left: Tensor
    table: Tensor
    offset: Tensor

    @torch.no_grad()
    def __init__(self, exact: nn.Module, bins: Sequence[Sequence[float]]) -> None:
        super().__init__()
        longest = max(map(len, bins))
        edges = torch.tensor(
            [[*column, *[column[-1]] * (longest - len(column))] for column in bins]
        ).double()
        values = exact(edges.T).transpose(0, 1)  # (d, edges, e)
        width = edges.diff(dim=1)[..., None]
        slope = values.diff(dim=1) / width.where(width > 0, 1.0)
        # The edges between a column's pieces, and infinity where it has fewer than another.
        inner = [[*column[1:-1], *[torch.inf] * (longest - len(column))] for column in bins]
        self.register_buffer("inner", torch.tensor(inner).double())
        self.register_buffer("left", edges[:, :-1].flatten())
        self.register_buffer("table", torch.cat([values[:, :-1], slope], 2).flatten(0, 1))
        self.register_buffer("offset", (torch.arange(len(bins)) * (longest - 1))[:, None])

    def forward(self, x: Tensor) -> Tensor:
        columns = x.T.contiguous()
        piece = torch.searchsorted(self.inner, columns, right=True) + self.offset
        past = columns - self.left[piece]
        at, slope = functional.embedding(piece.T, self.table).chunk(2, dim=-1)
        return torch.addcmul(at, slope, past.T[..., None])
