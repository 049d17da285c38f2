"""A model as one ONNX file, for other runtimes than torch."""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aucmax import checks
from aucmax.disk import atomic_write
from aucmax.judge.calibration import Platt, Temperature
from aucmax.tables.classifier import AUCClassifier
from aucmax.version import __version__

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
    path = Path(path)
    checks.choice("onnx", path.suffix, (".onnx",))
    try:
        for name in ("onnx", "onnxscript"):
            importlib.import_module(name)
    except ImportError as error:
        raise ValueError(
            f"export needs the packages onnx and onnxscript: pip install 'aucmax[onnx]' ({error})"
        ) from None
    if not isinstance(model, AUCClassifier):
        model = AUCClassifier.load(model)
    encoder, served = model.encoder_, Served(model)
    sizes = {
        "numeric": (len(encoder.numeric_names), torch.float32),
        "codes": (len(encoder.cardinalities), torch.int64),
    }
    example = {k: torch.zeros(ROWS, n, dtype=dtype) for k, (n, dtype) in sizes.items() if n}
    shapes = {name: {0: torch.export.Dim("rows")} for name in example}
    with _quiet(), torch.no_grad():
        traced = torch.export.export(served, (), example, dynamic_shapes=shapes)
        program: Any = torch.onnx.export(
            traced, dynamo=True, verbose=False, dynamic_shapes=shapes,
            input_names=list(example), output_names=["probabilities"],
        )  # fmt: skip
    program.model.metadata_props.update(
        {
            "aucmax": __version__,
            "threshold": repr(float(model.threshold_)),
            "classes": json.dumps(model.classes_.tolist()),
            "columns": json.dumps(encoder.names),
            "numeric": json.dumps(encoder.numeric_names),
            "codes": json.dumps(encoder.categorical_names),
            "encoder": json.dumps(encoder.to_dict()),
        }
    )
    with atomic_write(path) as temporary:
        program.save(temporary)
    return path


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


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of itself and of packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
