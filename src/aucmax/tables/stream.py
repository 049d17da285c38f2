"""From files larger than memory to a model folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aucmax import checks
from aucmax.judge.evaluation import Part
from aucmax.tables import streaming
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.columns import Columns
from aucmax.tables.fit import Fitted, default_folder, free_folder, judged, write
from aucmax.tables.hints import hints
from aucmax.tables.labeled import Labeled, choose_labels, places, rows_of, without_target
from aucmax.tables.scoring import Rows
from aucmax.tables.streams import Batches, RowGroups

BATCH = 1024


def fit_stream(
    data: str | Path,
    target: str,
    *,
    positive: str | None = None,
    out: str | Path | None = None,
    drop: Sequence[str] = (),
    passes: float = 1.0,
    time_limit: float | None = None,
    seed: int = 0,
    command: str = "",
    progress: bool = True,
    **options: Any,
) -> Fitted:
    """Train on files larger than memory, from disk, in one pass or more.

    How columns become numbers is learned from a sample of at most 200,000 rows, of which two
    tenths are kept to stop and to judge by. The share of positives is estimated as rows come
    (Algorithm 4). Killed or stopped, the same call goes on.

    Args:
        data: a file, or files such as ``part-*.parquet``: Parquet, Arrow or CSV.
        target: the column to predict.
        positive: its positive label; None finds it.
        out: folder for the model.
        drop: columns to leave out.
        passes: how often every row is seen.
        time_limit: seconds for the training.
        seed: of everything.
        command: what was typed, for the report.
        progress: whether to show a bar.
        options: more arguments of :class:`AUCClassifier`.
    """
    began = time.perf_counter()
    passes = checks.positive("passes", passes)
    folder = free_folder(Path(out) if out is not None else default_folder(data))
    groups = RowGroups(data)
    sample, parts = groups.sample()
    notes: list[str] = []
    table, words = without_target(sample, target, drop, str(data))
    labels = choose_labels(words, target, positive, notes)
    rows = Labeled(table, places(words, labels, target), labels, notes)
    model = _prepared(rows, parts, seed, {"time_limit": time_limit, **options})
    work = folder.with_name(folder.name + ".unfinished")
    _train(model, groups, rows, parts, (target, drop, str(data)), passes, work, progress)
    notes += hints(rows, target)
    train, test = (_part_of(rows, parts == k) for k in (0, 2))
    seconds = round(time.perf_counter() - began, 3)
    evaluation = judged(model, train, test, False, target, command, seconds)
    if groups.rows > len(parts):  # nobody has counted the labels of those beyond the sample
        seen = Part(groups.rows - int((parts > 0).sum()))
        evaluation = replace(evaluation, parts={**evaluation.parts, "train": seen})
    fitted = write(folder, model, evaluation)
    shutil.rmtree(work, ignore_errors=True)
    return fitted


def _prepared(
    rows: Labeled, parts: NDArray[np.int64], seed: int, options: dict[str, Any]
) -> AUCClassifier:
    """A classifier with an encoder and a network, not trained."""
    model = AUCClassifier(random_state=seed, threshold="balanced", **options)
    if len(rows.labels) > 2:
        raise ValueError(f"target must have two classes for streaming, found {len(rows.labels)}")
    streaming.prepare(model, rows.table, np.array(rows.labels, dtype=object), seed)
    counts = [np.bincount(rows.classes[parts == k], minlength=2).tolist() for k in range(3)]
    if min(counts[1] + counts[2]) == 0:
        raise ValueError(
            f"data must have every label among the rows kept apart, found {counts[1]} of "
            f"{rows.labels} to stop by and {counts[2]} to judge by"
        )
    model.rows_ = {"train": counts[0], "valid": counts[1]}
    return model


def _train(
    model: AUCClassifier,
    groups: RowGroups,
    rows: Labeled,
    parts: NDArray[np.int64],
    about: tuple[str, Sequence[str], str],
    passes: float,
    work: Path,
    progress: bool,
) -> None:
    def encode(block: Columns) -> tuple[Sequence[Any], Any]:
        table, words = without_target(block, *about)
        classes = places(words, rows.labels, about[0])
        encoded = model.encoder_.transform(table)
        return [torch.from_numpy(part) for part in encoded], torch.from_numpy(classes)

    seed = int(model.random_state)
    valid = _part_of(rows, parts == 1)
    held = Rows.of(model.encoder_.transform(valid.table), valid.classes, None)
    steps = max(1, round(passes * (groups.rows - (parts > 0).sum()) / BATCH))
    batches = Batches(groups, encode, BATCH, seed)
    streaming.train(model, batches, held, steps, seed, work, progress)


def _part_of(rows: Labeled, chosen: NDArray[np.bool_]) -> Labeled:
    index = np.flatnonzero(chosen)
    return rows._replace(table=rows_of(rows.table, index), classes=rows.classes[index])
