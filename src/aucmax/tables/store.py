"""A classifier as files: ``model.safetensors`` and ``model.json``, checked when they are read."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from aucmax import checkpoint
from aucmax.train.metrics import ROC_AUC
from aucmax.version import __version__

NAME = "model"
FORMAT = 1
"""Of the part of ``model.json`` that is the classifier's own."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """All of a fitted classifier but its weights, as ``model.json`` holds it.

    What later versions added has a default, so that folders of earlier ones can be read.
    """

    options: dict[str, Any]
    classes: dict[str, Any]
    columns: int
    names: list[str] | None
    encoder: dict[str, Any]
    network: dict[str, Any]
    own_backbone: bool
    calibration: dict[str, Any]
    threshold: float
    rows: dict[str, list[int]] | None
    validation_auc: float | None
    history: list[dict[str, Any]]
    metric: str = ROC_AUC.name
    validation_score: float | None = None
    objective: str | None = None
    candidates: list[dict[str, Any]] = field(default_factory=list)


def write(record: Record, network: nn.Module, folder: Path) -> Path:
    """Write a classifier; what cannot be written leaves the files that were there."""
    notes = {"classifier": {"format": FORMAT, "aucmax": __version__, **vars(record)}}
    try:
        json.dumps(notes, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the model must have options and classes of plain values to be saved: {error}"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save_weights(folder, NAME, copy.deepcopy(network).cpu(), notes)
    return folder


def read(folder: Path) -> Record:
    """What :func:`write` wrote, but for the weights."""
    if not (folder / f"{NAME}.json").exists():
        raise ValueError(f"folder must be that of a model, found no {NAME}.json in {folder}")
    state: dict[str, Any] | None = checkpoint.read_notes(folder, NAME).get("classifier")
    if state is None:
        raise ValueError(f"folder must be that of an AUCClassifier, found another in {folder}")
    if state["format"] > FORMAT:
        raise ValueError(
            f"{folder} was written by aucmax {state['aucmax']}, which this one, {__version__}, "
            f"is older than: pip install --upgrade aucmax"
        )
    known = {field.name for field in fields(Record)}
    return Record(**{key: value for key, value in state.items() if key in known})


def plain_number(value: Any) -> Any:
    """Python's own number for NumPy's; None for what JSON has no number for."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (tuple, np.ndarray)):
        value = [plain_number(x) for x in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
