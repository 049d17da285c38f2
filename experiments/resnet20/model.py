"""ResNet-20 whose training steps on a CUDA device take the fused kernels."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from aucmax.models import ResNet20
from experiments.resnet20.network import Layer, Network, why_not_here, why_not_images, why_not_model


class FusedResNet20(ResNet20):
    """aucmax's ResNet-20, its layers joined where it trains under autocast to bfloat16.

    Elsewhere it is the plain network: in evaluation, on a CPU, for images that do not halve twice.
    """

    @classmethod
    def like(cls, model: ResNet20) -> FusedResNet20:
        """Return the same network with the same weights."""
        fused = cls(channels=model.channels, outputs=model.head.out_features)
        fused.standardize = copy.deepcopy(model.standardize)
        fused.load_state_dict(model.state_dict())
        fused.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return fused

    def forward(self, images: Tensor) -> Tensor:
        """Raw scores (N, outputs) of images (N, channels, height, width), bytes or reals."""
        if not self.training or images.ndim != 4 or self.why_not(images):
            return super().forward(images)
        from experiments.resnet20.step import pooled_features  # needs Triton

        x = pooled_features(self.network(), images)
        # Under autocast too: scores of eight bits would tie, and ties count half.
        with torch.autocast(x.device.type, enabled=False):
            scores: Tensor = self.head(x.to(self.head.weight.dtype))
        return scores

    def why_not(self, images: Tensor) -> str | None:
        """Why a training step on these images cannot take the kernels; None if it can."""
        if reason := why_not_here(images):
            return reason
        network = self.network()
        return why_not_images(network, images) or why_not_model(network, self)

    def network(self) -> Network:
        """Its parts as the kernels take them."""
        stem: Any = self.stem
        blocks: Any = self.blocks
        convolution, norm, activation = stem
        layers, activations = [Layer(convolution, norm)], [activation]
        for block in blocks:
            first, first_norm, activation, second, second_norm = block.body
            layers += [Layer(first, first_norm), Layer(second, second_norm)]
            activations += [activation, block.activation]
        projections = [
            Layer(*block.shortcut) for block in blocks if type(block.shortcut) is not nn.Identity
        ]
        mean, scale = self.standardize.mean, self.standardize.scale
        return Network(mean, scale, layers, projections, activations)
