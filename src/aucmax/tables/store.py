"""A classifier as files: ``model.safetensors`` and ``model.json``, checked when they are read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aucmax import checkpoint
from aucmax.judge import calibration
from aucmax.tables.ensemble.base import TableModel, arrays_of
from aucmax.tables.ensemble.combined import Ensemble
from aucmax.tables.ensemble.kinds import KINDS
from aucmax.tables.ensemble.networks import Networks
from aucmax.tables.network import Factory
from aucmax.train.metrics import ROC_AUC
from aucmax.version import __version__

NAME = "model"
FORMAT = 2
"""Of the part of ``model.json`` that is the classifier's own."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """All of a fitted classifier but its models, as ``model.json`` holds it.

    What later versions added has a default, so that folders of earlier ones can be read.
    """

    options: dict[str, Any]
    classes: dict[str, Any]
    columns: int
    names: list[str] | None
    encoder: dict[str, Any]
    calibration: dict[str, Any]
    threshold: float
    rows: dict[str, list[int]] | None
    validation_auc: float | None
    history: list[dict[str, Any]]
    metric: str = ROC_AUC.name
    validation_score: float | None = None
    objective: str | None = None
    candidates: list[dict[str, Any]] = field(default_factory=list)
    standings: list[dict[str, Any]] = field(default_factory=list)
    importances: list[float] | None = None


def write(record: Record, ensemble: Ensemble, folder: Path) -> Path:
    """Write a classifier; what cannot be written leaves the files that were there."""
    models: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    for number, (name, model) in enumerate(ensemble.models.items()):
        about, arrays = model.to_plain()
        scale = ensemble.scales.get(name)
        models.append(
            {
                "kind": model.kind,
                "weight": ensemble.weights[name],
                "scale": None if scale is None else scale.to_dict(),
                "about": about,
            }
        )
        tensors |= {f"{number}.{key}": torch.from_numpy(x) for key, x in arrays.items()}
    about_all = {"format": FORMAT, "aucmax": __version__, **vars(record), "models": models}
    notes = {"classifier": about_all}
    try:
        json.dumps(notes, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the model must have options and classes of plain values to be saved: {error}"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save_tensors(folder, NAME, tensors, notes)
    return folder


def read(folder: Path, backbone: Factory | None = None) -> tuple[Record, Ensemble]:
    """What :func:`write` wrote; ``backbone`` makes the networks, if it was one of the caller's."""
    if not (folder / f"{NAME}.json").exists():
        raise ValueError(f"folder must be that of a model, found no {NAME}.json in {folder}")
    tensors, notes = checkpoint.load_tensors(folder, NAME)
    state = notes.get("classifier")
    if state == "images":
        raise ValueError(
            f"folder must be that of a table's model, found one of pictures in {folder}: "
            f"predict-images and ImageClassifier take it"
        )
    if not isinstance(state, dict):
        raise ValueError(f"folder must be that of an AUCClassifier, found another in {folder}")
    if state["format"] > FORMAT:
        raise ValueError(
            f"{folder} was written by aucmax {state['aucmax']}, which this one, {__version__}, "
            f"is older than: pip install --upgrade aucmax"
        )
    known = {field.name for field in fields(Record)}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    record = Record(**{key: value for key, value in state.items() if key in known})
    return record, _ensemble(state, arrays, backbone)


def _ensemble(
    state: dict[str, Any], arrays: dict[str, NDArray[Any]], backbone: Factory | None
) -> Ensemble:
    models: dict[str, TableModel] = {}
    weights, scales = {}, {}
    for number, each in enumerate(state["models"]):
        own = arrays_of(number, arrays)
        if each["kind"] not in (Networks.kind, *KINDS):
            raise ValueError(
                f"a model of kind {each['kind']!r} was written by aucmax {state['aucmax']}, which "
                f"this one, {__version__}, does not know: pip install --upgrade aucmax"
            )
        if each["kind"] == Networks.kind:
            model: TableModel = Networks.from_plain(each["about"], own, backbone)
        else:
            model = KINDS[each["kind"]].from_plain(each["about"], own)
        models[model.name], weights[model.name] = model, each["weight"]
        if each["scale"] is not None:
            scales[model.name] = calibration.from_dict(each["scale"])
    return Ensemble(models, weights, scales)


def plain_number(value: Any) -> Any:
    """Python's own number for NumPy's; None for what JSON has no number for."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (tuple, np.ndarray)):
        value = [plain_number(x) for x in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
