"""How good a model is on rows that it has not seen, and the page that shows it."""

from __future__ import annotations

import datetime
import platform
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aucmax import checkpoint, metrics
from aucmax._version import __version__
from aucmax.judge.calibration import softmax
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import Columns
from aucmax.tables.encoder import Encoded, TableEncoder
from aucmax.tables.labeled import as_words, fair_sample, read_labeled, rows_of

NAME = "evaluation"
MOST_ROWS, REPEATS, MOST_SECONDS = 2000, 3, 30.0
"""For the importance of columns: rows that are scored again, how often each is shuffled, and when
it is enough."""


def interval_of(scores: NDArray[np.float64], classes: NDArray[np.int64]) -> dict[str, float]:
    """AUC with DeLong's interval, as plain numbers; of several classes, Hand and Till's."""
    of_rows = metrics.roc_auc_interval if scores.ndim == 1 else metrics.hand_till_interval
    found = of_rows(scores, classes)
    return {"value": found.auc, "low": found.low, "high": found.high, "level": 0.95}


def importance(
    model: AUCClassifier, table: Columns, classes: NDArray[np.int64], seed: int = 0
) -> list[dict[str, Any]]:
    """By how much the AUC falls when a column is shuffled, the largest first.

    Of wide tables only as many columns are asked as there is time for.
    """
    random, began = np.random.default_rng(seed), time.perf_counter()
    if table.rows > MOST_ROWS:
        chosen = fair_sample(classes, MOST_ROWS, random)
        table, classes = rows_of(table, chosen), classes[chosen]
    encoded, rows = model.encoder_.transform(table), np.arange(table.rows)
    whole = _auc(model, encoded, classes)
    found = []
    for name, numeric, codes in model.encoder_.places():
        if time.perf_counter() - began > MOST_SECONDS:
            break
        drops = []
        for _ in range(REPEATS):
            order = random.permutation(rows)
            other = Encoded(encoded.numeric.copy(), encoded.categorical.copy())
            other.numeric[:, numeric] = encoded.numeric[order][:, numeric]
            other.categorical[:, codes] = encoded.categorical[order][:, codes]
            drops.append(whole - _auc(model, other, classes))
        found.append({"column": name, "drop": float(np.mean(drops)), "sd": float(np.std(drops))})
    return sorted(found, key=lambda row: -row["drop"])


def _auc(model: AUCClassifier, encoded: Encoded, classes: NDArray[np.int64]) -> float:
    scores = model.score_encoded(encoded)
    if scores.ndim == 1:
        return metrics.roc_auc(scores, classes)
    return metrics.hand_till(model.calibration_(scores), classes)


def describe_columns(encoder: TableEncoder, table: Columns | None = None) -> list[dict[str, Any]]:
    """Name and kind of every raw column, and what its values are like."""
    words = {"number": "number", "bool": "yes/no", "date": "date", "text": "category"}
    found = []
    for field in encoder.to_dict()["columns"]:
        kind = words.get(field["kind"], "unused")
        about: dict[str, Any] = {"name": field["name"], "kind": kind}
        if table is not None:
            about |= _values(table.values[table.names.index(field["name"])])
        found.append(about)
    return found


def _values(values: NDArray[Any]) -> dict[str, Any]:
    """How many are missing, how many differ, and the most frequent one."""
    if values.dtype == object:
        counts = Counter(x for x in values.tolist() if x is not None)
        typical = min(counts, key=lambda x: (-counts[x], x)) if counts else ""
        missing = 1 - sum(counts.values()) / len(values)
        return {"missing": missing, "distinct": len(counts), "typical": typical}
    there = values[values == values]
    distinct, often = np.unique(there, return_counts=True)
    typical = str(as_words(distinct[[often.argmax()]])[0]) if len(distinct) else ""
    missing = 1 - len(there) / len(values)
    return {"missing": missing, "distinct": len(distinct), "typical": typical}


def made() -> dict[str, str]:
    """Versions and day."""
    return {
        "aucmax": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }


def evaluate_file(folder: str | Path, data: str | Path) -> dict[str, Any]:
    """AUC with its interval, and more, of a model on a file that has its target.

    Args:
        folder: of the model.
        data: CSV, Parquet or Arrow, with the target's column.
    """
    model = AUCClassifier.load(folder)
    about = stored(Path(folder))
    texts = model.encoder_.text_names
    rows = read_labeled(data, about["target"], labels=about["labels"], text=texts)
    counts = np.bincount(rows.classes, minlength=len(rows.labels))
    if counts.min() == 0:
        absent = rows.labels[int(counts.argmin())]
        raise ValueError(f"{about['target']} must hold every label, found no {absent!r} in {data}")
    found: dict[str, Any] = {"rows": rows.table.rows, "labels": rows.labels}
    found["counts"] = counts.tolist()
    found["notes"] = [*rows.notes, *model.encoder_.notes(rows.table)]
    scores = model.decision_function(rows.table)
    if scores.ndim == 2:
        return {**found, "auc": interval_of(softmax(scores), rows.classes)}
    said = scores > 0
    found["auc"] = interval_of(scores, rows.classes)
    found["average_precision"] = metrics.average_precision(scores, rows.classes)
    found["recall"] = float(said[rows.classes == 1].mean())
    found["specificity"] = float(1 - said[rows.classes == 0].mean())
    return found


def store(folder: Path, evaluation: dict[str, Any]) -> None:
    """Keep an evaluation beside the model."""
    arrays = {k: torch.from_numpy(v) for k, v in evaluation.items() if isinstance(v, np.ndarray)}
    checkpoint.save(folder, NAME, {**evaluation, **arrays})


def stored(folder: Path) -> dict[str, Any]:
    """The evaluation that was made when the model was fitted."""
    if not (folder / f"{NAME}.json").exists():
        raise ValueError(
            f"folder must be one that aucmax fit made, found no {NAME}.json in {folder}: a model "
            f"saved from Python does not know its target's name"
        )
    found: dict[str, Any] = checkpoint.load(folder, NAME)
    return {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in found.items()}


def write_report(folder: str | Path) -> Path:
    """Write ``report.html`` of a model folder again.

    Args:
        folder: that ``aucmax fit`` made.
    """
    from aucmax.report.page import write_model_page

    evaluation = stored(Path(folder))
    if "probability" not in evaluation:
        raise ValueError(f"{folder} must have held-out rows, found none to report")
    path = Path(folder) / "report.html"
    write_model_page(path, evaluation)
    return path
