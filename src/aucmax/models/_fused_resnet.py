"""ResNet-20's training step in few kernels: bfloat16 products, statistics in their epilogues.

Of each convolution its output z is kept, and what it took in, made of the z before it. See
``aucmax.kernels.resnet.parts``, ``conv_forward`` and ``conv_backward``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from aucmax.kernels.resnet import conv
from aucmax.kernels.resnet.conv import Before, Images, Shape, Shortcut, ShortcutGradient, Source
from aucmax.kernels.resnet.parts import Norm, NormGradient
from aucmax.kernels.resnet.together import compiled_together
from aucmax.models._fusible import Layer, layers

if TYPE_CHECKING:
    from aucmax.models.resnet import ResNet20

WIDEST = 64
ALIGNED = 4  # counters lie 16 bytes apart, as kernels like addresses


def pooled_features(model: ResNet20, images: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """The last block's output, averaged over the pixels: (N, 64) in float32.

    Activations and their gradients are kept, and multiplied, in ``dtype``.
    """
    network = _Network(model, images, dtype)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        if images.is_cuda and not torch.cuda.is_current_stream_capturing():
            _compile_once(network, images)
        features: Tensor = _Features.apply(network, images, *network.parameters())  # type: ignore[no-untyped-call]
    return features


_compiled: set[tuple[Any, ...]] = set()


def _compile_once(network: _Network, images: Tensor) -> None:
    """Before the first step with such images: compile the kernels of both passes together."""
    layout = (images.shape, images.stride(), images.dtype, images.device)
    step = (network.dtype, *network.shapes, *layout)
    if step not in _compiled:
        compile_step(network, images)
        _compiled.add(step)


def compile_step(network: _Network, images: Tensor) -> None:
    """Go through both passes without launching anything."""
    with compiled_together():
        kept = _Kept.new(network, images)
        _Backward(network, images, kept).run(_forward(network, images, kept))


class _Features(torch.autograd.Function):
    """From images to pooled features; gradients for the parameters alone."""

    @staticmethod
    def forward(ctx: Any, network: _Network, images: Tensor, *parameters: Tensor) -> Tensor:
        kept = _Kept.new(network, images)
        pooled = _forward(network, images, kept)
        ctx.network = network
        flat = (kept.counters, kept.stats, kept.weights, kept.last)
        ctx.save_for_backward(images, *parameters, *flat, *kept.z, *kept.made)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        network: _Network = ctx.network
        images, *tensors = ctx.saved_tensors
        counters, stats, weights, last, *stacks = tensors[3 * len(network.layers) :]
        runs = len(network.runs)
        kept = _Kept(counters, stats, weights, last, stacks[:runs], stacks[runs:])
        return None, None, *_Backward(network, images, kept).run(gradient.contiguous())


class _Network:
    """The convolutions of one step: the stem, two a block, then the projections.

    ``blocks`` are the numbers of the blocks' first convolutions, and ``projections`` has those of
    the projections beside them. ``runs`` are the convolutions of one shape that follow each other;
    their tensors are kept in one stack.
    """

    def __init__(self, model: ResNet20, images: Tensor, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.layers = list(layers(model))
        self.standardize = model.standardize
        self.blocks = range(1, 2 * len(model.blocks), 2)
        self.last = 2 * len(model.blocks)
        self.shapes = _shapes(self.layers[: self.last + 1], images)
        strided = [first for first in self.blocks if self.shapes[first].stride == 2]
        self.projections = {first: self.last + 1 + i for i, first in enumerate(strided)}
        bodies = [list(run) for _, run in groupby(range(self.last + 1), self.shapes.__getitem__)]
        self.runs = [*bodies, *([i] for i in self.projections.values())]
        self.shapes += [self.shapes[first] for first in strided]

    def parameters(self) -> list[Tensor]:
        """Weights, then gammas, then betas."""
        gammas = [layer.norm.weight for layer in self.layers]
        betas = [layer.norm.bias for layer in self.layers]
        return [*(layer.convolution.weight for layer in self.layers), *gammas, *betas]

    def rounded_weights(self) -> Tensor:
        """Those of all convolutions as the kernels multiply by them, one after the other."""
        weights = [layer.convolution.weight.detach() for layer in self.layers]
        return torch.cat([w.permute(0, 2, 3, 1).flatten() for w in weights]).to(self.dtype)

    def weights(self, rounded: Tensor) -> tuple[Tensor, ...]:
        """Each convolution's own."""
        return torch.split(rounded, [layer.convolution.weight.numel() for layer in self.layers])

    def images(self, pixels: Tensor) -> Images:
        """The images as the kernels take them."""
        return Images(pixels, self.standardize.mean, self.standardize.scale)

    def by_layer(self, stacks: Sequence[Tensor], first_run: int = 0) -> dict[int, Tensor]:
        """The convolutions' own tensors in stacks of the runs."""
        pairs = zip(self.runs[first_run:], stacks, strict=False)
        return {i: x for run, stack in pairs for i, x in zip(run, stack, strict=True)}

    def join(self, first: int, z: dict[int, Tensor], kept: _Kept) -> Source:
        """What the output of a block is made of."""
        after, stats = z[first + 1], kept.stats
        other = self.projections.get(first)
        if other is None:
            return Source(after, stats[first + 1], self.by_layer(kept.made, 1)[first])
        return Source(after, stats[first + 1], z[other], stats[other])


def _shapes(body: Sequence[Layer], images: Tensor) -> list[Shape]:
    n, _, height, width = images.shape
    shapes = []
    for convolution, _ in body:
        stride = convolution.stride[0]
        height, width = height // stride, width // stride
        channels = (convolution.in_channels, convolution.out_channels)
        shapes.append(Shape(*channels, stride, n, height, width))
    return shapes


class _Kept(NamedTuple):
    """What the forward pass leaves for the backward pass.

    Args:
        counters: of the kernels forward and backward that end with a sum over their programs.
        stats: of the batch norms.
        weights: of the convolutions, rounded.
        last: the output of the last block; like the inputs, it has a border.
        z: the outputs of the convolutions, a stack for each run.
        made: the inputs of those of the blocks, likewise.
    """

    counters: Tensor
    stats: Tensor
    weights: Tensor
    last: Tensor
    z: list[Tensor]
    made: list[Tensor]

    @classmethod
    def new(cls, network: _Network, images: Tensor) -> _Kept:
        """Room for it."""
        new = images.new_empty(0, dtype=network.dtype).new_empty
        sizes = [(len(run), network.shapes[run[0]]) for run in network.runs]
        bodies = sizes[1 : len(sizes) - len(network.projections)]
        return cls(
            torch.zeros(2, network.last + 1, ALIGNED, dtype=torch.int32, device=images.device),
            torch.empty(len(network.layers), 4 * WIDEST, device=images.device),
            network.rounded_weights(),
            new(network.shapes[network.last].bordered_output),
            [new(n, shape.rows, shape.outputs) for n, shape in sizes],
            [new(n, *shape.bordered_input) for n, shape in bodies],
        )


def _forward(network: _Network, images: Tensor, kept: _Kept) -> Tensor:
    """Fill what is kept and the norms' running statistics; the pooled features."""
    z, made = network.by_layer(kept.z), network.by_layer(kept.made, 1)
    norms = [_norm(layer, stats) for layer, stats in zip(network.layers, kept.stats, strict=True)]
    room, counters = conv.scratch(images.device), kept.counters[0]

    weights = network.weights(kept.weights)

    def convolve(i: int, source: Source, shortcut: Shortcut | None = None) -> None:
        rest = (room, counters[i], network.shapes[i])
        conv.activate(source, made[i])
        conv.forward(made[i], weights[i], z[i], norms[i], shortcut, *rest)

    rest = (room, counters[0], network.shapes[0])
    conv.stem(network.images(images), weights[0], z[0], norms[0], *rest)
    source = Source(z[0], kept.stats[0])
    for first in network.blocks:
        other = network.projections.get(first)
        shortcut = Shortcut(weights[other], z[other], norms[other]) if other else None
        convolve(first, source, shortcut)
        convolve(first + 1, Source(z[first], kept.stats[first]))
        source = network.join(first, z, kept)
    shape = network.shapes[network.last]
    pooled = torch.empty(shape.images, shape.outputs, device=images.device)
    conv.activate(source, kept.last)
    conv.pool(kept.last, pooled)
    return pooled


def _norm(layer: Layer, stats: Tensor) -> Norm:
    norm = layer.norm
    running = (norm.running_mean, norm.running_var, norm.num_batches_tracked)
    return Norm(norm.weight, norm.bias, *running, stats, norm.momentum or 0.0, norm.eps)


class _Backward:
    """One backward pass: gradients walk from the last block to the stem, then the weights' come."""

    def __init__(self, network: _Network, images: Tensor, kept: _Kept) -> None:
        self.network, self.pixels, self.kept = network, images, kept
        self.z, self.made = network.by_layer(kept.z), network.by_layer(kept.made, 1)
        self.weights = network.weights(kept.weights)
        runs = [(len(run), network.shapes[run[0]]) for run in network.runs[1:]]
        self.dz_stacks = [kept.last.new_empty(n, *shape.bordered_output) for n, shape in runs]
        self.dz = network.by_layer(self.dz_stacks, 1)
        self.parameters = network.parameters()
        self.flat = torch.empty(sum(p.numel() for p in self.parameters), device=images.device)
        self.gradients = _like(self.parameters, self.flat)
        self.coefficients = torch.empty_like(kept.stats)
        self.room = conv.scratch(images.device)

    def run(self, gradient: Tensor) -> list[Tensor]:
        """The gradients of the parameters, in their order, from that of the pooled features."""
        network, last = self.network, self.network.last
        d = torch.empty_like(self.z[last])
        rest = (self.room, self.kept.counters[1, 0], network.shapes[last])
        conv.pool_gradient(gradient, self.z[last], self.kept.last, self.norm(last), d, *rest)
        for first in reversed(network.blocks):
            before = Before(self.z[first], self.norm(first), self.made[first + 1])
            inner = self.data(first + 1, d, before)
            d = self.data(first, inner, self.before(first, d), self.shortcut(first, d))
        self.weight_gradients(d)
        return self.gradients

    def norm(self, i: int) -> NormGradient:
        """Where the gradients of one batch norm go."""
        n, stats = len(self.network.layers), self.kept.stats
        gamma, beta = self.gradients[n + i], self.gradients[2 * n + i]
        return NormGradient(self.parameters[n + i], stats[i], gamma, beta, self.coefficients[i])

    def data(
        self, i: int, d: Tensor, before: Before, shortcut: ShortcutGradient | None = None
    ) -> Tensor:
        """Through one convolution, from after its norm to after the norm before it."""
        result = torch.empty_like(before.z)
        rest = (self.room, self.kept.counters[1, i], self.network.shapes[i])
        dz = self.through_norm(i, d)
        conv.data_gradient(dz, self.weights[i], shortcut, before, result, *rest)
        return result

    def through_norm(self, i: int, d: Tensor) -> Tensor:
        """From after one norm to before it."""
        conv.input_gradient(d, self.z[i], self.coefficients[i], self.dz[i])
        return self.dz[i]

    def before(self, first: int, d: Tensor) -> Before:
        """What a block's input came from; ``d`` is the gradient at the block's sum."""
        identity = None if first in self.network.projections else d
        z, norm = self.z[first - 1], self.norm(first - 1)
        other = self.network.projections.get(first - 2)
        beside = (self.z[other], self.norm(other)) if other else (None, None)
        return Before(z, norm, self.made[first], identity, *beside)

    def shortcut(self, first: int, d: Tensor) -> ShortcutGradient | None:
        """A block's projection, if it has one."""
        i = self.network.projections.get(first)
        if i is None:
            return None
        return ShortcutGradient(self.through_norm(i, d), self.weights[i])

    def weight_gradients(self, d: Tensor) -> None:
        """The weights' gradients, from the one after the stem's norm and what is kept."""
        network, kept = self.network, self.kept
        images, shape = network.images(self.pixels), network.shapes[0]
        stem = conv.StemWeightGradient(images, d, self.z[0], self.coefficients[0], shape)
        bodies = [
            conv.WeightGradient(made, dz, network.shapes[run[0]])
            for run, made, dz in zip(network.runs[1:], kept.made, self.dz_stacks, strict=False)
        ]
        projections = [
            conv.WeightGradient(self.made[first][None], self.dz[i][None], network.shapes[i], 1)
            for first, i in network.projections.items()
        ]
        conv.weight_gradients([stem, *bodies, *projections], self.flat)


def _like(parameters: Sequence[Tensor], flat: Tensor) -> list[Tensor]:
    """Views of one tensor that lie as the parameters do, weights channels-last."""
    pieces = torch.split(flat, [p.numel() for p in parameters])
    return [
        piece.view(p.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2) if p.ndim == 4 else piece
        for piece, p in zip(pieces, parameters, strict=True)
    ]
