"""A model as one ONNX file, for other runtimes than torch."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from aucmax.judge.calibration import Platt, Temperature
from aucmax.onnx_file import check_onnx, write_onnx
from aucmax.tables.classifier import AUCClassifier

ROWS = 3
"""Of the example that is traced; the file takes any number."""


def export_onnx(model: AUCClassifier | str | Path, path: str | Path) -> Path:
    """Write a model as ONNX: encoded columns in, the probabilities of ``predict_proba`` out.

    The graph holds all models that count, their weights and the calibration, in double precision,
    where ``predict_proba`` is content with single for TabM. What turns a table's columns into
    numbers is not in it: its inputs are what ``model.encoder_.transform(table)`` gives, and without
    aucmax's model folder ``TableEncoder.from_dict`` makes the same encoder of the file's metadata.

    ============= =============================================================
    input         ``numeric`` (rows, n) float32 and ``codes`` (rows, m) int64, but for one that
                  has no columns
    output        ``probabilities`` (rows, classes) float64
    metadata      ``aucmax`` (version), ``threshold``, and as JSON ``columns`` (of the table),
                  ``numeric`` and ``codes`` (names of the inputs' columns), ``classes``, ``encoder``
    ============= =============================================================

    Args:
        model: a fitted classifier, or the folder of one.
        path: of the file, which ends with .onnx.

    Returns:
        The path.

    Raises:
        ValueError: if the packages of ``aucmax[onnx]`` are missing, the folder holds no model, or
            one of the models is a classifier of another library.
    """
    path = check_onnx(path)
    if not isinstance(model, AUCClassifier):
        model = AUCClassifier.load(model)
    encoder, served = model.encoder_, Served(model)
    sizes = {
        "numeric": (len(encoder.numeric_names), torch.float32),
        "codes": (len(encoder.cardinalities), torch.int64),
    }
    example = {k: torch.zeros(ROWS, n, dtype=dtype) for k, (n, dtype) in sizes.items() if n}
    return write_onnx(
        path, served, example, "rows", "probabilities",
        {
            "threshold": repr(float(model.threshold_)),
            "classes": json.dumps(model.classes_.tolist()),
            "columns": json.dumps(encoder.names),
            "numeric": json.dumps(encoder.numeric_names),
            "codes": json.dumps(encoder.categorical_names),
            "encoder": json.dumps(encoder.to_dict()),
        },
    )  # fmt: skip


class Served(nn.Module):
    """From a fitted classifier's encoded columns to probabilities, in operations that ONNX has."""

    slopes: Tensor
    shift: Tensor

    def __init__(self, model: AUCClassifier) -> None:
        super().__init__()
        ensemble, whole = model.ensemble_, model.calibration_
        self.parts = nn.ModuleList(each.as_module() for each in ensemble.models.values())
        slopes, shift = [], _shift(whole)  # all scales are linear, so that one does for each model
        for name in ensemble.models:
            scale = ensemble.scales.get(name, Platt(1.0, 0.0))
            slopes.append(whole.slope * ensemble.weights[name] * scale.slope)
            shift = shift + whole.slope * ensemble.weights[name] * _shift(scale)
        self.register_buffer("slopes", torch.tensor(slopes, dtype=torch.float64))
        self.register_buffer("shift", shift)

    def forward(self, numeric: Tensor | None = None, codes: Tensor | None = None) -> Tensor:
        """The classes' probabilities (N, c)."""
        known = numeric if numeric is not None else codes
        assert known is not None
        empty = known[:, :0]
        numeric = (empty if numeric is None else numeric).double()
        codes = (empty if codes is None else codes).long()
        logits = self.shift
        for slope, part in zip(self.slopes, self.parts, strict=True):
            logits = logits + slope * part((numeric, codes))
        if logits.shape[1] > 1:
            return logits.softmax(1)
        return torch.cat([torch.sigmoid(-logits), torch.sigmoid(logits)], 1)


def _shift(scale: Platt | Temperature) -> Tensor:
    found = scale.shifts if isinstance(scale, Temperature) else scale.shift
    return torch.tensor(found, dtype=torch.float64)
