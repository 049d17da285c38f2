"""Networks for tables, alone and several side by side: numbers and categories in, scores out.

An ensemble says by its attribute ``scores_per_row`` = k that in training mode it returns k scores
for each row, of shape (N k, outputs), the k scores of a row after each other. By a method
``score_weights(x)`` it may say how much each of them counts, (N, k).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from aucmax import checks
from aucmax.extras import needed
from aucmax.random_state import drawing_from

MANY_ROWS = 128
"""Rows from which on it is faster to scale the weights of TabM than its rows."""

Columns = tuple[Tensor, Tensor]
"""Numeric columns (N, n), and codes of categories (N, c) as integers."""
Inputs = tuple[Tensor, ...]


class Features(nn.Module):
    """Embedded numeric columns, plain numeric columns and one-hot categories, concatenated.

    A column of one piece, that is of two values, gains nothing from an embedding and stays plain.

    Args:
        numeric: Number of numeric columns.
        cardinalities: Number of codes of each categorical column.
        bins: Edges of the pieces of each numeric column; None embeds no column.
        embedding: Width of the embedding of a column.
    """

    many: Tensor
    few: Tensor
    offsets: Tensor
    cardinalities: Tensor

    def __init__(
        self,
        numeric: int,
        cardinalities: Sequence[int],
        bins: Sequence[Sequence[float]] | None = None,
        embedding: int = 8,
    ) -> None:
        super().__init__()
        edges = list(bins or [()] * numeric)
        if len(edges) != numeric:
            raise ValueError(f"bins must be edges of {numeric} columns, found {len(edges)}")
        embedding = checks.count("embedding", embedding)
        pieces = [torch.tensor(edge, dtype=torch.float32) for edge in edges if len(edge) > 2]
        for name, embedded in (("many", True), ("few", False)):
            places = [i for i, edge in enumerate(edges) if (len(edge) > 2) == embedded]
            self.register_buffer(name, torch.tensor(places, dtype=torch.int64), persistent=False)
        sizes = torch.tensor(list(cardinalities), dtype=torch.int64)
        self.register_buffer("cardinalities", sizes, persistent=False)
        first = torch.tensor([0, *cardinalities]).cumsum(0)
        self.register_buffer("offsets", first[:-1], persistent=False)
        self.codes = int(first[-1])
        self.embedding: nn.Module | None = None
        if pieces:
            with needed("bins", "tables"):
                from rtdl_num_embeddings import PiecewiseLinearEmbeddings

            self.embedding = PiecewiseLinearEmbeddings(
                pieces, embedding, activation=False, version="B"
            )
        self.sizes = [embedding] * len(self.many) + [1] * len(self.few) + list(cardinalities)

    def forward(self, columns: Columns) -> Tensor:
        """Return features (N, d) of numeric columns and categories."""
        numeric, codes = columns
        expected = len(self.many) + len(self.few), len(self.cardinalities)
        if (numeric.shape[1], codes.shape[1]) != expected:
            raise ValueError(
                f"columns must be {expected[0]} numeric and {expected[1]} of codes, found "
                f"{numeric.shape[1]} and {codes.shape[1]}"
            )
        # An accelerator would have to be waited for.
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


class EnsembleLinear(nn.Module):
    r"""A ``tabm.LinearBatchEnsemble`` that is fast on many rows.

    Member k maps x to :math:`s_k \odot W (r_k \odot x) + b_k`. tabm scales the rows by r and s,
    which is the fastest for few rows. For many it is faster to scale W: training steps on 320 to
    1,024 rows take 0.7 to 0.85 of the time.

    Args:
        layer: The layer whose parameters it takes over, under the same names.

    Shape:
        Inputs (N, k, d), outputs (N, k, e).
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.weight, self.r, self.s, self.bias = layer.weight, layer.r, layer.s, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of all members."""
        if self.training and x.shape[0] < MANY_ROWS:
            rows: Tensor = (x * self.r) @ self.weight.T * self.s + self.bias
            return rows
        weight = self.r[:, :, None] * self.weight.T * self.s[:, None]
        return torch.baddbmm(self.bias[:, None], x.transpose(0, 1), weight).transpose(0, 1)


class ByteDropout(nn.Module):
    """Dropout from one random byte per unit.

    On a CPU the random numbers of ``nn.Dropout`` take a quarter of a training step of TabM. Here
    eight bytes are drawn at a time, and the share is rounded to a multiple of 1/256.

    Args:
        share: Share of the units to drop in training, below 1.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        share = checks.number("dropout", share, "in [0, 1)", lambda x: 0 <= x < 1)
        self.dropped = min(255, round(256 * share))

    def extra_repr(self) -> str:
        """Show the share."""
        return f"share={self.dropped / 256:g}"

    def forward(self, x: Tensor) -> Tensor:
        """Zero some units and scale the others up in training; return x otherwise."""
        if not self.training or not self.dropped:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device)
        drawn = words.random_(-(2**63), None).view(torch.uint8)[: x.numel()].view(x.shape)
        kept = (drawn >= self.dropped).to(x.dtype).mul_(256 / (256 - self.dropped))
        return x * kept


class TabularEnsemble(nn.Module):
    """TabM, an ensemble of k MLPs that share most of their weights; :func:`tabm` makes one.

    Attributes:
        scores_per_row: k.
    """

    def __init__(self, features: Features, backbone: Any, output: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.backbone = backbone
        self.output = output
        self.scores_per_row = int(backbone.k)

    def forward(self, columns: Columns) -> Tensor:
        """Return raw scores (N k, outputs) of all members in training, else their mean."""
        x = self.features(columns)
        scores: Tensor = self.output(self.backbone(x[:, None].expand(-1, self.scores_per_row, -1)))
        return scores.flatten(0, 1) if self.training else scores.mean(1)


class TabularMLP(nn.Module):
    """A plain multi-layer perceptron; :func:`tabular_mlp` makes one."""

    def __init__(self, features: Features, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.features = features
        sizes = [sum(features.sizes), *hidden]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))

    def forward(self, columns: Columns) -> Tensor:
        """Return raw scores (N, outputs) of numeric columns and categories."""
        scores: Tensor = self.layers(self.features(columns))
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
    """Make TabM (Gorishniy et al., 2025) on piecewise-linear embeddings of the numeric columns.

    Args:
        numeric: Number of numeric columns.
        cardinalities: Number of codes of each categorical column.
        bins: Edges of the pieces of each numeric column, see :func:`quantile_bins`; None embeds no
            column.
        outputs: Scores per row.
        members: Number of MLPs in the ensemble.
        blocks: Number of hidden layers.
        width: Width of the hidden layers.
        dropout: Share of hidden units dropped in training.
        embedding: Width of the embedding of a numeric column.
        generator: Generator of the initial weights; None takes torch's own.

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
            d_in=sum(features.sizes),
            n_blocks=checks.count("blocks", blocks),
            d_block=width,
            dropout=0.0,
            k=members,
            start_scaling_init_chunks=features.sizes,
            start_scaling_init="random-signs" if features.embedding is None else "normal",
        )
        output = LinearEnsemble(width, checks.count("outputs", outputs), k=members)
    for block in backbone.blocks:
        block[0], block[-1] = EnsembleLinear(block[0]), ByteDropout(dropout)
    return TabularEnsemble(features, backbone, output)


def tabular_mlp(
    numeric: int,
    cardinalities: Sequence[int] = (),
    *,
    hidden: Sequence[int] = (128, 128),
    outputs: int = 1,
    generator: torch.Generator | None = None,
) -> TabularMLP:
    """Make a multi-layer perceptron on numeric columns and one-hot categories.

    Args:
        numeric: Number of numeric columns.
        cardinalities: Number of codes of each categorical column.
        hidden: Widths of the hidden layers.
        outputs: Scores per row.
        generator: Generator of the initial weights; None takes torch's own.

    Example:
        >>> import torch
        >>> from aucmax.models import tabular_mlp
        >>> model = tabular_mlp(3, [4], hidden=[16])
        >>> model((torch.randn(5, 3), torch.zeros(5, 1, dtype=torch.int64))).shape
        torch.Size([5, 1])
    """
    widths = [checks.count("hidden", width) for width in hidden]
    features = Features(numeric, cardinalities)
    with drawing_from(generator):
        return TabularMLP(features, widths, checks.count("outputs", outputs))


def quantile_bins(numeric: Tensor, count: int = 48) -> list[list[float]]:
    """Return edges between which each column has about equally many rows.

    Args:
        numeric: Numeric columns (N, n) of the training rows, none of them constant.
        count: Largest number of pieces.

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


class SideBySide(nn.Module):
    """Networks of one shape that are trained in step, each on rows of its own.

    The last of the inputs, (N, networks) of booleans, says which networks each row concerns: those
    that are trained on it, or in evaluation those that it is held out of, of which there must be
    one. In training mode the scores of all networks are returned, (N networks k, outputs), and
    :meth:`score_weights` is 0 for networks that a row does not concern. In evaluation mode the
    score of a row is the mean over the networks that it concerns.

    Args:
        networks: The networks; k is the attribute ``scores_per_row`` of the first, or 1.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.count, self.per_network = len(networks), getattr(networks[0], "scores_per_row", 1)
        self.scores_per_row = self.count * self.per_network

    @abstractmethod
    def networks(self) -> list[nn.Module]:
        """Return each of the networks with its present weights."""

    @abstractmethod
    def _score(self, number: int, inputs: Inputs) -> Tensor:
        """Return the scores of one network."""

    def _score_each(self, inputs: Inputs, concerned: Tensor) -> Tensor:
        """Return scores (networks, N, k, outputs), zero for rows that do not concern a network."""
        number, row = concerned.T.nonzero().unbind(1)
        parts = [
            self._score(k, tuple(x[own] for x in inputs)).reshape(len(own), -1)
            for k, own in enumerate(torch.split(row, concerned.sum(0).tolist()))
            if len(own)
        ]
        scores = torch.cat(parts)
        scattered = scores.new_zeros(concerned.numel(), scores.shape[1])
        scattered = scattered.index_copy(0, number * len(concerned) + row, scores)
        members = self.per_network if self.training else 1
        return scattered.reshape(self.count, len(concerned), members, -1)

    def score_weights(self, x: Inputs) -> Tensor:
        """Return the weight of each score in training, (N, networks k): one or zero."""
        return x[-1].float().repeat_interleave(self.per_network, dim=1)

    def forward(self, x: Inputs) -> Tensor:
        """Return raw scores of rows."""
        *inputs, concerned = x
        scores = self._score_each(tuple(inputs), concerned)
        if self.training:
            return scores.transpose(0, 1).flatten(0, 2)
        return scores.sum((0, 2)) / concerned.sum(1, keepdim=True)


class Separate(SideBySide):
    """Networks of any kind, called one after the other, each with the rows that concern it."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__(networks)
        self.each = nn.ModuleList(networks)

    def _score(self, number: int, inputs: Inputs) -> Tensor:
        scores: Tensor = self.each[number](inputs)
        return scores

    def networks(self) -> list[nn.Module]:
        """Return each of the networks."""
        return [network.eval() for network in self.each]


class Stacked(SideBySide):
    """Networks whose weights are stacked and trained by one call of ``torch.vmap``.

    For small networks and batches it takes little more time than one of them, and it can be
    captured in a CUDA graph. The networks must differ in their parameters alone, and training must
    not change their buffers.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__(networks)
        stacks, _ = stack_module_state(list(networks))
        self.names = list(stacks)
        self.weights = nn.ParameterList(stacks.values())
        self._originals = tuple(networks)  # in a tuple, since their weights are those stacked
        self.body = copy.deepcopy(networks[0])
        for module in self.body.modules():  # its weights are replaced at each call
            for name, p in list(module.named_parameters(recurse=False)):
                delattr(module, name)
                module.register_buffer(name, p.detach(), persistent=False)

    def _call(self, weights: Sequence[Tensor], inputs: Inputs) -> Tensor:
        named = dict(zip(self.names, weights, strict=True))
        scores: Tensor = functional_call(self.body, named, (inputs,))
        return scores

    def _score(self, number: int, inputs: Inputs) -> Tensor:
        return self._call([weight[number] for weight in self.weights], inputs)

    def _score_each(self, inputs: Inputs, concerned: Tensor) -> Tensor:
        if not self.training:
            return super()._score_each(inputs, concerned)
        each: Callable[..., Tensor] = torch.vmap(self._call, (0, None), randomness="same")
        scores = each(list(self.weights), inputs)
        return scores.reshape(self.count, len(concerned), self.per_network, -1)

    @torch.no_grad()
    def networks(self) -> list[nn.Module]:
        """Return the given networks, with the present weights."""
        for number, network in enumerate(self._originals):
            for name, weight in zip(self.names, self.weights, strict=True):
                network.get_parameter(name).copy_(weight[number])
        return [network.eval() for network in self._originals]
