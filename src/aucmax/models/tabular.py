"""Networks for tables: numeric columns and categories in, scores out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from aucmax import checks
from aucmax.extras import needed
from aucmax.models._merged import MergedEnsemble
from aucmax.models.random_weights import drawing_from

MANY_ROWS = 128
"""From where on it takes less time to scale TabM's weights than to scale its rows."""

Columns = tuple[Tensor, Tensor]
"""Numeric columns (N, n), and codes of categories (N, c) as integers."""


class Features(nn.Module):
    """Columns side by side: embedded numbers, numbers as they are, and categories one-hot.

    A column of one piece, of two values that is, gains nothing from an embedding and gets none.

    Args:
        numeric: how many numeric columns.
        cardinalities: of each categorical column, how many codes it has.
        bins: edges of each numeric column's pieces; None embeds nothing.
        embedding: numbers that an embedded column becomes.
    """

    many: Tensor
    few: Tensor
    offsets: Tensor
    cardinalities: Tensor

    def __init__(
        self,
        numeric: int,
        cardinalities: Sequence[int],
        bins: Sequence[Sequence[float]] | None,
        embedding: int,
    ) -> None:
        super().__init__()
        edges = list(bins or [()] * numeric)
        if len(edges) != numeric:
            raise ValueError(f"bins must be edges of {numeric} columns, found {len(edges)}")
        embedding = checks.count("embedding", embedding)
        self.bins = [list(edge) for edge in edges if len(edge) > 2]
        for name, kept in (("many", True), ("few", False)):
            places = [i for i, edge in enumerate(edges) if (len(edge) > 2) == kept]
            self.register_buffer(name, torch.tensor(places, dtype=torch.int64), persistent=False)
        sizes = torch.tensor(list(cardinalities), dtype=torch.int64)
        self.register_buffer("cardinalities", sizes, persistent=False)
        first = torch.tensor([0, *cardinalities]).cumsum(0)
        self.register_buffer("offsets", first[:-1], persistent=False)
        self.codes = int(first[-1])
        self.embedding: nn.Module | None = None
        if self.bins:
            with needed("bins", "tables"):
                from rtdl_num_embeddings import PiecewiseLinearEmbeddings

            pieces = [torch.tensor(edge, dtype=torch.float32) for edge in self.bins]
            self.embedding = PiecewiseLinearEmbeddings(
                pieces, embedding, activation=False, version="B"
            )
        self.sizes = [embedding] * len(self.many) + [1] * len(self.few) + list(cardinalities)

    def forward(self, columns: Columns) -> Tensor:
        """(N, d) of numbers."""
        numeric, codes = columns
        wanted = len(self.many) + len(self.few), len(self.cardinalities)
        if (numeric.shape[1], codes.shape[1]) != wanted:
            raise ValueError(
                f"columns must be {wanted[0]} numeric and {wanted[1]} of codes, found "
                f"{numeric.shape[1]} and {codes.shape[1]}"
            )
        # A look at values on a GPU would hold it up.
        look = codes.device.type == "cpu" and not torch.compiler.is_compiling()
        if look and ((codes < 0) | (codes >= self.cardinalities)).any():
            raise ValueError(
                f"codes must be below {self.cardinalities.tolist()}, found {codes.amax(0).tolist()}"
            )
        parts = [numeric[:, self.few]]
        if self.embedding is not None:
            parts.insert(0, self.embedding(numeric[:, self.many]).flatten(1))
        if self.codes:
            ones = numeric.new_zeros(codes.shape[0], self.codes)
            parts.append(ones.scatter_(1, codes + self.offsets, 1.0))
        return torch.cat(parts, 1)


class TabularEnsemble(nn.Module):
    """TabM: an ensemble of MLPs that share most of their weights; :func:`tabm` makes one.

    While it trains it gives every member's scores, (k N, outputs), those of a row one after the
    other; otherwise their mean (N, outputs).
    """

    def __init__(self, features: Features, backbone: nn.Module, output: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.backbone = backbone
        self.output = output

    @property
    def scores_per_row(self) -> int:
        """How many scores it gives for each output and row while it trains."""
        return int(self.backbone.k)  # type: ignore[arg-type]

    def forward(self, columns: Columns) -> Tensor:
        r"""Raw scores of numeric columns and categories.

        A member's layer is :math:`s_k \odot W (r_k \odot x) + b_k`: its weights are scaled rather
        than the rows, unless a batch has few.
        """
        blocks: Any = self.backbone.blocks
        output: Any = self.output
        x = self.features(columns)
        if self.training and x.shape[0] < MANY_ROWS:
            few: Tensor = output(self.backbone(x[:, None].expand(-1, self.scores_per_row, -1)))
            return few.flatten(0, 1)
        (first, *after), *others = blocks  # the first layer's members all take the same rows
        weight = first.s[:, :, None] * first.weight * first.r[:, None]
        hidden = functional.linear(x, weight.flatten(0, 1), first.bias.flatten())
        for part in after:
            hidden = part(hidden)
        members = hidden.view(x.shape[0], len(weight), -1).transpose(0, 1)
        for layer, *after in others:
            weight = layer.r[:, :, None] * layer.weight.T * layer.s[:, None]
            members = torch.baddbmm(layer.bias[:, None], members, weight)
            for part in after:
                members = part(members)
        scores = torch.baddbmm(output.bias[:, None], members, output.weight)
        return scores.transpose(0, 1).flatten(0, 1) if self.training else scores.mean(0)

    def merged(self) -> MergedEnsemble:
        """The same scores from a network without members, for use when training is over."""
        return MergedEnsemble(self)


class ByteDropout(nn.Module):
    """Dropout that costs little on a CPU, where drawing a number per unit takes a third of a step.

    A byte is drawn per unit, eight at a time, so that the share is a multiple of 1/256.

    Args:
        share: of units that are left out in training, below 1.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        share = checks.number("dropout", share, "in [0, 1)", lambda x: 0 <= x < 1)
        self.dropped = min(255, round(256 * share))

    def extra_repr(self) -> str:
        """Show the share."""
        return f"share={self.dropped / 256:g}"

    def forward(self, x: Tensor) -> Tensor:
        """Zero some units and scale up the others."""
        if not self.training or not self.dropped:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device)
        drawn = words.random_(-(2**63), None).view(torch.uint8)[: x.numel()].view(x.shape)
        kept = (drawn >= self.dropped).to(x.dtype).mul_(256 / (256 - self.dropped))
        return x * kept


class TabularMLP(nn.Module):
    """A plain multi-layer perceptron; :func:`tabular_mlp` makes one."""

    def __init__(
        self, numeric: int, cardinalities: Sequence[int], hidden: Sequence[int], outputs: int
    ) -> None:
        super().__init__()
        self.cardinalities = list(cardinalities)
        sizes = [numeric + sum(self.cardinalities), *hidden]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))

    def forward(self, columns: Columns) -> Tensor:
        """Raw scores (N, outputs) of numeric columns and categories, these one-hot."""
        numeric, codes = columns
        parts = [
            functional.one_hot(code, size).to(numeric.dtype)
            for code, size in zip(codes.unbind(1), self.cardinalities, strict=True)
        ]
        scores: Tensor = self.layers(torch.cat([numeric, *parts], 1))
        return scores


def tabm(
    numeric: int,
    cardinalities: Sequence[int] = (),
    *,
    bins: Sequence[Sequence[float]] | None = None,
    outputs: int = 1,
    members: int = 8,
    blocks: int = 2,
    width: int = 128,
    dropout: float = 0.3,
    embedding: int = 8,
    generator: torch.Generator | None = None,
) -> TabularEnsemble:
    """TabM (Gorishniy et al., 2025) on piecewise-linear embeddings of the numeric columns.

    Args:
        numeric: how many numeric columns.
        cardinalities: of each categorical column, how many codes it has.
        bins: edges of each numeric column's pieces, see :func:`quantile_bins`; None embeds nothing.
        outputs: scores per row.
        members: MLPs in the ensemble.
        blocks: hidden layers of each.
        width: of a hidden layer.
        dropout: share of hidden units left out in training.
        embedding: numbers that a numeric column becomes.
        generator: of the initial weights; None takes torch's own.

    Example:
        >>> import torch
        >>> from aucmax.models import tabm
        >>> model = tabm(3, [4, 2], members=8)
        >>> columns = torch.randn(5, 3), torch.tensor([[1, 0]] * 5)
        >>> model(columns).shape, model.eval()(columns).shape
        (torch.Size([40, 1]), torch.Size([5, 1]))
    """
    with needed("tabm", "tables"):
        from tabm import LinearEnsemble, make_tabm_backbone

    members, width = checks.count("members", members), checks.count("width", width)
    with drawing_from(generator):
        features = Features(numeric, cardinalities, bins, embedding)
        backbone = make_tabm_backbone(
            d_in=sum(features.sizes), n_blocks=checks.count("blocks", blocks), d_block=width,
            dropout=0.0, k=members, start_scaling_init_chunks=features.sizes,
            start_scaling_init="normal" if features.bins else "random-signs",
        )  # fmt: skip
        output = LinearEnsemble(width, checks.count("outputs", outputs), k=members)
    for block in backbone.blocks:
        block[-1] = ByteDropout(dropout)
    return TabularEnsemble(features, backbone, output)


def tabular_mlp(
    numeric: int,
    cardinalities: Sequence[int] = (),
    *,
    hidden: Sequence[int] = (128, 128),
    outputs: int = 1,
    generator: torch.Generator | None = None,
) -> TabularMLP:
    """A multi-layer perceptron on numeric columns and one-hot categories.

    Args:
        numeric: how many numeric columns.
        cardinalities: of each categorical column, how many codes it has.
        hidden: widths of the hidden layers.
        outputs: scores per row.
        generator: of the initial weights; None takes torch's own.

    Example:
        >>> import torch
        >>> from aucmax.models import tabular_mlp
        >>> model = tabular_mlp(3, [4], hidden=[16])
        >>> model((torch.randn(5, 3), torch.zeros(5, 1, dtype=torch.int64))).shape
        torch.Size([5, 1])
    """
    widths = [checks.count("hidden", width) for width in hidden]
    with drawing_from(generator):
        return TabularMLP(numeric, cardinalities, widths, checks.count("outputs", outputs))


def quantile_bins(numeric: Tensor, count: int = 48) -> list[list[float]]:
    """Edges between which each column has about equally many rows, at most ``count`` pieces.

    Args:
        numeric: the training rows' numeric columns (N, n), none of them constant.
        count: of the pieces.

    Example:
        >>> import torch
        >>> from aucmax.models.tabular import quantile_bins
        >>> quantile_bins(torch.tensor([[0.0], [1.0], [1.0], [2.0]]), count=2)
        [[0.0, 1.0, 2.0]]
    """
    shares = np.linspace(0, 1, checks.count("count", count) + 1)
    return [
        sorted(set(np.quantile(column, shares).astype(np.float32).tolist()))
        for column in numeric.double().numpy().T
    ]
