"""Calls of the convolution kernels: sizes from the shapes, settings from the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from experiments.resnet20 import backward, forward
from experiments.resnet20.launch import launch
from experiments.resnet20.parts import Norm, NormGradient


class Setting(NamedTuple):
    """How a kernel divides its work."""

    block: int  # rows of pixels multiplied at a time; numbers made or summed at a time
    k: int  # numbers of the window per product, a multiple of the channels; parts summed at a time
    warps: int  # of a program
    programs: int  # at most so many share the pixels; a power of two
    stages: int = 1  # of the innermost loop; above one, copies run ahead through shared memory
    pixels: int = 1  # side by side in such a row; they must divide an image's width


SETTINGS: dict[tuple[str, int, int], Setting] = {
    ("stem", 3, 1): Setting(128, 32, 4, 512),
    ("forward", 16, 1): Setting(128, 64, 4, 256, 3, 2),
    ("forward", 16, 2): Setting(128, 64, 4, 256, 3),
    ("forward", 32, 1): Setting(128, 32, 4, 256, 4),
    ("forward", 32, 2): Setting(64, 64, 4, 128, 3),
    ("forward", 64, 1): Setting(64, 64, 4, 128, 3),
    ("data", 16, 1): Setting(64, 64, 4, 512, 1, 2),
    ("data", 16, 2): Setting(128, 64, 4, 256, 3),
    ("data", 32, 1): Setting(128, 32, 4, 256, 4),
    ("data", 32, 2): Setting(64, 64, 4, 128, 3),
    ("data", 64, 1): Setting(64, 64, 4, 128, 3),
    ("weight", 3, 1): Setting(128, 32, 4, 264),
    ("weight", 16, 1): Setting(64, 64, 2, 128, 2),
    ("weight", 16, 2): Setting(64, 64, 2, 256, 2),
    ("weight", 32, 1): Setting(128, 128, 4, 32, 2),
    ("weight", 32, 2): Setting(64, 64, 4, 64, 3),
    ("weight", 64, 1): Setting(64, 64, 4, 8, 3),
    ("elementwise", 1, 1): Setting(2048, 0, 4, 0),
    ("pool", 1, 1): Setting(64, 64, 4, 128),
    ("sum", 1, 1): Setting(64, 64, 4, 0),
}
"""By kernel, input channels and stride, for 128 images of 32 x 32 on an H200; change one to try."""


def programs(setting: Setting, rows: int) -> int:
    """As many programs as share the pixels evenly, at most the setting's."""
    tiles = -(-rows // setting.block)
    each = -(-tiles // setting.programs)
    return -(-tiles // each)


class Shape(NamedTuple):
    """Of a convolution: channels in and out, stride, and the images it makes."""

    inputs: int
    outputs: int
    stride: int
    images: int
    height: int
    width: int

    @property
    def rows(self) -> int:
        """The pixels that it makes."""
        return self.images * self.height * self.width

    @property
    def bordered_input(self) -> tuple[int, int, int, int]:
        """The shape of the images that it takes in, with a border."""
        height, width = self.height * self.stride, self.width * self.stride
        return self.images, height + 2, width + 2, self.inputs

    @property
    def bordered_output(self) -> tuple[int, int, int, int]:
        """The shape of the images that it makes, were there a border around them."""
        return self.images, self.height + 2, self.width + 2, self.outputs


class LayerInput(NamedTuple):
    """What the activations that a layer takes in are made of: see ``activate_kernel``."""

    z: Tensor
    stats: Tensor
    side: Tensor | None = None
    side_stats: Tensor | None = None


class Images(NamedTuple):
    """Images as they came, and the mean and scale that standardize them."""

    pixels: Tensor
    mean: Tensor
    scale: Tensor

    def arguments(self) -> tuple[Tensor | int, ...]:
        """For a kernel: the tensors and their strides."""
        per_channel = (self.mean.ndim, self.scale.ndim)  # a single number has stride 0
        return (self.pixels, self.mean, self.scale, *self.pixels.stride(), *per_channel)


class Projection(NamedTuple):
    """A 1 x 1 convolution beside one of 3 x 3."""

    weight: Tensor
    out: Tensor
    norm: Norm


class ProjectionGradient(NamedTuple):
    """A projection and the gradient at its output."""

    dz: Tensor
    weight: Tensor


class NormsBefore(NamedTuple):
    """The batch norms whose output a layer takes in, and what their gradient needs."""

    z: Tensor  # the input of the norm
    norm: NormGradient  # where its gradients go
    activations: Tensor  # what the layer takes in, with a border
    skip: Tensor | None = None  # the gradient from the block's shortcut, where that is the identity
    beside_z: Tensor | None = None  # the input of the norm of a projection that was added
    beside: NormGradient | None = None  # where that one's gradients go


def new_scratch(device: torch.device) -> Tensor:
    """Room for the sums of the programs of one kernel: four of up to 64 channels each."""
    most = max(setting.programs for setting in SETTINGS.values())
    return torch.empty(4 * 64 * most, device=device)


def convolve_stem(
    images: Images,
    weight: Tensor,
    out: Tensor,
    norm: Norm,
    scratch: Tensor,
    counter: Tensor,
    shape: Shape,
) -> None:
    """The first convolution and its norm's statistics."""
    setting = _stem_setting("stem", shape)
    grid = programs(setting, shape.rows)
    launch(
        forward.stem_kernel, (grid,),
        *images.arguments(), weight, out, norm, scratch, counter, shape.rows,
        ROWS=triton.next_power_of_2(grid), **_stem_sizes(shape, setting), **_launch(setting),
    )  # fmt: skip


def activate(given: LayerInput, activations: Tensor) -> None:
    """Make what a layer takes in: images (N, height, width, channels) with a border."""
    _elementwise(forward.activate_kernel, given, activations)


def input_gradient(d: Tensor, z: Tensor, coefficients: Tensor, dz: Tensor) -> None:
    """Through a batch norm, from the gradient after it to the one before it, with a border."""
    _elementwise(backward.input_gradient_kernel, (d, z, coefficients), dz)


def _elementwise(kernel: Any, inputs: Sequence[Tensor | None], out: Tensor) -> None:
    """Make images with a border, one number from its own inputs alone."""
    setting = SETTINGS["elementwise", 1, 1]
    *images, channels = out.shape
    pixels, block = math.prod(images), setting.block // channels
    launch(
        kernel, (triton.cdiv(pixels, block),), *inputs, out, pixels,
        H=images[1] - 2, W=images[2] - 2, C=channels, BLOCK=block, **_launch(setting),
    )  # fmt: skip


def convolve(
    activations: Tensor,
    weight: Tensor,
    out: Tensor,
    norm: Norm,
    projection: Projection | None,
    scratch: Tensor,
    counter: Tensor,
    shape: Shape,
) -> None:
    """A 3 x 3 convolution, the projection beside it, and their norms' statistics."""
    setting = SETTINGS["forward", shape.inputs, shape.stride]
    rows = shape.rows // setting.pixels
    grid = programs(setting, rows)
    launch(
        forward.forward_kernel, (grid,), activations, weight, out, norm,
        *(projection or (None, None, None)), scratch, counter, rows, PIXELS=setting.pixels,
        ROWS=triton.next_power_of_2(grid), **_sizes(shape, setting), **_launch(setting),
    )  # fmt: skip


def pool(activations: Tensor, pooled: Tensor) -> None:
    """The mean over pixels of the last block's output, which has a border."""
    images, height, width, channels = activations.shape
    block = min(64, triton.next_power_of_2(height * width))
    sizes = {"H": height - 2, "W": width - 2, "C": channels, "BLOCK": block}
    launch(forward.pool_kernel, (images,), activations, pooled, **sizes)


def pool_gradient(
    gradient: Tensor,
    z: Tensor,
    activations: Tensor,
    norm: NormGradient,
    d: Tensor,
    scratch: Tensor,
    counter: Tensor,
    shape: Shape,
) -> None:
    """The gradient at the last norm's output, from that of the pooled features."""
    setting = SETTINGS["pool", 1, 1]
    grid = programs(setting, shape.rows)
    launch(
        backward.pool_gradient_kernel, (grid,),
        gradient, z, activations, norm, d, scratch, counter, shape.rows,
        H=shape.height, W=shape.width, C=shape.outputs, BLOCK=setting.block,
        ROWS=triton.next_power_of_2(grid), **_launch(setting),
    )  # fmt: skip


def data_gradient(
    dz: Tensor,
    weight: Tensor,
    projection: ProjectionGradient | None,
    before: NormsBefore,
    d_before: Tensor,
    scratch: Tensor,
    counter: Tensor,
    shape: Shape,
) -> None:
    """From the gradient at a convolution's output to the one after the norm before it."""
    setting = SETTINGS["data", shape.inputs, shape.stride]
    rows = shape.rows // setting.pixels
    grid = programs(setting, rows)
    launch(
        backward.data_gradient_kernel, (grid,), dz, weight, *(projection or (None, None)),
        before.skip, before.activations, before.z, before.norm, before.beside_z, before.beside,
        d_before, scratch, counter, rows, PIXELS=setting.pixels,
        ROWS=triton.next_power_of_2(grid), **_sizes(shape, setting), **_launch(setting),
    )  # fmt: skip


class WeightGradient(NamedTuple):
    """The weight gradients of layers of one shape, whose inputs and ``dz`` are stacked."""

    activations: Tensor
    dz: Tensor
    shape: Shape
    side: int = 3

    @property
    def size(self) -> int:
        """Numbers in the gradients."""
        return len(self.dz) * self.shape.outputs * self.side**2 * self.shape.inputs

    @property
    def parts(self) -> int:
        """Of the pixels, whose gradients are summed at the end."""
        return programs(self.setting, self.shape.rows)

    @property
    def setting(self) -> Setting:
        """From the table."""
        return SETTINGS["weight", self.shape.inputs, self.shape.stride]

    def into(self, partial: Tensor) -> None:
        """Compute the parts."""
        setting, shape = self.setting, self.shape
        window = triton.cdiv(self.side**2 * shape.inputs, setting.k)
        launch(
            backward.weight_gradient_kernel, (self.parts, window, len(self.dz)),
            self.activations, self.dz, partial, shape.rows,
            SIDE=self.side, **_sizes(shape, setting), **_launch(setting),
        )  # fmt: skip


class StemWeightGradient(NamedTuple):
    """The weight gradient of the first layer."""

    images: Images
    d: Tensor
    z: Tensor
    coefficients: Tensor
    shape: Shape

    @property
    def size(self) -> int:
        """Numbers in the gradient."""
        return self.shape.outputs * 9 * self.shape.inputs

    @property
    def parts(self) -> int:
        """Of the pixels, whose gradients are summed at the end."""
        return programs(_stem_setting("weight", self.shape), self.shape.rows)

    def into(self, partial: Tensor) -> None:
        """Compute the parts."""
        setting, shape = _stem_setting("weight", self.shape), self.shape
        launch(
            backward.stem_weight_gradient_kernel, (self.parts,), *self.images.arguments(),
            self.d, self.z, self.coefficients, partial, shape.rows,
            **_stem_sizes(shape, setting), **_launch(setting),
        )  # fmt: skip


def weight_gradients(
    layers: Sequence[WeightGradient | StemWeightGradient], gradient: Tensor
) -> None:
    """All weight gradients, one after the other into ``gradient``."""
    setting = SETTINGS["sum", 1, 1]
    partial = gradient.new_empty(sum(layer.parts * layer.size for layer in layers))
    sections, program, start, at = [], 0, 0, 0
    for layer in layers:
        layer.into(partial[start:])
        sections.append((program, start, layer.size, layer.parts, at))
        program += triton.cdiv(layer.size, setting.block)
        start += layer.parts * layer.size
        at += layer.size
    launch(
        backward.sum_parts_kernel, (program,), partial, gradient, SECTIONS=tuple(sections),
        PARTS=setting.k, BLOCK=setting.block, num_warps=setting.warps,
    )  # fmt: skip


def _stem_setting(kernel: str, shape: Shape) -> Setting:
    """That of three channels, with the window of as many as there are."""
    setting = SETTINGS[kernel, 3, 1]
    return setting._replace(k=max(16, triton.next_power_of_2(9 * shape.inputs)))


def _launch(setting: Setting) -> dict[str, int]:
    """Warps, and no copies ahead to shared memory, which loops over whole tiles would overflow."""
    return {"num_warps": setting.warps, "num_stages": 1}


def _stem_sizes(shape: Shape, setting: Setting) -> dict[str, int]:
    channels = {"C_IN": shape.inputs, "C_OUT": shape.outputs}
    return {"H": shape.height, "W": shape.width, **channels, "BLOCK": setting.block, "K": setting.k}


def _sizes(shape: Shape, setting: Setting) -> dict[str, int]:
    return {**_stem_sizes(shape, setting), "STRIDE": shape.stride, "STAGES": setting.stages}
