"""Where ResNet-20's training step can take the fused kernels, and which layers they take."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from aucmax.models.resnet import ResNet20

PIXELS = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)
MOST_CHANNELS = 7  # whose windows of 3 x 3 are one product of at most 64
MOST_NUMBERS = 2**31  # indices in the kernels have 32 bits


class Layer(NamedTuple):
    """A convolution and the batch norm after it."""

    convolution: nn.Conv2d
    norm: nn.BatchNorm2d


def layers(model: ResNet20) -> Iterator[Layer]:
    """The stem, the two of each block, then the projections."""
    stem, *blocks = _parts(model)
    yield Layer(stem[0], stem[1])
    for block in blocks:
        yield Layer(block.body[0], block.body[1])
        yield Layer(block.body[3], block.body[4])
    for block in blocks:
        if not isinstance(block.shortcut, nn.Identity):
            yield Layer(block.shortcut[0], block.shortcut[1])


def why_not(model: ResNet20, images: Tensor) -> str | None:
    """Why a training step cannot take the fused kernels; None if it can."""
    return _why_not_here(images) or _why_not_images(model, images) or _why_not_model(model)


def _why_not_here(images: Tensor) -> str | None:
    if not images.is_cuda:
        return f"the images are on {images.device.type!r}, not on a CUDA device"
    if images.get_device() != torch.cuda.current_device():
        return "the images are not on the current device"
    if not torch.is_autocast_enabled("cuda") or torch.get_autocast_dtype("cuda") != torch.bfloat16:
        return "autocast to bfloat16 is off"
    if torch.compiler.is_compiling():
        return "the model is being compiled"
    if torch._C._are_functorch_transforms_active():
        return "the model is being transformed by torch.func"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    return None


def _why_not_images(model: ResNet20, images: Tensor) -> str | None:
    n, channels, height, width = images.shape
    if images.requires_grad:
        return "the images need a gradient"
    if images.dtype not in PIXELS:
        return f"the images are {images.dtype}, not bytes or floats of at most 32 bits"
    if channels > MOST_CHANNELS:
        return f"the images have {channels} channels, more than {MOST_CHANNELS}"
    if not n or height % 4 or width % 4 or n * height * width <= 16:
        return f"images of shape {tuple(images.shape)} do not halve twice"
    if n * (height + 2) * (width + 2) * 16 * 7 >= MOST_NUMBERS:
        return f"{n} images of {height} x {width} are too many"
    if images.device != model.head.weight.device:
        return f"the images are on {images.device}, the model on {model.head.weight.device}"
    return None


def _why_not_model(model: ResNet20) -> str | None:
    if any(type(m) is not nn.ReLU for m in _activations(model)):
        return "the activation is not 'relu'"
    if model.standardize.mean.dtype != torch.float32:
        return "the model is not in float32"
    for module in model.modules():
        if module is not model and (module._forward_hooks or module._forward_pre_hooks):
            return f"a {type(module).__name__} of the model has a hook"
    for layer in layers(model):
        if reason := _why_not_layer(layer):
            return reason
    return None


def _why_not_layer(layer: Layer) -> str | None:
    convolution, norm = layer
    if type(convolution) is not nn.Conv2d or type(norm) is not nn.BatchNorm2d:
        return f"a layer is {type(convolution).__name__} and {type(norm).__name__}"
    if not (norm.training and norm.affine and norm.track_running_stats and norm.momentum):
        return "a batch norm is in evaluation mode or has no weights, statistics or momentum"
    for parameter in (convolution.weight, norm.weight, norm.bias):
        if type(parameter) not in (Tensor, nn.Parameter) or parameter.dtype != torch.float32:
            return f"a parameter is {type(parameter).__name__} of {parameter.dtype}"
        if not parameter.requires_grad and torch.is_grad_enabled():
            return "a parameter is frozen"
    if not convolution.weight.is_contiguous(memory_format=torch.channels_last):
        return "a weight does not lie channels-last"
    return None


def _activations(model: ResNet20) -> list[nn.Module]:
    stem, *blocks = _parts(model)
    inner = [block.body[2] for block in blocks]
    return [stem[2], *inner, *(block.activation for block in blocks)]


def _parts(model: ResNet20) -> list[Any]:
    return [model.stem, *model.blocks]
