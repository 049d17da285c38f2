"""The network for pictures: ResNet-20, one of timm's by its name, or one of the user's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aucmax.extras import needed
from aucmax.models import Standardize, resnet20
from aucmax.random_state import drawing_from

Factory = Callable[[int], nn.Module]
"""Makes a network of so many scores per picture; it takes bytes (N, 3, size, size)."""

SMALL, MIDDLE = 32, 64
"""Sizes for ResNet-20: that of pictures which are hardly larger, and of all others."""


def training_size(model: str | Factory, longest: Sequence[int]) -> int:
    """The pixels of a side that pictures are scaled to, if nobody says.

    Args:
        model: its name; a function of the user's own has no say.
        longest: the longer sides of the pictures.
    """
    if isinstance(model, str) and model != "resnet20":
        size: int = _timm(model).get_pretrained_cfg(model).input_size[-1]
        return size
    middle = sorted(longest)[len(longest) // 2]
    return SMALL if middle <= 1.5 * SMALL else MIDDLE


def make_network(
    model: str | Factory,
    outputs: int,
    mean: Sequence[float],
    std: Sequence[float],
    generator: torch.Generator,
    weights: Path | None = None,
) -> nn.Module:
    """A network that takes bytes (N, 3, size, size) and gives raw scores (N, outputs).

    Args:
        model: "resnet20", a name that timm knows, or a function.
        outputs: scores per picture.
        mean: of each colour in the training pictures, from 0 to 255.
        std: their deviations.
        generator: of the first weights.
        weights: a file of weights to begin with; those of another shape are left as they are.
    """
    if model == "resnet20":
        network: nn.Module = resnet20(outputs=outputs, mean=mean, std=std, generator=generator)
    else:
        with drawing_from(generator):
            if isinstance(model, str):
                body = _timm(model).create_model(model, pretrained=False, num_classes=outputs)
                network = nn.Sequential(Standardize(mean, std), body)
            else:
                network = model(outputs)
    if not isinstance(network, nn.Module):
        raise ValueError(f"model must give a torch.nn.Module, found {type(network).__name__}")
    if weights is not None:
        _begin_with(network, weights)
    return network


def head_of(network: nn.Module) -> nn.Module:
    """Its last layer: the one that gives the scores."""
    linear = [x for x in network.modules() if isinstance(x, nn.Linear)]
    if not linear:
        raise ValueError(f"model must end with a linear layer, found none in {type(network)}")
    return linear[-1]


def _timm(name: str) -> Any:
    """The library, which knows the name."""
    with needed(f"a model other than resnet20, such as {name!r},", "timm"):
        import timm
    if not timm.is_model(name):
        like = ", ".join(timm.list_models(f"*{name}*")[:5])
        near = f" (there are {like})" if like else ""
        raise ValueError(f"model must be resnet20 or a name that timm knows, found {name!r}{near}")
    return timm.models


def _begin_with(network: nn.Module, path: Path) -> None:
    """Load what fits, and warn of what does not: of the last layer that is usual.

    The names may be those of the network, or of a part of it, such as a network of timm's own file.
    """
    own, found = network.state_dict(), _read_weights(path)
    prefixes = {"", *(f"{name}." for name, _ in network.named_children())}

    def fitting(prefix: str) -> dict[str, Tensor]:
        renamed = {prefix + name: x for name, x in found.items()}
        return {k: x for k, x in renamed.items() if k in own and x.shape == own[k].shape}

    best = max(map(fitting, sorted(prefixes)), key=len)
    if len(best) < len(own) / 2 or not best:
        raise ValueError(
            f"weights must be those of the model, found {len(best)} of its {len(own)} in {path}"
        )
    network.load_state_dict({**own, **best})
    if missing := [name for name in own if name not in best]:
        warnings.warn(
            f"{len(missing)} of {len(own)} weights are not in {path}, or of another shape, and "
            f"begin at random: {', '.join(missing[:5])}",
            UserWarning, stacklevel=2,
        )  # fmt: skip


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(f"weights must be a file, found none at {path}")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"weights must be a whole file, found {path}: {error}") from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"weights must be a .safetensors or .pth file: {path}: {reason}") from None
    found = found.get("state_dict", found) if isinstance(found, dict) else {}
    return {k: x for k, x in found.items() if isinstance(x, Tensor)}


def moments(images: Tensor) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel of bytes (N, C, H, W)."""
    counts = torch.stack(
        [torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)]
    ).double()
    share, values = counts / counts.sum(1, keepdim=True), torch.arange(256, dtype=torch.float64)
    mean = share @ values
    return mean.tolist(), (share @ values**2 - mean**2).sqrt().tolist()
