"""A model of pictures as one ONNX file."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn

from aucmax.images.classifier import ImageClassifier
from aucmax.judge.calibration import PerLabel, Temperature
from aucmax.onnx_file import check_onnx, write_onnx

PICTURES = 2
"""Of the example that is traced; the file takes any number."""


def export_onnx(model: ImageClassifier | str | Path, path: str | Path) -> Path:
    """Write a model as ONNX: pixels in, the probabilities of ``predict_proba`` out.

    Its input ``pixels`` (pictures, 3, size, size) float32 are bytes from 0 to 255, RGB, of pictures
    that are scaled whole to a square with black around them; its output ``probabilities`` is
    (pictures, classes) float32. The metadata hold ``size``, ``depth``, ``threshold`` and, as JSON,
    ``classes``.

    Args:
        model: a fitted classifier, or the folder of one.
        path: of the file, which ends with .onnx.

    Returns:
        The path.

    Raises:
        ValueError: if the packages of ``aucmax[onnx]`` are missing, or the folder holds no model.
    """
    path = check_onnx(path)
    if not isinstance(model, ImageClassifier):
        model = ImageClassifier.load(model)
    if isinstance(model.calibration_, PerLabel):
        raise ValueError("model must give each picture one label to be exported, found several")
    example = {"pixels": torch.zeros(PICTURES, 3, model.size_, model.size_)}
    metadata = {
        "size": str(model.size_),
        "depth": str(model.depth),
        "threshold": repr(float(model.threshold_)),
        "classes": json.dumps(model.classes_.tolist()),
    }
    return write_onnx(path, Served(model), example, "pictures", "probabilities", metadata)


class Served(nn.Module):
    """From pixels to probabilities: the mean over a picture and its mirror image, calibrated."""

    shift: Tensor

    def __init__(self, model: ImageClassifier) -> None:
        super().__init__()
        self.network, scale = deepcopy(model.network_).cpu().eval(), model.calibration_
        assert not isinstance(scale, PerLabel)
        self.slope = scale.slope
        shift = scale.shifts if isinstance(scale, Temperature) else scale.shift
        self.register_buffer("shift", torch.tensor(shift, dtype=torch.float32))

    def forward(self, pixels: Tensor) -> Tensor:
        """The classes' probabilities (N, c)."""
        scores: Tensor = (self.network(pixels) + self.network(pixels.flip(3))) / 2
        logits = self.slope * scores + self.shift
        if logits.shape[1] > 1:
            return logits.softmax(1)
        return torch.cat([torch.sigmoid(-logits), torch.sigmoid(logits)], 1)
