"""ResNet-20's training step in few kernels: bfloat16 products, statistics in their epilogues.

Of each convolution its output z is saved, and the activations it took in, made of the z before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from experiments.resnet20 import conv
from experiments.resnet20.conv import (
    Images,
    LayerInput,
    NormsBefore,
    Projection,
    ProjectionGradient,
    Shape,
)
from experiments.resnet20.launch import compiled_together
from experiments.resnet20.network import Network
from experiments.resnet20.parts import Norm, NormGradient

WIDEST = 64
ALIGNED = 4  # counters lie 16 bytes apart, as kernels like addresses


def pooled_features(
    network: Network, images: Tensor, dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """The last block's output, averaged over the pixels: (N, 64) in float32.

    Activations and their gradients are kept, and multiplied, in ``dtype``.
    """
    plan = _Plan(network, images, dtype)
    with torch.cuda.device_of(images):
        if images.is_cuda and not torch.cuda.is_current_stream_capturing():
            _compile_once(plan, images)
        features: Tensor = _Features.apply(plan, images, *plan.parameters)
    return features


_compiled: set[tuple[Any, ...]] = set()


def _compile_once(plan: _Plan, images: Tensor) -> None:
    """Before the first step with such images: compile the kernels of both passes together."""
    layout = (images.shape, images.stride(), images.dtype, images.device)
    step = (plan.dtype, *plan.shapes, *layout)
    if step not in _compiled:
        with compiled_together():  # both passes, without launching anything
            saved = _Saved.new(plan, images)
            _Backward(plan, images, saved).run(_forward(plan, images, saved))
        _compiled.add(step)


class _Features(torch.autograd.Function):
    """From images to pooled features; gradients for the parameters alone."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, images: Tensor, *parameters: Tensor) -> Tensor:
        saved = _Saved.new(plan, images)
        pooled = _forward(plan, images, saved)
        ctx.plan = plan
        flat = (saved.counters, saved.stats, saved.weights, saved.last)
        ctx.save_for_backward(images, *parameters, *flat, *saved.z, *saved.activations)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        plan: _Plan = ctx.plan
        images, *tensors = ctx.saved_tensors
        counters, stats, weights, last, *stacks = tensors[len(plan.parameters) :]
        runs = len(plan.runs)
        saved = _Saved(counters, stats, weights, last, stacks[:runs], stacks[runs:])
        return None, None, *_Backward(plan, images, saved).run(gradient.contiguous())


class _Plan:
    """The convolutions of one step, numbered: the stem, two a block, then the projections.

    ``blocks`` are the numbers of the blocks' first convolutions, and ``projections`` has those of
    the projections beside them. ``runs`` are the convolutions of one shape that follow each other;
    their tensors are kept in one stack.
    """

    def __init__(self, network: Network, images: Tensor, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.layers = [*network.layers, *network.projections]
        self.last = len(network.layers) - 1
        self.blocks = range(1, self.last, 2)
        self.mean, self.scale = network.mean, network.scale
        self.shapes: list[Shape] = []
        n, _, height, width = images.shape
        for convolution, _ in network.layers:
            stride = convolution.stride[0]
            height, width = height // stride, width // stride
            channels = (convolution.in_channels, convolution.out_channels)
            self.shapes.append(Shape(*channels, stride, n, height, width))
        strided = [first for first in self.blocks if self.shapes[first].stride == 2]
        self.projections = {first: self.last + 1 + i for i, first in enumerate(strided)}
        bodies = [list(run) for _, run in groupby(range(self.last + 1), self.shapes.__getitem__)]
        self.runs = [*bodies, *([i] for i in self.projections.values())]
        self.shapes += [self.shapes[first] for first in strided]
        gammas = [layer.norm.weight for layer in self.layers]
        betas = [layer.norm.bias for layer in self.layers]
        self.parameters = [*(x.convolution.weight for x in self.layers), *gammas, *betas]

    def rounded_weights(self) -> Tensor:
        """Those of all convolutions as the kernels multiply by them, one after the other."""
        weights = [layer.convolution.weight.detach() for layer in self.layers]
        return torch.cat([w.permute(0, 2, 3, 1).flatten() for w in weights]).to(self.dtype)

    def weights(self, rounded: Tensor) -> tuple[Tensor, ...]:
        """Each convolution's own."""
        return torch.split(rounded, [layer.convolution.weight.numel() for layer in self.layers])

    def standardized(self, images: Tensor) -> Images:
        """The images as the kernels take them."""
        return Images(images, self.mean, self.scale)

    def by_layer(self, stacks: Sequence[Tensor], first_run: int = 0) -> dict[int, Tensor]:
        """The convolutions' own tensors in stacks of the runs."""
        pairs = zip(self.runs[first_run:], stacks, strict=False)
        return {i: x for run, stack in pairs for i, x in zip(run, stack, strict=True)}


class _Saved(NamedTuple):
    """What the forward pass leaves for the backward pass."""

    counters: Tensor  # of the kernels, both ways, that end with a sum over their programs
    stats: Tensor  # of the batch norms
    weights: Tensor  # of the convolutions, rounded
    last: Tensor  # the output of the last block; like the other activations, it has a border
    z: list[Tensor]  # the outputs of the convolutions, a stack for each run
    activations: list[Tensor]  # the inputs of those of the blocks, likewise

    @classmethod
    def new(cls, plan: _Plan, images: Tensor) -> _Saved:
        """Room for it."""
        new = images.new_empty(0, dtype=plan.dtype).new_empty
        sizes = [(len(run), plan.shapes[run[0]]) for run in plan.runs]
        bodies = sizes[1 : len(sizes) - len(plan.projections)]
        return cls(
            torch.zeros(2, plan.last + 1, ALIGNED, dtype=torch.int32, device=images.device),
            torch.empty(len(plan.layers), 4 * WIDEST, device=images.device),
            plan.rounded_weights(),
            new(plan.shapes[plan.last].bordered_output),
            [new(n, shape.rows, shape.outputs) for n, shape in sizes],
            [new(n, *shape.bordered_input) for n, shape in bodies],
        )


def _forward(plan: _Plan, images: Tensor, saved: _Saved) -> Tensor:
    """Fill what is saved and the norms' running statistics; the pooled features."""
    z, activations = plan.by_layer(saved.z), plan.by_layer(saved.activations, 1)
    scratch, counters, stats = conv.new_scratch(images.device), saved.counters[0], saved.stats
    weights, norms = plan.weights(saved.weights), []
    for (_, norm), its_stats in zip(plan.layers, stats, strict=True):
        running = (norm.running_mean, norm.running_var, norm.num_batches_tracked)
        options = (its_stats, norm.momentum or 0.0, norm.eps)
        norms.append(Norm(norm.weight, norm.bias, *running, *options))

    def convolve(i: int, given: LayerInput, projection: Projection | None = None) -> None:
        conv.activate(given, activations[i])
        rest = (scratch, counters[i], plan.shapes[i])
        conv.convolve(activations[i], weights[i], z[i], norms[i], projection, *rest)

    rest = (scratch, counters[0], plan.shapes[0])
    conv.convolve_stem(plan.standardized(images), weights[0], z[0], norms[0], *rest)
    given = LayerInput(z[0], stats[0])
    for first in plan.blocks:
        other, second, projection = plan.projections.get(first), first + 1, None
        side: tuple[Tensor, ...] = (activations[first],)
        if other is not None:
            projection = Projection(weights[other], z[other], norms[other])
            side = (z[other], stats[other])
        convolve(first, given, projection)
        convolve(second, LayerInput(z[first], stats[first]))
        given = LayerInput(z[second], stats[second], *side)
    shape = plan.shapes[plan.last]
    pooled = torch.empty(shape.images, shape.outputs, device=images.device)
    conv.activate(given, saved.last)
    conv.pool(saved.last, pooled)
    return pooled


class _Backward:
    """One backward pass: gradients walk from the last block to the stem, then the weights' come."""

    def __init__(self, plan: _Plan, images: Tensor, saved: _Saved) -> None:
        self.plan, self.images, self.saved = plan, images, saved
        self.z, self.activations = plan.by_layer(saved.z), plan.by_layer(saved.activations, 1)
        self.weights = plan.weights(saved.weights)
        runs = [(len(run), plan.shapes[run[0]]) for run in plan.runs[1:]]
        self.dz_stacks = [saved.last.new_empty(n, *shape.bordered_output) for n, shape in runs]
        self.dz = plan.by_layer(self.dz_stacks, 1)
        self.flat = torch.empty(sum(p.numel() for p in plan.parameters), device=images.device)
        self.gradients = _like(plan.parameters, self.flat)
        self.coefficients = torch.empty_like(saved.stats)
        self.scratch = conv.new_scratch(images.device)

    def run(self, gradient: Tensor) -> list[Tensor]:
        """The gradients of the parameters, in their order, from that of the pooled features."""
        plan, last = self.plan, self.plan.last
        d = torch.empty_like(self.z[last])
        rest = (self.scratch, self.saved.counters[1, 0], plan.shapes[last])
        conv.pool_gradient(gradient, self.z[last], self.saved.last, self.norm(last), d, *rest)
        for first in reversed(plan.blocks):
            before = NormsBefore(self.z[first], self.norm(first), self.activations[first + 1])
            inner = self.through_convolution(first + 1, d, before)
            projection = None
            if (i := plan.projections.get(first)) is not None:
                projection = ProjectionGradient(self.through_norm(i, d), self.weights[i])
            d = self.through_convolution(first, inner, self.before_block(first, d), projection)
        self.weight_gradients(d)
        return self.gradients

    def norm(self, i: int) -> NormGradient:
        """Where the gradients of one batch norm go."""
        n, stats = len(self.plan.layers), self.saved.stats
        gamma, beta = self.gradients[n + i], self.gradients[2 * n + i]
        weight = self.plan.parameters[n + i]
        return NormGradient(weight, stats[i], gamma, beta, self.coefficients[i])

    def through_convolution(
        self, i: int, d: Tensor, before: NormsBefore, projection: ProjectionGradient | None = None
    ) -> Tensor:
        """From after a convolution's norm to after the norm before it."""
        result = torch.empty_like(before.z)
        rest = (self.scratch, self.saved.counters[1, i], self.plan.shapes[i])
        dz = self.through_norm(i, d)
        conv.data_gradient(dz, self.weights[i], projection, before, result, *rest)
        return result

    def through_norm(self, i: int, d: Tensor) -> Tensor:
        """From after one norm to before it."""
        conv.input_gradient(d, self.z[i], self.coefficients[i], self.dz[i])
        return self.dz[i]

    def before_block(self, first: int, d: Tensor) -> NormsBefore:
        """What a block's input came from; ``d`` is the gradient at the block's sum."""
        identity = None if first in self.plan.projections else d
        z, norm = self.z[first - 1], self.norm(first - 1)
        other = self.plan.projections.get(first - 2)
        beside = (self.z[other], self.norm(other)) if other else (None, None)
        return NormsBefore(z, norm, self.activations[first], identity, *beside)

    def weight_gradients(self, d: Tensor) -> None:
        """The weights' gradients, from the one after the stem's norm and what is saved."""
        plan, images = self.plan, self.plan.standardized(self.images)
        stem = (images, d, self.z[0], self.coefficients[0], plan.shapes[0])
        stacks = zip(plan.runs[1:], self.saved.activations, self.dz_stacks, strict=False)
        bodies = [
            conv.WeightGradient(activations, dz, plan.shapes[run[0]])
            for run, activations, dz in stacks
        ]
        projections = [
            conv.WeightGradient(self.activations[first][None], self.dz[i][None], plan.shapes[i], 1)
            for first, i in plan.projections.items()
        ]
        conv.weight_gradients([conv.StemWeightGradient(*stem), *bodies, *projections], self.flat)


def _like(parameters: Sequence[Tensor], flat: Tensor) -> list[Tensor]:
    """Views of one tensor that lie as the parameters do, weights channels-last."""
    pieces = torch.split(flat, [p.numel() for p in parameters])
    return [
        piece.view(p.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2) if p.ndim == 4 else piece
        for piece, p in zip(pieces, parameters, strict=True)
    ]
