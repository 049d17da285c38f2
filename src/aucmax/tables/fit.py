"""From a file to a model folder with its report."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aucmax import checks
from aucmax.disk import replace_folder, write_json
from aucmax.judge.evaluation import Evaluation, Interval, Part, Peer
from aucmax.judge.peers import compare_with_peers
from aucmax.tables import evaluate
from aucmax.tables.classifier import AUCClassifier
from aucmax.tables.encoder import TableEncoder
from aucmax.tables.hints import hints
from aucmax.tables.holdout import hold_out
from aucmax.tables.labeled import Labeled, read_labeled, rows_of
from aucmax.tables.store import plain_number

FILES = {
    "model.json", "model.safetensors", "evaluation.json", "evaluation.safetensors", "report.html",
    "tuning.json",
}  # fmt: skip
"""All that is ever in a model's folder; with others in it, it is not replaced."""


class Fitted(NamedTuple):
    """What :func:`fit_file` has made."""

    folder: Path
    model: AUCClassifier
    evaluation: Evaluation
    report: Path
    replaced: bool = False
    """Whether the folder held a model before."""


class Source(NamedTuple):
    """Where rows come from, and which of them are kept apart; see :func:`fit_file`."""

    data: str
    target: str
    positive: str | None
    drop: tuple[str, ...]
    test_share: float
    seed: int

    def parts(self) -> tuple[Labeled, Labeled]:
        """The rows to train on, and those to judge by."""
        rows = read_labeled(self.data, self.target, positive=self.positive, drop=self.drop)
        rows = rows._replace(notes=[*rows.notes, *hints(rows, self.target)])
        return _split(rows, self.test_share, self.seed)


def fit_file(
    data: str | Path,
    target: str,
    *,
    positive: str | None = None,
    out: str | Path | None = None,
    drop: Sequence[str] = (),
    test_share: float = 0.2,
    time_limit: float | None = None,
    seed: int = 0,
    compare: bool = True,
    command: str = "",
    progress: bool = True,
    **options: Any,
) -> Fitted:
    """Train on a file, judge the model on rows kept apart, and write model and report.

    Args:
        data: CSV, Parquet or Arrow.
        target: the column to predict.
        positive: its positive label; None finds it.
        out: folder for the model; None for the file's name with "-model".
        drop: columns to leave out.
        test_share: share of the rows kept apart to judge by, repeats of a row together.
        time_limit: seconds for the training.
        seed: of everything.
        compare: whether to train logistic regression and gradient boosting too.
        command: what was typed, for the report.
        progress: whether to show a bar.
        options: more arguments of :class:`AUCClassifier`.

    Returns:
        The folder, the model and how good it is.

    Raises:
        ValueError: for what cannot be right; nothing is written then.
    """
    source = Source(str(data), target, positive, tuple(drop), checked_share(test_share), seed)
    folder = free_folder(Path(out) if out is not None else default_folder(data))
    train, test = source.parts()
    began = time.perf_counter()
    model = trained(train, seed, time_limit=time_limit, verbose=progress, **options)
    seconds = round(time.perf_counter() - began, 3)
    evaluation = judged(model, train, test, compare, target, command, seconds)
    return write(folder, model, evaluation)


def checked_share(test_share: float) -> float:
    """The share, if it leaves rows on both sides."""
    return checks.number("test_share", test_share, "a share between 0 and 1", lambda x: 0 < x < 1)


def trained(train: Labeled, seed: int, **options: Any) -> AUCClassifier:
    """A classifier for the rows, which predicts their labels."""
    model = AUCClassifier(random_state=seed, threshold="balanced", **options)
    model.fit(train.table, train.classes)
    model.classes_ = np.array(train.labels, dtype=object)
    return model


def default_folder(data: str | Path) -> Path:
    """Where the model of a file goes if nobody says."""
    return Path(f"{Path(data).name.split('.')[0]}-model")


def free_folder(folder: Path) -> Path:
    """The folder, if it is free or holds nothing but a model to be replaced."""
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, found the file {folder}")
    found = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if found - FILES or (found and not holds_model(folder)):
        other = sorted(found - FILES or found)[0]
        raise ValueError(f"out must be empty or a model's folder, found {other!r} in {folder}")
    for suffix in (".partial", ".before"):
        if folder.with_name(folder.name + suffix).exists():
            raise ValueError(
                f"out must leave {folder.name}{suffix} free, found it beside {folder}: remove it"
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def holds_model(folder: Path) -> bool:
    """Whether ``model.json`` is a classifier's: other programs write files of this name too."""
    try:
        found = json.loads((folder / "model.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "classifier" in found


def _split(rows: Labeled, share: float, seed: int) -> tuple[Labeled, Labeled]:
    encoded = TableEncoder().fit(rows.table).transform(rows.table)
    train, test = hold_out(encoded, rows.classes, None, share, seed)
    if not len(test):
        counts = np.bincount(rows.classes)
        few = rows.labels[int(counts.argmin())]
        raise ValueError(
            f"data must have enough rows of every label to keep some apart, found few of {few!r} "
            f"that differ, {counts.min()} in all"
        )
    return tuple(  # type: ignore[return-value]
        Labeled(rows_of(rows.table, part), rows.classes[part], rows.labels, rows.notes)
        for part in (train, test)
    )


def judged(
    model: AUCClassifier,
    train: Labeled,
    test: Labeled,
    compare: bool,
    target: str,
    command: str,
    seconds: float,
) -> Evaluation:
    """All that the report says of the model, whose test rows are encoded and scored once."""
    counts = {**model.rows_, "test": np.bincount(test.classes, minlength=2).tolist()}
    encoder = model.encoder_
    encoded = encoder.transform(test.table)
    scores = model.score_encoded(encoded)
    probability = model.calibration_(scores)
    ranking = scores if scores.ndim == 1 else probability
    peers: list[Peer] = []
    notes = [*train.notes, *encoder.notes(train.table)]
    if compare:
        peers, more = compare_with_peers(
            encoder.transform(train.table), train.classes, encoded, test.classes,
            encoder.cardinalities, ranking,
        )  # fmt: skip
        notes += more
    return Evaluation(
        target=target,
        labels=tuple(train.labels),
        parts={part: Part(sum(each), tuple(each)) for part, each in counts.items()},
        probability=probability,
        classes=test.classes,
        auc=Interval.of_auc(ranking, test.classes),
        threshold=model.threshold_ if scores.ndim == 1 else None,
        peers=tuple(peers),
        importance=evaluate.importance(model, encoded, test.classes),
        columns=evaluate.describe_columns(encoder, train.table),
        history=tuple({k: plain_number(v) for k, v in r.items()} for r in model.history_),
        notes=tuple(notes),
        seconds=seconds,
        command=command,
        versions=evaluate.versions(),
    )


def write(
    folder: Path,
    model: AUCClassifier,
    evaluation: Evaluation,
    tuning: dict[str, Any] | None = None,
) -> Fitted:
    """All files or none: they are made beside the folder, which then takes their place."""
    from aucmax.report.page import write_model_page

    fresh = folder.with_name(folder.name + ".partial")
    try:
        model.save(fresh)
        evaluation.write(fresh)
        write_model_page(fresh / "report.html", evaluation)
        if tuning is not None:
            write_json(fresh / "tuning.json", tuning)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    replaced = holds_model(folder)
    replace_folder(folder, fresh)
    return Fitted(folder, model, evaluation, folder / "report.html", replaced)
