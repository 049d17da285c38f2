"""The layers of a ResNet-20 as the fused kernels take them, and where they cannot.

Nothing here needs Triton.
"""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

import torch
from torch import Tensor, nn

PIXELS = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)
MOST_CHANNELS = 7  # whose windows of 3 x 3 are one product of at most 64
MOST_NUMBERS = 2**31  # indices in the kernels have 32 bits


class Layer(NamedTuple):
    """A convolution and the batch norm after it."""

    convolution: nn.Conv2d
    norm: nn.BatchNorm2d


class Network(NamedTuple):
    """The parts of a ResNet-20 up to the pooled features."""

    mean: Tensor  # subtracted from the pixels, one number or one per channel
    scale: Tensor  # the pixels are multiplied by it
    layers: list[Layer]  # the stem, then the two of each block
    projections: list[Layer]  # those beside the blocks whose first convolution has stride 2
    activations: list[nn.Module]  # the modules after the norms and at the ends of the blocks


def why_not_here(images: Tensor) -> str | None:
    """Why a training step cannot take the kernels on this device and now; None if it can."""
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


def why_not_images(network: Network, images: Tensor) -> str | None:
    """Why the kernels cannot take these images."""
    n, channels, height, width = images.shape
    device = network.layers[0].convolution.weight.device
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
    if images.device != device:
        return f"the images are on {images.device}, the model on {device}"
    return None


def why_not_model(network: Network, model: nn.Module) -> str | None:
    """Why the kernels cannot take the model as it is: the network's parts are all of it."""
    if any(type(activation) is not nn.ReLU for activation in network.activations):
        return "the activation is not 'relu'"
    if network.mean.dtype != torch.float32:
        return "the model is not in float32"
    for module in model.modules():
        if module is not model and (module._forward_hooks or module._forward_pre_hooks):
            return f"a {type(module).__name__} of the model has a hook"
    for convolution, norm in (*network.layers, *network.projections):
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
