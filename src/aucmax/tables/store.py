"""A classifier as files: ``model.safetensors`` and ``model.json``, checked when they are read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aucmax import checkpoint
from aucmax._version import __version__
from aucmax.judge import calibration
from aucmax.tables import network
from aucmax.tables.encoder import TableEncoder

NAME = "model"
FORMAT = 1
"""Of the part of ``model.json`` that is the classifier's own."""


def save(model: Any, folder: Path) -> Path:
    """Write a fitted classifier; what cannot be written leaves the files that were there."""
    names = getattr(model, "feature_names_in_", None)
    notes = {
        "classifier": {
            "format": FORMAT,
            "aucmax": __version__,
            "options": _plain_options(model),
            "classes": _described(model.classes_),
            "columns": model.n_features_in_,
            "names": None if names is None else list(names),
            "encoder": model.encoder_.to_dict(),
            "network": model.network_spec_,
            "own_backbone": callable(model.backbone),
            "calibration": model.calibration_.to_dict(),
            "threshold": model.threshold_,
            "rows": getattr(model, "rows_", None),
            "validation_auc": plain_number(model.validation_auc_),
            "history": [{k: plain_number(v) for k, v in r.items()} for r in model.history_],
        }
    }
    try:
        json.dumps(notes, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the model must have options and classes of plain values to be saved: {error}"
        ) from None
    plain = copy.deepcopy(model.network_).cpu()
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save_weights(folder, NAME, plain, notes)
    return folder


def load(kind: Any, folder: Path, backbone: network.Factory | None) -> Any:
    """The classifier that :func:`save` wrote."""
    about = _read(folder)
    if about["own_backbone"] and backbone is None:
        raise ValueError("backbone must be given: the model was trained with one of its own")
    options = about["options"] | ({"backbone": backbone} if backbone else {})
    model = kind(**options)
    model.classes_ = _restored(about["classes"])
    model.n_features_in_ = about["columns"]
    if about["names"] is not None:
        model.feature_names_in_ = np.array(about["names"], dtype=object)
    model.encoder_ = TableEncoder.from_dict(about["encoder"])
    model.network_spec_ = about["network"]
    model.network_ = network.build(about["network"], backbone).eval()
    checkpoint.load_weights(model.network_, folder, NAME)
    model.calibration_ = calibration.from_dict(about["calibration"])
    model.threshold_, model.history_ = about["threshold"], about["history"]
    if about["rows"] is not None:
        model.rows_ = about["rows"]
    found = about["validation_auc"]
    model.validation_auc_ = float("nan") if found is None else found
    return model


def _read(folder: Path) -> dict[str, Any]:
    if not (folder / f"{NAME}.json").exists():
        raise ValueError(f"folder must be that of a model, found no {NAME}.json in {folder}")
    about: dict[str, Any] | None = checkpoint.read_notes(folder, NAME).get("classifier")
    if about is None:
        raise ValueError(f"folder must be that of an AUCClassifier, found another in {folder}")
    if about["format"] > FORMAT:
        raise ValueError(
            f"{folder} was written by aucmax {about['aucmax']}, which this one, {__version__}, "
            f"is older than: pip install --upgrade aucmax"
        )
    return about


def _plain_options(model: Any) -> dict[str, Any]:
    """The arguments, but those that are no plain values."""
    options = model.get_params(deep=False)
    seed = options["random_state"]
    options["random_state"] = int(seed) if isinstance(seed, (int, np.integer)) else None
    if callable(options["backbone"]):
        options["backbone"] = "tabm"
    return {key: plain_number(value) for key, value in options.items()}


def plain_number(value: Any) -> Any:
    """Python's own number for NumPy's; None for what JSON has no number for."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (tuple, np.ndarray)):
        value = [plain_number(x) for x in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _described(classes: NDArray[Any]) -> dict[str, Any]:
    kind = "object" if classes.dtype == object else classes.dtype.str
    return {"dtype": kind, "values": classes.tolist()}


def _restored(about: dict[str, Any]) -> NDArray[Any]:
    return np.array(about["values"], dtype=about["dtype"])
